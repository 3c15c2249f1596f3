#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 900
# cpus: 1
# verbs: fail
# roce: limits
# Each verb fails once at each call site of the module, and each kind of work request is completed with each error.
# Connections go on over another link or over TCP, or end with an error; no byte is wrong, nothing hangs or leaks, and
# what comes after is as if nothing had been.

RXE_KO=$ROCE_LIMITS_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"
. "${LIB%/*}/outcome.bash"

SMC_KO=$FAULTY_SMC_KO
FAULTS=/sys/module/verb_faults/parameters
LIMITS=/sys/module/rdma_rxe/parameters

up_fabric() {
	up_ends &&
		up_port wire_a a "$IP_A" 9000 && up_port wire2_a a 10.9.0.11 9000 && up_port wire3_a a 10.9.1.1 9000 &&
		up_port wire_b b "$IP_B" 9000 && up_port wire2_b b 10.9.0.12 9000 && up_port wire3_b b 10.9.1.2 9000
}

# The second device of each kind: streams go where the routes say, so iWARP has a subnet of its own there.
declare -A SECOND=([rxe]=wire2 [siw]=wire3)

devices() {
	local device
	for device in "${@:2}"; do
		rdma_add "$1_$device" "${device##*_}" || return
	done
}

# The server's go first: while its peers are silent a host waits four seconds for their answer to a DELETE_LINK.
no_devices_left() {
	local device
	for device in $(ls -r /sys/class/infiniband | sort -t_ -k3r); do
		rdma_del "$device" "${device##*_}" || return
	done
	within 20 no_groups
}

# transfer MIB: a connection with data both ways.
transfer() {
	smctest --deadline 60 integrity --mib "$1" --chunk 50000 >/tmp/transfer 2>&1
}

# story KIND: what a group goes through on devices of that kind: first contact and a connection, a second link under
# another one, a device that goes under it, the end. Sets SAID to what became of the connections.
story() {
	local code second=${SECOND[$1]}
	SAID=
	devices "$1" wire_a wire_b || return
	SAID=$(smctest path 2>&1 | sed -n 's/^# path: \([^ :]*\).*/\1/p')
	transfer 1
	code=$?
	SAID="${SAID:-no connection}, $(outcome $code)"
	is_sound $code || return
	transfer "${UNDER_WAY:-10}" &
	transfer=$!
	devices "$1" "${second}_a" "${second}_b" || return
	if within "${LINKED_WITHIN:-3}" are_links_on "$1_${second}_a $1_${second}_b $1_wire_a $1_wire_b" >/dev/null; then
		SAID="$SAID; two links"
	else
		SAID="$SAID; not two links"
	fi
	rdma_del "$1_wire_a" a || return
	wait "$transfer"
	code=$?
	SAID="$SAID; $(outcome $code)"
	is_sound $code && no_devices_left
}

# call_sites: one a line: its number, the verb, and the functions of net/smc that led to it, innermost first.
call_sites() {
	c++filt -s rust </proc/verb_faults | awk -F ' \\[smc\\] ?' '
	{
		split($1, head, " ")
		first = $1
		sub(/^[^ ]+ [^ ]+ [^ ]+ ?/, "", first)
		line = head[1] " " head[3]
		for (i = 1; i <= NF; i++) {
			name = i == 1 ? first : $i
			gsub(/\[[0-9a-f]+\]/, "", name)
			gsub(/ as .*>/, "", name)
			if (name !~ /^<*smc::/)
				continue
			gsub(/<|>|smc::/, "", name)
			line = line " " name
		}
		print line
	}'
}

# goes_on VERB: after this one failed no connection ended with an error. What failed is a handshake, which goes on over
# TCP, or a link that was to be added, without which the device that goes takes the connection with it. A work request
# that cannot be posted is a link that fails.
goes_on() {
	case $1 in ib_post_*) return 0 ;; esac
	case $SAID in
	*"not two links; ended with"*) ;;
	*"ended with"*) false ;;
	esac
}

# Faults that were to happen, and those that did not.
PLANNED=0
MISSED=0

missed() {
	MISSED=$((MISSED + 1))
	SAID="$SAID ($1)"
}

few_missed() {
	echo "# $MISSED of $PLANNED faults did not happen"
	[ $((5 * MISSED)) -le "$PLANNED" ]
}

# fails_at KIND SITE VERB: the story with the next call from there failing.
fails_at() {
	local before code
	PLANNED=$((PLANNED + 1))
	before=$(cat $FAULTS/failed)
	echo "$2" >$FAULTS/site
	story "$1"
	code=$?
	if [ "$(cat $FAULTS/failed)" = "$before" ]; then
		echo -1 >$FAULTS/site
		missed "not called"
	fi
	[ $code = 0 ] && goes_on "$3"
}

# slice NUMBER: at most so many of the lines of standard input, by TURN, so that each comes within some turns.
slice() {
	local lines
	mapfile -t lines
	local every=$(((${#lines[@]} + $1 - 1) / $1)) i
	for ((i = TURN % every; i < ${#lines[@]}; i += every)); do echo "${lines[i]}"; done
}

# each_site KIND FROM NUMBER: at most so many of the call sites from that number on.
each_site() {
	local site verb functions
	call_sites | awk -v from="$2" '$1 >= from' >/tmp/sites
	echo "# $(wc -l </tmp/sites) call sites on devices of $1, $3 of them at most"
	while read -r site verb functions; do
		check "$1: $verb fails in ${functions// / < }" fails_at "$1" "$site" "$verb"
		echo "# table | verbs that fail | $verb, ${functions%% *} ($site) | $1 | $SAID"
	done < <(slice "$3" </tmp/sites)
}

# completed OPCODE NUMBER STATUS: the story with that completion of the kind having that status.
completed() {
	local code
	PLANNED=$((PLANNED + 1))
	echo "$1" >$LIMITS/wc_opcode && echo "$3" >$LIMITS/wc_status && echo "$2" >$LIMITS/wc_number || return
	story rxe
	code=$?
	[ "$(cat $LIMITS/wc_number)" = 0 ] || missed "not so many"
	echo 0 >$LIMITS/wc_number
	return $code
}

# each_status NUMBER: at most so many of the kinds of completions and errors (enum ib_wc_opcode, enum ib_wc_status).
each_status() {
	local opcode status number
	while read -r opcode status; do
		number=$((1 + (TURN + opcode + status) % 20))
		check "completion $number of ${KINDS[$opcode]} has status $status" completed "$opcode" "$number" "$status"
		echo "# table | completions with an error | ${KINDS[$opcode]} $number | $status | $SAID"
	done < <(for opcode in "${!KINDS[@]}"; do
		for status in {1..21}; do echo "$opcode $status"; done
	done | slice "$1")
}

declare -A KINDS=([0]="a send" [1]="a write" [10]="a registration" [128]="a receive" [129]="a receive with immediate data")

# is_as_before KIND: all of the story over SMC-R.
is_as_before() {
	# On a busy machine the links take longer than 10 MiB, and the group goes when these are there.
	LINKED_WITHIN=20 UNDER_WAY=60 story "$1"
	local code=$?
	echo "# $SAID"
	[ $code = 0 ] && [ "$SAID" = "SMC-R, whole; two links; whole" ]
}

# The script has its turn every third day.
TURN=${SMC_SEED:-$(($(date +%s) / 86400 / 3))}
echo "# SMC_SEED=$TURN"
require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "verbs can fail" insmod "$VERB_FAULTS_KO"
require "module loads" load_smc
require "network" up_fabric
require "groups end soon" set_sysctl smcr_lgr_idle_time 1

require "soft RoCE: no verb fails" is_as_before rxe
each_site rxe 0 "$(scale 12 1000)"
each_status "$(scale 8 1000)"
check "soft RoCE: all is as before" is_as_before rxe
first=$(wc -l </proc/verb_faults)
require "soft iWARP: no verb fails" is_as_before siw
each_site siw "$first" "$(scale 8 1000)"
check "soft iWARP: all is as before" is_as_before siw

check "four fifths of the faults happened" few_missed
check "the list has room for all call sites" [ "$(cat $FAULTS/lost)" = 0 ]
check "module unloads" within 20 unload_smc
echo 0 >$FAULTS/site
check_not "a module that cannot register with the RDMA core does not load" insmod "$SMC_KO"
check "and does afterwards" load_smc
check "module unloads again" within 20 unload_smc
finish
