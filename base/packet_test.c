/* SPDX-License-Identifier: Apache-2.0 */
#include "base/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* These take the place of libc's in this program: so many calls are interrupted by a signal first. */
static unsigned interrupted_sends, interrupted_receives;
static int send_flags; /* of the last call */

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	send_flags = flags;
	if (interrupted_sends > 0) {
		interrupted_sends--;
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_sendmsg, fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (interrupted_receives > 0) {
		interrupted_receives--;
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_recvmsg, fd, msg, flags);
}

static int pair[2];
static int files[DR_PACKET_FDS]; /* all different */
static unsigned open_before;

static unsigned n_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int begin(void **state)
{
	(void)state;
	for (unsigned i = 0; i < DR_PACKET_FDS; i++) {
		files[i] = memfd_create("packet-test", MFD_CLOEXEC);
		if (files[i] < 0)
			return -1;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	open_before = n_open();
	return 0;
}

static void close_end(int i)
{
	if (pair[i] >= 0)
		close(pair[i]);
	pair[i] = -1;
}

static int end(void **state)
{
	(void)state;
	for (unsigned i = 0; i < DR_PACKET_FDS; i++)
		close(files[i]);
	close_end(0);
	close_end(1);
	return 0;
}

static void send_text(const char *text, unsigned n)
{
	assert_int_equal(dr_packet_send(pair[0], text, strlen(text), n ? files : NULL, n), 0);
}

/* A packet with this text, and n places for descriptors. */
static void receive_text(const char *text, int *fds, unsigned n)
{
	char buf[16] = "";

	for (unsigned i = 0; i < n; i++)
		fds[i] = 12345;
	assert_int_equal(dr_packet_receive(pair[1], buf, sizeof(buf), fds, n, 0), strlen(text));
	assert_string_equal(buf, text);
}

/* It is another descriptor of files[i]; it is closed. */
static void expect_file(int fd, unsigned i)
{
	struct stat a, b;

	assert_true(fd >= 0 && fd != files[i]);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(fstat(files[i], &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close(fd);
}

static void expect_nothing_left(void)
{
	assert_int_equal(n_open(), open_before);
}

static void with_descriptors(void **state)
{
	int fds[DR_PACKET_FDS];

	(void)state;
	for (unsigned n = 1; n <= DR_PACKET_FDS; n++) {
		send_text("with", n);
		receive_text("with", fds, n);
		assert_int_equal(n_open(), open_before + n); /* the sender's stay open */
		for (unsigned i = 0; i < n; i++)
			expect_file(fds[i], i);
		expect_nothing_left();
	}
}

static void without_descriptors(void **state)
{
	int fds[DR_PACKET_FDS];

	(void)state;
	send_text("without", 0);
	receive_text("without", NULL, 0);
	send_text("without", 0);
	receive_text("without", fds, DR_PACKET_FDS);
	for (unsigned i = 0; i < DR_PACKET_FDS; i++)
		assert_int_equal(fds[i], -1);
}

static void fewer_than_places(void **state)
{
	int fds[DR_PACKET_FDS];

	(void)state;
	send_text("fewer", 2);
	receive_text("fewer", fds, DR_PACKET_FDS);
	expect_file(fds[0], 0);
	expect_file(fds[1], 1);
	for (unsigned i = 2; i < DR_PACKET_FDS; i++)
		assert_int_equal(fds[i], -1);
	expect_nothing_left();
}

static void more_than_places(void **state)
{
	int fds[DR_PACKET_FDS];

	(void)state;
	for (unsigned n = 0; n < DR_PACKET_FDS; n++) {
		send_text("more", n + 1);
		receive_text("more", fds, n);
		expect_nothing_left();
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(fds[i], -1);
	}
	send_text("next", 0);
	receive_text("next", NULL, 0);
}

/* As another program may send it: more than any packet of ours has. */
static void more_than_any_packet_has(void **state)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * 2 * DR_PACKET_FDS)];
	} c = { .align = { .cmsg_len = CMSG_LEN(sizeof(int) * 2 * DR_PACKET_FDS),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS } };
	char text[] = "flood";
	struct iovec iov = { text, 5 };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = c.buf,
		.msg_controllen = sizeof(c.buf) };
	int fds[DR_PACKET_FDS];

	(void)state;
	memcpy(CMSG_DATA(&c.align), files, sizeof(files));
	memcpy(CMSG_DATA(&c.align) + sizeof(files), files, sizeof(files));
	assert_int_equal(sendmsg(pair[0], &m, 0), 5);
	receive_text("flood", fds, DR_PACKET_FDS);
	expect_nothing_left();
	for (unsigned i = 0; i < DR_PACKET_FDS; i++)
		assert_int_equal(fds[i], -1);
}

/* So that only the first of two gets a number here: the kernel drops the other one, and says so. */
static void too_many_open(void **state)
{
	struct rlimit old, low;
	int fds[2], next = dup(files[0]);

	(void)state;
	assert_true(next >= 0);
	close(next);
	send_text("lost", 2);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)next + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	receive_text("lost", fds, 2);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
	expect_nothing_left();
}

/* A look at a packet brings its descriptors, too. */
static void looked_at_first(void **state)
{
	char buf[8];
	int fd;

	(void)state;
	send_text("look", 1);
	assert_int_equal(dr_packet_receive(pair[1], buf, sizeof(buf), NULL, 0, MSG_PEEK), 4);
	expect_nothing_left();
	receive_text("look", &fd, 1);
	expect_file(fd, 0);
	expect_nothing_left();
}

static void longer_than_the_buffer(void **state)
{
	char buf[8] = "";

	(void)state;
	send_text("longer", 0);
	send_text("next", 0);
	assert_int_equal(dr_packet_receive(pair[1], buf, 4, NULL, 0, 0), 4);
	assert_string_equal(buf, "long");
	receive_text("next", NULL, 0);
}

static void peer_has_closed(void **state)
{
	char buf[8];
	int fd = 12345;

	(void)state;
	send_text("last", 0);
	close_end(0);
	receive_text("last", NULL, 0);
	assert_int_equal(dr_packet_receive(pair[1], buf, sizeof(buf), &fd, 1, 0), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(dr_packet_send(pair[1], "x", 1, files, 1), -EPIPE);
	/* Linux has none for these sockets, which no manual says. */
	assert_true(send_flags & MSG_NOSIGNAL);
	assert_int_equal(n_open(), open_before - 1);
}

static void nothing_there(void **state)
{
	char buf[8];
	int fds[2] = { 12345, 12345 };

	(void)state;
	assert_int_equal(
		dr_packet_receive(pair[1], buf, sizeof(buf), fds, 2, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
}

static void interrupted(void **state)
{
	int fd;

	(void)state;
	interrupted_sends = interrupted_receives = 3;
	send_text("again", 1);
	assert_int_equal(interrupted_sends, 0);
	receive_text("again", &fd, 1);
	assert_int_equal(interrupted_receives, 0);
	expect_file(fd, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(with_descriptors, begin, end),
		cmocka_unit_test_setup_teardown(without_descriptors, begin, end),
		cmocka_unit_test_setup_teardown(fewer_than_places, begin, end),
		cmocka_unit_test_setup_teardown(more_than_places, begin, end),
		cmocka_unit_test_setup_teardown(more_than_any_packet_has, begin, end),
		cmocka_unit_test_setup_teardown(too_many_open, begin, end),
		cmocka_unit_test_setup_teardown(looked_at_first, begin, end),
		cmocka_unit_test_setup_teardown(longer_than_the_buffer, begin, end),
		cmocka_unit_test_setup_teardown(peer_has_closed, begin, end),
		cmocka_unit_test_setup_teardown(nothing_there, begin, end),
		cmocka_unit_test_setup_teardown(interrupted, begin, end),
	};

	return cmocka_run_group_tests_name("packets with descriptors", tests, NULL, NULL);
}
