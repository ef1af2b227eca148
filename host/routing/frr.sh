#!/bin/sh
# FRR in a node, unmodified, by the files that Debian's package uses: /etc/frr/daemons says which daemons run and
# with which options, /etc/frr/frr.conf holds the integrated configuration that vtysh loads, shows and writes.
#
#   frr start            start the daemons, load the configuration, then keep everything running (watchfrr)
#   frr restart DAEMON   what watchfrr calls when a daemon died; also "all"
#   frr stop DAEMON
#   frr reload           apply frr.conf and daemons after they changed. No daemon that is still wanted restarts, unless
#                        they refuse it: then all start anew, and standard error says so
#   frr reload-user      the same for a configuration that a user wrote, by frr-reload.py where it is installed
#
# It takes the place of FRR's frrinit.sh and watchfrr.sh, which start one daemon after the other, each by a bash of its
# own, always staticd too, and let daemons log to syslog, which a node does not have.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
conf=/etc/frr
run=/run/frr
applied=$run/applied # frr.conf as the daemons were last given it, or an older one
loaded=$run/loaded   # what the daemons ran when somebody first got into the node (package host/probe/running)
# There while watchfrr ends to be restarted; it holds how the node's first process then goes on: watch, or afresh. (The
# name of the file is that of earlier versions of this script, one of which may be what runs.)
restarting=$run/again
self=$0

say() { echo "frr: $*" >&2; }

# The order in which daemons start; the first ones before all others.
first="zebra mgmtd"
rest="bgpd ripd ripngd ospfd ospf6d isisd babeld pimd pim6d ldpd nhrpd eigrpd sharpd pbrd staticd bfdd fabricd vrrpd"
rest="$rest pathd"

for lib in /usr/lib/frr /usr/libexec/frr /usr/sbin; do
	[ -x "$lib/zebra" ] && break
done
if [ ! -x "$lib/zebra" ]; then
	say "start: no zebra in /usr/lib/frr: install the package frr in this node's root file system"
	exit 127
fi
frr_profile=traditional
frr_global_options=
# shellcheck disable=SC1091
[ -r $conf/daemons ] && . $conf/daemons

# wanted DAEMON: whether it shall run. zebra always does; mgmtd (FRR 9 and newer) and staticd unless told not to.
wanted() {
	case $1 in
	zebra) return 0 ;;
	mgmtd | staticd) eval "on=\${$1:-yes}" ;;
	*) eval "on=\${$1:-no}" ;;
	esac
	[ "$on" != no ] && [ "$on" != 0 ] && [ -x "$lib/$1" ]
}

# instances DAEMON...: the names of what shall run; a daemon with several instances gives each as daemon-number.
instances() {
	for daemon; do
		wanted "$daemon" || continue
		eval "numbers=\${${daemon}_instances:-}"
		if [ -z "$numbers" ]; then
			echo "$daemon"
			continue
		fi
		for number in $(echo "$numbers" | tr , ' '); do
			echo "$daemon-$number"
		done
	done
}

# launch NAME: start one daemon; returns when it listens.
launch() {
	daemon=${1%%-*}
	number=${1#"$daemon"}
	eval "options=\${${daemon}_options:-}; wrap=\${${daemon}_wrap:-}"
	# Words are split on purpose, as FRR's own scripts do.
	# shellcheck disable=SC2086,SC2154
	${all_wrap:-} $wrap "$lib/$daemon" -d --log stdout -F $frr_profile $frr_global_options \
		${number:+-n ${number#-}} $options </dev/null
}

# look_up NAME: set pid to the daemon's process. (By what the shell has built in, as everything that a start does: a
# program that is run takes a millisecond, and a machine starts routers by the hundred.)
look_up() { read -r pid 2>/dev/null <"$run/$1.pid"; }

# alive NAME: whether the daemon runs.
alive() { look_up "$1" && kill -0 "$pid" 2>/dev/null; }

# halt NAME: stop one daemon and wait until it is gone.
halt() {
	look_up "$1" || return 0
	kill -INT "$pid" 2>/dev/null || return 0
	tries=100
	while kill -0 "$pid" 2>/dev/null; do
		[ $((tries -= 1)) -eq 50 ] && kill -KILL "$pid" 2>/dev/null
		[ $tries -gt 0 ] || return 1
		sleep 0.05
	done
	rm -f "$run/$1.pid"
}

# load [-d DAEMON]: send frr.conf to the daemons. Files of single daemons are read by themselves.
load() {
	[ -r $conf/frr.conf ] || return 0
	vtysh -b "$@" || return
	wake_isis
}

# wake_isis: FRR 8.4's isisd, given an lsp-mtu in the configuration that it starts with, never generates its second
# link-state PDU. A change of is-type, there and back, makes it; in a file, the two would cancel out.
wake_isis() {
	wanted isisd || return 0
	commands=$(awk '
	/^router isis / { head = $0; type[head] = "level-1-2" }
	/^ is-type / { type[head] = $2 }
	/^ lsp-mtu / { sleeps[head] }
	END {
		for (head in sleeps)
			printf "configure terminal\n%s\nis-type %s\nis-type %s\nend\n",
				head, type[head] == "level-1-2" ? "level-1" : "level-1-2", type[head]
	}' $conf/frr.conf)
	[ -z "$commands" ] || vtysh -c "$commands"
}

# note: remember what the daemons run, if that was remembered before.
note() {
	[ ! -e $loaded ] || (umask 077 && vtysh -c "show running-config" >$loaded.$$ && mv $loaded.$$ $loaded)
}

# among NAME NAME...: whether the first is one of the others.
among() {
	needle=$1
	shift
	for other; do
		[ "$other" = "$needle" ] && return 0
	done
	return 1
}

start() {
	install -d -o frr -g frr -m 0755 $run
	ulimit -n "${MAX_FDS:-1024}"
	for name in $(instances $first); do # the others find zebra's socket, or look again after 10 s
		launch "$name" || { say "start: $name ended with status $?"; exit 1; }
	done
	for name in $(instances $rest); do
		launch "$name" &
	done
	wait
	# Before it is read: what changes meanwhile is left to a reload. It has passwords: for root alone.
	(umask 077 && cp $conf/frr.conf $applied 2>/dev/null)
	load || say "start: not all of $conf/frr.conf was accepted: see above"
	rm -f $loaded
	watch
}

# afresh: start everything anew.
afresh() {
	# shellcheck disable=SC2046
	for name in $(instances $rest $first); do halt "$name"; done
	start
}

# watch: keep the daemons running. Ends when watchfrr does, and the node with it, unless reload asked for another set
# of daemons: that is made here, because daemons log to where their starter does.
watch() {
	# shellcheck disable=SC2046
	set -- $(instances $first $rest)
	for name; do
		alive "$name" || { launch "$name" && load -d "${name%%-*}"; }
	done
	for file in "$run"/*.pid; do
		name=${file##*/}
		among "${name%.pid}" watchfrr "$@" || halt "${name%.pid}"
	done
	rm -f $restarting
	"$lib/watchfrr" -l 5 --min-restart-interval 1 --max-restart-interval 60 \
		-r "$self restart %s" -s "$self restart %s" -k "$self stop %s" "$@"
	status=$?
	[ -e $restarting ] && exec "$self" "$(cat $restarting)"
	exit $status
}

restart() {
	ulimit -n "${MAX_FDS:-1024}"
	# shellcheck disable=SC2046
	set -- "$1" $(instances $first $rest)
	name=$1
	shift
	if [ "$name" = all ]; then
		for name; do halt "$name"; done
		for name; do launch "$name"; done
		load
		return
	fi
	among "$name" "$@" || return 0 # reload does not want it any more
	halt "$name"
	launch "$name" && load -d "${name%%-*}"
}

# rewatch HOW: let watchfrr end and the node's first process go on by HOW, and wait until watchfrr is back.
rewatch() {
	echo "$1" >$restarting.new && mv $restarting.new $restarting
	look_up watchfrr && kill "$pid"
	await not test -e $restarting && await alive watchfrr && return
	say "reload: the daemons did not start within 20 s"
	return 1
}

not() { ! "$@"; }

# await COMMAND: wait until it succeeds, for 20 s at most.
await() {
	tries=200
	until "$@"; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 0.1
	done
}

reload() {
	umask 077 # configurations have passwords, and $run is open to all; daemons are started by others
	# Not during a start: the daemons would get half of it from here and half from there.
	await alive watchfrr || { say "reload: FRR did not start within 20 s"; return 1; }
	"$1" || return
	# shellcheck disable=SC2046
	set -- $(instances $first $rest)
	another=
	for name; do
		alive "$name" || another=yes
	done
	for file in "$run"/*.pid; do
		name=${file##*/}
		among "${name%.pid}" watchfrr "$@" || another=yes
	done
	[ -z "$another" ] || rewatch watch || return
	note
}

# difference OLD NEW [RUNNING]: the commands that turn the configuration of the first file into that of the second:
# lines that went, last first, behind "no", then lines that came, each in its context. What was changed by hand in the
# meantime stays as it is. Given what is running: without what that shows to be done.
difference() {
	awk '
	function parent(key) { return match(key, /.*\n/) ? substr(key, 1, RLENGTH - 1) : "" }
	function last(key) { return substr(key, length(parent(key)) + (parent(key) == "" ? 1 : 2)) }
	# Contexts that stay when all in them is gone.
	function stays(key) { return last(key) ~ /^(interface|address-family) / }
	# Whether the removal of a context that is gone takes this line along.
	function covered(key) {
		for (key = parent(key); key != ""; key = parent(key))
			if (!(key in new) && !stays(key)) return 1
		return 0
	}
	# What a line sets, where the next line of its kind replaces it.
	function single(key) {
		return key ~ /(cost|interval|metric|multiplier|priority) [0-9]+$/ && sub(/ [0-9]+$/, "", key) ? key : ""
	}
	function enter(context, n, words, i) {
		if (context == current) return
		for (n = split(current, words, "\n"); n > 0; n--) print "exit"
		n = split(context, words, "\n")
		for (i = 1; i <= n; i++) print words[i]
		current = context
	}
	FNR == 1 { depth = 0 }
	# what a start decides, no reload can
	/^[ \t]*$/ || /^[ \t]*(!|#|exit|end$|frr version|frr defaults|Building|Current)/ { next }
	{
		sub(/[ \t\r]+$/, "")
		match($0, /^ */)
		indent = RLENGTH
		while (depth > 0 && at[depth] >= indent) depth--
		key = substr($0, indent + 1)
		if (depth > 0) { key = path[depth] "\n" key; kids[file, path[depth]] = 1 }
		at[++depth] = indent
		path[depth] = key
		if (file == 1) { old[key] = 1; olds[++nOld] = key }
		if (file == 2) { new[key] = 1; news[++nNew] = key }
		if (file == 3) running[key] = 1
		if (file == 2 && single(key) != "") set[single(key)] = 1
	}
	END {
		for (i = nOld; i > 0; i--) {
			key = olds[i]
			if (key in new || covered(key) || stays(key)) continue
			if (single(key) != "" && single(key) in set) continue
			if (file == 3 && !(key in running)) continue
			# It goes with "mpls-te on", and ospfd has no command to take it back alone.
			if (last(key) ~ /^mpls-te router-address /) continue
			split(last(key), word, " ")
			if (word[1] == "neighbor" && word[3] == "remote-as") gone[word[2]] = 1
			enter(parent(key))
			if (last(key) ~ /^no /) print substr(last(key), 4); else print "no " last(key)
		}
		for (i = 1; i <= nNew; i++) {
			key = news[i]
			split(last(key), word, " ")
			if ((2, key) in kids) continue
			if (key in old && !(word[1] == "neighbor" && word[2] in gone)) continue
			if (file == 3 && key in running) continue
			enter(parent(key))
			print last(key)
		}
		enter("")
	}' file=1 "$1" file=2 "$2" ${3:+file=3 "$3"}
}

# apply: bring the running daemons from the configuration that was loaded last to the present one. A daemon refuses
# to take away what it does not have, as after watchfrr gave it a newer configuration than the last: so what was
# refused is tried once more by what the daemons say that they run. Else they start anew, unless what is written is at
# fault.
apply() {
	[ -r $conf/frr.conf ] || return 0
	[ -r $applied ] || : >$applied
	cp $conf/frr.conf $run/wanted # it may change meanwhile
	difference $applied $run/wanted >$run/difference
	if ! send; then
		vtysh -c "show running-config" >$run/running
		difference $applied $run/wanted $run/running >$run/difference
		send || insist || return
	fi
	mv $run/wanted $applied
}

# send: give the daemons the commands in $run/difference. What they say stays in $run/refused.
send() { [ ! -s $run/difference ] || vtysh -f $run/difference >$run/refused 2>&1; }

# insist: start all daemons anew, with a configuration that they refused to change to.
insist() {
	vtysh -C -f $conf/frr.conf >$run/faults 2>&1 || {
		say "reload: $conf/frr.conf is not accepted:"
		cat $run/faults >&2
		return 1
	}
	say "reload: the daemons were started anew, for they refused:"
	cat $run/refused >&2
	rewatch afresh
}

# apply_user: the same through FRR's own tool, which compares with what the daemons run.
apply_user() {
	if [ -x "$lib/frr-reload.py" ] && [ -r $conf/frr.conf ]; then
		"$lib/frr-reload.py" --reload $conf/frr.conf && cp $conf/frr.conf $applied
	else
		apply
	fi
}

case ${1:-} in
start) start ;;
watch) watch ;;
afresh) afresh ;;
restart) restart "$2" ;;
stop) halt "$2" ;;
reload) reload apply ;;
reload-user) reload apply_user ;;
difference) difference "$2" "$3" "${4:-}" ;;
*)
	say "usage: frr start | restart DAEMON | stop DAEMON | reload | reload-user | difference OLD NEW [RUNNING]"
	exit 2
	;;
esac
