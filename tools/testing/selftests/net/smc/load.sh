#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3
# timeout: 240
# The module loads and unloads, leaves nothing behind, and cannot go while sockets need it.

. "${LIB:=${0%/*}/lib.sh}"

registered() {
	grep -q '^SMC ' /proc/net/protocols && grep -q '^SMC6 ' /proc/net/protocols
}

# has_sysctls: all settings, at the C module's defaults.
has_sysctls() {
	local name value
	while read -r name value; do
		[ "$(cat "/proc/sys/net/smc/$name")" = "$value" ] || return
	done <<-DEFAULTS
		autocorking_size 65536
		limit_smc_hs 0
		rmem 65536
		smcr_buf_type 0
		smcr_max_conns_per_lgr 255
		smcr_max_links_per_lgr 2
		smcr_max_recv_wr 48
		smcr_max_send_wr 16
		smcr_testlink_time 30
		wmem 65536
	DEFAULTS
}

# refuses NAME VALUE: the setting is not taken, and stays as it was.
refuses() {
	local file=/proc/sys/net/smc/$1 before
	before=$(cat "$file")
	! echo "$2" 2>/dev/null >"$file" && [ "$(cat "$file")" = "$before" ]
}

# option_by WAY: who adds the option to TCP's SYN, by the module's own word and by the kernel log.
option_by() {
	"$BIN/smc" info | grep -qx "SYN option  by $1" && "$BIN/smc" info --json | grep -q "\"syn_option\": *\"$1\"" || return
	[ "$1" != netfilter ] || dmesg | grep -q 'smc: this kernel has no CONFIG_SMC: netfilter adds the SMC option'
}

has_af_smc() {
	"$BIN/smctest" semantics --only "domain, type and protocol" >/dev/null
}

# asks_once: for 100 sockets of a program under smc run the kernel looks for a module once, by the three names that it
# has.
asks_once() {
	local asked=/tmp/asked modprobe=/proc/sys/kernel/modprobe before
	before=$(cat $modprobe)
	printf '#!/bin/sh\necho "$@" >>%s\nexit 1\n' $asked >/tmp/counting
	chmod +x /tmp/counting
	: >$asked
	echo /tmp/counting >$modprobe
	"$BIN/smc" run python3 -c 'import socket; [socket.socket().close() for _ in range(100)]'
	echo "$before" >$modprobe
	sed 's/^/# /' $asked
	[ "$(wc -l <$asked)" = 3 ] && grep -q net-pf-43 $asked
}

# looks_again: a program under smc run whose first socket found no module has SMC sockets once there is one.
looks_again() {
	rm -f /tmp/found_none
	"$BIN/smc" run timeout 60 python3 -c '
import socket, time
def protocol():
    with socket.socket() as s:
        return s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
assert protocol() == socket.IPPROTO_TCP
open("/tmp/found_none", "x").close()
while protocol() == socket.IPPROTO_TCP:
    time.sleep(0.2)' &
	LOOKER=$!
	within 20 test -e /tmp/found_none
}

check_not "no AF_SMC without the module" has_af_smc
check "and the kernel does not look for it for each socket" asks_once
check "a program under smc run keeps its TCP then" \
	"$BIN/smc" run "$BIN/smctest" --family tcp path
check_not "nor is the management interface there" "$BIN/smc" ueid show

require "RDMA modules load" load_rdma
for round in 1 2 3; do
	require "module loads, round $round" load_smc
	check "families are registered, round $round" registered
	check "sysctls are registered, round $round" has_sysctls
	check "a buffer below the least is refused, round $round" refuses rmem 1024
	check "more connections than have a number are refused, round $round" \
		refuses smcr_max_conns_per_lgr 256
	check "a socket works, round $round" has_af_smc
	case $FLAVOUR in
	um-no-smc | debian-*) check "netfilter adds the option, round $round" option_by netfilter ;;
	*) check "TCP adds the option, round $round" option_by TCP ;;
	esac
	check "module unloads, round $round" unload_smc
	check_not "nothing is left, round $round" registered
done

require "a program that finds no module" looks_again
require "module loads again" load_smc
"$BIN/smctest" serve &
server=$!
require "a socket" within 20 sh -c 'ss -Htln "sport = :7000" | grep -q .'
check_not "the module stays while a socket is open" rmmod smc
check "a connection works after that refusal" "$BIN/smctest" --remote path
kill -9 "$server"
wait "$server" 2>/dev/null
check "a program that found no module has found it since" wait "$LOOKER"
check "the module goes once the socket is closed" within 10 unload_smc
finish
