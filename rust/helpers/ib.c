// SPDX-License-Identifier: GPL-2.0
/* include/rdma/ib_verbs.h */
int smc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr)
{
	return ib_post_send(qp, wr, bad_wr);
}
