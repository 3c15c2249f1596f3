# SPDX-License-Identifier: GPL-2.0
# Our module and the C module on one wire: guest a is the client, guest b the server. A third
# party, tshark, judges what went over the wire.

. "$LIB"

CAPTURE=$OUT/wire.pcapng

start_capture() {
	dumpcap -q -i "$WIRE" -s 300 -w "$CAPTURE" 2>/dev/null &
	capture=$!
	within 10 test -s "$CAPTURE"
}

stop_capture() {
	sleep 1
	kill -INT "$capture"
	wait "$capture"
}

# dissect FILTER: the packets of the capture that it takes. SMC gets them first: other dissectors
# claim ports and RDMA messages that are not theirs.
dissect() {
	tshark -o tcp.try_heuristic_first:TRUE --disable-protocol rpcordma \
		--disable-protocol smb_direct --disable-protocol nvme-rdma --disable-protocol lnet \
		--disable-protocol iser --disable-protocol infiniband_sdp \
		-r "$CAPTURE" -Y "$1" 2>/dev/null
}

count() {
	dissect "$1" | wc -l
}

# has LEAST FILTER
has() {
	local found
	found=$(count "$2")
	echo "# $found packets of $2"
	[ "$found" -ge "$1" ]
}

nothing_malformed() {
	local found
	found=$(count "smc && (_ws.malformed || _ws.expert.severity == error)")
	[ "$found" = 0 ] || dissect "smc && (_ws.malformed || _ws.expert.severity == error)" | head -5
	[ "$found" = 0 ]
}

client() {
	local smctest="$BIN/smctest --remote --addr=$PEER_IP"

	check "the peer listens" await listening
	start_capture
	check "the path is SMC-R" $smctest --expect smc path
	check "data both ways" $smctest --expect smc integrity --mib 2
	check "small chunks" $smctest --expect smc integrity --mib 1 --chunk 700
	check "large chunks" $smctest --expect smc integrity --mib 4 --chunk 1000000
	check "round trips" $smctest --expect smc pingpong --count 100
	check "connections at once" $smctest --expect smc many --connections 40 --kib 32
	check "connections come and go" $smctest --expect smc churn --processes 3 --opens 20
	check "a client with TCP alone" $smctest --family tcp integrity --mib 1
	check "data after all that" $smctest --expect smc integrity --mib 2
	stop_capture

	check "the capture has proposals" has 1 "smc.clc_msg == 1"
	check "the capture has accepts" has 1 "smc.clc_msg == 2"
	check "the capture has confirms" has 1 "smc.clc_msg == 3"
	check "the capture has data control messages" has 10 "smc.llc_msg == 0xfe"
	check "tshark finds nothing malformed" nothing_malformed
	tell done
}

server() {
	"$BIN/smctest" --addr="$LOCAL_IP" --deadline 1000 serve &
	server=$!
	sleep 1
	check "the server runs" kill -0 "$server"
	tell listening
	check "the client is done" await done 500
	check "the server still runs" kill -0 "$server"
	kill -9 "$server"
	wait "$server" 2>/dev/null
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "wire" up_wire
require "enterprise ID" common_eid
case $ROLE in
a) client ;;
b) server ;;
esac
check "module unloads" within 20 unload_smc
finish
