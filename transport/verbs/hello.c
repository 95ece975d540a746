/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/hello.h"

#include "base/key.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/*
 * The bytes with which rails and paths connect (sans-IO). All big endian.
 *
 *	rail handle	u32 magic | u8 version | u8 RoCE | u8 port | u16 mtu | u16 lid | 16 B gid |
 *			u32 UD queue pair | u32 its key
 *	datagram	u8 DGRAM | bytes
 *	HELLO, WELCOME	u8 type | u32 magic | u8 version | u8 flags | u8 index | u32 channel |
 *			u32 gen | u16 mtu | u16 lid | 16 B gid | u32 UD queue pair |
 *			u32 its key | u32 psn | u32 largest message |
 *			u16 control receives | u8 n | n x u32 queue pair | 16 B MAC
 *
 *	NEWS		u8 type | u32 magic | u8 version | u8 flags (1 answer) | u64 life |
 *			u64 knows | rail handle | 16 B MAC
 *
 * Queue pair 0 carries control, the last DR_VERBS_PROBE_QPS probes, those between data. Queue pair
 * i starts at psn + i * DR_VERBS_PSN_STEP. MAC: BLAKE2b over all before it, with a key of the
 * message's type that is derived from the session's token.
 */
enum {
	RAIL_MAGIC = 0x64725652,
	HELLO_MAGIC = 0x64725648,
	NEWS_MAGIC = 0x6472564e,
	VERSION = 6,
	QPS_MIN = 2 + DR_VERBS_PROBE_QPS,
	MAC_LEN = 16,
	FLAG_SENDER = 1,
	FLAG_ANSWER = 1,
};

int dr_verbs_addr_encode(const struct dr_verbs_addr *a, void *buf, size_t cap)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, cap);
	dr_wbuf_u32(&w, RAIL_MAGIC);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, a->roce);
	dr_wbuf_u8(&w, a->port);
	dr_wbuf_u16(&w, a->mtu);
	dr_wbuf_u16(&w, a->lid);
	dr_wbuf_bytes(&w, a->gid, sizeof(a->gid));
	dr_wbuf_u32(&w, a->ud_qpn);
	dr_wbuf_u32(&w, a->ud_qkey);
	return w.failed ? -EMSGSIZE : (int)w.len;
}

static bool mtu_ok(unsigned mtu)
{
	return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0;
}

int dr_verbs_addr_parse(const void *buf, size_t len, struct dr_verbs_addr *out, const char **why)
{
	struct dr_verbs_addr a = { 0 };
	uint8_t version = 0, roce = 0;
	uint32_t magic = 0;
	struct dr_rbuf r;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &roce);
	dr_rbuf_u8(&r, &a.port);
	dr_rbuf_u16(&r, &a.mtu);
	dr_rbuf_u16(&r, &a.lid);
	dr_rbuf_bytes(&r, a.gid, sizeof(a.gid));
	dr_rbuf_u32(&r, &a.ud_qpn);
	dr_rbuf_u32(&r, &a.ud_qkey);
	a.roce = roce == 1;
	*why = NULL;
	if (len >= 4 && magic != RAIL_MAGIC)
		*why = "it is not the handle of a verbs rail";
	else if (dr_rbuf_done(&r))
		*why = "its length is wrong";
	else if (version != VERSION)
		*why = "it is of another version";
	else if (roce > 1 || !mtu_ok(a.mtu) || (roce == 0 && a.lid == 0) || a.ud_qpn == 0 ||
		 a.ud_qpn > 0xffffff)
		*why = "its fields are invalid";
	if (*why)
		return -EPROTO;
	*out = a;
	return 0;
}

/* data begins with the type, and each type has a key of its own. */
static void mac(
	const void *data, size_t len, const uint8_t token[DR_TOKEN_LEN], uint8_t out[MAC_LEN])
{
	uint8_t type = *(const uint8_t *)data, key[DR_KEY_LEN];

	dr_key_derive(token,
		type == DR_VERBS_HELLO	   ? DR_KEY_VERBS_HELLO
		: type == DR_VERBS_WELCOME ? DR_KEY_VERBS_WELCOME
					   : DR_KEY_VERBS_NEWS,
		key);
	int rc = crypto_generichash(out, MAC_LEN, data, len, key, DR_KEY_LEN);
	dr_assert(rc == 0);
}

size_t dr_verbs_hello_encode(const struct dr_verbs_hello *h, const uint8_t key[DR_TOKEN_LEN],
	uint8_t buf[DR_VERBS_HELLO_MAX])
{
	uint8_t tag[MAC_LEN];
	struct dr_wbuf w;

	dr_assert(h->n >= QPS_MIN && h->n <= DR_VERBS_SHARED_QPS);
	dr_wbuf_init(&w, buf, DR_VERBS_HELLO_MAX);
	dr_wbuf_u8(&w, h->type);
	dr_wbuf_u32(&w, HELLO_MAGIC);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, h->sender ? FLAG_SENDER : 0);
	dr_wbuf_u8(&w, h->index);
	dr_wbuf_u32(&w, h->channel);
	dr_wbuf_u32(&w, h->gen);
	dr_wbuf_u16(&w, h->mtu);
	dr_wbuf_u16(&w, h->lid);
	dr_wbuf_bytes(&w, h->gid, sizeof(h->gid));
	dr_wbuf_u32(&w, h->ud_qpn);
	dr_wbuf_u32(&w, h->ud_qkey);
	dr_wbuf_u32(&w, h->psn);
	dr_wbuf_u32(&w, h->msg_max);
	dr_wbuf_u16(&w, h->ctrl_recvs);
	dr_wbuf_u8(&w, h->n);
	for (unsigned i = 0; i < h->n; i++)
		dr_wbuf_u32(&w, h->qpn[i]);
	mac(buf, w.len, key, tag);
	dr_wbuf_bytes(&w, tag, sizeof(tag));
	dr_assert(!w.failed);
	return w.len;
}

static const char *invalid(const struct dr_verbs_hello *h)
{
	if (!mtu_ok(h->mtu) || h->ud_qpn == 0 || h->ud_qpn > 0xffffff ||
		h->psn > DR_VERBS_PSN_MASK || h->msg_max < 4096 || h->ctrl_recvs < 4)
		return "its fields are invalid";
	for (unsigned i = 0; i < h->n; i++)
		if (h->qpn[i] == 0 || h->qpn[i] > 0xffffff)
			return "its queue pairs are invalid";
	return NULL;
}

int dr_verbs_hello_parse(const void *buf, size_t len, const uint8_t key[DR_TOKEN_LEN],
	struct dr_verbs_hello *out, const char **why)
{
	uint8_t version = 0, flags = 0, want[MAC_LEN], got[MAC_LEN] = { 0 };
	struct dr_verbs_hello h = { 0 };
	uint32_t magic = 0;
	struct dr_rbuf r;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u8(&r, &h.type);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u8(&r, &h.index);
	dr_rbuf_u32(&r, &h.channel);
	dr_rbuf_u32(&r, &h.gen);
	dr_rbuf_u16(&r, &h.mtu);
	dr_rbuf_u16(&r, &h.lid);
	dr_rbuf_bytes(&r, h.gid, sizeof(h.gid));
	dr_rbuf_u32(&r, &h.ud_qpn);
	dr_rbuf_u32(&r, &h.ud_qkey);
	dr_rbuf_u32(&r, &h.psn);
	dr_rbuf_u32(&r, &h.msg_max);
	dr_rbuf_u16(&r, &h.ctrl_recvs);
	dr_rbuf_u8(&r, &h.n);
	*why = "it is not a HELLO of a verbs path of this version";
	if (r.failed || magic != HELLO_MAGIC || version != VERSION || flags > FLAG_SENDER ||
		(h.type != DR_VERBS_HELLO && h.type != DR_VERBS_WELCOME) || h.n < QPS_MIN ||
		h.n > DR_VERBS_SHARED_QPS)
		return -EPROTO;
	for (unsigned i = 0; i < h.n; i++)
		dr_rbuf_u32(&r, &h.qpn[i]);
	dr_rbuf_bytes(&r, got, sizeof(got));
	if (dr_rbuf_done(&r)) {
		*why = "its length is wrong";
		return -EPROTO;
	}
	mac(buf, len - MAC_LEN, key, want);
	if (sodium_memcmp(want, got, MAC_LEN) != 0) {
		*why = "wrong token (it belongs to another session)";
		return -EACCES;
	}
	h.sender = flags & FLAG_SENDER;
	*why = invalid(&h);
	if (*why)
		return -EPROTO;
	*out = h;
	return 0;
}

size_t dr_verbs_news_encode(const struct dr_verbs_news *n, const uint8_t key[DR_TOKEN_LEN],
	uint8_t buf[DR_VERBS_NEWS_MAX])
{
	uint8_t addr[DR_HANDLE_MAX], tag[MAC_LEN];
	int len = dr_verbs_addr_encode(&n->addr, addr, sizeof(addr));
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, DR_VERBS_NEWS_MAX);
	dr_wbuf_u8(&w, DR_VERBS_NEWS);
	dr_wbuf_u32(&w, NEWS_MAGIC);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, n->answer ? FLAG_ANSWER : 0);
	dr_wbuf_u64(&w, n->life);
	dr_wbuf_u64(&w, n->knows);
	dr_wbuf_bytes(&w, addr, (size_t)len);
	mac(buf, w.len, key, tag);
	dr_wbuf_bytes(&w, tag, sizeof(tag));
	dr_assert(!w.failed);
	return w.len;
}

int dr_verbs_news_parse(const void *buf, size_t len, const uint8_t key[DR_TOKEN_LEN],
	struct dr_verbs_news *out, const char **why)
{
	enum { HEAD = 23 };
	uint8_t type = 0, version = 0, flags = 0, want[MAC_LEN];
	struct dr_verbs_news n = { 0 };
	const uint8_t *bytes = buf;
	uint32_t magic = 0;
	struct dr_rbuf r;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u8(&r, &type);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u64(&r, &n.life);
	dr_rbuf_u64(&r, &n.knows);
	*why = "it is not a NEWS message of a verbs rail of this version";
	if (r.failed || len < HEAD + MAC_LEN || type != DR_VERBS_NEWS || magic != NEWS_MAGIC ||
		version != VERSION || flags > FLAG_ANSWER)
		return -EPROTO;
	mac(buf, len - MAC_LEN, key, want);
	if (sodium_memcmp(want, bytes + len - MAC_LEN, MAC_LEN) != 0) {
		*why = "wrong token (it belongs to another session)";
		return -EACCES;
	}
	n.answer = flags & FLAG_ANSWER;
	if (dr_verbs_addr_parse(bytes + HEAD, len - HEAD - MAC_LEN, &n.addr, why))
		return -EPROTO;
	*why = NULL;
	*out = n;
	return 0;
}
