/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/file.h"
#include "base/log.h"
#include "base/privileges.h"
#include "base/sysfile.h"
#include "base/units.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/*
 * What a process may still do once it reads bytes of the peer. Two steps:
 *  1. dr_rights_restrict: after the guard, or a sweep's starter of runs, was forked, before a name
 *     is resolved. All capabilities go but those that the options need; no_new_privs and the filter
 *     of system calls come.
 *  2. dr_rights_become: after the control sockets are bound and the key was read: --user. Then the
 *     thread of --metrics-listen starts.
 * What is kept is told, with its reason; so is what the kernel refuses. Neither ends the run.
 * docs/PRIVILEGES.md has the table.
 */

enum { TEXT_MAX = 512 };

struct keeping {
	uint64_t caps;
	char why[TEXT_MAX];
};

static void keep(struct keeping *k, unsigned cap, const char *why)
{
	char name[64];

	if (!(dr_privileges_held() & DR_CAP(cap)))
		return;
	dr_privileges_names(DR_CAP(cap), name, sizeof(name));
	dr_append(k->why, sizeof(k->why), "%s%s: %s", k->caps ? "; " : "", name, why);
	k->caps |= DR_CAP(cap);
}

/* Before Linux 5.7 a socket is bound to a device by CAP_NET_RAW only. */
static bool old_kernel(void)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major < 5 || (major == 5 && minor < 7));
}

/* Control is listened for on the rails too, and data per session. */
static bool low_ports(const struct dr_options *o)
{
	int64_t first = 1024;

	(void)dr_sysfile_number(&first, "", "/proc/sys/net/ipv4/ip_unprivileged_port_start");
	return (o->data_port_min && o->data_port_min < first) ||
	       (o->command == DR_CMDBIT_SERVER && (int64_t)o->port < first);
}

/* A server without --transport has its client's. */
static bool may_bypass(const struct dr_options *o)
{
	const struct dr_transport_kind *k = dr_transport_kind(o->transport);
	bool follows = o->command == DR_CMDBIT_SERVER && !dr_opts_given(o->table, "transport");

	for (size_t i = 0; follows && (k = dr_transport_kind_at(i)) != NULL && !k->bypass;)
		i++;
	return k && k->bypass;
}

static bool locks_are_limited(void)
{
	struct rlimit r;

	return getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur != RLIM_INFINITY;
}

static bool readable(const char *path)
{
	int fd = dr_file_open(path, NULL);

	if (fd >= 0)
		close(fd);
	return fd != -EACCES;
}

/* Can the files of results be written? */
static int probe(const struct dr_rights *r, struct dr_err *e)
{
	const char *path = r->opt->json_path;
	int rc = path && strcmp(path, "-") != 0 ? dr_file_probe("--json", path, e) : 0;

	return rc || !r->out ? rc : dr_output_probe(r->out, e);
}

/* Can the key be read, unless a sweep has done so, and the files be written without the right to
 * pass over permissions? */
static bool files_need_override(const struct dr_rights *r, char *why, size_t len)
{
	const uint64_t override = DR_CAP(CAP_DAC_OVERRIDE) | DR_CAP(CAP_DAC_READ_SEARCH);
	struct dr_err e = { 0 };

	dr_privileges_suspend(override, true);
	bool key = r->opt->command != DR_CMDBIT_SWEEP && r->opt->key_file &&
		   !readable(r->opt->key_file);
	bool out = probe(r, &e) != 0;
	dr_privileges_suspend(override, false);
	snprintf(why, len, "%s; --user NAME avoids it",
		key ? "only so can --key-file be read"
		    : "the directory of a result file is not root's");
	return key || out;
}

/* With --user, until dr_rights_become; the key is read before, the files are written after. */
static void keep_what_is_needed(const struct dr_rights *r, struct keeping *k)
{
	const struct dr_options *o = r->opt;
	bool rails = o->command != DR_CMDBIT_SWEEP; /* a sweep has none itself */
	char why[128];

	if (rails && may_bypass(o) && locks_are_limited())
		keep(k, CAP_IPC_LOCK,
			"RDMA locks buffers, and locked memory is limited (ulimit -l)");
	if (rails && old_kernel())
		keep(k, CAP_NET_RAW, "this kernel needs it to bind a socket to a device");
	if (rails && low_ports(o))
		keep(k, CAP_NET_BIND_SERVICE,
			"a port is below net.ipv4.ip_unprivileged_port_start");
	if (!o->run_as.name[0] && files_need_override(r, why, sizeof(why)))
		keep(k, CAP_DAC_OVERRIDE, why);
}

void dr_rights_restrict(struct dr_rights *r)
{
	/* CAP_KILL: the demo ends its server, which may be the other user before this end is. */
	uint64_t until = DR_CAP(CAP_SETUID) | DR_CAP(CAP_SETGID) | DR_CAP(CAP_SETPCAP) |
			 DR_CAP(CAP_KILL) | DR_CAP(CAP_DAC_READ_SEARCH);
	bool sweep = r->opt->command == DR_CMDBIT_SWEEP;
	struct keeping k = { .why = "" };
	struct dr_err e;

	if (!r->opt->run_as.name[0])
		until = sweep ? DR_CAP(CAP_SETPCAP) : 0;
	if (sweep) /* which port it listens on, and whether it is rank 0, is known later */
		until |= DR_CAP(CAP_NET_BIND_SERVICE);
	if (r->opt->resume)
		until |= DR_CAP(CAP_DAC_READ_SEARCH);
	keep_what_is_needed(r, &k);
	r->kept = k.caps;
	if (dr_privileges_limit(k.caps | until, &e))
		dr_info("privileges", "%s", e.text);
	if (dr_privileges_filter(&e))
		dr_info("privileges", "%s", e.text);
	if (k.caps)
		dr_info("privileges", "keeps %s", k.why);
}

int dr_rights_become(const struct dr_rights *r, struct dr_err *e)
{
	const struct dr_user *u = &r->opt->run_as;
	char line[TEXT_MAX];
	int rc = u->name[0] ? dr_privileges_become(u, r->kept, e)
		 : r->out   ? 0
			    : dr_privileges_limit(r->kept, e);

	if (rc == -EBUSY) { /* of a thread that is not ours */
		dr_info("privileges", "%s", e->text);
		rc = 0;
	}
	if (rc == 0 && (u->name[0] || !r->out) && (rc = probe(r, e)) != 0 && u->name[0])
		dr_err_prefix(e, "--user %s", u->name);
	if (rc == 0 && r->out)
		rc = dr_output_serve(r->out, e);
	dr_privileges_describe(line, sizeof(line));
	if (rc == 0)
		dr_info("privileges", "%s", line);
	return rc;
}
