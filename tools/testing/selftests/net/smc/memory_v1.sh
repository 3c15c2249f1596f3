#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 180
# cpus: 1
# The limits that cgroups of version 1 have for memory of sockets hold.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/memory.bash"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "large buffers" set_sysctl rmem $MIB
require "from the beginning" set_sysctl smcr_rmem_min $MIB
require "cgroups of version 1" mount_cgroup 1
check "a cgroup stays within kmem.tcp.limit_in_bytes, and its connections go over TCP" \
	fills memory.kmem.tcp.usage_in_bytes memory.kmem.tcp.limit_in_bytes
check "those of others do not" beside 4 fills memory.kmem.tcp.usage_in_bytes memory.kmem.tcp.limit_in_bytes
require "no cgroups" unmount_cgroup
check "module unloads" within 20 unload_smc
finish
