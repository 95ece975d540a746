/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/source.h"
#include "orchestrator/output/output.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/parts_testkit.h"

/* The path of option "csv", "prom" or "save-baseline". */
static const char **file_of(struct dr_output_files *files, const char *option)
{
	const struct dr_opt_group *g = dr_output_group(1, 1);

	for (size_t i = 0; i < g->n; i++)
		if (!strcmp(g->rows[i].name, option))
			return (const char **)((char *)files + g->rows[i].offset);
	return NULL;
}

/* A folder of its own, and files that stand for stdout and stderr. */
struct place {
	char dir[64];
	FILE *out, *err;
	char *out_text, *err_text;
	size_t out_len, err_len;
};

static void no_log(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)level;
	(void)component;
	(void)text;
	(void)arg;
}

static int setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/tmp/dr-output-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->out = tmpfile();
	p->err = tmpfile();
	dr_log_set_sink(no_log, NULL);
	*state = p;
	return 0;
}

/* No test leaves anything but the files it wrote: temporary ones are gone. */
static int teardown(void **state)
{
	struct place *p = *state;
	struct dirent *d;
	DIR *dir = opendir(p->dir);
	int hidden = 0;
	char path[512];

	while ((d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		hidden += d->d_name[0] == '.';
		snprintf(path, sizeof(path), "%s/%s", p->dir, d->d_name);
		unlink(path);
		rmdir(path);
	}
	closedir(dir);
	rmdir(p->dir);
	fclose(p->out);
	fclose(p->err);
	free(p);
	dr_log_set_sink(NULL, NULL);
	assert_int_equal(hidden, 0);
	return 0;
}

static struct dr_output_options options(const struct place *p)
{
	struct dr_output_options o = { .out = p->out, .err = p->err };

	return o;
}

static const char *in(const struct place *p, const char *name)
{
	static char path[8][128];
	static unsigned turn;
	char *s = path[turn++ % 8];

	snprintf(s, sizeof(path[0]), "%s/%s", p->dir, name);
	return s;
}

/* What was written so far; to be freed. */
static char *slurp(FILE *f)
{
	long n;
	char *s;

	fflush(f);
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	s = calloc(1, (size_t)n + 1);
	assert_int_equal(fread(s, 1, (size_t)n, f), n);
	return s;
}

static int finish(const struct dr_output_options *o, struct dr_record *rec)
{
	struct dr_output *out;
	struct dr_thresholds t;
	struct dr_err e;
	int code;

	assert_int_equal(dr_output_open(o, &out, &e), 0);
	dr_thresholds_init(&t);
	t.baseline = dr_output_baseline(out);
	dr_output_start(out, rec);
	dr_output_row(out, intervals, &rec->intervals.v[0]);
	dr_output_row(out, faults, &rec->faults.v[0]);
	dr_output_row(out, switches, &rec->switches.v[0]);
	dr_output_row(out, events, &rec->events.v[0]);
	dr_output_result(out, rec);
	code = dr_output_finish(out, rec, &t);
	dr_output_close(out);
	return code;
}

static void json_alone_owns_standard_output(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	char *out, *err;
	json_t *doc;

	o.json_stdout = true;
	assert_int_equal(finish(&o, rec), 0);
	out = slurp(p->out);
	err = slurp(p->err);
	doc = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(doc);
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), 0);
	assert_non_null(strstr(err, ": 378.9 Gb/s ("));
	json_decref(doc);
	free(out);
	free(err);
	dr_record_destroy(rec);
}

static void tables_without_json(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	char *out, *err;

	assert_int_equal(finish(&o, rec), 0);
	out = slurp(p->out);
	err = slurp(p->err);
	assert_non_null(strstr(out, "PASS (exit status 0)"));
	assert_null(strchr(out, '\r')); /* no progress line: not a terminal */
	assert_string_equal(err, "");
	free(out);
	free(err);
	dr_record_destroy(rec);
}

static void every_line_of_the_stream_is_an_object(void **state)
{
	static const char *const events[] = { "start", "interval", "fault", "switch", "event",
		"result", "end" };
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	char *out, *line, *save = NULL;
	size_t n = 0;

	o.json_stream = true;
	assert_int_equal(finish(&o, rec), 0);
	out = slurp(p->out);
	for (line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		json_t *v = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

		assert_non_null(v);
		assert_true(n < DR_ARRAY_LEN(events));
		assert_string_equal(json_string_value(json_object_get(v, "event")), events[n]);
		assert_true(json_is_object(json_object_get(v, "data")));
		if (!strcmp(events[n], "end"))
			assert_int_equal(json_integer_value(json_object_get(
						 json_object_get(v, "data"), "exit_code")),
				0);
		json_decref(v);
		n++;
	}
	assert_int_equal(n, DR_ARRAY_LEN(events));
	free(out);
	dr_record_destroy(rec);
}

static void files_are_replaced(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	struct stat st;
	json_t *doc;
	FILE *f;

	o.json_path = in(p, "r.json");
	*file_of(&o.files, "csv") = in(p, "r.csv");
	*file_of(&o.files, "prom") = in(p, "r.prom");
	/* The old file's mode stays. */
	f = fopen(in(p, "r.prom"), "w");
	fputs("old", f);
	fclose(f);
	assert_int_equal(chmod(*file_of(&o.files, "prom"), 0640), 0);
	assert_int_equal(finish(&o, rec), 0);
	assert_int_equal(stat(in(p, "r.prom"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_true(st.st_size > 1000);
	doc = json_load_file(o.json_path, 0, NULL);
	assert_non_null(doc);
	json_decref(doc);
	dr_record_destroy(rec);
}

static void unwritable_paths_are_told_at_once(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_output *out;
	struct dr_err e;

	o.json_path = "/nowhere/at/all/r.json";
	assert_int_equal(dr_output_open(&o, &out, &e), -ENOENT);
	assert_string_equal(e.text,
		"cannot write --json=/nowhere/at/all/r.json: No such file or directory; create the "
		"directory first");
	o.json_path = p->dir;
	assert_int_equal(dr_output_open(&o, &out, &e), -EISDIR);
	o.json_path = NULL;
	*file_of(&o.files, "prom") = "/proc/version"; /* nobody, not even root, may write that */
	assert_true(dr_output_open(&o, &out, &e) < 0);
	assert_non_null(strstr(e.text, "cannot write --prom=/proc/version: "));
	*file_of(&o.files, "prom") = NULL;
	*file_of(&o.files, "csv") = "";
	assert_int_equal(dr_output_open(&o, &out, &e), -EINVAL);
	*file_of(&o.files, "csv") = NULL;
	/* Looking leaves no file. */
	assert_int_equal(dr_file_probe("--json", in(p, "new.json"), &e), 0);
	assert_int_equal(access(in(p, "new.json"), F_OK), -1);
}

static void a_refused_run_has_a_document_too(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec;
	struct dr_output *out;
	struct dr_err e;
	char *text;
	json_t *doc;

	assert_int_equal(dr_record_create(&rec), 0);
	o.json_stdout = true;
	*file_of(&o.files, "csv") = "/nowhere/r.csv";
	assert_int_not_equal(dr_output_open(&o, &out, &e), 0);
	assert_int_equal(dr_output_refuse(&o, rec, DR_EXIT_ENV, &e), DR_EXIT_ENV);
	text = slurp(p->out);
	doc = json_loads(text, 0, NULL);
	assert_non_null(doc);
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), DR_EXIT_ENV);
	json_decref(doc);
	free(text);
	dr_record_destroy(rec);
	assert_int_equal(dr_record_create(&rec), 0);
	o.json_stream = true;
	assert_int_not_equal(dr_output_open(&o, &out, &e), 0);
	assert_int_equal(dr_output_refuse(&o, rec, DR_EXIT_USAGE, &e), DR_EXIT_USAGE);
	dr_record_destroy(rec);
}

static void a_full_disk_is_an_error(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	json_t *doc;

	if (access("/dev/full", W_OK))
		skip();
	*file_of(&o.files, "csv") = "/dev/full";
	o.json_path = in(p, "r.json");
	assert_int_equal(finish(&o, rec), DR_EXIT_ENV);
	assert_non_null(strstr(
		rec->errors.v[0].text, "cannot write --csv=/dev/full: No space left on device"));
	/* The document that could be written says so too. */
	doc = json_load_file(in(p, "r.json"), 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), DR_EXIT_ENV);
	assert_int_equal(json_array_size(json_object_get(doc, "errors")), 1);
	json_decref(doc);
	dr_record_destroy(rec);

	/* Written before the one that fails: written again. */
	rec = sample_record();
	*file_of(&o.files, "csv") = NULL;
	*file_of(&o.files, "prom") = "/dev/full";
	assert_int_equal(finish(&o, rec), DR_EXIT_ENV);
	doc = json_load_file(in(p, "r.json"), 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), DR_EXIT_ENV);
	json_decref(doc);
	dr_record_destroy(rec);

	/* Standard output itself. */
	rec = sample_record();
	o = options(p);
	o.json_stdout = true;
	o.out = fopen("/dev/full", "w");
	assert_int_equal(finish(&o, rec), DR_EXIT_ENV);
	fclose(o.out);
	dr_record_destroy(rec);
	rec = sample_record();
	o.json_stdout = false;
	o.json_stream = true;
	o.out = fopen("/dev/full", "w");
	assert_int_equal(finish(&o, rec), DR_EXIT_ENV);
	assert_non_null(strstr(rec->errors.v[0].text, "No space left on device"));
	fclose(o.out);
	dr_record_destroy(rec);
}

static void baseline_round_trip(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	struct dr_output *out;
	struct stat st;
	struct dr_err e;
	FILE *f;

	*file_of(&o.files, "save-baseline") = in(p, "base.json");
	assert_int_equal(finish(&o, rec), 0);
	o = options(p);
	o.baseline_path = in(p, "base.json");
	assert_int_equal(finish(&o, rec), 0);
	rec->bandwidth.v[2].gbps /= 2;
	assert_int_equal(finish(&o, rec), DR_EXIT_THRESHOLD);
	/* A run that failed does not become the next baseline. */
	*file_of(&o.files, "save-baseline") = in(p, "bad.json");
	assert_int_equal(finish(&o, rec), DR_EXIT_THRESHOLD);
	assert_int_equal(stat(*file_of(&o.files, "save-baseline"), &st), -1);
	dr_record_destroy(rec);

	o = options(p);
	o.baseline_path = in(p, "none.json");
	assert_int_equal(dr_output_open(&o, &out, &e), -ENOENT);
	o.baseline_path = "/dev/zero";
	assert_int_equal(dr_output_open(&o, &out, &e), -EPERM);
	assert_non_null(
		strstr(e.text, "cannot read --baseline=/dev/zero: it is not a regular file; "));
	f = fopen(in(p, "junk.json"), "w");
	fputs("{\"schema\":\"dualrail/1\",\n\"bandwidth\":[}", f);
	fclose(f);
	o.baseline_path = in(p, "junk.json");
	assert_int_equal(dr_output_open(&o, &out, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "line 2"));
	f = fopen(in(p, "junk.json"), "w");
	fputs("{\"schema\":\"dualrail/9\"}", f);
	fclose(f);
	assert_int_equal(dr_output_open(&o, &out, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "dualrail/9"));
}

static int http_open(uint16_t port, const char *request)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(
		send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
	return fd;
}

/* The whole answer to one request; to be freed. */
static char *http(uint16_t port, const char *request)
{
	char *buf = calloc(1, 1 << 20);
	size_t n = 0;
	ssize_t got;
	int fd = http_open(port, request);

	while ((got = recv(fd, buf + n, (1 << 20) - 1 - n, 0)) > 0)
		n += (size_t)got;
	close(fd);
	return buf;
}

/* More connections than there are places, all in the middle of a request. */
static void metrics_beside_slow_readers(void **state)
{
	enum { SLOW = 40 };
	struct dr_output_options o = options(*state);
	struct dr_networks allow;
	struct dr_output *out;
	struct dr_err e;
	int fd[SLOW];
	int64_t begin;
	char *text;

	o.metrics_listen = "127.0.0.1:0";
	o.quiet = true;
	assert_int_equal(dr_output_open(&o, &out, &e), 0);
	assert_int_equal(dr_output_serve(out, &e), 0);
	for (unsigned i = 0; i < SLOW; i++)
		fd[i] = http_open(dr_output_metrics_port(out), "GET /metr");
	begin = dr_now_ns();
	text = http(dr_output_metrics_port(out), "GET / HTTP/1.0\r\n\r\n");
	assert_non_null(strstr(text, " 200 OK"));
	assert_true(dr_now_ns() - begin < 8 * DR_NS_PER_S); /* idle ones are closed after 10 s */
	free(text);
	for (unsigned i = 0; i < SLOW; i++)
		close(fd[i]);
	dr_output_close(out);
	assert_int_equal(dr_networks_parse("192.0.2.0/24", &allow, &e), 0);
	o.metrics_allow = &allow;
	assert_int_equal(dr_output_open(&o, &out, &e), 0);
	assert_int_equal(dr_output_serve(out, &e), 0);
	text = http(dr_output_metrics_port(out), "GET / HTTP/1.0\r\n\r\n");
	assert_string_equal(text, "");
	free(text);
	dr_output_close(out);
}

static void metrics_over_http(void **state)
{
	struct place *p = *state;
	struct dr_output_options o = options(p);
	struct dr_record *rec = sample_record();
	struct dr_output *out, *second;
	struct dr_err e;
	char *text, where[32];

	o.metrics_listen = "127.0.0.1:0";
	o.quiet = true;
	assert_int_equal(dr_output_open(&o, &out, &e), 0);
	assert_int_not_equal(dr_output_metrics_port(out), 0);
	assert_int_equal(dr_output_serve(out, &e), 0);
	dr_output_publish(out, rec);
	text = http(dr_output_metrics_port(out), "GET /metrics HTTP/1.0\r\n\r\n");
	assert_non_null(strstr(text, " 200 OK"));
	assert_non_null(strstr(text, "text/plain; version=0.0.4"));
	assert_non_null(strstr(text, "\ndualrail_nic_tx_bytes{"));
	assert_null(strstr(text, "last_run_success"));
	free(text);
	dr_output_finish(out, rec, NULL);
	text = http(dr_output_metrics_port(out), "GET /metrics HTTP/1.0\r\n\r\n");
	assert_non_null(strstr(text, "dualrail_last_run_success{host=\"node-b\"} 1"));
	free(text);
	text = http(dr_output_metrics_port(out), "GET /other HTTP/1.0\r\n\r\n");
	assert_non_null(strstr(text, " 404 "));
	free(text);
	text = http(dr_output_metrics_port(out),
		"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
	assert_non_null(strstr(text, " 405 "));
	free(text);
	text = http(dr_output_metrics_port(out), "rubbish\r\n\r\n");
	free(text);
	/* The port is taken now. */
	snprintf(where, sizeof(where), "127.0.0.1:%u", dr_output_metrics_port(out));
	o.metrics_listen = where;
	assert_int_equal(dr_output_open(&o, &second, &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, "choose another port"));
	dr_output_close(out);
	/* And free again. */
	assert_int_equal(dr_output_open(&o, &out, &e), 0);
	dr_output_close(out);
	dr_record_destroy(rec);
}

static void bad_listen_addresses(void **state)
{
	static const char *const bad[] = { "", "9400", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
		"127.0.0.1:70000", "::1:9400", "[::1]", "no such host:1" };
	struct dr_metrics *m;
	struct dr_err e;
	size_t i;
	int rc;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(bad); i++) {
		assert_int_equal(dr_metrics_start(bad[i], NULL, &m, &e), -EINVAL);
		assert_non_null(strstr(e.text, "--metrics-listen="));
	}
	assert_int_equal(dr_metrics_start("192.0.2.1:0", NULL, &m, &e), -EADDRNOTAVAIL);
	/* IPv6, where the host has it. */
	rc = dr_metrics_start("[::1]:0", NULL, &m, &e);
	if (!rc)
		dr_metrics_stop(m);
	assert_true(rc == 0 || rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT);
}

static char *printed(void (*print)(struct dr_record *, FILE *), struct dr_record *rec)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	print(rec, f);
	fclose(f);
	return text;
}

static void verdict_alone(struct dr_record *rec, FILE *f)
{
	dr_table_verdict(rec, f);
}

/* A line or two of each test, as wide as the screen, then the verdict with its reserves. */
static void answers_and_verdict(void **state)
{
	struct dr_record *rec = sample_record();
	char *text, *verdict;

	(void)state;
	dr_record_verdict(rec, NULL);
	setenv("COLUMNS", "60", 1);
	text = printed(dr_table_answers, rec);
	verdict = printed(verdict_alone, rec);
	unsetenv("COLUMNS");
	for (const char *p = text; (p = strstr(p, "\nBandwidth: ")) != NULL; p++)
		assert_null(strstr(p + 1, "\nBandwidth: "));
	assert_non_null(strstr(text, "Latency, round trip of "));
	assert_non_null(strstr(text, "Failover: "));
	assert_non_null(strstr(text, "Data: "));
	assert_null(strstr(text, "sender Gb/s")); /* a column of a table */
	assert_string_equal(text + strlen(text) - strlen(verdict), verdict);
	assert_int_equal(strncmp(verdict, "PASS (exit status 0)", 20), 0);
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;)
		if (strstr(line, "COUNTERS") == NULL && strstr(line, "###") == NULL)
			assert_true(strlen(line) <= 60);
	free(text);
	free(verdict);
	rec->nics.v[0].degraded = 1;
	verdict = printed(verdict_alone, rec);
	assert_non_null(strstr(verdict, "PASS (exit status 0), but "));
	assert_non_null(strstr(verdict, " is degraded"));
	free(verdict);
	dr_record_destroy(rec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(json_alone_owns_standard_output, setup, teardown),
		cmocka_unit_test_setup_teardown(tables_without_json, setup, teardown),
		cmocka_unit_test_setup_teardown(
			every_line_of_the_stream_is_an_object, setup, teardown),
		cmocka_unit_test_setup_teardown(files_are_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(unwritable_paths_are_told_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refused_run_has_a_document_too, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_disk_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(baseline_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(metrics_beside_slow_readers, setup, teardown),
		cmocka_unit_test_setup_teardown(metrics_over_http, setup, teardown),
		cmocka_unit_test(bad_listen_addresses),
		cmocka_unit_test(answers_and_verdict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
