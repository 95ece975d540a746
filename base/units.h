/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_UNITS_H
#define DR_BASE_UNITS_H

#include "base/defs.h"
#include "base/err.h"

/*
 * Parsers of user input. The whole string must match; otherwise -EINVAL with a text that quotes the string and the
 * accepted forms. Out of range is -ERANGE.
 */
/* "64M": K M G T in any case and KiB MiB GiB TiB are powers of 1024; kB MB GB TB powers of 1000 (in
 * this spelling); "B" or no suffix: bytes. A decimal fraction is allowed when the result is whole
 * ("1.5K"). */
int dr_parse_size(const char *s, uint64_t *out_bytes, struct dr_err *e) DR_MUST_CHECK;
/* "10ms", "1.5s", "250us", "100ns", "2m", "1h"; a bare number is seconds. */
int dr_parse_duration(const char *s, int64_t *out_ns, struct dr_err *e) DR_MUST_CHECK;
/* A duration without a unit may be meant in another one than seconds: -EINVAL with what to write; 0 needs none. */
int dr_check_duration_unit(const char *s, struct dr_err *e) DR_MUST_CHECK;
/* "10G", "400M", "2.5Gb/s", "100Gbit": bits per second, powers of 1000. */
int dr_parse_rate(const char *s, double *out_bits_per_s, struct dr_err *e) DR_MUST_CHECK;
int dr_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out, struct dr_err *e)
	DR_MUST_CHECK;
int dr_parse_double(const char *s, double min, double max, double *out, struct dr_err *e)
	DR_MUST_CHECK;
/* "0-3,8" -> {0,1,2,3,8}; duplicates and descending ranges are errors; a value above max_value or
 * more than cap of them is -ERANGE. out is undefined on failure. */
int dr_parse_list(const char *s, unsigned max_value, unsigned *out, size_t cap, size_t *out_n,
	struct dr_err *e) DR_MUST_CHECK;
/* HOST, HOST:PORT, [V6] or [V6]:PORT; an IPv6 address without brackets has no port. *port is kept
 * if there is none. */
int dr_split_host(const char *text, char *host, size_t len, uint16_t *port, struct dr_err *e)
	DR_MUST_CHECK;

/* "A-B" with 1 <= A <= B <= 65535: the first and the last port of a range. */
int dr_parse_ports(const char *s, uint16_t *first, uint16_t *last, struct dr_err *e) DR_MUST_CHECK;

/* One of "a|b|c" -> its index. */
int dr_parse_choice(const char *choices, const char *s, int *out, struct dr_err *e) DR_MUST_CHECK;

/* "64 MiB", "512 KiB", "8 B" (exact multiples only, else plain bytes). */
void dr_format_size(uint64_t bytes, char *buf, size_t len);
/* Three digits: "12.3 ms", "850 us", "1.20 s"; below 1 us "850 ns"; DR_NEVER is "never". */
void dr_format_duration(int64_t ns, char *buf, size_t len);
/* "10ms", "1500us": parses back to the same. */
void dr_format_duration_exact(int64_t ns, char *buf, size_t len);
void dr_format_choice(const char *choices, int index, char *buf, size_t len);
/* {0,1,2,3,8} -> "0-3,8", cut to len bytes. */
void dr_format_list(const unsigned *v, size_t n, char *buf, size_t len);
/* Append to the string in buf, cut to len bytes with its end. */
void dr_append(char *buf, size_t len, const char *fmt, ...) DR_PRINTF(3, 4);

#endif
