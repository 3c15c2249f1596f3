#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 240
# cpus: 1
# Each sysctl takes and refuses what the C module takes and refuses, and is a namespace's own. Buffers are as large as
# it says.

. "${LIB:=${0%/*}/lib.sh}"

ANSWERS=/tmp/answers
mkdir -p $ANSWERS

DEFAULTS="
	autocorking_size 65536
	limit_smc_hs 0
	rmem 65536
	smcr_buf_type 0
	smcr_max_conns_per_lgr 255
	smcr_max_links_per_lgr 2
	smcr_max_recv_wr 48
	smcr_max_send_wr 16
	smcr_testlink_time 30
	wmem 65536"

# Around each end of each range, and what is no number.
TEXTS=(-2147483649 -2147483648 -2 -1 0 1 2 3 15 16 17 254 255 256 2047 2048 2049 16383 16384 16385 1073741822
	1073741823 1073741824 2147483647 2147483648 4294967295 4294967296 99999999999999999999
	'' ' ' ' 17 ' 0x11 021 17x x '17 18' 1.5 +17 $'17\n18')

# write_each: what each setting says to each text, and what it is after that.
write_each() {
	local name value text file now error
	while read -r name value; do
		file=/proc/sys/net/smc/$name
		for text in "${TEXTS[@]}"; do
			error=
			printf %s "$text" 2>/tmp/error >"$file" || read -r error </tmp/error
			read -r now <"$file"
			echo "$name '$text': ${error##*: } $now"
			printf %s "$value" >"$file"
		done
	done < <(in_lines)
}

in_lines() {
	grep . <<<"$DEFAULTS"
}

# answers MODULE: of that module, in $ANSWERS.
answers() {
	local MODULE=$1
	load_smc && write_each >$ANSWERS/"$1" 2>&1 && within 20 unload_smc
}

# taken NAME MODULE: what it takes.
taken() {
	grep "^$1 " $ANSWERS/"$2"
}

# same NAME: both modules gave the same answers.
same() {
	[ "$(taken "$1" c | wc -l)" = ${#TEXTS[@]} ] || { taken "$1" c; return 1; }
	diff <(taken "$1" c) <(taken "$1" ours)
}

# more_links: as the C module, but for more links than it has.
more_links() {
	diff <(taken smcr_max_links_per_lgr c | grep -v "'[3-8]'") \
		<(taken smcr_max_links_per_lgr ours | grep -v "'[3-8]'") &&
		taken smcr_max_links_per_lgr ours | grep -qx "smcr_max_links_per_lgr '3':  3"
}

# has_defaults COMMAND...: run by the command, all settings are at their defaults.
has_defaults() {
	local name value
	while read -r name value; do
		[ "$("$@" cat "/proc/sys/net/smc/$name")" = "$value" ] || { echo "# $name"; return 1; }
	done < <(in_lines)
}

# change_all: in namespace a, each to another value.
change_all() {
	local name value
	while read -r name value; do
		case $name in
		limit_smc_hs | smcr_buf_type) value=1 ;;
		smcr_max_links_per_lgr) value=1 ;;
		smcr_max_conns_per_lgr) value=16 ;;
		*) value=$((value * 2)) ;;
		esac
		in_ns a sh -c "echo $value >/proc/sys/net/smc/$name" &&
			[ "$(in_ns a cat "/proc/sys/net/smc/$name")" = $value ] || { echo "# $name"; return 1; }
	done < <(in_lines)
}

# new_namespace COMMAND...: run in one that is made now.
new_namespace() {
	unshare --net "$@"
}

# refused_to_users: the settings of a namespace are its owner's.
refused_to_users() {
	! in_ns a setpriv --reuid=65534 --clear-groups sh -c 'echo 131072 >/proc/sys/net/smc/wmem' 2>/dev/null
}

# buffers END KIND INDEX: how many connections of that end got one, to send or to receive, of (8 << INDEX) KiB so far.
buffers() {
	in_ns "$1" "$BIN/smc" stats --json | awk -v kind="\"$2\"" -v at="$3" '
		/"smcr"/ { in_smcr = 1 }
		in_smcr && $0 ~ kind { in_it = 1 }
		in_it && place && place++ == at + 1 { print $1 + 0; exit }
		in_it && /"buffer_sizes"/ { place = 1 }'
}

# larger NAME BYTES KIND INDEX: with larger buffers in b, a connection has one of that size there, and only there.
larger() {
	local of="$3 $4" before_a before_b after_a after_b
	# shellcheck disable=SC2086
	before_a=$(buffers a $of) before_b=$(buffers b $of)
	with_sysctl b net/smc/"$1" "$2" smctest --expect smc integrity --mib 1 || return
	# shellcheck disable=SC2086
	after_a=$(buffers a $of) after_b=$(buffers b $of)
	echo "# a $before_a, then $after_a; b $before_b, then $after_b"
	[ "$after_a" = "$before_a" ] && [ "$after_b" -gt "$before_b" ]
}

# answers_rows: reads ten messages of 64 bytes, and answers, a hundred times.
answers_rows() {
	timeout 60 python3 - "$IP_B" <<-'END'
		import socket, sys
		listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		listener.bind((sys.argv[1], 7304))
		listener.listen()
		connection, _ = listener.accept()
		for _ in range(100):
		    assert len(connection.recv(640, socket.MSG_WAITALL)) == 640
		    connection.sendall(b'x')
	END
}

# sends_rows: sends ten such messages one after the other, and awaits the answer, a hundred times.
sends_rows() {
	timeout 60 python3 - "$IP_B" <<-'END'
		import socket, sys
		client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		client.connect((sys.argv[1], 7304))
		for _ in range(100):
		    for _ in range(10):
		        client.send(bytes(64))
		    assert client.recv(1) == b'x'
	END
}

# row_packets: how many packets a sends for these thousand messages.
row_packets() {
	local counter=/sys/class/infiniband/rxe_a/ports/1/hw_counters/sent_pkts before
	before=$(cat $counter)
	serve_and_call 7304 answers_rows sends_rows && echo $(($(cat $counter) - before))
}

# gathered: small messages wait for those before them, unless autocorking is off.
gathered() {
	local on off
	on=$(row_packets) && off=$(with_sysctl a net/smc/autocorking_size 0 row_packets) || return
	echo "# packets for a thousand messages: $on, or $off"
	[ "$on" -gt 0 ] && [ $((3 * on)) -le $((2 * off)) ]
}

require "RDMA modules load" load_rdma
require "the C module answers" answers c
require "our module answers" answers ours
while read -r name _; do
	case $name in
	smcr_max_links_per_lgr) check "$name: as the C module, and more links" more_links ;;
	*) check "$name: as the C module" same "$name" ;;
	esac
done < <(in_lines)

require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
check "defaults" has_defaults
check "another value of each in a namespace" change_all
check "not in another one" has_defaults in_ns b
check "not in the first one" has_defaults
check "not in a new one" has_defaults new_namespace
check "no setting for ordinary users" refused_to_users
require "a new network" down_netns
require "whose devices go" within 20 no_devices
require "and which is there again" up_netns
require "soft RoCE again" up_rxe
check "wmem: the send buffer is twice that" larger wmem 131072 sent 5
check "rmem: the receive buffer is that" larger rmem 131072 received 4
check "autocorking_size: small messages are gathered" gathered
check "module unloads" within 20 unload_smc
finish
