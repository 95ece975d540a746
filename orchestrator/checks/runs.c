/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/*
 * What other runs occupy or left on this machine.
 *
 * Listening sockets are read from /proc/net/tcp and tcp6: no port is bound for the check.
 */

enum { STATE_LISTEN = 0x0a }; /* net/tcp_states.h */

/* The inode of the socket that listens on a port from run.port to last; 0: none. */
static unsigned long long listener(
	const struct dr_doctor *d, const char *table, unsigned last, unsigned *port)
{
	char path[DR_SYSFILE_PATH_MAX], line[512];
	unsigned long long inode = 0;
	FILE *f = dr_sysfile_path(path, sizeof(path), d->root, "/proc/net/%s", table)
			  ? fopen(path, "re")
			  : NULL;

	while (f && !inode && fgets(line, sizeof(line), f)) {
		unsigned local, state;
		unsigned long long ino;

		/* sl local:port remote:port st tx:rx tr:when retrnsmt uid timeout inode */
		if (sscanf(line,
			    " %*u: %*32[0-9A-F]:%x %*32[0-9A-F]:%*x %x %*s %*s %*s %*u %*u %llu",
			    &local, &state, &ino) != 3 ||
			state != STATE_LISTEN || local < d->run.port || local > last)
			continue;
		inode = ino;
		*port = local;
	}
	if (f)
		fclose(f);
	return inode;
}

struct search {
	const char *root;
	char socket[48];  /* "socket:[INODE]" */
	char dir[32];	  /* "/proc/PID/fd" */
	const char *name; /* of its holder, "dualrail (1234)" */
	char buf[64];
};

static int is_socket(const char *fd, void *arg)
{
	struct search *s = arg;
	char link[64];

	return dr_sysfile_link(link, sizeof(link), s->root, "%s/%s", s->dir, fd) > 0 &&
	       strcmp(link, s->socket) == 0;
}

static int is_holder(const char *pid, void *arg)
{
	struct search *s = arg;
	char comm[32];

	snprintf(s->dir, sizeof(s->dir), "/proc/%.16s/fd", pid);
	if (!isdigit((unsigned char)pid[0]) || !dr_sysfile_each(s->root, s->dir, is_socket, s))
		return 0;
	(void)dr_sysfile_text(comm, sizeof(comm), s->root, "/proc/%s/comm", pid);
	comm[strcspn(comm, "\n")] = '\0'; /* a process chooses its own name */
	snprintf(s->buf, sizeof(s->buf), "%s (%.20s)", comm, pid);
	s->name = s->buf;
	return 1;
}

void dr_check_ports(struct dr_doctor *d)
{
	const struct dr_doctor_run *run = &d->run;
	unsigned last = run->port + run->gpu_top, port = 0;
	struct search s = { .root = d->root, .name = "a process that this user may not inspect" };
	unsigned long long inode;

	if (!run->server)
		return;
	if (!dr_sysfile_has(d->root, "/proc/net/tcp")) {
		dr_findings_unreadable(&d->f, "ports", "/proc/net/tcp");
		return;
	}
	inode = listener(d, "tcp", last, &port);
	if (!inode)
		inode = listener(d, "tcp6", last, &port);
	if (!inode) {
		dr_find_ok(
			d, "ports", NULL, "ports %u to %u are free for a server", run->port, last);
		return;
	}
	snprintf(s.socket, sizeof(s.socket), "socket:[%llu]", inode);
	dr_sysfile_each(d->root, "/proc", is_holder, &s);
	if (strncmp(s.name, "dualrail ", 9) == 0) {
		dr_find_note(d, "ports", NULL, "%s listens on port %u: a server is already running",
			s.name, port);
		return;
	}
	dr_find_fail(d, "ports", NULL,
		"port %u is in use: a server cannot start here\n"
		"%s\n"
		"ports %u to %u\n"
		"ss -Hltnp 'sport = :%u' shows the process; or use --port N at both ends",
		port, s.name, run->port, last, port);
}

/* ---- faults of killed runs ---- */

/* "dualrail (1234)", whose guard wrote the file; a process of another PID namespace has another number here. */
static void holder(const struct dr_doctor *d, pid_t guard, char *buf, size_t len)
{
	char stat[256], comm[32] = "";
	long parent = 0;

	(void)dr_sysfile_text(stat, sizeof(stat), d->root, "/proc/%ld/stat", (long)guard);
	if (sscanf(stat, "%*d (dualrail-guard) %*c %ld", &parent) == 1)
		(void)dr_sysfile_text(comm, sizeof(comm), d->root, "/proc/%ld/comm", parent);
	comm[strcspn(comm, "\n")] = '\0';
	if (comm[0])
		snprintf(buf, len, "%s (%ld)", comm, parent);
	else
		snprintf(buf, len, "a dualrail of another PID namespace (guard %ld there)",
			(long)guard);
}

static void held(struct dr_doctor *d, const struct dr_fault_leftover *l)
{
	char who[96], since[32];

	holder(d, l->guard, who, sizeof(who));
	dr_wall_format(l->since_ns, since, sizeof(since));
	dr_find_note(d, "fault", l->nic, "%s is active since %s, held by %s\n%s", l->kind, since,
		who, l->path);
}

struct leftovers {
	struct dr_doctor *d;
	unsigned n;
};

static void one(const struct dr_fault_leftover *l, void *arg)
{
	struct leftovers *all = arg;
	struct dr_doctor *d = all->d;

	if (l->err == -EBUSY) {
		held(d, l);
		return;
	}
	all->n++;
	if (l->err == 0)
		dr_find_note(d, "leftover", l->nic, "undid the fault %s of a killed run\n%s",
			l->kind, l->text);
	else if (l->err == -ECANCELED)
		dr_find_fail(d, "leftover", l->nic,
			"the fault %s of a killed run is still active\n"
			"%s\n\n"
			"dualrail doctor (without --dry-run) undoes it",
			l->kind, l->path);
	else
		dr_find_fail(d, "leftover", l->nic,
			"the fault %s of a killed run cannot be undone: %.100s\n"
			"%s\n\n"
			"run doctor as root, for exec with the --fault-exec of that run; or undo it "
			"manually and remove the file",
			l->kind, l->text, l->path);
}

void dr_check_leftovers(struct dr_doctor *d)
{
	struct leftovers all = { .d = d };

	(void)dr_fault_leftovers(&d->faults, !d->dry_run, one, &all);
	if (!all.n)
		dr_find_ok(d, "leftover", NULL,
			"no fault of a killed run is active in this network namespace");
}
