// SPDX-License-Identifier: GPL-2.0
/* include/linux/uaccess.h */
void smc_helper_pagefault_disable(void)
{
	pagefault_disable();
}

void smc_helper_pagefault_enable(void)
{
	pagefault_enable();
}
