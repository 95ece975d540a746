/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/remote.h"

#include "base/clock.h"
#include "base/units.h"

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

bool rank_remote_parse(const char *text, struct rank_remote *out)
{
	char address[INET_ADDRSTRLEN];
	unsigned id, port;
	char end;

	if (sscanf(text, "%1u,%15[0-9.]:%5u%c", &id, address, &port, &end) != 3 || id > 1 ||
		port == 0 || port > UINT16_MAX)
		return false;
	*out = (struct rank_remote){ .id = id,
		.at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) } };
	return inet_pton(AF_INET, address, &out->at.sin_addr) == 1;
}

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

int rank_remote_open(const struct rank_remote *o, const struct rank_job *job, int64_t end_ns)
{
	int fd = o->id == 0 ? accept_one(o, end_ns) : connect_one(o, end_ns);
	int rc = fd < 0 ? fd : greet(fd, job, end_ns);

	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}
