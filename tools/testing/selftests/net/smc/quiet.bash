# SPDX-License-Identifier: GPL-2.0
# What a machine does that has nothing to do: its processors wait, and its kernel logs little.

# idle: the processors have little to do.
idle() {
	local before after
	before=$(busy_ticks) && sleep 3 && after=$(busy_ticks)
	echo "# in 3 s the processors were busy for $((after - before)) ticks of 10 ms"
	[ $((after - before)) -le 60 ]
}

# busy_ticks: time that all processors spent on anything but waiting.
busy_ticks() {
	awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

# few_lines [KINDS]: what the kernel logged since BEGUN of one kind of messages (about peers), or of so many (about
# links), is within limits: ten lines of each in five seconds, and how many it left out.
few_lines() {
	local lines most=$((((SECONDS - BEGUN) / 5 + 2) * 11 * ${1:-1}))
	lines=$(dmesg | grep -c 'smc: ')
	echo "# $lines lines in the log, $most allowed"
	[ "$lines" -le "$most" ]
}
