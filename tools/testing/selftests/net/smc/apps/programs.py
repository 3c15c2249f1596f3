#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs tests that are programs, and writes their outcomes as unittests.py does, which compares them.

    programs.py libuv FOLDER PROGRAM PATTERN...   tests of libuv's runner whose whole names match one of them
    programs.py libevent FOLDER PROGRAM PATTERN...   the same of libevent's program
    programs.py glib FOLDER PROGRAM               the tests of a program with GLib's test framework
    programs.py codes FOLDER PROGRAM...           programs that are a test each, and say by their exit code how it ends
    programs.py mtr FOLDER SOURCE SCRATCH TEST... tests of the suite `main` with MariaDB's runner in SOURCE

What fails, or hangs, runs once more by itself: if that is good, the test is `unsteady`.
"""

import functools
import os
import re
import signal
import subprocess
import sys

# Seconds that a test may take, and all those of a program.
LIMIT = int(os.environ.get('LIMIT', '60'))
LIMIT_ALL = 150

# Seconds that all tests of MariaDB may take.
LIMIT_MTR = 3000

# A line of TAP: both libuv and GLib print it for each test.
RESULT = re.compile(r'^(ok|not ok) \d+(?: -)? (.*?)(?: *# (SKIP).*)?$', re.MULTILINE)

# What MariaDB's runner prints for each test, and each way to run it.
MTR_RESULT = re.compile(r"^main\.(\S+(?: '.*?')?) +\[ (pass|fail|skipped) \]", re.MULTILINE)
MTR_OUTCOMES = {'pass': 'ok', 'fail': 'fails', 'skipped': 'skipped'}


def ends(path, limit, command, folder=None):
    """Runs a command in that folder, with its output to that file; returns its exit code, or None, and its output."""
    with open(path, 'wb') as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                                   start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    with open(path, errors='replace') as log:
        return code, log.read()


def results(path, limit, command):
    """Runs a command, which says to that file how each of its tests ends; returns its exit code, or None."""
    code, said = ends(path, limit, command)
    found = RESULT.findall(said)
    return code, {name: 'fails' if said == 'not ok' else 'skipped' if skip else 'ok' for said, name, skip in found}


def alone(path, command):
    """The outcome of a test that is the only one of a command."""
    code, found = results(path, LIMIT, command)
    if code is None:
        return 'hangs'
    said = set(found.values())
    # Both have codes of their own for what is skipped.
    if not said or 'fails' in said or code not in (0, 7, 77):
        return 'fails'
    return 'ok' if 'ok' in said else 'skipped'


def by_code(path, command):
    """The outcome of a program that is a test."""
    code, _ = ends(path, LIMIT, command)
    return {None: 'hangs', 0: 'ok', 77: 'skipped'}.get(code, 'fails')


def listed(command, pattern):
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT, check=True).stdout
    return re.findall(pattern, said.decode(), re.MULTILINE)


def libuv(folder, program, patterns):
    """Yields each test with its outcome, and what is called for that again, with the path for its output."""
    # What stands behind a name are the servers that the runner starts for it.
    for name in listed([program, '--list'], r'^\w+'):
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            command = [program, name]
            yield name, alone(f'{folder}/{name}', command), functools.partial(alone, command=command)


def by_summary(path, command):
    """The outcome of a test of libevent, which says how many it has skipped."""
    code, said = ends(path, LIMIT, command)
    outcome = {None: 'hangs', 0: 'ok'}.get(code, 'fails')
    return 'skipped' if outcome == 'ok' and '(1 skipped)' in said else outcome


def libevent(folder, program, patterns):
    """As libuv()."""
    # Those that are disabled have a mark in front of their names.
    for name in listed([program, '--list-tests'], r'^    (\w+/\S+)'):
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            path, command = f'{folder}/{name.replace("/", ".")}', [program, '--verbose', name]
            yield name, by_summary(path, command), functools.partial(by_summary, command=command)


def glib(folder, program):
    """The same; they run in one process, as far as it comes."""
    names = listed([program, '-l'], r'^/.*')
    _, found = results(f'{folder}/all', LIMIT_ALL, [program, '--tap', '-k'])
    for name in names:
        command = [program, '--tap', '-p', name]
        yield name, found.get(name, 'hangs'), functools.partial(alone, command=command)


def codes(folder, programs):
    """The same."""
    for program in programs:
        name = os.path.basename(program).removesuffix('.t')
        command = [program]
        yield name, by_code(f'{folder}/{name}', command), functools.partial(by_code, command=command)


def mtr(folder, source, scratch, tests):
    """The same; a test is a set of commands for a server, which ends and starts between some of them."""
    command = ['perl', './mysql-test-run.pl', f'--vardir={scratch}', '--user=root', '--force', '--max-test-fail=0',
               '--retry=0', '--testcase-timeout=10']

    def outcomes(path, names):
        _, said = ends(path, LIMIT_MTR, command + [f'main.{name}' for name in names], source)
        found = {name: MTR_OUTCOMES[result] for name, result in MTR_RESULT.findall(said)}
        missing = set(names) - {name.split()[0] for name in found}
        return {**found, **{name: 'hangs' for name in missing}}

    def rerun(path, name):
        return outcomes(path, [name.split()[0]]).get(name, 'hangs')

    for name, outcome in sorted(outcomes(f'{folder}/all', tests).items()):
        yield name, outcome, functools.partial(rerun, name=name)


def run(folder, tests):
    module = os.path.basename(folder)
    with open(f'{folder}/outcomes', 'w') as outcomes:
        for name, outcome, rerun in tests:
            if outcome in ('fails', 'hangs'):
                again = rerun(f'{folder}/again.{name.replace("/", ".")}')
                outcome = 'unsteady' if again in ('ok', 'skipped') else again
            print(f'{module}.{name.replace(" ", "_")}', outcome, file=outcomes, flush=True)


if __name__ == '__main__':
    match sys.argv[1:]:
        case ['libuv', folder, program, *patterns] if patterns:
            os.makedirs(folder)
            run(folder, libuv(folder, program, patterns))
        case ['libevent', folder, program, *patterns] if patterns:
            os.makedirs(folder)
            run(folder, libevent(folder, program, patterns))
        case ['glib', folder, program]:
            os.makedirs(folder)
            run(folder, glib(folder, program))
        case ['codes', folder, *programs] if programs:
            os.makedirs(folder)
            run(folder, codes(folder, programs))
        case ['mtr', folder, source, scratch, *names] if names:
            os.makedirs(folder)
            run(folder, mtr(folder, source, scratch, names))
        case _:
            sys.exit(__doc__)
