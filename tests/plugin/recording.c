/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/recording.h"

#include "base/defs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* n: numbers of a call; then `each` for each of the buffers that number `count` counts. limit: of each number that is an
 * object's, in order; 0: any. */
static const struct {
	const char *name;
	unsigned n, count, each;
	int64_t limit[3];
} verbs[REC_VERBS] = {
	[REC_INIT] = { "init", 1, 0, 0, { REC_OBJECTS_MAX } },
	[REC_DEVICES] = { "devices", 1, 0, 0, { 0 } },
	[REC_PROPERTIES] = { "properties", 1, 0, 0, { 0 } },
	[REC_LISTEN] = { "listen", 4, 0, 0, { REC_OBJECTS_MAX, REC_OBJECTS_MAX } },
	[REC_CONNECT] = { "connect", 4, 0, 0, { REC_OBJECTS_MAX, REC_OBJECTS_MAX } },
	[REC_ACCEPT] = { "accept", 2, 0, 0, { REC_OBJECTS_MAX, REC_OBJECTS_MAX } },
	[REC_UP] = { "up", 2, 0, 0, { REC_OBJECTS_MAX } },
	[REC_REGISTER] = { "register", 4, 0, 0, { REC_OBJECTS_MAX, REC_OBJECTS_MAX } },
	[REC_UNREGISTER] = { "unregister", 1, 0, 0, { REC_OBJECTS_MAX } },
	[REC_SEND] = { "send", 7, 0, 0, { REC_REQUESTS_MAX, REC_OBJECTS_MAX } },
	[REC_RECV] = { "recv", 5, 4, 4, { REC_REQUESTS_MAX, REC_OBJECTS_MAX } },
	[REC_FLUSH] = { "flush", 3, 2, 3, { 0, REC_OBJECTS_MAX } },
	[REC_DONE] = { "done", 2, 0, 1, { REC_REQUESTS_MAX } },
	[REC_ATTRIBUTES] = { "attributes", 11, 0, 0, { 0 } },
	[REC_CLOSE_SEND] = { "close-send", 1, 0, 0, { REC_OBJECTS_MAX } },
	[REC_CLOSE_RECV] = { "close-recv", 1, 0, 0, { REC_OBJECTS_MAX } },
	[REC_CLOSE_LISTEN] = { "close-listen", 1, 0, 0, { REC_OBJECTS_MAX } },
	[REC_FINALIZE] = { "finalize", 1, 0, 0, { REC_OBJECTS_MAX } },
};

const char *rec_verb_name(enum rec_verb v)
{
	return verbs[v].name;
}

static bool number(const char *word, bool hex, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(word, &end, hex ? 16 : 10);
	return *word && !*end && errno == 0;
}

static bool whole(const struct rec_call *c)
{
	unsigned n = verbs[c->verb].n, each = verbs[c->verb].each;

	if (c->n < n)
		return false;
	for (unsigned i = 0; i < DR_ARRAY_LEN(verbs[0].limit) && i < n; i++)
		if (verbs[c->verb].limit[i] > 0 &&
			(c->arg[i] < 0 || c->arg[i] >= verbs[c->verb].limit[i]))
			return false;
	if (c->verb == REC_DONE)
		return c->n <= n + REC_BUFFERS_MAX;
	if (each == 0)
		return c->n == n;
	return c->arg[verbs[c->verb].count] >= 1 &&
	       c->arg[verbs[c->verb].count] <= REC_BUFFERS_MAX &&
	       c->n == n + each * (unsigned)c->arg[verbs[c->verb].count];
}

static bool parse(char *text, struct rec_call *c)
{
	const char *word = strsep(&text, " ");
	int64_t arg[REC_ARGS_MAX];

	for (c->verb = 0; c->verb < REC_VERBS; c->verb++)
		if (strcmp(word, verbs[c->verb].name) == 0)
			break;
	if (c->verb == REC_VERBS)
		return false;
	while (text) {
		bool handle = c->n == 3 && (c->verb == REC_LISTEN || c->verb == REC_CONNECT);

		if (c->n == REC_ARGS_MAX || !number(strsep(&text, " "), handle, &arg[c->n]))
			return false;
		c->n++;
	}
	c->arg = calloc(REC_ARGS_MAX, sizeof(arg[0]));
	if (!c->arg)
		return false;
	memcpy(c->arg, arg, c->n * sizeof(arg[0]));
	return whole(c);
}

static bool add(struct rec_process *p, char *text, unsigned line)
{
	struct rec_call c = { .line = line };

	if (!parse(text, &c))
		return false;
	if ((p->n & (p->n - 1)) == 0) { /* 0, 1, 2, 4, ... */
		struct rec_call *more = realloc(p->call, (p->n ? 2 * p->n : 1) * sizeof(*p->call));

		if (!more)
			return false;
		p->call = more;
	}
	p->call[p->n++] = c;
	return true;
}

int rec_read(struct recording *out, const char *file, char *why, size_t len)
{
	FILE *f = fopen(file, "re");
	char text[1000];
	bool right = true;

	memset(out, 0, sizeof(*out));
	if (!f) {
		snprintf(why, len, "%s: %s", file, strerror(errno));
		return -errno;
	}
	for (unsigned line = 1; right && fgets(text, sizeof(text), f); line++) {
		text[strcspn(text, "\n")] = 0;
		if (text[0] == '#')
			continue;
		if (strcmp(text, "process") == 0)
			right = out->n++ < REC_PROCESSES_MAX;
		else
			right = out->n > 0 && add(&out->process[out->n - 1], text, line);
		if (!right)
			snprintf(why, len, "%s:%u: not a line of a recording", file, line);
	}
	fclose(f);
	if (right && out->n != REC_PROCESSES_MAX)
		snprintf(
			why, len, "%s: %u processes, %d expected", file, out->n, REC_PROCESSES_MAX);
	return right && out->n == REC_PROCESSES_MAX ? 0 : -EPROTO;
}
