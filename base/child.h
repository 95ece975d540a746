/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_CHILD_H
#define DR_BASE_CHILD_H

/*
 * A child process that serves its parent over one socket and runs no other program. A signal of the terminal that ends the
 * parent must not end the child, which may have to clean up; the child must not keep devices of the parent in use.
 */

/* Where its socket is from then on. */
enum { DR_CHILD_FD = 3 };

/*
 * In the child, after fork() and before it has other threads; fd: its socket.
 *
 * Descriptors: fd becomes DR_CHILD_FD, with close-on-exec. Standard error stays. Standard input and output become /dev/null.
 * All others are closed.
 * Signals: none is blocked. SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2 and
 * SIGALRM are ignored, SIGCHLD has its default action, all others stay as the parent has them.
 * Session: one of its own, without a terminal.
 * Name: of the thread, up to 15 characters; ps shows it.
 */
void dr_child_settle(int fd, const char *name);

#endif
