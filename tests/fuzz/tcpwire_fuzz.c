/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the TCP kind: what a parser accepts is what its encoder would have sent. */
#include "tests/fuzz/lib/fuzz.h"
#include "transport/tcp/tcp_wire.h"

static const char *why;

static bool taken(int rc)
{
	dr_assert(rc == 0 || (rc == -EPROTO && why && why[0]));
	return rc == 0;
}

/* What path_frame.h says of each type. */
static void fields_fit(const struct dr_path_frame *f)
{
	bool none = !f->part && !f->n && !f->skip;

	if (f->type == DR_PATH_DATA)
		dr_assert(
			f->part < DR_PARTS_MAX && !f->n && !f->skip && f->len <= DR_PATH_DATA_MAX);
	else if (f->type == DR_PATH_CREDIT)
		dr_assert(f->n >= 1 && f->n <= DR_PARTS_MAX && !f->part &&
			  f->len <= DR_PATH_SMALL_MAX);
	else
		dr_assert(none && !f->epoch && !f->seq && f->len >= 1 &&
			  f->len <= (f->type == DR_PATH_DGRAM ? DR_DGRAM_MAX : DR_CTRL_MAX));
}

static void frame(const uint8_t *b, size_t len)
{
	size_t head = DR_MIN(len, (size_t)DR_PATH_FRAME_HDR);
	static uint8_t bytes[DR_PATH_QUEUE];
	struct dr_path_queue q = { .buf = bytes };
	struct dr_part part[DR_PARTS_MAX] = { 0 };
	uint8_t again[DR_PATH_FRAME_HDR];
	struct dr_path_frame f;

	if (!taken(dr_path_frame_parse(b, head, &f, &why)))
		return;
	dr_path_frame_encode(&f, again);
	fz_same(b, head, again, DR_PATH_FRAME_HDR);
	fields_fit(&f);
	if (f.type != DR_PATH_CREDIT || len - head != f.len)
		return;
	const struct dr_credit c = dr_path_credit_read(&f, b + head);
	for (unsigned i = 0; i < c.n; i++) {
		part[i].len = c.cap[i];
		part[i].tag = c.tag[i];
	}
	dr_assert(dr_path_queue_credit(&q, f.epoch, f.seq, part, c.n, f.skip) == 0);
	fz_same(b, len, bytes, q.end);
}

FUZZ(z)
{
	unsigned what = fz_u8(z) % 6;
	uint8_t again[DR_HANDLE_MAX];
	struct tcp_rail_handle rail;
	struct dr_path_base p = { 0 };
	struct dr_path_ident path;
	struct tcp_hello hello;
	struct tcp_hello_ok ok;
	uint8_t nonce[TCP_NONCE_LEN];
	size_t len;
	uint8_t *b = fz_bytes(z, 512, &len);

	why = NULL;
	if (what == 0) {
		frame(b, len);
	} else if (what == 1 && taken(dr_tcp_hello_parse(b, len, &hello, &why))) {
		dr_assert(hello.index < DR_PATHS);
		dr_tcp_hello_encode(&hello, again);
		fz_same(b, len, again, TCP_HELLO_LEN);
	} else if (what == 2 && taken(dr_tcp_hello_ok_parse(b, len, &ok, &why))) {
		dr_tcp_hello_ok_encode(&ok, again);
		fz_same(b, len, again, TCP_HELLO_OK_LEN);
	} else if (what == 3 && taken(dr_tcp_rail_handle_parse(b, len, &rail, &why))) {
		dr_assert(rail.tcp_port && rail.udp_port);
		fz_same(b, len, again,
			(size_t)dr_tcp_rail_handle_encode(&rail, again, sizeof(again)));
	} else if (what == 4 && taken(dr_path_handle_parse(b, len, &path, &why))) {
		p.par.index = path.index;
		p.par.sender = path.sender;
		p.par.connector = path.connector;
		p.par.channel = path.channel;
		p.par.gen = path.gen;
		fz_same(b, len, again, (size_t)dr_path_handle(&p.path, again, sizeof(again)));
	} else if (what == 5 && taken(dr_tcp_challenge_parse(b, len, nonce, &why))) {
		dr_tcp_challenge_encode(nonce, again);
		fz_same(b, len, again, TCP_CHALLENGE_LEN);
	}
}
