/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PLUGIN_PRIV_H
#define DR_ORCHESTRATOR_CHECKS_PLUGIN_PRIV_H

#include "orchestrator/options/options.h"
#include "transport/ncclnet.h"

#include <stdatomic.h>

/*
 * plugin.c        the command and its report
 * plugin_child.c  a child process that runs a case, and its deadlines
 * plugin_call.c   calls of the plugin, each with the checks that hold for every call
 * plugin_exchange.c  connections and messages between the two ends, which are both in the child
 * plugin_case.c   the cases
 */

/* ---- findings, in memory shared with the child: the parent takes a copy and believes none ---- */

/* clang-format off */
/* Number, name. In the order of the ABI: plugin_call.c says by it which of them may wait. */
#define PLUGIN_CALLS(X) \
	X(NONE, "no call") X(DLOPEN, "dlopen") X(INIT, "init") X(DEVICES, "devices") \
	X(PROPERTIES, "getProperties") X(LISTEN, "listen") X(CONNECT, "connect") \
	X(ACCEPT, "accept") X(REG, "regMr") X(DEREG, "deregMr") X(ISEND, "isend") \
	X(IRECV, "irecv") X(TEST, "test") X(CONSUMED, "irecvConsumed") \
	X(CLOSE_SEND, "closeSend") X(CLOSE_RECV, "closeRecv") \
	X(CLOSE_LISTEN, "closeListen") X(FINALIZE, "finalize") X(DLCLOSE, "dlclose")
/* clang-format on */
#define PLUGIN_CALL(number, name) CALL_##number,
enum plugin_call { PLUGIN_CALLS(PLUGIN_CALL) CALL_N };
/* "isend" */
const char *plugin_call_name(enum plugin_call c);

/* Number, name: what `dualrail plugin` and the tests of our own plugin hold against a plugin. */
#define PLUGIN_RULES(X)                                                                            \
	X(CRASH, "crash")	      /* a call ended the process with a signal */                 \
	X(EXIT, "exit")		      /* a call ended the process */                               \
	X(HANG, "hang")		      /* a call did not return */                                  \
	X(BLOCKS, "blocks")	      /* a call waited for something */                            \
	X(ERROR, "error")	      /* a call that is allowed failed */                          \
	X(NULL, "null")		      /* NULL where none is allowed */                             \
	X(UNSET, "unset")	      /* an output was not written */                              \
	X(HANDLE, "handle")	      /* more than 128 bytes */                                    \
	X(PROPERTIES, "properties")   /* not plausible */                                          \
	X(CONNECT, "connect")	      /* no comm */                                                \
	X(SIZE, "size")		      /* test reports a wrong size */                              \
	X(EARLY, "early")	      /* done before the data is there */                          \
	X(DATA, "data")		      /* wrong bytes */                                            \
	X(BOUNDS, "bounds")	      /* bytes beside the message were written */                  \
	X(ORDER, "order")	      /* the data of another message */                            \
	X(LOST, "lost")		      /* a request is never done */                                \
	X(REQUESTS, "requests")	      /* fewer requests in flight than NCCL needs */               \
	X(LEAK, "leak")		      /* requests are used up */                                   \
	X(LATE, "late")		      /* memory was written after deregMr */                       \
	X(DESCRIPTORS, "descriptors") /* left open by closed comms */                              \
	/* From here on notes, not violations: NCCL tolerates it. */                               \
	X(WAITS, "waits") /* connect or accept does, which NCCL calls from its service thread */   \
	X(SIZELESS, "sizes") /* test says no sizes, which NCCL wants for GPU memory alone */
#define PLUGIN_RULE(number, name) RULE_##number,
enum plugin_rule { PLUGIN_RULES(PLUGIN_RULE) RULE_N, RULE_NOTES = RULE_WAITS };
const char *plugin_rule_name(enum plugin_rule r);

enum { PLUGIN_FINDINGS = 16, PLUGIN_DEVICES = 16, HANDLE_GUARD = 64 };

struct plugin_finding {
	enum plugin_rule rule;
	char text[200];
};

struct plugin_device {
	char name[48], pci[96];
	struct dr_nccl_properties p; /* its pointers are NULL */
};

struct plugin_shared {
	struct {
		_Atomic int call; /* enum plugin_call: in progress */
		_Atomic int64_t since_ns;
	} in[2];	    /* threads of the child: its own, and that of accept */
	_Atomic bool ended; /* the child did all it had to do */
	_Atomic unsigned n;
	struct plugin_finding finding[PLUGIN_FINDINGS];

	/* Of the case that loads the plugin. */
	unsigned version, exported;
	char name[64];
	int n_devices;
	struct plugin_device device[PLUGIN_DEVICES];
	struct dr_err err; /* the plugin cannot be used */

	unsigned in_flight; /* receives that a comm took at once; 0: not tried */
};

/* ---- the child's side ---- */

struct probe {
	const struct dr_options *opt;
	struct plugin_shared *sh;
	struct dr_nccl n;
	int dev;
	unsigned thread; /* of plugin_shared.in */
	bool dead;	 /* after a failed call nothing else is called */
	int delay_fd;
};

void plugin_found(struct plugin_shared *sh, enum plugin_rule r, const char *fmt, ...)
	DR_PRINTF(3, 4);
/* After which nothing else is called. False. */
#define plugin_broken(p, ...) (plugin_found((p)->sh, __VA_ARGS__), (p)->dead = true, false)

/* A call of the plugin. What it may return beside success is the caller's to say; see plugin_call.c. */
#define CALL(p, c, expr) (plugin_enter(p, c), plugin_leave(p, c, (int)(expr)))
void plugin_enter(struct probe *p, enum plugin_call c);
/* Returns whether the call succeeded; if not, the case is over. */
bool plugin_leave(struct probe *p, enum plugin_call c, int rc);
/* Loads and initialises the plugin. */
bool plugin_start(struct probe *p);
void plugin_end(struct probe *p);

/* A case. Runs in the child after plugin_start. */
struct plugin_case {
	const char *name, *what;
	void (*run)(struct probe *p);
};
extern const struct plugin_case plugin_load_case;
extern const struct plugin_case plugin_cases[];
extern const size_t plugin_n_cases;

/* Runs a case for a device in a child process. Findings are in sh afterwards. -errno: there is no child. */
int plugin_run(
	const struct plugin_case *c, const struct dr_options *o, int dev, struct plugin_shared *sh);

/* ---- connections and messages ---- */

struct pair {
	void *send, *recv;
};
/* One comm in each role, between the device and itself. */
bool pair_open(struct probe *p, struct pair *c);
void pair_close(struct probe *p, struct pair *c);

/* Memory with its registration. */
struct region {
	struct dr_nccl_buffer b;
	void *comm;
};
bool region_open(struct probe *p, void *comm, size_t len, struct region *r);
bool region_dereg(struct probe *p, struct region *r);
void region_free(struct region *r);

/* A loop that waits for progress: sleeps a little after many turns without any. */
struct pause {
	int64_t end_ns;
	unsigned turns;
};
void pause_start(const struct probe *p, struct pause *w);
/* False: there was no progress within the limit. */
bool pause_turn(struct pause *w);

enum { WINDOW = 32, GUARD = 64, NEEDED = 8 };
struct message {
	size_t sent, cap;
};
enum first { FIRST_BOTH, FIRST_RECEIVES, FIRST_SENDS };
struct exchange {
	unsigned n; /* messages of a round, at most WINDOW */
	struct message m[WINDOW];
	unsigned rounds;
	unsigned group;	  /* receives of a request; n is a multiple of it */
	unsigned tags;	  /* different ones in a group; 0: all are */
	bool no_sizes;	  /* test gets NULL for them */
	enum first first; /* of the requests of a round */
	uint64_t key;	  /* what tells the data of an exchange from that of others */
};
/* An exchange in progress; so two of them can run at the same time. */
struct run {
	struct probe *p;
	const struct pair *c;
	const struct exchange *x;
	struct region from, to;
	size_t at[WINDOW];
	unsigned round, sends, sent, receives, received; /* posted and done, of this round */
	void *send_request[WINDOW], *recv_request[WINDOW];
	struct pause pause;
};
bool run_open(struct run *r, struct probe *p, const struct pair *c, const struct exchange *x);
/* Returns false at the end: all rounds are over, or the case is. */
bool run_step(struct run *r);
bool run_close(struct run *r);
/* All of it. False: the case is over. */
bool pair_exchange(struct probe *p, const struct pair *c, const struct exchange *x);

#endif
