#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64-kcsan
# timeout: 120
# trouble: WARNING: .*planted
# trouble: KCSAN: data-race in race_in_c .*\(race_in_c\+\S+ \[planted_c\], race_in_c\+\S+ \[planted_c\]\)
# trouble: KCSAN: data-race in \S*race_in_rust .*\(\S*race_in_rust\+\S+ \[planted\], \S*race_in_rust\+\S+ \[planted\]\)
# As planted.sh, for the checkers of this kernel.

echo "1..1"
echo "WARNING: printed by a program, which may do so"
insmod "${PLANTED_KO%.ko}_c.ko" race=1
insmod "$PLANTED_KO" race=1 warn=1
echo "ok 1 - faults were planted"
exit 0
