# SPDX-License-Identifier: GPL-2.0
# What interop.bash needs for the links of a group in version 1: two devices at each end, and its phases.

. "${LIB%/*}/failover.bash"

TABLE_NAME="links with the C module, version 1"

LINES_OF+=(
	[links_come]="the server's second port comes first
the client's second port comes first
new buffers while there are two links
unused buffers given up"
	[links_go]="ports of ours go down
ports of the C module go down
devices of ours are removed
devices of the C module are removed
packets of ours get lost
packets of the C module get lost"
)

LINKED_HERE="rxe_near rxe_near2"

# up_wire: two ports at this end, of which one has soft RoCE yet. Where packets get lost only the test of a link tells; the
# C module asks once.
up_wire() {
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
	case $MODULE in
	ours) setting smcr_testlink_time 1 ;;
	c) setting smcr_testlink_time 4 ;;
	esac
	up_fabric && device_del near2 - && only_near && within 20 link_locals_noted
}

# only_near: TCP goes by the port that always has soft RoCE.
only_near() {
	ip address replace "${LOCAL_IP%.*}.1${LOCAL_IP##*.}/24" dev near2 metric 2000 &&
		within 60 ping -c 1 -W 1 "$PEER_IP" >/dev/null
}

# link_locals_noted: as link_local_noted, of both ports.
link_locals_noted() {
	local first second
	first=$(link_local near) && second=$(link_local near2) && echo "$first $second" >"$OUT/link_local.$MODULE"
}

# by ours|c: awk's condition for what the RDMA devices of that module send.
by() {
	local first second
	read -r first second <"$OUT/link_local.$1"
	echo "(src == \"$first\" || src == \"$second\")"
}

# of_kind KIND: the one link group of this guest is, soon, and has version 1.
of_kind() {
	within 20 is_of_kind "$1"
}

is_of_kind() {
	local said
	said=$("$BIN/smc" lgr --json) && [ "$(grep -o '"kind": "[^"]*"' <<<"$said")" = "\"kind\": \"$1\"" ] &&
		! grep -q '"version": "2' <<<"$said"
}

# kinds CLIENT SERVER: what both ends call their group, soon.
kinds() {
	of_kind "$1" && far of_kind "$2"
}

# The second port of one end, then that of the other.
server_first() {
	far device_add near2 - && kinds "asymmetric local" "asymmetric peer"
}

then_client() {
	device_add near2 - && kinds symmetric symmetric
}

client_first() {
	device_add near2 - && kinds "asymmetric peer" "asymmetric local"
}

then_server() {
	far device_add near2 - && kinds symmetric symmetric
}

one_link() {
	device_del near2 - && far device_del near2 - && kinds single single
}

export LINKED_HERE
export -f at_ours at_c of_kind is_of_kind kinds server_first then_client client_first then_server one_link

# under NAME OPTION...: connections compare all that they transfer, while links come and go.
under() {
	local name=$1
	shift
	# The other guest waits for a while only.
	far true
	check "$name" talk $PORT --deadline 100 --expect smc failover "$@"
}

links_come() {
	# What is told of buffers when a link is added counts when the other link is gone.
	line "the server's second port comes first"
	under "the server's port, then the client's" --losses 2 --lose server_first --restore then_client \
		--lose "link_down near -" --restore "link_up near - && kinds symmetric symmetric"
	line "the client's second port comes first"
	check "one link is left" one_link
	under "the client's port, then the server's" --losses 2 --lose client_first --restore then_server \
		--lose "far link_down near -" --restore "far link_up near - && kinds symmetric symmetric"
	line "new buffers while there are two links"
	check "connections at once" talk $PORT --expect smc many --connections 60 --kib 32
	line "unused buffers given up"
	sleep 6
	check "connections at once again" talk $PORT --expect smc many --connections 20 --kib 32
}

# lost SIDE LOSE RESTORE: each device of that side, and both ends have all links again.
lost() {
	local side=$1
	OPTIONS=()
	both_ways "$side $2" "$side $3" "near -" "near2 -"
	under "$2 $side" --losses "$(scale 2 10)" --linked "$LINKED_HERE" "${OPTIONS[@]}"
}

links_go() {
	line "ports of ours go down"
	lost at_ours link_down link_up
	line "ports of the C module go down"
	lost at_c link_down link_up
	line "devices of ours are removed"
	lost at_ours device_del device_add
	line "devices of the C module are removed"
	lost at_c device_del device_add
	line "packets of ours get lost"
	lost at_ours silence noise
	line "packets of the C module get lost"
	lost at_c silence noise
	check "SMC still works" smc_works
}

# by_each LEAST CONDITION: both modules have sent that.
by_each() {
	check "wire: ours: $2" seen "$1" "$(by ours) && $2"
	check "wire: the C module: $2" seen "$1" "$(by c) && $2"
}

judge_links_come() {
	local client server
	case $MODULE in
	ours) client=$(by ours) server=$(by c) ;;
	c) client=$(by c) server=$(by ours) ;;
	esac
	line "the server's second port comes first"
	by_each 2 'llc == "0x03" && new_keys > 2'
	check "wire: the client says no while no end has another port" seen 1 "$client && llc == \"0x02\" && link_refused"
	line "the client's second port comes first"
	check "wire: the client says that it has a port" seen 2 \
		"$client && llc == \"0x02\" && !link_answer && invites"
	check "wire: the server offers, the client answers" seen 4 \
		"$client && llc == \"0x02\" && link_answer && !link_refused"
	check "wire: the server deletes what is no longer needed" seen 2 \
		"$server && llc == \"0x04\" && reason ~ /0x00050000/"
	line "new buffers while there are two links"
	by_each 2 'llc == "0x06" && others == 1'
	line "unused buffers given up"
	by_each 1 'llc == "0x09" && !key_answer'
	by_each 1 'llc == "0x09" && key_answer'
	check "wire: no key is unknown" unseen 'key_refused'
}

judge_links_go() {
	local who
	for who in ours c; do
		line "ports of $(name_of $who) go down"
		check "wire: a link is lost" seen 1 "$(by $who) && llc == \"0x04\" && reason ~ /0x00010000/"
	done
}

name_of() {
	case $1 in
	ours) echo "ours" ;;
	c) echo "the C module" ;;
	esac
}
