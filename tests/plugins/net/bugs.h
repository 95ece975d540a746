/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_NET_BUGS_H
#define DR_TESTS_PLUGINS_NET_BUGS_H

#include <stdbool.h>

#include "tests/plugins/net/abi.h"

/*
 * What a plugin must not do, over any personality. FAKENET_BUGS is a list with commas of words and
 * of ACTION:CALL@N. CALL is NCCL's name of a function, or dlopen. The action is in each call from
 * the N-th on (1): crash, exit, hang, blocks (for 0.8 s), error; or it fills the memory of the
 * check: smash (and crashes), future (and hangs). With null:isend and null:finalize the table lacks
 * it. FAKENET_ONCE names a file: the process that removes it has the action, no other. Words of
 * calls are in tables.c and connect.c, those of messages in comm.c, progress.c and direct.c.
 */
#define FN_BUGS(X)                                                                                 \
	X(BUSY, "busy")			/* no bug: every other isend and irecv gives no request */ \
	X(MHANDLE_NULL, "mhandle-null") /* neither: memory is registered, and the handle NULL */   \
	X(NO_CONTEXT, "no-context")                                                                \
	X(INIT_FAILS, "init-fails")                                                                \
	X(DEVICES_UNSET, "devices-unset")                                                          \
	X(NO_DEVICES, "no-devices")                                                                \
	X(SAME_NAME, "same-name")                                                                  \
	X(SAME_PORT, "same-port")                                                                  \
	X(NAME_NULL, "name-null")                                                                  \
	X(PROPERTIES_UNSET, "properties-unset")                                                    \
	X(PROPERTIES_OVERRUN, "properties-overrun")                                                \
	X(NO_HOST_MEMORY, "no-host-memory")                                                        \
	X(NO_RECEIVES, "no-receives")                                                              \
	X(VIRTUAL_DEVICES, "virtual-devices")                                                      \
	X(NO_BYTES, "no-bytes")                                                                    \
	X(HANDLE_LONG, "handle-long")                                                              \
	X(LISTEN_NULL, "listen-null")                                                              \
	X(LISTEN_UNSET, "listen-unset")                                                            \
	X(CONNECT_UNSET, "connect-unset")                                                          \
	X(CONNECT_NEVER, "connect-never")                                                          \
	X(ACCEPT_UNSET, "accept-unset")                                                            \
	X(ACCEPT_EARLY, "accept-early")                                                            \
	X(DESCRIPTORS, "descriptors") /* left open by closed comms */                              \
	X(ISEND_UNSET, "isend-unset")                                                              \
	X(TEST_UNSET, "test-unset")                                                                \
	X(FEW_REQUESTS, "few-requests")                                                            \
	X(LEAK, "leak") /* requests are used up */                                                 \
	X(OVERSIZE, "oversize")                                                                    \
	X(CAPACITY, "capacity") /* test says the size of the buffer */                             \
	X(EARLY, "early")	/* a receive is done before its data are there */                  \
	X(ORDER, "order")	/* two messages are exchanged */                                   \
	X(TAGS, "tags")		/* mean nothing */                                                 \
	X(CORRUPT, "corrupt")                                                                      \
	X(BOUNDS, "bounds")                                                                        \
	X(LOST_SEND, "lost-send")                                                                  \
	X(LOST_RECEIVE, "lost-receive")                                                            \
	X(LOST_EMPTY, "lost-empty")                                                                \
	X(LATE, "late") /* closeRecv writes to memory that was deregistered */

#define FN_BUG_ENUM(name, word) FN_BUG_##name,
enum fn_bug { FN_BUGS(FN_BUG_ENUM) FN_BUG_N };

/* By dlopen, and the words again by each init. */
void fn_bugs_read(void);
bool fn_bug(enum fn_bug b);
/* null:CALL is in the list. */
bool fn_bug_null(const char *call);

enum fn_result fn_entered(const char *call);
#define FN_ENTER(call)                                                                             \
	do {                                                                                       \
		enum fn_result entered_ = fn_entered(call);                                        \
		if (entered_ != FN_OK)                                                             \
			return entered_;                                                           \
	} while (0)

#endif
