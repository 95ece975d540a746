/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/net/bugs.h"

/* The personalities, and what the environment says. */

static const struct fn_kind kinds[] = {
	{ .word = "socket",
		.name = "FakeSocket",
		.ifname = "FAKENET_IFNAME",
		.version_first = FN_VERSION_FIRST,
		.version_last = FN_VERSION_LAST,
		.requests = FN_REQUESTS_MAX,
		.group = FN_GROUP_MAX,
		.message_max = FN_MESSAGE_MAX,
		.chunk = FN_MESSAGE_MAX,
		.single = true },
	{ .word = "pieces",
		.name = "GPUDirectTCPX_v7",
		.ifname = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
		.version_first = 7,
		.version_last = 7,
		.requests = FN_SLOTS,
		.group = 1,
		.message_max = FN_PIECES_MAX,
		.cuda = true,
		.pieces = true,
		.in_order = true },
	{ .word = "direct",
		.name = "FakeDirect",
		.ifname = "FAKENET_IFNAME",
		.version_first = 7,
		.version_last = FN_VERSION_LAST,
		.requests = FN_SLOTS,
		.group = 1,
		.message_max = FN_MESSAGE_MAX,
		.chunk = 512 << 10,
		.cuda = true },
	{ .word = "fast",
		.name = "FakeFast",
		.ifname = "FAKENET_IFNAME",
		.version_first = 6,
		.version_last = 6,
		.requests = FN_SLOTS,
		.group = 1,
		.message_max = FN_MESSAGE_MAX,
		.chunk = 128 << 10,
		.in_order = true,
		.waits = true },
};

const struct fn_kind *fn_kind;
struct fn_settings fn_settings;

/* FAKENET_FILE: its lines NAME=VALUE become environment. */
static void read_file(void)
{
	const char *path = getenv("FAKENET_FILE");
	FILE *f = path ? fopen(path, "re") : NULL;
	char line[256], *value;

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = '\0';
		(void)setenv(line, value, 1);
	}
	if (f)
		(void)fclose(f);
}

void fn_choose(void)
{
	const char *word;

	read_file();
	word = getenv("FAKENET");
	fn_kind = word && *word ? NULL : &kinds[0];
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !fn_kind; i++)
		if (strcmp(word, kinds[i].word) == 0)
			fn_kind = &kinds[i];
	if (!fn_kind)
		fn_misuse("FAKENET=%s is none of socket, pieces, direct and fast", word);
	fn_bugs_read();
}

static unsigned long number(const char *name, unsigned long unset)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 0) : unset;
}

/* Whether the variable has the word; ok gets false if it has neither and is not empty. */
static bool has(const char *name, const char *word, const char *other, bool *ok)
{
	const char *text = getenv(name);

	if (!text || !*text || strcmp(text, other) == 0)
		return false;
	if (strcmp(text, word) == 0)
		return true;
	fn_log(FN_LEVEL_WARN, "%s=%s is neither %s nor %s", name, text, other, word);
	*ok = false;
	return false;
}

enum fn_result fn_settings_read(void)
{
	unsigned long socks =
		number("NCCL_NSOCKS_PERTHREAD", 1) * number("NCCL_SOCKET_NTHREADS", 1);
	struct fn_settings *s = &fn_settings;
	const char *dmabuf = getenv("FAKENET_DMABUF");
	bool direct = fn_kind->cuda && !fn_kind->pieces, ok = true;

	s->cuda = fn_kind->cuda && has("FAKENET_MEMORY", "cuda", "host", &ok);
	s->dmabuf_only = direct && dmabuf && strcmp(dmabuf, "only") == 0;
	s->dmabuf = s->dmabuf_only || (direct && number("FAKENET_DMABUF", 0));
	s->ordered = number("FAKENET_ORDERED", 0) != 0;
	s->chunk = fn_kind->chunk;
	s->n_socks = 1;
	if (!fn_kind->single) {
		s->chunk = (uint32_t)number("NCCL_DYNAMIC_CHUNK_SIZE", s->chunk);
		s->n_socks = (unsigned)socks;
		if (socks == 0 || socks > FN_SOCKETS_MAX) {
			fn_log(FN_LEVEL_WARN, "%lu data connections, 1 to %d are possible", socks,
				FN_SOCKETS_MAX);
			ok = false;
		}
	}
	if (fn_kind->pieces) {
		s->recv_sync = number("NCCL_GPUDIRECTTCPX_RECV_SYNC", 0) != 0;
		s->seed = number("FAKENET_SEED", 1);
		s->pages = (unsigned)number("FAKENET_PAGES", s->cuda ? FN_PAGES_GPU : FN_PAGES_MAX);
		if (s->pages < FN_PAGES_MIN || s->pages > FN_PAGES_MAX) {
			fn_log(FN_LEVEL_WARN, "FAKENET_PAGES=%u, %d to %d are possible", s->pages,
				FN_PAGES_MIN, FN_PAGES_MAX);
			ok = false;
		}
	}
	return ok ? FN_OK : FN_INTERNAL_ERROR;
}
