#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# cpus: 1
# timeout: 300
# Calls in an order, or beside events, that few programs have: each answer is that of TCP, for sockets after a fallback
# and over RDMA alike.

. "${LIB:=${0%/*}/lib.sh}"

# What all programs below begin with. They run in b, where servers are, and have a client in a.
COMMON="
import ctypes, errno, os, select, socket, struct, subprocess, sys, threading, time
PROTOCOL, KIND = int(sys.argv[1]), sys.argv[2]
B, PORT = '$IP_B', 7300
def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
def sock(protocol=PROTOCOL):
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
def within(end):
    # A socket made in the other namespace stays there.
    home = os.open('/proc/self/ns/net', os.O_RDONLY)
    there = os.open('/run/netns/' + end, os.O_RDONLY)
    setns = ctypes.CDLL(None).setns
    assert setns(there, 0) == 0
    try:
        return sock()
    finally:
        assert setns(home, 0) == 0
        os.close(home); os.close(there)
def listener(port=PORT, options=()):
    s = sock()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for level, name, value in options:
        s.setsockopt(level, name, value)
    s.bind((B, port))
    s.listen(64)
    return s
def of_kind(s):
    # SOL_SMC, SMC_INFO: the mode.
    if PROTOCOL:
        same('mode', struct.unpack('6I', s.getsockopt(286, 0x5201, 24))[0], {'smc': 0, 'fallback': 1}[KIND])
    return s
def pair(options=()):
    l = listener(options=options)
    c = within('a')
    c.connect((B, PORT))
    s = of_kind(l.accept()[0])
    l.close()
    c.settimeout(10); s.settimeout(10)
    return c, s
def errno_of(call, *args):
    try:
        return call(*args)
    except OSError as e:
        return errno.errorcode[e.errno] if e.errno else str(e)
def same(what, is_, should):
    print('#', what, is_, flush=True)
    assert is_ == should, f'{what}: {is_}, not {should}'
"

# odd PROTOCOL KIND PROGRAM
odd() {
	in_ns b timeout 60 python3 -c "$COMMON$3" "$1" "$2"
}

# An error that does not end the connection: of a packet that was refused (IP_RECVERR). It comes late enough for the
# sender to have let go of the socket.
SOFT_ERROR="
run('tc', 'qdisc', 'add', 'dev', 'wire_b', 'root', 'netem', 'delay', '5ms')
def refused_once(use):
    c, s = pair()
    c.setsockopt(socket.SOL_IP, 11, 1)
    run('nft', 'table inet odd { chain in { type filter hook input priority 0; '
        f'tcp dport {PORT} limit rate 1/hour burst 1 packets reject with icmp host-prohibited; }}; }}')
    try:
        c.send(b'x')
        use(c)
    finally:
        run('nft', 'delete table inet odd')
    same('the peer reads', s.recv(8), b'x')
    s.send(b'y')
    same('the socket reads', c.recv(8), b'y')
    c.close(); s.close()
def reads(c):
    same('recv', errno_of(c.recv, 8), 'EHOSTUNREACH')
    same('SO_ERROR after it', c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
def reads_later(c):
    p = select.poll(); p.register(c, select.POLLIN)
    same('poll', p.poll(5000), [(c.fileno(), select.POLLERR)])
    c.setblocking(False)
    same('recv', errno_of(c.recv, 8), 'EHOSTUNREACH')
    same('recv again', errno_of(c.recv, 8), 'EAGAIN')
    c.settimeout(10)
def asks(c):
    p = select.poll(); p.register(c, select.POLLIN)
    p.poll(5000)
    same('SO_ERROR', c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), errno.EHOSTUNREACH)
    c.setblocking(False)
    same('recv after it', errno_of(c.recv, 8), 'EAGAIN')
    c.settimeout(10)
for use in (reads, reads_later, asks):
    refused_once(use)
run('tc', 'qdisc', 'del', 'dev', 'wire_b', 'root')
"

# accept(2) goes on when the socket is shut down and listens again before it runs.
LISTEN_AGAIN="
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
for turn in range(10):
    l = listener()
    got = []
    def accepts():
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        got.append(errno_of(lambda: l.accept()[0]))
    t = threading.Thread(target=accepts, daemon=True)
    t.start()
    time.sleep(0.05)
    l.shutdown(socket.SHUT_RD); l.listen(5)
    time.sleep(0.05)
    c = within('a')
    c.connect((B, PORT))
    t.join(5)
    same('accept', [type(one).__name__ for one in got], ['socket'])
    of_kind(got[0]).send(b'x')
    same('the client reads', c.recv(8), b'x')
    c.close(); got[0].close(); l.close()
"

# A listener that was destroyed (SOCK_DESTROY): who waits returns, and poll says so.
DESTROYED="
l = listener()
got = []
t = threading.Thread(target=lambda: got.append(errno_of(l.accept)), daemon=True)
t.start()
p = select.poll(); p.register(l, select.POLLIN)
time.sleep(0.2)
run('ss', '-K', '-tln', 'state', 'listening', 'sport', '=', f':{PORT}')
t.join(5)
same('accept', got, ['EINVAL'])
same('poll', [hex(mask) for _, mask in p.poll(5000)], [hex(select.POLLIN | select.POLLERR | select.POLLHUP)])
same('SO_ERROR', l.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), errno.ECONNABORTED)
same('accept again', errno_of(l.accept), 'EINVAL')
"

# The order of connections: that in which they came.
ORDER="
for turn in range(30):
    l = listener()
    ports, got = [], []
    def accepts():
        for _ in range(24):
            s, (_, port) = l.accept()
            got.append(port)
            s.close()
    t = threading.Thread(target=accepts, daemon=True)
    if turn % 2:
        t.start()
    clients = []
    for _ in range(24):
        c = socket.socket()
        c.connect((B, PORT))
        ports.append(c.getsockname()[1])
        clients.append(c)
    if not turn % 2:
        t.start()
    t.join(10)
    assert got == ports, f'turn {turn}: {got}, not {ports}'
    for c in clients:
        c.close()
    l.close()
"

# The port of a listener is free when it is closed, whatever its clients wait for.
PORT_FREE="
PORT += 1
run('ip', 'netns', 'exec', 'a', 'nft', 'table inet odd { chain out { type filter hook output priority 0; '
    f'tcp dport {PORT} meta length > 100 drop; }}; }}')
try:
    l = sock()
    l.bind((B, PORT)); l.listen(5)
    c = within('a')
    c.setblocking(False)
    errno_of(c.connect, (B, PORT))
    time.sleep(0.5)
    l.close()
    n = sock()
    same('bind', errno_of(n.bind, (B, PORT)), None)
    n.close()
finally:
    run('ip', 'netns', 'exec', 'a', 'nft', 'delete table inet odd')
"

# SO_LINGER of no time is a reset, also with TLS on top of TCP.
TLS_RESET="
c, s = pair()
s.setsockopt(6, 31, b'tls')
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close()
same('the peer reads', errno_of(c.recv, 8), 'ECONNRESET')
"

# IP_TOS sets SO_PRIORITY, and nothing else does.
PRIORITY="
s = sock()
s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
s.setsockopt(socket.SOL_IP, socket.IP_TOS, 0x10)
same('SO_PRIORITY', s.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), 6)
l = listener()
s.connect((B, PORT))
same('SO_PRIORITY when connected', s.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), 6)
"

# SO_COOKIE is what lists of sockets have.
COOKIE="
c, s = pair()
def cookie(one):
    return struct.unpack('Q', one.getsockopt(socket.SOL_SOCKET, 57, 8))[0]
def listed(*end):
    words = run(*end, 'ss', '-tneH', 'state', 'connected').split()
    return [int(word[3:], 16) for word in words if word.startswith('sk:')]
own, other = cookie(s), cookie(c)
assert own in listed(), (own, listed())
in_a = listed('ip', 'netns', 'exec', 'a')
assert other in in_a, (other, in_a)
assert own != other
"

# A connection has the pacing rate of its listener.
PACING="
c, s = pair([(socket.SOL_SOCKET, 47, 1234567)])
same('SO_MAX_PACING_RATE', s.getsockopt(socket.SOL_SOCKET, 47), 1234567)
"

# SO_INCOMING_NAPI_ID is that of the device that the data came by.
NAPI="
run('ip', 'netns', 'exec', 'a', 'ethtool', '-K', 'wire_a', 'tso', 'off')
run('ip', 'netns', 'exec', 'b', 'ethtool', '-K', 'wire_b', 'gro', 'on')
c, s = pair()
c.send(b'x'); s.recv(1)
same('SO_INCOMING_NAPI_ID is one', s.getsockopt(socket.SOL_SOCKET, 56) > 0, True)
"

# Who may attach a filter to a TCP socket may do so here.
FILTER="
import ctypes, os, struct
c, s = pair()
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0xffffffff), 8)
program = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))
def attach(sock):
    try:
        return sock.setsockopt(socket.SOL_SOCKET, 26, program)
    except OSError as e:
        return e.errno
of_tcp = socket.socket()
same('SO_ATTACH_FILTER of root', attach(s), attach(of_tcp))
os.seteuid(65534)
same('SO_ATTACH_FILTER of a user', attach(s), attach(of_tcp))
os.seteuid(0)
c.send(b'x')
same('what passes the filter', s.recv(1), b'x')
"

# A socket that root has bound can be made one of SMC by who may not bind to that port.
BOUND_BY_ROOT="
for family, any in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET, B), (socket.AF_INET6, '::'), (socket.AF_INET6, '::1')):
    s = socket.socket(family)
    s.bind((any, 80))
    os.seteuid(65534)
    same('TCP_ULP', errno_of(s.setsockopt, 6, 31, b'smc'), None)
    same('its address', s.getsockname()[:2], (any, 80))
    same('listen', errno_of(s.listen, 5), None)
    o = socket.socket(family)
    os.seteuid(0)
    same('the port of another one', errno_of(o.bind, (any, 80)), 'EADDRINUSE')
    s.close(); o.close()
"

# every PROTOCOL KIND NAME
every() {
	check "$3: accept(2) goes on where the socket was shut down and listens again" odd "$1" "$2" "$LISTEN_AGAIN"
	check "$3: a listener that was destroyed" odd "$1" "$2" "$DESTROYED"
	check "$3: connections of plain TCP are accepted in their order" odd "$1" "$2" "$ORDER"
	check "$3: the port of a closed listener is free" odd "$1" "$2" "$PORT_FREE"
	check "$3: IP_TOS and SO_PRIORITY" odd "$1" "$2" "$PRIORITY"
	check "$3: SO_COOKIE" odd "$1" "$2" "$COOKIE"
	check "$3: SO_MAX_PACING_RATE of a listener" odd "$1" "$2" "$PACING"
	check "$3: SO_ATTACH_FILTER" odd "$1" "$2" "$FILTER"
}

# over_tcp PROTOCOL KIND NAME: what there is over TCP only.
over_tcp() {
	every "$@"
	check "$3: an error with which the connection goes on" odd "$1" "$2" "$SOFT_ERROR"
	check "$3: a reset with TLS" odd "$1" "$2" "$TLS_RESET"
	check "$3: SO_INCOMING_NAPI_ID" odd "$1" "$2" "$NAPI"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

over_tcp 0 tcp "TCP"
over_tcp 256 fallback "after a fallback"
check "TCP_ULP on a port below 1024, by a user" odd 0 tcp "$BOUND_BY_ROOT"
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
every 256 smc "over RDMA"
check "module unloads" within 20 unload_smc
finish
