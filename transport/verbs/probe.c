/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peer's NIC answers: probes, the round trip, and how much its silence proves.
 *
 *  1. A probe is a write of no bytes: it needs no receive, no buffer and no action of the peer's process.
 *  2. Queue pair 0 carries one at most, unless the owner asks for all. Then it and each probe queue pair carry
 *     up to VB_PROBES, VB_PROBE_GAP_NS apart.
 *  3. A connection that lost a packet waits for the NIC's retransmission, which takes longer than a grey failure
 *     may last. So its silence alone proves little, and the other connections, on which nothing is under
 *     way, are asked as well.
 */
#include "transport/verbs/path_priv.h"

#include <errno.h>

static void post(struct vb_path *p, unsigned i, int64_t now_ns)
{
	unsigned qp = i == 0 ? 0 : vb_data_end(p) + i - 1;
	struct vb_probes *q = &p->probes[i];
	struct ibv_send_wr *bad,
		wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };

	wr.wr_id = (uint64_t)p->conn->serial << 32 | VB_ID_PROBE | vb_id(false, qp, 0);
	q->at_ns[q->sent++ % VB_PROBES] = now_ns;
	p->base.st.syscalls++;
	if (ibv_post_send(p->conn->qp[qp], &wr, &bad))
		dr_verbs_fail(p, DR_SCOPE_PATH, -EIO, "cannot post a probe");
}

static bool due(const struct vb_probes *q, unsigned most, int64_t now_ns)
{
	unsigned n = q->sent - q->done;

	return n == 0 ||
	       (n < most && now_ns - q->at_ns[(q->sent - 1) % VB_PROBES] >= VB_PROBE_GAP_NS);
}

void dr_verbs_probe(struct dr_path *bp, bool all, int64_t now_ns)
{
	struct vb_path *p = vb_path(bp);

	for (unsigned i = 0; i < (all ? VB_PROBED : 1u) && p->state == VB_UP; i++)
		if (due(&p->probes[i], all ? VB_PROBES : 1, now_ns))
			post(p, i, now_ns);
}

/* A sample that contains a repetition by the NIC is too long by tens of milliseconds, and samples are rare: it is
 * forgotten quickly. */
void dr_verbs_rtt(struct vb_path *p, int64_t sample_ns)
{
	int64_t more_ns = DR_MAX(sample_ns, 1) - p->rtt_ns;

	p->rtt_ns += p->rtt_ns == 0 ? more_ns : more_ns / (more_ns < 0 ? 2 : 8);
}

void dr_verbs_probed(struct vb_path *p, const struct vb_wc *wc)
{
	unsigned qp = vb_id_qp(wc->id);
	struct vb_probes *q = &p->probes[qp == 0 ? 0 : qp - vb_data_end(p) + 1];

	dr_verbs_rtt(p, p->base.now_ns - q->at_ns[q->done++ % VB_PROBES]);
	p->ack_ns = p->base.now_ns;
}

int64_t dr_verbs_probe_ns(const struct vb_path *p)
{
	const struct vb_probes *q = &p->probes[0];

	return q->sent == q->done ? 0 : q->at_ns[q->done % VB_PROBES];
}

/* In tenths of a lone packet. With 5 % loss in each direction one probe stays without an answer with a probability
 * of 0.1, two in a row on one connection with 0.01. More are not independent: only the first packet behind a
 * lost one makes the peer's NIC ask for it (IBA 9.7.5.2.8), once. All are silent with 0.003. */
static unsigned worth(unsigned probes)
{
	return probes > 2 ? 25 : 10 * probes;
}

/* Transmissions since then, as far as the slowest NIC has repeated what it sent (IBA 9.7.6.1.3). */
static unsigned rounds(int64_t ns, int64_t retry_ns)
{
	return retry_ns == DR_NEVER ? 1 : 1 + (unsigned)(ns / (4 * retry_ns));
}

static unsigned silent_probes(
	const struct vb_silence *s, const struct vb_probes *q, int64_t until_ns)
{
	int64_t first_ns = 0;
	unsigned n = 0;

	for (unsigned i = q->done; i != q->sent; i++) {
		int64_t at_ns = q->at_ns[i % VB_PROBES];

		if (at_ns < s->ack_ns || at_ns > until_ns)
			continue;
		if (n++ == 0)
			first_ns = at_ns;
	}
	return n == 0 ? 0 : worth(n) * rounds(until_ns - first_ns, s->retry_ns);
}

unsigned dr_verbs_silent(const struct vb_silence *s, int64_t now_ns)
{
	unsigned tenths = 0;

	for (unsigned i = 0; i < VB_PROBED; i++)
		tenths += silent_probes(s, &s->probes[i], now_ns - s->rtt_ns * 3 / 2);
	return (tenths + 5) / 10;
}
