/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/wire.h"

#include "base/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <string.h>

enum {
	MAGIC_RAIL = 0x44524e52,  /* "DRNR" */
	MAGIC_HELLO = 0x44524e48, /* "DRNH" */
	VERSION = 1,
	VERSION_RAIL = 4,
	IPV4 = 4,
	IPV6 = 6,
};

static int bad(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EPROTO;
}

static void put_address(struct dr_wbuf *w, const struct sockaddr_storage *ss)
{
	uint8_t addr[16] = { 0 };

	dr_wbuf_u16(w, dr_host_bytes(ss, addr) == sizeof(addr) ? IPV6 : IPV4);
	dr_wbuf_u16(w, dr_sa_port(ss));
	dr_wbuf_bytes(w, addr, sizeof(addr));
}

static bool get_address(struct dr_rbuf *r, struct sockaddr_storage *out)
{
	static const uint8_t zero[12];
	uint16_t family = 0, port = 0;
	uint8_t addr[16] = { 0 };

	dr_rbuf_u16(r, &family);
	dr_rbuf_u16(r, &port);
	dr_rbuf_bytes(r, addr, sizeof(addr));
	dr_path_host(family == IPV6 ? AF_INET6 : AF_INET, addr, out);
	dr_sa_set_port(out, port);
	return port && (family == IPV6 || (family == IPV4 && !memcmp(addr + 4, zero, 12)));
}

int dr_nn_rail_handle_encode(const struct nn_rail_handle *h, void *buf, size_t cap)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, cap);
	dr_wbuf_u32(&w, MAGIC_RAIL);
	dr_wbuf_u16(&w, VERSION_RAIL);
	dr_wbuf_u16(&w, h->plugin);
	dr_wbuf_bytes(&w, h->nonce, sizeof(h->nonce));
	put_address(&w, &h->at);
	for (int i = 0; i < NN_SETTINGS; i++)
		dr_wbuf_u32(&w, h->setting[i]);
	return w.failed ? -EMSGSIZE : (int)w.len;
}

int dr_nn_rail_handle_parse(
	const void *buf, size_t len, struct nn_rail_handle *out, const char **why)
{
	struct dr_rbuf r;
	uint32_t magic = 0;
	uint16_t version = 0;
	bool usable;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u16(&r, &version);
	dr_rbuf_u16(&r, &out->plugin);
	dr_rbuf_bytes(&r, out->nonce, sizeof(out->nonce));
	usable = get_address(&r, &out->at);
	for (int i = 0; i < NN_SETTINGS; i++)
		dr_rbuf_u32(&r, &out->setting[i]);
	if (len >= 6 && magic == MAGIC_RAIL && version != VERSION_RAIL)
		return bad(why, "another version of the format; use the same release at both ends");
	if (dr_rbuf_done(&r))
		return bad(why, "wrong length");
	if (magic != MAGIC_RAIL)
		return bad(why, "not dualrail's magic number");
	return usable ? 0 : bad(why, "it has no usable address");
}

/* ---- HELLO ---- */

/* Of a HELLO without its MAC; or of a whole HELLO and the handle of the reply. */
static void mac_of(const uint8_t *hello, const uint8_t *handle, const struct nn_hello_key *k,
	uint8_t out[DR_MAC_LEN])
{
	crypto_generichash_state s;
	int rc = crypto_generichash_init(&s, k->key, DR_KEY_LEN, DR_MAC_LEN);

	dr_assert(rc == 0);
	crypto_generichash_update(&s, hello, handle ? NN_HELLO_LEN : NN_HELLO_PLAIN);
	if (handle)
		crypto_generichash_update(&s, handle, NCCL_NET_HANDLE_BYTES);
	crypto_generichash_update(&s, k->dialler, NN_NONCE_LEN);
	crypto_generichash_update(&s, k->listener, NN_NONCE_LEN);
	rc = crypto_generichash_final(&s, out, DR_MAC_LEN);
	dr_assert(rc == 0);
}

void dr_nn_hello_encode(
	const struct nn_hello *h, const struct nn_hello_key *k, uint8_t out[NN_HELLO_LEN])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, NN_HELLO_PLAIN);
	dr_wbuf_u32(&w, MAGIC_HELLO);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, (uint8_t)h->role);
	dr_path_ident_put(&w, &h->id);
	dr_assert(!w.failed && w.len == NN_HELLO_PLAIN);
	mac_of(out, NULL, k, out + NN_HELLO_PLAIN);
}

int dr_nn_hello_parse(const void *buf, size_t len, const struct nn_hello_key *k,
	struct nn_hello *out, const char **why)
{
	uint8_t version = 0, role = 0, mac[DR_MAC_LEN] = { 0 }, want[DR_MAC_LEN];
	struct dr_rbuf r;
	uint32_t magic = 0;

	*out = (struct nn_hello){ 0 };
	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &role);
	bool fits = dr_path_ident_get(&r, &out->id);
	dr_rbuf_bytes(&r, mac, sizeof(mac));
	if (dr_rbuf_done(&r) || magic != MAGIC_HELLO || version != VERSION)
		return bad(why, "it is no HELLO of this release");
	mac_of(buf, NULL, k, want);
	if (sodium_memcmp(want, mac, DR_MAC_LEN) != 0) {
		(void)bad(why, "its MAC is wrong");
		return -EPERM;
	}
	if (role >= NN_ROLES || !fits)
		return bad(why, "its members are out of range");
	out->role = (enum nn_role)role;
	/* Data flows away from the end that dials. */
	return role == NN_DATA && !out->id.sender ? bad(why, "the receiver dialled the data comm")
						  : 0;
}

/* ---- reply ---- */

void dr_nn_reply_encode(const uint8_t hello[NN_HELLO_LEN],
	const uint8_t handle[NCCL_NET_HANDLE_BYTES], const struct nn_hello_key *k,
	uint8_t out[NN_REPLY_LEN])
{
	memcpy(out, handle, NCCL_NET_HANDLE_BYTES);
	mac_of(hello, handle, k, out + NCCL_NET_HANDLE_BYTES);
}

int dr_nn_reply_parse(const uint8_t reply[NN_REPLY_LEN], const uint8_t hello[NN_HELLO_LEN],
	const struct nn_hello_key *k, uint8_t handle[NCCL_NET_HANDLE_BYTES])
{
	uint8_t want[DR_MAC_LEN];

	mac_of(hello, reply, k, want);
	if (sodium_memcmp(want, reply + NCCL_NET_HANDLE_BYTES, DR_MAC_LEN) != 0)
		return -EPERM;
	memcpy(handle, reply, NCCL_NET_HANDLE_BYTES);
	return 0;
}
