/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/rank.h"

#include "base/clock.h"
#include "base/units.h"
#include "transport/ncclnet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 20 };

/* What both have to agree on. */
struct greeting {
	char name[48];
	uint32_t version;
	uint64_t seed;
};

static int ms_until(int64_t end_ns)
{
	return (int)DR_MAX((end_ns - dr_now_ns()) / DR_NS_PER_MS, INT64_C(0));
}

static int accept_one(const struct rank_remote *o, int64_t end_ns)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, rc = -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
		bind(fd, (const struct sockaddr *)&o->at, sizeof(o->at)) != 0 || listen(fd, 1) != 0)
		rc = -errno;
	else if (poll(&p, 1, ms_until(end_ns)) <= 0)
		rc = -ETIMEDOUT;
	else if ((rc = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Until the other host has come to this job. */
static int connect_one(const struct rank_remote *o, int64_t end_ns)
{
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		if (connect(fd, (const struct sockaddr *)&o->at, sizeof(o->at)) == 0)
			return fd;
		close(fd);
		if (dr_now_ns() > end_ns)
			return -ETIMEDOUT;
		(void)poll(NULL, 0, RETRY_MS);
	}
}

static int greet(int fd, const struct rank_job *job, int64_t end_ns)
{
	struct greeting own = { .version = job->version, .seed = job->seed }, theirs;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	snprintf(own.name, sizeof(own.name), "%s", job->name);
	if (send(fd, &own, sizeof(own), MSG_NOSIGNAL) != sizeof(own))
		return -errno;
	if (poll(&p, 1, ms_until(end_ns)) <= 0)
		return -ETIMEDOUT;
	if (recv(fd, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs) ||
		strncmp(own.name, theirs.name, sizeof(own.name)) != 0 ||
		own.version != theirs.version || own.seed != theirs.seed)
		return -EPROTO;
	return 0;
}

int rank_remote_open(const struct rank_job *job, int64_t end_ns)
{
	const struct rank_remote *o = &job->remote;
	int fd = o->id == 0 ? accept_one(o, end_ns) : connect_one(o, end_ns);
	int rc = fd < 0 ? fd : greet(fd, job, end_ns);

	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

/* ---- options ---- */

/* "0,10.0.0.1:7777" */
static bool take_remote(void *to, char *text)
{
	char address[INET_ADDRSTRLEN], end;
	struct rank_job *job = to;
	unsigned port;

	if (sscanf(text, "%1u,%15[0-9.]:%5u%c", &job->remote.id, address, &port, &end) != 3 ||
		job->remote.id > 1 || port == 0 || port > UINT16_MAX)
		return false;
	job->far = true;
	job->remote.at =
		(struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, address, &job->remote.at.sin_addr) == 1;
}

static bool take_netns(void *to, char *text)
{
	struct rank_job *job = to;

	for (job->n = 0; text && job->n < RANKS_MAX; job->n++)
		job->netns[job->n] = strsep(&text, ",");
	return !text && job->n >= 2;
}

static bool take(const struct rank_option *o, char *value)
{
	uint64_t n;

	switch (o->kind) {
	case RANK_FLAG:
		*(bool *)o->to = true;
		return true;
	case RANK_NUMBER:
		if (dr_parse_u64(value, o->least, o->most, &n, NULL) != 0)
			return false;
		*(unsigned *)o->to = (unsigned)n;
		return true;
	case RANK_SIZE:
		return dr_parse_size(value, o->to, NULL) == 0;
	case RANK_TEXT:
		*(char **)o->to = value;
		return true;
	default:
		return o->call(o->to, value);
	}
}

static const struct rank_option *find(const struct rank_option *o, const char *name)
{
	while (o->name && strcmp(o->name, name) != 0)
		o++;
	return o->name ? o : NULL;
}

int rank_options(
	struct rank_job *job, const struct rank_option *own, int argc, char **argv, int operands)
{
	const struct rank_option common[] = { RANK_BY("netns", take_netns, job),
		RANK_BY("remote", take_remote, job),
		RANK_IN("version", &job->version, DR_NCCL_OLDEST, DR_NCCL_NEWEST),
		RANK_IN("limit", &job->limit_s, 1, 100000),
		RANK_IS("log", RANK_FLAG, &job->show_log), { .name = NULL } };
	int at = 1;

	for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
		const char *name = argv[at] + 2;
		const struct rank_option *o = find(own, name);

		o = o ? o : find(common, name);
		if (!o || (o->kind != RANK_FLAG && ++at == argc) || !take(o, argv[at])) {
			fprintf(stderr, "--%s is wrong; tests/plugin/*_main.c name the options\n",
				name);
			return 0;
		}
	}
	if (argc - at >= operands)
		return at;
	fprintf(stderr, "%d operands are needed\n", operands);
	return 0;
}
