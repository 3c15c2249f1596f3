// SPDX-License-Identifier: GPL-2.0
/* include/linux/ratelimit.h */
/* The macro defines the state of its place; ten messages in five seconds. */
bool smc_helper_ratelimit_peer(void)
{
	static DEFINE_RATELIMIT_STATE(peer, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);

	return ___ratelimit(&peer, "smc: messages about peers");
}

bool smc_helper_ratelimit_links(void)
{
	static DEFINE_RATELIMIT_STATE(links, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);

	return ___ratelimit(&links, "smc: messages about links");
}
