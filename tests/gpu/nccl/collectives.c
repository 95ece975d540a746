/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>
#include <errno.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/*
 * One rank of a job that checks and measures NCCL's collectives, for a comparison of network plugins.
 *
 *   collectives RANK RANKS IDFILE [check | measure | soak SECONDS | record]
 *
 * The ranks share the file system; rank 0 writes NCCL's id to IDFILE. IDFILE "env": they do not, and NCCL_COMM_ID is the
 * address of rank 0 (k8s/base/run-nccl.sh). The environment decides about NCCL's network.
 * check: all collectives, several sizes, in place and out of place, every element compared.
 * measure: all-reduce of 8 bytes to 128 MiB, or of BYTES: time per operation, bus bandwidth, CPU seconds per GB.
 * soak: all-reduce of 8 MiB, five times untimed, then for so many seconds. Every element of each iteration is compared while the next
 * one is under way, which is part of that one's time. Each iteration's time goes to standard output as "iter NUMBER START_NS TIME_NS"
 * (the start by CLOCK_REALTIME), so that an observer can compare it with the faults that it makes.
 * record: all-reduce twice of a few sizes, every element compared, for a recording of the calls to the network plugin.
 *
 * Lines of results: "check OP BYTES PLACE WRONG", "measure BYTES US GBPS MAX_US CPU_S_PER_GB ALL", "soak ITERATIONS WRONG
 * MEDIAN_NS MAX_NS"; ALL: how many ran, those before the measurement too. After an error "error NOW_NS" (CLOCK_REALTIME). Exit status: 0, 1 (usage), 4 (an error of NCCL or CUDA), 6 (wrong elements).
 */

static int rank, ranks;

static int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static void die(const char *fmt, ...)
{
	va_list ap;

	printf("error %lld\n", (long long)clock_ns(CLOCK_REALTIME));
	va_start(ap, fmt);
	fprintf(stderr, "rank %d: ", rank);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(4);
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

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* ---- job ---- */

static ncclComm_t comm;
static cudaStream_t stream;
static float *in, *out, *host; /* SIZE_MAX_BYTES each */
enum { BYTES_MAX = 128 << 20 };

static void exchange_id(const char *file, ncclUniqueId *id)
{
	char part[4096];
	FILE *f;

	/* With NCCL_COMM_ID each rank gets the same id, and rank 0 serves it. */
	if (strcmp(file, "env") == 0) {
		if (!getenv("NCCL_COMM_ID"))
			die("IDFILE is env, but NCCL_COMM_ID is not set");
		NCCL(ncclGetUniqueId(id));
		return;
	}
	if (rank == 0) {
		NCCL(ncclGetUniqueId(id));
		snprintf(part, sizeof(part), "%s.part", file);
		f = fopen(part, "wb");
		if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) != 0 ||
			rename(part, file) != 0)
			die("%s: %s", file, strerror(errno));
		return;
	}
	while (!(f = fopen(file, "rb")))
		usleep(10000);
	if (fread(id, sizeof(*id), 1, f) != 1)
		die("%s: too short", file);
	fclose(f);
}

/* MPS refuses new clients for some time after others were killed, and a process that was refused for good. */
static void open_device(char **argv)
{
	enum { TRIES = 60 };
	int device = getenv("DEVICE") ? atoi(getenv("DEVICE")) : rank;
	int tries = getenv("DEVICE_TRIES") ? atoi(getenv("DEVICE_TRIES")) : 0;
	cudaError_t rc = cudaSetDevice(device);
	char text[16];

	if (rc == cudaErrorDevicesUnavailable && tries < TRIES) {
		snprintf(text, sizeof(text), "%d", tries + 1);
		setenv("DEVICE_TRIES", text, 1);
		usleep(500 * 1000);
		execv("/proc/self/exe", argv);
	}
	CUDA(rc);
}

static void join_job(const char *file)
{
	ncclUniqueId id;

	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&in, BYTES_MAX));
	CUDA(cudaMalloc((void **)&out, BYTES_MAX));
	CUDA(cudaMallocHost((void **)&host, BYTES_MAX));
	exchange_id(file, &id);
	NCCL(ncclCommInitRank(&comm, ranks, id, rank));
}

/* Waits for the stream, but ends when the communicator has failed. */
static void wait_stream(void)
{
	for (;;) {
		cudaError_t rc = cudaStreamQuery(stream);
		ncclResult_t async;

		if (rc == cudaSuccess)
			return;
		if (rc != cudaErrorNotReady)
			die("stream: %s", cudaGetErrorString(rc));
		NCCL(ncclCommGetAsyncError(comm, &async));
		if (async != ncclSuccess && async != ncclInProgress)
			die("the communicator failed: %s (%s)", ncclGetErrorString(async),
				ncclGetLastError(comm));
	}
}

/* ---- collectives: element i of rank r is small, so that sums are exact ---- */

static float value(int r, size_t i)
{
	return (float)((r * 7 + (int)(i % 1021)) % 97);
}

enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, OPS };
static const char *const op_name[] = { "all-reduce", "all-gather", "reduce-scatter", "broadcast",
	"all-to-all" };

static float sum(size_t i)
{
	float s = 0;

	for (int r = 0; r < ranks; r++)
		s += value(r, i);
	return s;
}

/* n: elements of the larger buffer, a multiple of ranks. */
static void run_op(enum op op, const float *from, float *to, size_t n)
{
	size_t part = n / (size_t)ranks;

	switch (op) {
	case ALL_REDUCE:
		NCCL(ncclAllReduce(from, to, n, ncclFloat, ncclSum, comm, stream));
		break;
	case ALL_GATHER:
		NCCL(ncclAllGather(from, to, part, ncclFloat, comm, stream));
		break;
	case REDUCE_SCATTER:
		NCCL(ncclReduceScatter(from, to, part, ncclFloat, ncclSum, comm, stream));
		break;
	case BROADCAST:
		NCCL(ncclBroadcast(from, to, n, ncclFloat, ranks - 1, comm, stream));
		break;
	default:
		NCCL(ncclGroupStart());
		for (int r = 0; r < ranks; r++) {
			NCCL(ncclSend(from + (size_t)r * part, part, ncclFloat, r, comm, stream));
			NCCL(ncclRecv(to + (size_t)r * part, part, ncclFloat, r, comm, stream));
		}
		NCCL(ncclGroupEnd());
	}
}

static float expected(enum op op, size_t i, size_t part)
{
	switch (op) {
	case ALL_REDUCE:
		return sum(i);
	case ALL_GATHER:
		return value((int)(i / part), i % part);
	case REDUCE_SCATTER:
		return sum((size_t)rank * part + i);
	case BROADCAST:
		return value(ranks - 1, i);
	default:
		return value((int)(i / part), (size_t)rank * part + i % part);
	}
}

static void fill(float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		host[i] = value(rank, i);
	CUDA(cudaMemcpy(to, host, n * sizeof(float), cudaMemcpyHostToDevice));
}

static size_t count_wrong(enum op op, const float *from, size_t n)
{
	size_t part = n / (size_t)ranks, got = op == REDUCE_SCATTER ? part : n, wrong = 0;

	CUDA(cudaMemcpy(host, from, got * sizeof(float), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < got; i++)
		wrong += host[i] != expected(op, i, part);
	return wrong;
}

static size_t check_one(enum op op, size_t bytes, bool in_place)
{
	size_t n = bytes / sizeof(float), part;
	const float *from = in;
	float *to = out;

	n -= n % (size_t)ranks;
	part = n / (size_t)ranks;
	if (in_place) { /* as NCCL defines it for each */
		from = op == ALL_GATHER ? out + (size_t)rank * part : out;
		to = op == REDUCE_SCATTER ? out + (size_t)rank * part : out;
		fill((float *)from, op == ALL_GATHER ? part : n);
	} else {
		CUDA(cudaMemset(out, 0xff, n * sizeof(float)));
		fill(in, n);
	}
	run_op(op, from, to, n);
	wait_stream();
	return count_wrong(op, to, n);
}

static int check(void)
{
	static const size_t sizes[] = { 64, 4096, 65536, 1000000, 8 << 20, 64 << 20 };
	size_t all = 0;

	for (int op = 0; op < OPS; op++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int place = 0; place < (op == ALL_TO_ALL ? 1 : 2); place++) {
				size_t wrong = check_one((enum op)op, sizes[i], place);

				printf("check %s %zu %s %zu\n", op_name[op], sizes[i],
					place ? "in-place" : "out-of-place", wrong);
				all += wrong;
			}
	return all ? 6 : 0;
}

/* Few messages, from one in LL to several chunks of each channel. */
static int record(void)
{
	static const size_t sizes[] = { 8, 4096, 262144, 1 << 20, 4 << 20 };
	size_t all = 0;

	for (size_t i = 0; i < 2 * (sizeof(sizes) / sizeof(*sizes)); i++) {
		size_t wrong = check_one(ALL_REDUCE, sizes[i / 2], false);

		printf("check all-reduce %zu out-of-place %zu\n", sizes[i / 2], wrong);
		all += wrong;
	}
	return all ? 6 : 0;
}

/* ---- time ---- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int iterations(size_t bytes)
{
	if (bytes <= 4096)
		return 2000;
	if (bytes <= 262144)
		return 500;
	return bytes <= 8 << 20 ? 60 : 20;
}

static void measure_one(size_t bytes)
{
	int n = iterations(bytes);
	int64_t *times = (int64_t *)calloc((size_t)n, sizeof(*times)), begin;
	double cpu = 0, seconds = 0;

	for (int k = -5 - n / 10; k < n; k++) {
		if (k == 0)
			cpu = cpu_s();
		begin = now_ns();
		NCCL(ncclAllReduce(
			in, out, bytes / sizeof(float), ncclFloat, ncclSum, comm, stream));
		wait_stream();
		if (k >= 0)
			times[k] = now_ns() - begin;
	}
	cpu = cpu_s() - cpu;
	for (int k = 0; k < n; k++)
		seconds += (double)times[k] / 1e9;
	qsort(times, (size_t)n, sizeof(*times), by_value);
	printf("measure %zu %.2f %.3f %.2f %.3f %d\n", bytes, (double)times[n / 2] / 1e3,
		(double)bytes * n / seconds / 1e9 * 2 * (ranks - 1) / ranks,
		(double)times[n - 1] / 1e3, cpu / ((double)bytes * n / 1e9), n + 5 + n / 10);
	free(times);
}

static int measure(int argc, char **argv)
{
	static const size_t sizes[] = { 8, 4096, 262144, 8 << 20, 32 << 20, 128 << 20 };

	for (size_t i = 0; argc == 0 && i < sizeof(sizes) / sizeof(*sizes); i++)
		measure_one(sizes[i]);
	for (int i = 0; i < argc; i++) {
		size_t bytes = strtoul(argv[i], NULL, 10);

		measure_one(bytes <= BYTES_MAX ? bytes : BYTES_MAX);
	}
	return 0;
}

/* Two iterations at a time: while one is under way, the result of the one before is compared. Their inputs come in turns, so that
 * the result of another iteration is wrong. */
enum { SOAK_BYTES = 8 << 20, SOAK_N = SOAK_BYTES / sizeof(float), SOAK_INPUTS = 4 };

struct soak {
	cudaStream_t copies;
	float *got, *right; /* SOAK_N; SOAK_INPUTS times as many */
	size_t wrong;
};

static void soak_prepare(struct soak *s)
{
	CUDA(cudaStreamCreateWithFlags(&s->copies, cudaStreamNonBlocking));
	s->got = host;
	s->right = host + SOAK_N;
	for (size_t k = 0; k < SOAK_INPUTS; k++) {
		for (size_t i = 0; i < SOAK_N; i++)
			s->got[i] = value(rank, i + 13 * k);
		CUDA(cudaMemcpy(in + k * SOAK_N, s->got, SOAK_BYTES, cudaMemcpyHostToDevice));
		for (size_t i = 0; i < SOAK_N; i++)
			s->right[k * SOAK_N + i] = sum(i + 13 * k);
	}
}

static void soak_begin(size_t k)
{
	float *to = out + (k % 2) * SOAK_N;

	CUDA(cudaMemsetAsync(to, 0xff, SOAK_BYTES, stream));
	NCCL(ncclAllReduce(
		in + (k % SOAK_INPUTS) * SOAK_N, to, SOAK_N, ncclFloat, ncclSum, comm, stream));
}

static void soak_compare(struct soak *s, size_t k)
{
	const float *right = s->right + (k % SOAK_INPUTS) * SOAK_N;

	CUDA(cudaMemcpyAsync(
		s->got, out + (k % 2) * SOAK_N, SOAK_BYTES, cudaMemcpyDeviceToHost, s->copies));
	CUDA(cudaStreamSynchronize(s->copies));
	if (memcmp(s->got, right, SOAK_BYTES) == 0)
		return;
	for (size_t i = 0; i < SOAK_N; i++)
		s->wrong += s->got[i] != right[i];
}

static int soak(double seconds)
{
	size_t count = 0, room = 1 << 20;
	int64_t *times = (int64_t *)calloc(room, sizeof(*times)), end;
	struct soak s = { 0 };
	int go = 1, *shared;

	CUDA(cudaMalloc((void **)&shared, sizeof(int)));
	soak_prepare(&s);
	for (int i = 0; i < 5; i++) { /* the first ones connect */
		soak_begin(0);
		wait_stream();
	}
	end = now_ns() + (int64_t)(seconds * 1e9);
	while (go) {
		int64_t start = clock_ns(CLOCK_REALTIME), begin = now_ns();

		soak_begin(count);
		if (count > 0)
			soak_compare(&s, count - 1);
		wait_stream();
		times[count++] = now_ns() - begin;
		printf("iter %zu %lld %lld\n", count, (long long)start,
			(long long)times[count - 1]);
		go = now_ns() < end && count < room; /* all ranks stop after the same iteration */
		CUDA(cudaMemcpy(shared, &go, sizeof(go), cudaMemcpyHostToDevice));
		NCCL(ncclAllReduce(shared, shared, 1, ncclInt, ncclMin, comm, stream));
		wait_stream();
		CUDA(cudaMemcpy(&go, shared, sizeof(go), cudaMemcpyDeviceToHost));
	}
	soak_compare(&s, count - 1);
	qsort(times, count, sizeof(*times), by_value);
	printf("soak %zu %zu %lld %lld\n", count, s.wrong, (long long)times[count / 2],
		(long long)times[count - 1]);
	return s.wrong ? 6 : 0;
}

int main(int argc, char **argv)
{
	int rc = 1;

	if (argc < 5) {
		fprintf(stderr,
			"usage: collectives RANK RANKS IDFILE check | measure | soak SECONDS | record\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	rank = atoi(argv[1]);
	ranks = atoi(argv[2]);
	open_device(argv);
	join_job(argv[3]);
	if (strcmp(argv[4], "check") == 0)
		rc = check();
	else if (strcmp(argv[4], "measure") == 0)
		rc = measure(argc - 5, argv + 5);
	else if (strcmp(argv[4], "soak") == 0 && argc > 5)
		rc = soak(atof(argv[5]));
	else if (strcmp(argv[4], "record") == 0)
		rc = record();
	NCCL(ncclCommDestroy(comm));
	return rc;
}
