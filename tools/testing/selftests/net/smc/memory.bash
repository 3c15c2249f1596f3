#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Connections of a cgroup with a memory limit, for memory.sh and memory_v1.sh. These are two scripts with a guest each:
# what a cgroup of version 2 was charged for and kfree_rcu() frees later would be taken off kernel memory that only
# version 1 counts, and the kernel warns of an underflow.

MIB=$((1 << 20))
CG=/tmp/cgroup
LIMIT=16
PAIRS=16

# mount_cgroup VERSION: cgroups with memory limits.
mount_cgroup() {
	mkdir -p "$CG"
	case $1 in
	1) mount -t cgroup -o memory none "$CG" ;;
	2) mount -t cgroup2 none "$CG" && echo +memory >"$CG/cgroup.subtree_control" ;;
	esac
}

unmount_cgroup() {
	if [ -e "$CG/cgroup.controllers" ]; then
		echo -memory >"$CG/cgroup.subtree_control" || return
	fi
	umount "$CG"
}

# in_cgroup LIMIT_FILE COMMAND...: the command in a cgroup that may have LIMIT MiB by that file.
in_cgroup() {
	local file=$1 code
	shift
	mkdir "$CG/user" && echo "${LIMIT}M" >"$CG/user/$file" || return
	sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$CG/user" "$@"
	code=$?
	within 10 rmdir "$CG/user" && return "$code"
}

# ways: how many sockets are over RDMA and over TCP, in both namespaces.
WAYS="for ns in a b; do ip netns exec \$ns '$BIN/smc' ss --json; done |
	awk '/\"smc\": true/ { smc++ } /\"smc\": false/ { tcp++ } END { print smc + 0, tcp + 0 }'"

# Why those of the process are TCP that runs this.
WHY="for ns in a b; do ip netns exec \$ns '$BIN/smc' why --pid \$PPID || true; done"

# fills USAGE_FILE LIMIT_FILE: connections in a cgroup stop being SMC at its limit, and say why.
fills() {
	local usage=$1 limit=$2 smc tcp used
	in_cgroup "$limit" "$BIN/smctest" "${ENDS[@]}" hold --connections "$PAIRS" --seconds 0 \
		--then "echo \$\$ >$CG/cgroup.procs; cat $CG/user/$usage >/tmp/used; $WAYS >/tmp/ways; $WHY >/tmp/why" ||
		return
	read -r smc tcp </tmp/ways
	used=$(cat /tmp/used)
	echo "# of $((2 * PAIRS)) sockets with 1 MiB to receive into $smc over RDMA, $tcp over TCP;" \
		"$usage $((used >> 10)) KiB of $((LIMIT << 10))"
	[ "$used" -le $((LIMIT * MIB)) ] && [ "$smc" -gt 0 ] && [ "$tcp" -gt 0 ] &&
		grep -q "id:     MEM/cgroup-limit" /tmp/why
}
