# SPDX-License-Identifier: GPL-2.0
# Links go and come back between our module and the C module. Guest a is the client, and takes its own devices
# away.

. "$LIB"
. "${LIB%/*}/pair.bash"
. "${LIB%/*}/failover.bash"

PORT=7000
RXE_KO=$FINITE_RXE_KO

# losses NAME NUMBER LOSE RESTORE DEVICE...
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	# The other guest waits for a while only.
	far true
	check "$name" talk $PORT --deadline "$(scale 300 3000)" --expect smc failover \
		--losses "$number" --linked "rxe_near rxe_near2" "${OPTIONS[@]}"
}

# ours_unloads: the C module may wait for its own sends.
ours_unloads() {
	[ "$MODULE" = c ] || check "our module unloads" within 20 unload_smc
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "enterprise ID" common_eid
require "two devices" up_fabric

if [ "$ROLE" = b ]; then
	check "orders" obey
	ours_unloads
	finish
fi

# Where packets get lost only the test of a link tells. The C module asks once.
check "our links are tested often" at_ours setting smcr_testlink_time 1
check "the C module's links are tested often" at_c setting smcr_testlink_time 4
check "a server" far serve $PORT
losses "links go down" "$(scale 8 40)" link_down link_up "near -" "near2 -"
losses "devices are removed" "$(scale 8 40)" device_del device_add "near -" "near2 -"
losses "packets get lost" "$(scale 4 20)" silence noise "near -" "near2 -"
check "SMC still works" talk $PORT --expect smc integrity --mib 1
check "the server ends" far unserve $PORT
dismiss
ours_unloads
finish
