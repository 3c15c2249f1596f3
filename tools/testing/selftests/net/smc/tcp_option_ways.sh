#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, x86_64-kcsan
# timeout: 400
# cpus: 1
# What a SYN and its answer may meet on their way: SYN cookies, Fast Open, signatures, VRF, IP options, new routes,
# other listeners, and odd options from a peer of no kernel. Each segment on the wire is looked at, and each byte
# compared.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/moment.bash"

RAW=10.9.0.50

cat >/tmp/common.py <<'END'
import contextlib, socket, struct, subprocess, sys, threading, time

IPPROTO_SMC = 256
PORT = 7300
SERVER, SERVER6 = '10.9.0.2', 'fd00:9::2'
SMC_OPTION = bytes([254, 6, 0xe2, 0xd4, 0xc3, 0xd9])
FASTOPEN, MD5SIG, SAVE_SYN, AO_ADD_KEY, FASTOPEN_CONNECT = 23, 14, 27, 38, 30

libc = __import__('ctypes').CDLL(None, use_errno=True)

@contextlib.contextmanager
def inside(name):
    """The calling thread is in this network namespace meanwhile."""
    with open('/proc/thread-self/ns/net') as before, open(f'/run/netns/{name}') as there:
        if libc.setns(there.fileno(), 0x40000000) != 0:
            raise OSError('setns')
        try:
            yield
        finally:
            libc.setns(before.fileno(), 0x40000000)

def sysctl(end, name, value):
    path = '/proc/sys/net/ipv4/' + name
    subprocess.run(['ip', 'netns', 'exec', end, 'sh', '-c', f'echo "{value}" >{path}'], check=True)

def run(end, *command):
    subprocess.run(['ip', 'netns', 'exec', end, *command], check=True, stdout=subprocess.DEVNULL)

def make(end, protocol=IPPROTO_SMC, family=socket.AF_INET):
    with inside(end):
        s = socket.socket(family, socket.SOCK_STREAM, protocol)
    s.settimeout(20)
    return s

def listening(protocol=IPPROTO_SMC, family=socket.AF_INET, prepare=lambda s: None, backlog=8):
    s = make('b', protocol, family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    prepare(s)
    s.bind((SERVER if family == socket.AF_INET else SERVER6, PORT))
    s.listen(backlog)
    return s

def exchange(client, server, first=b''):
    """Each byte gets through, in both directions, the client's `first` before; the server speaks first otherwise."""
    def receive(s, wanted):
        got = b''
        while len(got) < len(wanted):
            part = s.recv(len(wanted) - len(got))
            assert part, f'{len(got)} of {len(wanted)} bytes came'
            got += part
        assert got == wanted, f'{got[:40]} came in place of {wanted[:40]}'
    receive(server, first)
    up, down = bytes(range(256)) * 100, bytes(reversed(range(256))) * 100
    server.sendall(down)
    receive(client, down)
    client.sendall(up)
    receive(server, up)

class Wire:
    """Sees each SYN and SYN-ACK at one end of the wire: how many SMC options it has, and whether its sums are right."""
    def __init__(self, device='wire_a', end='a'):
        with inside(end):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.socket.bind((device, 0))
        self.socket.setblocking(False)

    def seen(self, sums=True):
        """The SYNs and the SYN-ACKs since the last call: two lists of how many options each had."""
        time.sleep(0.3)
        found = [], []
        while True:
            try:
                frame = self.socket.recv(65536)
            except BlockingIOError:
                return found
            kind = frame[12:14]
            ip = frame[14:]
            if kind == b'\x08\x00' and ip[9] == 6:
                at = (ip[0] & 15) * 4
                tcp = ip[at:int.from_bytes(ip[2:4], 'big')]
                assert total(ip[:at]) == 0xffff, 'the sum of the IP header is wrong'
                pseudo = ip[12:20]
            elif kind == b'\x86\xdd':
                at, header = 40, ip[6]
                while header in (0, 43, 60):
                    header, at = ip[at], at + (ip[at + 1] + 1) * 8
                if header != 6:
                    continue
                tcp = ip[at:40 + int.from_bytes(ip[4:6], 'big')]
                pseudo = ip[8:40]
            else:
                continue
            if not tcp[13] & 2:
                continue
            options = tcp[20:(tcp[12] >> 4) * 4]
            if sums:
                assert total(pseudo + struct.pack('!II', len(tcp), 6) + tcp) == 0xffff, 'the sum of the segment is wrong'
            found[tcp[13] >> 4 & 1].append(options.count(SMC_OPTION))

def total(data):
    data += b'\0' * (len(data) % 2)
    value = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while value >> 16:
        value = (value & 0xffff) + (value >> 16)
    return value

def sums_by_kernel():
    for end in 'ab':
        run(end, 'ethtool', '-K', f'wire_{end}', 'tx', 'off')

def counter(end, name):
    text = subprocess.run(['ip', 'netns', 'exec', end, 'nstat', '-asz', name], capture_output=True, text=True).stdout
    return int(text.split(name)[1].split()[0])

def connect(client, server, family=socket.AF_INET):
    """The connection at both ends."""
    client.connect((SERVER if family == socket.AF_INET else SERVER6, PORT))
    return server.accept()[0]

def key_for(address):
    """struct tcp_md5sig"""
    place = struct.pack('=H', socket.AF_INET) + struct.pack('!H4s120x', 0, socket.inet_aton(address))
    return place + struct.pack('=BBHi80s', 0, 0, 3, 0, b'key')

def ao_key_for(address):
    """struct tcp_ao_add"""
    place = struct.pack('=H', socket.AF_INET) + struct.pack('!H4s120x', 0, socket.inet_aton(address))
    return place + struct.pack('=64siIHBBBBBB80s', b'hmac(sha1)', 0, 0, 0, 32, 100, 100, 12, 0, 3, b'key')
END

cat >/tmp/plain.py <<'END'
from common import *
from socket import AF_INET, AF_INET6

wire = Wire()
sums_by_kernel()
for family in AF_INET, AF_INET6:
    server = listening(family=family)
    client = make('a', family=family)
    exchange(client, connect(client, server, family))
    assert wire.seen() == ([1], [1])
END

cat >/tmp/ip_options.py <<'END'
from common import *
from socket import AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6

IPV6_DSTOPTS, IPV6_HOPOPTS = 59, 54
wire = Wire()
sums_by_kernel()
# A record of the route, which a SYN-ACK has, too, and no options of the length of which 8 is the half.
for options in [bytes([1, 1, 1, 1]), bytes([7, 39, 4]) + bytes(36) + bytes(1)]:
    server, client = listening(), make('a')
    client.setsockopt(IPPROTO_IP, socket.IP_OPTIONS, options)
    exchange(client, connect(client, server))
    assert wire.seen() == ([1], [1]), options
    server.close()
for name in IPV6_DSTOPTS, IPV6_HOPOPTS:
    # PadN
    header = bytes([0, 0, 1, 4, 0, 0, 0, 0])
    server = listening(family=AF_INET6, prepare=lambda s: s.setsockopt(IPPROTO_IPV6, name, header))
    client = make('a', family=AF_INET6)
    client.setsockopt(IPPROTO_IPV6, name, header)
    exchange(client, connect(client, server, AF_INET6))
    assert wire.seen() == ([1], [1]), name
    server.close()
END

cat >/tmp/cookies.py <<'END'
from common import *

# SYNs from nobody fill the queue of requests: what comes then gets a cookie.
server = listening(backlog=4)
with inside('a'):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for i in range(32):
    source = socket.inet_aton('10.9.0.60')
    tcp = struct.pack('!HHIIBBHHH', 2000 + i, PORT, 7, 0, 0x50, 2, 1000, 0, 0)
    pseudo = source + socket.inet_aton(SERVER) + struct.pack('!HH', 6, len(tcp))
    tcp = tcp[:16] + struct.pack('!H', 0xffff ^ total(pseudo + tcp)) + tcp[18:]
    raw.sendto(struct.pack('!BBHHHBBH', 0x45, 0, 40, 0, 0, 64, 6, 0) + source + socket.inet_aton(SERVER) + tcp, (SERVER, 0))
time.sleep(0.2)
wire = Wire()
before = [counter('b', f'TcpExtSyncookies{what}') for what in ('Sent', 'Recv')]
client = make('a')
exchange(client, connect(client, server))
after = [counter('b', f'TcpExtSyncookies{what}') for what in ('Sent', 'Recv')]
assert [a - b for a, b in zip(after, before)] == [1, 1], (before, after)
syn, syn_ack = wire.seen(sums=False)
assert syn == [1] and not any(syn_ack), (syn, syn_ack)
END

cat >/tmp/fastopen.py <<'END'
from common import *

for end in 'ab':
    sysctl(end, 'tcp_fastopen', 3)
wire = Wire()
sums_by_kernel()
opens = counter('b', 'TcpExtTCPFastOpenPassive')
for protocol in 0, IPPROTO_SMC:
    for way in 'sendto', 'connect':
        server = listening(prepare=lambda s: s.setsockopt(socket.IPPROTO_TCP, FASTOPEN, 5))
        # The first gets a cookie, the second has its data in the SYN.
        for _ in range(2):
            client = make('a', protocol)
            # A call with a time limit does not wait at all.
            client.settimeout(None)
            if way == 'sendto':
                client.sendto(b'first', socket.MSG_FASTOPEN, (SERVER, PORT))
            else:
                client.setsockopt(socket.IPPROTO_TCP, FASTOPEN_CONNECT, 1)
                client.connect((SERVER, PORT))
                client.sendall(b'first')
            exchange(client, server.accept()[0], b'first')
        server.close()
syn, syn_ack = wire.seen()
assert not any(syn) and not any(syn_ack), (syn, syn_ack)
opens = counter('b', 'TcpExtTCPFastOpenPassive') - opens
assert opens >= 7, f'{opens} connections had data in the SYN'

# A server that has not asked for it, and needs no cookie (0x200, 0x400): a client with TCP, and one with SMC.
sysctl('b', 'tcp_fastopen', 0x603)
sysctl('a', 'tcp_fastopen', 0x5)
server = listening()
client = make('a', 0)
client.settimeout(None)
client.sendto(b'first', socket.MSG_FASTOPEN, (SERVER, PORT))
exchange(client, server.accept()[0], b'first')
assert wire.seen() == ([0], [0])
client = make('a')
exchange(client, connect(client, server))
assert wire.seen() == ([1], [1])
for end in 'ab':
    sysctl(end, 'tcp_fastopen', 1)
END

cat >/tmp/signed.py <<'END'
from common import *

wire = Wire()
sums_by_kernel()
for option, key in (MD5SIG, key_for), (AO_ADD_KEY, ao_key_for):
    # The server's key comes before it listens, or afterwards, when it offers SMC.
    for late in False, True:
        add = lambda s: s.setsockopt(socket.IPPROTO_TCP, option, key('10.9.0.1'))
        server = listening(prepare=lambda s: late or add(s))
        if late:
            add(server)
        for protocol in 0, IPPROTO_SMC:
            client = make('a', protocol)
            client.setsockopt(socket.IPPROTO_TCP, option, key(SERVER))
            exchange(client, connect(client, server))
            syn, syn_ack = wire.seen()
            assert not any(syn + syn_ack), (option, late, protocol, syn, syn_ack)
        server.close()
END

cat >/tmp/vrf.py <<'END'
from common import *

wire = Wire()
sums_by_kernel()
def bound(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'vrf_b')
# The kernel looks at a packet on its way to the device of the VRF, and after it.
for qdisc in 'none', 'pfifo':
    if qdisc != 'none':
        run('b', 'tc', 'qdisc', 'add', 'dev', 'vrf_b', 'root', qdisc)
    server = listening(prepare=bound)
    client = make('a')
    exchange(client, connect(client, server))
    assert wire.seen() == ([1], [1]), qdisc
    server.close()
    # The other way round.
    with inside('a'):
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.settimeout(20)
    server.bind(('10.9.0.1', PORT))
    server.listen(8)
    client = make('b')
    bound(client)
    client.connect(('10.9.0.1', PORT))
    exchange(client, server.accept()[0])
    assert wire.seen() == ([1], [1]), qdisc
    server.close()
END

cat >/tmp/tunnel.py <<'END'
from common import *

# The number of the network is where a TCP header has its length and its flags: those of a SYN-ACK.
wire = Wire('tunnel_a')
with inside('b'):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)
server.settimeout(20)
server.bind(('10.8.0.2', PORT))
server.listen(8)
client = make('a')
client.connect(('10.8.0.2', PORT))
exchange(client, server.accept()[0])
assert wire.seen(sums=False) == ([1], [1])
END

cat >/tmp/rerouted.py <<'END'
from common import *

wire = Wire()
sums_by_kernel()
server = listening()
client = make('a')
exchange(client, connect(client, server))
assert wire.seen() == ([1], [1])
END

cat >/tmp/crossed.py <<'END'
from common import *

# Both ends connect at the same time: each SYN is on its way when the other one is sent. 2: one arrived before.
port, *families = [int(word) for word in sys.argv[1:]]
ends = []
for end, address, protocol in ('a', '10.9.0.1', families[0]), ('b', SERVER, families[1]):
    s = make(end, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    ends.append((s, address))
wire = Wire()
(a, at_a), (b, at_b) = ends
results = []
def call(s, to):
    try:
        s.connect((to, port))
        results.append(None)
    except OSError as e:
        results.append(e)
threads = [threading.Thread(target=call, args=who) for who in ((a, at_b), (b, at_a))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
syn, syn_ack = wire.seen(sums=False)
print('#', results, syn, syn_ack)
if all(isinstance(error, ConnectionRefusedError) for error in results):
    sys.exit(2)
assert len(syn) >= 2 and len(syn_ack) >= 2, 'they did not cross'
assert results == [None, None]
exchange(a, b)
END

cat >/tmp/moved.py <<'END'
from common import *

# A listener of TCP that keeps each SYN is closed after it has sent a SYN-ACK, and one of SMC gets the request.
sysctl('b', 'tcp_migrate_req', 1)
first = listening(0, prepare=lambda s: s.setsockopt(socket.IPPROTO_TCP, SAVE_SYN, 1))
run('b', 'nft', '''
    table inet lost {
        chain prerouting { type filter hook prerouting priority -500; tcp flags & (syn|ack) == ack drop; }
    }''')
wire = Wire()
client = make('a')
client.connect((SERVER, PORT))
second = listening()
first.close()
# Until the SYN-ACK is sent again, for the second one.
for _ in range(20):
    if counter('b', 'TcpExtTCPMigrateReqSuccess'):
        break
    time.sleep(0.3)
time.sleep(3)
run('b', 'nft', 'delete', 'table', 'inet', 'lost')
client.sendall(b'first')
exchange(client, second.accept()[0], b'first')
assert counter('b', 'TcpExtTCPMigrateReqSuccess') == 1
syn, syn_ack = wire.seen(sums=False)
assert syn == [1] and len(syn_ack) >= 2 and not any(syn_ack), (syn, syn_ack)
END

# way NAME [ARGUMENT...]: a SYN that was late before does not count.
way() {
	local name=$1
	shift
	forget && timeout 100 python3 "/tmp/$name.py" "$@"
}

vrf() {
	ip -n b link add vrf_b type vrf table 10 && ip -n b link set vrf_b up && ip -n b link set wire_b master vrf_b || return
	way vrf
	local code=$?
	ip -n b link del vrf_b
	ip -n b address replace "$IP6_B/64" dev wire_b nodad
	return $code
}

# tunnel_end END ADDRESS LOCAL REMOTE
tunnel_end() {
	ip -n "$1" link add "tunnel_$1" type vxlan id $((0x501200)) local "$3" remote "$4" dstport 4789 dev "wire_$1" &&
		ip -n "$1" address add "$2/24" dev "tunnel_$1" && ip -n "$1" link set "tunnel_$1" up
}

tunnel() {
	insmod "$KMODS/drivers/net/vxlan/vxlan.ko" && tunnel_end a 10.8.0.1 "$IP_A" "$IP_B" &&
		tunnel_end b 10.8.0.2 "$IP_B" "$IP_A" && way tunnel
	local code=$?
	ip -n a link del tunnel_a
	ip -n b link del tunnel_b
	return $code
}

# Each SYN and SYN-ACK gets a mark, by which it is routed anew.
rerouted() {
	local code
	cat >/tmp/marked <<-EOT
		table ip marked {
			chain output {
				type route hook output priority mangle;
				tcp flags & syn == syn meta mark set 7
			}
		}
	EOT
	each_end nft -f /tmp/marked && each_end ip rule add fwmark 7 table 77 && each_end ip route add 10.9.0.0/24 dev lo table 77
	ip -n a route replace 10.9.0.0/24 dev wire_a table 77 && ip -n b route replace 10.9.0.0/24 dev wire_b table 77 &&
		way rerouted
	code=$?
	each_end ip rule del fwmark 7
	each_end nft delete table ip marked
	return $code
}

# Another one each time: an end may still wait for what its predecessor sent last.
CROSSING=7300

# crossing PROTOCOL_A PROTOCOL_B: as crossed. 2: they did not meet.
crossing() {
	CROSSING=$((CROSSING + 1))
	way crossed $CROSSING "$@"
}

# crossed PROTOCOL_A PROTOCOL_B: both connect at the same time, with 100 ms between them, in which the second one has to
# begin.
crossed() {
	local code
	in_ns a tc qdisc add dev wire_a root netem delay 100ms &&
		in_ns b tc qdisc add dev wire_b root netem delay 100ms && caught crossing "$@"
	code=$?
	in_ns a tc qdisc del dev wire_a root
	in_ns b tc qdisc del dev wire_b root
	return $code
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
require "nobody, who sends SYNs" ip -n b neighbor add 10.9.0.60 lladdr "$(mac a)" dev wire_b

suite "odd options" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 200 \
	rawclc --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" --options
check "both versions of IP" way plain
check "options and headers of IP" way ip_options
check "a new route by a mark" rerouted
check "SYN cookies of a listener under load" way cookies
check "Fast Open at either end" way fastopen
check "signed segments" way signed
check "VRF" vrf
check "a tunnel, whose packets have the socket of what is in them" tunnel
check "both ends connect at the same time, one with TCP" crossed 256 0
# With its own hooks TCP takes each end for the client of an SMC connection, and a request that moves for one of SMC.
if [[ $FLAVOUR =~ ^(um-no-smc|x86_64-kcsan|debian-.*)$ ]]; then
	check "both ends connect at the same time" crossed 256 256
	check "a request of a listener of TCP that gets to one of SMC" way moved
fi
require "what was not answered is forgotten" forget
check "data is whole after all that" smctest --expect smc integrity --mib 1
check "module unloads" within 20 unload_smc
finish
