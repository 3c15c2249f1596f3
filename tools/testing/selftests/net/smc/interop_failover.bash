# SPDX-License-Identifier: GPL-2.0
# Links go and come back between our module and the C module. Guest a is the client, and takes its own devices
# away.

. "$LIB"
. "${LIB%/*}/pair.bash"
. "${LIB%/*}/failover.bash"

PORT=7000
RXE_KO=$FINITE_RXE_KO

# losses NAME NUMBER LOSE RESTORE DEVICE...: once SMC works.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	within 60 talk $PORT --expect smc path >/dev/null
	# The other guest waits for a while only.
	far true
	check "$name" talk $PORT --deadline "$(scale 300 3000)" --expect smc failover \
		--losses "$number" --linked "rxe_near rxe_near2" "${OPTIONS[@]}"
}

# The C module sends on four connections, more than there is room for, to a reader that waits for /tmp/read_on: every
# message has been completed when a link goes. Arguments: what to do, at which end, where.
FULL_WINDOW="
import os, random, socket, sys, threading, time
does, end, address, port = sys.argv[1:3] + [sys.argv[3], int(sys.argv[4])]
failed = []
def check(sock, number):
    try:
        data = random.Random(number).randbytes(1 << 20)
        sock.settimeout(90)
        if does == 'send':
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b'K'
            return
        while not os.path.exists('/tmp/read_on'):
            time.sleep(0.1)
        got = b''
        while part := sock.recv(1 << 16):
            got += part
        assert got == data, f'{len(got)} bytes'
        sock.sendall(b'K')
    except Exception as error:
        print(f'# {does} {number}: {error!r}', flush=True)
        failed.append(error)
def connect():
    for _ in range(100):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
        try:
            sock.connect((address, port))
            return sock
        except ConnectionRefusedError:
            time.sleep(0.1)
if end == 'server':
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
tasks = []
for number in range(4):
    sock = listener.accept()[0] if end == 'server' else connect()
    tasks.append(threading.Thread(target=check, args=(sock, number)))
    tasks[-1].start()
    # The group gets its second link.
    if number == 0 and end == 'client':
        time.sleep(5)
[task.join() for task in tasks]
sys.exit(len(failed))
"

# full_window_begins END: of this guest's module, in the background.
full_window_begins() {
	local does=send address=$PEER_IP
	[ "$MODULE" = c ] || does=receive
	[ "$1" = client ] || address=$LOCAL_IP
	rm -f /tmp/read_on /tmp/full_window
	{
		timeout 150 python3 -c "$FULL_WINDOW" $does "$1" "$address" 7001
		echo $? >/tmp/full_window
	} &
}

full_window_ends() {
	within 120 test -e /tmp/full_window && [ "$(cat /tmp/full_window)" = 0 ]
}

# are_symmetric: this guest's link groups have links on all devices of both ends.
are_symmetric() {
	local kinds
	kinds=$("$BIN/smc" lgr --json | grep '"kind"') && ! grep -qv '"symmetric"' <<<"$kinds"
}

# full_window DEVICE: that goes meanwhile. What it carried goes on by the other one.
#
# The device comes back before the reader reads on. With a link that is added while an RMB of its own is idle, the C
# module does not register that RMB, and later announces it with the other link's as if it had (smcr_lgr_reg_rmbs looks
# at the registration on one link for all): its device refuses a write there, and that link is lost, too.
full_window() {
	local code
	far full_window_begins server && full_window_begins client && sleep 10 && link_down "$1" - && sleep 3 &&
		link_up "$1" - && at_ours within 60 are_symmetric && at_ours touch /tmp/read_on &&
		full_window_ends && far full_window_ends
	code=$?
	link_up "$1" -
	return $code
}

# ours_unloads: the C module may wait for its own sends.
ours_unloads() {
	[ "$MODULE" = c ] || check "our module unloads" within 20 unload_smc
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "enterprise ID" common_eid
require "two devices" up_fabric

if [ "$ROLE" = b ]; then
	check "orders" obey
	ours_unloads
	finish
fi

check "what is idle goes soon" at_ours setting smcr_lgr_idle_time 5
check "a server" far serve $PORT
losses "links go down" "$(scale 8 40)" link_down link_up "near -" "near2 -"
losses "devices are removed" "$(scale 8 40)" device_del device_add "near -" "near2 -"
# Where packets get lost only the test of a link tells. The C module asks once, and gives a link up if a busy machine
# takes two seconds to answer. A group keeps the times that it began with.
check "our links are tested often" at_ours setting smcr_testlink_time 1
check "the C module's links are tested often" at_c setting smcr_testlink_time 4
check "what is idle stays" at_ours setting smcr_lgr_idle_time 600
check "groups with other times go" at_ours within 30 no_groups
losses "packets get lost" "$(scale 4 20)" silence noise "near -" "near2 -"
check "the first device goes while no reader reads" full_window near
check "SMC works after that" talk $PORT --expect smc integrity --mib 1
check "the second device goes while no reader reads" full_window near2
check "SMC still works" talk $PORT --expect smc integrity --mib 1
check "the server ends" far unserve $PORT
dismiss
ours_unloads
finish
