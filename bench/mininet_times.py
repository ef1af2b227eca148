"""Times Mininet: mininet_times.py single|linear N. Prints {"up": seconds}, and then {"down": seconds}."""
import json
import sys
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import LinearTopo, SingleSwitchTopo

graph, n = sys.argv[1], int(sys.argv[2])
topo = {"single": SingleSwitchTopo, "linear": LinearTopo}[graph](n)
setLogLevel("error")

started = time.monotonic()
net = Mininet(topo=topo, switch=LinuxBridge, controller=None, waitConnected=False)
net.start()
print(json.dumps({"up": time.monotonic() - started}), flush=True)

hosts = net.hosts
if graph == "single" or n <= 100:
    out = hosts[0].cmd("ping -c1 -W5 " + hosts[-1].IP())
    if " 0% packet loss" not in out:
        sys.exit("the first host does not reach the last: " + out)

started = time.monotonic()
net.stop()
print(json.dumps({"down": time.monotonic() - started}))
