# SPDX-License-Identifier: GPL-2.0
# What the guest scripts share: modules, two namespaces on one wire, results in KTAP.
#
# The runner sets: KMODS (kernel build tree), SMC_KO (our module), C_SMC_KO (the C module),
# MODULE (ours or c), BIN (our programs), and for pairs ROLE, WIRE, LOCAL_IP, PEER_IP, OUT.
# A script sources this file, calls the functions, and ends with `finish`.

set -u

# Without the runner, as under kselftest: the modules are installed, the programs lie beside the scripts, and what a
# script has made goes when it ends.
if [ -z "${KMODS:-}" ]; then
	KMODS=/lib/modules/$(uname -r)/kernel MODULE=ours BIN=$(realpath "${LIB%/*}") SMC_KO=$(modinfo -n smc)
	trap 'down_netns; rmmod smc' EXIT
fi

# scale DAILY SOAK: how much of something: what a daily run has time for, or more in `make soak`.
scale() {
	if [ -n "${SOAK:-}" ]; then echo "$2"; else echo "$1"; fi
}

# Modules ------------------------------------------------------------------------------------

# Where each module lies in a kernel tree, in the order in which they load.
RDMA_MODULES="
lib/bitrev
lib/crc/crc32
drivers/dibs/dibs
lib/dim/dimlib
net/ipv4/udp_tunnel
net/ipv6/ip6_udp_tunnel
drivers/infiniband/core/ib_core
drivers/infiniband/core/ib_cm
drivers/infiniband/core/iw_cm
fs/configfs/configfs
drivers/infiniband/core/rdma_cm
drivers/infiniband/core/ib_uverbs_support
drivers/infiniband/core/ib_uverbs
drivers/infiniband/core/rdma_ucm
drivers/infiniband/sw/rxe/rdma_rxe
"

# load_rdma: the RDMA core and soft RoCE, that of RXE_KO if it is set; what is built into the kernel has no file.
load_rdma() {
	local module file
	for module in $RDMA_MODULES; do
		file=$KMODS/$module.ko
		case $module in */rdma_rxe) file=${RXE_KO:-$file} ;; esac
		[ ! -e "$file" ] || insmod "$file" 2>/dev/null ||
			grep -q "^$(basename "$module" | tr - _) " /proc/modules || return
	done
}

# lib_modules ROOT: /lib/modules is that of this root, also on a machine that has none, whose files cannot be changed
# from here.
lib_modules() {
	if [ ! -d /lib/modules ]; then
		mkdir /tmp/usr.lib /tmp/lib && mount --bind /usr/lib /tmp/usr.lib && ln -s /tmp/usr.lib/* /tmp/lib &&
			mkdir /tmp/lib/modules && mount --bind /tmp/lib /usr/lib || return
	fi
	mount --bind "$1/lib/modules" /lib/modules
}

# load_siw: soft iWARP, which not every kernel has.
load_siw() {
	grep -q '^siw ' /proc/modules || insmod "$KMODS/drivers/infiniband/sw/siw/siw.ko"
}

has_siw() {
	[ -e "$KMODS/drivers/infiniband/sw/siw/siw.ko" ]
}

# load_smc: the module under test.
load_smc() {
	case $MODULE in
	# Both ends are in one kernel, mostly, and RDMA is what is tested: `same_host on` has them use shared memory.
	ours) insmod "$SMC_KO" && same_host off && cover_load ;;
	c) insmod "$C_SMC_KO" && insmod "${C_SMC_KO%/*}/smc_diag.ko" ;;
	esac
}

# same_host on|off: whether connections within this kernel use shared memory, in all namespaces.
same_host() {
	case $1 in
	on) echo 1 ;;
	off) echo 0 ;;
	esac >/proc/sys/net/smc/smcd_loopback
}

unload_smc() {
	[ "$MODULE" = ours ] || rmmod smc_diag
	rmmod smc && cover_unload
}

# With COVERAGE, what ran of our module is counted (tools/bench/counter.c): where it was loaded, and, when it is gone, a
# call of the function at which the counts are written.
LOADS=0
cover_load() {
	[ -z "${COVERAGE:-}" ] || cp /sys/module/smc/sections/.text "$OUT/text.$LOADS"
}

cover_unload() {
	[ -z "${COVERAGE:-}" ] || echo "$LOADS" >/proc/sys/kernel/domainname
	LOADS=$((LOADS + 1))
}

# Both modules need an enterprise ID in common before they use SMC-Rv2; only ours has one.
EID=SMCV2-DEFAULT-UEID
common_eid() {
	[ "$MODULE" = ours ] || "$BIN/smc" ueid add "$EID"
}

# Networks -----------------------------------------------------------------------------------

# Two namespaces, a and b, and a wire between them.
IP_A=10.9.0.1
IP_B=10.9.0.2
IP6_A=fd00:9::1
IP6_B=fd00:9::2

# up_netns [MTU]
up_netns() {
	local mtu=${1:-9000}

	ip netns add a && ip netns add b || return
	ip link add wire_a mtu "$mtu" netns a type veth peer name wire_b mtu "$mtu" netns b || return
	up_end a "$IP_A" "$IP6_A" && up_end b "$IP_B" "$IP6_B" || return
	# Nobody is there, and nobody finds out: connections to these addresses stay pending.
	ip -n a neighbor add "${IP_A%.*}.99" lladdr 02:00:00:00:00:99 dev wire_a &&
		ip -n a neighbor add "${IP6_A%:*}:99" lladdr 02:00:00:00:00:99 dev wire_a
}

up_end() {
	ip -n "$1" link set lo up &&
		ip -n "$1" address add "$2/24" dev "wire_$1" &&
		ip -n "$1" address add "$3/64" dev "wire_$1" nodad &&
		ip -n "$1" link set "wire_$1" up
}

# add_rdma KIND END and del_rdma KIND END: soft RoCE (rxe) or soft iWARP (siw) on that end of the wire.
add_rdma() {
	in_ns "$2" rdma link add "$1_$2" type "$1" netdev "wire_$2"
}

del_rdma() {
	in_ns "$2" rdma link delete "$1_$2"
}

# up_rxe and up_siw: the same on both ends.
up_rxe() {
	add_rdma rxe a && add_rdma rxe b
}

up_siw() {
	add_rdma siw a && add_rdma siw b
}

# down_netns: removes the names; a namespace itself goes with its last socket.
down_netns() {
	ip netns del a
	ip netns del b
}

# mac END: the hardware address of that end of the wire.
mac() {
	ip -n "$1" -o link show "wire_$1" | sed 's/.*link\/ether \([0-9a-f:]*\).*/\1/'
}

# link_local DEVICE [PROGRAM...]: its link-local address, once nobody looks for duplicates of it any more. The program
# runs another one where the device is.
link_local() {
	local device=$1
	shift
	"$@" ip -6 -o address show dev "$device" scope link -tentative | sed 's/.* inet6 \([^/]*\).*/\1/' | grep .
}

in_ns() {
	local ns=$1
	shift
	ip netns exec "$ns" "$@"
}

# each_end COMMAND...: the command in both namespaces.
each_end() {
	in_ns a "$@" && in_ns b "$@"
}

# set_sysctl NAME VALUE: of net.smc, in both namespaces.
set_sysctl() {
	each_end sh -c "echo $2 >/proc/sys/net/smc/$1"
}

# smctest between the namespaces: the server in b, the client in a.
ENDS=(--client-netns=a --server-netns=b --addr="$IP_B" --deadline="$(scale 120 1200)")
smctest() {
	"$BIN/smctest" "${ENDS[@]}" "$@"
}

smctest6() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$IP6_B" "$@"
}

# add_link_local: addresses at both ends of the wire that need a scope, which smctest_local uses.
LINK_LOCAL_B=fe80::2
add_link_local() {
	ip -n a address add fe80::1/64 dev wire_a nodad && ip -n b address add "$LINK_LOCAL_B/64" dev wire_b nodad
}

smctest_local() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$LINK_LOCAL_B" "$@"
}

# with_sysctl END NAME VALUE COMMAND...: the command with a setting of that namespace.
with_sysctl() {
	local end=$1 name=$2 value=$3 before code
	shift 3
	before=$(in_ns "$end" cat "/proc/sys/$name")
	in_ns "$end" sh -c "echo $value >/proc/sys/$name" || return
	"$@"
	code=$?
	in_ns "$end" sh -c "echo $before >/proc/sys/$name"
	return $code
}

# fails_saying WORDS COMMAND...: it fails, and says so.
fails_saying() {
	local words=$1 said
	shift
	if said=$("$@" 2>&1); then return 1; fi
	echo "# $said"
	case $said in *"$words"*) ;; *) return 1 ;; esac
}

# as_nobody COMMAND...: without any privilege.
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
}

# within SECONDS COMMAND...: the command succeeds, at the latest then (the clock has whole seconds).
within() {
	local end=$((SECONDS + $1 + 1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return
		[ -n "${NEVER:-}" ] || exec {NEVER}<> <(:)
		read -rt 0.2 -u "$NEVER" || : # `sleep` is a process
	done
}

# smc_back SECONDS: connections are over SMC again within so many seconds, and then data is whole at once.
smc_back() {
	within "$1" smctest --expect smc path && smctest --expect smc integrity --mib 1
}

# no_groups: no link group is left.
no_groups() {
	[ "$("$BIN/smc" lgr --json)" = "[]" ]
}

# links_on DEVICES: the links are on these RDMA devices, in order of their names, soon. Shows them.
links_on() {
	within 10 are_links_on "$1"
	local code=$?
	"$BIN/smc" link | sed 's/^/# /'
	return $code
}

are_links_on() {
	[ "$("$BIN/smc" link --json | grep -oE '"(rxe|siw)_[a-z0-9_]+"' | tr -d '"' | sort | xargs)" = "$1" ]
}

# no_devices: all RDMA devices are gone, as they are once their network devices are.
no_devices() {
	[ -z "$(ls /sys/class/infiniband)" ]
}

# rdma_bytes END: what soft RoCE of that end has sent, by its own counter.
rdma_bytes() {
	cat "/sys/class/infiniband/rxe_$1/ports/1/hw_counters/sent_bytes"
}

# by_rdma LEAST COMMAND...: the command succeeds, and the RDMA device of a sends that much meanwhile.
by_rdma() {
	local least=$1
	shift
	count_rdma "$@" && echo "# the RDMA device sent $RDMA_SENT bytes, at least $least wanted" &&
		[ "$RDMA_SENT" -ge "$least" ]
}

# by_tcp MOST COMMAND...: the command succeeds, and the RDMA device of a sends less than that meanwhile.
by_tcp() {
	local most=$1
	shift
	count_rdma "$@" && echo "# the RDMA device sent $RDMA_SENT bytes, less than $most wanted" &&
		[ "$RDMA_SENT" -lt "$most" ]
}

# count_rdma COMMAND...: runs it; what the RDMA device of a sends meanwhile is $RDMA_SENT bytes.
count_rdma() {
	local before
	before=$(rdma_bytes a)
	"$@" || return
	RDMA_SENT=$(($(rdma_bytes a) - before))
}

# stream_bytes END PORT: the same for soft iWARP, which does not count. It sends by TCP, and nobody else does here
# but programs that use this port.
stream_bytes() {
	in_ns "$1" ss -HtniO "sport != :$2 and dport != :$2" | tr ' ' '\n' |
		awk -F: '$1 == "bytes_sent" { sum += $2 } END { printf "%.0f\n", sum }'
}

# Programs -----------------------------------------------------------------------------------

# await_port END PORT [SECONDS]: until somebody listens there, for ten seconds or so many.
await_port() {
	within "${3:-10}" sh -c "ip netns exec $1 ss -Htln 'sport = :$2' | grep -q ."
}

# serve_and_call PORT SERVER CLIENT: runs functions with arguments, one in b, and once it listens the other one in a.
serve_and_call() {
	local server code
	in_ns b bash -c "$(declare -f "${2%% *}" scale); IP_B=$IP_B $2" & server=$!
	await_port b "$1" && in_ns a bash -c "$(declare -f "${3%% *}" scale); IP_B=$IP_B $3"
	code=$?
	wait "$server" && [ $code = 0 ]
}

# start_server PORT OPTION...: smctest serves in b, until stop_servers.
STARTED=()
start_server() {
	local port=$1
	shift
	"$BIN/smctest" --server-netns=b --addr="$IP_B" --port="$port" --deadline 1000 "$@" serve &
	STARTED+=($!)
	await_port b "$port"
}

stop_servers() {
	kill "${STARTED[@]}"
	wait "${STARTED[@]}" 2>/dev/null
	STARTED=()
}

# iperf3_begin CLIENT_PREFIX SERVER_PREFIX SECONDS: one stream from a to b, in the background.
IPERF_JSON=/tmp/iperf.json
iperf3_begin() {
	# The prefixes are commands, or nothing.
	# shellcheck disable=SC2086
	ip netns exec b $2 iperf3 -s -1 >/tmp/iperf.server 2>&1 &
	IPERF_SERVER=$!
	await_port b 5201 || return
	# shellcheck disable=SC2086
	ip netns exec a $1 iperf3 -c "$IP_B" -t "$3" -J >"$IPERF_JSON" &
	IPERF_CLIENT=$!
}

iperf3_end() {
	wait "$IPERF_CLIENT" && wait "$IPERF_SERVER"
}

# iperf3_field SUM FIELD: a number of the report, such as `sum_sent bytes`.
iperf3_field() {
	sed -n "/\"$1\"/,/}/s/.*\"$2\":[^0-9]*\([0-9.e+]*\).*/\1/p" "$IPERF_JSON"
}

# qperf_begin: serves qperf in b; qperf_end stops that.
qperf_begin() {
	ip netns exec b qperf >/dev/null 2>&1 &
	QPERF=$!
	await_port b 19765
}

qperf_end() {
	kill "$QPERF"
	wait "$QPERF" 2>/dev/null
}

# qperf_field TEST FIELD OPTION...: a result of raw RDMA between a and b, in bytes/s or seconds.
qperf_field() {
	local test=$1 field=$2 end=$((SECONDS + 15)) value=
	shift 2
	# The client may come before the server listens; only trying again helps.
	until [ -n "$value" ] || [ "$SECONDS" -ge "$end" ]; do
		value=$(in_ns a timeout 30 qperf -cm1 -uu "$@" "$IP_B" "$test" 2>&1 |
			awk -v field="$field" '$1 == field { print $3 / ($4 ~ /^n/ ? 1e9 : 1) }')
		[ -n "$value" ] || sleep 0.2
	done
	[ -n "$value" ] && echo "$value"
}

# hold_begin OPTION... and hold_end: `smctest hold` with these options. Its connections are used again at the end.
hold_begin() {
	rm -f /tmp/held
	exec {HELD}<> <(:)
	smctest "$@" --then "touch /tmp/held; read -r _" <&"$HELD" &
	HOLDER=$!
	within 60 test -e /tmp/held
}

hold_end() {
	echo >&"$HELD"
	exec {HELD}>&-
	wait "$HOLDER"
}

# beside COUNT COMMAND...: the command, while so many connections from a to b are held. HOLD has further options.
beside() {
	local count=$1 code
	shift
	# The options are words, or none.
	# shellcheck disable=SC2086
	hold_begin --expect smc --port 7020 hold --connections "$count" --seconds 0 ${HOLD:-} && "$@"
	code=$?
	hold_end && return "$code"
}

# Memory ----------------------------------------------------------------------------------------

# give_up_memory: what goes when it is asked to: objects that KASAN keeps back, slabs without objects, caches of files.
give_up_memory() {
	local cache
	for cache in /sys/kernel/slab/*/shrink; do echo 1 >"$cache"; done
	echo 3 >/proc/sys/vm/drop_caches
}

# slabs: the lines of /proc/slabinfo, but those of the checkers' objects.
slabs() {
	grep -vwE 'kmemleak_object|debug_objects_cache' /proc/slabinfo
}

# objects_kib: of the lines of slabs(), read from standard input.
objects_kib() {
	awk '$2 ~ /^[0-9]+$/ { bytes += $2 * $4 } END { print int(bytes / 1024) }'
}

# pages_kib [FIELD...]: the kernel's memory beside its slabs, and beside these fields of /proc/meminfo. Pages at hand
# for each CPU are free, and the checkers keep stack traces for good.
pages_kib() {
	cat /proc/meminfo /proc/zoneinfo /sys/kernel/debug/stackdepot/stats | awk -v less="$*" '
		BEGIN { split("MemFree Buffers Cached AnonPages Slab " less, fields, " ") }
		$1 == "count:" { at_hand += 4 * $2 }
		$1 == "pools:" { traces = 16 * $2 }
		{ kib[$1] = $2 }
		END {
			used = kib["MemTotal:"] - at_hand - traces
			for (i in fields) used -= kib[fields[i] ":"]
			print used
		}'
}

# level NAME: kernel memory in use, KiB, in objects and in other pages, in files of that name.
level() {
	give_up_memory
	slabs >"/tmp/slabs.$1"
	objects_kib <"/tmp/slabs.$1" >"/tmp/objects.$1"
	pages_kib >"/tmp/pages.$1"
	echo "# kernel memory $1: $(cat "/tmp/objects.$1") KiB in objects, $(cat "/tmp/pages.$1") KiB in pages"
}

# Pairs --------------------------------------------------------------------------------------

# up_wire: this guest's end of the wire between two guests, with soft RoCE on it.
up_wire() {
	ip link set "$WIRE" up &&
		ip address add "$LOCAL_IP/24" dev "$WIRE" &&
		rdma link add "rxe_$ROLE" type rxe netdev "$WIRE" &&
		within 60 ping -c 1 -W 1 "$PEER_IP" >/dev/null
}

# tell NAME and await NAME [SECONDS]: signals between the guests.
tell() {
	: >"$OUT/$ROLE.$1"
}

await() {
	within "${2:-120}" test -e "$OUT/$PEER.$1"
}

# Results ------------------------------------------------------------------------------------

TESTS=0
FAILED=0
LAST_RESULT=$SECONDS

# count_test: one more result is about to be told. What took long says so.
count_test() {
	TESTS=$((TESTS + 1))
	local took=$((SECONDS - LAST_RESULT))
	LAST_RESULT=$SECONDS
	[ "$took" -lt 2 ] || echo "# after $took s"
}

ok() {
	count_test
	echo "ok $TESTS $*"
}

not_ok() {
	count_test
	[ "$FAILED" != 0 ] || show_rdma
	FAILED=$((FAILED + 1))
	echo "not ok $TESTS $*"
}

# show_rdma: the links, and what the devices of soft RoCE counted, as remarks: when the first test of a script fails.
show_rdma() {
	[ "$MODULE" != ours ] || timeout 5 "$BIN/smc" link 2>/dev/null | sed 's/^/# /'
	grep -H '' /sys/class/infiniband/rxe_*/ports/1/hw_counters/* 2>/dev/null |
		sed 's/.*infiniband.\(rxe_[^/]*\).*counters.\([^/]*\):/\1 \2 /' |
		awk '$3 != 0 && $2 != "lifespan" { all[$1] = all[$1] " " $2 " " $3 } END { for (d in all) print "# " d ":" all[d] }'
}

skip() {
	ok "$1 # SKIP $2"
}

# check NAME COMMAND...: the command has to succeed.
check() {
	local name=$1
	shift
	if "$@"; then ok "$name"; else not_ok "$name ($* ended with $?)"; fi
}

# check_not NAME COMMAND...: the command has to fail.
check_not() {
	local name=$1
	shift
	if "$@"; then not_ok "$name ($* should have failed)"; else ok "$name"; fi
}

# todo WHY NAME COMMAND...: as check, but our module cannot do it yet. Once it can, this fails, so that
# it becomes a check.
todo() {
	local why=$1 name=$2
	shift 2
	if [ "$MODULE" != ours ]; then
		check "$name" "$@"
	elif "$@"; then
		not_ok "$name (works now, so it is no todo)"
	else
		skip "$name" "not yet: $why"
	fi
}

# require NAME COMMAND...: as check, and the script ends here if it fails.
require() {
	local before=$FAILED
	check "$@"
	[ "$FAILED" = "$before" ] || finish
}

# busy COMMAND...: the command, while all processors have other work.
busy() {
	local hogs=() code
	for _ in 1 2; do
		while :; do :; done &
		hogs+=($!)
	done
	"$@"
	code=$?
	kill "${hogs[@]}"
	wait "${hogs[@]}" 2>/dev/null
	return $code
}

# suite NAME COMMAND...: passes on the results of a command that prints KTAP of its own. It has to
# keep to its own plan, so that one that dies in the middle is noticed, and may exit with an error only
# after a test that failed.
suite() {
	local name=$1 plan='' seen=0 before=$FAILED line rest results command code
	shift
	exec {results}< <("$@" 2>&1)
	command=$!
	while IFS= read -r line; do
		rest=${line#*ok }
		rest=${rest#* }
		case $line in
		"KTAP version"*) ;;
		1..*) plan=${line#1..} ;;
		"ok "*) ok "$name: $rest" && seen=$((seen + 1)) ;;
		# From the watchdog, without a number.
		"not ok # "*) not_ok "$name: $rest" ;;
		"not ok "*) not_ok "$name: $rest" && seen=$((seen + 1)) ;;
		*) echo "$line" ;;
		esac
	done <&"$results"
	exec {results}<&-
	wait "$command"
	code=$?
	[ "${plan:-none}" = "$seen" ] || not_ok "$name: planned ${plan:-none} tests, $seen reported"
	[ $code = 0 ] || [ "$FAILED" != "$before" ] || not_ok "$name: exit status $code"
}

# finish: the plan, and the end of the script.
finish() {
	echo "1..$TESTS"
	[ "$FAILED" = 0 ]
	exit
}
