#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The runner of unittests.py for the tests of gevent, and for those of CPython on top of gevent.

    geventtest.py FOLDER MODULE [TEST...]    MODULE is gevent.tests.NAME, or patched_NAME for the module test.NAME of
                                             CPython, with gevent's sockets, threads and so on in place of its own
"""

import importlib.util
import os
import runpy
import sys
import test
import types

import unittests

PATCHED = 'patched_'
# Seconds that a test of gevent's own may take, in place of two or 15, and an answer, in place of a tenth of one.
LIMIT, LIMIT_ANSWER = 60, 2


def patch(module):
    """Makes CPython's module, patched as gevent's own runner does it, which leaves out what cannot do with that."""
    name = module.removeprefix(PATCHED)
    sys.argv[1:] = [f'{os.path.dirname(test.__file__)}/{name}.py']
    patched = types.ModuleType(module)
    vars(patched).update(runpy.run_module('gevent.testing.monkey_test', run_name=module))
    sys.modules[module] = patched


def load_small(module):
    """Loads tests of gevent's own with 20 MB of data that no socket has room for, in place of 500."""
    spec = importlib.util.find_spec(module)
    with open(spec.origin) as file:
        source = file.read().replace("b'hello' * 100000000", "b'hello' * 4000000")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    setattr(sys.modules[spec.parent], module.rpartition('.')[2], loaded)
    exec(compile(source, spec.origin, 'exec'), vars(loaded))


def prepare(module):
    """Gives tests of gevent's own the time and the memory that they need."""
    import gevent.testing
    gevent.testing.TestCase.__timeout__ = gevent.testing.LARGE_TIMEOUT = LIMIT
    gevent.testing.DEFAULT_SOCKET_TIMEOUT = LIMIT_ANSWER
    # Leaves out what has no meaning with that.
    gevent.testing.EXPECT_POOR_TIMER_RESOLUTION = True
    # The latter imports the former.
    for large in ('gevent.tests.test__socket', 'gevent.tests.test__ssl'):
        if module in (large, 'gevent.tests.test__ssl'):
            load_small(large)


def main(folder, module, *only):
    if module.startswith(PATCHED):
        patch(module)
    else:
        prepare(module)
    unittests.child(folder, module, only)


if __name__ == '__main__':
    main(*sys.argv[1:])
