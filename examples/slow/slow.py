#!/usr/bin/python3
"""The slow path of a post office (../programs/post.c): it knows where areas are, and the packet program learns it.

  slow AREA=INTERFACE...

A letter to an area for which there is no filter is punted. It gets a filter, and enters the program again; those that
follow are not punted any more. slow.c and main.go do the same.
"""
import json
import os
import socket
import struct
import sys
import time

SOCKET = "/run/pergola/node.sock"
# struct pergola_slow (pergola/slow.h): type, version, kind, length of the header, interface, reason, flow, queue, time,
# length of the frame, port, table, address, key
HEADER = struct.Struct("!12xHBBHHIIIQIHH16s64s")
ENTER = 3
LETTER = 0x88B5


def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            s.connect(SOCKET)
            return s
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.1)  # the agent listens soon


def ask(**request):
    """Makes a request; returns the file descriptor that came with the answer, if one did."""
    global control
    while True:
        try:
            control.send(json.dumps(request).encode())
            data, rights, _, _ = control.recvmsg(1 << 18, socket.CMSG_SPACE(4))
        except OSError:
            data = b""
        if data:
            break
        control = connect()  # the agent was restarted
    answer = json.loads(data)
    if "error" in answer and answer["code"] != "exists":  # of two letters, the first one's filter is there
        raise SystemExit(f"{request['do']}: {answer['error']}")
    return struct.unpack("i", rights[0][2])[0] if rights else None


def main(routes):
    interfaces = dict(map(int, route.split("=")) for route in routes)
    ask(id=1, do="replace_filters")
    slow = ask(id=2, do="slow_path")
    while True:
        punted = os.read(slow, 1 << 16)
        head, frame = HEADER.unpack_from(punted), punted[HEADER.size:]
        interface, area = head[4], head[13][0]
        if struct.unpack_from("!H", frame, 12)[0] != LETTER:
            continue
        if area not in interfaces:
            print(f"nobody knows where area {area} is", flush=True)
            continue
        ask(id=3, do="change_filters", insert=[f"area={area} -> send {interfaces[area]}"])
        print(f"area {area} is at interface {interfaces[area]}", flush=True)
        os.write(slow, HEADER.pack(0x0800, 1, ENTER, HEADER.size, interface, 0, 0, 0, 0, 0, 0, 0, b"", b"") + frame)


control = connect()
main(sys.argv[1:])
