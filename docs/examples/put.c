/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves 64 MiB to another process. One runs "put HANDLE receive", then the other one "put HANDLE send";
 * HANDLE is a file that both see.
 */
#include <dualrail.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEN = 64 << 20, KEY = 7 };

static void check(int rc, const struct dualrail_error *e)
{
	if (rc < 0) {
		fprintf(stderr, "put: %s\n", e->text);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct dualrail_event *v = NULL;
	struct dualrail_error e = { 0 };
	struct dualrail_memory *memory;
	struct dualrail_peer *peer;
	uint8_t handle[DUALRAIL_HANDLE_BYTES];
	struct dualrail *d;
	int sends = argc == 3 && strcmp(argv[2], "send") == 0, done = 0;
	char *bytes = calloc(1, LEN);
	FILE *f = argc == 3 ? fopen(argv[1], sends ? "r" : "wx") : NULL;

	if (!f || !bytes)
		return 1;
	check(dualrail_open(NULL, &d, &e), &e);
	check(dualrail_register(d, bytes, LEN, KEY, &memory, &e), &e);
	if (sends) {
		if (fread(handle, sizeof(handle), 1, f) != 1)
			return 1;
		check(dualrail_connect(d, handle, &peer, &e), &e);
	} else {
		check(dualrail_listen(d, handle, &e), &e);
		fwrite(handle, sizeof(handle), 1, f);
	}
	fclose(f);
	while (!done) {
		struct pollfd p = { .fd = dualrail_fd(d), .events = POLLIN };

		if (!(v = dualrail_next(d))) {
			poll(&p, 1, -1);
			continue;
		}
		if (v->kind == DUALRAIL_SWITCHED)
			printf("lane %u switched: %s\n", v->lane, v->text);
		if (v->kind == DUALRAIL_CONNECTED && sends) {
			struct dualrail_block b = { KEY, 0, memory, 0, LEN };
			struct dualrail_put *put;

			check(dualrail_put(v->peer, &b, 1, "all", 3, 0, &put), &e);
		}
		if (v->kind == DUALRAIL_NOTE) /* the blocks before it are in place */
			printf("received %d bytes: %.*s\n", LEN, (int)v->len,
				(const char *)v->data);
		done = v->kind == DUALRAIL_PUT_DONE || v->kind == DUALRAIL_NOTE ||
		       v->kind == DUALRAIL_CLOSED;
	}
	check(dualrail_close(d, &e), &e);
	return 0;
}
