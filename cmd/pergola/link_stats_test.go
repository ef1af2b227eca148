package main

import "testing"

func TestLinkStatsShowsQueues(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "link", "stats").want(t, 0,
		`^FROM +TO +CLASS +FRAMES +BYTES +DROPS +OVERLIMITS +BACKLOG\n`+
			`a:eth1 +b:eth1 +- +1 +60 +3 +0 +0\nb:eth1 +a:eth1 +- +1 +60 +3 +0 +0\n$`, "")
	pergola(t, "link", "stats", "lab/b:eth1").want(t, 0, `^FROM.*\nb:eth1 +a:eth1 .*\n$`, "")
	pergola(t, "link", "stats", "a:eth1--b:eth1", "--json").want(t, 0, `(?s)"dropped": 3.*"dropped": 3`, "")
	pergola(t, "link", "stats", "a:eth2").want(t, 0, "", "no link of these has a rate")
	pergola(t, "link", "stats", "a:eth1", "--watch", "--every", "10ms").want(t, 0,
		`^FROM.*FRAMES/S.*\na:eth1 +b:eth1 +- +0 +- +0 +0 +0\n$`, "")
	pergola(t, "link", "stats", "--watch", "--every", "10ms", "-n2", "--json").want(t, 0,
		`(?s)"queues".*"queues"`, "")
	pergola(t, "link", "stats", "c:eth1").want(t, 1, "", `no`)
	pergola(t, "link", "stats", "--every", "0s").want(t, 2, "", "a span of 0s")
}
