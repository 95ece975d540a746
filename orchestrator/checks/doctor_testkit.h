/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_DOCTOR_TESTKIT_H
#define DR_ORCHESTRATOR_CHECKS_DOCTOR_TESTKIT_H

#include "orchestrator/checks/doctor_priv.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* For tests of doctor's checks: a tree that stands for /proc, /sys and /boot, NICs, and what came out. */

static char root[64];
static struct dr_doctor doctor = { .root = root };

/* The doctor of a machine with these rails. */
static inline struct dr_doctor *with(const struct dr_doctor_nic *nic, unsigned n)
{
	for (doctor.n = 0; doctor.n < n; doctor.n++)
		doctor.nic[doctor.n] = nic[doctor.n];
	return &doctor;
}

static inline int tree_make(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/dr-doctor-test-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static inline int tree_remove(void **state)
{
	char command[128];

	(void)state;
	dr_findings_fini(&doctor.f);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* The folders of a path below root. */
static inline void tree_dirs(const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *c = whole + strlen(root) + 1; (c = strchr(c, '/')) != NULL; c++) {
		*c = '\0';
		assert_true(mkdir(whole, 0755) == 0 || errno == EEXIST);
		*c = '/';
	}
}

/* Write a file, replacing what was there. */
static inline void put(const char *path, const char *text)
{
	char whole[PATH_MAX];
	FILE *f;

	tree_dirs(path);
	snprintf(whole, sizeof(whole), "%s%s", root, path);
	f = fopen(whole, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static inline void drop(const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	unlink(whole);
}

static inline void point(const char *path, const char *target)
{
	char whole[PATH_MAX];

	tree_dirs(path);
	snprintf(whole, sizeof(whole), "%s%s", root, path);
	unlink(whole);
	assert_int_equal(symlink(target, whole), 0);
}

static inline struct dr_doctor_nic nic(
	const char *name, int ifindex, const char *address, unsigned prefix, unsigned mtu)
{
	struct dr_doctor_nic n = { .hardware = true };

	snprintf(n.rail.ifname, sizeof(n.rail.ifname), "%s", name);
	n.rail.ifindex = ifindex;
	n.rail.prefix = prefix;
	n.rail.mtu = mtu;
	n.rail.speed_mbps = -1;
	n.rail.running = true;
	assert_int_equal(dr_netdev_addr_parse(address, &n.rail.addr), 0);
	return n;
}

static inline void forget(void)
{
	dr_findings_fini(&doctor.f);
}

/* The only row of this check, with this severity and this word in one of its texts; forgets all. */
static inline void expect(
	enum dr_severity s, const char *check, const char *where, const char *says)
{
	const struct dr_finding *hit = NULL;

	for (size_t i = 0; i < doctor.f.n; i++) {
		struct dr_finding *x = &doctor.f.v[i];

		if (strcmp(x->check, check) == 0 && (!where || strcmp(x->where, where) == 0)) {
			if (hit)
				fail_msg("%s %s: twice: %s", check, x->where, x->text);
			hit = x;
		}
	}
	if (!hit)
		fail_msg("%s: no such finding among %zu", check, doctor.f.n);
	if (hit->severity != s)
		fail_msg("%s: %s: %s", check, dr_severity_name(hit->severity), hit->text);
	if (!strstr(hit->text, says) && !strstr(hit->found, says) && !strstr(hit->needed, says) &&
		!strstr(hit->remedy, says))
		fail_msg("%s: no \"%s\" in: %s | %s | %s | %s", check, says, hit->text, hit->found,
			hit->needed, hit->remedy);
	/* What is wrong has a remedy. */
	assert_true(s < DR_SEVERITY_WARN || hit->remedy[0]);
	forget();
}

/* No row of this check. */
static inline void expect_none(const char *check)
{
	for (size_t i = 0; i < doctor.f.n; i++)
		if (strcmp(doctor.f.v[i].check, check) == 0)
			fail_msg("%s: %s", check, doctor.f.v[i].text);
	forget();
}

#endif
