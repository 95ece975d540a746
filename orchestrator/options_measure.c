/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options_rows.h"

#include "channel/manager.h"

#include <errno.h>
#include <string.h>

/* What is measured, on which GPUs, how long. */

static int parse_tests(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_tests t = { false, false, false };
	char buf[64], *save = NULL;

	(void)row;
	if (text && strlen(text) < sizeof(buf)) {
		memcpy(buf, text, strlen(text) + 1);
		for (char *w = strtok_r(buf, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
			bool *b = strcmp(w, "bw") == 0	       ? &t.bw
				  : strcmp(w, "lat") == 0      ? &t.lat
				  : strcmp(w, "failover") == 0 ? &t.failover
							       : NULL;
			if (!b)
				return dr_err_set(e, -EINVAL,
					"\"%s\" is no test; use bw, lat, failover, or several with "
					"commas",
					w);
			*b = true;
		}
	}
	if (text && !t.bw && !t.lat && !t.failover)
		return dr_err_set(e, -EINVAL, "\"%.60s\" names no test; use e.g. bw,lat", text);
	*(struct dr_tests *)dst = t;
	return 0;
}

static const struct dr_opt rows[] = {
	{ .name = "test",
		.kind = DR_OPT_CUSTOM,
		.arg = "TESTS",
		.def = "bw",
		.parse = parse_tests,
		.commands = RUN,
		.offset = AT(test),
		.help = "Tests to run, in this order: bw (bandwidth), lat (latency), failover." },
	{ .name = "gpus",
		.short_name = 'g',
		.kind = DR_OPT_CUSTOM,
		.arg = "LIST",
		.list = true,
		.parse = dr_gpus_parse,
		.commands = ALL | TOPO | DOCTOR,
		.offset = AT(gpu_names),
		.help = "GPUs of this end, by number (as CUDA counts) or PCI bus id, e.g. "
			"0-3,0000:3b:00.0. The k-th of the client talks to the k-th of the server. "
			"Without it: all GPUs that CUDA shows, or 0-7 in host memory." },
	{ .name = "memory",
		.kind = DR_OPT_CHOICE,
		.arg = "KIND",
		.choices = "auto|host|cuda",
		.def = "auto",
		.commands = ALL | DOCTOR,
		.offset = AT(memory),
		.help = "Where this end's data is: in host memory, or in that of its GPUs. auto: of "
			"the GPUs where CUDA shows some. The other end may choose otherwise." },
	{ .name = "pair",
		.kind = DR_OPT_FLAG,
		.commands = ALL | DOCTOR,
		.offset = AT(pair),
		.help = "Allow different numbers of GPUs: the first ones of both ends are used." },
	{ .name = "channels",
		.short_name = 'N',
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "8",
		.commands = RUN | TOPO | DOCTOR,
		.offset = AT(channels),
		.min = 1,
		.max = DR_CHANNELS_MAX,
		.env = { "UCCL_TCPX_NUM_CHANNELS" },
		.help = "Channels per GPU and direction." },
	{ .name = "window",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "16",
		.commands = RUN | DOCTOR,
		.offset = AT(window),
		.min = 1,
		.max = DR_CHANNEL_WINDOW_MAX,
		.help = "Chunks in flight per channel." },
	{ .name = "chunk",
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.def = "512K",
		.commands = RUN | DOCTOR,
		.offset = AT(chunk),
		.min = 1,
		.max = 64 << 20,
		.help = "Unit of sequence, window, acknowledgement and gap; a smaller message is "
			"one chunk." },
	{ .name = "size",
		.short_name = 's',
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.def = "64M",
		.commands = RUN,
		.offset = AT(size),
		.min = 1,
		.max = 1ull << 40,
		.help = "Message size; latency is measured with 8 bytes unless this is given." },
	{ .name = "begin",
		.short_name = 'b',
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.commands = RUN,
		.offset = AT(begin),
		.min = 1,
		.max = 1ull << 40,
		.help = "Sweep of message sizes: the first." },
	{ .name = "end",
		.short_name = 'e',
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.commands = RUN,
		.offset = AT(end),
		.min = 1,
		.max = 1ull << 40,
		.help = "Sweep: the last." },
	{ .name = "factor",
		.short_name = 'f',
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "2",
		.commands = RUN,
		.offset = AT(factor),
		.min = 2,
		.max = 1024,
		.help = "Sweep: each size is that many times the one before." },
	{ .name = "duration",
		.short_name = 'D',
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.def = "5",
		.unit = "seconds",
		.commands = RUN,
		.offset = AT(duration_ns),
		.min = 1e7,
		.max = 1e15,
		.help = "Time of each measurement." },
	{ .name = "iters",
		.short_name = 'n',
		.kind = DR_OPT_UINT,
		.arg = "N",
		.commands = RUN,
		.offset = AT(iters),
		.min = 1,
		.max = 1e15,
		.help = "Messages per channel (round trips per GPU) instead of a time." },
	{ .name = "warmup",
		.short_name = 'w',
		.kind = DR_OPT_STRING,
		.arg = "TIME|N",
		.commands = RUN,
		.offset = AT(warmup),
		.help = "Before each measurement: a time (300ms), with --iters a number (5)." },
	{ .name = "interval",
		.short_name = 'i',
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.def = "1",
		.unit = "seconds",
		.commands = RUN,
		.offset = AT(interval_ns),
		.max = 1e15,
		.help = "Intermediate results every; 0: none." },
	{ .name = "bidir",
		.kind = DR_OPT_FLAG,
		.commands = RUN,
		.offset = AT(bidir),
		.help = "Both directions at once." },
	{ .name = "reverse",
		.short_name = 'R',
		.kind = DR_OPT_FLAG,
		.commands = RUN,
		.offset = AT(reverse),
		.help = "From the server to the client." },
	{ .name = "matrix",
		.kind = DR_OPT_FLAG,
		.commands = RUN,
		.offset = AT(matrix),
		.help = "Bandwidth of every GPU over every NIC, one by one for --duration each, then all "
			"together; --channels is then per GPU and NIC. Names idle and slow NICs." },
	{ .name = "rate",
		.kind = DR_OPT_RATE,
		.arg = "RATE",
		.commands = RUN,
		.offset = AT(rate_bits),
		.max = 1e15,
		.help = "Limit of each GPU and direction, in bits per second, e.g. 10G." },
	{ .name = "verify",
		.kind = DR_OPT_FLAG,
		.commands = RUN,
		.offset = AT(verify),
		.help = "Fill and compare every byte. Always on in the failover test." },
	{ .name = "seed",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "1",
		.commands = RUN,
		.offset = AT(seed),
		.max = 9e15,
		.help = "Seed of the data pattern." },
};

const struct dr_opt_group dr_options_measure = { "What to measure", rows, DR_ARRAY_LEN(rows) };
