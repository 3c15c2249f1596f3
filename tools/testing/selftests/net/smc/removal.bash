# SPDX-License-Identifier: GPL-2.0
# What a connection uses goes away under it: TCP, the RDMA device, the namespace, the module. The script says of which
# kind RDMA devices are (RDMA), what counts the bytes that a sends by them (COUNTER), and how much they move in some
# seconds (MIB).

. "$LIB"
. "${LIB%/*}/outcome.bash"

up_devices() {
	add_rdma "$RDMA" a && add_rdma "$RDMA" b
}

# start_transfer NAME: large enough not to end by itself before something is removed, small enough
# to end in time if it survives that, as it may when there is a second link.
start_transfer() {
	check "$1: a transfer is under way" transfer_begins "$COUNTER" \
		"$BIN/smctest" "${ENDS[@]}" --deadline 60 --expect smc integrity --mib "$MIB"
}

require "RDMA modules load" load_rdma
[ "$RDMA" != siw ] || require "soft iWARP loads" load_siw
require "module loads" load_smc
require "network" up_netns
require "RDMA devices" up_devices
require "enterprise ID" common_eid

# The C module does not listen to TCP once it has a connection over RDMA.
[ "$MODULE" = c ] || suite "TCP" smctest --expect smc reset

for end in a b; do
	start_transfer "device of $end"
	check "device of $end: it is removed" del_rdma "$RDMA" "$end"
	check "device of $end: the transfer ends" transfer_ends
	check "device of $end: TCP is left" smctest --expect tcp integrity --mib 1
	check "device of $end: it comes back" add_rdma "$RDMA" "$end"
	check "device of $end: SMC is back" smc_back 10
done

# A reader, a writer and a getsockopt(2) wait for a page that nobody serves: the device does not wait for them, nor do
# the workers that end the connections.
if [ "$MODULE" = ours ]; then
	check "stuck calls: a device is removed" smctest --expect smc stuck \
		--lose "ip netns exec a rdma link delete ${RDMA}_a"
	check "stuck calls: it comes back" add_rdma "$RDMA" a
	check "stuck calls: SMC is back" smc_back 10
	# A while, in which the worker tries.
	check "stuck calls: the server's device is removed" smctest --expect smc stuck --at-server \
		--lose "ip netns exec b rdma link delete ${RDMA}_b; sleep 2"
	check "stuck calls: it comes back, too" add_rdma "$RDMA" b
	check "stuck calls: SMC is back again" smc_back 10
fi

start_transfer "module"
check_not "module: it stays while in use" rmmod smc
kill -9 "$transfer"
wait "$transfer" 2>/dev/null
check "module: it goes with its link groups" within 20 unload_smc
check "module: it comes back" load_smc
common_eid
check "module: SMC is back" smctest --expect smc integrity --mib 1

start_transfer "namespaces"
down_netns
check "namespaces: they stay while in use" kill -0 "$transfer"
kill -9 "$transfer"
wait "$transfer" 2>/dev/null
check "namespaces: they go with their last socket" within 20 no_devices
check "namespaces: new ones" up_netns
check "namespaces: new devices" up_devices
check "namespaces: SMC works there" smctest --expect smc integrity --mib 1
