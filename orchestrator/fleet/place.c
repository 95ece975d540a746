/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/place.h"

#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct scheduler {
	const char *name, *rank, *nodes;
};
static const struct scheduler schedulers[] = {
	{ "Kubernetes", "JOB_COMPLETION_INDEX", NULL },
	{ "Slurm", "SLURM_PROCID", "SLURM_NTASKS" },
	{ "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
	{ "MPICH", "PMI_RANK", "PMI_SIZE" },
	{ "torchrun", "RANK", "WORLD_SIZE" },
};

static const char *get(const struct dr_place_inputs *in, const char *name)
{
	const char *text = name ? in->env(in->arg, name) : NULL;

	return text && *text ? text : NULL;
}

/* A variable's number; -1: not set. */
static int number(
	const struct dr_place_inputs *in, const char *name, int64_t *out, struct dr_err *e)
{
	const char *text = get(in, name);
	uint64_t v = 0;

	*out = -1;
	if (!text)
		return 0;
	if (dr_parse_u64(text, 0, DR_PLACE_NODES_MAX, &v, NULL))
		return dr_err_set(e, -EINVAL,
			"%s=\"%.40s\" is not a number up to %d; set it right or give --rank and --nodes",
			name, text, DR_PLACE_NODES_MAX);
	*out = (int64_t)v;
	return 0;
}

/* What variables say so far, and which ones. */
struct told {
	int64_t rank, nodes;
	const char *rank_by, *nodes_by;
};

static int agree(int64_t *have, const char **by, int64_t v, const char *name, struct dr_err *e)
{
	if (v < 0 || *have == v)
		return 0;
	if (*have >= 0)
		return dr_err_set(e, -EINVAL,
			"%s=%lld and %s=%lld contradict each other; unset the one of the scheduler that did not "
			"start this, or give --rank and --nodes",
			*by, (long long)*have, name, (long long)v);
	*have = v;
	*by = name;
	return 0;
}

/* All variables that are set, unless the option that replaces them is. */
static int ask_schedulers(
	const struct dr_place_inputs *in, struct told *t, struct dr_place *out, struct dr_err *e)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(schedulers); i++) {
		const struct scheduler *s = &schedulers[i];
		int64_t rank, nodes;
		int rc = number(in, s->rank, &rank, e);

		if (rc == 0 && s->nodes)
			rc = number(in, s->nodes, &nodes, e);
		else
			nodes = -1;
		/* sbatch sets the number of tasks for the script, which is no task itself. */
		if (rc || rank < 0) {
			if (rc)
				return rc;
			continue;
		}
		if (in->rank < 0)
			rc = agree(&t->rank, &t->rank_by, rank, s->rank, e);
		if (rc == 0 && in->nodes < 0)
			rc = agree(&t->nodes, &t->nodes_by, nodes, s->nodes, e);
		if (rc)
			return rc;
		dr_append(out->source, sizeof(out->source), "%s%s", *out->source ? ", " : "",
			s->name);
	}
	return 0;
}

int dr_place_first_host(const char *list, char *out, size_t len)
{
	size_t n = strcspn(list, ",[");
	const char *open = list[n] == '[' ? list + n + 1 : NULL;
	size_t digits = open ? strspn(open, "0123456789") : 0;
	const char *close = open ? strchr(open, ']') : NULL;
	int rc;

	if (open && (!digits || !close))
		return -EINVAL;
	/* node[1-2]-ib: what is behind the brackets belongs to the name. */
	size_t tail = close ? strcspn(close + 1, ",") : 0;

	rc = snprintf(out, len, "%.*s%.*s%.*s", (int)n, list, (int)digits, open ? open : "",
		(int)tail, close ? close + 1 : "");
	return rc > 0 && (size_t)rc < len && !strpbrk(out, "[]") ? 0 : -EINVAL;
}

/* Pods of an Indexed Job are called NAME-INDEX; their names resolve below the headless service, which is the domain. */
static bool pod_zero(const struct dr_place_inputs *in, uint32_t rank, char *out, size_t len)
{
	char index[16];
	const char *name = in->hostname ? in->hostname : "";
	size_t label = strcspn(name, "."), k;
	int rc;

	snprintf(index, sizeof(index), "-%u", rank);
	k = strlen(index);
	if (!get(in, "JOB_COMPLETION_INDEX") || label <= k ||
		strncmp(name + label - k, index, k) != 0)
		return false;
	rc = snprintf(out, len, "%.*s-0%s", (int)(label - k), name, name + label);
	return rc > 0 && (size_t)rc < len;
}

static int find_zero(const struct dr_place_inputs *in, struct dr_place *out, struct dr_err *e)
{
	const char *master = get(in, "MASTER_ADDR"), *slurm = get(in, "SLURM_STEP_NODELIST");
	int64_t port;
	int rc;

	out->port = in->port;
	if (in->coordinator)
		return dr_split_host(in->coordinator, out->host, sizeof(out->host), &out->port, e);
	if (master) {
		rc = number(in, "MASTER_PORT", &port, e);
		snprintf(out->host, sizeof(out->host), "%s", master);
		if (port > 0 && port <= UINT16_MAX)
			out->port = (uint16_t)port;
		return rc;
	}
	slurm = slurm ? slurm : get(in, "SLURM_JOB_NODELIST");
	if (get(in, "SLURM_PROCID") && slurm &&
		dr_place_first_host(slurm, out->host, sizeof(out->host)) == 0)
		return 0;
	if (get(in, "SLURM_PROCID") && get(in, "SLURM_LAUNCH_NODE_IPADDR")) {
		snprintf(out->host, sizeof(out->host), "%s", get(in, "SLURM_LAUNCH_NODE_IPADDR"));
		return 0;
	}
	if (pod_zero(in, out->rank, out->host, sizeof(out->host)) || out->rank == 0)
		return 0;
	return dr_err_set(e, -EINVAL,
		"%s does not say where rank 0 is; give --coordinator HOST[:PORT], the same on all nodes",
		out->source);
}

static int check_numbers(const struct told *t, struct dr_place *out, struct dr_err *e)
{
	if (t->rank < 0)
		return dr_err_set(e, -EINVAL,
			"the rank of this node is not known: no scheduler set it; start with srun, mpirun or as "
			"an Indexed Job, or give --hostfile FILE, or --rank, --nodes and --coordinator");
	if (t->nodes < 0)
		return dr_err_set(e, -EINVAL,
			"the number of nodes is not known (%s); give --nodes N", out->source);
	if (t->nodes < 2 || t->rank >= t->nodes)
		return dr_err_set(e, -ERANGE,
			"rank %lld of %lld nodes: a sweep needs 2 nodes or more, and ranks from 0 to one less",
			(long long)t->rank, (long long)t->nodes);
	out->rank = (uint32_t)t->rank;
	out->nodes = (uint32_t)t->nodes;
	return 0;
}

int dr_place_find(const struct dr_place_inputs *in, struct dr_place *out, struct dr_err *e)
{
	struct told t = { .rank = in->rank, .nodes = in->nodes };
	int rc;

	*out = (struct dr_place){ .rank = 0 };
	rc = ask_schedulers(in, &t, out, e);
	if (rc)
		return rc;
	if (in->rank >= 0)
		snprintf(out->source, sizeof(out->source), "--rank");
	rc = check_numbers(&t, out, e);
	return rc ? rc : find_zero(in, out, e);
}

/* ---- host file ---- */

/* The word of a line, without its comment. NULL: none; -EINVAL: several. */
static int line_word(const char **at, char *word, size_t len, bool *end)
{
	const char *p = *at, *stop = p + strcspn(p, "\n");
	size_t n = 0;

	*end = !*p;
	*at = *stop ? stop + 1 : stop;
	while (p < stop && isspace((unsigned char)*p))
		p++;
	while (p + n < stop && !isspace((unsigned char)p[n]) && p[n] != '#')
		n++;
	if (n >= len)
		return -EINVAL;
	memcpy(word, p, n);
	word[n] = '\0';
	for (p += n; p < stop && *p != '#'; p++)
		if (!isspace((unsigned char)*p))
			return -EINVAL;
	return 0;
}

void dr_place_names(
	const char *text, void (*put)(void *arg, uint32_t rank, const char *name), void *arg)
{
	char word[256];
	bool end;

	for (uint32_t n = 0; line_word(&text, word, sizeof(word), &end) == 0 && !end;)
		if (*word)
			put(arg, n++, word);
}

int dr_place_hostfile(const struct dr_place_inputs *in, const char *text,
	bool (*own)(void *arg, const char *name), struct dr_place *out, struct dr_err *e)
{
	char word[256], mine[256] = "";
	int64_t rank = in->rank;
	unsigned line = 0;
	bool end = false;
	int rc;

	*out = (struct dr_place){ .port = in->port };
	snprintf(out->source, sizeof(out->source), "--hostfile");
	for (;;) {
		line++;
		rc = line_word(&text, word, sizeof(word), &end);
		if (end)
			break;
		if (rc)
			return dr_err_set(e, rc, "line %u: one address per line is expected", line);
		if (!*word)
			continue;
		if (!out->nodes)
			snprintf(out->host, sizeof(out->host), "%s", word);
		if (in->rank < 0 && own(in->arg, word)) {
			if (rank >= 0)
				return dr_err_set(e, -EINVAL,
					"%s and %s are both addresses of this node; give --rank",
					mine, word);
			rank = out->nodes;
			snprintf(mine, sizeof(mine), "%s", word);
		}
		out->nodes++;
	}
	if (out->nodes < 2 || out->nodes > DR_PLACE_NODES_MAX)
		return dr_err_set(e, -EINVAL, "it has %u addresses; 2 to %d are needed", out->nodes,
			DR_PLACE_NODES_MAX);
	if (in->nodes >= 0 && in->nodes != out->nodes)
		return dr_err_set(e, -EINVAL, "it has %u addresses, and --nodes is %lld",
			out->nodes, (long long)in->nodes);
	if (rank < 0)
		return dr_err_set(e, -ENODEV,
			"none of its %u addresses is one of this node; add it, or give --rank",
			out->nodes);
	if (rank >= out->nodes)
		return dr_err_set(e, -ERANGE, "--rank %lld: it has %u addresses", (long long)rank,
			out->nodes);
	out->rank = (uint32_t)rank;
	return in->coordinator
		       ? dr_split_host(in->coordinator, out->host, sizeof(out->host), &out->port, e)
		       : 0;
}
