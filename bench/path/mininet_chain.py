"""Chains of Linux routers, made by Mininet: mininet_chain.py ROUTERS.

Hands the network namespaces of the left host, the right host and the first router (if there is one) over through the socket that is file
descriptor 3, and takes the network down when that is closed.
"""
import os
import socket
import sys

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node


class LinuxRouter(Node):
    """As in Mininet's examples/linuxrouter.py."""

    def config(self, **params):
        super().config(**params)
        self.cmd("sysctl -w net.ipv4.ip_forward=1")


routers = int(sys.argv[1])
setLogLevel("error")
net = Mininet(controller=None, waitConnected=False)
nodes = [
    net.addHost(f"n{i}", cls=LinuxRouter if 0 < i <= routers else Node, ip=None)
    for i in range(routers + 2)
]
for i in range(routers + 1):
    left, right = nodes[i], nodes[i + 1]
    net.addLink(
        left, right, intfName1="right", intfName2="left",
        addr1=f"02:00:00:12:{i:02x}:01", addr2=f"02:00:00:12:{i:02x}:02",
        params1={"ip": f"198.18.{i}.1/24"}, params2={"ip": f"198.18.{i}.2/24"},
    )
net.build()
for i, node in enumerate(nodes):
    if i < routers:
        node.cmd(f"ip route add 198.18.{routers}.0/24 via 198.18.{i}.2")
    if i > 1:
        node.cmd(f"ip route add 198.18.0.0/24 via 198.18.{i - 1}.1")

wanted = [nodes[0], nodes[-1]] + nodes[1:2] * (routers > 0)
control = socket.socket(fileno=3)
socket.send_fds(control, [b"ready"], [os.open(f"/proc/{n.pid}/ns/net", os.O_RDONLY) for n in wanted])
control.recv(1)
net.stop()
