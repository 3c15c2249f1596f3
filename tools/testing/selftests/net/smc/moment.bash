# SPDX-License-Identifier: GPL-2.0
# What scripts share for which a moment counts that a busy machine may miss.

# forget: what this machine remembers of paths that failed and of SYNs without an answer, as the names of networks may
# have changed.
forget() {
	"$BIN/smc" pnet add FORGET -I lo && "$BIN/smc" pnet flush
}

# caught COMMAND...: the command, up to six times while its exit code is 2: the moment that it is for was missed.
caught() {
	local code attempt
	for attempt in {1..6}; do
		"$@"
		code=$?
		[ $code = 2 ] || break
	done
	echo "# attempt $attempt"
	return $code
}
