// SPDX-License-Identifier: GPL-2.0
/* include/linux/uaccess.h */
size_t smc_helper_copy_from_iter_nofault(void *to, size_t len, struct iov_iter *from)
{
	size_t copied;

	pagefault_disable();
	copied = _copy_from_iter(to, len, from);
	pagefault_enable();
	return copied;
}
