/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

/* digits[.digits]; exact: the value is `digits` / 10^frac. */
struct decimal {
	uint64_t digits;
	unsigned frac;
};

struct suffix {
	const char *text;
	uint64_t factor;
};

/* Returns the text behind the number; NULL: there is no number (*too_big 0) or it is too large. */
static const char *read_decimal(const char *s, struct decimal *d, int *too_big)
{
	int point = 0;

	*d = (struct decimal){ 0 };
	*too_big = 0;
	if (!isdigit((unsigned char)*s))
		return NULL;
	for (; isdigit((unsigned char)*s) || *s == '.'; s++) {
		if (*s == '.') {
			if (point++ || !isdigit((unsigned char)s[1]))
				return NULL;
			continue;
		}
		if (__builtin_mul_overflow(d->digits, 10, &d->digits) ||
			__builtin_add_overflow(d->digits, (uint64_t)(*s - '0'), &d->digits)) {
			*too_big = 1;
			return NULL;
		}
		d->frac += (unsigned)point;
	}
	return s;
}

/* value = d * factor; -EINVAL when that is not whole, -ERANGE above max. */
static int scale(struct decimal d, uint64_t factor, uint64_t max, uint64_t *out)
{
	unsigned __int128 v = (unsigned __int128)d.digits * factor;

	for (unsigned i = 0; i < d.frac; i++) {
		if (v % 10)
			return -EINVAL;
		v /= 10;
	}
	if (v > max)
		return -ERANGE;
	*out = (uint64_t)v;
	return 0;
}

static const struct suffix *find_suffix(const struct suffix *table, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(table[i].text, s) == 0)
			return &table[i];
	return NULL;
}

/* A number with a suffix: a size or a duration. The texts complete error messages. */
struct scaled {
	const struct suffix *table;
	size_t n;
	uint64_t max;
	const char *what, *base_unit, *forms;
};

static int parse_scaled(const struct scaled *kind, const char *s, uint64_t *out, struct dr_err *e)
{
	struct decimal d;
	int too_big;
	const char *rest = read_decimal(s, &d, &too_big);

	if (too_big)
		return dr_err_set(e, -ERANGE, "\"%.60s\" is too large for %s", s, kind->what);
	const struct suffix *suffix = rest ? find_suffix(kind->table, kind->n, rest) : NULL;
	if (!suffix)
		return dr_err_set(
			e, -EINVAL, "\"%.60s\" is not %s; use e.g. %s", s, kind->what, kind->forms);
	int rc = scale(d, suffix->factor, kind->max, out);
	if (rc == -EINVAL)
		return dr_err_set(
			e, rc, "\"%.60s\" is not a whole number of %s", s, kind->base_unit);
	if (rc)
		return dr_err_set(e, rc, "\"%.60s\" is too large for %s", s, kind->what);
	return 0;
}

int dr_parse_size(const char *s, uint64_t *out_bytes, struct dr_err *e)
{
	static const struct suffix table[] = {
		{ "", 1 },
		{ "B", 1 },
		{ "K", 1ULL << 10 },
		{ "k", 1ULL << 10 },
		{ "KiB", 1ULL << 10 },
		{ "kB", 1000ULL },
		{ "M", 1ULL << 20 },
		{ "m", 1ULL << 20 },
		{ "MiB", 1ULL << 20 },
		{ "MB", 1000000ULL },
		{ "G", 1ULL << 30 },
		{ "g", 1ULL << 30 },
		{ "GiB", 1ULL << 30 },
		{ "GB", 1000000000ULL },
		{ "T", 1ULL << 40 },
		{ "t", 1ULL << 40 },
		{ "TiB", 1ULL << 40 },
		{ "TB", 1000000000000ULL },
	};
	static const struct scaled size = { table, DR_ARRAY_LEN(table), UINT64_MAX, "a size",
		"bytes", "64M, 1GiB, 4kB" };

	return parse_scaled(&size, s, out_bytes, e);
}

int dr_parse_duration(const char *s, int64_t *out_ns, struct dr_err *e)
{
	static const struct suffix table[] = {
		{ "", DR_NS_PER_S },
		{ "s", DR_NS_PER_S },
		{ "ms", DR_NS_PER_MS },
		{ "us", DR_NS_PER_US },
		{ "ns", 1 },
		{ "m", 60 * DR_NS_PER_S },
		{ "h", 3600 * DR_NS_PER_S },
	};
	static const struct scaled duration = { table, DR_ARRAY_LEN(table), INT64_MAX, "a duration",
		"nanoseconds", "10ms, 1.5s, 250us, 2m" };
	uint64_t ns;
	int rc = parse_scaled(&duration, s, &ns, e);

	if (rc == 0)
		*out_ns = (int64_t)ns;
	return rc;
}

int dr_check_duration_unit(const char *s, struct dr_err *e)
{
	if (s[strspn(s, "0123456789.")] || !s[strspn(s, "0.")])
		return 0;
	return dr_err_set(e, -EINVAL, "\"%.40s\" has no unit; use %.40sms or %.40ss", s, s, s);
}

/* strtod in the C locale, whatever locale the process has set. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double to_double(const char *s, char **end)
{
	pthread_once(&c_locale_once, make_c_locale);
	return c_locale ? strtod_l(s, end, c_locale) : strtod(s, end);
}

int dr_parse_rate(const char *s, double *out_bits_per_s, struct dr_err *e)
{
	static const char *const tail[] = { "", "b/s", "bit", "bit/s", "bps" };
	static const char prefix[] = "KMGT";
	size_t digits = strspn(s, "0123456789.");
	double factor = 1, v;
	const char *p;
	char *end;

	v = isdigit((unsigned char)*s) ? to_double(s, &end) : 0;
	if (!isdigit((unsigned char)*s) || s[digits - 1] == '.' || end != s + digits)
		goto bad;
	p = *end ? strchr(prefix, toupper((unsigned char)*end)) : NULL;
	if (p) {
		for (const char *q = prefix; q <= p; q++)
			factor *= 1000;
		end++;
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(tail); i++) {
		if (strcmp(end, tail[i]) != 0)
			continue;
		if (!(v * factor <= DBL_MAX))
			return dr_err_set(e, -ERANGE, "\"%.60s\" is too large for a rate", s);
		*out_bits_per_s = v * factor;
		return 0;
	}
bad:
	return dr_err_set(e, -EINVAL,
		"\"%.60s\" is not a rate in bits per second; use e.g. 10G, 400M, 2.5Gb/s, 100Gbit",
		s);
}

int dr_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out, struct dr_err *e)
{
	struct decimal d;
	int too_big;
	const char *rest = read_decimal(s, &d, &too_big);

	if (!too_big && (!rest || *rest || d.frac))
		return dr_err_set(e, -EINVAL, "\"%.60s\" is not a whole number; use e.g. 8", s);
	if (too_big || d.digits < min || d.digits > max)
		return dr_err_set(e, -ERANGE, "%.60s is out of range; use %" PRIu64 " to %" PRIu64,
			s, min, max);
	*out = d.digits;
	return 0;
}

int dr_parse_double(const char *s, double min, double max, double *out, struct dr_err *e)
{
	char *end = NULL;
	double v = 0;

	/* strtod also accepts spaces, hexadecimal, "inf" and "nan", which are errors here. */
	if (*s && strspn(s, "0123456789.eE+-") == strlen(s))
		v = to_double(s, &end);
	if (!end || end == s || *end)
		return dr_err_set(e, -EINVAL, "\"%.60s\" is not a number; use e.g. 0.5", s);
	if (!(v >= min && v <= max))
		return dr_err_set(e, -ERANGE, "%.60s is out of range; use %g to %g", s, min, max);
	*out = v;
	return 0;
}

/* One element "N" or "N-M" at *s; moves *s behind it. */
static int parse_span(const char **s, uint64_t *from, uint64_t *to)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return -EINVAL;
	*from = *to = strtoull(*s, &end, 10);
	if (*end == '-') {
		if (!isdigit((unsigned char)end[1]))
			return -EINVAL;
		*to = strtoull(end + 1, &end, 10);
	}
	*s = end;
	return *to < *from ? -EINVAL : 0;
}

static int contains(const unsigned *list, size_t n, unsigned value)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == value)
			return 1;
	return 0;
}

int dr_parse_list(const char *s, unsigned max_value, unsigned *out, size_t cap, size_t *out_n,
	struct dr_err *e)
{
	const char *p = s;
	uint64_t from, to;
	size_t n = 0;

	for (;;) {
		if (parse_span(&p, &from, &to) || (*p && *p != ','))
			return dr_err_set(e, -EINVAL, "\"%.60s\" is not a list; use e.g. 0-3,8", s);
		if (to > max_value)
			return dr_err_set(e, -ERANGE,
				"\"%.60s\": %" PRIu64 " is above the limit %u", s, to, max_value);
		for (uint64_t v = from; v <= to; v++) {
			if (contains(out, n, (unsigned)v))
				return dr_err_set(
					e, -EINVAL, "\"%.60s\" names %" PRIu64 " twice", s, v);
			if (n == cap)
				return dr_err_set(
					e, -ERANGE, "\"%.60s\" has more than %zu entries", s, cap);
			out[n++] = (unsigned)v;
		}
		if (!*p++)
			break;
	}
	*out_n = n;
	return 0;
}

int dr_split_host(const char *text, char *host, size_t len, uint16_t *port, struct dr_err *e)
{
	const char *colon = strrchr(text, ':'), *close = strchr(text, ']');
	bool brackets = text[0] == '[' && close && (close[1] == '\0' || close + 1 == colon);
	bool has_port = brackets ? close[1] == ':' : colon && strchr(text, ':') == colon;
	const char *begin = text + brackets, *end = brackets ? close : has_port ? colon : NULL;
	size_t n = end ? (size_t)(end - begin) : strlen(begin);
	uint64_t p = *port;

	if (has_port && dr_parse_u64(colon + 1, 1, UINT16_MAX, &p, NULL))
		return dr_err_set(e, -EINVAL,
			"\"%.60s\": \"%.20s\" is not a port; use HOST:PORT with 1 to 65535", text,
			colon + 1);
	if (!n || n >= len)
		return dr_err_set(e, -EINVAL, "\"%.60s\" names no host; use HOST[:PORT]", text);
	memcpy(host, begin, n);
	host[n] = '\0';
	*port = (uint16_t)p;
	return 0;
}

int dr_parse_ports(const char *s, uint16_t *first, uint16_t *last, struct dr_err *e)
{
	unsigned from = 0, to = 0;
	char more;

	if (s[strspn(s, "0123456789-")] || sscanf(s, "%5u-%5u%c", &from, &to, &more) != 2 ||
		!from || from > to || to > UINT16_MAX)
		return dr_err_set(e, -EINVAL, "\"%.40s\": use FIRST-LAST, e.g. 30000-30100", s);
	*first = (uint16_t)from;
	*last = (uint16_t)to;
	return 0;
}

int dr_parse_choice(const char *choices, const char *text, int *out, struct dr_err *e)
{
	size_t len = strlen(text), n;
	int i = 0;

	for (const char *p = choices; p; p = p[n] ? p + n + 1 : NULL, i++) {
		n = strcspn(p, "|");
		if (n == len && strncmp(p, text, n) == 0) {
			*out = i;
			return 0;
		}
	}
	return dr_err_set(e, -EINVAL, "\"%.60s\" is not one of %s", text, choices);
}

void dr_format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	size_t i = 0;

	while (bytes && bytes % 1024 == 0 && i + 1 < DR_ARRAY_LEN(unit)) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, len, "%" PRIu64 " %s", bytes, unit[i]);
}

void dr_format_duration(int64_t ns, char *buf, size_t len)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	const char *sign = ns < 0 ? "-" : "";
	double v = ns < 0 ? -(double)ns : (double)ns;
	size_t i = 0;

	if (ns == DR_NEVER) {
		snprintf(buf, len, "never");
		return;
	}
	if (v < 1000) {
		snprintf(buf, len, "%" PRId64 " ns", ns);
		return;
	}
	/* Three digits. From 999.5 the next unit is used, because "%.0f" would print 1000. */
	while (i + 1 < DR_ARRAY_LEN(unit) && v / unit[i].ns >= 999.5)
		i++;
	v /= unit[i].ns;
	snprintf(buf, len, "%s%.*f %s", sign, v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, unit[i].name);
}

/* The largest unit that divides evenly, so that reading it back is exact. */
void dr_format_duration_exact(int64_t ns, char *buf, size_t len)
{
	static const struct {
		const char *name;
		int64_t ns;
	} unit[] = { { "s", DR_NS_PER_S }, { "ms", DR_NS_PER_MS }, { "us", DR_NS_PER_US },
		{ "ns", 1 } };
	size_t i = 0;

	while (ns % unit[i].ns)
		i++;
	snprintf(buf, len, "%" PRId64 "%s", ns / unit[i].ns, unit[i].name);
}

void dr_format_choice(const char *choices, int index, char *buf, size_t len)
{
	const char *p = choices;

	for (; index > 0; index--)
		p += strcspn(p, "|") + 1;
	snprintf(buf, len, "%.*s", (int)strcspn(p, "|"), p);
}

void dr_format_list(const unsigned *v, size_t n, char *buf, size_t len)
{
	buf[0] = '\0';
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1; k++)
			;
		dr_append(buf, len, "%s%u", i ? "," : "", v[i]);
		if (k - i > 1)
			dr_append(buf, len, "-%u", v[k - 1]);
	}
}

void dr_append(char *buf, size_t len, const char *fmt, ...)
{
	size_t at = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + at, len - at, fmt, ap);
	va_end(ap);
}
