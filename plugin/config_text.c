/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/config_priv.h"

#include "base/units.h"
#include "transport/kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "512K": as it is written in the environment. */
static void format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char unit[] = "\0KMGT";
	unsigned i = 0;

	while (bytes && bytes % 1024 == 0 && i < 4) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, len, "%" PRIu64 "%.1s", bytes, &unit[i]);
}

void ha_var_format(const struct ha_variable *v, const struct ha_config *c, char *buf, size_t len)
{
	const void *at = (const char *)c + v->offset;

	switch (v->kind) {
	case HA_VAR_BOOL:
		snprintf(buf, len, "%d", *(const bool *)at);
		break;
	case HA_VAR_UINT:
		snprintf(buf, len, "%u", *(const unsigned *)at);
		break;
	case HA_VAR_INT:
		snprintf(buf, len, "%d", *(const int *)at);
		break;
	case HA_VAR_MS:
		snprintf(buf, len, "%lld", (long long)(*(const int64_t *)at / DR_NS_PER_MS));
		break;
	case HA_VAR_SIZE:
		format_size(*(const uint64_t *)at, buf, len);
		break;
	case HA_VAR_CHOICE:
		buf[0] = '\0';
		if (*(const int *)at >= v->first)
			dr_format_choice(v->choices, *(const int *)at - v->first, buf, len);
		break;
	case HA_VAR_NAMES:
		ha_names_format(at, buf, len);
		break;
	case HA_VAR_PATH:
		snprintf(buf, len, "%s", (const char *)at);
		break;
	case HA_VAR_LEVEL:
		snprintf(buf, len, "%d", *(const int *)at);
		break;
	}
}

/* "a, b or c" of "a|b|c". */
static void format_choices(const char *choices, char *buf, size_t len)
{
	const char *s = choices;

	buf[0] = '\0';
	for (;;) {
		size_t n = strcspn(s, "|");

		dr_append(buf, len, "%.*s", (int)n, s);
		if (!s[n])
			return;
		s += n + 1;
		dr_append(buf, len, "%s", strchr(s, '|') ? ", " : " or ");
	}
}

void ha_var_accepted(const struct ha_variable *v, char *buf, size_t len)
{
	char min[32], max[32];

	switch (v->kind) {
	case HA_VAR_BOOL:
		snprintf(buf, len, "0 or 1");
		break;
	case HA_VAR_CHOICE:
	case HA_VAR_LEVEL:
		format_choices(v->choices, buf, len);
		break;
	case HA_VAR_NAMES:
		snprintf(buf, len, "names separated by commas");
		break;
	case HA_VAR_PATH:
		snprintf(buf, len, "a path of less than %d bytes", HA_PATH_BYTES);
		break;
	case HA_VAR_SIZE:
		format_size(v->min, min, sizeof(min));
		format_size(v->max, max, sizeof(max));
		snprintf(buf, len, "%s to %s bytes", min, max);
		break;
	case HA_VAR_INT:
		snprintf(buf, len, "%d to %" PRIu64, v->first, v->max);
		break;
	default:
		snprintf(buf, len, "%" PRIu64 " to %" PRIu64 "%s%s", v->min, v->max,
			v->unit ? " " : "", v->unit ? v->unit : "");
	}
}

/* ---- the line that states what is in force ---- */

static void describe_detection(const struct ha_config *c, char *buf, size_t len)
{
	char beat[32], bound[32];

	dr_format_duration(c->heartbeat_ns, beat, sizeof(beat));
	dr_format_duration(ha_config_detect_bound(c), bound, sizeof(bound));
	dr_append(buf, len, "heartbeat %s, detection %s within %s, ", beat,
		c->detect == DR_DETECT_FAST ? "fast" : "conservative", bound);
	if (c->backup)
		dr_append(buf, len, "failback %s, ", c->failback ? "on" : "off");
	else
		dr_append(buf, len, "no backup paths, ");
}

/* Variables that are set, have an effect on the others' row, and do not hold the default. */
static void describe_differences(const struct ha_config *c, char *buf, size_t len)
{
	const struct ha_host host = { .cpus = c->cpus, .name = "" };
	char value[160], def[160];
	struct ha_config d;
	const char *sep = "; ";

	ha_config_defaults(&d, &host);
	for (unsigned i = 0; i < ha_n_variables; i++) {
		const struct ha_variable *v = &ha_variables[i];

		if (!(c->given >> i & 1) || v->fixed || v->use == HA_USE_NEVER ||
			(v->use == HA_USE_VERBS && !ha_config_is_verbs(c)))
			continue;
		ha_var_format(v, c, value, sizeof(value));
		ha_var_format(v, &d, def, sizeof(def));
		if (strcmp(value, def) == 0)
			continue;
		dr_append(buf, len, "%s%s=%s", sep, v->name, value);
		sep = " ";
	}
}

void ha_config_describe(
	const struct ha_config *c, const struct ha_about *about, char *buf, size_t len)
{
	char chunk[32], eager[32];

	dr_format_size(c->chunk, chunk, sizeof(chunk));
	dr_format_size(c->eager, eager, sizeof(eager));
	snprintf(buf, len, "version %s (build %s), transport %s, devices %s, ", about->version,
		about->build, c->kind->name, about->devices);
	describe_detection(c, buf, len);
	dr_append(buf, len, "%u thread%s with %u lane%s each, chunk %s, eager %s", c->threads,
		c->threads == 1 ? "" : "s", c->lanes, c->lanes == 1 ? "" : "s", chunk, eager);
	describe_differences(c, buf, len);
}

/* ---- documents ---- */

static const char *doc_default(const struct ha_variable *v)
{
	if (v->default_text)
		return v->default_text;
	return v->def ? v->def : "-";
}

bool ha_config_doc(unsigned i, char *buf, size_t len)
{
	const struct ha_variable *v = &ha_variables[i];
	char accepted[160];

	if (i >= ha_n_variables)
		return false;
	ha_var_accepted(v, accepted, sizeof(accepted));
	snprintf(buf, len, "| `%s` | %s | %s | %s%s |", v->name, doc_default(v), accepted, v->help,
		v->use == HA_USE_VERBS ? " Not used with the tcp transport." : "");
	return true;
}
