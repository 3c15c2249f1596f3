#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 300
# cpus: 1
# The management interface: enterprise IDs and physical networks, and what they do to connections; the
# tools that show all this. What netlink and sock_diag answer is compared with the C module in lists.sh.

. "${LIB:=${0%/*}/lib.sh}"

has_eids() {
	[ "$("$BIN/smc" ueid show | sort | tr -d ' ' | tr '\n' ' ')" = "$*${*:+ }" ]
}

ueid() {
	"$BIN/smc" ueid "$@"
}

pnet() {
	"$BIN/smc" pnet "$@"
}

# Network devices are named in their namespace.
pnet_in() {
	in_ns "$1" "$BIN/smc" pnet "${@:2}"
}

# pnet_is LINE...: the table, as smc_pnet prints it.
pnet_is() {
	diff <(printf '%s\n' "$@") <(called_as smc_pnet)
}

# called_as NAME OPTION...: our program by one of the names of smc-tools.
called_as() {
	local name=$1
	shift
	ln -sf "$BIN/smc" "/tmp/$name" && "/tmp/$name" "$@"
}

# ends_with CODE COMMAND...
ends_with() {
	local wanted=$1
	shift
	"$@"
	[ $? = "$wanted" ]
}

# runs BY WORDS: the command, by `smc run` or smc_run; what is no command says so.
runs() {
	local words
	eval "words=($2)"
	case $1 in
	smc_run) called_as smc_run "${words[@]}" ;;
	*) "$BIN/smc" run "${words[@]}" ;;
	esac
}

# link_names_group: smcr takes the UID of a link, as link-show prints it, for that of its group.
link_names_group() {
	local group uid
	read -r group uid < <(/tmp/smcr -d linkgroup link-show | awk 'NR == 2 { print $1, $7 }')
	echo "# group $group, link $uid"
	[ "${uid%??}" = "${group%??}" ] && [ "$uid" != "$group" ] &&
		[ "$(/tmp/smcr linkgroup "$uid" | awk 'NR > 1 { print $1 }')" = "$group" ] &&
		[ "$(/tmp/smcr linkgroup link-show "$uid" | awk 'NR == 2 { print $1 }')" = "$group" ]
}

# fallback_is CODE: the next connection goes over TCP, for that reason as the client has it.
fallback_is() {
	local before
	before=$(fallbacks_of "$1")
	smctest --expect tcp path && [ "$(fallbacks_of "$1")" = "$((before + 1))" ]
}

fallbacks_of() {
	local count
	count=$(in_ns a "$BIN/smc" stats | sed -n "s/^\([0-9]*\) *client .*(0x$1)\$/\1/p")
	echo "${count:-0}"
}

# json_is_good COMMAND...: it prints JSON.
json_is_good() {
	in_ns a "$BIN/smc" "$@" --json | python3 -c 'import json, sys; json.load(sys.stdin)'
}

# ends_quietly COMMAND...: it ends by SIGPIPE when nobody reads what it prints, and says nothing.
ends_quietly() {
	local code
	exec 3> >(:)
	sleep 0.5
	"$BIN/smc" "$@" >&3 2>/tmp/said
	code=$?
	exec 3>&-
	[ $code = 141 ] && [ ! -s /tmp/said ]
}

# on_full_disk COMMAND...: it has nowhere to print to.
on_full_disk() {
	"$@" >/dev/full
}

# both_ends_of FAMILY: `smc ss --pid` has both ends of a connection between sockets that are made so.
both_ends_of() {
	smctest --family "$1" --expect smc hold --seconds 0 --then "ip netns exec a '$BIN/smc' ss --pid \$PPID >/tmp/ss" &&
		cat /tmp/ss && [ "$(grep -c SMC-R /tmp/ss)" = 2 ]
}

# fetch PATH: what `smc stats --listen` answers.
METRICS_PORT=9717
fetch() {
	{ printf 'GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n' "$1" >&3 && cat <&3; } \
		3<>/dev/tcp/127.0.0.1/$METRICS_PORT
}

# As smc-exporter.service does: without privileges.
serves_metrics() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs "$BIN/smc" stats --listen 127.0.0.1:$METRICS_PORT &
	local server=$!
	within 10 fetch / >/dev/null 2>&1
	fetch /metrics >/tmp/metrics && fetch /else >/tmp/else
	kill $server
	wait $server 2>/dev/null
	grep -q '^HTTP/1.1 200 OK' /tmp/metrics && grep -q '^HTTP/1.1 404 ' /tmp/else &&
		grep -q '^smcr_port_active{device="rxe_a",port="1",pnetid=""} 1$' /tmp/metrics
}

# metrics_say PATTERN: among those of a.
metrics_say() {
	in_ns a "$BIN/smc" stats --prometheus >/tmp/metrics && grep -E "$1" /tmp/metrics
}

# top_is PATTERN OPTION...: it prints that once, while there are connections.
top_is() {
	local pattern=$1
	shift
	smctest --expect smc hold --connections 3 --seconds 0 \
		--then "ip netns exec a '$BIN/smc' top --interval 0.3 $* >/tmp/top" &&
		cat /tmp/top && grep -qE "$pattern" /tmp/top
}

# top_has_drawn: what is there, in a terminal.
top_has_drawn() {
	within 20 grep -qs Sockets /tmp/top
}

# In a terminal it goes on until it is told to end.
top_in_terminal() {
	rm -f /tmp/top
	{ top_has_drawn && printf q; } |
		timeout 60 script -qec "ip netns exec a '$BIN/smc' top --interval 0.3" /dev/null >/tmp/top &&
		grep -q 'Sockets  .* by SMC' /tmp/top
}

# top_ended_by SIGNAL: the terminal is as before then. It stays until stty has shown it.
top_ended_by() {
	rm -f /tmp/top
	{ top_has_drawn && kill -s "$1" "$(cat /tmp/top.pid)" && within 20 grep -q icanon /tmp/top; } |
		timeout 60 script -qec "stty sane
		sh -c 'echo \$\$ >/tmp/top.pid && exec \"\$@\"' sh ip netns exec a '$BIN/smc' top --interval 0.3
		stty -a" /dev/null >/tmp/top
	grep -q 'Sockets  .* by SMC' /tmp/top && grep -q $'\e\[?1049l' /tmp/top && grep -qE '(^| )echo ' /tmp/top &&
		grep -qE '(^| )icanon ' /tmp/top
}

# resets: what smcr counted before a reset is gone after it, but for who asks for all.
resets() {
	in_ns a /tmp/smcr stats | grep -E '^  SMC connections +[1-9][0-9]*$' &&
		in_ns a /tmp/smcr -d stats reset | grep -E '^    v2 +[1-9]' &&
		in_ns a /tmp/smcr stats | grep -E '^  SMC connections +0$' &&
		in_ns a /tmp/smcr -a stats json | grep -E '"SMC_CLNT_V2_SUCC_CNT":[1-9]'
}

# buffers_used WAY: buffers to send (sent) or receive (received) that connections of a have got, by the counters.
buffers_used() {
	in_ns a "$BIN/smc" stats --json | python3 -c 'import json, sys
way = json.load(sys.stdin)["smcr"][sys.argv[1]]
print(way["buffers_made"] + way["buffers_reused"])' "$1"
}

# one_buffer_each: a connection that sends and receives many times counts one buffer each way.
one_buffer_each() {
	local sent received
	sent=$(buffers_used sent) && received=$(buffers_used received) || return
	smctest --expect smc pingpong --count 50 &&
		[ "$(buffers_used sent)" = $((sent + 1)) ] && [ "$(buffers_used received)" = $((received + 1)) ]
}

# counts_buffers: the groups of both ends of the one connection have memory each way, in whole buffers of the sizes that
# smcss shows of it.
counts_buffers() {
	local sizes
	sizes=$(in_ns a /tmp/smcss -d | sed -n 's/.*:7020 .* SMCR  <->  [0-9a-f]* \([0-9a-f]*\) \([0-9a-f]*\) .*/\1 \2/p')
	# Two numbers.
	# shellcheck disable=SC2086
	"$BIN/smc" lgr --json | python3 -c 'import json, sys
send, receive = [int(size, 16) for size in sys.argv[1:]]
groups = [group for group in json.load(sys.stdin) if group["connections"]]
for group in groups:
    print("#", group["role"], "sends", group["send_bytes"], "receives", group["receive_bytes"], "sizes", send, receive)
    assert group["send_bytes"] > 0 and group["send_bytes"] % send == 0
    assert group["receive_bytes"] > 0 and group["receive_bytes"] % receive == 0
assert len(groups) == 2' $sizes
}

# Another wire, with soft RoCE on both ends.
up_later() {
	ip link add later_a mtu 9000 netns a type veth peer name later_b mtu 9000 netns b &&
		ip -n a address add 10.8.0.1/24 dev later_a && ip -n a link set later_a up &&
		ip -n b address add 10.8.0.2/24 dev later_b && ip -n b link set later_b up &&
		in_ns a rdma link add rxe_later type rxe netdev later_a &&
		in_ns b rdma link add rxe_later_b type rxe netdev later_b
}

later_path() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr=10.8.0.2 --expect smc path
}

# The RDMA devices go first: if one takes more than a second to go with its network device, the kernel says
# again that that goes, and soft RoCE closes the port of the namespace, which the other devices use.
down_later() {
	in_ns a rdma link delete rxe_later && in_ns b rdma link delete rxe_later_b &&
		ip -n a link del later_a && [ ! -e /sys/class/infiniband/rxe_later ]
}

# An enterprise ID of 33 characters.
LONG=$(printf '%033d' 0)

smc_as_nobody() {
	as_nobody "$BIN/smc" "$@"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe

check "there is a default ID" has_eids "$EID"
check "it makes SMC-R" smctest --expect smc path
check_not "an ID is not added twice" ueid add "$EID"
check_not "small letters are no ID" ueid add small
check "IDs are added" ueid add A.B-C
check "more of them" ueid add D
check "a fourth" ueid add E1
check_not "a fifth is refused" ueid add F
check "smc ueid: one that is too long is not one too many" fails_saying "EID is longer than 32 characters" ueid add "$LONG"
check "smcr: neither" fails_saying "Error: EID is longer than 32 characters" called_as smcr ueid add "$LONG"
check "they are all there" has_eids A.B-C D E1 "$EID"
check "anybody may look" smc_as_nobody ueid show
check_not "not everybody may add" smc_as_nobody ueid add G
check "an ID is removed" ueid del "$EID"
check_not "but not twice" ueid del "$EID"
check "another ID in common makes SMC-R" smctest --expect smc path
check "all IDs are removed" ueid flush
check "none is left" has_eids
check "without one it is TCP" smctest --expect tcp path
check "the default is added again" ueid add "$EID"
check "and it is SMC-R again" smctest --expect smc path

check "a network is named" pnet_in a add net1 -I wire_a
check "no RDMA device is on it" fallback_is 03030000
check "one is" pnet add NET1 -D rxe_a
check "and makes SMC-R" smctest --expect smc path
check "the other end is on another network" pnet_in b add NET2 -I wire_b
check "so the server declines" smctest --expect tcp path
check "its device is on that network" pnet add NET2 -D rxe_b -P 1
check "and makes SMC-R again" smctest --expect smc path
check "smc_pnet prints them" pnet_is "NET1 n/a rxe_a 1" "NET2 n/a rxe_b 1"
check "a network is shown by its name in small letters" sh -c "'$BIN/smc' pnet show net1 | grep -q rxe_a"
check "a name is not given twice" fails_saying "the RDMA port is on a network already" pnet add NET3 -D rxe_a
check "an RDMA device has a name in the first namespace only" fails_saying "not the first one" pnet_in a add NET3 -D rxe_b
check "a name has letters and digits" fails_saying "16 letters and digits" pnet_in a add A_B -I lo
check "and not too many of them" fails_saying "16 letters and digits" pnet_in a add ABCDEFGHIJKLMNOPQ -I lo
check_not "not everybody may name" smc_as_nobody pnet add NET4 -I lo
check "anybody may look" smc_as_nobody pnet show
check "a network is removed, by its name in small letters" pnet del net1
check "and not twice" fails_saying "there is no network NET1" pnet del net1
check "a network is removed in a namespace" pnet_in b del NET2
check "and nowhere else" pnet_is "NET2 n/a rxe_b 1"
check "and its device is not used any more" fallback_is 03030000
check "all are removed" pnet flush
check "in the namespaces, too" pnet_in a flush
check "in the other one" pnet_in b flush
check "smc_pnet: the name behind the options" called_as smc_pnet -a -D rxe_a NET5
check "smc_pnet: it is there" pnet_is "NET5 n/a rxe_a 1"
check_not "smc_pnet: a name without an option" called_as smc_pnet NET5
check "smc_pnet: the name before the option" called_as smc_pnet NET5 -d
check "smc_pnet: nothing is left" [ -z "$(called_as smc_pnet)" ]
check "smc_pnet: nothing has a name" [ -z "$(called_as smc_pnet -s NOSUCH)" ]
check "smc_pnet: no such name to remove" fails_saying "smc_pnet: Object not found" called_as smc_pnet -d NOSUCH
check "smc_pnet: the first port" called_as smc_pnet -a -D rxe_a -P 0 NET5
check "smc_pnet: a port twice" fails_saying "smc_pnet: Object exists" called_as smc_pnet -a -D rxe_a NET5
check "smc_pnet: no name" fails_saying "smc_pnet: Invalid input data or parameter" called_as smc_pnet -a -D rxe_b A_B
check "smc_pnet: all go" called_as smc_pnet -f
check "smcr: no such ID" ends_with 255 called_as smcr ueid del NOSUCH
check "smcr: two dots in a row are no ID" ends_with 255 called_as smcr ueid add A..B
check_not "smc ueid: neither are they" ueid add B..C
check "smcr: options are before the object" ends_with 255 called_as smcr info -d
check "and it is SMC-R as at first" smctest --expect smc path

# What is named first and comes later.
check "a network device is named before it is there" pnet_in a add NET5 -I later_a
check "and an RDMA device" pnet add NET5 -D rxe_later
check "both come" up_later
check "they are on that network" sh -c "'$BIN/smc' dev | grep -q 'rxe_later/1 .*NET5'"
check "which makes SMC-R" later_path
check "with links on it" sh -c "'$BIN/smc' lgr | grep -q NET5"
check "they go" down_later
check "their names stay" pnet_is "NET5 n/a rxe_later 1"
check "until they are removed" pnet flush

for command in ss lgr link dev info stats "pnet show" "ueid show"; do
	# The words of a command.
	# shellcheck disable=SC2086
	check "smc $command prints JSON" json_is_good $command
done
for family in smc ipproto ulp; do
	check "smc ss --pid has sockets of $family" both_ends_of $family
done
require "a listener" start_server 7031 --server-family smc
check "smc ss -a shows that it listens" sh -c "ip netns exec b '$BIN/smc' ss -a | grep -E '^[^ ]+:7031 +[^ ]+ +listens$'"
check "which is no connection" sh -c "! ip netns exec b '$BIN/smc' ss | grep :7031"
stop_servers
check "smc ends as others do when nobody reads" ends_quietly info
for command in ss info stats "ueid show" "stats --prometheus"; do
	# The words of a command.
	# shellcheck disable=SC2086
	check "smc $command says that the disk is full" fails_saying "smc: No space left" on_full_disk "$BIN/smc" $command
done
check "smcss answers" called_as smcss
check "smcss lists connections" smctest --expect smc hold --connections 1 --seconds 1 --then \
	"ip netns exec a /tmp/smcss -R | grep -E '^ACTIVE .* $IP_B:[0-9]+ .* SMCR CLNT rxe_a'"
check "those of IPv6, too, whatever the family of the socket" smctest6 --family smc --expect smc hold --connections 1 \
	--seconds 1 --then "ip netns exec a /tmp/smcss -RW | grep -E '^ACTIVE .* $IP6_A:[0-9]+ +$IP6_B:[0-9]+ .* SMCR' &&
	ip netns exec a '$BIN/smc' ss | grep -F '[$IP6_B]:'"
check "and their rings" smctest --expect smc hold --connections 1 --seconds 1 --then \
	"ip netns exec b /tmp/smcss -d | grep -E '^ACTIVE .* SMCR  <->  [0-9a-f]{8} '"
check "smcr lists groups" sh -c "ln -sf '$BIN/smc' /tmp/smcr && /tmp/smcr linkgroup | grep -q SINGLE"
check "and links" sh -c "/tmp/smcr -dd link link-show all |
	grep -E '^[0-9a-f]{6}00 (CLNT|SERV)     SINGLE   .* LINK_ACTIVE +[0-9]+  [0-9a-f]{6}01  [0-9a-f]{6}01  rxe_a        1  '"
check "and a group, by the UID of its link" link_names_group
check "and devices" sh -c "/tmp/smcr d | grep -E ' rxe_b       1    ACTIVE  0 +(Yes|No) +[0-9]+\$'"
check "and what there is" sh -c "/tmp/smcr info | grep -q '^SMC Version: *2.1'"
check "and counters, since a reset" resets
check "a connection counts one buffer each way" one_buffer_each
check "smc lgr counts buffers" beside 1 counts_buffers
check "smc_run runs a program" [ "$(called_as smc_run -d -r 70000 sh -c 'echo $SMC_RCVBUF $SMC_DEBUG')" = "70000 1" ]
for by in "smc run" smc_run; do
	for row in "127 no such command:nosuch" "126 a folder:/tmp" "126 no program:/etc/passwd" "7 what the command ends with:sh -c exit\ 7"; do
		code=${row%% *} what=${row#* }
		check "$by: ${what%%:*}" ends_with "$code" runs "$by" "${what#*:}"
	done
done
check "counters for Prometheus" metrics_say '^smc_connections_total\{technology="smcr",end="client",version="2"\} [1-9]'
check "with reasons" metrics_say '^smc_fallback_reasons_total\{end="client",reason="NOSMCDEV",code="0x03030000"\} [1-9]'
# For promtool (packaging/try).
cp /tmp/metrics "$OUT/metrics"
check "by HTTP, by an ordinary user" serves_metrics
check "smc top measures once" top_is '^Sockets   3 by SMC, 0 by TCP' --once
check "and without a terminal" top_is '^rxe_a/1 .* active '
check "and as JSON" top_is '"listening": [01]' --json
check "and goes on in a terminal" top_in_terminal
for signal in TERM HUP; do
	check "which SIG$signal leaves as it was" top_ended_by $signal
done
check_not "smcr knows its objects" sh -c "/tmp/smcr nonsense 2>/dev/null"
check "smcd has none of ours" sh -c "ln -sf '$BIN/smc' /tmp/smcd && [ -z \"\$(/tmp/smcd linkgroup)\" ]"

check "module unloads" within 20 unload_smc
check "without it smc ss says so" fails_saying "not loaded" "$BIN/smc" ss
check "and smc ss --json" fails_saying "not loaded" "$BIN/smc" ss --json
check "and smcss" fails_saying "Error: SMC module not loaded" called_as smcss
check "and so does smcr" fails_saying "Error: SMC module not loaded" called_as smcr info
check "and smc_pnet" fails_saying "smc_pnet: SMC module not loaded" called_as smc_pnet
# SO_PROTOCOL
check "smc_run starts programs, with TCP sockets" called_as smc_run python3 -c \
	"import socket as s; assert s.socket().getsockopt(s.SOL_SOCKET, 38) == s.IPPROTO_TCP"
finish
