/* SPDX-License-Identifier: GPL-2.0 */
void smc_helper_copy_nodename(char *name, size_t size);
