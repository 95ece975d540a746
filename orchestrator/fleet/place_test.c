/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* An environment: "NAME=VALUE" texts, NULL at the end. */
static const char *env(void *arg, const char *name)
{
	const char *const *v = arg;
	size_t n = strlen(name);

	for (; *v; v++)
		if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
			return *v + n + 1;
	return NULL;
}

static int find(const char *const *vars, const struct dr_place_inputs *options,
	struct dr_place *out, struct dr_err *e)
{
	struct dr_place_inputs in =
		options ? *options : (struct dr_place_inputs){ .rank = -1, .nodes = -1 };

	in.env = env;
	in.arg = (void *)(uintptr_t)vars;
	in.port = 20000;
	return dr_place_find(&in, out, e);
}

#define VARS(...)                                                                                  \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

static void assert_place(
	const struct dr_place *p, uint32_t rank, uint32_t nodes, const char *host, uint16_t port)
{
	assert_int_equal(p->rank, rank);
	assert_int_equal(p->nodes, nodes);
	assert_string_equal(p->host, host);
	assert_int_equal(p->port, port);
}

static void schedulers_are_understood(void **state)
{
	const struct dr_place_inputs to = { .rank = -1, .nodes = -1, .coordinator = "n0:21000" },
				     job = {
					     .rank = -1, .nodes = 6, .hostname = "sw-4.sweep.ns.svc"
				     };
	struct dr_place p;
	struct dr_err e;

	(void)state;
	assert_int_equal(
		find(VARS("SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=n[07-12,20],m1"),
			NULL, &p, &e),
		0);
	assert_place(&p, 3, 8, "n07", 20000);
	assert_string_equal(p.source, "Slurm");
	assert_int_equal(find(VARS("SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_JOB_NODELIST=a,b"),
				 NULL, &p, &e),
		0);
	assert_place(&p, 3, 8, "a", 20000);
	assert_int_equal(
		find(VARS("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LAUNCH_NODE_IPADDR=192.0.2.1"),
			NULL, &p, &e),
		0);
	assert_place(&p, 1, 2, "192.0.2.1", 20000);
	assert_int_equal(
		find(VARS("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4"), &to, &p, &e), 0);
	assert_place(&p, 2, 4, "n0", 21000);
	assert_int_equal(find(VARS("PMI_RANK=2", "PMI_SIZE=4"), &to, &p, &e), 0);
	assert_place(&p, 2, 4, "n0", 21000);
	assert_int_equal(
		find(VARS("RANK=5", "WORLD_SIZE=6", "MASTER_ADDR=192.0.2.9", "MASTER_PORT=29500"),
			NULL, &p, &e),
		0);
	assert_place(&p, 5, 6, "192.0.2.9", 29500);
	assert_int_equal(find(VARS("JOB_COMPLETION_INDEX=4"), &job, &p, &e), 0);
	assert_place(&p, 4, 6, "sw-0.sweep.ns.svc", 20000);
	/* mpirun within an allocation of Slurm. */
	assert_int_equal(find(VARS("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=x",
				      "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"),
				 NULL, &p, &e),
		0);
	assert_string_equal(p.source, "Slurm, Open MPI");
}

static void options_replace_variables(void **state)
{
	const struct dr_place_inputs all = {
		.rank = 1, .nodes = 3, .coordinator = "[2001:db8::1]:7"
	};
	struct dr_place p;
	struct dr_err e;

	(void)state;
	assert_int_equal(find(VARS("RANK=5", "WORLD_SIZE=6", "PMI_RANK=2"), &all, &p, &e), 0);
	assert_place(&p, 1, 3, "2001:db8::1", 7);
	assert_string_equal(p.source, "--rank");
}

static void refused(const char *const *vars, const char *text)
{
	struct dr_place p;
	struct dr_err e = { .code = 0 };
	int rc = find(vars, NULL, &p, &e);

	assert_true(rc == -EINVAL || rc == -ERANGE);
	if (!strstr(e.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.text);
}

static void contradictions_and_gaps_are_named(void **state)
{
	(void)state;
	refused(VARS("X=1"), "no scheduler set it");
	refused(VARS("RANK=1", "WORLD_SIZE=4", "PMI_RANK=2", "PMI_SIZE=4"),
		"PMI_RANK=2 and RANK=1 contradict");
	refused(VARS("RANK=1", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8"),
		"OMPI_COMM_WORLD_SIZE=8 and WORLD_SIZE=4 contradict");
	refused(VARS("RANK=1", "WORLD_SIZE=4"), "give --coordinator");
	refused(VARS("RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=x"), "rank 4 of 4 nodes");
	refused(VARS("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=x"), "2 nodes or more");
	refused(VARS("RANK=one", "WORLD_SIZE=4"), "RANK=\"one\" is not a number");
	refused(VARS("JOB_COMPLETION_INDEX=1"), "give --nodes");
}

static bool own(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, "192.0.2.12") == 0 || strcmp(name, "192.0.2.14") == 0;
}

static int from_file(const char *text, int64_t rank, struct dr_place *p, struct dr_err *e)
{
	const struct dr_place_inputs in = { .rank = rank, .nodes = -1, .port = 20000, .env = env };

	return dr_place_hostfile(&in, text, own, p, e);
}

static void the_rank_is_the_line_of_this_node(void **state)
{
	struct dr_place p;
	struct dr_err e;

	(void)state;
	assert_int_equal(
		from_file("# c\n192.0.2.10\n\n 192.0.2.11  # x\n192.0.2.12", -1, &p, &e), 0);
	assert_place(&p, 2, 3, "192.0.2.10", 20000);
	assert_int_equal(from_file("a\nb\n", 1, &p, &e), 0);
	assert_place(&p, 1, 2, "a", 20000);
	assert_int_equal(from_file("a\nb\n", -1, &p, &e), -ENODEV);
	assert_int_equal(from_file("192.0.2.12\n192.0.2.14\n", -1, &p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "both addresses of this node"));
	assert_int_equal(from_file("a b\nc\n", 0, &p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "line 1"));
	assert_int_equal(from_file("192.0.2.12\n", -1, &p, &e), -EINVAL);
	assert_int_equal(from_file("", -1, &p, &e), -EINVAL);
	assert_int_equal(from_file("a\nb\n", 2, &p, &e), -ERANGE);
}

static void first_host_of_a_list(void **state)
{
	char out[64];

	(void)state;
	assert_int_equal(dr_place_first_host("n[001-016]", out, sizeof(out)), 0);
	assert_string_equal(out, "n001");
	assert_int_equal(dr_place_first_host("rack1n[5,7]-ib,z", out, sizeof(out)), 0);
	assert_string_equal(out, "rack1n5-ib");
	assert_int_equal(dr_place_first_host("n[", out, sizeof(out)), -EINVAL);
	assert_int_equal(dr_place_first_host("n[1]x[2]", out, sizeof(out)), -EINVAL);
	assert_int_equal(dr_place_first_host("", out, sizeof(out)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedulers_are_understood),
		cmocka_unit_test(options_replace_variables),
		cmocka_unit_test(contradictions_and_gaps_are_named),
		cmocka_unit_test(the_rank_is_the_line_of_this_node),
		cmocka_unit_test(first_host_of_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
