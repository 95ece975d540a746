/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_testkit.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * System calls of a ping-pong of small messages, both ends together. The functions below take the place of libc's
 * in this program.
 */
static atomic_uint n_sends, n_reads, n_peeks;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	atomic_fetch_add(&n_sends, 1);
	return syscall(SYS_sendmsg, fd, msg, flags);
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	ssize_t n = syscall(SYS_recvfrom, fd, buf, len, flags, NULL, NULL);

	if (n > 0)
		atomic_fetch_add(flags & MSG_PEEK ? &n_peeks : &n_reads, 1);
	return n;
}

static void begin_ping(uint64_t rounds)
{
	struct dr_phase p = { .kind = DR_PHASE_LAT,
		.message_bytes = 64,
		.chunk_bytes = 64,
		.iters = rounds,
		.gpu_mask = 1 };

	begin(p);
	WAIT(ends[CLIENT].done[0][1] && ends[SERVER].done[0][1]);
	assert_int_equal(dr_hist_count(dr_worker_result(ends[CLIENT].w, 0)->rtt), rounds);
}

/* Involuntary context switches so far. A burst with many of them is not judged: an answer that comes late needs an
 * acknowledgement and reads of its own. */
static uint64_t switches(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return (uint64_t)u.ru_nivcsw;
}

/* A message is one send, a read with MSG_PEEK, and behind the reply one that takes it out of the socket; one message
 * in twelve is acknowledged, which is one more of each. Most messages come by a direct read, so that the reply leaves
 * before the kernel acknowledges. */
static bool as_expected(unsigned messages)
{
	return n_sends >= messages && n_sends <= messages * 6 / 5 && n_reads >= messages &&
	       n_reads <= messages * 6 / 5 && n_peeks >= messages / 2 && n_peeks <= messages;
}

static void check_calls(enum dr_poll_policy poll)
{
	enum { BURSTS = 12, ROUNDS = 1000, MESSAGES = 2 * ROUNDS, FEW = MESSAGES / 20 };
	const struct config c = { .n_gpus = 1,
		.n_bulk = 1,
		.window = 16,
		.chunk_max = 4096,
		.lat = true,
		.poll = poll,
		.spin_ns = DR_NS_PER_S };
	unsigned quiet = 0;
	bool ok = false;

	for (unsigned i = 0; i < BURSTS && !ok && quiet < 3; i++) {
		uint64_t before;

		open_both(&c);
		n_sends = n_reads = n_peeks = 0;
		before = switches();
		begin_ping(ROUNDS);
		before = switches() - before;
		ok = as_expected(MESSAGES);
		quiet += before <= FEW;
		print_message("%u sends, %u reads, %u peeks of %d messages, %llu switches\n",
			n_sends, n_reads, n_peeks, MESSAGES, (unsigned long long)before);
		close_both();
	}
	if (!ok && quiet == 0) {
		print_message(
			"SKIP: the threads waited for processors in each of %d bursts\n", BURSTS);
		skip();
	}
	assert_true(ok);
}

static void busy_polling_takes_one_send_and_two_reads_for_a_message(void **state)
{
	(void)state;
	check_calls(DR_POLL_BUSY);
}

static void adaptive_polling_does_the_same_while_it_spins(void **state)
{
	(void)state;
	check_calls(DR_POLL_ADAPTIVE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_polling_takes_one_send_and_two_reads_for_a_message),
		cmocka_unit_test(adaptive_polling_does_the_same_while_it_spins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
