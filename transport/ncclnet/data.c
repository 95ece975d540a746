/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts. Invariants:
 *  1. The k-th send on the data comm is the k-th receive at the other end: both ends list the parts that were announced in
 *     the order of the announcements, and give them to the plugin in the order of the list.
 *  2. A list has one epoch at a time. Posted receives cannot be withdrawn, so a path is left by closing its comms.
 *  3. Nothing is posted to the plugin before flush.
 */
#include "transport/ncclnet/net_priv.h"

#include <errno.h>
#include <string.h>

enum { PULL_MAX = 16 }; /* parts of one progress */

static struct nn_part *part_at(struct nn_path *p, uint64_t i)
{
	return &p->part[i % NN_PARTS];
}

static bool within(const struct dr_part *part)
{
	return part->off <= part->mr->len && part->len <= part->mr->len - part->off;
}

/* ---- receiver ---- */

static int check_recv(const struct nn_path *p, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	size_t bytes_max = nn_rail(p->base.path.rail)->dev.bytes_max;
	int err = dr_nn_may_post(p);

	if (err)
		return err;
	if (p->base.par.sender || n < 1 || n > DR_PARTS_MAX || skip >> n || epoch < p->epoch ||
		(epoch != p->epoch && p->done != p->known))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		if (!(skip & 1u << i) && !within(&parts[i]))
			return -EINVAL;
		if (parts[i].len > bytes_max)
			return -EMSGSIZE;
	}
	return p->open[seq % DR_PATH_RING] ? -EAGAIN : 0;
}

int dr_nn_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip)
{
	struct nn_path *p = nn_path(bp);
	int err = check_recv(p, epoch, seq, parts, n, skip);

	if (err)
		return err;
	err = dr_path_queue_credit(&p->ctrl, epoch, seq, parts, n, skip);
	if (err)
		return err;
	p->epoch = epoch;
	for (unsigned i = 0; i < n; i++) {
		if (skip & 1u << i)
			continue;
		p->open[seq % DR_PATH_RING]++;
		*part_at(p, p->known++) = (struct nn_part){ .part = (uint8_t)i,
			.epoch = epoch,
			.seq = seq,
			.mr = parts[i].mr,
			.data = parts[i].mr->base + parts[i].off,
			.len = parts[i].len };
	}
	return 0;
}

static void deliver(struct nn_path *p, const struct nn_part *x, size_t size)
{
	enum nn_state state = p->state;

	p->base.st.rx_bytes += size;
	p->base.st.rx_wire += size;
	dr_path_heard(&p->base.path, p->base.now_ns);
	p->open[x->seq % DR_PATH_RING]--;
	p->told = ++p->done;
	dr_path_tell_message(&p->base, DR_EV_ARRIVING, x->epoch, x->seq);
	/* Unless the owner has closed the path. */
	if (p->state == state || p->state == NN_DRAINING)
		dr_path_tell_part(
			&p->base, DR_EV_DELIVERED, x->epoch, x->seq, x->part, (uint32_t)size);
}

void dr_nn_sized(struct nn_path *p, uint32_t len)
{
	struct nn_part *x = part_at(p, p->sized);

	if (p->sized == p->known || len > x->len) {
		dr_nn_fail(p, DR_SCOPE_PATH, -EPROTO, "the peer announced a part of %u bytes", len);
		return;
	}
	x->len = len;
	p->sized++;
}

/* ---- sender ---- */

/* Where the plugin says no sizes, they go on the control comm. */
static int announce(struct nn_path *p, const struct nn_part *x)
{
	struct dr_path_frame f = { .type = DR_PATH_DATA,
		.part = x->part,
		.len = x->len,
		.epoch = x->epoch,
		.seq = x->seq };
	uint8_t *at;

	if (!p->in.sizeless || p->sized > p->issued)
		return 0;
	at = dr_path_queue_room(&p->ctrl, DR_PATH_FRAME_HDR);
	if (!at)
		return -EAGAIN;
	dr_path_frame_encode(&f, at);
	p->ctrl.end += DR_PATH_FRAME_HDR;
	p->ctrl.flushed = p->ctrl.end;
	p->sized = p->issued + 1;
	return 0;
}

/* Why the peer may not grant this; NULL: it may, and *out is the credit. */
static const char *grant(struct nn_path *p, const struct dr_path_frame *f,
	const struct dr_credit *c, struct dr_path_credit **out)
{
	if (f->epoch < p->epoch || (f->epoch != p->epoch && p->issued != p->known))
		return "another epoch is not over";
	if (p->known - p->told > NN_PARTS - DR_PARTS_MAX)
		return "there are too many";
	*out = dr_path_grant(&p->base, f->epoch, f->seq, f->skip, c);
	return *out ? NULL : "the message in its place is not complete";
}

void dr_nn_credited(struct nn_path *p, const struct dr_path_frame *f, const uint8_t *payload)
{
	const struct dr_credit c = dr_path_credit_read(f, payload);
	struct dr_path_credit *at;
	const char *why = grant(p, f, &c, &at);

	if (why) {
		dr_nn_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer granted epoch %u message %llu, which is no credit: %s", f->epoch,
			(unsigned long long)f->seq, why);
		return;
	}
	p->epoch = f->epoch;
	at->first = p->known;
	for (unsigned i = 0; i < f->n; i++)
		if (c.todo & 1u << i)
			*part_at(p, p->known++) = (struct nn_part){
				.part = (uint8_t)i, .epoch = f->epoch, .seq = f->seq
			};
	dr_path_tell_message(&p->base, DR_EV_CREDIT, f->epoch, f->seq);
}

int dr_nn_post_send(
	struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct nn_path *p = nn_path(bp);
	struct dr_path_credit *c;
	int err = dr_nn_may_post(p);

	if (err)
		return err;
	if (!p->base.par.sender || !within(what))
		return -EINVAL;
	err = dr_path_claim(&p->base, epoch, seq, part, what->len, &c);
	if (err)
		return err;
	unsigned before = ((1u << part) - 1) & ~(unsigned)c->skip;
	uint64_t k = c->first + (unsigned)__builtin_popcount(before);
	if (k >= p->told + NN_SENDS)
		return -EAGAIN;
	c->c.todo &= ~(1u << part);
	struct nn_part *x = part_at(p, k);
	dr_assert(x->seq == seq && x->part == part && !x->posted);
	x->mr = what->mr;
	x->data = what->mr->base + what->off;
	x->len = what->len;
	x->posted = true;
	return 0;
}

void dr_nn_report_sent(struct nn_path *p)
{
	/* Up to here only, though the sink may post and flush more: bounded work. */
	uint64_t end = p->done;

	while (p->told < end) {
		const struct nn_part *x = part_at(p, p->told++);

		dr_path_tell_part(&p->base, DR_EV_SENT, x->epoch, x->seq, x->part, 0);
	}
}

/* ---- both ---- */

static int push(struct nn_path *p)
{
	while (p->issued < p->flushed) {
		struct nn_part *x = part_at(p, p->issued);
		struct nn_mem mem;
		int rc;

		if (p->base.par.sender && !x->posted)
			break;
		mem = (struct nn_mem){ .base = x->mr->base, .len = x->mr->len, .mr = x->mr };
		rc = p->base.par.sender ? announce(p, x) : 0;
		if (rc == 0)
			rc = dr_nn_queue_post(&p->data, &mem, x->data, x->len, p->base.now_ns);
		if (rc)
			return rc;
		p->issued++;
		if (p->base.par.sender)
			dr_path_sent(&p->base.path, p->base.now_ns);
	}
	return 0;
}

/* 1: a part is complete. */
static int pull_one(struct nn_path *p)
{
	const struct nn_part x = *part_at(p, p->done);
	bool sizeless = p->in.sizeless && !p->base.par.sender;
	size_t size = 0;
	int rc = sizeless && p->sized == p->done ? 0 : dr_nn_queue_test(&p->data, &size);

	if (rc <= 0)
		return rc;
	size = sizeless ? x.len : size;
	if (p->base.par.sender) { /* SENT is reported by the next progress */
		p->done++;
		p->base.st.tx_bytes += x.len;
		p->base.st.tx_wire += x.len;
		return 1;
	}
	if (size > x.len) {
		dr_nn_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the plugin reports %zu bytes for a receive of %u", size, x.len);
		return 0;
	}
	deliver(p, &x, size);
	return 1;
}

static void data_failed(struct nn_path *p, int rc)
{
	if (p->data.gpu_failed) {
		dr_nn_fail(p, DR_SCOPE_LOCAL, rc, "the GPU could not unpack what was received: %s",
			dr_errno_name(rc));
		return;
	}
	dr_nn_fail(p, DR_SCOPE_PATH, rc, "the plugin's %s for data failed: %s",
		p->data.failed ? p->data.failed : "call", dr_errno_name(rc));
}

void dr_nn_data_push(struct nn_path *p)
{
	int rc = p->broken ? 0 : push(p);

	/* A plugin moves bytes when it is asked whether they have moved. */
	if (rc == 0 && !p->broken && p->base.par.sender && p->done < p->issued)
		rc = pull_one(p);
	if (rc < 0 && rc != -EAGAIN) {
		p->broken = rc;
		dr_path_wake(&p->base);
	}
}

bool dr_nn_data_pull(struct nn_path *p)
{
	unsigned n = 0;
	int rc = 0;

	while (n < PULL_MAX && (p->state == NN_UP || p->state == NN_DRAINING)) {
		rc = pull_one(p);
		if (rc <= 0)
			break;
		n++;
	}
	if (rc < 0)
		data_failed(p, rc);
	return n > 0;
}
