// SPDX-License-Identifier: GPL-2.0
/* include/linux/utsname.h */
void smc_helper_copy_nodename(char *name, size_t size)
{
	strscpy(name, utsname()->nodename, size);
}
