/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves blocks from one process to another with libdualrail, again and again, until connections were lost under the
 * data so many times as --faults says. README.md explains it.
 *
 *	blocks receive --nics LIST --handle FILE
 *	blocks send --nics LIST --handle FILE [--blocks N] [--bytes B] [--seed S] [--faults N] [--cut]
 *
 * The receiver registers each block under a key of its own and writes its handle to FILE. The sender puts all keys in a
 * round and adds a note. The receiver compares every byte of every block, and answers with a note.
 */
#include <dualrail.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS_MAX = 4096, WAIT_MS = 60000 };

struct options {
	const char *nics, *handle;
	uint32_t blocks, bytes, faults;
	uint64_t seed;
	int cut;
};

/* What the sender says about a round, in the note. Both ends have one byte order here. */
struct note {
	uint64_t seed, round;
	uint32_t blocks, bytes;
	uint32_t last;	/* no other round follows */
	uint32_t wrong; /* of the receiver: blocks with a wrong byte */
};

struct blocks {
	struct dualrail *d;
	struct dualrail_peer *peer;
	uint8_t *memory;
	struct dualrail_memory *reg[BLOCKS_MAX];
	unsigned switches;
	int64_t longest_gap_ns;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "blocks: %s: %s\n", what, why);
	exit(1);
}

/* The content of a block of a round; splitmix64. */
static uint64_t word(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t block_seed(const struct note *n, uint32_t block)
{
	return word(n->seed ^ word(n->round ^ word(block)));
}

static void fill(uint8_t *at, uint32_t bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t v = word(seed + i);

		memcpy(at + i, &v, 8);
	}
}

static int right(const uint8_t *at, uint32_t bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t v = word(seed + i);

		if (memcmp(at + i, &v, 8) != 0)
			return 0;
	}
	return 1;
}

/* ---- events ---- */

static void note_switch(struct blocks *b, const struct dualrail_event *ev)
{
	printf("lane %u switched: %s%s, gap %.3f ms\n", ev->lane, ev->text,
		ev->code ? " (planned)" : "", ev->gap_ns < 0 ? 0.0 : (double)ev->gap_ns / 1e6);
	fflush(stdout);
	if (ev->code == 0)
		b->switches++;
	if (ev->code == 0 && ev->gap_ns > b->longest_gap_ns)
		b->longest_gap_ns = ev->gap_ns;
}

/* The next event of this kind. What others say is printed. */
static const struct dualrail_event *await(struct blocks *b, int kind)
{
	struct pollfd pfd = { .fd = dualrail_fd(b->d), .events = POLLIN };

	for (;;) {
		const struct dualrail_event *ev = dualrail_next(b->d);

		if (!ev && poll(&pfd, 1, WAIT_MS) == 0)
			die("nothing happens", "no event for a minute");
		if (!ev)
			continue;
		if (ev->kind == DUALRAIL_SWITCHED)
			note_switch(b, ev);
		if (ev->kind == DUALRAIL_HEALED || ev->kind == DUALRAIL_UNPROTECTED) {
			printf("lane %u %s\n", ev->lane,
				ev->kind == DUALRAIL_HEALED ? "healed" : "unprotected");
			fflush(stdout);
		}
		if (ev->kind == kind)
			return ev;
		if (ev->kind == DUALRAIL_CLOSED)
			die("the connection ended", ev->text);
	}
}

/* ---- both ends ---- */

static void open_endpoint(struct blocks *b, const struct options *o)
{
	const struct dualrail_options opts = {
		.size = sizeof(opts), .nics = o->nics, .hold_down_ms = 100
	};
	struct dualrail_error e;

	if (dualrail_open(&opts, &b->d, &e))
		die("open", e.text);
}

/* Block i has the key i + 1 at the receiver, and none at the sender. */
static void register_blocks(struct blocks *b, uint32_t n, uint32_t bytes, int keys)
{
	struct dualrail_error e;

	b->memory = calloc(n, bytes);
	if (!b->memory)
		die("memory", strerror(errno));
	for (uint32_t i = 0; i < n; i++)
		if (dualrail_register(b->d, b->memory + (size_t)i * bytes, bytes, keys ? i + 1 : 0,
			    &b->reg[i], &e))
			die("register", e.text);
}

static void close_endpoint(struct blocks *b)
{
	struct dualrail_error e;

	if (dualrail_close(b->d, &e))
		die("close", e.text); /* b->memory must stay allocated */
	free(b->memory);
}

/* ---- receiver ---- */

/* The handle is a secret: for this user only, and there as a whole or not at all. */
static void write_handle(const char *path, const uint8_t *handle)
{
	char part[4096];
	int fd;

	snprintf(part, sizeof(part), "%s.part", path);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, handle, DUALRAIL_HANDLE_BYTES) != DUALRAIL_HANDLE_BYTES ||
		close(fd) != 0 || rename(part, path) != 0)
		die(path, strerror(errno));
}

static uint32_t count_wrong(const struct blocks *b, const struct note *n)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < n->blocks; i++)
		wrong += !right(b->memory + (size_t)i * n->bytes, n->bytes, block_seed(n, i));
	return wrong;
}

static int receive(struct blocks *b, const struct options *o)
{
	uint8_t handle[DUALRAIL_HANDLE_BYTES];
	struct dualrail_error e;
	struct note n;
	uint64_t compared = 0, wrong = 0;

	register_blocks(b, o->blocks, o->bytes, 1);
	if (dualrail_listen(b->d, handle, &e))
		die("listen", e.text);
	write_handle(o->handle, handle);
	b->peer = await(b, DUALRAIL_CONNECTED)->peer;
	do {
		const struct dualrail_event *ev = await(b, DUALRAIL_NOTE);

		if (ev->len != sizeof(n))
			die("note", "of another program");
		memcpy(&n, ev->data, sizeof(n));
		if (n.blocks > o->blocks || n.bytes != o->bytes)
			die("note", "the ends have other numbers of blocks or bytes");
		n.wrong = count_wrong(b, &n);
		compared += n.blocks;
		wrong += n.wrong;
		if (dualrail_put(b->peer, NULL, 0, &n, sizeof(n), 0, NULL))
			die("answer", "the connection ended");
	} while (!n.last);
	await(b, DUALRAIL_CLOSED);
	printf("%" PRIu64 " blocks compared, %" PRIu64 " wrong, %u switches, longest gap %.3f ms\n",
		compared, wrong, b->switches, (double)b->longest_gap_ns / 1e6);
	return wrong > 0;
}

/* ---- sender ---- */

static void read_handle(const char *path, uint8_t *handle)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
	struct stat st;
	int fd;

	for (int i = 0; (fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) < 0;
		i++) {
		if (errno != ENOENT || i == WAIT_MS / 10)
			die(path, strerror(errno));
		nanosleep(&pause, NULL); /* the receiver is not there yet */
	}
	if (fstat(fd, &st) || st.st_uid != geteuid()) /* the blocks would go to another user */
		die(path, "belongs to another user");
	if (read(fd, handle, DUALRAIL_HANDLE_BYTES) != DUALRAIL_HANDLE_BYTES)
		die(path, "too short for a handle");
	close(fd);
}

static struct dualrail_stats stats(const struct blocks *b)
{
	struct dualrail_stats s = { .size = sizeof(s) };

	if (dualrail_get_stats(b->peer, &s))
		die("statistics", "not available");
	return s;
}

/* Aborts connections when a quarter of the round has arrived. */
static void cut(struct blocks *b, const struct options *o, uint64_t sent, uint32_t nic)
{
	uint64_t quarter = sent + (uint64_t)o->blocks * o->bytes / 4;
	struct dualrail_stats s = stats(b);

	while (s.in_flight > 0 && s.sent_bytes < quarter)
		s = stats(b);
	if (s.in_flight > 0)
		dualrail_cut(b->peer, nic);
}

static void put_round(
	struct blocks *b, const struct options *o, const struct note *n, struct note *answer)
{
	static struct dualrail_block list[BLOCKS_MAX];
	uint64_t sent = stats(b).sent_bytes;
	struct dualrail_put *put;
	int rc;

	for (uint32_t i = 0; i < n->blocks; i++) {
		fill(b->memory + (size_t)i * n->bytes, n->bytes, block_seed(n, i));
		list[i] = (struct dualrail_block){
			.key = i + 1, .memory = b->reg[i], .len = n->bytes
		};
	}
	rc = dualrail_put(b->peer, list, n->blocks, n, sizeof(*n), n->round, &put);
	if (rc != 0)
		die("put", strerror(-rc));
	if (o->cut && !n->last)
		cut(b, o, sent, n->round % stats(b).nics);
	/* The receiver may answer before it is known here that its note is done. */
	memcpy(answer, await(b, DUALRAIL_NOTE)->data, sizeof(*answer));
	while (dualrail_test(put) == 0)
		await(b, DUALRAIL_PUT_DONE);
	if (dualrail_test(put) < 0)
		die("put", strerror(-dualrail_test(put)));
	dualrail_release(put);
}

static int send_rounds(struct blocks *b, const struct options *o)
{
	struct note n = { .seed = o->seed, .blocks = o->blocks, .bytes = o->bytes }, answer;
	uint8_t handle[DUALRAIL_HANDLE_BYTES];
	uint32_t faults = 0, wrong = 0;
	uint64_t replayed = 0;
	struct dualrail_error e;

	register_blocks(b, o->blocks, o->bytes, 0);
	read_handle(o->handle, handle);
	if (dualrail_connect(b->d, handle, &b->peer, &e))
		die("connect", e.text);
	await(b, DUALRAIL_CONNECTED);
	for (;; n.round++) {
		struct dualrail_stats s;

		n.last = faults >= o->faults;
		put_round(b, o, &n, &answer);
		wrong += answer.wrong;
		s = stats(b);
		/* Data that was on the way when its connection was lost was sent again: that fault counts. */
		faults += s.replayed_bytes > replayed;
		replayed = s.replayed_bytes;
		if (n.last)
			break;
		if (n.round == 0) {
			printf("first round done\n");
			fflush(stdout);
		}
	}
	printf("%" PRIu64 " rounds of %u blocks, %u wrong, %u faults hit data, %" PRIu64
	       " bytes sent again\n",
		n.round + 1, o->blocks, wrong, faults, replayed);
	return wrong > 0;
}

/* ---- command line ---- */

static uint64_t number(const char *option, const char *text, uint64_t min, uint64_t max)
{
	char *end;
	unsigned long long v = text ? strtoull(text, &end, 10) : 0;

	if (!text || end == text || *end != '\0' || v < min || v > max)
		die(option, "wants a number in its range");
	return v;
}

static void parse(int argc, char **argv, struct options *o)
{
	for (int i = 2; i < argc; i++) {
		const char *name = argv[i], *value = argv[i + 1]; /* argv ends with NULL */

		if (strcmp(name, "--cut") == 0) {
			o->cut = 1;
			continue;
		}
		i++;
		if (strcmp(name, "--nics") == 0)
			o->nics = value;
		else if (strcmp(name, "--handle") == 0)
			o->handle = value;
		else if (strcmp(name, "--blocks") == 0)
			o->blocks = (uint32_t)number(name, value, 1, BLOCKS_MAX);
		else if (strcmp(name, "--bytes") == 0)
			o->bytes = (uint32_t)number(name, value, 8, 1 << 26) & ~7u;
		else if (strcmp(name, "--seed") == 0)
			o->seed = number(name, value, 0, UINT64_MAX);
		else if (strcmp(name, "--faults") == 0)
			o->faults = (uint32_t)number(name, value, 0, 1000);
		else
			die(name, "unknown option");
	}
	if (!o->handle)
		die("--handle", "missing");
}

int main(int argc, char **argv)
{
	struct options o = { .blocks = 64, .bytes = 256 << 10, .seed = 1, .faults = 1 };
	struct blocks b = { .d = NULL };
	int sender = argc > 1 && strcmp(argv[1], "send") == 0, rc;

	if (!sender && (argc < 2 || strcmp(argv[1], "receive") != 0))
		die("usage", "blocks send|receive --nics LIST --handle FILE [option...]");
	parse(argc, argv, &o);
	open_endpoint(&b, &o);
	rc = sender ? send_rounds(&b, &o) : receive(&b, &o);
	close_endpoint(&b);
	return rc;
}
