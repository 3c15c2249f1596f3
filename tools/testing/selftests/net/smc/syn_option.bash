# SPDX-License-Identifier: GPL-2.0
# What scripts share that count the SMC option in segments on the wire.

# At end b: how many SYN come with the option, and how many SYN-ACK leave with it.
watch_options() {
	in_ns b nft -f - <<-EOT
		table inet option {
			counter syn { }
			counter synack { }
			chain input {
				type filter hook input priority 0;
				tcp flags & (syn|ack) == syn tcp option @254,16,32 0xe2d4c3d9 counter name syn
			}
			chain output {
				type filter hook output priority 0;
				tcp flags & (syn|ack) == (syn|ack) tcp option @254,16,32 0xe2d4c3d9 counter name synack
			}
		}
	EOT
}

# seen COUNTER: how many.
seen() {
	in_ns b nft list counter inet option "$1" | sed -n 's/.*packets \([0-9]*\).*/\1/p'
}

# options SYN SYNACK COMMAND...: the command succeeds, and so many segments had the option; with a + so many or more.
options() {
	local syn=$1 synack=$2 syn_before synack_before
	shift 2
	syn_before=$(seen syn) synack_before=$(seen synack)
	"$@" || return
	is_count "$syn" $(($(seen syn) - syn_before)) && is_count "$synack" $(($(seen synack) - synack_before)) && return
	echo "# options seen: $(($(seen syn) - syn_before)) in SYN, $(($(seen synack) - synack_before)) in SYN-ACK;" \
		"expected $syn and $synack"
	return 1
}

# is_count EXPECTED COUNT
is_count() {
	case $1 in
	*+) [ "$2" -ge "${1%+}" ] ;;
	*) [ "$2" = "$1" ] ;;
	esac
}
