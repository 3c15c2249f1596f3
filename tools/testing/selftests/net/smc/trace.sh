#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 240
# cpus: 1
# The tracepoints of the C module, and `smc trace`, which shows them.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/trace.bash"

# told PATTERN: the trace has such a line, or how it ends is shown.
told() {
	grep -m1 "$1" "$TRACE" && return
	tail -n 5 "$TRACE" | sed 's/^/# /'
	return 1
}

fields() {
	local format=$TRACEFS/events/smc/$1/format field
	shift
	for field; do
		grep -q "field:.* $field;" "$format" || return
	done
}

fallback_told() {
	traced smctest --family ipproto --server-family tcp --expect tcp integrity --mib 1 &&
		told ' smc_switch_to_fallback sk=[0-9a-f]* clcsk=[0-9a-f]* net=[0-9]* fallback_rsn=50397184 (' &&
		! grep ' sk=\([0-9a-f]*\) clcsk=\1 ' "$TRACE"
}

wire_down() {
	ip -n a link set wire_a down && within 20 grep -q smcr_link_down "$TRACE"
}

link_down_told() {
	traced wire_down &&
		told 'smcr_link_down lnk=[0-9a-f]* lgr=[0-9a-f]* net=[0-9]* state=1 dev=rxe_a location=.*smc::.*\[smc\]'
}

as_json() {
	TRACE_ARGS='--json smc_tx_sendmsg smcr_link_down' traced smctest --family ipproto --expect smc integrity --mib 1 &&
		told '^{"seconds":[0-9.]*,"program":"[^"]*","pid":[0-9]*,"tracepoint":"smc_tx_sendmsg","fields":{.*"len":[0-9]' &&
		! grep -q smc_rx_recvmsg "$TRACE"
}

# reader_goes: the trace ends when it has something to say to a reader of its output who has gone, and leaves nothing.
reader_goes() {
	local reader message=(smctest --family ipproto --expect smc integrity --mib 1)
	smc trace | head -n 1 >"$TRACE" &
	reader=$!
	within 20 is_listening && "${message[@]}" && wait "$reader" && [ "$(wc -l <"$TRACE")" = 1 ] &&
		"${message[@]}" && within 10 no_instances
}

require "RDMA modules load" load_rdma
check_not "without the module nothing is traced" smc trace
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe

check "fields of smc_tx_sendmsg" fields smc_tx_sendmsg 'smc' 'net_cookie' 'len' 'name'
check "fields of smc_rx_recvmsg" fields smc_rx_recvmsg 'smc' 'net_cookie' 'len' 'name'
check "fields of smc_switch_to_fallback" fields smc_switch_to_fallback 'sk' 'clcsk' 'net_cookie' 'fallback_rsn'
check "fields of smcr_link_down" fields smcr_link_down 'lnk' 'lgr' 'net_cookie' 'state' 'name' 'location'

check "messages are traced" messages_told smctest --family ipproto --expect smc integrity --mib 1
check "one tracepoint, as JSON" as_json
check "the trace ends with the reader of its output, and leaves no buffer" reader_goes
require "shared memory is allowed" same_host on
check "messages of SMC-D are traced" smcd_told smctest --family ipproto --expect smcd integrity --mib 1
require "shared memory is off again" same_host off
check "a fallback is traced" fallback_told
check "a link that goes down is traced" link_down_told
check "no buffer stays" no_instances
check "module unloads" within 20 unload_smc
finish
