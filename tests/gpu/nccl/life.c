/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * One rank of a job whose communicators come, go and break, for tests of network plugins.
 *
 *   life RANK RANKS IDFILE CASE...
 *
 * abort-one: the last rank calls ncclCommAbort while all-reduces run; the others have to see an error. abort-both: all ranks call it.
 * split: two children of a communicator, one with resources of its own and one that shares its parent's, while the parent carries
 * data. shrink, shrink-abort: rank 0 leaves the others out, between collectives and while they run. threads: two communicators in two threads.
 * After each case a new communicator of all ranks has to work.
 *
 * The ranks share the file system: rank 0 writes NCCL's ids to IDFILE.N. The environment decides about NCCL's network.
 * Lines of results: "life CASE WRONG MS": wrong elements, and how long an error took to come here after another rank's abort (0:
 * not the subject). "life CASE skipped REASON". Exit status: 0, 1 (usage), 4 (an error of NCCL or CUDA, or none where one is
 * due), 6 (wrong elements), 7 (a case took more than LIMIT seconds).
 */
enum { LIMIT_S = 30, ERROR_S = 15, ELEMENTS = 2 << 20, TRAIN = 24, TRAIN_ELEMENTS = 32 << 20 };

static int rank, ranks, device, ids;
static const char *id_file, *what = "start";

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "rank %d: %s: ", rank, what);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	_exit(4); /* the destructors may wait for a communicator that is broken */
}

#define CUDA(call)                                                                                 \
	do {                                                                                       \
		cudaError_t rc_ = (call);                                                          \
		if (rc_ != cudaSuccess)                                                            \
			die("%s: %s", #call, cudaGetErrorString(rc_));                             \
	} while (0)
#define NCCL(call)                                                                                 \
	do {                                                                                       \
		ncclResult_t rc_ = (call);                                                         \
		if (rc_ != ncclSuccess)                                                            \
			die("%s: %s (%s)", #call, ncclGetErrorString(rc_),                         \
				ncclGetLastError(NULL));                                           \
	} while (0)

static void hung(int sig)
{
	static const char text[] = "a case took too long\n";

	(void)sig;
	(void)!write(2, text, sizeof(text) - 1);
	_exit(7);
}

/* ---- communicators ---- */

/* A communicator and what its collectives work on. */
struct team {
	ncclComm_t comm;
	cudaStream_t stream;
	float *in, *out, *host;
	int size, rank;
	bool reversed; /* its rank r is the job's rank size - 1 - r */
};

static void new_id(int number, ncclUniqueId *id)
{
	char file[4096], part[4200];
	FILE *f;

	snprintf(file, sizeof(file), "%s.%d", id_file, number);
	snprintf(part, sizeof(part), "%s.part", file);
	if (rank == 0) {
		NCCL(ncclGetUniqueId(id));
		f = fopen(part, "wb");
		if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) != 0 ||
			rename(part, file) != 0)
			die("%s: %s", file, strerror(errno));
		return;
	}
	while (!(f = fopen(file, "rb")))
		usleep(2000);
	if (fread(id, sizeof(*id), 1, f) != 1)
		die("%s: too short", file);
	fclose(f);
}

static void team_memory(struct team *t, size_t elements)
{
	CUDA(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&t->in, elements * sizeof(float)));
	CUDA(cudaMalloc((void **)&t->out, elements * sizeof(float)));
	CUDA(cudaMallocHost((void **)&t->host, elements * sizeof(float)));
}

static void team_join(struct team *t, int number)
{
	ncclUniqueId id;

	new_id(number, &id);
	NCCL(ncclCommInitRank(&t->comm, ranks, id, rank));
	t->size = ranks;
	t->rank = rank;
}

static void team_new(struct team *t, size_t elements)
{
	memset(t, 0, sizeof(*t));
	team_memory(t, elements);
	team_join(t, ids++);
}

/* Not before the communicator is destroyed or aborted: this waits for the device. */
static void team_free(struct team *t)
{
	CUDA(cudaStreamDestroy(t->stream));
	CUDA(cudaFree(t->in));
	CUDA(cudaFree(t->out));
	CUDA(cudaFreeHost(t->host));
}

static void team_end(struct team *t)
{
	NCCL(ncclCommDestroy(t->comm));
	team_free(t);
}

/* ---- collectives ---- */

static float value(int r, size_t i, int turn)
{
	return (float)((r * 7 + turn * 11 + (int)(i % 1021)) % 97);
}

/* Waits for the stream, but ends when the communicator has failed. */
static void wait_team(struct team *t)
{
	for (;;) {
		cudaError_t rc = cudaStreamQuery(t->stream);
		ncclResult_t async;

		if (rc == cudaSuccess)
			return;
		if (rc != cudaErrorNotReady)
			die("stream: %s", cudaGetErrorString(rc));
		NCCL(ncclCommGetAsyncError(t->comm, &async));
		if (async != ncclSuccess && async != ncclInProgress)
			die("the communicator failed: %s (%s)", ncclGetErrorString(async),
				ncclGetLastError(t->comm));
	}
}

static int world_rank(const struct team *t, int r)
{
	return t->size == 1 ? rank : t->reversed ? t->size - 1 - r : r;
}

static void begin_reduce(struct team *t, size_t n, int turn)
{
	for (size_t i = 0; i < n; i++)
		t->host[i] = value(world_rank(t, t->rank), i, turn);
	CUDA(cudaMemcpyAsync(t->in, t->host, n * sizeof(float), cudaMemcpyHostToDevice, t->stream));
	CUDA(cudaMemsetAsync(t->out, 0xff, n * sizeof(float), t->stream));
	NCCL(ncclAllReduce(t->in, t->out, n, ncclFloat, ncclSum, t->comm, t->stream));
}

static size_t end_reduce(struct team *t, size_t n, int turn)
{
	size_t wrong = 0;

	wait_team(t);
	CUDA(cudaMemcpyAsync(
		t->host, t->out, n * sizeof(float), cudaMemcpyDeviceToHost, t->stream));
	CUDA(cudaStreamSynchronize(t->stream));
	for (size_t i = 0; i < n; i++) {
		float sum = 0;

		for (int r = 0; r < t->size; r++)
			sum += value(world_rank(t, r), i, turn);
		wrong += t->host[i] != sum;
	}
	return wrong;
}

/* The place of each rank's part shows the order of the ranks. */
static size_t gather(struct team *t, size_t part, int turn)
{
	size_t n = part * (size_t)t->size, wrong = 0;

	for (size_t i = 0; i < part; i++)
		t->host[i] = value(world_rank(t, t->rank), i, turn);
	CUDA(cudaMemcpyAsync(
		t->in, t->host, part * sizeof(float), cudaMemcpyHostToDevice, t->stream));
	CUDA(cudaMemsetAsync(t->out, 0xff, n * sizeof(float), t->stream));
	NCCL(ncclAllGather(t->in, t->out, part, ncclFloat, t->comm, t->stream));
	wait_team(t);
	CUDA(cudaMemcpyAsync(
		t->host, t->out, n * sizeof(float), cudaMemcpyDeviceToHost, t->stream));
	CUDA(cudaStreamSynchronize(t->stream));
	for (size_t i = 0; i < n; i++)
		wrong += t->host[i] != value(world_rank(t, (int)(i / part)), i % part, turn);
	return wrong;
}

static size_t use(struct team *t)
{
	static const size_t sizes[] = { 2, 1024, 65536, ELEMENTS };
	size_t wrong = 0;

	for (int k = 0; k < 8; k++) {
		size_t n = sizes[k % 4];

		begin_reduce(t, n, k);
		wrong += end_reduce(t, n, k);
		wrong += gather(t, (n + (size_t)t->size - 1) / (size_t)t->size / 2 + 1, k);
	}
	return wrong;
}

/* Large all-reduces, more than are over when the caller breaks them off. */
static void set_off(struct team *t)
{
	for (int k = 0; k < TRAIN; k++)
		NCCL(ncclAllReduce(
			t->in, t->out, TRAIN_ELEMENTS, ncclFloat, ncclSum, t->comm, t->stream));
	usleep(30 * 1000);
	if (cudaStreamQuery(t->stream) != cudaErrorNotReady)
		die("the all-reduces were over too early");
}

static bool failed(struct team *t)
{
	ncclResult_t async = ncclSuccess;

	NCCL(ncclCommGetAsyncError(t->comm, &async));
	return async != ncclSuccess && async != ncclInProgress;
}

/* Another rank aborted: an error comes to this one. The time in ms. */
static double error_comes(struct team *t)
{
	int64_t begin = now_ns();

	while (!failed(t)) {
		if (cudaStreamQuery(t->stream) == cudaSuccess && !failed(t))
			die("the collectives ended although the other rank aborted");
		if (now_ns() - begin > (int64_t)ERROR_S * 1000000000)
			die("no error %d s after the other rank's abort", ERROR_S);
		usleep(1000);
	}
	return (double)(now_ns() - begin) / 1e6;
}

static size_t new_one_works(void)
{
	struct team t;
	size_t wrong;

	team_new(&t, ELEMENTS + 16);
	wrong = use(&t);
	team_end(&t);
	return wrong;
}

/* ---- cases: wrong elements, and a time in ms ---- */

static size_t abort_some(bool all, double *ms)
{
	struct team t;
	size_t wrong;

	team_new(&t, TRAIN_ELEMENTS);
	wrong = use(&t);
	set_off(&t);
	if (!all && rank != ranks - 1)
		*ms = error_comes(&t);
	NCCL(ncclCommAbort(t.comm));
	team_free(&t);
	return wrong + new_one_works();
}

static size_t abort_one(double *ms)
{
	return abort_some(false, ms);
}

static size_t abort_both(double *ms)
{
	return abort_some(true, ms);
}

static size_t split_one(struct team *parent, bool share)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct team all = { .reversed = true }, own = { 0 };
	ncclComm_t none = NULL;
	size_t wrong = 0;

	config.splitShare = share;
	team_memory(&all, ELEMENTS + 16);
	team_memory(&own, ELEMENTS + 16);
	NCCL(ncclCommSplit(parent->comm, 0, ranks - rank, &all.comm, &config));
	NCCL(ncclCommSplit(parent->comm, rank, 0, &own.comm, NULL));
	NCCL(ncclCommSplit(parent->comm, rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
	NCCL(ncclCommCount(all.comm, &all.size));
	NCCL(ncclCommUserRank(all.comm, &all.rank));
	NCCL(ncclCommCount(own.comm, &own.size));
	if (all.size != ranks || all.rank != ranks - 1 - rank || own.size != 1 ||
		!none != (rank != 0))
		die("split: %d ranks, this is %d; %d ranks", all.size, all.rank, own.size);
	wrong += use(&all);
	for (int k = 0; k < 20;
		k++) { /* parent and child at once; one after the other if they share */
		begin_reduce(parent, ELEMENTS, k);
		if (share)
			wrong += end_reduce(parent, ELEMENTS, k);
		begin_reduce(&all, ELEMENTS, k + 1);
		if (!share)
			wrong += end_reduce(parent, ELEMENTS, k);
		wrong += end_reduce(&all, ELEMENTS, k + 1);
	}
	wrong += use(&own);
	if (none)
		NCCL(ncclCommDestroy(none));
	team_end(&own);
	team_end(&all);
	return wrong + use(parent);
}

static size_t split(double *ms)
{
	struct team parent;
	size_t wrong = 0;

	(void)ms;
	team_new(&parent, ELEMENTS + 16);
	wrong += use(&parent);
	wrong += split_one(&parent, false);
	wrong += split_one(&parent, true);
	team_end(&parent);
	return wrong + new_one_works();
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
/* Rank 0 goes on alone. */
static size_t shrink_to_one(struct team *parent, int flags)
{
	struct team t = { 0 };
	int others[64];
	size_t wrong;

	if (ranks > 64)
		die("more than 64 ranks");
	for (int i = 1; i < ranks; i++)
		others[i - 1] = i;
	team_memory(&t, ELEMENTS + 16);
	NCCL(ncclCommShrink(parent->comm, others, ranks - 1, &t.comm, NULL, flags));
	NCCL(ncclCommCount(t.comm, &t.size));
	if (t.size != 1)
		die("shrink: %d ranks remain", t.size);
	wrong = use(&t);
	team_end(&t);
	return wrong;
}

static size_t shrink(double *ms)
{
	struct team parent;
	size_t wrong;

	(void)ms;
	team_new(&parent, ELEMENTS + 16);
	wrong = use(&parent);
	if (rank == 0)
		wrong += shrink_to_one(&parent, NCCL_SHRINK_DEFAULT);
	wrong += use(&parent);
	team_end(&parent);
	return wrong + new_one_works();
}

/* Not after an error of the network: NCCL 2.28 returns it then instead of a communicator. */
static size_t shrink_abort(double *ms)
{
	struct team parent;
	size_t wrong;

	team_new(&parent, TRAIN_ELEMENTS);
	wrong = use(&parent);
	set_off(&parent);
	if (rank == 0)
		wrong += shrink_to_one(&parent, NCCL_SHRINK_ABORT);
	else
		*ms = error_comes(&parent);
	NCCL(ncclCommAbort(parent.comm));
	team_free(&parent);
	return wrong + new_one_works();
}
#endif

struct in_thread {
	struct team team;
	pthread_t t;
	pthread_barrier_t *ready;
	int number;
	size_t wrong;
};

static void *communicator(void *arg)
{
	struct in_thread *a = arg;

	CUDA(cudaSetDevice(device));
	team_join(&a->team, a->number);
	pthread_barrier_wait(a->ready);
	for (int k = 0; k < 5; k++)
		a->wrong += use(&a->team);
	pthread_barrier_wait(a->ready); /* the end of a communicator waits for the device */
	NCCL(ncclCommDestroy(a->team.comm));
	return NULL;
}

static size_t threads(double *ms)
{
	struct in_thread a[2] = { 0 };
	pthread_barrier_t ready;
	size_t wrong = 0;

	(void)ms;
	pthread_barrier_init(&ready, NULL, 2);
	for (int i = 0; i < 2; i++) {
		a[i].ready = &ready;
		a[i].number = ids++;
		team_memory(&a[i].team, ELEMENTS + 16);
	}
	for (int i = 0; i < 2; i++)
		if (pthread_create(&a[i].t, NULL, communicator, &a[i]) != 0)
			die("no thread");
	for (int i = 0; i < 2; i++)
		pthread_join(a[i].t, NULL);
	for (int i = 0; i < 2; i++) {
		team_free(&a[i].team);
		wrong += a[i].wrong;
	}
	pthread_barrier_destroy(&ready);
	return wrong + new_one_works();
}

static const struct {
	const char *name;
	size_t (*run)(double *ms);
} cases[] = {
	{ "abort-one", abort_one },
	{ "abort-both", abort_both },
	{ "split", split },
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	{ "shrink", shrink },
	{ "shrink-abort", shrink_abort },
#endif
	{ "threads", threads },
};

static size_t run_case(const char *name)
{
	what = name;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		double ms = 0;
		size_t wrong;

		if (strcmp(cases[i].name, name) != 0)
			continue;
		alarm(LIMIT_S);
		wrong = cases[i].run(&ms);
		alarm(0);
		printf("life %s %zu %.1f\n", name, wrong, ms);
		return wrong;
	}
	printf("life %s skipped not with NCCL %d\n", name, NCCL_VERSION_CODE);
	return 0;
}

int main(int argc, char **argv)
{
	size_t wrong = 0;

	if (argc < 5) {
		fprintf(stderr,
			"usage: life RANK RANKS IDFILE abort-one | abort-both | split | shrink | shrink-abort | threads...\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, hung);
	rank = atoi(argv[1]);
	ranks = atoi(argv[2]);
	id_file = argv[3];
	device = getenv("DEVICE") ? atoi(getenv("DEVICE")) : rank;
	CUDA(cudaSetDevice(device));
	for (int i = 4; i < argc; i++)
		wrong += run_case(argv[i]);
	return wrong ? 6 : 0;
}
