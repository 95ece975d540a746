/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include "base/defs.h"
#include "base/sysfile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PORTS_DEFAULT = 28232 }; /* 32768 to 60999 */

uint64_t dr_limit_files(uint64_t need)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return UINT64_MAX;
	if (r.rlim_cur < need && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = DR_MIN((rlim_t)need, r.rlim_max);
		if (setrlimit(RLIMIT_NOFILE, &r) < 0)
			(void)!getrlimit(RLIMIT_NOFILE, &r);
	}
	return r.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)r.rlim_cur;
}

unsigned dr_limit_ports(const char *root)
{
	unsigned low, high;
	char text[64];

	if (dr_sysfile_text(text, sizeof(text), root, "/proc/sys/net/ipv4/ip_local_port_range") <=
			0 ||
		sscanf(text, "%5u %5u", &low, &high) != 2 || high < low)
		return PORTS_DEFAULT;
	return high - low + 1;
}

/* ---- groups ---- */

/* The number behind a key at the begin of a line; 0: there is none. */
static int64_t value_of(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (strncmp(text, key, len) == 0 && strchr(" :", text[len]))
			return strtoll(text + len + 1, NULL, 10);
	}
	return 0;
}

typedef void (*group_fn)(const char *root, const char *dir, void *arg);

/* The group behind `line` in /proc/self/cgroup, and those above it, as far as they are mounted
 * here. */
static void each_group(
	const char *root, const char *line, const char *mount, group_fn fn, void *arg)
{
	char text[4096], dir[DR_SYSFILE_PATH_MAX], *path = NULL;

	if (dr_sysfile_text(text, sizeof(text), root, "/proc/self/cgroup") > 0)
		path = strstr(text, line);
	if (!path)
		return;
	path += strlen(line);
	path[strcspn(path, "\n")] = '\0';
	for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
		*end = '\0';
		if (strcmp(path, "/") != 0 &&
			dr_sysfile_path(dir, sizeof(dir), "", "%s%s", mount, path))
			fn(root, dir, arg);
	}
}

struct memory {
	const char *max, *used, *cache[2]; /* names of files, and of lines of memory.stat */
	uint64_t free;
};

static void look_at_memory(const char *root, const char *dir, void *arg)
{
	struct memory *m = arg;
	int64_t max, used, left;
	char stat[8192];

	if (!dr_sysfile_number(&max, root, "%s/%s", dir, m->max) ||
		!dr_sysfile_number(&used, root, "%s/%s", dir, m->used))
		return;
	dr_sysfile_text(stat, sizeof(stat), root, "%s/memory.stat", dir);
	left = max - used + value_of(stat, m->cache[0]) + value_of(stat, m->cache[1]);
	m->free = DR_MIN(m->free, (uint64_t)DR_MAX(left, 0));
}

uint64_t dr_limit_memory(const char *root)
{
	struct memory two = { "memory.max", "memory.current", { "inactive_file", "active_file" },
		UINT64_MAX };
	struct memory one = { "memory.limit_in_bytes", "memory.usage_in_bytes",
		{ "total_inactive_file", "total_active_file" }, UINT64_MAX };
	char text[4096];

	dr_sysfile_text(text, sizeof(text), root, "/proc/meminfo");
	int64_t kib = value_of(text, "MemAvailable");
	each_group(root, "0::", "/sys/fs/cgroup", look_at_memory, &two);
	each_group(root, ":memory:", "/sys/fs/cgroup/memory", look_at_memory, &one);
	return DR_MIN(kib ? (uint64_t)kib << 10 : UINT64_MAX, DR_MIN(one.free, two.free));
}

static void look_at_cpu(const char *root, const char *dir, void *arg)
{
	struct dr_limit_cpu *c = arg;
	double quota, period;
	char text[4096];

	dr_sysfile_text(text, sizeof(text), root, "%s/cpu.max", dir);
	if (sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0)
		c->cpus = fmin(c->cpus, quota / period);
	dr_sysfile_text(text, sizeof(text), root, "%s/cpu.stat", dir);
	c->throttled += value_of(text, "nr_throttled");
	c->throttled_ns += value_of(text, "throttled_usec") * 1000;
}

void dr_limit_cpu(const char *root, struct dr_limit_cpu *out)
{
	*out = (struct dr_limit_cpu){ .cpus = NAN };
	each_group(root, "0::", "/sys/fs/cgroup", look_at_cpu, out);
}
