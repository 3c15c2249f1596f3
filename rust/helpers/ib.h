/* SPDX-License-Identifier: GPL-2.0 */
int smc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr);
