#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# cpus: 1
# roce: two-ports
# RDMA devices with two ports: a group has a link on each, connections go from one to the other when a port fails, and
# tools tell the ports apart.

RXE_KO=$ROCE_TWO_PORTS_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

SECOND_PORT=/sys/module/rdma_rxe/parameters/second_port

up_fabric() {
	up_ends &&
		up_port wire_a a "$IP_A" 9000 && up_port wire2_a a 10.9.0.11 9000 &&
		up_port wire_b b "$IP_B" 9000 && up_port wire2_b b 10.9.0.12 9000
}

# two_ports DEVICE SECOND NAMESPACE: an RDMA device whose ports are on these two.
two_ports() {
	local code
	echo -n "$2" >$SECOND_PORT && device_add "$1" "$3"
	code=$?
	echo >$SECOND_PORT
	return $code
}

# links_of END: the active links there, as the device and the port of each. With none the group is lost, unless the one
# that is being added is connected already.
links_of() {
	"$BIN/smc" link | grep -w active | grep -o "rxe_wire_$1/[12]" | sort | xargs
}

# on_ports PORTS: each end has links on these ports of its device, and on no other, soon.
on_ports() {
	within 10 are_on "$1" || { "$BIN/smc" link && return 1; }
}

# are_links A B: those of each end.
are_links() {
	[ "$(links_of a)" = "$1" ] && [ "$(links_of b)" = "$2" ]
}

# over_second_port: a new group begins there.
over_second_port() {
	within 20 no_groups && hold && smctest --expect smc integrity --mib 1 &&
		case $(links_of a) in *rxe_wire_a/2*) ;; *) return 1 ;; esac
}

are_on() {
	local end port want
	for end in a b; do
		want=$(for port in $1; do echo "rxe_wire_$end/$port"; done | xargs)
		[ "$(links_of $end | tr ' ' '\n' | sort -u | xargs)" = "$want" ] || return
	done
}

# ports_seen: `smc dev` has both ports of both devices.
ports_seen() {
	"$BIN/smc" dev | sed 's/^/# /'
	[ "$("$BIN/smc" dev | grep -Ec "rxe_wire_[ab] *(/| ) *[12]\b")" = 4 ]
}

# smcr_ports LINKS: so has `smcr device`, a line each, with the network device, the state and the links of the port.
smcr_ports() {
	ln -sf "$BIN/smc" /tmp/smcr || return
	local end line
	for end in a b; do
		in_ns $end /tmp/smcr device >/tmp/devices || return
		sed 's/^/# /' /tmp/devices
		for line in "wire_$end rxe_wire_$end 1" "wire2_$end rxe_wire_$end 2"; do
			grep -Eq "^${line// / +} +ACTIVE +0 +No +$1( |\$)" /tmp/devices || return
		done
	done
}

# mend DEVICE NAMESPACE: the port is back, and a link on each port of each end: no loss takes away the last one.
mend() {
	link_up "$1" "$2" && within 20 are_on "1 2"
}

export -f within links_of are_on mend

# each port of the two devices fails in turn under connections that transfer both ways.
losses() {
	OPTIONS=()
	both_ways link_down mend "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
	smctest --deadline 200 --expect smc failover --connections 6 --losses "$(scale 8 200)" "${OPTIONS[@]}"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two network devices each" up_fabric
require "groups end soon" set_sysctl smcr_lgr_idle_time 3
require "a device with two ports" two_ports wire_a wire2_a a
require "another one" two_ports wire_b wire2_b b
check "the RDMA core has both ports" [ -d /sys/class/infiniband/rxe_wire_a/ports/2 ]
check "first contact" smctest --expect smc path
check "a link on each port" on_ports "1 2"
check "data" smctest --expect smc integrity --mib 4
check "many connections" smctest --expect smc many --connections 60 --kib 32
check "smc dev tells the ports apart" ports_seen
check "smcr device, too" smcr_ports 1
check "ports fail" losses
check "a connection" hold
check "a link on each port again" on_ports "1 2"
require "the first port of one end is down" link_down wire_a a
check "a link from its second port to each of the other end" within 10 are_links "rxe_wire_a/2 rxe_wire_a/2" \
	"rxe_wire_b/1 rxe_wire_b/2"
check "the connection goes on" hold_end
check "a first contact over the second port" over_second_port
require "the port is up" link_up wire_a a
check "a link on each port then" on_ports "1 2"
check "the connection over the second port goes on" hold_end
check "a device goes, with both of its ports" device_del wire_a a
check "the links on them, too" within 20 no_groups
check "module unloads" within 20 unload_smc
finish
