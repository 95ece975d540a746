/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints how many kHz this machine's time stamp counter runs at. An emulated guest reads the same
 * counter, but finds its rate out at boot against timers that stand still whenever QEMU is not
 * scheduled: on a busy machine its clock then runs at several times the true speed.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct pair {
	int64_t ns;
	uint64_t tsc;
};

/* Of many tries the one that was interrupted least. */
static struct pair sample(void)
{
	struct pair best = { 0, 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		struct timespec t;
		uint64_t before = __rdtsc(), after;

		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		after = __rdtsc();
		if (after - before < least) {
			least = after - before;
			best.ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
			best.tsc = before + least / 2;
		}
	}
	return best;
}

int main(void)
{
	const struct timespec nap = { 0, 200000000 };
	struct pair a = sample(), b;

	nanosleep(&nap, NULL);
	b = sample();
	printf("%.0f\n", (double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns));
	return 0;
}
