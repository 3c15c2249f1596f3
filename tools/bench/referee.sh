#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# timeout: 900
# cpus: 1
# clock: instructions
# leaks: no
# The referee: one system (`ours`, `c_module` or `tcp`) between two network namespaces with soft RoCE, where
# each instruction takes a nanosecond and is counted. With SAME_HOST both modules go by shared memory, without an RDMA
# device, and there are others, which have no figures for programs that cannot use them: `tcp_lo` is TCP within one
# namespace, `sockmap` TCP whose data BPF programs (the object $SOCKMAP) lead from socket to socket, `unix` has UNIX
# sockets, and `bound` memory that both processes map. The program $PEER (tools/bench/peer.c) can use all of them.
#   referee.sh SYSTEM SECONDS PROGRAM...
# Writes "PROGRAM NANOSECONDS [BYTES]" lines to $OUT/windows, for each program's time in which QEMU's plugin
# counted (its file counts.N belongs to line (N + 1) / 2, if N is odd), and the kernel's symbols to $OUT/kallsyms.
# `make bench ARGS=--referee` runs it; see Documentation/performance.md.

. "$LIB"

SYSTEM=$1 WINDOW=$2
shift 2

die() {
	echo "$SYSTEM: $*"
	tail -n 3 /tmp/server /tmp/sockperf /tmp/load 2>/dev/null
	exit 1
}

# read_programs: keeps the programs and their libraries in memory. While the guest waits for this machine to read a
# file, its clock leaps from timer to timer, and timeouts and test durations are over before the file is there.
read_programs() {
	local program path
	for program in "$BIN/smctest" "$BIN/smc" sockperf iperf3 ip ss awk sed grep cat sleep setsid sh bash; do
		path=$(command -v "$program") && ldd "$path" | grep -o '/[^ ]*' | xargs cat "$path" >/dev/null || return
	done
	if [ -n "${SAME_HOST:-}" ]; then
		for program in "$PEER" bpftool redis-server redis-benchmark nginx wrk h2load memcached memcslap tr \
			"$(ls -d /usr/lib/postgresql/*/bin/postgres | tail -1)" "$(ls -d /usr/lib/postgresql/*/bin/pgbench | tail -1)"; do
			path=$(command -v "$program") && ldd "$path" | grep -o '/[^ ]*' | xargs cat "$path" >/dev/null || return
		done
	fi
	cat "$BIN/libsmc_preload.so" >/dev/null
}

# Windows ------------------------------------------------------------------------------------

# mark: the plugin writes what it counted, and counts anew.
mark() {
	echo referee >/proc/sys/kernel/domainname
}

# pass SECONDS: lets them pass, without another process.
exec {SILENCE}<> <(:)
pass() {
	read -r -t "$1" -u "$SILENCE" || :
}

# packets: how many the network device of a has sent. A process that sleeps there shows them without a new one.
DEVICE=wire_a
packets() {
	local words
	while read -r -a words; do
		[ "${words[0]}" != "$DEVICE:" ] || echo "${words[10]}"
	done <"/proc/$SLEEPER/net/dev"
}

# flowing COUNT: so many packets were sent.
flowing() {
	[ "$(packets)" -ge "$1" ]
}

# busy PID: it has used the processor for a third of a second, in ticks of 10 ms. What goes by shared memory shows
# nowhere else.
busy() {
	local words
	read -r -a words <"/proc/$1/stat" || die "the program is over"
	[ $((words[13] + words[14])) -ge 33 ]
}

# amid PROGRAM PID: counts for $ELAPSED ns in the middle of what that process runs for, once it sends; $BEFORE packets
# were sent before it. The guest must not read files meanwhile: this machine takes its own time for that, during which
# the guest's clock leaps.
amid() {
	local start end
	if [ -n "${SAME_HOST:-}" ]; then
		within 20 busy "$2" || die "$1: does nothing"
	else
		within 20 flowing $((BEFORE + 200)) || die "$1: sends nothing"
	fi
	pass 0.3
	mark
	start=${EPOCHREALTIME/./}
	pass "$WINDOW"
	end=${EPOCHREALTIME/./}
	mark
	kill -0 "$2" || die "$1: over too early"
	ELAPSED=$((end - start))000
}

# Programs -----------------------------------------------------------------------------------

# by_device COMMAND...: the command's data go the way they are meant to go: over TCP, by at least 100 kB over the RDMA
# device, or within the kernel.
by_device() {
	if [ -n "${SAME_HOST:-}" ] && [ "$FAMILY" = smc ] || [ "$SYSTEM" = sockmap ]; then
		off_the_wire "$@"
	elif [ "$FAMILY" = tcp ]; then
		"$@"
	else
		by_rdma 100000 "$@"
	fi
}

# off_the_wire COMMAND...: the command's data do not go over the wire, but the handshakes of its connections, of which
# there are $CONNECTIONS.
CONNECTIONS=20
off_the_wire() {
	local before
	before=$(packets)
	"$@" && [ $(($(packets) - before)) -lt $((50 * CONNECTIONS)) ]
}

# neighbors: each end knows the other's hardware address for ever. What the kernel does to find whether it still has it
# costs a packet some per cent, now and then.
neighbors() {
	ip -n a neighbor replace "$IP_B" lladdr "$(mac b)" nud permanent dev wire_a &&
		ip -n b neighbor replace "$IP_A" lladdr "$(mac a)" nud permanent dev wire_b
}

# fallbacks: connections of a that were opened by SMC sockets and go over TCP.
fallbacks() {
	in_ns a "$BIN/smc" stats --json | awk '/"end"/ { is_client = /"client"/ }
		/"count"/ && is_client { gsub(/[^0-9]/, ""); n += $0 }
		END { print n + 0 }'
}

# after_fallback COMMAND...: the command's sockets are SMC sockets without an RDMA device, or TCP's.
after_fallback() {
	local before
	[ "$FAMILY" = tcp ] || before=$(fallbacks)
	"$@"
	[ "$FAMILY" = tcp ] || [ "$(fallbacks)" -gt "$before" ] || die "$1: no SMC socket fell back"
}

# sockperf_amid PROGRAM MODE BYTES: its report is in /tmp/sockperf. It warms up for 0.4 s.
sockperf_amid() {
	local program=$1 mode=$2 bytes=$3 server client
	# The prefix is a command, or nothing.
	# shellcheck disable=SC2086
	ip netns exec b $PREFIX sockperf server --tcp -i "$IP_B" -p 11111 >/tmp/server 2>&1 &
	server=$!
	await_port b 11111 || die "$program: sockperf does not listen"
	BEFORE=$(packets)
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX sockperf "$mode" --tcp -i "$IP_B" -p 11111 -t "$RUN_SECONDS" -m "$bytes" \
		>/tmp/sockperf 2>&1 &
	client=$!
	amid "$program" "$client"
	wait "$client" || die "$program: $(tail -3 /tmp/sockperf)"
	grep -E 'percentile 50|Message Rate' /tmp/sockperf
	echo "$program $ELAPSED" >>"$OUT/windows"
	kill "$server" && { wait "$server" || :; } 2>/dev/null
}

pingpong() {
	by_device sockperf_amid "$1" ping-pong "$2" || die "$1: not by RDMA"
	grep -q '# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0' /tmp/sockperf ||
		die "$1: messages are lost, twice or out of order"
}

iperf3_amid() {
	local program=$1
	BEFORE=$(packets)
	iperf3_begin "$PREFIX" "$PREFIX" "$RUN_SECONDS" || die "iperf3 does not listen"
	amid "$program" "$IPERF_CLIENT"
	iperf3_end || die "iperf3: $(tail -2 "$IPERF_JSON")"
	echo "$program $ELAPSED $(awk -v ns="$ELAPSED" -v bits="$(iperf3_field sum_received bits_per_second)" \
		'BEGIN { printf "%.0f", ns / 1e9 * bits / 8 }')" >>"$OUT/windows"
}

# peer_amid PROGRAM MODE BYTES CONNECTIONS COUNT: each message counts as so much.
peer_amid() {
	local program=$1 mode=$2 bytes=$3 connections=$4 count=$5 server client
	rm -f /tmp/smc-bench-peer /dev/shm/smc-bench-peer
	# shellcheck disable=SC2086
	ip netns exec b $PREFIX "$PEER" serve "$OVER" "$mode" "$bytes" "$connections" >/tmp/server 2>&1 &
	server=$!
	case $OVER in
	unix) within 10 [ -S /tmp/smc-bench-peer ] ;;
	shared) within 10 [ -s /dev/shm/smc-bench-peer ] ;;
	*) await_port b 11112 ;;
	esac || die "$program: the server does not begin"
	BEFORE=$(packets)
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX "$PEER" load "$OVER" "$mode" "$bytes" "$connections" "$RUN_SECONDS" >/tmp/load 2>&1 &
	client=$!
	amid "$program" "$client"
	wait "$client" || die "$program: $(tail -3 /tmp/load)"
	did "$program" "$(awk -v count="$count" '/messages/ { print $1 * count }' /tmp/load)"
	if [ "$mode" = connect ]; then
		kill "$server" && { wait "$server" || :; } 2>/dev/null
	else
		wait "$server" || die "$program: the server failed"
	fi
}

# connections_amid: by the program that can use UNIX sockets, or the one that sees the path of each.
connections_amid() {
	case $OVER in
	unix) peer_amid connections connect 1 1 1 ;;
	*) connect connections "$EXPECTED" ;;
	esac
}

# idle: a thousand connections.
idle() {
	local said unix=()
	[ "$OVER" != unix ] || unix=(--unix)
	mark
	smctest --family "$FAMILY" --expect "$EXPECTED" idle "${unix[@]}" >/tmp/load 2>&1
	said=$(sed -n 's/.*connections: \([0-9.]*\) KiB.*/\1/p' /tmp/load)
	[ -n "$said" ] || die "idle: no figure"
	mark
	echo "idle 1 $said" >>"$OUT/windows"
}

# connect PROGRAM EXPECTED: connections one after another, until the window is over. Those before it have read
# all files.
connect() {
	local client
	smctest --family "$FAMILY" --expect "$2" connrate --count 20 >/dev/null || die "$1: no connections"
	BEFORE=$(packets)
	# The path is not asked for while it is counted: that takes up to a quarter of a connection's instructions.
	setsid ip netns exec a "$BIN/smctest" "${ENDS[@]}" --family "$FAMILY" connrate --count 1000000 &
	client=$!
	amid "$1" "$client"
	echo "$1 $ELAPSED" >>"$OUT/windows"
	kill -- "-$client" && { wait "$client" || :; } 2>/dev/null
}

# Servers ------------------------------------------------------------------------------------

# What serves the clients of all programs of a kind, each begun when first needed. Their load generators say what they
# did per second; the time that was counted is a part of that.

# serve NAME PORT COMMAND...: serves in b, unless it does already.
declare -A SERVING
serve() {
	local name=$1 port=$2
	shift 2
	[ -z "${SERVING[$name]:-}" ] || return 0
	# shellcheck disable=SC2086
	ip netns exec b $PREFIX "$@" >"/tmp/$name" 2>&1 </dev/null &
	SERVING[$name]=$!
	await_port b "$port" 60 || die "$name does not listen: $(tail -2 "/tmp/$name")"
}

# load_amid PROGRAM COMMAND...: counts amid what the command, a load generator in a, runs for. What it says is in
# /tmp/load.
load_amid() {
	local program=$1 client
	shift
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX "$@" >/tmp/load 2>&1 &
	client=$!
	BEFORE=$(packets)
	amid "$program" "$client"
	wait "$client" || die "$program: $(tail -3 /tmp/load)"
}

# did PROGRAM RATE: notes how many of so many a second fell into the time that was counted.
did() {
	[ -n "$2" ] || die "$1: $(tail -3 /tmp/load)"
	echo "# $1: $2/s"
	echo "$1 $ELAPSED $(awk -v ns="$ELAPSED" -v rate="$2" 'BEGIN { printf "%.0f", ns / 1e9 * rate }')" >>"$OUT/windows"
}

# redis_rate: requests a second, of the last redis-benchmark.
redis_rate() {
	tr -d '"' </tmp/load | awk -F, '/^GET/ { print $2 }'
}

# redis_load PROGRAM CLIENTS [OPTION...]: first to see how many requests take as long as they should.
redis_load() {
	local program=$1 clients=$2 command
	shift 2
	serve redis 6379 redis-server --save '' --protected-mode no --bind "$IP_B" --maxclients 2000
	command=(redis-benchmark -h "$IP_B" -t get -d 64 -c "$clients" --csv "$@")
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX "${command[@]}" -n 4000 >/tmp/load 2>&1
	load_amid "$program" "${command[@]}" -n "$(redis_rate | awk -v s="$RUN_SECONDS" '{ printf "%d", $1 * s }')"
	did "$program" "$(redis_rate)"
}

# nginx_serve: a small and a large page, on port 80 by HTTP/1.1, on port 81 by HTTP/2 as well.
nginx_serve() {
	[ -z "${SERVING[nginx]:-}" ] || return 0
	mkdir -p /tmp/www
	head -c 700 /dev/zero >/tmp/www/small
	head -c 100000 /dev/zero >/tmp/www/large
	cat >/tmp/nginx.conf <<-CONF
		user root;
		worker_processes 1;
		pid /tmp/nginx.pid;
		error_log /tmp/nginx.error warn;
		events { worker_connections 4096; }
		http {
			access_log off;
			sendfile on;
			keepalive_requests 100000000;
			client_body_temp_path /tmp/nginx.body;
			proxy_temp_path /tmp/nginx.proxy;
			fastcgi_temp_path /tmp/nginx.fastcgi;
			uwsgi_temp_path /tmp/nginx.uwsgi;
			scgi_temp_path /tmp/nginx.scgi;
			root /tmp/www;
			server { listen $IP_B:80 backlog=4096; }
			server { listen $IP_B:81 http2; }
		}
	CONF
	serve nginx 80 nginx -c /tmp/nginx.conf -e /tmp/nginx.error -g 'daemon off;'
}

# nginx_load PROGRAM CONNECTIONS PAGE [OPTION...]
nginx_load() {
	local program=$1 connections=$2 page=$3
	shift 3
	nginx_serve
	load_amid "$program" wrk -t 1 -c "$connections" -d "$RUN_SECONDS" --timeout 20 "$@" "http://$IP_B/$page"
	! grep -E 'Socket errors|Non-2xx' /tmp/load || die "$program: errors"
	did "$program" "$(awk '/^Requests\/sec:/ { print $2 }' /tmp/load)"
}

http2_load() {
	nginx_serve
	load_amid "$1" h2load -t 1 -c 4 -m 32 -D "$RUN_SECONDS" "http://$IP_B:81/small"
	did "$1" "$(sed -n 's/^finished in .*, \([0-9.]*\) req\/s.*/\1/p' /tmp/load)"
}

# memcached_load PROGRAM: eight threads, which read so many values together.
memcached_load() {
	local each=15000
	serve memcached 11211 memcached -u root -l "$IP_B" -U 0 -m 64 -t 1
	load_amid "$1" memcslap -s "$IP_B" -t get -c 8 -e $each
	did "$1" "$(awk -v all=$((8 * each)) '/^Time to get/ { printf "%.0f", all / $(NF - 1) }' /tmp/load)"
}

# pgbench_load PROGRAM: SELECTs, prepared.
pgbench_load() {
	local bindir user
	bindir=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	user=(setpriv --reuid postgres --regid postgres --clear-groups)
	if [ -z "${SERVING[postgresql]:-}" ]; then
		install -d -o postgres -m 700 /tmp/data &&
			"${user[@]}" "$bindir/initdb" -D /tmp/data -A trust --no-sync >/tmp/initdb 2>&1 ||
			die "$(tail -2 /tmp/initdb)"
		echo "host all all ${IP_A%.*}.0/24 trust" >>/tmp/data/pg_hba.conf
		serve postgresql 5432 "${user[@]}" "$bindir/postgres" -D /tmp/data -c listen_addresses="$IP_B" \
			-c unix_socket_directories=/tmp -c fsync=off -c max_connections=20 -c autovacuum=off
		"$bindir/pgbench" -h /tmp -U postgres -i -q -s 1 postgres >/tmp/load 2>&1 || die "$(tail -2 /tmp/load)"
	fi
	load_amid "$1" "$bindir/pgbench" -h "$IP_B" -U postgres -n -S -M prepared -c 8 -j 1 -T "$RUN_SECONDS" postgres
	did "$1" "$(awk '/^tps = .*without/ { print $3 }' /tmp/load)"
}

# run PROGRAM
run() {
	case $SYSTEM:$1 in
	unix:bulk* | unix:pingpong* | unix:stream* | unix:connections | unix:idle) ;;
	bound:bulk* | bound:pingpong* | bound:stream*) ;;
	# Where the reader is slower than the writer, write(2) fails with ENOMEM.
	sockmap:bulk* | sockmap:iperf3 | sockmap:nginx_large) return ;;
	# The other programs have IP sockets.
	unix:* | bound:*) return ;;
	esac
	if [ -n "${SAME_HOST:-}" ]; then
		case $1 in
		pingpong_64b) by_device peer_amid "$1" pingpong 64 1 1 ;;
		pingpong_4k) by_device peer_amid "$1" pingpong 4096 1 2 ;;
		stream_64b) by_device peer_amid "$1" stream 64 1 1 ;;
		stream_4k) by_device peer_amid "$1" stream 4096 1 1 ;;
		bulk) by_device peer_amid "$1" stream 131072 1 131072 ;;
		bulk_16) by_device peer_amid "$1" stream 131072 16 131072 ;;
		connections) connections_amid ;;
		idle) idle ;;
		iperf3) by_device iperf3_amid "$1" ;;
		*) run_program "$1" ;;
		esac || die "$1: not the way that was meant"
	else
		run_program "$1"
	fi
}

# run_program PROGRAM: the same, if it does the same within one kernel and between two.
run_program() {
	case $1 in
	fallback) connect fallback tcp ;;
	connections) connect connections "$EXPECTED" ;;
	pingpong_64b) pingpong "$1" 64 ;;
	pingpong_4k) pingpong "$1" 4096 ;;
	stream_64b) by_device sockperf_amid "$1" throughput 64 || die "$1: not by RDMA" ;;
	stream_4k) by_device sockperf_amid "$1" throughput 4096 || die "$1: not by RDMA" ;;
	bulk) by_device iperf3_amid "$1" || die "$1: not by RDMA" ;;
	fallback_pingpong_64b) after_fallback sockperf_amid "$1" ping-pong 64 ;;
	fallback_stream_64b) after_fallback sockperf_amid "$1" throughput 64 ;;
	fallback_bulk) after_fallback iperf3_amid "$1" ;;
	redis_pipelined) by_device redis_load "$1" 16 -P 16 ;;
	redis_512) CONNECTIONS=1024 by_device redis_load "$1" 512 ;;
	redis_*) by_device redis_load "$1" "${1#redis_}" ;;
	nginx_new) nginx_load "$1" 16 small -H 'Connection: close' ;;
	nginx_large) by_device nginx_load "$1" 16 large ;;
	nginx_1000) CONNECTIONS=1000 by_device nginx_load "$1" 1000 small ;;
	nginx_*) by_device nginx_load "$1" "${1#nginx_}" small ;;
	http2) by_device http2_load "$1" ;;
	memcached) by_device memcached_load "$1" ;;
	pgbench) by_device pgbench_load "$1" ;;
	*) die "no program $1" ;;
	esac
}

# sockmap: all TCP connections of the machine from now on.
sockmap() {
	local pins=/sys/fs/bpf/sockmap
	mount -t cgroup2 none /sys/fs/cgroup && mount -t bpf bpf /sys/fs/bpf &&
		bpftool prog loadall "$SOCKMAP" $pins pinmaps $pins/maps &&
		bpftool cgroup attach /sys/fs/cgroup sock_ops pinned $pins/established &&
		bpftool prog attach pinned $pins/redirect msg_verdict pinned $pins/maps/connections
}

ulimit -n 8192
# Time for the start and the window; programs take whole seconds.
RUN_SECONDS=$(awk -v s="$WINDOW" -v more="${SAME_HOST:-0}" 'BEGIN { printf "%d", s + 1.999 + more }')
: >"$OUT/windows"
read_programs || die "programs are missing"
load_rdma && up_netns && neighbors || die "cannot set up the network"
case $SYSTEM in
ours | c_module)
	load_smc && common_eid || die "cannot load the module"
	FAMILY=smc PREFIX="smc run" EXPECTED=smc
	;;
tcp | unix | bound) FAMILY=tcp PREFIX='' EXPECTED=tcp ;;
sockmap)
	FAMILY=tcp PREFIX='' EXPECTED=tcp
	sockmap || die "cannot load the BPF programs"
	;;
tcp_lo)
	# Both names are of one namespace, which reaches its own address by the loopback device. The other one stays,
	# with its end of the wire.
	ip netns exec a sleep infinity &
	umount /run/netns/a && mount --bind /run/netns/b /run/netns/a || die "cannot be in one namespace"
	FAMILY=tcp PREFIX='' EXPECTED=tcp DEVICE=lo
	;;
*) die "no such system" ;;
esac
ip netns exec a sleep infinity &
SLEEPER=$!
within 10 sh -c "grep -q $DEVICE /proc/$SLEEPER/net/dev" || die "nobody sleeps"
# A fallback is what there is before there is a device.
for program in "$@"; do
	case $program in fallback*) run "$program" ;; esac
done
if [ -z "${SAME_HOST:-}" ]; then
	up_rxe || die "no soft RoCE"
elif [ "$FAMILY" = smc ]; then
	[ "$SYSTEM" != ours ] || same_host on
	EXPECTED=smcd
fi
case $SYSTEM in
unix) OVER=unix ;;
bound) OVER=shared ;;
*) OVER=$IP_B ;;
esac
for program in "$@"; do
	case $program in fallback*) ;; *) run "$program" ;; esac
done
cat /proc/kallsyms >"$OUT/kallsyms"
