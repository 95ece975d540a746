/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/sysfile.h"

static char root[64];

static void put(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/x/%s", root, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static int tree_make(void **state)
{
	char path[80];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/dr-sysfile-test-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof(path), "%s/x", root);
	return mkdir(path, 0755);
}

static int tree_remove(void **state)
{
	char command[80];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void files_are_read(void **state)
{
	char text[8];
	int64_t n;

	(void)state;
	put("number", "0x10de\n");
	put("minus", "-1\n");
	put("word", "Unknown\n");
	put("empty", "");
	put("long", "0123456789\n");
	assert_true(dr_sysfile_number(&n, root, "/x/%s", "number"));
	assert_int_equal(n, 0x10de);
	assert_true(dr_sysfile_number(&n, root, "/x/minus"));
	assert_int_equal(n, -1);
	assert_false(dr_sysfile_number(&n, root, "/x/word"));
	assert_false(dr_sysfile_number(&n, root, "/x/empty"));
	assert_false(dr_sysfile_number(&n, root, "/x/none"));
	assert_int_equal(dr_sysfile_text(text, sizeof(text), root, "/x/long"), 7);
	assert_string_equal(text, "0123456");
	assert_int_equal(dr_sysfile_text(text, sizeof(text), root, "/x"), -EISDIR);
	assert_string_equal(text, "");
	assert_int_equal(dr_sysfile_text(text, sizeof(text), root, "/%0600d", 1), -ENAMETOOLONG);
	assert_string_equal(text, "");
	assert_true(dr_sysfile_has(root, "/x"));
	assert_false(dr_sysfile_has(root, "/y"));
	assert_false(dr_sysfile_has(root, "/%0600d", 1));
}

static void links_are_read(void **state)
{
	char path[80], text[16];

	(void)state;
	snprintf(path, sizeof(path), "%s/x/far", root);
	assert_int_equal(symlink("../../0000:81:00.0", path), 0);
	snprintf(path, sizeof(path), "%s/x/near", root);
	assert_int_equal(symlink("socket:[1]", path), 0);
	assert_int_equal(dr_sysfile_link(text, sizeof(text), root, "/x/%s", "far"), 12);
	assert_string_equal(text, "0000:81:00.0");
	assert_int_equal(dr_sysfile_link(text, sizeof(text), root, "/x/near"), 10);
	assert_string_equal(text, "socket:[1]");
	assert_int_equal(dr_sysfile_link(text, sizeof(text), root, "/x/number"), -EINVAL);
	assert_string_equal(text, "");
}

static int collect(const char *name, void *arg)
{
	char *names = arg;

	snprintf(names + strlen(names), 16, "%s", name);
	return strcmp(name, "e10") == 0 ? 5 : 0;
}

static void directories_are_read(void **state)
{
	char path[80], names[64] = "";

	(void)state;
	snprintf(path, sizeof(path), "%s/x/d", root);
	assert_int_equal(mkdir(path, 0755), 0);
	put("d/e10", "");
	put("d/e2", "");
	put("d/.hidden", "");
	put("d/f", "");
	assert_int_equal(dr_sysfile_each(root, "/x/d", collect, names), 5);
	assert_string_equal(names, "e2e10");
	assert_int_equal(dr_sysfile_each(root, "/x/none", collect, names), 0);
	assert_string_equal(names, "e2e10");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_read),
		cmocka_unit_test(links_are_read),
		cmocka_unit_test(directories_are_read),
	};

	return cmocka_run_group_tests_name("system files", tests, tree_make, tree_remove);
}
