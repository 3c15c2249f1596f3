# SPDX-License-Identifier: GPL-2.0
# What the tracepoints tell while a command runs.

TRACE=$(mktemp)
TRACEFS=/sys/kernel/tracing

is_listening() {
	grep -qsx 1 $TRACEFS/instances/smc-*/events/smc/smcr_link_down/enable
}

# traced COMMAND...: leaves it in $TRACE, as `smc trace` shows it with $TRACE_ARGS.
traced() {
	local tracer code
	# The arguments are words, or none.
	# shellcheck disable=SC2086
	smc trace ${TRACE_ARGS:-} >"$TRACE" &
	tracer=$!
	within 20 is_listening && "$@"
	code=$?
	kill -INT "$tracer" && wait "$tracer" && [ "$code" = 0 ]
}

# bytes_told TRACEPOINT END: the sum of what it told of the RDMA device of that end.
bytes_told() {
	awk -v point="$1" -v device="dev=rxe_$2" '
		$3 == point && $NF == device { sub(/^len=/, "", $6); sum += $6 }
		END { print sum + 0 }' "$TRACE"
}

# messages_told COMMAND...: what it sends and receives by SMC is told, byte for byte.
messages_told() {
	local sent received from to
	traced "$@" || return
	for from in a b; do
		to=$([ $from = a ] && echo b || echo a)
		sent=$(bytes_told smc_tx_sendmsg $from)
		received=$(bytes_told smc_rx_recvmsg $to)
		echo "# $from sent $sent bytes, $to received $received"
		[ "$sent" -gt 0 ] && [ "$sent" = "$received" ] || return
	done
}

# smcd_told COMMAND...: what it sends and receives by shared memory is told, byte for byte: what one namespace sends the
# other receives.
smcd_told() {
	traced "$@" && awk '
		$3 ~ /^smc_(tx_sendmsg|rx_recvmsg)$/ && $7 == "dev=" { sub(/^len=/, "", $6); sum[$3, $5] += $6; nets[$5] }
		END {
			for (net in nets) net_of[++count] = net
			for (n = 1; n <= 2; n++) {
				sent = sum["smc_tx_sendmsg", net_of[n]]
				received = sum["smc_rx_recvmsg", net_of[3 - n]]
				print "# " net_of[n] " sent " sent " bytes, " net_of[3 - n] " received " received
				if (sent == 0 || sent != received) count = 0
			}
			exit count != 2
		}' "$TRACE"
}

no_instances() {
	[ -z "$(ls $TRACEFS/instances)" ]
}
