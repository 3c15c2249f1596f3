#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 300
# cpus: 1
# Limits of memory hold: those of cgroups of version 2, and that of all sockets together. New connections go over TCP
# beyond them, and the others go on.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/memory.bash"

# The kernel's tracepoint ---------------------------------------------------------------------

LIMITS=/sys/kernel/tracing/instances/limits

# traces_limits: sock_exceed_buf_limit, which reads the protocol's limits for a single socket, is recorded.
traces_limits() {
	[ -e ${LIMITS%/*/*}/events ] || mount -t tracefs none ${LIMITS%/*/*} || return
	mkdir $LIMITS && echo 1 >$LIMITS/events/sock/sock_exceed_buf_limit/enable
}

# traced_limits: it was, for one of our sockets, with the limits of TCP.
traced_limits() {
	local rmem wmem
	read -r rmem _ </proc/sys/net/ipv4/tcp_rmem
	read -r wmem _ </proc/sys/net/ipv4/tcp_wmem
	grep -m1 "proto:SMC.* sysctl_rmem=$rmem .* sysctl_wmem=$wmem " $LIMITS/trace && rmdir $LIMITS
}

# All sockets together ------------------------------------------------------------------------

MEM=/proc/sys/net/smc/smcr_mem

# pages: what all sockets have.
pages() {
	awk '$1 == "SMC" { print $4; exit }' /proc/net/protocols
}

has_none() {
	has_at_most 0
}

has_at_most() {
	[ "$(pages)" -le "$1" ]
}

# defaults_as_tcp: three numbers of about those of TCP.
defaults_as_tcp() {
	echo "# smcr_mem $(cat $MEM), tcp_mem $(cat /proc/sys/net/ipv4/tcp_mem)"
	awk 'NR == FNR { for (i = 1; i <= 3; i++) tcp[i] = $i; next }
		{ for (i = 1; i <= 3; i++) if ($i < tcp[i] * 0.8 || $i > tcp[i] * 1.25) exit 1 }' \
		/proc/sys/net/ipv4/tcp_mem $MEM
}

# with_pages LOW PRESSURE HIGH COMMAND...: the command with these limits.
with_pages() {
	local before code
	before=$(cat $MEM)
	echo "$1 $2 $3" >$MEM || return
	shift 3
	"$@"
	code=$?
	echo "$before" >$MEM
	return $code
}

# fills_all HIGH: connections stop being SMC when all sockets have so many pages.
fills_all() {
	local smc tcp most
	smctest hold --connections "$PAIRS" --seconds 0 \
		--then "$WAYS >/tmp/ways; awk '\$1 == \"SMC\" { print \$4 }' /proc/net/protocols >/tmp/pages; $WHY >/tmp/why" ||
		return
	read -r smc tcp </tmp/ways
	read -r most </tmp/pages
	echo "# of $((2 * PAIRS)) sockets $smc over RDMA, $tcp over TCP; $most pages of $1"
	[ "$most" -le "$1" ] && [ "$most" -gt 0 ] && [ "$smc" -gt 0 ] && [ "$tcp" -gt 0 ] &&
		grep -q "id:     MEM/all-sockets-limit" /tmp/why || return
	# What nobody uses goes until they have no more than the first number.
	within 15 has_at_most 100
}

# lowered_meanwhile: connections that are there go on when the limit falls below what they have.
lowered_meanwhile() {
	smctest --expect smc hold --connections 4 --seconds 1 --then "nsenter --net=/proc/1/ns/net sh -c 'echo 1 2 3 >$MEM'"
}

# accepted_elsewhere EXPECTED OPTION...: connections to a listener of another cgroup are charged to that which accepts.
accepted_elsewhere() {
	with_cgroups max "${@:2}" --expect "$1" charged --cgroups "$CG"
}

# declined COMMAND...: the command, with a server that has no RDMA and declines what a client offers.
declined() {
	local code
	del_rdma rxe b || return
	"$@"
	code=$?
	add_rdma rxe b && return "$code"
}

# left_beyond: what peers have left unread does not put a cgroup beyond its limit.
left_beyond() {
	with_cgroups 16M --expect smcd charged --cgroups "$CG" --beyond
}

# with_cgroups LIMIT OPTION...: smctest with a cgroup that makes listeners, and one with this limit that accepts.
with_cgroups() {
	local code
	mkdir "$CG/maker" "$CG/acceptor" && echo "$1" >"$CG/acceptor/memory.max" || return
	smctest "${@:2}"
	code=$?
	within 10 rmdir "$CG/maker" "$CG/acceptor" && return "$code"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
check "the limit of all sockets is that of TCP by default" defaults_as_tcp
require "large buffers" set_sysctl rmem $MIB
require "from the beginning" set_sysctl smcr_rmem_min $MIB
# Otherwise they go after a minute, and with them a change of the sums that rows compare.
require "the first namespace permits it" sh -c "echo 6000 >/proc/sys/net/smc/smcr_lgr_idle_time"
require "unused buffers stay" set_sysctl smcr_lgr_idle_time 6000

require "the tracepoint of sockets beyond a limit is on" traces_limits
require "cgroups of version 2" mount_cgroup 2
check "a cgroup stays within memory.max, and its connections go over TCP" fills memory.current memory.max
check "those of others do not" beside 4 fills memory.current memory.max
check "TCP: the cgroup is charged that accepts" accepted_elsewhere tcp --family tcp --server-family tcp
check "SMC-R: the cgroup is charged that accepts" accepted_elsewhere smc
check "after a fallback: the cgroup is charged that accepts" accepted_elsewhere tcp --family tcp --server-family smc
check "after a fallback of a client that offers SMC" declined accepted_elsewhere tcp
require "shared memory is allowed" same_host on
check "SMC-D: the cgroup is charged that accepts" accepted_elsewhere smcd
check "SMC-D: what is left unread stays within memory.max" left_beyond
require "no shared memory" same_host off
check "nothing of the cgroup is left" within 10 eval '! grep -q "^nr_descendants [1-9]" '"$CG/cgroup.stat"
require "no cgroups" unmount_cgroup
check "the tracepoint of sockets beyond a limit has those of SMC, with TCP's limits" traced_limits

require "small buffers" set_sysctl rmem 65536
require "all buffers can go" sh -c "echo 2 >/proc/sys/vm/drop_caches"
check "in the end sockets have no memory" within 15 has_none
check "all sockets stay within smcr_mem, and further ones go over TCP" \
	with_pages 100 200 400 fills_all 400
check "connections that are there go on below it" with_pages 1000 2000 4000 lowered_meanwhile
require "small ones to begin with" set_sysctl smcr_rmem_min 16384
require "all buffers can go again" sh -c "echo 2 >/proc/sys/vm/drop_caches"
require "and are gone" within 15 has_none
check "an RMBE that cannot grow below it is used as it is, and grows later" \
	smctest --expect smc resize --limit
check "and with the limits as before all are SMC" smctest --expect smc many --connections 20 --kib 64
check "buffers count as long as they are there" eval '[ "$(pages)" -gt 0 ]'
check "until the module goes" within 20 unload_smc
finish
