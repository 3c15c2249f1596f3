/* SPDX-License-Identifier: GPL-2.0 */
bool smc_helper_ratelimit_peer(void);
