#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 500
# cpus: 1
# roce: limits
# Asynchronous events of RDMA devices: queue pairs and devices that fail, ports and tables that are said to have changed
# and have not, and the removal of a device right behind each of them. Connections transfer both ways meanwhile.

RXE_KO=$ROCE_LIMITS_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

# Of `enum ib_event_type`.
QP_FATAL=1
DEVICE_FATAL=8
declare -A UNFOUNDED=([9]="port active" [10]="port error" [11]="LID change" [12]="P_Key change" [13]="SM change"
	[17]="client reregister" [18]="GID change")

# raise DEVICE NAMESPACE EVENT: the RDMA device on that device reports it, of its first port.
raise() {
	in_place "$2" sh -c "echo $1 $3 1 >/sys/module/rdma_rxe/parameters/raise"
}

# raise_and_del DEVICE NAMESPACE EVENT: and goes at once.
raise_and_del() {
	raise "$1" "$2" "$3" && device_del "$1" "$2"
}

# renew DEVICE NAMESPACE: as the driver of a device that has failed does once that is reset.
renew() {
	device_del "$1" "$2" && device_add "$1" "$2"
}

export -f raise raise_and_del renew

DEVICES=("wire_a a" "wire2_b b" "wire_b b" "wire2_a a")

# losses NAME NUMBER: as OPTIONS say.
losses() {
	check "$1" smctest --expect smc failover --connections 8 --losses "$2" "${LINKED[@]}" "${OPTIONS[@]}"
}

# links: group, link, state and device of each.
links() {
	"$BIN/smc" link | awk '{ print $1, $2, $3, $5 }'
}

# nothing_happens EVENT: all devices report it, again and again, while data go: the links stay what they are.
nothing_happens() {
	local before device transfer
	before=$(links)
	smctest --expect smc integrity --mib "$(scale 8 200)" &
	transfer=$!
	while kill -0 $transfer 2>/dev/null; do
		for device in "${DEVICES[@]}"; do
			# The device and the namespace are words.
			# shellcheck disable=SC2086
			raise $device "$1" || return
		done
		sleep 0.1
	done
	wait $transfer && [ "$(links)" = "$before" ]
}

# reader NAMESPACE listen|connect: one end of a connection, which waits for data, says in /tmp/NAMESPACE what it got,
# and goes at once: before any worker, as it has real-time priority.
reader() {
	in_ns "$1" timeout 60 chrt -f 10 python3 - "$2" "$IP_B" >"/tmp/$1" <<-'END'
		import errno, socket, sys
		end = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		if sys.argv[1] == "listen":
		    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		    end.bind((sys.argv[2], 7030))
		    end.listen()
		    end = end.accept()[0]
		else:
		    end.connect((sys.argv[2], 7030))
		print("connected", flush=True)
		try:
		    print("data" if end.recv(1) else "end", flush=True)
		except OSError as error:
		    print(errno.errorcode[error.errno], flush=True)
	END
}

# are_smc: both ends of that.
are_smc() {
	in_ns a "$BIN/smc" ss | sed 's/^/# /'
	[ "$(each_end "$BIN/smc" ss | grep -c ':7030.*SMC-R')" = 2 ]
}

# both_hear DEVICE NAMESPACE OTHER: the only link fails at that end. The other one, whose queue pair is well, is told by
# TCP, long before it would test a link that is silent for 30 s.
both_hear() {
	local readers=()
	within 20 smctest --expect smc path || return
	reader b listen &
	readers+=($!)
	await_port b 7030 || return
	reader a connect &
	readers+=($!)
	within 10 grep -q connected /tmp/a && within 10 grep -q connected /tmp/b && are_smc || return
	raise "$1" "$2" $QP_FATAL
	within 15 grep -qx ECONNABORTED "/tmp/$2" && within 15 grep -qx ECONNRESET "/tmp/$3"
	local code=$?
	tail -n +2 /tmp/a /tmp/b | xargs echo "#"
	wait "${readers[@]}"
	return $code
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_two_each

OPTIONS=()
for device in "${DEVICES[@]}"; do
	OPTIONS+=(--lose "raise $device $QP_FATAL" --restore true)
done
losses "queue pairs fail" "$(scale 8 200)"

OPTIONS=()
for device in "${DEVICES[@]}"; do
	OPTIONS+=(--lose "raise $device $DEVICE_FATAL" --restore "renew $device")
done
losses "devices fail" "$(scale 8 200)"

for event in "${!UNFOUNDED[@]}"; do
	check "${UNFOUNDED[$event]}, and nothing is" beside 4 nothing_happens "$event"
done

OPTIONS=()
i=0
for event in $QP_FATAL $DEVICE_FATAL "${!UNFOUNDED[@]}"; do
	device=${DEVICES[i++ % 4]}
	OPTIONS+=(--lose "raise_and_del $device $event" --restore "device_add $device")
done
losses "a device goes right behind each event" "$(scale 9 180)"

require "one device each" eval 'device_del wire2_a a && device_del wire2_b b'
require "and no link on another" links_on "rxe_wire_a rxe_wire_b"
check "a queue pair of the client fails: both ends are told" both_hear wire_a a b
check "a queue pair of the server fails: both ends are told" both_hear wire_b b a
check "the devices go" eval 'device_del wire_a a && device_del wire_b b'
check "no link group is left" within 20 no_groups
check "module unloads" within 20 unload_smc
finish
