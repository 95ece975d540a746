/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torture: a server and a client over the loopback, while the k-th allocation or system call of one of
 * them fails. Whatever k is, both end in time with a documented status, an error with a line that says
 * why; nothing leaks (in sanitizer builds), no assertion fails.
 *
 *   TORTURE=all           every k, for each end and class, until there are no more calls
 *   TORTURE=client:json   every k of that end and class
 *   TORTURE=client:json:7 that one; client:json:7-99: from one to another
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
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 4, IDLE = 10, CALLS = 15, TEXT_MAX = 1 << 16 };

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
	/* jansson's parser goes on without the byte that it could not store (its issue 362). */
	if (WIFSIGNALED(c->status) && strstr(text, "lex_unget_unsave"))
		return NULL;
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

/* The calls of an end and a class. */
struct calls {
	const char *side, *class;
	bool faults;
	long n;		   /* in a run without a failure */
	_Atomic long last; /* the highest k that there was */
	_Atomic unsigned runs, failures;
};

/* A run in which the k-th of them fails; 0: none does. */
struct task {
	unsigned calls;
	long k;
};

/* What the processes share. */
static struct {
	struct calls calls[CALLS];
	_Atomic size_t next;
	unsigned died;
} * shared;

static void run(const struct task *t)
{
	struct calls *c = &shared->calls[t->calls];
	char name[64];
	bool fired;
	long n;

	faults = c->faults;
	failures = 0;
	n = one(c->side, c->class, t->k, &fired, name);
	if (t->k == 0) {
		c->n = n;
		if (n == 0)
			printf("# %s, %s: the run without a failure counted nothing\n", c->side,
				c->class);
		failures += n == 0;
	}
	for (long last = c->last; fired && t->k > last;)
		if (atomic_compare_exchange_weak(&c->last, &last, t->k))
			break;
	c->runs += fired;
	c->failures += failures;
}

/* In eight processes for each processor: a run mostly waits. */
static void run_all(const struct task *tasks, size_t n)
{
	size_t processes = DR_MIN(n, 8 * (size_t)sysconf(_SC_NPROCESSORS_ONLN));
	int status;

	shared->next = 0;
	fflush(NULL);
	for (size_t i = 0; i < processes; i++) {
		pid_t pid = fork();

		dr_assert(pid >= 0);
		if (pid > 0)
			continue;
		make_dir();
		for (size_t k; (k = shared->next++) < n;)
			run(&tasks[k]);
		remove_dir();
		fflush(NULL);
		_exit(0);
	}
	while (wait(&status) > 0)
		shared->died += status != 0;
}

/* Each call fails once; how many there are depends on timing, so it goes on until the last IDLE
 * were none. Or samples. */
static void every(unsigned from, unsigned to, bool all, struct dr_rng *rng)
{
	struct task *tasks = calloc(CALLS, sizeof(*tasks));
	long done[CALLS] = { 0 };
	size_t n = 0;

	dr_assert(tasks);
	for (unsigned i = from; i < to; i++)
		tasks[n++].calls = i;
	while (n > 0) {
		run_all(tasks, n);
		n = 0;
		for (unsigned i = from; i < to; i++) {
			const struct calls *c = &shared->calls[i];
			long most = DR_MAX(c->n, 1), runs = 0;

			if (done[i] == 0)
				runs = all ? most + IDLE : SAMPLES;
			else if (all && c->last > done[i] - IDLE)
				runs = most / 16 + IDLE;
			tasks = realloc(tasks, (n + (size_t)runs + 1) * sizeof(*tasks));
			dr_assert(tasks);
			for (long k = done[i]; k < done[i] + runs; k++)
				tasks[n++] = (struct task){ i,
					1 + (all ? k : (long)dr_rng_below(rng, (uint64_t)most)) };
			done[i] += runs;
		}
	}
	free(tasks);
}

/* The calls that TORTURE and FAULTS name; CALLS: all. */
static unsigned named(const char *side, const char *class)
{
	unsigned i = 0;

	while (i < CALLS && (strcmp(side, shared->calls[i].side) != 0 ||
				    strcmp(class, shared->calls[i].class) != 0 ||
				    shared->calls[i].faults != (getenv("FAULTS") != NULL)))
		i++;
	return i;
}

static void set_up(const char *self)
{
	static const char *const sides[] = { "server", "client", "doctor" };
	static const char *const classes[] = { "memory", "json", "system" };
	const char *slash = strrchr(self, '/');

	snprintf(program, sizeof(program), "%.*s/dualrail_main", slash ? (int)(slash - self) : 1,
		slash ? self : ".");
	/* The lines of a run in one piece. */
	setvbuf(stdout, NULL, _IOFBF, TEXT_MAX * 2);
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	dr_assert(shared != MAP_FAILED);
	for (unsigned i = 0; i < CALLS; i++)
		shared->calls[i] = (struct calls){ .side = sides[i < 12 ? i / 3 % 2 : 2],
			.class = classes[i % 3],
			.faults = i >= 6 && i < 12 };
}

int main(int argc, char **argv)
{
	const char *what = getenv("TORTURE"), *seed_text = getenv("SEED");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)dr_now_ns();
	char side[16] = "", class[16] = "";
	unsigned at, to, bad = 0;
	struct dr_rng rng;
	struct task t;
	long last;
	int n;

	(void)argc;
	set_up(argv[0]);
	dr_rng_seed(&rng, seed);
	printf("# SEED=%" PRIu64 "\n", seed);
	n = what ? sscanf(what, "%15[^:]:%15[^:]:%ld-%ld", side, class, &t.k, &last) : 0;
	at = named(side, class);
	if (what && at == CALLS && strcmp(what, "all") != 0) {
		fprintf(stderr, "TORTURE=%s names no calls: all, or e.g. client:json\n", what);
		return 1;
	}
	to = at < CALLS ? at + 1 : CALLS;
	at = at < CALLS ? at : 0;
	if (n >= 3) {
		make_dir();
		run(&(struct task){ .calls = at });
		last = n == 4 ? last : t.k;
		for (t.calls = at; t.k <= last; t.k++)
			run(&t);
		remove_dir();
	} else {
		every(at, to, what != NULL, &rng);
	}
	for (unsigned i = at; i < to; i++) {
		const struct calls *c = &shared->calls[i];

		printf("%sok %u - %s, %s%s: %u of %ld calls made to fail\n",
			c->failures ? "not " : "", ++tests, c->side, c->class,
			c->faults ? ", failover" : "", c->runs, c->n);
		bad += c->failures;
	}
	if (shared->died)
		printf("not ok %u - %u processes that make calls fail have died\n", ++tests,
			shared->died);
	printf("1..%u\n", tests);
	return bad || shared->died;
}
