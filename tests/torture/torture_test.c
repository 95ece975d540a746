/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torture: a server and a client over the loopback, while the k-th allocation or system call of one of
 * them fails. Whatever k is, both end in time with a documented status, an error with a line that says
 * why; nothing leaks (in sanitizer builds), no assertion fails.
 *
 *   TORTURE=all           every k, for each end and class, until there are no more calls
 *   TORTURE=client:json   every k of that end and class
 *   TORTURE=client:json:7 that one
 *   TORTURE=client:json:7-99 from one to another, to share the work out
 *   FAULTS=1              in front of the last three: in a failover campaign
 *   (nothing)             SAMPLES random k of each, from SEED
 *
 * Prints TAP. The program is beside this one: dualrail_main, see there.
 */
#include "base/clock.h"
#include "base/rng.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 4, IDLE = 10, TEXT_MAX = 1 << 16 };

/* Each end's own deadlines are 2 s and less. */
static const int64_t END_NS = 60 * DR_NS_PER_S, LINGER_NS = DR_NS_PER_S / 2;

static char program[4096], dir[64];
static unsigned tests, failures;
static bool faults; /* a failover campaign instead of bandwidth and latency */

struct child {
	const char *name;
	pid_t pid;
	int fd, status;
	bool ended, told;
};

static void path_of(char *buf, size_t len, const char *name)
{
	snprintf(buf, len, "%s/%s", dir, name);
}

static void read_text(const char *name, char *text)
{
	char path[128];
	ssize_t n = -1;
	int fd;

	path_of(path, sizeof(path), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, TEXT_MAX - 1);
		close(fd);
	}
	text[DR_MAX(n, 0)] = 0;
}

static void remove_file(const char *name)
{
	char path[128];

	path_of(path, sizeof(path), name);
	unlink(path);
}

/* A port of the loopback that nobody else gets until the next call: bound, and with SO_REUSEADDR from then on, so that
 * the server can bind it, too. */
static unsigned free_port(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static int held = -1;
	socklen_t len = sizeof(sa);
	int one = 1;

	if (held >= 0)
		close(held);
	held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	dr_assert(held >= 0 && bind(held, (struct sockaddr *)&sa, len) == 0);
	dr_assert(getsockname(held, (struct sockaddr *)&sa, &len) == 0);
	dr_assert(setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
	return ntohs(sa.sin_port);
}

static void in_child(const char *const argv[], const char *spec, const char *err)
{
	int fd = open(err, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char log[128];

	path_of(log, sizeof(log), "log");
	setenv("DR_TORTURE", spec, 1);
	setenv("DR_TORTURE_LOG", log, 1);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
		_exit(126);
	execv(program, (char *const *)argv);
	_exit(127);
}

static void start(struct child *c, const char *name, const char *const argv[], const char *spec)
{
	char err[128];

	path_of(err, sizeof(err), name);
	fflush(NULL);
	*c = (struct child){ .name = name, .pid = fork() };
	dr_assert(c->pid >= 0);
	if (c->pid == 0)
		in_child(argv, spec, err);
	c->fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	dr_assert(c->fd >= 0);
}

/* True when it has ended. */
static bool await(struct child *c, int64_t deadline_ns)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	while (!c->ended) {
		int64_t left = deadline_ns - dr_now_ns();

		if (waitpid(c->pid, &c->status, WNOHANG) == c->pid)
			c->ended = true;
		else if (left <= 0)
			return false;
		else
			poll(&p, 1, (int)(left / DR_NS_PER_MS) + 1);
	}
	return true;
}

static bool says_bug(const char *text)
{
	static const char *const bug[] = { "assertion failed", "Sanitizer", "runtime error" };

	for (size_t i = 0; i < DR_ARRAY_LEN(bug); i++)
		if (strstr(text, bug[i]))
			return true;
	return false;
}

/* Why this end's end is wrong; NULL: it is right. */
static const char *wrong(struct child *c, char *text)
{
	int status = WEXITSTATUS(c->status);

	read_text(c->name, text);
	if (says_bug(text))
		return "a bug was reported";
	if (WIFSIGNALED(c->status))
		return c->told && WTERMSIG(c->status) == SIGTERM ? NULL : "ended by a signal";
	if (c->told && status == 128 + SIGTERM)
		return NULL;
	if (status > 8 || status == 1)
		return "an exit status that is not documented for this";
	if (status != 0 && text[strspn(text, " \n")] == 0)
		return "failed without a word";
	return NULL;
}

static void run_both(struct child *server, struct child *client, const char *spec)
{
	char port[16], json[140];
	const char *sv[] = { program, "server", "-1", "-g0", "--port", port, "--rails",
		"lo@127.0.0.2,lo@127.0.0.3", "--control", "127.0.0.1", "--timeout=2s", NULL };
	const char *cl[] = { program, "client", "127.0.0.1", "-g0", "-N1", "-s64K", "--port", port,
		"--rails", "lo@127.0.0.2,lo@127.0.0.3", "--connect-timeout=2s", "--timeout=2s",
		json, "--test=bw,lat", "-n4", "-w1", NULL, NULL, NULL };
	const char *const look[] = { program, "doctor", "127.0.0.1", "-g0", "--port", port,
		"--rails", "lo@127.0.0.2,lo@127.0.0.3", "--connect-timeout=2s", json, NULL };
	bool doctor = strncmp(spec, "doctor:", 7) == 0;
	static const char *const failover[] = { "--test=failover", "--allow-faults",
		"--fault=close:path=0,at=50ms,for=50ms", "--hold-down=20ms", "--rate=20M" };

	if (faults)
		memcpy(&cl[13], failover, sizeof(failover));

	snprintf(json, sizeof(json), "--json=%s/result.json", dir);
	snprintf(port, sizeof(port), "%u", free_port());
	start(server, "server.err", sv, spec);
	start(client, "client.err", doctor ? look : cl, spec);
	await(client, dr_now_ns() + END_NS);
	/* A server whose client never came waits for one. */
	if (!await(server, dr_now_ns() + (doctor ? 0 : LINGER_NS))) {
		server->told = true;
		kill(server->pid, SIGTERM);
		await(server, dr_now_ns() + END_NS);
	}
}

static const char *judge(struct child *c, char *text)
{
	const char *why = c->ended ? wrong(c, text) : "did not end";

	if (!c->ended) {
		read_text(c->name, text);
		kill(c->pid, SIGKILL);
		waitpid(c->pid, &c->status, 0);
	}
	close(c->fd);
	return why;
}

/* The client's document, if there is one, is whole, and there is no other file of its making. */
static const char *left_behind(void)
{
	struct dirent **entry;
	const char *why = NULL;
	char path[128];
	json_t *j;
	int n = scandir(dir, &entry, NULL, NULL);

	for (int i = 0; i < n; i++) {
		const char *name = entry[i]->d_name;

		if (name[0] == '.' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			why = "left a file behind";
		if (strstr(name, "result.json") == name && strcmp(name, "result.json") != 0)
			why = "left a file behind";
		free(entry[i]);
	}
	free(n >= 0 ? entry : NULL);
	path_of(path, sizeof(path), "result.json");
	if (access(path, F_OK) != 0)
		return why;
	j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
	if (!j)
		why = "its document is not whole";
	json_decref(j);
	return why;
}

/* One run. Returns the number of calls; 0: unknown. *fired: that many there were. */
static long one(const char *side, const char *class, long k, bool *fired, char name[64])
{
	static char text[TEXT_MAX];
	struct child c[2];
	char spec[64], *at;
	bool bad = false;
	long n = 0;

	snprintf(spec, sizeof(spec), "%s:%s:%ld", side, class, k);
	remove_file("log");
	remove_file("result.json");
	run_both(&c[0], &c[1], spec);
	read_text("log", text);
	*fired = sscanf(text, "fired %63s", name) == 1;
	at = strstr(text, "count ");
	if (at)
		sscanf(at, "count %*s %ld", &n);
	for (int i = 0; i < 2; i++) {
		const char *why = judge(&c[i], text);

		if (!why)
			why = i ? left_behind() : NULL;
		if (!why)
			continue;
		bad = true;
		printf("# %sTORTURE=%s (%s): %s: %s (status 0x%x)\n", faults ? "FAULTS=1 " : "",
			spec, *fired ? name : "-", c[i].name, why, (unsigned)c[i].status);
		for (char *save = NULL, *l = strtok_r(text, "\n", &save); l;
			l = strtok_r(NULL, "\n", &save))
			printf("#   %s\n", l);
	}
	fflush(stdout);
	failures += bad;
	return n;
}

static void report(const char *side, const char *class, unsigned runs, long calls, unsigned before)
{
	printf("%sok %u - %s, %s%s: %u of %ld calls made to fail\n",
		failures > before ? "not " : "", ++tests, side, class, faults ? ", failover" : "",
		runs, calls);
	fflush(stdout);
}

static void some(const char *side, const char *class, long from, long to)
{
	char name[64];
	bool fired;
	long n = 0;

	for (long k = from; k <= to; k++)
		n = DR_MAX(n, one(side, class, k, &fired, name));
	report(side, class, (unsigned)(to - from + 1), n, 0);
}

static void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/tmp/dualrail-torture-XXXXXX");
	dr_assert(mkdtemp(dir));
}

static void remove_dir(void)
{
	remove_file("log");
	remove_file("server.err");
	remove_file("client.err");
	remove_file("result.json");
	rmdir(dir);
}

struct share {
	unsigned runs, failures;
};

/* Every step-th k from the first on. How many calls there are depends on timing too. */
static struct share share_of(const char *side, const char *class, long first, long step)
{
	struct share done = { 0 };
	unsigned idle = 0;
	char name[64];
	bool fired;

	make_dir();
	failures = 0;
	for (long k = first; idle < IDLE; k += step) {
		one(side, class, k, &fired, name);
		idle = fired ? 0 : idle + 1;
		done.runs += fired;
	}
	remove_dir();
	done.failures = failures;
	return done;
}

/* Every k, shared out to processes: a run mostly waits, so eight for each processor. Returns the runs. */
static unsigned all_calls(const char *side, const char *class)
{
	long jobs = 8 * sysconf(_SC_NPROCESSORS_ONLN);
	struct share done;
	unsigned runs = 0;
	int fd[2];

	dr_assert(pipe2(fd, O_CLOEXEC) == 0);
	fflush(NULL);
	for (long j = 0; j < jobs; j++) {
		pid_t pid = fork();

		dr_assert(pid >= 0);
		if (pid == 0) {
			done = share_of(side, class, j + 1, jobs);
			_exit(write(fd[1], &done, sizeof(done)) != sizeof(done));
		}
	}
	close(fd[1]);
	for (long j = 0; j < jobs; j++) {
		if (read(fd[0], &done, sizeof(done)) != sizeof(done)) {
			printf("# %s, %s: a process that makes calls fail has ended\n", side,
				class);
			failures++;
			break;
		}
		runs += done.runs;
		failures += done.failures;
	}
	close(fd[0]);
	while (wait(NULL) > 0)
		;
	return runs;
}

static void every(const char *side, const char *class, bool all, struct dr_rng *rng)
{
	unsigned before = failures, runs = 0;
	char name[64];
	bool fired;
	long n = one(side, class, 0, &fired, name);

	if (n == 0) {
		printf("# %s, %s: the run without a failure counted nothing\n", side, class);
		failures++;
	}
	if (all && n > 0)
		runs = all_calls(side, class);
	for (int i = 0; !all && i < SAMPLES && n > 0; i++, runs++)
		one(side, class, 1 + (long)dr_rng_below(rng, (uint64_t)n), &fired, name);
	report(side, class, runs, n, before);
}

int main(int argc, char **argv)
{
	static const char *const sides[] = { "server", "client", "doctor" };
	static const char *const classes[] = { "memory", "json", "system" };
	const char *what = getenv("TORTURE"), *seed_text = getenv("SEED");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)dr_now_ns();
	char side[16], class[16], *slash = strrchr(argv[0], '/');
	struct dr_rng rng;
	long from, to;
	int n;

	(void)argc;
	snprintf(program, sizeof(program), "%.*s/dualrail_main", slash ? (int)(slash - argv[0]) : 1,
		slash ? argv[0] : ".");
	make_dir();
	faults = getenv("FAULTS") != NULL;
	n = what ? sscanf(what, "%15[^:]:%15[^:]:%ld-%ld", side, class, &from, &to) : 0;
	dr_rng_seed(&rng, seed);
	if (n >= 3) {
		some(side, class, from, n == 4 ? to : from);
	} else if (n == 2) {
		every(side, class, true, &rng);
	} else {
		printf("# SEED=%" PRIu64 "\n", seed);
		for (int i = 0; i < 15; i++) {
			faults = i >= 6 && i < 12;
			every(sides[i < 12 ? i / 3 % 2 : 2], classes[i % 3], n == 1, &rng);
		}
	}
	printf("1..%u\n", tests);
	remove_dir();
	return failures > 0;
}
