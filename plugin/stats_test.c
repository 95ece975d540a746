/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/stats.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], path[100];
static struct ha_devices devices = { .n = 1, .dev = { { .name = "eth0" } } };

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/dr-stats-XXXXXX");
	umask(022);
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/ha.prom", dir);
	return 0;
}

/* The directory is empty when the test's own files are gone. */
static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static bool has(const char *file, const char *text)
{
	char buf[8192] = "";
	FILE *f = fopen(file, "r");

	if (f && fread(buf, 1, sizeof(buf) - 1, f) == 0)
		buf[0] = '\0';
	if (f)
		fclose(f);
	return strstr(buf, text) != NULL;
}

static void the_file_is_replaced(void **state)
{
	struct ha_counters c = { .switches = 1 };
	struct stat st;
	struct dr_err e;

	(void)state;
	assert_int_equal(ha_counters_write(&c, &devices, path, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_true(has(path, "\ndualrail_nccl_switches_total 1\n"));
	assert_int_equal(chmod(path, 04755), 0);
	c.switches = 2;
	assert_int_equal(ha_counters_write(&c, &devices, path, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_true(has(path, "\ndualrail_nccl_switches_total 2\n"));
}

static void a_planted_target_stays(void **state)
{
	const struct ha_counters c = { 0 };
	char victim[100];
	struct dr_err e;
	FILE *f;

	(void)state;
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	f = fopen(victim, "w");
	fputs("old", f);
	fclose(f);
	assert_int_equal(symlink("victim", path), 0);
	assert_int_equal(ha_counters_write(&c, &devices, path, &e), -EPERM);
	assert_non_null(strstr(e.text, "cannot write HA_NCCL_METRICS_FILE="));
	assert_non_null(strstr(e.text, ": it is a symbolic link; "));
	assert_true(has(victim, "old"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rename(victim, path), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(path, 65534, 65534), 0);
	assert_int_equal(ha_counters_write(&c, &devices, path, &e), -EPERM);
	assert_non_null(
		strstr(e.text, ": it belongs to user 65534, this process runs as user 0; "));
	assert_true(has(path, "old"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_file_is_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(a_planted_target_stays, setup, teardown),
	};

	return cmocka_run_group_tests_name("plugin statistics", tests, NULL, NULL);
}
