#!/usr/bin/python3
"""Watches a video of a camera (camera.py), and says what there was to be seen.

  viewer CAMERA [--seconds 10] [--buffer 1] [--at-least PERCENT] [--at-least-keys PERCENT]

A frame counts if all of it arrived in time: each frame is shown --buffer seconds after it would have arrived without
delay. A key frame can be decoded by itself; a difference frame needs all frames before it, back to the key frame. What
cannot be decoded is not shown: the picture stands still. (Real decoders also show some of what is damaged.)

Exit status: 0; 1 if less than --at-least per cent of all frames can be decoded, or less than --at-least-keys per cent
of the key frames; 2 if the video could not be watched.
"""
import argparse
import json
import select
import socket
import struct
import sys
import time

CLOCK = 90000  # Hz, of PTS
VIDEO_STREAM, SOUND_STREAM = 0xE0, 0xC0
PATIENCE = 5  # s: to connect, and for the end of a stream that is due


class Frame:
    """What the first packet of a frame says."""

    def __init__(self, sequence, number, key, packets):
        self.sequence, self.number, self.key, self.packets = sequence, number, key, packets


def warn(text):
    print("warning: " + text, file=sys.stderr)


def connect(host, port):
    until = time.monotonic() + PATIENCE
    while True:
        try:
            address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
            return socket.create_connection(address, PATIENCE), address[0]
        except OSError as e:  # it may not have begun to listen
            if not isinstance(e, ConnectionRefusedError) or time.monotonic() > until:
                raise OSError(f"connect to {host}, TCP port {port}: {e.strerror or e}")
            time.sleep(0.1)


class Watch:
    """Receives a stream. arrivals has the time of each packet, by sequence number."""

    def __init__(self, options):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.udp.bind(("", 0))
        self.arrivals, self.frames, self.sound = {}, [], {}
        self.latest = None
        self.camera, self.address = connect(options.camera, options.port)
        self.camera.sendall(b"PLAY %d %d\n" % (self.udp.getsockname()[1], options.seconds))
        self.lines = self.camera.makefile("rb")
        self.plan = self.read_line()

    def read_line(self):
        line = self.lines.readline(1000)
        if not line:
            raise ConnectionError("the camera has ended the connection")
        said = json.loads(line)
        if "error" in said:
            raise ConnectionError(f"the camera says: {said['error']}")
        return said

    def receive(self, options):
        """Until the end of the stream, and as long as a packet could still be in time."""
        until, end = time.monotonic() + options.seconds + options.buffer + PATIENCE, None
        while time.monotonic() < until:
            sockets = [self.udp] if end else [self.udp, self.camera]
            ready = select.select(sockets, [], [], max(0, until - time.monotonic()))[0]
            if self.udp in ready:
                data, sender = self.udp.recvfrom(2048)
                if sender[0] == self.address:
                    self.take(data, time.monotonic())
            elif self.camera in ready:
                end, until = self.read_line(), time.monotonic() + options.buffer
        if not end:
            warn("the camera did not say in time that the video has ended")
        elif end["held"]:
            warn(f"{end['held']} packets did not fit into the camera's own buffer")
        if not self.arrivals:
            warn("nothing of the video has arrived")

    def take(self, data, now):
        if len(data) < 12 + 188 or data[0] != 0x80 or data[1] & 0x7F != 33:
            return
        low = struct.unpack_from("!H", data, 2)[0]
        if self.latest is None:
            self.latest = low
        sequence = self.latest + (low - self.latest + 0x8000) % 0x10000 - 0x8000  # the nearest with these 16 bits
        self.latest = max(self.latest, sequence)
        if sequence in self.arrivals:
            return
        self.arrivals[sequence] = now
        ts = data[12:12 + 188]
        payload = ts[5 + ts[4]:] if ts[3] & 0x20 else ts[4:]
        if ts[0] != 0x47 or not ts[1] & 0x40 or payload[:3] != b"\0\0\1" or len(payload) < 14:
            return  # no PES packet begins
        p = payload[9:14]
        pts = (p[0] >> 1 & 7) << 30 | p[1] << 22 | (p[2] >> 1) << 15 | p[3] << 7 | p[4] >> 1
        number = round((pts - self.plan["pts"]) * self.plan["rate"] / CLOCK)
        if payload[3] == SOUND_STREAM:
            self.sound[number] = now
        elif payload[3] == VIDEO_STREAM:
            size = 6 + struct.unpack_from("!H", payload, 4)[0]  # of the PES packet
            packets = 1 + -(-(size - len(payload)) // 184)  # of TS
            self.frames.append(Frame(sequence, number, bool(ts[3] & 0x20 and ts[5] & 0x40), -(-packets // 7)))

    def whole(self, buffer):
        """The frames of which all arrived in time, by their numbers; and the numbers of the sound that did."""
        rate = self.plan["rate"]
        begin = min((self.arrivals[f.sequence] - f.number / rate for f in self.frames), default=0) + buffer
        good = {}
        for f in self.frames:
            due = begin + f.number / rate
            parts = range(f.sequence, f.sequence + f.packets)
            if all(self.arrivals.get(s, float("inf")) <= due for s in parts):
                good[f.number] = f
        return good, [n for n, at in self.sound.items() if at <= begin + n / rate]


def decode(good, total):
    """The numbers of the frames that can be decoded."""
    shown, intact = [], False
    for n in range(total):
        intact = n in good and (good[n].key or intact)
        if intact:
            shown.append(n)
    return shown


def longest_still(shown, total, rate):
    """The longest time for which the picture stands still, in seconds."""
    edges = [-1] + shown + [total]
    return max(b - a - 1 for a, b in zip(edges, edges[1:])) / rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("camera")
    parser.add_argument("--port", type=int, default=5004)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--buffer", type=float, default=1)
    parser.add_argument("--at-least", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--at-least-keys", type=float, default=0, metavar="PERCENT")
    options = parser.parse_args()

    watch = Watch(options)
    watch.receive(options)
    total, keys, rate = (watch.plan[x] for x in ("frames", "keys", "rate"))
    good, sound = watch.whole(options.buffer)
    shown = decode(good, total)
    good_keys = sum(f.key for f in good.values())
    percent = 100 * len(shown) / total
    print(f"key frames {good_keys}/{keys}, difference frames {len(good) - good_keys}/{total - keys}, "
          f"sound {len(sound)}/{total}; decoded {len(shown)}/{total} ({percent:.0f} %), "
          f"longest standstill {longest_still(shown, total, rate):.2f} s")
    if percent < options.at_least or 100 * good_keys < options.at_least_keys * keys:
        sys.exit(1)


try:
    main()
except (OSError, ValueError) as e:
    print(f"error: {e}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
