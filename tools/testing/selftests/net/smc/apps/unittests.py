#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs a module of Python unit tests to its end, whatever it does, and compares what several runs said.

    unittests.py run FOLDER MODULE [TEST...]   outcomes to FOLDER/outcomes, tracebacks to FOLDER/log
    unittests.py compare TABLE WAY TCP OTHER   folders of the same module over TCP and in another WAY

An outcome is a line `TEST OUTCOME`: ok, skipped, fails, hangs, or unsteady, for what is good by itself only. A test
that hangs, or takes the interpreter down, costs itself only: the module goes on behind it in another process.
Tests of other languages have a command in $RUNNER: it is given FOLDER MODULE [TEST...], and runs what has no outcome.
"""

import faulthandler
import fnmatch
import os
import signal
import subprocess
import sys
import unittest

# Seconds that a test may take. The slow ones of these modules take some on a machine without sanitizers.
LIMIT = 120


class Recorder(unittest.TestResult):
    """Writes each outcome when it is known, and the beginning of each test before."""

    def __init__(self, outcomes, log):
        super().__init__()
        self.outcomes, self.log, self.outcome = outcomes, log, None

    def write(self, test, outcome):
        print(test.replace(' ', '_'), outcome, file=self.outcomes, flush=True)

    def explain(self, test, err):
        print(f'== {test.id()}\n{self._exc_info_to_string(err, test)}', file=self.log, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.outcome = 'ok'
        self.write(test.id(), 'begins')
        faulthandler.dump_traceback_later(LIMIT, exit=True, file=self.log)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        self.write(test.id(), self.outcome)
        self.outcome = None
        super().stopTest(test)

    def settle(self, test, outcome):
        # What belongs to no single test, such as the set-up of a class, has no beginning and no end.
        if self.outcome is None:
            self.write(test.id(), outcome)
        elif self.outcome in ('ok', 'skipped'):
            self.outcome = outcome

    def addError(self, test, err):
        self.explain(test, err)
        self.settle(test, 'fails')

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test, reason):
        self.settle(test, 'skipped')

    def addExpectedFailure(self, test, err):
        pass

    def addUnexpectedSuccess(self, test):
        self.settle(test, 'fails')


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def child(folder, module, only):
    """Runs the tests that have no outcome in the folder yet."""
    if module.startswith('test.'):
        from test import support
        support.use_resources = []      # no network but this machine's
    done = read(folder)
    tests = flat(unittest.defaultTestLoader.loadTestsFromName(module))
    # The kernel has no UDP-Lite any more.
    tests = [t for t in tests if 'UDPLITE' not in t.id()]
    wanted = [t for t in tests if t.id().replace(' ', '_') not in done and (not only or t.id() in only)]
    with open(f'{folder}/outcomes', 'a') as outcomes, open(f'{folder}/log', 'a') as log:
        unittest.TestSuite(wanted).run(Recorder(outcomes, log))


def run(folder, module, only):
    """Runs the module; what fails, or hangs, once more by itself: if that is good, the test is `unsteady`."""
    run_once(folder, module, only)
    bad = [test for test, outcome in read(folder).items() if outcome in ('fails', 'hangs')]
    if not bad or only:
        return
    run_once(f'{folder}/again', module, bad)
    with open(f'{folder}/outcomes', 'a') as outcomes:
        for test, outcome in read(f'{folder}/again').items():
            if outcome not in ('fails', 'hangs'):
                print(test, 'unsteady', file=outcomes)


def runner():
    return os.environ['RUNNER'].split() if 'RUNNER' in os.environ else [sys.executable, __file__, 'child']


def run_once(folder, module, only):
    os.makedirs(folder, exist_ok=True)
    while True:
        before = len(read(folder))
        with open(f'{folder}/output', 'ab') as output:
            command = [*runner(), folder, module, *only]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            code = process.wait()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if code == 0:
            return
        # The one that was not over is the one that did it; without one there is no going on.
        if len(read(folder)) == before:
            sys.exit(f'{module}: the tests end with {code}, see {folder}/output')


def read(folder):
    """The outcome of each test, the last one if it ran more than once; one that begins and has no end `hangs`."""
    outcomes = {}
    try:
        with open(f'{folder}/outcomes') as lines:
            for line in lines:
                test, outcome = line.split()
                outcomes[test] = 'hangs' if outcome == 'begins' else outcome
    except FileNotFoundError:
        pass
    return outcomes


def known(table, way, module):
    """Patterns of tests with the outcomes that they may have over TCP and in this way."""
    with open(table) as lines:
        fields = [[f.strip() for f in line.split('|')] for line in lines if line.strip() and line[0] != '#']
    for field in fields:
        if len(field) != 5 or not all(field):
            sys.exit(f'{table}: not WAYS | TEST | TCP | OTHER | REASON: {" | ".join(field)}')
    lines = [f for f in fields if way in f[0].split() and f[1].startswith(f'{module}.')]
    return [(f[1], f[2].split(', '), f[3].split(', ')) for f in lines]


def compare(table, way, tcp, other):
    """Prints the differences that are not in the table, and the lines of the table that are none."""
    ours, theirs = read(other), read(tcp)
    lines = known(table, way, os.path.basename(other))
    used, wrong = set(), 0
    for test in sorted(ours.keys() | theirs.keys()):
        before, after = theirs.get(test, 'missing'), ours.get(test, 'missing')
        hits = [i for i, (name, *_) in enumerate(lines) if fnmatch.fnmatchcase(test, name)]
        fitting = [i for i in hits if before in lines[i][1] and after in lines[i][2]]
        used.update(fitting)
        if before != after and not fitting:
            wrong += 1
            print(f'# {way}: {test}: over TCP {before}, now {after}')
    for i, line in enumerate(lines):
        if i not in used:
            wrong += 1
            print(f'# {way}: in the table, but not so: {line}')
    counts = ', '.join(f'{sum(o == what for o in ours.values())} {what}' for what in sorted(set(ours.values())))
    print(f'# {way}: {len(ours)} tests, {counts}; {len(used)} lines of the table')
    return 1 if wrong or not ours else 0


if __name__ == '__main__':
    match sys.argv[1:]:
        case ['run', folder, module, *only]:
            run(folder, module, only)
        case ['child', folder, module, *only]:
            child(folder, module, only)
        case ['compare', table, way, tcp, other]:
            sys.exit(compare(table, way, tcp, other))
        case _:
            sys.exit(__doc__)
