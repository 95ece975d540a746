/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

#include "base/units.h"
#include "channel/manager.h"

#include <errno.h>
#include <string.h>

/* Options: what is measured, on which GPUs, for how long. */

static int parse_tests(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_tests t = { false, false, false };
	bool *const test[] = { &t.bw, &t.lat, &t.failover };
	char buf[64], *save = NULL;
	int k;

	(void)row;
	if (text && strlen(text) < sizeof(buf)) {
		memcpy(buf, text, strlen(text) + 1);
		for (char *w = strtok_r(buf, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
			if (dr_parse_choice("bw|lat|failover", w, &k, NULL))
				return dr_err_set(e, -EINVAL,
					"\"%s\" is not a test; use bw, lat, failover, separated by "
					"commas",
					w);
			*test[k] = true;
		}
	}
	if (text && !t.bw && !t.lat && !t.failover)
		return dr_err_set(e, -EINVAL, "\"%.60s\" contains no test; use e.g. bw,lat", text);
	*(struct dr_tests *)dst = t;
	return 0;
}

static void words_tests(char *buf, size_t len)
{
	dr_append(buf, len, "bw|lat|failover");
}

/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "test", .kind = DR_OPT_CUSTOM, .arg = "TESTS", .def = "bw",
	  .list = true, .words = words_tests,
	  .parse = parse_tests, .commands = RUN, .offset = AT(test),
	  .brief = "bw, lat, failover, separated by commas",
	  .help = "Tests to run, separated by commas, always in this order: bw (bandwidth), lat "
		  "(latency), failover." },
	{ .name = "gpus", .short_name = 'g', .kind = DR_OPT_CUSTOM, .arg = "LIST",
	  .list = true, .parse = dr_gpu_names_parse, .commands = ALL | TOPO | DOCTOR,
	  .offset = AT(gpu_names),
	  .brief = "GPUs of this end, e.g. 0-3 (all)",
	  .help = "GPUs of this end, by CUDA number or PCI bus id, e.g. 0-3,0000:3b:00.0. The "
		  "k-th GPU of the client is connected to the k-th GPU of the server. Default: "
		  "all CUDA GPUs; without CUDA, 0-7 with host memory. The server uses as many as the client "
		  "names; a client that names none uses as many as both have." },
	{ .name = "memory", .kind = DR_OPT_CHOICE, .arg = "KIND", .choices = "auto|host|cuda",
	  .def = "auto",
	  .commands = ALL | DOCTOR, .offset = AT(memory),
	  .help = "Location of this end's data buffers: host memory, GPU memory (cuda), or auto: "
		  "GPU memory if CUDA reports a GPU. The two ends may differ." },
	{ .name = "channels", .short_name = 'N', .kind = DR_OPT_UINT, .arg = "N", .def = "8",
	  .min = 1, .max = DR_GPU_CHANNELS_MAX,
	  .commands = RUN | TOPO | DOCTOR, .offset = AT(channels),
	  .env = { "UCCL_TCPX_NUM_CHANNELS" },
	  .brief = "channels per GPU and direction",
	  .help = "Channels per GPU and direction." },
	{ .name = "window", .kind = DR_OPT_UINT, .arg = "N", .min = 1,
	  .max = DR_CHANNEL_WINDOW_MAX,
	  .commands = RUN | DOCTOR, .offset = AT(window),
	  .help = "Maximum number of chunks in flight per channel. Without it, 16 MiB per GPU and direction, and at "
		  "most 16 chunks per channel; give more for long paths. Without --iters less is in flight on "
		  "slow paths: what they carry in about 0.1 s." },
	{ .name = "chunk", .kind = DR_OPT_SIZE, .arg = "SIZE", .def = "128K", .min = 1,
	  .max = 64 << 20,
	  .commands = RUN | DOCTOR, .offset = AT(chunk),
	  .help = "Chunk size: the unit of sequence numbers, window and acknowledgement. A "
		  "message smaller than this is one chunk. Without --iters chunks are smaller on slow paths." },
	{ .name = "size", .short_name = 's', .kind = DR_OPT_SIZE, .arg = "SIZE", .def = "64M",
	  .min = 1, .max = 1ull << 40,
	  .commands = RUN, .offset = AT(size),
	  .brief = "message size",
	  .help = "Message size. The default is that of bandwidth: without this option the latency test uses 8 bytes." },
	{ .name = "begin", .short_name = 'b', .kind = DR_OPT_SIZE, .arg = "SIZE", .min = 1,
	  .max = 1ull << 40,
	  .commands = RUN, .offset = AT(begin),
	  .brief = "first of several message sizes",
	  .help = "Message size sweep: first size. Needs --end." },
	{ .name = "end", .short_name = 'e', .kind = DR_OPT_SIZE, .arg = "SIZE", .min = 1,
	  .max = 1ull << 40,
	  .commands = RUN, .offset = AT(end),
	  .brief = "last of several message sizes",
	  .help = "Message size sweep: last size." },
	{ .name = "factor", .short_name = 'f', .kind = DR_OPT_UINT, .arg = "N", .def = "2",
	  .min = 2, .max = 1024,
	  .commands = RUN, .offset = AT(factor),
	  .help = "Message size sweep: ratio of one size to the previous one." },
	{ .name = "duration", .short_name = 'D', .kind = DR_OPT_DURATION, .arg = "TIME",
	  .def = "5", .unit = "seconds", .min = 1e7, .max = 1e15,
	  .commands = RUN, .offset = AT(duration_ns),
	  .brief = "of each measurement",
	  .help = "Duration of each measurement; a message in progress is not finished. The failover test "
		  "ends after its last fault." },
	{ .name = "iters", .short_name = 'n', .kind = DR_OPT_UINT, .arg = "N", .min = 1,
	  .max = 1e15,
	  .commands = RUN, .offset = AT(iters),
	  .help = "Number of messages per channel (latency test: round trips per GPU) instead "
		  "of --duration." },
	{ .name = "warmup", .short_name = 'w', .kind = DR_OPT_STRING, .arg = "TIME|N",
	  .commands = RUN, .offset = AT(warmup),
	  .help = "Warm-up before each measurement: a time, or with --iters a number of "
		  "messages. Default: 300ms, or 5 messages with --iters." },
	{ .name = "interval", .short_name = 'i', .kind = DR_OPT_DURATION, .arg = "TIME",
	  .def = "1", .unit = "seconds", .max = 1e15,
	  .commands = RUN, .offset = AT(interval_ns),
	  .help = "Reporting interval; 0 disables it. Its lines are printed where it is given, or with -v." },
	{ .name = "bidir", .kind = DR_OPT_FLAG,
	  .commands = RUN, .offset = AT(bidir),
	  .brief = "send in both directions",
	  .help = "Send in both directions at the same time." },
	{ .name = "reverse", .short_name = 'R', .kind = DR_OPT_FLAG,
	  .commands = RUN, .offset = AT(reverse),
	  .brief = "send from the server to the client",
	  .help = "Send from the server to the client." },
	{ .name = "matrix", .kind = DR_OPT_FLAG,
	  .commands = RUN, .offset = AT(matrix),
	  .brief = "every GPU over every NIC",
	  .help = "Measure the bandwidth of every GPU over every NIC: each pair alone for "
		  "--duration, all GPUs over each NIC, then everything at once. --channels applies to each pair of GPU "
		  "and NIC. The report names idle and slow NICs." },
	{ .name = "rate", .kind = DR_OPT_RATE, .arg = "RATE", .max = 1e15,
	  .commands = RUN, .offset = AT(rate_bits),
	  .help = "Bandwidth limit per GPU and direction in bit/s (10G: 10^10 bit/s). Default: "
		  "no limit." },
	{ .name = "verify", .kind = DR_OPT_FLAG,
	  .commands = RUN, .offset = AT(verify),
	  .brief = "compare every byte at the receiver",
	  .help = "Write a pattern into every message and compare every byte at the receiver. "
		  "Always enabled in the failover test." },
};
/* clang-format on */

const struct dr_opt_group dr_options_measure = { "What to measure", rows, DR_ARRAY_LEN(rows) };
