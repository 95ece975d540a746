/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays inputs without libFuzzer: X_fuzz FILE-OR-FOLDER... gives each file to the target, after
 * the empty input, and prints how many there were. An input that fails is the one named last.
 */
#include "tests/fuzz/lib/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

static unsigned replayed;

static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	long size = -1;

	if (f && fseek(f, 0, SEEK_END) == 0)
		size = ftell(f);
	if (size >= 0 && fseek(f, 0, SEEK_SET) == 0)
		data = malloc(size ? (size_t)size : 1);
	if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) {
		perror(path);
		return 1;
	}
	fclose(f);
	fprintf(stderr, "%s\n", path);
	dr_assert(LLVMFuzzerTestOneInput(data, (size_t)size) == 0);
	free(data);
	replayed++;
	return 0;
}

static int replay(const char *path)
{
	struct dirent **entry;
	struct stat st;
	int rc = 0, n;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return replay_file(path);
	n = scandir(path, &entry, NULL, alphasort);
	if (n < 0) {
		perror(path);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
		if (entry[i]->d_name[0] != '.')
			rc |= replay_file(file);
		free(entry[i]);
	}
	free(entry);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = 0;

	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++)
		rc |= replay(argv[i]);
	printf("%u\n", replayed);
	return rc;
}
