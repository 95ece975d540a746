/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/bed.h"

#include <pthread.h>

#include "base/rng.h"

const struct dr_cuda *bed_cu;
const struct dr_fakecuda_ctl *bed_fake;
uint64_t bed_seed;

static const int sizes[] = { 0, 1, 15, 4095, 4096, 4097, 512 << 10, 65537, 0, BED_ROOM,
	(1 << 20) + 13, 131072, 131073, 17 };

enum { UNSET = 0xee, BEHIND = 64 };

/* ---- memory ---- */

static void side_make(struct side *s)
{
	void *pinned = NULL;

	s->host = ends_pages(BED_BYTES);
	if (!bed_cu) {
		s->dev = ends_pages(BED_BYTES);
		s->pinned = ends_pages(BED_ROOM);
		return;
	}
	MUST(bed_cu->stream_create(&s->stream, DR_CUDA_STREAM_NON_BLOCKING) == 0);
	MUST(bed_cu->mem_alloc(&s->memory, BED_BYTES + BED_GRANULE) == 0);
	MUST(bed_cu->mem_host_alloc(&pinned, BED_ROOM, DR_CUDA_HOST_PORTABLE) == 0);
	s->pinned = pinned;
	s->dev = (uint8_t *)(uintptr_t)((s->memory + BED_GRANULE - 1) / BED_GRANULE * BED_GRANULE);
}

static void side_drop(const struct side *s)
{
	free(s->host);
	if (!bed_cu) {
		free(s->dev);
		free(s->pinned);
		return;
	}
	(void)bed_cu->stream_destroy(s->stream);
	(void)bed_cu->mem_free(s->memory);
	(void)bed_cu->mem_free_host(s->pinned);
}

struct CUctx_st *bed_use_device(int dev)
{
	struct CUctx_st *c;

	MUST(bed_cu->primary_ctx_retain(&c, dev) == 0 && bed_cu->ctx_set_current(c) == 0);
	return c;
}

void bed_make(struct bed *b, const char *gpus)
{
	struct dr_err err;

	memset(b, 0, sizeof(*b));
	if (gpus && bed_fake) {
		(void)setenv("DR_FAKE_CUDA", gpus, 1);
		bed_fake->reset();
	}
	if (gpus) {
		MUST(dr_cuda_load(&bed_cu, &err) == 0);
		b->ctx = bed_use_device(0);
	}
	side_make(&b->out);
	side_make(&b->in);
}

void bed_drop(struct bed *b)
{
	if (bed_cu)
		MUST(bed_cu->ctx_set_current(b->ctx) == 0);
	side_drop(&b->out);
	side_drop(&b->in);
	if (bed_cu)
		(void)bed_cu->primary_ctx_release(0);
}

void bed_read(const struct side *s, void *to, const void *from, size_t len)
{
	if (!bed_cu) {
		memcpy(to, from, len);
		return;
	}
	MUST(len == 0 || bed_cu->memcpy_dtoh_async(to, (uintptr_t)from, len, s->stream) == 0);
	MUST(bed_cu->stream_synchronize(s->stream) == 0);
}

void bed_write(const struct side *s, void *to, const void *from, size_t len)
{
	if (!bed_cu) {
		memcpy(to, from, len);
		return;
	}
	MUST(len == 0 || bed_cu->memcpy_htod_async((uintptr_t)to, from, len, s->stream) == 0);
	MUST(bed_cu->stream_synchronize(s->stream) == 0);
}

/* The bytes at once, without work of a stream that is behind the plugin's. NULL: of a real GPU they cannot be seen. */
static const uint8_t *see(const void *p)
{
	if (!bed_cu)
		return p;
	return bed_fake ? bed_fake->bytes((uintptr_t)p) : NULL;
}

/* ---- comms ---- */

void bed_register(struct bed *b, void *comm, struct side *s)
{
	MUST(ends_reg(&b->e.net, comm, s->dev, BED_BYTES, b->e.type, &s->dev_mh) == NCCL_SUCCESS);
	MUST(ends_reg(&b->e.net, comm, s->host, BED_BYTES, NCCL_PTR_HOST, &s->host_mh) ==
		NCCL_SUCCESS);
}

void bed_connect(struct bed *b, const struct bed *first)
{
	if (first == b) {
		ends_listen(&b->e);
	} else {
		b->e = first->e;
		MUST(dr_nccl_listen(&b->e.net, 0, b->e.handle, &b->e.lcomm) == NCCL_SUCCESS);
	}
	ends_connect(&b->e);
	if (!bed_pieces())
		return;
	bed_read(&b->in, &b->handle, b->e.device.handle, sizeof(b->handle));
	b->e.unpack = &b->handle;
}

void bed_close(struct bed *b)
{
	MUST(b->e.net.dereg_mr(b->e.scomm, b->out.dev_mh) == NCCL_SUCCESS);
	MUST(b->e.net.dereg_mr(b->e.scomm, b->out.host_mh) == NCCL_SUCCESS);
	MUST(b->e.net.dereg_mr(b->e.rcomm, b->in.dev_mh) == NCCL_SUCCESS);
	ends_close(&b->e);
}

/* ---- messages ---- */

static size_t size_of(const struct bed *b, unsigned message)
{
	if (b->big || message < LENGTH(sizes))
		return b->big ? BED_ROOM : (size_t)sizes[message];
	return dr_mix64(bed_seed + message) % (message % 8 == 1 ? BED_ROOM + 1 : 20000);
}

/* Anywhere, but for pieces. */
static size_t place_of(unsigned message)
{
	return message % BED_DEPTH * (size_t)BED_PITCH +
	       (bed_pieces() ? 0 : dr_mix64(bed_seed + 1000 + message) % (BED_GRANULE - BEHIND));
}

/* Every third message is sent from host memory, every fourth one received into it. */
static bool in_host(const struct bed *b, const struct side *s, unsigned message)
{
	return s == &b->out ? message % 3 == 2 : message % 4 == 3;
}

static struct dr_nccl_buffer buffer_of(const struct bed *b, const struct side *s, unsigned message)
{
	bool host = in_host(b, s, message);

	return (struct dr_nccl_buffer){ (host ? s->host : s->dev) + place_of(message),
		host ? s->host_mh : s->dev_mh, size_of(b, message), (int)message };
}

void *bed_send(struct bed *b, unsigned message)
{
	struct dr_nccl_buffer m = buffer_of(b, &b->out, message);
	uint8_t *to = in_host(b, &b->out, message) ? m.data : b->out.pinned;
	void *r = NULL;

	for (size_t i = 0; i < m.size; i++)
		to[i] = ends_pattern(message, i);
	if (to != m.data)
		bed_write(&b->out, m.data, to, m.size);
	MUST(dr_nccl_isend(&b->e.net, b->e.scomm, &m, &r) == NCCL_SUCCESS && r);
	return r;
}

void *bed_receive(struct bed *b, unsigned message)
{
	struct dr_nccl_buffer m = buffer_of(b, &b->in, message);
	size_t room = message % 2 ? BED_ROOM : m.size;
	void *r = NULL;

	memset(b->in.pinned, UNSET, BEHIND);
	if (in_host(b, &b->in, message))
		memset((uint8_t *)m.data + m.size, UNSET, BEHIND);
	else
		bed_write(&b->in, (uint8_t *)m.data + m.size, b->in.pinned, BEHIND);
	m.size = room;
	MUST(dr_nccl_irecv(&b->e.net, b->e.rcomm, 1, &m, &r) == NCCL_SUCCESS && r);
	return r;
}

/* Fragments put together give the message. */
static void unpack(struct bed *b, unsigned message)
{
	const struct fn_fragment *f = b->e.unpack->meta->mem[message % FN_SLOTS];
	uint64_t n = b->e.unpack->meta->cnt[message % FN_SLOTS];
	const uint8_t *bounce = b->e.unpack->bounce_buf, *seen;
	size_t len = size_of(b, message), total = 0;

	MUST(n <= FN_FRAGMENTS_MAX);
	for (size_t i = 0; i < len; i++)
		b->in.pinned[i] = (uint8_t)~ends_pattern(message, i);
	for (uint64_t i = 0; i < n; total += f[i++].len) {
		MUST(f[i].len > 0 && f[i].len <= FN_PAGE);
		MUST(f[i].src_off / FN_PAGE == (f[i].src_off + f[i].len - 1) / FN_PAGE);
		MUST(f[i].dst_off < len && f[i].len <= len - f[i].dst_off);
		seen = see(bounce + f[i].src_off);
		for (uint32_t k = 0; seen && k < f[i].len; k++)
			MUST(seen[k] == ends_pattern(message, f[i].dst_off + k));
		b->scattered |= i > 0 && f[i].src_off < f[i - 1].src_off &&
				f[i].dst_off < f[i - 1].dst_off && f[i].len < FN_PAGE;
	}
	for (uint64_t i = 0; i < n; i++)
		bed_read(&b->in, b->in.pinned + f[i].dst_off, bounce + f[i].src_off, f[i].len);
	MUST(total == len);
	for (size_t i = 0; i < len; i++)
		MUST(b->in.pinned[i] == ends_pattern(message, i));
}

/* The pages of the message are the plugin's again, and nobody finds its fragments. */
void bed_consume(struct bed *b, unsigned message, void *request)
{
	const struct fn_meta *meta = b->e.unpack->meta;
	const struct fn_fragment f = meta->mem[message % FN_SLOTS][0];
	uint64_t n = meta->cnt[message % FN_SLOTS];
	const uint8_t *seen = n > 0 ? see((uint8_t *)b->e.unpack->bounce_buf + f.src_off) : NULL;

	ends_consume(&b->e, request);
	MUST(meta->cnt[message % FN_SLOTS] > FN_FRAGMENTS_MAX);
	for (uint32_t i = 0; seen && i < f.len; i++)
		MUST(seen[i] == FN_POISON);
}

/* The message's first bytes are there, the last `missing` are not, and those behind it are as they were. */
static void check(struct bed *b, unsigned message, size_t missing)
{
	const struct dr_nccl_buffer m = buffer_of(b, &b->in, message);
	const uint8_t *data = in_host(b, &b->in, message) ? m.data : see(m.data);

	if (!data) {
		bed_read(&b->in, b->in.pinned, m.data, m.size);
		data = b->in.pinned;
	}
	for (size_t i = 0; i < m.size; i++)
		MUST(data[i] == (i < m.size - missing ? ends_pattern(message, i) : FN_POISON));
	for (size_t i = 0; data != b->in.pinned && i < BEHIND; i++)
		MUST(data[m.size + i] == UNSET);
}

static void flush(struct bed *b, unsigned message)
{
	struct dr_nccl_buffer m = buffer_of(b, &b->in, message);
	size_t missing = m.size < FN_HELD_MAX ? m.size : FN_HELD_MAX;
	int done = 0, len = (int)m.size;
	void *f = b;

	if (in_host(b, &b->in, message) || ends_way->fake == SOCKET || getenv("FAKENET_ORDERED"))
		missing = 0;
	MUST(b->size == len);
	check(b, message, missing);
	MUST(b->e.net.flush(b->e.rcomm, 1, &m.data, &len, &m.mhandle, &f) == NCCL_SUCCESS);
	MUST((f != NULL) == (missing > 0));
	for (int i = 1; f && i <= FN_FLUSH_TESTS; i++) {
		if (i == FN_FLUSH_TESTS)
			check(b, message, missing);
		MUST(b->e.net.test(f, &done, NULL) == NCCL_SUCCESS &&
			done == (i == FN_FLUSH_TESTS));
	}
	check(b, message, 0);
}

void bed_judge(struct bed *b, unsigned message)
{
	if (bed_pieces())
		unpack(b, message);
	else if (ends_way->fake == FAST)
		check(b, message, 0);
	else
		flush(b, message);
}

void bed_carry_one(struct bed *b, unsigned message)
{
	void *s = bed_send(b, message), *r = bed_receive(b, message);

	(void)ends_wait(&b->e, s, NULL);
	b->size = ends_wait(&b->e, NULL, r);
	bed_judge(b, message);
	if (bed_pieces())
		bed_consume(b, message, r);
}

static void *send_all(void *arg)
{
	unsigned posted = 0, done = 0;
	void *request[BED_DEPTH];
	struct bed *b = arg;

	IN_TIME
	{
		for (; posted < b->messages && posted - done < BED_DEPTH; posted++) {
			if (bed_cu)
				MUST(bed_cu->ctx_set_current(b->ctx) == 0);
			request[posted % BED_DEPTH] = bed_send(b, posted);
			if (bed_cu)
				MUST(bed_cu->ctx_set_current(NULL) == 0);
		}
		done += ends_done(&b->e, request[done % BED_DEPTH], NULL);
		if (done == b->messages)
			return NULL;
	}
}

/* Of pieces, slots and pages are in use while other messages arrive. */
static void *receive_all(void *arg)
{
	unsigned posted = 0, done = 0, consumed = 0;
	void *request[FN_SLOTS];
	struct bed *b = arg;

	if (bed_cu)
		MUST(bed_cu->ctx_set_current(b->ctx) == 0);
	IN_TIME
	{
		for (; posted < b->messages && posted - done < BED_DEPTH; posted++)
			request[posted % FN_SLOTS] = bed_receive(b, posted);
		if (done < b->messages && ends_done(&b->e, request[done % FN_SLOTS], &b->size))
			bed_judge(b, done++);
		if (done - consumed <= b->held && done < b->messages)
			continue;
		if (bed_pieces() && consumed < done)
			bed_consume(b, consumed, request[consumed % FN_SLOTS]);
		consumed += consumed < done;
		if (consumed == b->messages)
			return NULL;
	}
}

/* What NCCL's service thread does for user buffers while its progress thread moves data. */
static void *register_often(void *arg)
{
	struct bed *b = arg;
	void *mh;

	for (unsigned i = 0; i < 500; i++) {
		void *comm = i % 2 ? b->e.scomm : b->e.rcomm;

		MUST(ends_reg(&b->e.net, comm, b->in.host, 8, NCCL_PTR_HOST, &mh) == NCCL_SUCCESS);
		MUST(b->e.net.dereg_mr(comm, mh) == NCCL_SUCCESS);
	}
	return NULL;
}

void bed_carry(struct bed *b, unsigned n)
{
	static void *(*const run[])(void *) = { send_all, receive_all, register_often };
	pthread_t thread[2][LENGTH(run)];

	MUST(n <= 2);
	for (unsigned i = 0; i < n * LENGTH(run); i++)
		MUST(pthread_create(&thread[i % n][i / n], NULL, run[i / n], &b[i % n]) == 0);
	for (unsigned i = 0; i < n * LENGTH(run); i++)
		MUST(pthread_join(thread[i % n][i / n], NULL) == 0);
}
