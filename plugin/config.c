/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/config_priv.h"

#include "base/opts.h"
#include "base/units.h"
#include "transport/kind.h"

#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/*
 * From the environment to a struct ha_config.
 * 1. Only parse_value() writes members that the table describes; finish() derives the others.
 * 2. A variable without effect is never silent, see the header.
 */
static const char PREFIX[] = "HA_NCCL_";

/* ---- values ---- */

static int wrong(const struct ha_variable *v, const char *text, struct dr_err *e)
{
	char accepted[160];

	ha_var_accepted(v, accepted, sizeof(accepted));
	return dr_err_set(e, -EINVAL, "%s=%.60s: not accepted; use %s", v->name, text, accepted);
}

static int parse_int(const struct ha_variable *v, const char *text, int64_t *out)
{
	bool negative = text[0] == '-' && v->first < 0;
	uint64_t u;

	if (dr_parse_u64(text + negative, 0, v->max, &u, NULL) < 0)
		return -EINVAL;
	*out = negative ? -(int64_t)u : (int64_t)u;
	return *out < v->first ? -EINVAL : 0;
}

static int parse_level(const char *text)
{
	if (strcasecmp(text, "TRACE") == 0)
		return DR_LOG_DEBUG;
	if (strcasecmp(text, "INFO") == 0 || strcasecmp(text, "ABORT") == 0)
		return DR_LOG_INFO;
	return DR_LOG_WARN;
}

/* %h, %p and %%; other letters stay as they are, as in NCCL_DEBUG_FILE. */
static int expand_path(const char *text, const struct ha_host *host, char *out)
{
	char path[HA_PATH_BYTES + 64] = "";

	for (const char *s = text; *s && strlen(path) < HA_PATH_BYTES; s++) {
		if (s[0] == '%' && s[1] == 'h')
			dr_append(path, sizeof(path), "%.60s", host->name);
		else if (s[0] == '%' && s[1] == 'p')
			dr_append(path, sizeof(path), "%d", host->pid);
		else
			dr_append(path, sizeof(path), "%c", *s);
		if (s[0] == '%' && s[1] && strchr("hp%", s[1]))
			s++;
	}
	if (strlen(path) >= HA_PATH_BYTES)
		return -EINVAL;
	memcpy(out, path, strlen(path) + 1);
	return 0;
}

static int parse_number(const struct ha_variable *v, const char *text, void *dst)
{
	uint64_t u = 0;
	int64_t i = 0;
	int rc;

	if (v->kind == HA_VAR_INT)
		rc = parse_int(v, text, &i);
	else if (v->kind == HA_VAR_SIZE)
		rc = dr_parse_size(text, &u, NULL);
	else
		rc = dr_parse_u64(text, v->min, v->max, &u, NULL);
	if (rc < 0 || (v->kind == HA_VAR_SIZE && (u < v->min || u > v->max)))
		return -EINVAL;
	if (v->kind == HA_VAR_INT)
		*(int *)dst = (int)i;
	else if (v->kind == HA_VAR_MS)
		*(int64_t *)dst = (int64_t)u * DR_NS_PER_MS;
	else if (v->kind == HA_VAR_SIZE)
		*(uint64_t *)dst = u;
	else
		*(unsigned *)dst = (unsigned)u;
	return 0;
}

static int parse_names(
	const struct ha_variable *v, const char *text, struct ha_names *dst, struct dr_err *e)
{
	int rc = ha_names_parse(text, dst, e);

	return rc < 0 ? dr_err_prefix(e, "%s", v->name) : 0;
}

/* Row v from text into *c, which is written on success only. */
static int parse_value(const struct ha_variable *v, const char *text, const struct ha_host *host,
	struct ha_config *c, struct dr_err *e)
{
	void *dst = (char *)c + v->offset;
	int rc = 0;

	switch (v->kind) {
	case HA_VAR_BOOL:
		rc = strcmp(text, "0") && strcmp(text, "1") ? -EINVAL : 0;
		if (rc == 0)
			*(bool *)dst = text[0] == '1';
		break;
	case HA_VAR_CHOICE:
		rc = dr_parse_choice(v->choices, text, dst, NULL);
		if (rc == 0)
			*(int *)dst += v->first;
		break;
	case HA_VAR_NAMES:
		return parse_names(v, text, dst, e);
	case HA_VAR_PATH:
		rc = expand_path(text, host, dst);
		break;
	case HA_VAR_LEVEL:
		*(int *)dst = parse_level(text);
		break;
	default:
		rc = parse_number(v, text, dst);
	}
	return rc < 0 ? wrong(v, text, e) : 0;
}

/* Two processes on 16 CPUs, each with a thread of NCCL and one of the application that spin: docs/BENCHMARKS.md. */
static unsigned default_threads(unsigned cpus)
{
	return DR_MAX(DR_MIN(cpus * 3 / 8, 12u), 1u);
}

/* With CPUs for the I/O threads, they move all but the smallest messages, and poll while data is under way. Else the caller
 * copies, and polling would take its CPU. */
static void set_defaults_of_cpus(struct ha_config *out, unsigned cpus)
{
	enum { CPUS_ENOUGH = 8 };
	bool enough = cpus >= CPUS_ENOUGH;

	out->cpus = cpus;
	out->threads = default_threads(cpus);
	out->spin_us = enough ? 200 : 20;
	out->eager = enough ? 8 << 10 : 144 << 10;
}

void ha_config_defaults(struct ha_config *out, const struct ha_host *host)
{
	memset(out, 0, sizeof(*out));
	out->log_level = DR_LOG_WARN;
	set_defaults_of_cpus(out, host->cpus);
	for (unsigned i = 0; i < ha_n_variables; i++) {
		const struct ha_variable *v = &ha_variables[i];

		if (v->def && parse_value(v, v->def, host, out, NULL) < 0)
			dr_assert(!"a default of the table is accepted");
	}
}

/* ---- the environment ---- */

/* NULL: not set, or empty. */
static const char *env_value(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return (*env)[len + 1] ? *env + len + 1 : NULL;
	return NULL;
}

static bool is_own(const struct ha_variable *v)
{
	return strncmp(v->name, PREFIX, sizeof(PREFIX) - 1) == 0;
}

/* A wrong value of NCCL's own variable is no error where this plugin does not use it. */
static int take(struct ha_config *c, unsigned i, const char *text, const struct ha_host *host,
	struct dr_err *e)
{
	const struct ha_variable *v = &ha_variables[i];
	bool unused = v->use == HA_USE_VERBS && !ha_config_is_verbs(c);
	int rc = parse_value(v, text, host, c, e);

	if (rc < 0)
		return unused && !is_own(v) ? 0 : rc;
	c->given |= UINT64_C(1) << i;
	if (v->offset == offsetof(struct ha_config, devices))
		c->devices_variable = v->name;
	return 0;
}

/* ---- what is set without effect ---- */

/* NULL: it has an effect. */
static const char *why_unused(const struct ha_config *c, const struct ha_variable *v)
{
	switch (v->use) {
	case HA_USE_VERBS:
		return ha_config_is_verbs(c) ? NULL : "it is not used with the tcp transport";
	case HA_USE_FAILBACK:
		if (c->backup && !c->failback)
			return "HA_NCCL_ENABLE_FAILBACK is 0";
		/* fall through */
	case HA_USE_BACKUP:
		return c->backup ? NULL : "HA_NCCL_ENABLE_BACKUP is 0";
	case HA_USE_CONSERVATIVE:
		return c->detect == DR_DETECT_CONSERVATIVE
			       ? NULL
			       : "it is used only with HA_NCCL_DETECT=conservative";
	case HA_USE_NEVER:
		return v->unused;
	default:
		return NULL;
	}
}

static void report_unused(const struct ha_config *c)
{
	for (unsigned i = 0; i < ha_n_variables; i++) {
		const struct ha_variable *v = &ha_variables[i];
		const char *why = c->given >> i & 1 ? why_unused(c, v) : NULL;

		if (why)
			dr_log(is_own(v) ? DR_LOG_WARN : DR_LOG_INFO, "config",
				"%s has no effect: %s", v->name, why);
	}
}

static const struct ha_former *former(const char *name)
{
	for (const struct ha_former *f = ha_former_variables; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

/* The variable that name is probably meant to be; NULL: none is similar. */
static const char *nearest(const char *name)
{
	unsigned best = 4; /* edits */
	const char *found = NULL;

	for (unsigned i = 0; i < ha_n_variables; i++) {
		unsigned d = is_own(&ha_variables[i]) ? dr_opts_distance(name, ha_variables[i].name)
						      : best;

		if (d < best) {
			best = d;
			found = ha_variables[i].name;
		}
	}
	return found;
}

static void report_unknown(const char *name)
{
	const struct ha_former *f = former(name);
	const char *guess = f ? NULL : nearest(name);

	if (f)
		dr_warn("config", "%s has no effect in this plugin: %s", name, f->instead);
	else
		dr_warn("config", "%s has no effect: no variable has this name%s%s%s", name,
			guess ? "; did you mean " : "", guess ? guess : "", guess ? "?" : "");
}

static void report_strangers(char *const *env)
{
	char name[64];

	for (; *env; env++) {
		unsigned i = 0;

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*env, "="), *env);
		if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
			continue;
		while (i < ha_n_variables && strcmp(ha_variables[i].name, name) != 0)
			i++;
		if (i == ha_n_variables)
			report_unknown(name);
	}
}

/* ---- from values to what is in force ---- */

static int choose_transport(struct ha_config *c, const struct ha_host *host, struct dr_err *e)
{
	bool verbs = c->transport == HA_TRANSPORT_VERBS ||
		     (c->transport == HA_TRANSPORT_AUTO && host->rdma);
	const char *name = verbs ? "verbs" : "tcp";
	char names[64];

	c->kind = dr_transport_kind(name);
	if (!c->kind)
		return dr_err_set(e, -ENOTSUP,
			"HA_NCCL_TRANSPORT: this build has no %s transport (built: %s)", name,
			dr_transport_names(names, sizeof(names)));
	return 0;
}

bool ha_config_is_verbs(const struct ha_config *c)
{
	return c->kind && strcmp(c->kind->name, "verbs") == 0;
}

/* As the program's options of the same meaning set them. */
static int set_params(struct ha_config *c, struct dr_err *e)
{
	static const struct dr_opt_command commands[] = { { "plugin", DR_KIND_OPT_RUN, "", "", NULL,
								  NULL },
		{ NULL, 0, NULL, NULL, NULL, NULL } };
	const struct dr_opt_group *const groups[] = { &c->kind->options, NULL };
	const struct dr_opts_spec spec = {
		.program = "ha", .groups = groups, .commands = commands
	};
	union dr_kind_settings settings;
	struct dr_opts *o = NULL;
	json_t *j = json_pack("{s:i, s:i, s:i, s:i, s:i}", "gid", c->gid_index, "sl", (int)c->ib_sl,
		"tc", (int)c->ib_tc, "ib-timeout", (int)c->ib_timeout, "ib-retry",
		(int)c->ib_retry);
	int rc = j ? dr_opts_create(&o, &spec, memset(&settings, 0, sizeof(settings))) : -ENOMEM;

	if (rc < 0)
		(void)dr_err_set(e, rc, "configuration: out of memory");
	if (rc == 0)
		rc = dr_opts_defaults(o, DR_KIND_OPT_RUN, e);
	if (rc == 0)
		rc = dr_opts_from_json(o, DR_KIND_OPT_RUN, j, e);
	if (rc == 0)
		c->kind->params(&settings, &c->params);
	dr_opts_destroy(o);
	json_decref(j);
	return rc;
}

static int check_timeout(const struct ha_config *c, struct dr_err *e)
{
	if (c->ib_timeout > 0 || c->detect != DR_DETECT_CONSERVATIVE)
		return 0;
	return dr_err_set(e, -EINVAL,
		"NCCL_IB_TIMEOUT=0 never gives up, so HA_NCCL_DETECT=conservative would never switch; "
		"use 1 to 31");
}

/* The soft bound never comes before the transport's own: it would be a false failover. */
static void check_rto(struct ha_config *c)
{
	int64_t asked = c->rto_ns, least;
	char was[32], now[32];

	if (c->detect != DR_DETECT_CONSERVATIVE || asked == 0)
		return;
	c->rto_ns = 0;
	least = ha_config_detect_bound(c);
	c->rto_ns = DR_MAX(asked, least);
	if (c->rto_ns == asked)
		return;
	dr_format_duration_exact(asked, was, sizeof(was));
	dr_format_duration_exact(least, now, sizeof(now));
	dr_warn("config",
		"HA_NCCL_RTO_MS: %s is less than twice the time in which the kernel or the NIC gives up "
		"a connection; %s is used",
		was, now);
}

int ha_config_parse(
	struct ha_config *out, char *const *env, const struct ha_host *host, struct dr_err *e)
{
	struct ha_config c;
	int rc = 0;

	ha_config_defaults(&c, host);
	for (unsigned i = 0; i < ha_n_variables && rc == 0; i++) {
		const char *text = env_value(env, ha_variables[i].name);

		if (text)
			rc = take(&c, i, text, host, e);
		if (rc == 0 && i == 0) /* others depend on the transport */
			rc = choose_transport(&c, host, e);
	}
	if (rc == 0 && ha_config_is_verbs(&c))
		rc = check_timeout(&c, e);
	if (rc == 0 && ha_config_is_verbs(&c))
		rc = set_params(&c, e);
	if (rc < 0)
		return rc;
	if (c.debug)
		c.log_level = DR_LOG_DEBUG;
	report_strangers(env);
	report_unused(&c);
	check_rto(&c);
	*out = c;
	return 0;
}

static unsigned usable_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	/* More CPUs than a cpu_set_t has bits. */
	return (unsigned)DR_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
}

enum { PORTS_MAX = 64 };
/* Of the transport's own devices, if it has some. */
static bool has_active_port(const struct dr_transport_kind *k)
{
	struct dr_kind_port port[PORTS_MAX];
	int n = k && k->ports ? k->ports(port, DR_ARRAY_LEN(port), NULL) : 0;

	for (int i = 0; i < DR_MIN(n, (int)DR_ARRAY_LEN(port)); i++)
		if (port[i].active)
			return true;
	return false;
}

int ha_config_read(struct ha_config *out, bool rdma, struct dr_err *e)
{
	char name[65] = "";
	struct ha_host host = { .cpus = usable_cpus(), .pid = (int)getpid(), .name = name };

	host.rdma = rdma && has_active_port(dr_transport_kind("verbs"));
	if (gethostname(name, sizeof(name) - 1) < 0)
		snprintf(name, sizeof(name), "localhost");
	return ha_config_parse(out, environ, &host, e);
}

void ha_config_manager(const struct ha_config *c, struct dr_manager_params *p)
{
	int64_t window_ns = 0, retry_ns = 0;

	p->transport = c->kind->ops;
	if (ha_config_is_verbs(c)) {
		p->kind_params = &c->params;
		c->kind->windows(&c->params, &window_ns, &retry_ns);
	}
	p->hw_retry_ns = retry_ns;
	p->detect = (enum dr_detect)c->detect;
	p->heartbeat_ns = c->heartbeat_ns;
	p->failback = c->failback;
	p->hold_down_ns = c->hold_down_ns;
	p->lost_after_ns = DR_LOST_AFTER_JOB_NS;
	p->sockbuf = (int)c->sockbuf;
	/* The manager waits for twice the window of the hardware. */
	p->hw_window_ns =
		c->detect == DR_DETECT_CONSERVATIVE && c->rto_ns ? c->rto_ns / 2 : window_ns;
}

int64_t ha_config_detect_bound(const struct ha_config *c)
{
	struct dr_manager_params p = { .n_rails = 0 };

	ha_config_manager(c, &p);
	return dr_manager_detect_bound(&p);
}
