#!/usr/bin/python3
"""Sends a video to viewers that ask for it (viewer.py): MPEG-2 transport streams over RTP, as examples/programs/video.c
reads them. The pictures are empty; sizes, headers and times are those of a video.

  camera [--port 5004] [--rate 25] [--group 12] [--key 20] [--difference 6]

A viewer connects by TCP and says "PLAY UDP-PORT SECONDS". It is told as JSON what the stream will have, gets the stream
by UDP, and is told at the end how much of it was sent. A stream has groups of frames: a key frame of --key RTP packets,
and difference frames of --difference packets. Each frame begins in an RTP packet of its own and is sent at once; sound
follows it. The tables (PAT, PMT) stand before key frames.
"""
import argparse
import contextlib
import json
import random
import select
import socket
import struct
import sys
import threading
import time

TS_SIZE, TS_IN_RTP = 188, 7  # 7 TS packets fill an Ethernet frame
CLOCK = 90000  # Hz, of RTP and PTS
FIRST_PTS = CLOCK
PMT, VIDEO, SOUND = 0x1000, 0x100, 0x101  # PIDs
VIDEO_STREAM, SOUND_STREAM = 0xE0, 0xC0  # stream_id of PES
MOST_SECONDS, MOST_VIEWERS = 600, 16


def crc(data):
    """CRC-32 of MPEG (ISO/IEC 13818-1, annex A)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)) & 0xFFFFFFFF
    return struct.pack("!I", value)


def section(table, number, body):
    head = struct.pack("!BHHBBB", table, 0xB000 | 5 + len(body) + 4, number, 0xC1, 0, 0)
    return b"\0" + head + body + crc(head + body)  # the first byte points at what follows it


PROGRAMS = section(0, 1, struct.pack("!HH", 1, 0xE000 | PMT))  # PAT
STREAMS = section(2, 1, struct.pack("!HH", 0xE000 | VIDEO, 0xF000) +  # PMT: the clock is in the video; H.264, AAC
                  struct.pack("!BHH", 0x1B, 0xE000 | VIDEO, 0xF000) + struct.pack("!BHH", 0x0F, 0xE000 | SOUND, 0xF000))


class Multiplex:
    """Makes TS packets. Each PID has a counter of its packets."""

    def __init__(self):
        self.counters = {}

    def packet(self, pid, payload, begins, adaptation=b""):
        """One TS packet; adaptation is the field behind its length. What is missing is filled up there."""
        counter = self.counters[pid] = self.counters.get(pid, -1) + 1 & 15
        room = TS_SIZE - 4 - len(payload)
        field = b""
        if adaptation or room:
            field = bytes([room - 1]) + ((adaptation or b"\0").ljust(room - 1, b"\xff") if room > 1 else b"")
        head = struct.pack("!BHB", 0x47, begins << 14 | pid, (0x30 if field else 0x10) | counter)
        return head + field + payload

    def pes(self, pid, stream, pts, packets, flags):
        """A PES packet that fills so many TS packets. flags are those of the first adaptation field, with a clock."""
        base = pts - CLOCK // 10  # PCR: what is sent now is due in 100 ms
        adaptation = bytes([flags | 0x10]) + struct.pack("!IH", base >> 1, (base & 1) << 15 | 0x7E00)
        size = packets * (TS_SIZE - 4) - 1 - len(adaptation)
        stamp = struct.pack("!BHH", 0x21 | pts >> 29 & 14, pts >> 14 & 0xFFFE | 1, pts << 1 & 0xFFFE | 1)
        data = struct.pack("!IHBBB", 0x100 | stream, size - 6, 0x80, 0x80, len(stamp)) + stamp
        data = data.ljust(size, b"\0")
        first = TS_SIZE - 4 - 1 - len(adaptation)
        out = [self.packet(pid, data[:first], True, adaptation)]
        return out + [self.packet(pid, data[at:at + 184], False) for at in range(first, size, 184)]

    def tables(self):
        return [self.packet(0, PROGRAMS, True, b"\0"), self.packet(PMT, STREAMS, True, b"\0")]


class Stream:
    """The packets of a stream, by frame, and their way to one viewer."""

    def __init__(self, options, viewer):
        self.options, self.multiplex = options, Multiplex()
        self.sequence, self.source = random.getrandbits(16), random.getrandbits(32)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Frames that wait in a queue on the same machine count as the socket's. The kernel bounds this.
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.udp.connect(viewer)
        self.udp.setblocking(False)
        self.sent = self.held = 0

    def payloads(self, n):
        """The TS packets of frame n and its sound, as lists that are an RTP packet each."""
        o, pts = self.options, FIRST_PTS + n * CLOCK // self.options.rate
        key = n % o.group == 0
        if key:
            yield self.multiplex.tables()
        video = self.multiplex.pes(VIDEO, VIDEO_STREAM, pts, (o.key if key else o.difference) * TS_IN_RTP,
                                   0x40 if key else 0)  # random_access_indicator
        for at in range(0, len(video), TS_IN_RTP):
            yield video[at:at + TS_IN_RTP]
        yield self.multiplex.pes(SOUND, SOUND_STREAM, pts, 2, 0x40)  # all sound can be begun with

    def send(self, n):
        now = FIRST_PTS + n * CLOCK // self.options.rate
        for payload in self.payloads(n):
            head = struct.pack("!BBHII", 0x80, 33, self.sequence, now & 0xFFFFFFFF, self.source)
            self.sequence = self.sequence + 1 & 0xFFFF
            try:
                self.udp.send(head + b"".join(payload))
                self.sent += 1
            except BlockingIOError:
                self.held += 1


def play(options, connection, viewer):
    """Serves one viewer."""
    connection.settimeout(10)
    words = connection.makefile("rb").readline(100).split()
    if len(words) != 3 or words[0] != b"PLAY" or not all(w.isdigit() for w in words[1:]):
        raise ValueError("a viewer says PLAY UDP-PORT SECONDS")
    port, seconds = int(words[1]), int(words[2])
    if not 1 <= port <= 65535 or not 1 <= seconds <= MOST_SECONDS:
        raise ValueError(f"a video has 1 to {MOST_SECONDS} seconds, and goes to a port of 1 to 65535")
    frames = seconds * options.rate
    stream = Stream(options, (viewer, port))
    tell(connection, frames=frames, keys=-(-frames // options.group), rate=options.rate, pts=FIRST_PTS)
    begin = time.monotonic()
    for n in range(frames):
        late = time.monotonic() - begin - n / options.rate
        time.sleep(max(0, -late))
        if late > 1 / options.rate:  # the machine was busy: what is late is not sent all at once
            begin += late
        if select.select([connection], [], [], 0)[0]:
            raise ValueError("the viewer left before the end")
        stream.send(n)
    tell(connection, sent=stream.sent, held=stream.held)
    print(f"{viewer}: {frames} frames, {stream.sent} packets sent", flush=True)


def tell(connection, **what):
    connection.sendall(json.dumps(what).encode() + b"\n")


def serve(options, connection, viewer, free):
    with connection:
        try:
            if not free.acquire(blocking=False):
                raise ValueError(f"{MOST_VIEWERS} viewers are watching")
            try:
                play(options, connection, viewer)
            finally:
                free.release()
        except (OSError, ValueError) as e:
            print(f"{viewer}: {e}", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                tell(connection, error=str(e))


def number(most):
    def read(text):
        if not text.isdigit() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is no number from 1 to {most}")
        return int(text)
    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, most in [("port", 5004, 65535), ("rate", 25, 100), ("group", 12, 1000), ("key", 20, 50),
                              ("difference", 6, 50)]:
        parser.add_argument("--" + name, type=number(most), default=value, metavar="N")
    options = parser.parse_args()
    free = threading.Semaphore(MOST_VIEWERS)
    with socket.create_server(("", options.port)) as server:
        while True:
            connection, viewer = server.accept()
            threading.Thread(target=serve, args=(options, connection, viewer[0], free), daemon=True).start()


try:
    main()
except OSError as e:
    sys.exit(f"error: {e}")
except KeyboardInterrupt:
    pass
