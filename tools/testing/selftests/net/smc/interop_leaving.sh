#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# timeout: 360
# Data whose application goes, with the C module at either end, and either module as the server; listeners of ours that
# go while C clients connect.

# Arguments: address, port, seconds. Listens anew all the time, and closes what it accepts.
LISTENERS="
import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
accepted = 0
while time.monotonic() < end:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen(64)
    listener.settimeout(0.1)
    closing = time.monotonic() + 0.3
    while time.monotonic() < closing:
        try:
            listener.accept()[0].close()
            accepted += 1
        except TimeoutError:
            pass
    listener.close()
    time.sleep(0.05)
print('# accepted:', accepted)
"

# Arguments: address, port, seconds. Some clients at a time; each connection ends.
CLIENTS="
import socket, sys, threading, time
address = sys.argv[1], int(sys.argv[2])
end = time.monotonic() + float(sys.argv[3])
ends = {}
def client():
    while time.monotonic() < end:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
        s.settimeout(10)
        how = 'connect'
        try:
            s.connect(address)
            how = 'recv'
            how += ' %d' % len(s.recv(1))
        except OSError as error:
            how += ' ' + type(error).__name__
        s.close()
        ends[how] = ends.get(how, 0) + 1
        if 'Refused' in how:
            time.sleep(0.02)
threads = [threading.Thread(target=client) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print('#', ends)
assert ends.get('recv 0', 0) > 50 and not any('imeout' in how for how in ends)
"

c_clients() {
	tc qdisc add dev "$WIRE" root netem delay 30ms && python3 -c "$CLIENTS" "$PEER_IP" 7600 20
	local code=$?
	tc qdisc del dev "$WIRE" root
	return $code
}

# listeners_go: listeners of ours, and clients of C.
listeners_go() {
	local listeners code
	python3 -c "$LISTENERS" "$LOCAL_IP" 7600 26 &
	listeners=$!
	at_c c_clients
	code=$?
	wait $listeners && return $code
}

. "${LIB%/*}/leaving.bash"

all_ways 7100 "C sends, C serves" at_c at_ours at_c at_ours
all_ways 7200 "C sends, ours serves" at_c at_ours at_ours at_c
all_ways 7300 "ours sends, ours serves" at_ours at_c at_ours at_c
all_ways 7400 "ours sends, C serves" at_ours at_c at_c at_ours
check "listeners go while C connects" listeners_go
check "a server" far serve 7500
check "SMC still works" talk 7500 --expect smc integrity --mib 1
dismiss
finish
