# SPDX-License-Identifier: GPL-2.0
# What the scripts of `make apps` share: programs under `smc run` at both ends, and the proof that what
# they said to each other went by RDMA or, with CARRIER=smcd, by shared memory.

. "$LIB"

CARRIER=${CARRIER:-smcr}

# Users other than root may not be able to read the checkout.
SMC=/tmp/smc/smc
install -D -t /tmp/smc "$BIN/smc" "$BIN/libsmc_preload.so"

up_apps() {
	require "RDMA modules load" load_rdma
	require "module loads" load_smc
	require "network" up_netns
	case $CARRIER in
	smcr) require "soft RoCE" up_rxe ;;
	smcd) require "shared memory is allowed" same_host on ;;
	esac
}

# smc_in END COMMAND...: the command with SMC sockets. It replaces the shell where that is one of its own,
# so that a signal for it reaches it.
smc_in() {
	local end=$1
	shift
	exec ip netns exec "$end" "$SMC" run "$@"
}

# at END COMMAND...: the same in the foreground; at most ten minutes.
at() {
	local end=$1
	shift
	in_ns "$end" timeout 600 "$SMC" run "$@"
}

# serve NAME END PORT COMMAND...: starts a server and waits until it listens; its process is $SERVER.
serve() {
	local name=$1 end=$2 port=$3
	shift 3
	(smc_in "$end" "$@") >"/tmp/$name.log" 2>&1 </dev/null &
	SERVER=$!
	SERVERS="${SERVERS:-} $SERVER"
	require "$name listens" await_port "$end" "$port" 60 || cat "/tmp/$name.log"
}

# metric END PATTERN: the sum of the counters of that namespace whose lines match.
metric() {
	in_ns "$1" smc stats --prometheus | awk -v pattern="$2" '$0 ~ pattern { sum += $NF } END { print sum + 0 }'
}

connections() {
	metric "$1" "^smc_connections_total{technology=\"$CARRIER\""
}

# reasons END: why SMC sockets of that namespace went over TCP.
reasons() {
	in_ns "$1" smc stats --prometheus | sed -n "s/^smc_fallback_reasons_total/# $1: &/p"
}

fallbacks() {
	echo $(($(metric a '^smc_fallbacks_total') + $(metric b '^smc_fallbacks_total')))
}

# device_bytes: what the RDMA devices of both ends have sent, or where there are none the wire.
device_bytes() {
	case $CARRIER in
	smcr) echo $(($(rdma_bytes a) + $(rdma_bytes b))) ;;
	smcd) echo $(($(wire_bytes a) + $(wire_bytes b))) ;;
	esac
}

wire_bytes() {
	in_ns "$1" cat "/sys/class/net/wire_$1/statistics/tx_bytes"
}

# mark: what follows counts from here.
mark() {
	MARK_BYTES=$(device_bytes)
	MARK_CONNECTIONS_A=$(connections a)
	MARK_CONNECTIONS_B=$(connections b)
	MARK_FALLBACKS=$(fallbacks)
}

# went_by_smc NAME BYTES: since the mark both ends had connections of SMC, none of them went over TCP, and the RDMA
# devices sent at least that much; or the wire less, with shared memory.
went_by_smc() {
	local bytes=$(($(device_bytes) - MARK_BYTES))
	local a=$(($(connections a) - MARK_CONNECTIONS_A)) b=$(($(connections b) - MARK_CONNECTIONS_B))
	echo "# $1: $a connections in a, $b in b, $bytes bytes by the devices"
	check "$1: $CARRIER at both ends" [ "$a" -gt 0 -a "$b" -gt 0 ]
	check "$1: no connection fell back" [ "$(fallbacks)" = "$MARK_FALLBACKS" ]
	[ "$(fallbacks)" = "$MARK_FALLBACKS" ] || { reasons a; reasons b; }
	case $CARRIER in
	smcr) check "$1: its data went by RDMA" [ "$bytes" -ge "$2" ] ;;
	smcd) check "$1: its data did not go over the wire" [ "$bytes" -lt "$2" ] ;;
	esac
}

# same_sum FILE COMMAND...: the command prints what is in the file.
same_sum() {
	local file=$1
	shift
	[ "$("$@" | sha256sum)" = "$(sha256sum <"$file")" ]
}

# random_file FILE BYTES
random_file() {
	head -c "$2" /dev/urandom >"$1"
}

# said FILE WORDS: the words are in the file.
said() {
	grep -q -- "$2" "$1"
}

# over: servers end when they are told to, and the module unloads.
over() {
	local server
	for server in ${SERVERS:-}; do
		kill "$server"
		within 30 ended "$server" || not_ok "a server does not end"
	done
	check "module unloads" within 30 unload_smc
	finish
}

ended() {
	! kill -0 "$1" 2>/dev/null
}
