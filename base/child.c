/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include "base/defs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A GPU or NIC stays in use as long as a process holds it open. closefrom() uses /proc/self/fd where the kernel has no
 * close_range (before Linux 5.9). */
static void drop_descriptors(int fd)
{
	if (fd != DR_CHILD_FD)
		(void)dup2(fd, DR_CHILD_FD);
	closefrom(DR_CHILD_FD + 1);
	if (fd < DR_CHILD_FD)
		close(fd);
	int null = open("/dev/null", O_RDWR);
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	if (null > DR_CHILD_FD)
		close(null);
	(void)fcntl(DR_CHILD_FD, F_SETFD, FD_CLOEXEC);
}

void dr_child_settle(int fd, const char *name)
{
	static const int ignored[] = { SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN,
		SIGTTOU, SIGUSR1, SIGUSR2, SIGALRM };
	sigset_t none;

	drop_descriptors(fd);
	(void)setsid();
	(void)prctl(PR_SET_NAME, name);
	for (size_t i = 0; i < DR_ARRAY_LEN(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	(void)signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}
