/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_MINPLUG_ENDS_H
#define DR_TESTS_MINPLUG_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tests/minplug/versions.h"

/*
 * Both ends of a comm of libnccl-net-min.so in one process, over loopback. What fails is a failed assertion of cmocka,
 * so that only the thread of the test may call these functions.
 *
 * The tables are declared by the plugin's own header; that they are NCCL's is shown by hosts and plugins of
 * other origin.
 */
struct ends {
	struct net net;
	void *ctx, *lcomm, *scomm, *rcomm;
	uint8_t handle[MIN_HANDLE_BYTES];
};

#define EACH_VERSION(v) for (int v = VERSION_FIRST; v <= VERSION_LAST; v++)

/* A version of the library beside the test's program, which the first call opens. */
struct net ends_load(int version);
/* Whether less than 20 s have passed since start. */
bool ends_in_time(int64_t start);

/* Initialises and listens. */
void ends_init(struct ends *e, int version);
/* Both at once, as NCCL's service thread does it for ranks of one process. Sets scomm and rcomm. */
void ends_connect(struct ends *e);
void ends_fini(struct ends *e);

/* Tests until the request is done or fails. */
enum min_result ends_wait(const struct net *n, void *request);

#endif
