/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_REMOTE_H
#define DR_TESTS_PLUGIN_REMOTE_H

#include "tests/plugin/rank.h"

#include <netinet/in.h>

/*
 * Two ranks on two hosts: the same program runs on both with the same arguments but --remote, and makes one rank. For
 * each job rank 0 listens at an address, and rank 1 connects to it; they exchange bytes over that connection.
 */
struct rank_remote {
	unsigned id; /* of the rank made here */
	struct sockaddr_in at;
};

/* "0,10.0.0.1:7777": rank 0, which listens at that IPv4 address. */
bool rank_remote_parse(const char *text, struct rank_remote *out);
/* A connection of both for this job; the caller closes it. -ETIMEDOUT: after end_ns; -EPROTO: the other host is at
 * another job. */
int rank_remote_open(const struct rank_remote *o, const struct rank_job *job, int64_t end_ns);

#endif
