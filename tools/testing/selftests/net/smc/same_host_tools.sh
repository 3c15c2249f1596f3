#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 300
# cpus: 1
# What the tools show of SMC-D within one kernel: connections, the group, counters, the switch, and why a connection is
# not one of them.

. "${LIB:=${0%/*}/lib.sh}"

SAID=$(mktemp -d)
GROUP=00000100

# called_as NAME OPTION...: our program by one of the names of smc-tools, in a.
called_as() {
	local name=$1
	shift
	ln -sf "$BIN/smc" "$SAID/$name" && in_ns a "$SAID/$name" "$@"
}

# shows PATTERN COMMAND...: it succeeds and prints a line like that. What it printed is shown.
shows() {
	local pattern=$1
	shift
	"$@" >"$SAID/out" || return
	cat "$SAID/out"
	grep -qE "$pattern" "$SAID/out"
}

# hides PATTERN COMMAND...: it succeeds and prints no such line.
hides() {
	local pattern=$1
	shift
	"$@" >"$SAID/out" || return
	cat "$SAID/out"
	! grep -qE "$pattern" "$SAID/out"
}

# smc_a and smc_b COMMAND...: in that namespace.
smc_a() {
	in_ns a "$BIN/smc" "$@"
}

smc_b() {
	in_ns b "$BIN/smc" "$@"
}

# json EXPRESSION COMMAND...: what it prints as JSON, which is `it` there, makes that of Python true.
json() {
	local expression=$1
	shift
	"$@" --json >"$SAID/json" || return
	cat "$SAID/json"
	python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' \
		"$SAID/json" "$expression"
}

# prints LINE... -- COMMAND...: it succeeds and prints these lines, and no others.
prints() {
	: >"$SAID/wanted"
	while [ "$1" != -- ]; do
		printf '%s\n' "$1" >>"$SAID/wanted"
		shift
	done
	shift
	"$@" >"$SAID/out" && diff "$SAID/wanted" "$SAID/out"
}

# has_no_seid COMMAND: smcd seid ends as that of smc-tools where the kernel has none.
has_no_seid() {
	called_as smcd seid "$1" >"$SAID/out"
	[ $? = 255 ] && [ "$(cat "$SAID/out")" = "Error: System EID not available" ]
}

# tokens_match: each client's token is the peer's token of a server, and the other way round; all are on one device.
tokens_match() {
	smc_a ss --json >"$SAID/a" && smc_b ss --json >"$SAID/b" || return
	cat "$SAID/a" "$SAID/b"
	python3 - "$SAID/a" "$SAID/b" <<-'END'
		import json, sys
		a, b = [[line["smcd"] for line in json.load(open(path))] for path in sys.argv[1:]]
		ends = lambda lines, first, second: {(line[first], line[second]) for line in lines}
		assert len(a) == len(b) == 3, (a, b)
		assert len(ends(a, "token", "peer_token")) == 3
		assert ends(a, "token", "peer_token") == ends(b, "peer_token", "token")
		gids = {line[name] for line in a + b for name in ("gid", "peer_gid")}
		assert len(gids) == 1 and len(gids.pop()) == 32
	END
}

has_rings() {
	json 'len(it) == 1 and it[0]["receive_bytes"] >= 16384' "$BIN/smc" lgr
}

has_no_rings() {
	json 'len(it) == 1 and it[0]["connections"] == 3 and it[0]["send_bytes"] + it[0]["receive_bytes"] == 0' "$BIN/smc" lgr
}

# why CODE ID WORDS [ADDRESS [END]]: of a connection from END, a by default, to there.
why() {
	local got
	in_ns "${5:-a}" "$BIN/smc" why "${4:-$IP_B}:7000" >"$SAID/why"
	got=$?
	cat "$SAID/why"
	[ $got = "$1" ] && grep -qE "^  id:     $2( |$)" "$SAID/why" && grep -qF "$3" "$SAID/why"
}

# why_at_server ID WORDS: of a connection that is held, said in b of the process that has it.
why_at_server() {
	smctest --port 7010 hold --seconds 0 --then \
		"ip netns exec b '$BIN/smc' why --pid \$PPID >$SAID/why; ip netns exec b '$BIN/smc' ss >$SAID/ss" || return
	cat "$SAID/why" "$SAID/ss"
	grep -qE "^  id:     $1( |$)" "$SAID/why" && grep -qF "$2" "$SAID/why" && grep -qF "TCP: ${2%.} (0x" "$SAID/ss"
}

REMEDY="If the peer is on this machine, set net.smc.smcd_loopback to 1."
DECLINED="it is not on this machine, or shared memory within it is switched off there"
OFF="shared memory within the machine is switched off at this end."

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

# Off ----------------------------------------------------------------------------------------

check "off: smc info" shows '^SMC-D +within this machine: off for all network namespaces' "$BIN/smc" info
check "off: smc info, JSON" json 'it["smcd_loopback"] == {"here": False, "initial": False}' "$BIN/smc" info
check "off: in another namespace the initial one is not known" \
	shows '^SMC-D +within this machine: on, unless .* in the initial network namespace$' smc_a info
check "off: no group" json 'it == []' "$BIN/smc" lgr
check "off: smcd has none" prints -- called_as smcd linkgroup
check "off: no counters of it" hides '^smcd_' smc_a stats --prometheus
require "a server" start_server 7000 --server-family smc
check "off for all: smc why" why 3 NOSMCDEV/no-device \
	"is on, unless net.smc.smcd_loopback is 0 in the initial network namespace."

# On -----------------------------------------------------------------------------------------

require "shared memory is allowed" same_host on
check "on: smc info" shows '^SMC-D +within this machine: on$' "$BIN/smc" info
check "on: smc info, JSON" json 'it["smcd_loopback"] == {"here": True, "initial": True}' "$BIN/smc" info
check "on: in another namespace, JSON" json 'it["smcd_loopback"] == {"here": True, "initial": None}' smc_a info
check "smc why" why 0 SMC "SMC. Its data go through shared memory (SMC-D)."
check "smc why, JSON" json 'it["smc"] and it["id"] == "SMC" and it["here"] == []' smc_a why "$IP_B:7000"
check "smc ss" beside 3 shows "$IP_B:7020 +SMC-D \(token [0-9a-f]{16}, the peer's [0-9a-f]{16}\)$" smc_a ss
check "smc ss, JSON: each end knows the other" beside 3 tokens_match
DMB="[0-9a-f]{16} [0-9a-f]{16} [0-9a-f]{16} [0-9a-f]{16} $GROUP"
check "smcss" beside 3 shows "^ACTIVE .* $IP_B:7020 .* SMCD$" called_as smcss
check "smcss -D" beside 3 shows "^ACTIVE .* SMCD $DMB$" called_as smcss -D
check "smcss -D -d" beside 3 shows "^ACTIVE .* SMCD  <->  [0-9a-f]{8} .* $DMB$" called_as smcss -D -d
check "smcss -D -d, shutdown" beside 3 shows "^ACTIVE .* SMCD  <->  [0-9a-f]{8} 00020000 " called_as smcss -d
check "smcss -a" beside 3 shows "^ACTIVE .* $IP_B:7020 .* SMCD$" called_as smcss -a
check "smcss -a -D" beside 3 shows "^ACTIVE .* SMCD $DMB$" called_as smcss -a -D
check "smcss -l has none" beside 3 hides SMCD called_as smcss -l
check "smcss -R has none" beside 3 hides SMCD called_as smcss -R
check "smc lgr" beside 3 shows "^$GROUP  -     SMC-D  2\.1 +3 +0 +[0-9]+ " "$BIN/smc" lgr
check "smc lgr, JSON" beside 3 json \
	'len(it) == 1 and it[0]["technology"] == "SMC-D" and it[0]["connections"] == 3 and it[0]["gid"] == it[0]["peer_gid"]' \
	"$BIN/smc" lgr
HOLD=--unread check "smc lgr, of rings" beside 3 has_rings
check "data are whole" smctest --expect smcd --port 7030 integrity --mib 16
HOLD=--used check "connections that were used and are idle have none" beside 3 within 10 has_no_rings
HEAD="LG-ID    VLAN  #Conns  PNET-ID"
check "smcd linkgroup" beside 3 prints "$HEAD" "$GROUP    0       3" -- called_as smcd linkgroup
check "smcd linkgroup, by its id" beside 3 prints "$HEAD" "$GROUP    0       3" -- called_as smcd linkgroup show $GROUP
check "smcd linkgroup, by another" beside 3 prints "$HEAD" -- called_as smcd linkgroup show 00000200
check "smcd linkgroup link-show is the same" beside 3 prints "$HEAD" "$GROUP    0       3" -- \
	called_as smcd linkgroup link-show
check_not "smcd linkgroup, by a device" called_as smcd linkgroup ibdev rxe_a
check "smcd -d linkgroup" beside 3 prints "LG-ID    : $GROUP" "VLAN     : 0" "PNET-ID  : " "Version  : 2" "Peer-Rel : 1" \
	"Peer-Host: $(uname -n)" "Peer-OS  : LINUX" "EID      : SMCV2-DEFAULT-UEID" "#Conns   : 3" "Sndbuf   : 0 B" "DMB      : 0 B" -- \
	called_as smcd -d linkgroup
check "smcr linkgroup has none of it" beside 3 prints -- called_as smcr linkgroup
check "smcd device has no device" beside 3 prints -- called_as smcd device
check "smcd info" prints "Kernel Capabilities" "SMC Version:      2.1" "SMC Hostname:     $(uname -n)" \
	"SMC-D Features:   v1 v2" "SMC-R Features:   v1 v2" "" "Hardware Capabilities" "SEID:             n/a" \
	"ISM:              n/a" "RoCE:             n/a" -- called_as smcd info
check "smcd seid" prints n/a -- called_as smcd seid
check "smcd seid enable" has_no_seid enable
check "smcd seid disable" has_no_seid disable
check "smc stats" shows '^SMC-D connections +[1-9][0-9]* as client, 0 as server$' smc_a stats
check "smc stats, of bytes" shows '^SMC-D +Sent +Received$' smc_a stats
check "smc stats, JSON" json \
	'it["smcd"]["client_v2"] > 0 and it["smcd"]["sent"]["bytes"] > 1 << 20 and it["smcr"]["client_v2"] == 0' smc_a stats
check "smcd stats" shows '^  SMC connections +[1-9]' called_as smcd -a stats
check "smcd stats, of bytes" shows '^  Data transmitted \(Bytes\) +[0-9]+ \([0-9.]+M\)$' called_as smcd -a stats
check "smcd stats, of buffers" shows '^  Buffer usage \(Bytes\) +[0-9]+ \([0-9.A-Z]+\)$' called_as smcd -a stats
check "smcd stats, of buffers of the reader" json \
	'sum(it["smcd"]["sent"]["buffer_sizes"]) == 0 and sum(it["smcd"]["received"]["buffer_sizes"]) > 0' smc_a stats
check "smcd stats, as client" shows '^  SMC connections +[1-9][0-9]* \(client [1-9][0-9]*, server 0\)$' \
	called_as smcd -ad stats
check "smcd stats, JSON" shows '^\{"SMCD":.*"SMC_CLNT_V2_SUCC_CNT":[1-9]' called_as smcd -a stats json
check "smcr stats has none of it" shows '^  SMC connections +0$' called_as smcr -a stats
check "Prometheus: connections" shows '^smc_connections_total\{technology="smcd",end="client",version="2"\} [1-9]' \
	smc_a stats --prometheus
check "Prometheus: bytes" shows '^smcd_bytes_total\{direction="sent"\} [1-9]' smc_a stats --prometheus
check "Prometheus: the group" beside 3 shows "^smcd_group_connections\{group=\"$GROUP\"\} 3$" smc_a stats --prometheus
check "smc top" beside 3 shows '^Sockets   3 by SMC, 0 by TCP, [0-9]+ listening; 3 of SMC by SMC-D$' \
	smc_a top --interval 0.3
check "smc top, of the group" beside 3 shows "^$GROUP +- +SMC-D +3 " smc_a top --interval 0.3
check "smc top, JSON" beside 3 json \
	'it["sockets"]["smcd"] == 3 and it["smcd_groups"][0]["connections"] == 3 and "connections" in it["rates"]' \
	smc_a top --interval 0.3

# Off at one end -----------------------------------------------------------------------------

client_off() {
	with_sysctl a net/smc/smcd_loopback 0 "$@"
}

server_off() {
	with_sysctl b net/smc/smcd_loopback 0 "$@"
}

check "off at the client: smc info" client_off shows \
	'^SMC-D +within this machine: off in this network namespace' smc_a info
check "off at the client: smc why" client_off why 3 NOSMCDEV/no-device \
	"The peer may be on this machine; shared memory within it (SMC-D) is off in this network namespace"
check "and what to change" client_off why 3 NOSMCDEV/no-device "  change: $REMEDY"
check "off at the server: smc why" server_off why 3 PEERDECL/NOISM2SUPP "$DECLINED"
check "off at the server: smc why there" server_off why_at_server NOISM2SUPP/smcd-off \
	"The client is on this machine and has no RDMA port for the connection, and $OFF"
check "off within one namespace: smc why" server_off why 3 NOSMCDEV/no-device \
	"The peer is on this machine; shared memory within it (SMC-D) is off in this network namespace" "$IP_B" b

# Beside SMC-R -------------------------------------------------------------------------------

require "soft RoCE" up_rxe
check "SMC-R where it is off: smc why" client_off why 0 SMC "shared memory within it (SMC-D) is off in this network"
check "both kinds of groups" beside 1 json \
	'{g["technology"] for g in it} == {"SMC-R", "SMC-D"} and all("role" in g for g in it if g["technology"] == "SMC-R")' \
	"$BIN/smc" lgr
check "with numbers of their own" beside 1 json 'len({g["id"] for g in it}) == len(it) == 3' "$BIN/smc" lgr
check "smc link has links of SMC-R alone" beside 1 hides $GROUP "$BIN/smc" link

stop_servers
down_netns
check "module unloads" within 20 unload_smc
finish
