/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FUZZ_FAKE_NL_H
#define DR_TESTS_FUZZ_FAKE_NL_H

#include "topology/nl.h"

/*
 * Stands in for the sockets of libmnl under topology/nl.c: a request gets the next part of `answers` (u16 length, bytes)
 * as its answer instead of the kernel's; nothing leaves the process. `seen` is called with each request.
 */
struct fake_nl {
	const uint8_t *answers;
	size_t len;
	int fd; /* of the sockets opened; -1: none */
	void (*seen)(const struct nlmsghdr *nlh, void *arg);
	void *arg;
};
extern struct fake_nl fake_nl;

/* The next part as a block of its own: *len bytes, aligned as netlink wants it; free it. */
void *fake_nl_part(size_t *len);

#endif
