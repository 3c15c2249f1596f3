#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# timeout: 180
# TCP copies a listener into each of its connections, and others may get hold of a connection before the module accepts
# it: a BPF program that puts it into a socket map, and another listener of the port. Neither meets anything of ours.

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

cat >/tmp/sockmap.py <<'END'
import ctypes, os, struct
from common import *

libc = ctypes.CDLL(None, use_errno=True)
MAP_CREATE, PROG_LOAD, PROG_ATTACH = 0, 5, 8
SOCKMAP, SOCK_OPS, CGROUP_SOCK_OPS = 15, 13, 3

def bpf(command, attr):
    attr = attr.ljust(128, b'\0')
    result = libc.syscall(321, command, attr, len(attr))
    if result < 0:
        raise OSError(ctypes.get_errno(), f'bpf({command})')
    return result

def insn(code, dst=0, src=0, off=0, imm=0):
    return struct.pack('<BBhi', code, dst | src << 4, off, imm)

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
code_buffer, license = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b'GPL')
log = ctypes.create_string_buffer(65536)
attr = struct.pack('<IIQQIIQ', SOCK_OPS, len(code) // 8, ctypes.addressof(code_buffer),
                   ctypes.addressof(license), 1, len(log), ctypes.addressof(log))
try:
    program = bpf(PROG_LOAD, attr)
except OSError:
    print('#', log.value.decode().replace('\n', '\n# '))
    raise
group = os.open('/tmp/cgroup', os.O_RDONLY)
bpf(PROG_ATTACH, struct.pack('<III', group, program, CGROUP_SOCK_OPS))

smc = listener(IPPROTO_SMC)
smc.settimeout(5)
clients = connections()
# The last one is in the map, and in TCP's queue. The module cannot have it any more when its turn comes.
for client in clients:
    attempt(client.sendall, b'hello')
time.sleep(0.5)
for _ in clients:
    attempt(smc.accept)
for client in clients:
    client.close()

# What comes later, without the map, is as ever.
os.close(table)
libc.syscall(321, 9, struct.pack('<III', group, program, CGROUP_SOCK_OPS).ljust(128, b'\0'), 128)
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

migrates() {
	in_ns a sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_migrate_req' && in_ns a python3 /tmp/migrate.py
}

cgroups() {
	mkdir -p /tmp/cgroup && mount -t cgroup2 none /tmp/cgroup
}

require "control groups" cgroups
check "connections that a BPF program puts into a socket map" in_ns a python3 /tmp/sockmap.py
check "no connection moves to a listener of TCP" migrates
check "the module is gone" [ ! -e /sys/module/smc ]
check "and comes again" load_smc
require "soft RoCE" up_rxe
check "connections of a listener that tried to connect before move without it" in_ns a python3 /tmp/relisten.py
check "the module is gone then, too" [ ! -e /sys/module/smc ]
check "and comes again, too" load_smc
check "module unloads" within 10 unload_smc
finish
