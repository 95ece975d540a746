/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/unpack.h"

#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const dr_nn_unpack_names[] = { "auto", "kernel", "d2d", "host", "none", NULL };

ssize_t dr_nn_unpack_bytes(const struct nn_unpack_handle *h, unsigned slot, size_t cap)
{
	const struct nn_unpack_piece *piece = h->meta->mem[slot];
	uint64_t n = h->meta->cnt[slot];
	size_t sum = 0;

	if (n > NN_UNPACK_PIECES)
		return -EPROTO;
	for (uint64_t i = 0; i < n; i++) {
		if (piece[i].dst_off > cap || piece[i].len > cap - piece[i].dst_off)
			return -EPROTO;
		sum += piece[i].len;
	}
	return sum <= cap ? (ssize_t)sum : -EPROTO;
}

ssize_t dr_nn_unpack(const struct nn_unpack_handle *h, unsigned slot, enum nn_unpack_mode mode,
	uint8_t *data, size_t cap)
{
	const struct nn_unpack_piece *piece = h->meta->mem[slot];
	ssize_t bytes = dr_nn_unpack_bytes(h, slot, cap);

	if (bytes < 0 || mode == NN_UNPACK_NONE)
		return bytes;
	for (uint64_t i = 0; i < h->meta->cnt[slot]; i++)
		memcpy(data + piece[i].dst_off, h->bounce_buf + piece[i].src_off, piece[i].len);
	return bytes;
}

/* ---- environment ---- */

static const char *const variable[] = { "NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_NSOCKS_PERTHREAD",
	"NCCL_SOCKET_NTHREADS", "NCCL_GPUDIRECTTCPX_RECV_SYNC" };

const char *dr_nn_unpack_setting(unsigned i)
{
	return i < DR_ARRAY_LEN(variable) ? variable[i] : NULL;
}

void dr_nn_unpack_settings(uint32_t *setting, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const char *text = i < DR_ARRAY_LEN(variable) ? getenv(variable[i]) : NULL;

		setting[i] = text ? (uint32_t)strtoul(text, NULL, 0) : 0;
	}
}

int dr_nn_unpack_check_env(const char *plugin, struct dr_err *e)
{
	const char *chunk = getenv(variable[0]);

	if (chunk && strtoul(chunk, NULL, 0) > 0)
		return 0;
	return dr_err_set(e, -EINVAL,
		"plugin %.40s sends pieces of NCCL_DYNAMIC_CHUNK_SIZE bytes, which is not set; set it at both ends, "
		"as NCCL does: NCCL_DYNAMIC_CHUNK_SIZE=524288",
		plugin);
}
