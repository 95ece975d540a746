/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/record/otlp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/units.h"

#define COMPONENT "otlp"
#define OPTION "--trace-endpoint"
#define VAR(name) "OTEL_EXPORTER_OTLP_" name
#define PATH "/v1/traces"
#define DEFAULT_MS 10000
#define MAX_MS 600000

/* A variable for traces wins over that for all signals; an empty one is not set. *name: whose value it is. */
static const char *variable(
	char *(*env)(const char *name), const char *traces, const char *all, const char **name)
{
	const char *v = env ? env(*name = traces) : NULL;

	if (!v || !*v)
		v = env ? env(*name = all) : NULL;
	return v && *v ? v : NULL;
}

/* ---- the address ---- */

/* Credentials would be in the document's options and in messages. NULL: it is one; else what is wrong. */
static const char *not_a_url(const char *url)
{
	const char *host = strstr(url, "://");
	bool http = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;

	if (!http)
		return "expected http://HOST:PORT or https://HOST:PORT";
	host += 3;
	size_t len = strcspn(host, "/?#");
	if (len == 0 || *host == ':')
		return "there is no host";
	if (memchr(host, '@', len))
		return "put credentials into " VAR("HEADERS") ", not into the address";
	for (const char *c = url; *c; c++)
		if (*c <= ' ' || *c > '~')
			return "it has a blank or a character that is not ASCII";
	return strlen(url) + strlen(PATH) > DR_OTLP_URL_MAX ? "it is too long" : NULL;
}

/* base: PATH follows it, before a query. An option without a path is a base. */
static void compose(struct dr_otlp_settings *s, const char *url, bool base)
{
	size_t len = strcspn(url, "?#");

	while (base && len > 0 && url[len - 1] == '/')
		len--;
	snprintf(s->url, sizeof(s->url), "%.*s%s%s", (int)len, url, base ? PATH : "",
		url + strcspn(url, "?#"));
}

static bool has_path(const char *url)
{
	const char *path = strpbrk(strstr(url, "://") + 3, "/?#");

	return path && (path[0] != '/' || path[1] != '\0');
}

static bool switched_off(char *(*env)(const char *name))
{
	const char *name = "", *off = env("OTEL_SDK_DISABLED"), *to = env("OTEL_TRACES_EXPORTER");
	const char *protocol = variable(env, VAR("TRACES_PROTOCOL"), VAR("PROTOCOL"), &name);

	if ((off && strcasecmp(off, "true") == 0) || (to && strcmp(to, "none") == 0))
		return true;
	if (!protocol || strcmp(protocol, "grpc") != 0)
		return false;
	dr_warn(COMPONENT,
		"no spans are sent: %s=grpc, and only HTTP with JSON is known; give the collector's address for "
		"HTTP with " OPTION,
		name);
	return true;
}

static int find_endpoint(const char *option, char *(*env)(const char *name),
	struct dr_otlp_settings *s, struct dr_err *e)
{
	const char *url =
		option ? option
		       : variable(env, VAR("TRACES_ENDPOINT"), VAR("ENDPOINT"), &s->source);
	const char *wrong = url ? not_a_url(url) : NULL;
	char clean[128];

	if (!url || (!option && switched_off(env)))
		return 0;
	s->option = option != NULL;
	if (option)
		s->source = OPTION;
	if (wrong)
		dr_text_copy(clean, sizeof(clean), strchr(url, '@') ? "..." : url);
	if (wrong && option)
		return dr_err_set(e, -EINVAL, OPTION "=%s: %s", clean, wrong);
	if (wrong) {
		dr_warn(COMPONENT, "no spans are sent: %s=%s: %s", s->source, clean, wrong);
		return 0;
	}
	compose(s, url, option ? !has_path(url) : strcmp(s->source, VAR("ENDPOINT")) == 0);
	return 1;
}

/* ---- headers: NAME=VALUE,... with percent encoding (W3C Baggage without properties) ---- */

static int hex(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* In place; false: a control character. */
static bool decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high = *from == '%' ? hex(from[1]) : -1, low = high >= 0 ? hex(from[2]) : -1;

		*to = low >= 0 ? (char)(high << 4 | low) : *from;
		if ((unsigned char)*to < ' ' || *to == 0x7f)
			return false;
		to++;
		from += low >= 0 ? 2 : 0;
	}
	*to = '\0';
	return true;
}

static char *trim(char *text)
{
	text += strspn(text, " \t");
	for (size_t n = strlen(text); n > 0 && strchr(" \t", text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

static int add_header(struct dr_otlp_settings *s, const char *name, const char *value)
{
	size_t len = strlen(name) + strlen(value) + 3;
	char *line = dr_calloc(1, len);

	if (!line)
		return -ENOMEM;
	snprintf(line, len, "%s: %s", name, value);
	s->headers[s->n_headers++] = line;
	return 0;
}

/* Of one header. -EINVAL: it is not NAME=VALUE. The value may be a secret: no message has it. */
static int parse_header(struct dr_otlp_settings *s, char *pair)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char *value = strchr(pair, '=');

	if (!value || s->n_headers == DR_OTLP_HEADERS_MAX)
		return -EINVAL;
	*value++ = '\0';
	const char *name = trim(pair);
	value = trim(value);
	if (!*name || name[strspn(name, token)] || !decode(value) || !*value)
		return -EINVAL;
	return add_header(s, name, value);
}

static int parse_headers(struct dr_otlp_settings *s, char *(*env)(const char *name))
{
	const char *name = "", *v = variable(env, VAR("TRACES_HEADERS"), VAR("HEADERS"), &name);
	char *text = v ? dr_strdup(v) : NULL, *rest = text, *pair;
	int rc = v && !text ? -ENOMEM : 0;

	for (unsigned i = 1; rc == 0 && rest && (pair = strsep(&rest, ",")); i++) {
		if (!*trim(pair))
			continue;
		rc = parse_header(s, pair);
		if (rc == -EINVAL) {
			dr_warn(COMPONENT, "%s: entry %u is ignored: it is not NAME=VALUE", name,
				i);
			rc = 0;
		}
	}
	dr_free(text);
	return rc;
}

static void parse_timeout(struct dr_otlp_settings *s, char *(*env)(const char *name))
{
	const char *name = "", *v = variable(env, VAR("TRACES_TIMEOUT"), VAR("TIMEOUT"), &name);
	uint64_t ms = DEFAULT_MS;
	char clean[32];

	if (v && dr_parse_u64(v, 1, MAX_MS, &ms, NULL)) {
		dr_text_copy(clean, sizeof(clean), v);
		dr_warn(COMPONENT, "%s=%s is ignored: expected milliseconds, 1 to %d", name, clean,
			MAX_MS);
		ms = DEFAULT_MS;
	}
	s->timeout_ns = (int64_t)ms * DR_NS_PER_MS;
}

int dr_otlp_settings(const char *option, char *(*env)(const char *name), struct dr_otlp_settings *s,
	struct dr_err *e)
{
	memset(s, 0, sizeof(*s));
	int rc = find_endpoint(option, env, s, e);
	if (rc <= 0)
		return rc;
	parse_timeout(s, env);
	rc = add_header(s, "Content-Type", "application/json");
	if (rc == 0)
		rc = add_header(s, "User-Agent", "OTel-OTLP-Exporter-dualrail/" DR_VERSION);
	if (rc == 0)
		rc = parse_headers(s, env);
	if (rc == 0)
		return 1;
	dr_otlp_settings_fini(s);
	return dr_err_set(e, rc, OPTION ": out of memory");
}

void dr_otlp_settings_fini(struct dr_otlp_settings *s)
{
	for (size_t i = 0; i < s->n_headers; i++)
		dr_free(s->headers[i]);
	s->n_headers = 0;
}
