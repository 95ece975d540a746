/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control frames. They are queued as bytes; a message to the peer takes as many whole frames as it has room for. The peer
 * has NN_CTRL_REQUESTS receives posted, and no more messages than that are outstanding here, so that each finds one.
 */
#include "transport/ncclnet/net_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

enum { SLOTS_BYTES = NN_CTRL_REQUESTS * NN_CTRL_MESSAGE };

int dr_nn_ctrl_init(struct nn_path *p)
{
	p->ctrl.buf = dr_calloc(1, DR_PATH_QUEUE);
	p->slots = dr_pages_alloc(2 * (size_t)SLOTS_BYTES);
	return p->ctrl.buf && p->slots ? 0 : -ENOMEM;
}

void dr_nn_ctrl_fini(struct nn_path *p)
{
	dr_free(p->ctrl.buf);
	if (p->slots)
		dr_pages_free(p->slots, 2 * (size_t)SLOTS_BYTES);
}

static struct nn_mem slots_of(const struct nn_path *p, const struct nn_queue *l)
{
	return (struct nn_mem){ .base = p->slots + (l == &p->in ? SLOTS_BYTES : 0),
		.len = SLOTS_BYTES };
}

/* Of the i-th message. */
static uint8_t *slot_at(const struct nn_mem *slots, unsigned i)
{
	return (uint8_t *)slots->base + (size_t)(i % NN_CTRL_REQUESTS) * NN_CTRL_MESSAGE;
}

/* ---- to the peer ---- */

int dr_nn_post_ctrl(struct dr_path *bp, const void *frame, size_t len)
{
	struct nn_path *p = nn_path(bp);
	int err = dr_nn_may_post(p);

	return err ? err : dr_path_queue_bytes(&p->ctrl, DR_PATH_CTRL, frame, len);
}

/* DATA says the length of a part that is on the data comm. */
static size_t frame_bytes(const struct dr_path_frame *f)
{
	return DR_PATH_FRAME_HDR + (f->type == DR_PATH_DATA ? 0 : f->len);
}

/* Bytes of the whole frames from `at` on that a message has room for. */
static size_t message_bytes(const struct nn_path *p)
{
	size_t n = 0;

	while (p->ctrl.at + n < p->ctrl.flushed) {
		struct dr_path_frame f;
		int rc = dr_path_frame_parse(
			p->ctrl.buf + p->ctrl.at + n, DR_PATH_FRAME_HDR, &f, NULL);

		dr_assert(rc == 0);
		if (n + frame_bytes(&f) > NN_CTRL_MESSAGE)
			break;
		n += frame_bytes(&f);
	}
	return n;
}

static int push(struct nn_path *p)
{
	struct nn_mem mem = slots_of(p, &p->out);
	size_t size = 0;
	int rc;

	while ((rc = dr_nn_queue_test(&p->out, &size)) > 0)
		;
	while (rc == 0 && p->ctrl.at < p->ctrl.flushed &&
		nn_queue_used(&p->out) < NN_CTRL_REQUESTS) {
		uint8_t *slot = slot_at(&mem, p->out.tail);

		size = message_bytes(p);
		memcpy(slot, p->ctrl.buf + p->ctrl.at, size);
		rc = dr_nn_queue_post(&p->out, &mem, slot, size, p->base.now_ns);
		if (rc)
			break;
		dr_path_queue_took(&p->ctrl, size);
		p->base.st.tx_wire += size;
		dr_path_sent(&p->base.path, p->base.now_ns);
	}
	return rc == -EAGAIN ? 0 : rc;
}

void dr_nn_ctrl_push(struct nn_path *p)
{
	size_t size;
	int rc = p->broken ? 0 : push(p);

	/* A plugin moves bytes when it is asked whether they have moved. */
	if (rc == 0 && !p->broken)
		rc = dr_nn_queue_test(&p->out, &size);
	if (rc < 0) {
		p->broken = rc;
		dr_path_wake(&p->base);
	}
}

/* ---- from the peer ---- */

static int listen_once(struct nn_path *p)
{
	struct nn_mem mem = slots_of(p, &p->in);
	uint8_t *slot = slot_at(&mem, p->in.tail);

	if (p->in.sizeless)
		memset(slot, 0, NN_CTRL_MESSAGE);
	return dr_nn_queue_post(&p->in, &mem, slot, NN_CTRL_MESSAGE, p->base.now_ns);
}

static void refused(struct nn_path *p, int rc)
{
	dr_nn_fail(p, DR_SCOPE_PATH, rc, "the plugin's %s for control messages failed: %s",
		p->in.failed ? p->in.failed : "irecv", dr_errno_name(rc));
}

void dr_nn_ctrl_listen(struct nn_path *p)
{
	int rc = 0;

	while (rc == 0 && nn_queue_used(&p->in) < DR_MIN(p->in.limit, (unsigned)NN_CTRL_REQUESTS))
		rc = listen_once(p);
	if (rc && rc != -EAGAIN)
		refused(p, rc);
}

static void one_frame(struct nn_path *p, const struct dr_path_frame *f, const uint8_t *payload)
{
	struct dr_event ev = { .kind = DR_EV_CTRL, .data = payload, .len = f->len };

	if (f->type == DR_PATH_CTRL)
		dr_path_emit(&p->base, &ev);
	else if (f->type == DR_PATH_DGRAM)
		dr_nn_rail_dgram_came(nn_path_rail(p), payload, f->len, p->base.now_ns);
	else if (f->type == DR_PATH_CREDIT && p->base.par.sender)
		dr_nn_credited(p, f, payload);
	else if (f->type == DR_PATH_DATA && p->in.sizeless && !p->base.par.sender)
		dr_nn_sized(p, f->len);
	else
		dr_nn_fail(p, DR_SCOPE_PATH, -EPROTO, "the peer sent a frame of type %u", f->type);
}

static void message(struct nn_path *p, const uint8_t *bytes, size_t len)
{
	const char *why = "it ends within a frame";
	struct dr_path_frame f;
	size_t at = 0;

	/* Without a size it ends with zeros: there is no type 0. */
	while (p->state == NN_UP && at < len && !(p->in.sizeless && bytes[at] == 0)) {
		if (len - at < DR_PATH_FRAME_HDR ||
			dr_path_frame_parse(bytes + at, DR_PATH_FRAME_HDR, &f, &why) ||
			frame_bytes(&f) > len - at) {
			dr_nn_fail(p, DR_SCOPE_PATH, -EPROTO,
				"malformed control message from the peer: %s", why);
			return;
		}
		one_frame(p, &f, bytes + at + DR_PATH_FRAME_HDR);
		at += frame_bytes(&f);
	}
}

bool dr_nn_ctrl_pull(struct nn_path *p)
{
	const struct nn_mem mem = slots_of(p, &p->in);
	uint8_t bytes[NN_CTRL_MESSAGE];
	unsigned n;

	for (n = 0; n < NN_CTRL_REQUESTS && p->state == NN_UP; n++) {
		const uint8_t *slot = slot_at(&mem, p->in.head);
		size_t size = 0;
		int rc = dr_nn_queue_test(&p->in, &size);

		if (rc == 0)
			break;
		if (rc > 0 && size > NN_CTRL_MESSAGE)
			rc = -EPROTO;
		if (rc < 0) {
			refused(p, rc);
			break;
		}
		/* The slot is posted again before the owner is told: it may close the path. */
		memcpy(bytes, slot, size);
		p->base.st.rx_wire += size;
		dr_path_heard(&p->base.path, p->base.now_ns);
		dr_nn_ctrl_listen(p);
		message(p, bytes, size);
	}
	if (p->state == NN_UP)
		dr_nn_ctrl_listen(p); /* those that the plugin had no request for */
	return n > 0;
}
