/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of another tree that uses the installed library: two endpoints in one process, two addresses of the loopback
 * device, a few blocks. Exit status 0: the data arrived. Compiled against the installed header alone, as ISO C.
 */
#include <dualrail.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK = 1000, KEY = 1 };

/* Waits for an event of this kind. NULL: the connection ended, or nothing came for 20 s. */
static const struct dualrail_event *await(struct dualrail *d, int kind)
{
	struct pollfd pfd = { .fd = dualrail_fd(d), .events = POLLIN };
	const struct dualrail_event *ev;

	for (;;) {
		ev = dualrail_next(d);
		if (ev && ev->kind == kind)
			return ev;
		if (ev && ev->kind == DUALRAIL_CLOSED) {
			printf("the connection ended: %d %s\n", ev->code, ev->text);
			return NULL;
		}
		if (!ev && poll(&pfd, 1, 20000) == 0) {
			printf("no event %d\n", kind);
			return NULL;
		}
	}
}

static int put_all(struct dualrail_peer *peer, const struct dualrail_memory *from)
{
	struct dualrail_block block[BLOCKS];
	unsigned i;

	memset(block, 0, sizeof(block));
	for (i = 0; i < BLOCKS; i++) {
		block[i].key = KEY;
		block[i].memory = from;
		block[i].offset = block[i].remote_offset = (uint64_t)i * BLOCK;
		block[i].len = BLOCK;
	}
	return dualrail_put(peer, block, BLOCKS, "all", 3, 0, NULL);
}

static int transfer(struct dualrail *a, struct dualrail *b, struct dualrail_error *e)
{
	static unsigned char from[BLOCKS * BLOCK], to[BLOCKS * BLOCK];
	struct dualrail_memory *from_mem, *to_mem;
	unsigned char handle[DUALRAIL_HANDLE_BYTES];
	struct dualrail_peer *peer;
	const struct dualrail_event *ev;
	unsigned i;

	for (i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 31 + i / 256);
	if (dualrail_register(a, from, sizeof(from), 0, &from_mem, e) ||
		dualrail_register(b, to, sizeof(to), KEY, &to_mem, e) ||
		dualrail_listen(b, handle, e) || dualrail_connect(a, handle, &peer, e))
		return -1;
	if (!await(a, DUALRAIL_CONNECTED) || put_all(peer, from_mem) != 0)
		return -1;
	ev = await(b, DUALRAIL_NOTE);
	if (!ev || ev->len != 3 || memcmp(ev->data, "all", 3) != 0)
		return -1;
	return memcmp(from, to, sizeof(to)) == 0 ? 0 : -1;
}

int main(void)
{
	struct dualrail_options o = { .size = sizeof(o), .nics = "127.0.0.2,127.0.0.3" };
	struct dualrail_error e = { 0, "" };
	struct dualrail *a, *b;
	int rc;

	if (dualrail_open(&o, &a, &e) || dualrail_open(&o, &b, &e)) {
		printf("%s\n", e.text);
		return 1;
	}
	rc = transfer(a, b, &e);
	if (rc)
		printf("the data did not arrive: %s\n", e.text);
	if (dualrail_close(a, &e) || dualrail_close(b, &e)) {
		printf("%s\n", e.text);
		return 1;
	}
	if (rc == 0)
		printf("%d blocks arrived, dualrail %s\n", BLOCKS, dualrail_version());
	return rc ? 1 : 0;
}
