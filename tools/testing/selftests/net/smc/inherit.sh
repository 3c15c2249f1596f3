#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# timeout: 180
# TCP copies a listener into each of its connections, and others may get hold of a connection before the module accepts
# it: a BPF program that puts it into a socket map, and another listener of the port. Neither meets anything of ours.
# The connection itself is one of the listener's control group, as with TCP.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

cat >/tmp/common.py <<'END'
import socket, subprocess, sys, time

IPPROTO_SMC = 256
PLACE = ('127.0.0.1', 7200)

def listener(protocol):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(PLACE)
    s.listen(0)
    return s

def attempt(call, *arguments):
    try:
        print('#', call(*arguments))
    except OSError as e:
        print('#', e)

# One more than the backlog of SMC holds: the last stays with TCP.
def connections():
    clients = []
    for _ in range(2):
        client = socket.socket()
        client.settimeout(5)
        attempt(client.connect, PLACE)
        clients.append(client)
        time.sleep(0.5)
    return clients
END

cat >/tmp/migrate.py <<'END'
from common import *

smc = listener(IPPROTO_SMC)
clients = connections()
tcp = listener(0)
tcp.setblocking(False)
smc.close()
time.sleep(0.5)
moved = []
try:
    while True:
        moved.append(tcp.accept()[0])
except BlockingIOError:
    pass
print(f'# {len(moved)} connections moved')
subprocess.run(['rmmod', 'smc'], check=True)
for client in clients:
    attempt(client.sendall, b'hello')
    attempt(client.recv, 10)
for s in moved:
    s.settimeout(2)
    attempt(s.recv, 10)
sys.exit(1 if moved else 0)
END

cat >/tmp/bpf.py <<'END'
import ctypes, os, struct

libc = ctypes.CDLL(None, use_errno=True)
MAP_CREATE, PROG_LOAD, PROG_ATTACH, PROG_DETACH = 0, 5, 8, 9
SOCKMAP = 15
SOCK_OPS, SOCKOPT = 13, 25
CGROUP_SOCK_OPS, CGROUP_SETSOCKOPT = 3, 22

def bpf(command, attr):
    attr = attr.ljust(128, b'\0')
    result = libc.syscall(321, command, attr, len(attr))
    if result < 0:
        raise OSError(ctypes.get_errno(), f'bpf({command})')
    return result

def insn(code, dst=0, src=0, off=0, imm=0):
    return struct.pack('<BBhi', code, dst | src << 4, off, imm)

# Attaches a program to a control group.
def attach(group, kind, place, code):
    code_buffer, license = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b'GPL')
    log = ctypes.create_string_buffer(65536)
    attr = struct.pack('<IIQQIIQII16sII', kind, len(code) // 8, ctypes.addressof(code_buffer),
                       ctypes.addressof(license), 1, len(log), ctypes.addressof(log), 0, 0, b'', 0, place)
    try:
        program = bpf(PROG_LOAD, attr)
    except OSError:
        print('#', log.value.decode().replace('\n', '\n# '))
        raise
    bpf(PROG_ATTACH, struct.pack('<III', group, program, place))
    return program

def detach(group, program, place):
    bpf(PROG_DETACH, struct.pack('<III', group, program, place))
END

cat >/tmp/sockmap.py <<'END'
import errno, select, threading
from bpf import *
from common import *

table = bpf(MAP_CREATE, struct.pack('<IIIII', SOCKMAP, 4, 4, 1, 0))
code = b''.join([
    insn(0xbf, 6, 1),                    # r6 = context
    insn(0x61, 2, 1, 0),                 # r2 = context->op
    insn(0x55, 2, 0, 8, 5),              # leave unless BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB
    insn(0x62, 10, 0, -4, 0),            # key = 0
    insn(0xbf, 1, 6),
    insn(0x18, 2, 1, 0, table), insn(0), # r2 = the map
    insn(0xbf, 3, 10), insn(0x07, 3, 0, 0, -4),
    insn(0xb7, 4, 0, 0, 0),
    insn(0x85, 0, 0, 0, 53),             # bpf_sock_map_update
    insn(0xb7, 0, 0, 0, 1), insn(0x95),  # return 1
])
group = os.open('/tmp/cgroup', os.O_RDONLY)
program = attach(group, SOCK_OPS, CGROUP_SOCK_OPS, code)

smc = listener(IPPROTO_SMC)
smc.settimeout(5)
clients = connections()
# The last one is in the map, and in TCP's queue. Its events are the map's; it is a connection none the less.
accepted = [smc.accept()[0] for _ in clients]
time.sleep(0.5)
for client, s in zip(clients, accepted):
    client.sendall(b'hello')
    s.settimeout(5)
    assert s.recv(10) == b'hello'
clients[-1].settimeout(5)
accepted[-1].sendall(b'again')
assert clients[-1].recv(10) == b'again'
waits = select.epoll()
waits.register(accepted[-1], select.EPOLLIN)
assert waits.poll(0) == []
threading.Timer(0.5, clients[-1].sendall, [b'more']).start()
assert waits.poll(5) and accepted[-1].recv(10) == b'more'
clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
clients[-1].close()
assert waits.poll(5)[0][1] & select.EPOLLERR
assert accepted[-1].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET
for client in clients:
    client.close()

# What comes later, without the map, is as ever.
os.close(table)
detach(group, program, CGROUP_SOCK_OPS)
client = socket.create_connection(PLACE, timeout=10)
s = smc.accept()[0]
client.sendall(b'hello')
s.settimeout(5)
sys.exit(0 if s.recv(10) == b'hello' else 1)
END

# A listener for TCP alone, whose connections may move: what it was before may not be in them.
cat >/tmp/relisten.py <<'END'
import struct
from common import *

smc = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)
attempt(smc.connect, PLACE)
# A key (TCP_MD5SIG) for an address that does not matter.
address = struct.pack('!2xH4s120x', 0, socket.inet_aton('10.9.9.9'))
address = struct.pack('=H', socket.AF_INET) + address[2:]
smc.setsockopt(socket.IPPROTO_TCP, 14, address + struct.pack('=BBHi80s', 0, 0, 3, 0, b'key'))
smc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
smc.bind(PLACE)
smc.listen(0)
clients = connections()
tcp = listener(0)
smc.close()
time.sleep(0.5)
tcp.settimeout(5)
moved = tcp.accept()[0]
subprocess.run(['rmmod', 'smc'], check=True)
peer = moved.getpeername()
client = next(c for c in clients if c.getsockname() == peer)
for one, other in [(client, moved), (moved, client)]:
    one.sendall(b'hello')
    other.settimeout(5)
    assert other.recv(10) == b'hello'
# Once more with a route that is looked up anew.
subprocess.run(['ip', 'route', 'flush', 'cache'])
client.sendall(b'again')
assert moved.recv(10) == b'again'
END

# Programs that count sockets made and released in a cgroup (cgroup/sock_create, cgroup/sock_release).
cat >/tmp/counts.py <<'END'
from bpf import *
from common import *

ARRAY, CGROUP_SOCK, SOCK_CREATE, SOCK_RELEASE = 2, 9, 2, 34

def counter():
    return bpf(MAP_CREATE, struct.pack('<IIIII', ARRAY, 4, 8, 1, 0))

# Adds one to the only element of the array.
def counting(table):
    return b''.join([
        insn(0x62, 10, 0, -4, 0),            # key = 0
        insn(0xbf, 2, 10), insn(0x07, 2, 0, 0, -4),
        insn(0x18, 1, 1, 0, table), insn(0),
        insn(0x85, 0, 0, 0, 1),              # bpf_map_lookup_elem
        insn(0x15, 0, 0, 2, 0),
        insn(0xb7, 1, 0, 0, 1),
        insn(0xdb, 0, 1, 0, 0),              # lock *r0 += 1
        insn(0xb7, 0, 0, 0, 1), insn(0x95),  # return 1
    ])

def value(table):
    key, out = ctypes.create_string_buffer(4), ctypes.create_string_buffer(8)
    bpf(1, struct.pack('<I4xQQ', table, ctypes.addressof(key), ctypes.addressof(out)))
    return struct.unpack('<Q', out.raw)[0]

group = os.open('/tmp/cgroup', os.O_RDONLY)
made, released = counter(), counter()
programs = [(attach(group, CGROUP_SOCK, place, counting(table)), place)
            for place, table in ((SOCK_CREATE, made), (SOCK_RELEASE, released))]
wrong = 0
for name, protocol in {'TCP': 0, 'IPPROTO_SMC': IPPROTO_SMC}.items():
    before = value(made), value(released)
    for s in [socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) for _ in range(10)]:
        s.close()
    counts = value(made) - before[0], value(released) - before[1]
    print(f'# {name}: {counts[0]} made, {counts[1]} released')
    wrong += counts != (10, 10)
for program, place in programs:
    detach(group, program, place)
sys.exit(wrong)
END

# A program of the control group in which the listener was made refuses options of a connection, whoever accepts that.
cat >/tmp/options.py <<'END'
from bpf import *
from common import *

AF_SMC, TCP_ULP, EPERM = 43, 31, 1
ROOT, SERVICE = '/tmp/cgroup', '/tmp/cgroup/service'

def enter(group):
    with open(group + '/cgroup.procs', 'w') as procs:
        procs.write(str(os.getpid()))

# What setsockopt(2) says of a connection to such a listener. By the C library: Python knows no addresses of AF_SMC.
def refusal(port, family, protocol, ulp, client_protocol):
    enter(SERVICE)
    server = socket.socket(family, socket.SOCK_STREAM, protocol)
    enter(ROOT)
    if ulp:
        server.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b'smc')
    address = struct.pack('=H', socket.AF_INET) + struct.pack('!H4s8x', port, socket.inet_aton(PLACE[0]))
    assert libc.bind(server.fileno(), address, len(address)) == 0
    assert libc.listen(server.fileno(), 1) == 0
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, client_protocol)
    client.connect((PLACE[0], port))
    accepted = libc.accept(server.fileno(), None, None)
    assert accepted >= 0
    program = attach(group, SOCKOPT, CGROUP_SETSOCKOPT, insn(0xb7, 0, 0, 0, 0) + insn(0x95))  # return 0
    on = struct.pack('i', 1)
    failed = libc.setsockopt(accepted, socket.SOL_SOCKET, socket.SO_KEEPALIVE, on, len(on))
    error = ctypes.get_errno() if failed else 0
    detach(group, program, CGROUP_SETSOCKOPT)
    os.close(accepted)
    return error

os.mkdir(SERVICE)
group = os.open(SERVICE, os.O_RDONLY)
listeners = {
    'TCP': (socket.AF_INET, 0, False),
    'AF_SMC': (AF_SMC, 0, False),
    'IPPROTO_SMC': (socket.AF_INET, IPPROTO_SMC, False),
    'TCP_ULP': (socket.AF_INET, 0, True),
}
wrong, port = [], 7300
for name, listener in listeners.items():
    for protocol in (0, IPPROTO_SMC):
        port += 1
        error = refusal(port, *listener, protocol)
        print(f'# a listener of {name}, a client of protocol {protocol}: {os.strerror(error)}')
        if error != EPERM:
            wrong.append(name)
sys.exit(1 if wrong else 0)
END

# A balancer, as of Kubernetes: connect(2) to the address of a service goes to one of its servers, and getpeername(2)
# says the service's. Prints whether the connection is by SMC.
cat >/tmp/balancer.py <<'END'
import socket, sys
from bpf import *

SERVICE, SERVER, PORT = '10.9.0.77', sys.argv[1], int(sys.argv[2])
SOCK_ADDR, CONNECT4, GETPEERNAME4 = 18, 10, 29

# Replaces context->user_ip4.
def replace(old, new):
    old, new = (struct.unpack('<i', socket.inet_aton(address))[0] for address in (old, new))
    return b''.join([
        insn(0x61, 2, 1, 4), insn(0x55, 2, 0, 2, old),  # unless it is old
        insn(0xb7, 3, 0, 0, new), insn(0x63, 1, 3, 4),
        insn(0xb7, 0, 0, 0, 1), insn(0x95),             # return 1
    ])

group = os.open('/tmp/cgroup', os.O_RDONLY)
programs = {
    CONNECT4: attach(group, SOCK_ADDR, CONNECT4, replace(SERVICE, SERVER)),
    GETPEERNAME4: attach(group, SOCK_ADDR, GETPEERNAME4, replace(SERVER, SERVICE)),
}
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
client.settimeout(10)
client.connect((SERVICE, PORT))
assert client.getpeername() == (SERVICE, PORT)
# SOL_SMC, SMC_INFO: the mode.
print(['SMC', 'TCP'][struct.unpack('6I', client.getsockopt(286, 0x5201, 24))[0]])
client.close()
for place, program in programs.items():
    detach(group, program, place)
END

# by_balancer WANTED
by_balancer() {
	local is
	is=$(in_ns a python3 /tmp/balancer.py "$IP_B" 7301) || return
	echo "# $is"
	[ "$is" = "$1" ]
}

migrates() {
	in_ns a sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_migrate_req' && in_ns a python3 /tmp/migrate.py
}

cgroups() {
	mkdir -p /tmp/cgroup && mount -t cgroup2 none /tmp/cgroup
}

require "control groups" cgroups
check "connections that a BPF program puts into a socket map" in_ns a python3 /tmp/sockmap.py
check "BPF programs of the listener's cgroup see options of its connections" in_ns a python3 /tmp/options.py
check "BPF programs of a cgroup see sockets made and released" in_ns a python3 /tmp/counts.py
check "no connection moves to a listener of TCP" migrates
check "the module is gone" [ ! -e /sys/module/smc ]
check "and comes again" load_smc
require "soft RoCE" up_rxe
require "a server" start_server 7301
check "a connection by way of a balancer" by_balancer SMC
check "a rule about the server" in_ns a "$BIN/smc" policy add deny --client --peer "$IP_B"
check "is for that connection, too" by_balancer TCP
check "the rule goes" in_ns a "$BIN/smc" policy flush
check "and is for none any more" by_balancer SMC
stop_servers
check "connections of a listener that tried to connect before move without it" in_ns a python3 /tmp/relisten.py
check "the module is gone then, too" [ ! -e /sys/module/smc ]
check "and comes again, too" load_smc
check "module unloads" within 10 unload_smc
finish
