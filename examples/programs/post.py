#!/usr/bin/python3
"""Sends and receives letters of examples/programs/post.c, in a node.

  post send INTERFACE FROM TO TEXT [--hops N]     addresses are AREA.STATION
  post recv INTERFACE [COUNT]                     prints letters, one a line
"""
import socket
import struct
import sys

LOCAL = 0x88B5  # for experiments (IEEE 802, local experimental Ethertype 1)
ETHERNET = struct.Struct("!6s6sH")
LETTER = struct.Struct("!BBBBBB")  # to, hops, flags, from


def address(text):
    area, station = text.split(".")
    return int(area), int(station)


def open_interface(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(LOCAL))
    s.bind((name, LOCAL))
    return s


def send(interface, sender, to, text, hops=16):
    s = open_interface(interface)
    own = s.getsockname()[4]
    head = ETHERNET.pack(b"\xff" * 6, own, LOCAL) + LETTER.pack(*address(to), hops, 0, *address(sender))
    s.send((head + text.encode()).ljust(60, b"\0"))


def recv(interface, count=0):
    s = open_interface(interface)
    received = 0
    while not count or received < count:
        frame, who = s.recvfrom(65535)
        if who[2] == socket.PACKET_OUTGOING:
            continue
        area, station, hops, _, from_area, from_station = LETTER.unpack_from(frame, ETHERNET.size)
        text = frame[ETHERNET.size + LETTER.size:].rstrip(b"\0").decode(errors="replace")
        print(f"from {from_area}.{from_station} to {area}.{station}, {hops} hops left: {text}", flush=True)
        received += 1


def main(words):
    hops = 16
    if "--hops" in words:
        at = words.index("--hops")
        hops = int(words[at + 1])
        del words[at:at + 2]
    if len(words) == 5 and words[0] == "send":
        send(*words[1:], hops)
    elif len(words) in (2, 3) and words[0] == "recv":
        recv(words[1], int(words[2]) if len(words) == 3 else 0)
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
