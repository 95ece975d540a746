/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A mark belongs to one thread until that ends; marks are never freed, since the watcher and handlers read the list.
 * 2. The watcher counts its own ticks and not time: while the process stands, no call gets older.
 * 3. exit() calls each registered function once, and a second thread in it calls those that are left, then ends the process. So
 *    there is a registration for each mark, and whoever comes second waits for the end.
 * 4. Handlers of signals are those of the whole program; one that was set before, e.g. by a sanitizer, stays.
 */
#include "transport/ncclnet/watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REST ", and the run ends with it; check the file with `dualrail plugin`"
enum { TICK_MS = 250, TICKS = DR_NN_CALL_S * 1000 / TICK_MS, STATUS_START = 2, STATUS_RUN = 4 };

static _Atomic(struct nn_watch_mark *) marks;
static _Thread_local struct nn_watch_mark *own;
static pthread_key_t end_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* under lock, as is `watched` */
static bool watched;

/* ---- marks ---- */

static void give_back(void *mark)
{
	struct nn_watch_mark *m = mark;

	atomic_store(&m->call, NULL);
	atomic_store(&m->used, false);
}

static struct nn_watch_mark *reuse(void)
{
	for (struct nn_watch_mark *m = atomic_load(&marks); m; m = m->next) {
		bool used = false;

		if (atomic_compare_exchange_strong(&m->used, &used, true))
			return m;
	}
	return NULL;
}

static struct nn_watch_mark *add(void)
{
	struct nn_watch_mark *m = dr_calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	atomic_store(&m->used, true);
	m->next = atomic_load(&marks);
	while (!atomic_compare_exchange_weak(&marks, &m->next, m))
		;
	return m;
}

static const char *call_of(const struct nn_watch_mark *m)
{
	return m ? atomic_load_explicit(&m->call, memory_order_acquire) : NULL;
}

static const char *plugin_of(const struct nn_watch_mark *m)
{
	const char *name = atomic_load_explicit(&m->plugin, memory_order_relaxed);

	return name ? name : "?";
}

static int status_of(const char *call)
{
	static const char *const start[] = { "dlopen", "init", "devices", "getProperties",
		"listen" };

	for (size_t i = 0; i < DR_ARRAY_LEN(start); i++)
		if (strcmp(call, start[i]) == 0)
			return STATUS_START;
	return STATUS_RUN;
}

/* ---- the ways to end ---- */

static void append(char *buf, size_t len, const char *text)
{
	size_t at = strlen(buf);

	while (*text && at + 1 < len)
		buf[at++] = *text++;
	buf[at] = '\0';
}

static void on_exit_call(void)
{
	static atomic_flag ending = ATOMIC_FLAG_INIT;
	const char *call = call_of(own);

	if (!call)
		return;
	while (atomic_flag_test_and_set(&ending))
		(void)pause();
	dr_complain("plugin %s called exit in %s" REST, plugin_of(own), call);
	_exit(status_of(call)); /* lint-ok: what main would return is the plugin's */
}

/* Only what a handler may call. The action is the default again: the signal comes anew when this returns. */
static void on_crash(int sig)
{
	const char *call = call_of(own);
	char line[256] = "dualrail: plugin ";

	if (call) {
		append(line, sizeof(line), plugin_of(own));
		append(line, sizeof(line), " crashed in ");
		append(line, sizeof(line), call);
		append(line, sizeof(line), REST "\n");
		if (write(STDERR_FILENO, line, strlen(line)) < 0)
			_exit(128 + sig); /* lint-ok: nothing can be told */
	}
	(void)raise(sig);
}

static void hung(const struct nn_watch_mark *m, const char *call)
{
	dr_complain(
		"plugin %s has not returned from %s for %d s, and the run cannot go on; check the "
		"file with `dualrail plugin`",
		plugin_of(m), call, DR_NN_CALL_S);
	_exit(status_of(call)); /* lint-ok: the thread in the call cannot be ended */
}

static void look(void)
{
	for (struct nn_watch_mark *m = atomic_load(&marks); m; m = m->next) {
		const char *call = call_of(m);
		unsigned count = atomic_load(&m->count);

		if (!call || count != m->seen || atomic_load(&m->waits))
			m->ticks = 0;
		else if (++m->ticks >= TICKS)
			hung(m, call);
		m->seen = count;
	}
}

static void *watch(void *arg)
{
	bool go_on = true;

	while (go_on) {
		(void)poll(NULL, 0, TICK_MS);
		look();
		(void)pthread_mutex_lock(&lock);
		go_on = watched = users > 0;
		(void)pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void prepare(void)
{
	static const int crashes[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };

	if (pthread_key_create(&end_of_thread, give_back))
		dr_warn("nccl", "the threads of the plugin's calls are not told apart");
	for (size_t i = 0; i < DR_ARRAY_LEN(crashes); i++) {
		struct sigaction act = { .sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND },
				 old;

		if (sigaction(crashes[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			(void)sigaction(crashes[i], &act, NULL);
	}
}

struct nn_watch_mark *dr_nn_watch_mark(void)
{
	if (own)
		return own;
	(void)pthread_once(&once, prepare);
	own = reuse();
	if (!own) {
		own = add();
		if (own && atexit(on_exit_call))
			dr_warn("nccl", "a plugin that calls exit may not be noticed");
	}
	if (own)
		(void)pthread_setspecific(end_of_thread, own);
	return own;
}

void dr_nn_watch_start(void)
{
	pthread_t thread;
	bool start;

	(void)pthread_once(&once, prepare);
	(void)pthread_mutex_lock(&lock);
	users++;
	start = !watched;
	watched = true;
	if (start && pthread_create(&thread, NULL, watch, NULL) == 0) {
		(void)pthread_detach(thread);
	} else if (start) {
		watched = false;
		dr_warn("nccl",
			"no thread: a plugin that does not return from a call will not be noticed");
	}
	(void)pthread_mutex_unlock(&lock);
}

void dr_nn_watch_stop(void)
{
	(void)pthread_mutex_lock(&lock);
	dr_assert(users > 0);
	users--;
	(void)pthread_mutex_unlock(&lock);
}
