/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/path_priv.h"

#include <errno.h>

/*
 * What a completion status means for failover. IBA vol. 1, 11.6.2; perftest prints one text for all of
 * them. Statuses that name this end's work request or memory are our bug or memory that went away.
 * Those of memory windows and of other types of queue pairs are unexpected.
 */
static const struct vb_status statuses[] = {
	[IBV_WC_LOC_LEN_ERR] = { DR_SCOPE_PATH, -EFAULT, "a local buffer is too short" },
	[IBV_WC_LOC_QP_OP_ERR] = { DR_SCOPE_PATH, -EIO,
		"the NIC could not carry out a work request; is the link down?" },
	[IBV_WC_LOC_PROT_ERR] = { DR_SCOPE_PATH, -EFAULT,
		"local memory is not registered (any more)" },
	[IBV_WC_WR_FLUSH_ERR] = { DR_SCOPE_PATH, -ECONNRESET,
		"the queue pair went to the error state" },
	[IBV_WC_BAD_RESP_ERR] = { DR_SCOPE_PATH, -EPROTO,
		"the peer's NIC sent an invalid response" },
	[IBV_WC_LOC_ACCESS_ERR] = { DR_SCOPE_PATH, -EFAULT,
		"the peer's write into local memory was refused" },
	[IBV_WC_REM_INV_REQ_ERR] = { DR_SCOPE_PATH, -ECONNRESET,
		"the peer's NIC refused a request as invalid" },
	[IBV_WC_REM_ACCESS_ERR] = { DR_SCOPE_PATH, -ECONNRESET,
		"the peer's NIC refused access: its memory is gone, or its end was fenced" },
	[IBV_WC_REM_OP_ERR] = { DR_SCOPE_PATH, -ECONNRESET,
		"the peer's NIC could not carry out a request" },
	[IBV_WC_RETRY_EXC_ERR] = { DR_SCOPE_PATH, -ETIMEDOUT,
		"the peer's NIC did not answer within all retries" },
	[IBV_WC_RNR_RETRY_EXC_ERR] = { DR_SCOPE_PATH, -EPROTO,
		"the peer posted fewer receives than it granted" },
	[IBV_WC_REM_ABORT_ERR] = { DR_SCOPE_PATH, -ECONNRESET, "the peer aborted the operation" },
	[IBV_WC_FATAL_ERR] = { DR_SCOPE_RAIL, -ENODEV, "the NIC failed" },
	[IBV_WC_RESP_TIMEOUT_ERR] = { DR_SCOPE_PATH, -ETIMEDOUT, "no response" },
};

const struct vb_status *dr_verbs_status(enum ibv_wc_status s)
{
	static const struct vb_status other = { DR_SCOPE_PATH, -EIO, "unexpected status" };

	return (unsigned)s < DR_ARRAY_LEN(statuses) && statuses[s].what ? &statuses[s] : &other;
}

static const char *queue_name(const struct vb_path *p, uint32_t id)
{
	if (!(id & VB_ID_RECV) && (id & VB_ID_PROBE))
		return "probe";
	if (p->conn->flush > 0 && vb_id_qp(id) == p->conn->flush)
		return "flush of GPU memory";
	if (vb_id_qp(id) == 0)
		return id & VB_ID_RECV ? "control receive" : "control send";
	return id & VB_ID_RECV ? "data receive" : "data send";
}

/*
 * A queue pair in the error state gives everything back as flushed; only the first error says why, and
 * it may stand behind flushed work of another queue pair. So a flush alone waits for the end of this
 * progress (path.c), when all that is there was read.
 */
void dr_verbs_wc_failed(struct vb_path *p, const struct vb_wc *wc)
{
	const struct vb_status *s = dr_verbs_status((enum ibv_wc_status)wc->status);

	if (p->state >= VB_FAILING)
		return;
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		p->flushed_seen = true;
		p->flush_vendor = wc->vendor_err;
		return;
	}
	dr_verbs_fail(p, s->scope, s->err, "%s failed: %s (%s, status %u, vendor error 0x%x)",
		queue_name(p, wc->id), s->what,
		vb_path_rail(p)->ibv->wc_status_str((enum ibv_wc_status)wc->status), wc->status,
		wc->vendor_err);
	if (s->scope == DR_SCOPE_RAIL)
		dr_verbs_rail_fail(vb_path_rail(p), DR_SCOPE_RAIL, s->err, "%s", p->base.text);
}
