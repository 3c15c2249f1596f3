# SPDX-License-Identifier: GPL-2.0
# What the scripts share in which our module is at both ends, in a kernel each. Guest a is the client and gives the
# orders. Each guest has ports on a bridge with the wire: near_a, near2_a and so on in guest a, near_b and so on in b.

. "$LIB"
. "${LIB%/*}/pair.bash"
. "${LIB%/*}/failover.bash"

PORT=7000
LOCAL_IP6=fd00::${LOCAL_IP##*.}
PEER_IP6=fd00::${PEER_IP##*.}

# port NUMBER [ROLE]: the port's name, in this guest or that one.
port() {
	local number=$1
	[ "$number" != 1 ] || number=
	echo "near${number}_${2:-$ROLE}"
}

# up_ports NUMBER [SUBNETS]: so many ports on the bridge with the wire, all in one subnet or, with a word, in one each.
# The first has the addresses of the pair.
up_ports() {
	local mtu number address host=${LOCAL_IP##*.}
	mtu=$(cat "/sys/class/net/$WIRE/mtu") && up_bridge && ip link set "$WIRE" master fabric up || return
	for ((number = 1; number <= $1; number++)); do
		address=10.0.0.$((10 * (number - 1) + host))
		[ $# = 1 ] || address=10.0.$((number - 1)).$host
		up_port "$(port "$number")" - "$address" "$mtu" || return
	done
	# IPv6 addresses stay when a port goes down, as others do.
	echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down
	ip address add "$LOCAL_IP6/64" dev "$(port 1)" nodad &&
		within 20 ping -c 1 -W 1 "$PEER_IP" >/dev/null && within 20 ping -c 1 -W 1 "$PEER_IP6" >/dev/null
}

# with KIND...: the ports of this guest have RDMA devices of these kinds in turn, `-` for none, and there are no
# other devices and no groups.
with() {
	local device number=0 kind
	for device in $(ls /sys/class/infiniband); do
		rdma link delete "$device" || return
	done
	within 20 no_groups || return
	DEVICES=
	for kind; do
		number=$((number + 1))
		[ "$kind" != - ] || continue
		rdma_add "${kind}_$(port $number)" - || return
		DEVICES+="${kind}_$(port $number) "
	done
	DEVICES=$(tr ' ' '\n' <<<"$DEVICES" | sort | xargs)
	export DEVICES
}

# both COMMAND...: here and in the other guest.
both() {
	"$@" && far "$@"
}

# has_links: each device of this guest has one link, which is active.
has_links() {
	[ "$("$BIN/smc" link --json | awk -F'"' '
		$2 == "state" { state = $4 }
		$2 == "device" && state == "active" { print $4 }' | sort | xargs)" = "$DEVICES" ]
}

# linked [far]: soon, here or in the other guest. A group goes when it is idle for some seconds, which a busy machine may
# take to look, so each look follows a connection. Shows the links of this guest.
linked() {
	within 60 has_links_now "$@"
	local code=$?
	"$BIN/smc" link | sed 's/^/# /'
	return $code
}

has_links_now() {
	talk $PORT --expect smc path >/dev/null && "$@" has_links
}

# restored COMMAND...: undoes a loss, until all links are there again.
restored() {
	"$@" && within 60 has_links
}

export -f has_links restored

# losses NAME NUMBER LOSE RESTORE OPTION... -- THING...: so many losses, of the things (ports or RDMA devices) of one
# guest and the other in turn. A thing's name ends with its guest.
losses() {
	local name=$1 number=$2 lose=$3 restore=$4 thing at options=() things
	shift 4
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	things=("${@:2}")
	for thing in "${things[@]}"; do
		at=
		[ "${thing##*_}" = "$ROLE" ] || at="far "
		options+=(--lose "$at$lose $thing -" --restore "${at}restored $restore $thing -")
	done
	# The other guest waits for a while only.
	far true
	check "$name" talk $PORT --deadline "$(scale 300 3000)" --expect smc failover --losses "$number" \
		--linked "$DEVICES" "${options[@]}"
}

# The longest that a connection may be without data, seconds, however the loss is noticed.
STALL=15

# saturated NAME NUMBER LOSE RESTORE THING... and saturated6, over IPv6: as losses, of connections that send all they
# can.
saturated() {
	losses "${@:1:4}" --saturate --within $STALL -- "${@:5}"
}

saturated6() {
	local PEER_IP=$PEER_IP6 PORT=$((PORT + 3))
	# With IPv6 it is another group, and a device is to have one link.
	within 20 no_groups
	saturated "$@"
	within 20 no_groups
}

# groups: how many groups this guest has.
groups() {
	"$BIN/smc" lgr --json | grep -c '"id"'
}

# has_groups NUMBER
has_groups() {
	[ "$(groups)" = "$1" ]
}

# serve_at ADDRESS PORT [OPTION...] and talk_to ADDRESS PORT OPTION...: as serve and talk, by other addresses.
serve_at() {
	local LOCAL_IP=$1
	serve "${@:2}"
}

talk_to() {
	local PEER_IP=$1
	talk "${@:2}"
}

# client OPTION...: in guest b, as the client of a server in guest a.
client() {
	talk $((PORT + 1)) --expect smc "$@"
}

# servers_begin and servers_end: a server in each guest.
servers_begin() {
	far serve $PORT && serve $((PORT + 1))
}

servers_end() {
	far unserve $PORT && unserve $((PORT + 1))
}

# settings: what is idle goes soon, if our module has it, and silence is noticed soon: by the test of a link only.
settings() {
	setting smcr_testlink_time 1 && { [ "$MODULE" = c ] || setting smcr_lgr_idle_time 5; }
}

# lead: guest b obeys from here on, and guest a, which goes on, dismisses it in the end.
lead() {
	[ "$ROLE" = b ] || trap dismiss EXIT
	follow
}

# unload_both: nothing keeps a module.
unload_both() {
	check "the module unloads here" within 20 unload_smc
	check "the module unloads there" far within 20 unload_smc
}

# require_ends NUMBER [SUBNETS]: modules, and so many ports. Power loss has the C module at the other end, too.
require_ends() {
	require "RDMA modules load" load_rdma
	require "soft iWARP loads" load_siw
	require "module loads" load_smc
	require "settings" settings
	require "enterprise ID" common_eid
	require "ports" up_ports "$@"
}
