/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRIES = 256 };

/* A lock of this network namespace. -1: another process has it. */
static int lock_port(unsigned port)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int len = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "dualrail-ports-%u", port);

	if (fd >= 0 &&
		bind(fd, (struct sockaddr *)&a,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len))) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool is_free(unsigned port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0;
	close(fd);
	return ok;
}

int dr_ports_claim(struct dr_ports *p, unsigned from, unsigned span, struct dr_err *e)
{
	for (unsigned i = 0, port = from; i < TRIES && port + span <= 65536; i++, port += span) {
		int fd = lock_port(port);
		unsigned n = 0;

		while (fd >= 0 && n < span && is_free(port + n))
			n++;
		if (n == span) {
			*p = (struct dr_ports){ .lock_fd = fd, .first = (uint16_t)port };
			return 0;
		}
		if (fd >= 0)
			close(fd);
	}
	*p = (struct dr_ports){ .lock_fd = -1 };
	return dr_err_set(e, -EADDRINUSE,
		"no %u free TCP ports in a row from %u on; end what listens there, or choose another --port",
		span, from);
}

void dr_ports_release(struct dr_ports *p)
{
	if (p->lock_fd >= 0)
		close(p->lock_fd);
	p->lock_fd = -1;
}
