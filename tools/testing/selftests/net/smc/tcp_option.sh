#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3, x86_64-kcsan
# timeout: 400
# cpus: 1
# The SMC option in SYN and SYN-ACK, by TCP's hooks or by netfilter: on the wire when both ends speak SMC, and with
# whatever else may happen to these segments either SMC or plain TCP at both ends.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/moment.bash"
. "${LIB%/*}/syn_option.bash"

# losing FLAGS COMMAND...: the command, while the first segment with these flags is lost at end b.
losing() {
	local flags=$1 code
	shift
	in_ns b nft -f - <<-EOT
		table inet lost {
			chain prerouting {
				type filter hook prerouting priority -500;
				tcp flags & (syn|ack) == $flags quota until 100 bytes drop
			}
			chain postrouting {
				type filter hook postrouting priority 500;
				tcp flags & (syn|ack) == $flags quota until 100 bytes drop
			}
		}
	EOT
	"$@"
	code=$?
	in_ns b nft delete table inet lost
	return "$code"
}

# filtering STATEMENT COMMAND...: the command, while a firewall of end b has this for each SYN that comes.
filtering() {
	local statement=$1 code
	shift
	in_ns b nft -f - <<-EOT
		table inet filtered {
			chain prerouting {
				type filter hook prerouting priority -500;
				tcp flags & (syn|ack) == syn $statement
			}
		}
	EOT
	"$@"
	code=$?
	in_ns b nft delete table inet filtered
	return "$code"
}

# removing COMMAND...: the option is removed from each SYN.
removing() {
	filtering "reset tcp option 254" "$@"
}

# dropping COMMAND...: each SYN that has the option is dropped.
dropping() {
	filtering "tcp option 254 exists drop" "$@"
}

# Clients that give a connection up sooner than it is tried without the option: by closing the socket, or with a limit
# of TCP. Then the next one is tried without at once.
IMPATIENT="
import errno, select, socket, sys
how = sys.argv[1]
def attempt(patience):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    if how == 'limit':
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1500)
    s.setblocking(False)
    assert s.connect_ex(('$IP_B', 7000)) == errno.EINPROGRESS
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    if not poll.poll(10000 if how == 'limit' else patience):
        if how == 'shutdown':
            s.shutdown(socket.SHUT_RDWR)
        s.close()
        return False
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
# The next ones are given less than a SYN without an answer is waited for.
results = [attempt(500)] + [attempt(1500) for _ in range(5)]
print('#', results)
assert results == [False] + [True] * 5
"
impatient() {
	local code=0 how
	start_server 7000
	for how in close shutdown limit; do
		forget && in_ns a python3 -c "$IMPATIENT" "$how" || code=1
	done
	stop_servers
	return "$code"
}

# A port that bind(2) has chosen stays that of the socket.
CHOSEN="
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.bind(('$IP_A', 0))
port = s.getsockname()[1]
s.settimeout(20)
s.connect(('$IP_B', 7000))
print('#', port, s.getsockname())
assert s.getsockname() == ('$IP_A', port)
"
chosen() {
	local code
	start_server 7000 && forget && in_ns a python3 -c "$CHOSEN"
	code=$?
	stop_servers
	return "$code"
}

# A client with a port of its own, whose SYN arrives while a firewall of its end drops each SYN-ACK with the option.
BOUND="
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('$IP_A', 5555))
s.settimeout(20)
s.connect(('$IP_B', 7000))
"
answer_dropped() {
	local code
	in_ns a nft "table inet dropped { chain in { type filter hook prerouting priority -500;
		tcp flags & (syn|ack) == (syn|ack) tcp option 254 exists drop; }; }"
	start_server 7000 && forget && asks 1+ in_ns a python3 -c "$BOUND" &&
		asks 0 in_ns a python3 -c "$BOUND"
	code=$?
	stop_servers
	in_ns a nft delete table inet dropped
	return "$code"
}

# watch_requests: from now on, count at end a which SYN leave with the option.
watch_requests() {
	in_ns a nft "table inet asked { counter syn { }; chain out { type filter hook output priority 0;
		tcp flags & (syn|ack) == syn tcp option 254 exists counter name syn; }; }"
}

# asked: how many have.
asked() {
	in_ns a nft list counter inet asked syn | sed -n 's/.*packets \([0-9]*\).*/\1/p'
}

# asks COUNT COMMAND...: the command succeeds, and so many SYN left with the option; with a + so many or more.
asks() {
	local count=$1 before
	shift
	before=$(asked)
	"$@" || return
	echo "# SYN with the option: $(($(asked) - before))"
	is_count "$count" $(($(asked) - before))
}

# remembers: a peer answers only a SYN without the option, and is not sent another one with it then.
remembers() {
	asks 1+ tcp_path && asks 0 tcp_path
}

tcp_path() {
	smctest --expect tcp path
}

# says_why: what is said of a connection whose SYN was not answered.
says_why() {
	start_server 7000 && forget && in_ns a "$BIN/smc" why "$IP_B:7000" | tee /tmp/why | sed 's/^/# /'
	stop_servers
	grep -q "^  id:     PEERNOSMC/syn-unanswered" /tmp/why
}

# What else happens while the SYN is not answered: arguments are the address of a server, and one where nobody answers.
UNANSWERED="
import errno, select, socket, struct, subprocess, sys, time
server, nobody = sys.argv[1], sys.argv[2]
PORT, SYNCNT, USER_TIMEOUT, CLAMP, INFO = 7301, 7, 18, 10, 11
def make(protocol=256):
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
def forget():
    subprocess.run(['bash', '-c', 'forget'], check=True)
def begin(address, protocol=256, **options):
    s = make(protocol)
    for name, value in options.items():
        s.setsockopt(socket.IPPROTO_TCP, globals()[name], value)
    s.setblocking(False)
    assert s.connect_ex((address, PORT)) == errno.EINPROGRESS
    return s
def ended(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    assert poll.poll(20000), 'it waits for ever'
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
def window(s):
    return s.getsockopt(socket.IPPROTO_TCP, INFO, 8)[6] >> 4, s.getsockopt(socket.IPPROTO_TCP, CLAMP)
# What TCP says of the window is the same as without SMC.
for options in {}, {'CLAMP': 20000}:
    forget()
    start = time.monotonic()
    waits, plain = begin(server, **options), begin(server, 0, **options)
    assert ended(waits) == ended(plain) == 0
    assert time.monotonic() - start > 1.5
    print('#', window(waits), window(plain))
    assert window(waits)[0] == window(plain)[0]
    waits.close(), plain.close()
# What was shut down before is as without SMC.
forget()
start = time.monotonic()
pair = make(), make(0)
for s in pair:
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        assert error.errno == errno.ENOTCONN
    s.setblocking(False)
    assert s.connect_ex((server, PORT)) == errno.EINPROGRESS
results = [ended(s) for s in pair]
print('#', results, time.monotonic() - start)
assert results[0] == results[1] and time.monotonic() - start > 1.5
for s in pair:
    s.close()
# Those that are undone, at different times.
undone = []
for pause in 0.5, 1.7, 1.9, 2.5:
    forget()
    waits = [begin(nobody) for _ in range(3)]
    time.sleep(pause)
    waits[0].shutdown(socket.SHUT_RDWR)
    assert ended(waits[0]) in (0, errno.ECONNRESET)
    waits[1].close()
    assert waits[2].connect_ex((server, PORT)) == errno.EALREADY
    undone.append(waits[2])
# The others end with TCP's error.
for s in undone:
    s.close()
for options in {'SYNCNT': 1}, {'USER_TIMEOUT': 3000}:
    assert ended(begin(nobody, **options)) == errno.ETIMEDOUT
"

LISTENER="
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
s.bind((sys.argv[1], 7301))
s.listen()
time.sleep(100)
"

unanswered() {
	local listener code
	in_ns b python3 -c "$LISTENER" "$IP_B" &
	listener=$!
	export BIN
	export -f forget
	await_port b 7301 && forget && in_ns b nft "add rule inet filtered prerouting ip daddr 10.99.99.99 drop" &&
		ip -n a route replace 10.99.99.99 via "$IP_B" && in_ns a python3 -c "$UNANSWERED" "$IP_B" 10.99.99.99
	code=$?
	kill "$listener"
	wait "$listener" 2>/dev/null
	return "$code"
}

# Connections arrive while four of the five places of a backlog are taken: TCP takes their requests as ever, and those
# who come to it in time are SMC.
NEARLY_FULL="
import ctypes, select, socket, struct, subprocess, time
libc = ctypes.CDLL(None)
def enter(name):
    with open('/run/netns/' + name) as place:
        assert libc.setns(place.fileno(), 0) == 0
def make():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
def full():
    enter('b')
    lines = [line.split() for line in open('/proc/thread-self/net/netstat') if line.startswith('TcpExt:')]
    counts = dict(zip(*lines))
    return counts['TCPReqQFullDoCookies'], counts['TCPReqQFullDrop']
before = full()
listener = make()
listener.bind(('$IP_B', 7302))
listener.listen(4)
enter('a')
early = [make() for _ in range(4)]
for s in early:
    s.connect(('$IP_B', 7302))
subprocess.run(['nft', 'table inet late { chain in { type filter hook prerouting priority -500; '
    'tcp flags & (syn|ack) == (syn|ack) drop; }; }'], check=True)
late = [make() for _ in range(4)]
for s in late:
    s.setblocking(False)
    s.connect_ex(('$IP_B', 7302))
time.sleep(0.3)
enter('b')
accepted = [listener.accept() for _ in early]
enter('a')
subprocess.run(['nft', 'delete table inet late'], check=True)
for s in late:
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    assert poll.poll(10000) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
modes = [struct.unpack_from('I', s.getsockopt(286, 0x5201, 24))[0] for s in late]
print('#', modes, before, full())
assert modes == [0] * 4 and full() == before
"

# checksums WAY: of TCP, made by the device or by the kernel, which then also checks them.
checksums() {
	in_ns a ethtool -K wire_a tx "$1" && in_ns b ethtool -K wire_b tx "$1"
}

smc_path() {
	smctest --expect smc "$@" path
}

mapped_path() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="::ffff:$IP_B" --expect smc path
}

# A connection that is plain TCP at both ends, with data, none of which is of the handshake.
tcp_data() {
	smctest --expect tcp path && smctest --expect tcp integrity --mib 1
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a look at the options" watch_options
require "a look at the requests" watch_requests

check "SYN and SYN-ACK have the option" options 1 1 smc_path
check "with IPv6" options 1 1 smctest6 --expect smc path
check "an IPv4 address in an IPv6 socket" options 1 1 mapped_path
check "a server without SMC gets it, and does not answer it" options 1 0 \
	smctest --family smc --server-family tcp --expect tcp path
check "a client without SMC gets none" options 0 0 smctest --family tcp --server-family smc --expect tcp path
require "checksums are made by the kernel" checksums off
check "they are right" options 1 1 smc_path
check "they are right with IPv6" options 1 1 smctest6 --expect smc path
require "checksums are made by the device again" checksums on
check "no timestamps" options 1 1 with_sysctl a net/ipv4/tcp_timestamps 0 smc_path
check "accurate ECN, which needs much room" options 1 1 with_sysctl a net/ipv4/tcp_ecn 3 with_sysctl b net/ipv4/tcp_ecn 3 smc_path
check "the first SYN is lost" options 1 1 losing syn smc_path
# The client's timer and the server's run out together.
check "the first SYN-ACK is lost" options 1+ 2+ losing "(syn|ack)" smc_path
check "SYN cookies: plain TCP" with_sysctl b net/ipv4/tcp_syncookies 2 tcp_data
check "a backlog that is nearly full: SMC, and no SYN cookies" python3 -c "$NEARLY_FULL"
check "the option is removed on its way: plain TCP" removing tcp_data
check "SMC afterwards" options 1 1 smc_path
check "a SYN with the option is dropped: another one without it" options 0 0 dropping remembers
check "it is said why" dropping says_why
check "and everything else as over TCP" dropping unanswered
check "clients that do not wait for so long: the next connection is there at once" dropping impatient
check "a port that bind(2) has chosen stays" dropping chosen
check "a SYN-ACK with the option is dropped: another attempt from the same port, and the next one without it" answer_dropped
require "that is forgotten" forget
check "SMC once it is not dropped any more" options 1 1 smc_path
check "module unloads" within 20 unload_smc
finish
