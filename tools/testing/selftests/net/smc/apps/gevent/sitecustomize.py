# SPDX-License-Identifier: GPL-2.0
"""Has Python find the suite's part of the package `zope`.

Where Debian's python3-zope.interface is installed, a .pth file of it makes that package one of Debian's folder alone.
"""

import os
import sys

if 'zope' in sys.modules:
    for folder in os.environ.get('PYTHONPATH', '').split(':'):
        if os.path.isdir(f'{folder}/zope'):
            sys.modules['zope'].__path__.append(f'{folder}/zope')
