/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_STOOD_H
#define DR_TESTS_STOOD_H

#include "base/clock.h"
#include "base/defs.h"

#include <dirent.h>
#include <setjmp.h> /* what cmocka.h needs */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * How long the machine kept this process from running: what the thread that waited longest for a processor waited since
 * stood_begin(), times the share of processor time that other processes used. Zero if that is less than a fifth: what the
 * threads do to each other excuses none of them. tests/stood.py is the same for processes. One thread.
 */
struct stood {
	long long used_ns, ran_ns, waited_ns;
};

static inline void stood_read(struct stood *s)
{
	long long user = 0, nice = 0, system = 0, steal = 0, ran, waited;
	FILE *f = fopen("/proc/stat", "re");
	DIR *tasks = opendir("/proc/self/task");
	char path[300];

	*s = (struct stood){ 0 };
	if (f && fscanf(f, "cpu %lld %lld %lld %*d %*d %*d %*d %lld", &user, &nice, &system,
			 &steal) == 4)
		s->used_ns = (user + nice + system + steal) * (DR_NS_PER_S / sysconf(_SC_CLK_TCK));
	if (f)
		fclose(f);
	for (struct dirent *d; tasks && (d = readdir(tasks));) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", d->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%lld %lld", &ran, &waited) == 2) {
			s->ran_ns += ran;
			s->waited_ns = DR_MAX(s->waited_ns, waited);
		}
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
}

/* judge() of tests/lib.bash: skips the test if `ok` is false and the machine stood for ms or longer. Threads that ended
 * since `s` was read are not seen. */
static inline void stood_judge(const struct stood *s, bool ok, long long ms)
{
	struct stood now;
	long long used, others, stood;

	if (ok)
		return;
	stood_read(&now);
	used = now.used_ns - s->used_ns;
	others = used - (now.ran_ns - s->ran_ns);
	stood = others > used / 5 ? (now.waited_ns - s->waited_ns) / 1000 * (others / 1000) /
					    (used / 1000) / 1000
				  : 0;
	if (stood < ms)
		fail_msg("the machine stood for %lld ms, less than %lld", stood, ms);
	printf("SKIP: not judged: the machine stood for %lld ms\n", stood);
	skip();
}

#endif
