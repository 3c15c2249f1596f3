#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The runner of unittests.py for the tests of a Go package: each in a process of its own.

    gotest.py FOLDER MODULE [TEST...]    MODULE is go.PACKAGE, with _ for /, for the program $SUITE/bin/PACKAGE
"""

import os
import subprocess
import sys

import libtest


def main(folder, module, *only):
    package = module.partition('.')[2]
    program = f'{os.environ["SUITE"]}/bin/{package}'
    # Tests read what lies beside their source.
    source = f'{os.environ["SUITE"]}/src/{package.replace("_", "/")}'
    listed = subprocess.run([program, '-test.list', '^Test'], check=True, capture_output=True, text=True, cwd=source)
    names = [line for line in listed.stdout.splitlines() if line.startswith('Test')]

    def run(name, log):
        command = [program, '-test.v', '-test.short', '-test.run', f'^{name}$']
        return libtest.run_test(command, name, source, log, f'--- PASS: {name} ', f'--- SKIP: {name} ')

    libtest.run_all(folder, module, names, only, run)


if __name__ == '__main__':
    main(*sys.argv[1:])
