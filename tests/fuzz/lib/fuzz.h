/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FUZZ_H
#define DR_TESTS_FUZZ_H

#include "base/defs.h"
#include "base/err.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * A fuzz target is one tests/fuzz/X_fuzz.c with FUZZ(z) { ... }: it reads the input from z, calls its parser, and asserts
 * (dr_assert) what must hold. `make fuzz` links each with libFuzzer; replay_test has all of them. No state survives a call:
 * an input alone must show what it found.
 */
struct fz;
struct fz_target {
	char name[32]; /* "X" */
	void (*run)(struct fz *z);
	struct fz_target *next;
};
#define FUZZ(z)                                                                                    \
	static void fuzz_(struct fz *z);                                                           \
	__attribute__((constructor)) static void fuzz_add(void)                                    \
	{                                                                                          \
		static struct fz_target target = { .run = fuzz_ };                                 \
		fz_add(&target, __FILE__);                                                         \
	}                                                                                          \
	static void fuzz_(struct fz *z)

extern struct fz_target *fz_targets; /* by name */
void fz_add(struct fz_target *t, const char *file);
void fz_run(const struct fz_target *t, const uint8_t *data, size_t size);

/* The input as a stream of choices; 0 when it is used up. What is made from it is freed after the call. */
struct fz {
	const uint8_t *p;
	size_t n;
	void **own;
	size_t n_own;
	int fd;
	char path[32];
};

static inline uint8_t fz_u8(struct fz *z)
{
	if (z->n == 0)
		return 0;
	z->n--;
	return *z->p++;
}

static inline uint16_t fz_u16(struct fz *z)
{
	uint16_t hi = fz_u8(z);

	return (uint16_t)(hi << 8 | fz_u8(z));
}

static inline uint32_t fz_u32(struct fz *z)
{
	uint32_t hi = fz_u16(z);

	return hi << 16 | fz_u16(z);
}

/* A block of exactly that size, so that a read behind it is seen. */
static inline void *fz_alloc(struct fz *z, size_t len)
{
	z->own = realloc(z->own, (z->n_own + 1) * sizeof(*z->own));
	dr_assert(z->own);
	z->own[z->n_own] = calloc(1, len ? len : 1);
	dr_assert(z->own[z->n_own]);
	return z->own[z->n_own++];
}

/* At most max bytes of the input. */
static inline uint8_t *fz_bytes(struct fz *z, size_t max, size_t *len)
{
	uint8_t *p;

	*len = DR_MIN(z->n, max);
	p = fz_alloc(z, *len);
	if (*len) {
		memcpy(p, z->p, *len);
		z->p += *len;
	}
	z->n -= *len;
	return p;
}

/* The same as a string that ends at the first 0. */
static inline char *fz_text(struct fz *z, size_t max)
{
	size_t len, n = z->n ? strnlen((const char *)z->p, DR_MIN(z->n, max)) : 0;
	char *s = fz_alloc(z, n + 1);
	uint8_t *all = fz_bytes(z, max, &len);

	memcpy(s, all, n);
	return s;
}

/* The name of a file with these bytes; the next call changes it. */
static inline char *fz_file(struct fz *z, const void *bytes, size_t len)
{
	z->fd = z->fd < 0 ? memfd_create("fuzz", MFD_CLOEXEC) : z->fd;
	dr_assert(z->fd >= 0 && ftruncate(z->fd, 0) == 0);
	dr_assert(len == 0 || pwrite(z->fd, bytes, len, 0) == (ssize_t)len);
	snprintf(z->path, sizeof(z->path), "/proc/self/fd/%d", z->fd);
	return z->path;
}

/* What was read would have been written as these bytes. */
static inline void fz_same(const void *in, size_t len, const void *again, size_t again_len)
{
	dr_assert(again_len == len && memcmp(in, again, len) == 0);
}

/* A text of a peer shows and does nothing else. Written without base/text.c, which it checks. */
static inline void fz_shows(const char *s)
{
	static const char *const acts[] = {
		"\xc2\xad", "\xd8\x9c",				/* soft hyphen, letter mark */
		"\xe2\x80\x8b", "\xe2\x80\x8e", "\xe2\x80\x8f", /* zero width, marks */
		"\xe2\x80\xa8", "\xe2\x80\xa9",			/* line, paragraph */
		"\xe2\x80\xaa", "\xe2\x80\xad", "\xe2\x80\xae", /* embedding, overrides */
		"\xe2\x81\xa6", "\xe2\x81\xa9", "\xef\xbb\xbf",
		"\xf3\xa0\x81", /* isolates, BOM, tags */
	};
	json_t *utf8 = json_string(s);

	dr_assert(utf8);
	json_decref(utf8);
	for (const unsigned char *p = (const unsigned char *)s; *p; p++)
		dr_assert(*p >= ' ' && *p != 0x7f && !(*p == 0xc2 && p[1] < 0xa0));
	for (size_t i = 0; i < DR_ARRAY_LEN(acts); i++)
		dr_assert(!strstr(s, acts[i]));
}

/* Every text and name of a peer's document. */
static inline void fz_shows_json(const json_t *doc)
{
	json_t *j = (json_t *)(uintptr_t)doc, *v;
	const char *key;
	size_t i;

	if (json_is_string(j))
		fz_shows(json_string_value(j));
	json_object_foreach(j, key, v)
	{
		fz_shows(key);
		fz_shows_json(v);
	}
	json_array_foreach(j, i, v)
	{
		fz_shows_json(v);
	}
}

/* A function that failed says so, with its code and a text. */
static inline void fz_explained(int rc, const struct dr_err *e)
{
	dr_assert(rc < 0);
	dr_assert(e->code == rc);
	dr_assert(e->text[0] && memchr(e->text, 0, sizeof(e->text)));
	fz_shows(e->text);
}

/* Whether it failed; then it says why. */
static inline bool fz_failed(int rc, const struct dr_err *e)
{
	if (rc)
		fz_explained(rc, e);
	return rc != 0;
}

/* A parser without a text: taken, or -EPROTO. */
static inline bool fz_taken(int rc)
{
	dr_assert(rc == 0 || rc == -EPROTO);
	return rc == 0;
}

#endif
