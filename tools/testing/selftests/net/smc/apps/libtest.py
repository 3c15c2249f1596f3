#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The runner of unittests.py for a test program of Rust: each test in a process of its own.

    libtest.py FOLDER MODULE [TEST...]    MODULE is rust.NAME, for the program $SUITE/bin/NAME
"""

import os
import signal
import subprocess
import sys

import unittests

# Seconds that a test may take.
LIMIT = 60


def run_test(command, name, folder, log, passed, skipped):
    """Runs the test of this name in that folder, with an input that has no end, and returns its outcome: it was skipped,
    or has passed, if that is part of the output."""
    stdin, held = os.pipe()
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               cwd=folder, start_new_session=True)
    os.close(stdin)
    try:
        output = process.communicate(timeout=LIMIT)[0].decode(errors='replace')
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0].decode(errors='replace')
        print(f'== {name} hangs\n{output}', file=log, flush=True)
        return 'hangs'
    finally:
        os.close(held)
    if process.returncode == 0 and skipped in output:
        return 'skipped'
    if process.returncode == 0 and passed in output:
        return 'ok'
    print(f'== {name} ends with {process.returncode}\n{output}', file=log, flush=True)
    return 'fails'


def run_all(folder, module, names, only, run):
    """Runs the tests of these names that have no outcome in the folder yet, each by `run(name, log)`."""
    done = unittests.read(folder)
    with open(f'{folder}/outcomes', 'a') as outcomes, open(f'{folder}/log', 'a') as log:
        for name in names:
            test = f'{module}.{name}'.replace(' ', '_')
            if test in done or (only and test not in only):
                continue
            print(test, run(name, log), file=outcomes, flush=True)


def main(folder, module, *only):
    program = f'{os.environ["SUITE"]}/bin/{module.partition(".")[2]}'
    crate = os.path.basename(program).split('-')[0].replace('_', '-')
    source = f'{os.environ["SUITE"]}/vendor/{crate}'
    listed = subprocess.run([program, '--list'], check=True, capture_output=True, text=True).stdout
    names = [line.removesuffix(': test') for line in listed.splitlines() if line.endswith(': test')]

    def run(name, log):
        command = [program, '--exact', name, '--test-threads=1']
        return run_test(command, name, source if os.path.isdir(source) else None, log, '1 passed', '1 ignored')

    run_all(folder, module, names, only, run)


if __name__ == '__main__':
    main(*sys.argv[1:])
