#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The runner of unittests.py for tests of Node.js: each is a program, and runs in a process of its own.

    nodetest.py FOLDER MODULE [TEST...]    MODULE is node.KIND for the files test-KIND-*, below $SUITE/test
"""

import os
import re
import sys
from pathlib import Path

import libtest

# Tests of HTTP and TLS are these, by what their names say: how a connection begins, waits, is written to, and ends.
# Most of the others are about headers, options, certificates and wrong arguments, and have one short connection each;
# `forget-closed-streams` has 10,000 requests, one after the other.
CONNECTION = re.compile(
    r'abort|close|connect|destroy|drain|econn|eof|flood|half-open|junk|keep-?alive|large|lose|pause|pipe|proxy|reset|'
    r'shutdown|starttls|timeout|upgrade|upload|while|\bwrit(es?|ing)')
NO_CONNECTION = re.compile(
    r'^compat-|^forget-|agent-(abort|timeout)|array|assert|head-|headers-timeout|hint|option|outgoing|overflow|parser|'
    r'per-stream|push|request-(end|remove|req)|res(ponse)?-|timeout-client|trace|types|validation|'
    r'write-(after-end|empty|end)')

# Kinds of tests, and which of them, by what is behind the kind in their names. Of `cluster` those where processes share
# a listener, or pass a connection on; `other` has tests of further kinds that use one of these modules.
KINDS = {
    'cluster': r'accept|bind|disconnect-.*-|disconnect-[lr]|eaddrinuse|handle|index-net|listen(?!-rel)|net-send|rr-|'
               r'send-|server|shared',
    'http': CONNECTION,
    'http2': CONNECTION,
    'https': CONNECTION,
    'net': r'',
    'other': r'^child-process-(fork|http|recv|send)|^double-tls|^gc-(http|net)|^h2|^listen-fd-(?!ebadf)|^pipe|'
             r'^socket-write|^stream(2-http|-pipeline|-readable|-toWeb)|^tcp-wrap|^timers|^webstreams|^wrap-',
    'tls': CONNECTION,
}
NETWORK = re.compile(r"require\('(http|http2|https|net|tls)'\)")

# A test without any of these opens no socket.
OPENS_SOCKET = re.compile(r'\.listen\(|connect\(|createConnection\(|\b(?:http|https|http2)\.(?:get|request)\(')

# What else the source of a test says that is left out: sockets of the file system, UDP, the inspector.
LEFT_OUT = re.compile(r"common\.PIPE|require\('dgram'\)|skipIfInspectorDisabled|'--inspect")

# How a test says that it is skipped, and with which options it wants to run.
SKIPPED = '1..0 # Skipped'
FLAGS = re.compile(r'// Flags:\s+(--.*)')


def is_wanted(kind, name, source):
    """Whether a test of that kind, with this name and source, is one of these."""
    if not OPENS_SOCKET.search(source) or LEFT_OUT.search(source) or not re.search(KINDS[kind], name):
        return False
    if KINDS[kind] is CONNECTION:
        return not NO_CONNECTION.search(name)
    return kind != 'other' or bool(NETWORK.search(source))


def tests(suite, wanted):
    """Paths and sources of the tests of that kind, by their names."""
    found = {}
    for path in suite.glob('test/*/test-*.*js'):
        name = path.stem.removeprefix('test-')
        kind, _, rest = name.partition('-')
        kind, rest = (kind, rest) if kind in KINDS else ('other', name)
        if path.parent.name in ('parallel', 'sequential') and kind == wanted:
            source = path.read_text()
            if is_wanted(kind, rest, source):
                found[rest] = path, source
    return dict(sorted(found.items()))


def main(folder, module, *only):
    suite = Path(os.environ['SUITE'])
    found = tests(suite, module.partition('.')[2])
    # Where tests make files.
    scratch = f'/tmp/{module}.{os.getpid()}'
    os.mkdir(scratch)
    os.environ.update(NODE_TEST_DIR=scratch, NODE_TEST_NO_INTERNET='1', HOME=scratch)

    def run(name, log):
        path, source = found[name]
        flags = FLAGS.search(source)
        command = [f'{suite}/usr/bin/node', *(flags[1].split() if flags else []), str(path)]
        return libtest.run_test(command, name, scratch, log, '', SKIPPED)

    libtest.run_all(folder, module, found, only, run)


if __name__ == '__main__':
    main(*sys.argv[1:])
