/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Who listens where, from /proc/net/tcp and tcp6: no port is bound to find out. */

enum { STATE_LISTEN = 0x0a }; /* net/tcp_states.h */

/* The inode of the socket that listens on a port of [first, last]; 0: none. */
static unsigned long long listener(
	const char *root, const char *table, unsigned first, unsigned last, unsigned *port)
{
	char path[DR_MACHINE_PATH_MAX], line[512];
	unsigned long long inode = 0;
	FILE *f = dr_machine_path(path, sizeof(path), root, "/proc/net/%s", table)
			  ? fopen(path, "re")
			  : NULL;

	while (f && !inode && fgets(line, sizeof(line), f)) {
		unsigned local, state;
		unsigned long long ino;

		/* sl local:port remote:port st tx:rx tr:when retrnsmt uid timeout inode */
		if (sscanf(line,
			    " %*u: %*32[0-9A-F]:%x %*32[0-9A-F]:%*x %x %*s %*s %*s %*u %*u %llu",
			    &local, &state, &ino) != 3 ||
			state != STATE_LISTEN || local < first || local > last)
			continue;
		inode = ino;
		*port = local;
	}
	if (f)
		fclose(f);
	return inode;
}

/* Does the process hold the socket? */
static bool holds(const char *root, const char *pid, const char *socket)
{
	char path[DR_MACHINE_PATH_MAX], link[64];
	struct dirent *d;
	bool found = false;
	DIR *dir = dr_machine_path(path, sizeof(path), root, "/proc/%s/fd", pid) ? opendir(path)
										 : NULL;

	while (dir && !found && (d = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);

		link[DR_MAX(n, 0)] = '\0';
		found = strcmp(link, socket) == 0;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* "dualrail (1234)", for what may be seen; false when nobody may be. */
static bool holder(const char *root, unsigned long long inode, char *name, size_t len)
{
	char path[DR_MACHINE_PATH_MAX], socket[48], comm[32];
	struct dirent *d;
	bool found = false;
	DIR *dir = dr_machine_path(path, sizeof(path), root, "/proc") ? opendir(path) : NULL;

	snprintf(socket, sizeof(socket), "socket:[%llu]", inode);
	while (dir && !found && (d = readdir(dir)) != NULL) {
		found = isdigit((unsigned char)d->d_name[0]) && holds(root, d->d_name, socket);
		if (!found)
			continue;
		(void)dr_machine_text(comm, sizeof(comm), root, "/proc/%s/comm", d->d_name);
		snprintf(name, len, "%s (%.20s)", comm, d->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

void dr_check_ports(const char *root, const struct dr_doctor_run *run, struct dr_findings *f)
{
	unsigned last = run->port + run->gpu_top, port = 0;
	char name[64] = "a process that this user may not see";
	struct dr_finding *x;
	unsigned long long inode;

	if (!run->server)
		return;
	if (!dr_machine_has(root, "/proc/net/tcp")) {
		dr_findings_add(f, DR_SEVERITY_NOTE, "ports", NULL,
			"not looked at: /proc/net/tcp cannot be read here");
		return;
	}
	inode = listener(root, "tcp", run->port, last, &port);
	if (!inode)
		inode = listener(root, "tcp6", run->port, last, &port);
	if (!inode) {
		dr_findings_add(f, DR_SEVERITY_OK, "ports", NULL,
			"ports %u to %u are free for a server", run->port, last);
		return;
	}
	if (holder(root, inode, name, sizeof(name)) && strncmp(name, "dualrail ", 9) == 0) {
		dr_findings_add(f, DR_SEVERITY_NOTE, "ports", NULL,
			"%s listens on port %u: this node has its server", name, port);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "ports", NULL,
		"port %u is taken, so a server does not start here", port);
	dr_finding_found(x, "%s", name);
	dr_finding_needed(x, "ports %u to %u", run->port, last);
	dr_finding_remedy(x, "ss -Hltnp 'sport = :%u' names it; or --port N at both ends", port);
}
