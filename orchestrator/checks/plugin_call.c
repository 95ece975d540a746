/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/plugin_priv.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * 1. `call` names the call in progress before the plugin is entered, so that the parent can tell what a signal, an exit
 *    or a hang came from.
 * 2. A call that must not block may take BLOCK_NS of the thread's own time. What the thread waited for a CPU is taken off, so
 *    that a busy machine is no violation.
 * 3. After a call that failed the plugin is not called again: what follows would be its consequence.
 */
static const int64_t BLOCK_NS = 500 * DR_NS_PER_MS;

#define PLUGIN_NAME(number, name) name,
static const char *const call_names[] = { PLUGIN_CALLS(PLUGIN_NAME) };
static const char *const rule_names[] = { PLUGIN_RULES(PLUGIN_NAME) };

const char *plugin_call_name(enum plugin_call c)
{
	return call_names[(unsigned)c < CALL_N ? c : CALL_NONE];
}

const char *plugin_rule_name(enum plugin_rule r)
{
	return rule_names[(unsigned)r < RULE_N ? r : RULE_CRASH];
}

static void add(struct plugin_shared *sh, enum plugin_rule r, const char *text)
{
	unsigned n = atomic_load(&sh->n);

	if (n >= PLUGIN_FINDINGS)
		return;
	for (unsigned i = 0; i < n; i++)
		if (sh->finding[i].rule == r)
			return;
	dr_text_copy(sh->finding[n].text, sizeof(sh->finding[n].text), text);
	sh->finding[n].rule = r;
	atomic_store(&sh->n, n + 1);
}

/* The same once: a rule that a loop finds broken a thousand times is one violation. */
void plugin_found(struct plugin_shared *sh, enum plugin_rule r, const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char text[sizeof(sh->finding->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&lock);
	add(sh, r, text);
	pthread_mutex_unlock(&lock);
}

/* Time for which this thread could run and had no CPU; 0: the kernel does not say. */
static int64_t delayed_ns(const struct probe *p)
{
	char buf[96], *end;
	ssize_t len = p->delay_fd < 0 ? -1 : pread(p->delay_fd, buf, sizeof(buf) - 1, 0);

	if (len <= 0)
		return 0;
	buf[len] = '\0';
	end = strchr(buf, ' ');
	return end ? strtoll(end, NULL, 10) : 0;
}

static _Thread_local int64_t delayed_at_entry;

void plugin_enter(struct probe *p, enum plugin_call c)
{
	delayed_at_entry = delayed_ns(p);
	atomic_store(&p->sh->in[p->thread].since_ns, dr_now_ns());
	atomic_store(&p->sh->in[p->thread].call, (int)c);
}

static bool may_block(enum plugin_call c)
{
	return c < CALL_LISTEN || c == CALL_REG || c == CALL_DEREG || c > CALL_CONSUMED;
}

bool plugin_leave(struct probe *p, enum plugin_call c, int rc)
{
	int64_t took = dr_now_ns() - atomic_load(&p->sh->in[p->thread].since_ns);

	atomic_store(&p->sh->in[p->thread].call, CALL_NONE);
	if (!may_block(c) && took > BLOCK_NS)
		took -= delayed_ns(p) - delayed_at_entry;
	if (took > BLOCK_NS && (c == CALL_CONNECT || c == CALL_ACCEPT)) {
		plugin_found(p->sh, RULE_WAITS,
			"%s took %lld ms; NCCL calls it from its service thread", call_names[c],
			(long long)(took / DR_NS_PER_MS));
	} else if (!may_block(c) && took > BLOCK_NS) {
		return plugin_broken(p, RULE_BLOCKS, "%s took %lld ms; it must not wait",
			call_names[c], (long long)(took / DR_NS_PER_MS));
	}
	if (rc == NCCL_SUCCESS)
		return true;
	return plugin_broken(p, RULE_ERROR, "%s returned %d, %s", call_names[c], rc,
		dr_nccl_result_name((enum nccl_result)rc));
}

bool plugin_start(struct probe *p)
{
	unsigned version = dr_options_net_api(p->opt);
	struct dr_err *e = &p->sh->err;
	int rc;

	plugin_enter(p, CALL_DLOPEN);
	rc = dr_nccl_open(&p->n, p->opt->file, version, e);
	plugin_leave(p, CALL_DLOPEN, NCCL_SUCCESS);
	if (rc)
		return false;
	p->sh->version = p->n.version;
	p->sh->exported = p->n.exported;
	if (p->n.missing) {
		plugin_found(p->sh, RULE_NULL, "%s of ncclNetPlugin_v%u is NULL", p->n.missing,
			p->n.version);
		return false;
	}
	dr_text_copy(p->sh->name, sizeof(p->sh->name), p->n.name);
	plugin_enter(p, CALL_INIT);
	rc = (int)dr_nccl_init(&p->n);
	plugin_leave(p, CALL_INIT, NCCL_SUCCESS);
	if (rc) {
		dr_err_set(e, -ENODEV,
			"init of plugin %.40s returned %d, %s; NCCL_DEBUG=INFO shows its log",
			p->sh->name, rc, dr_nccl_result_name((enum nccl_result)rc));
		return false;
	}
	if (p->n.version >= 11 && p->n.ctx == DR_NCCL_UNSET)
		plugin_found(p->sh, RULE_UNSET, "init did not write *ctx");
	return true;
}

void plugin_end(struct probe *p)
{
	if (!p->dead)
		CALL(p, CALL_FINALIZE, dr_nccl_finalize(&p->n));
	/* A plugin that failed may have threads in its code. */
	if (!p->dead && p->n.so) {
		plugin_enter(p, CALL_DLCLOSE);
		dr_nccl_close(&p->n);
		plugin_leave(p, CALL_DLCLOSE, NCCL_SUCCESS);
	}
}
