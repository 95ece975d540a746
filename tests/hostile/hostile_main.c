/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/rng.h"
#include "bootstrap/conv_priv.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * hostile_main FILE
 *
 * A server without key on 127.0.0.1 that completes the handshake with each client and refuses it with a text of escape
 * sequences, newlines and characters that forge what is shown. Its port is written to FILE. Runs until it is killed.
 */
static const char evil[] = "1\033[31m\033]0;t\007\n0:0:0 ERROR x: forged\r\302\2330m"
			   "\342\200\256exe\342\201\246\342\200\213";

static void refuse(struct dr_conv *c)
{
	char text[1024];
	uint8_t head[DR_CONV_HEADER_BYTES] = { [4] = DR_CONV_FRAME_REFUSE };

	snprintf(text, sizeof(text), "refused %s%s%s%s%s", evil, evil, evil, evil, evil);
	json_t *j = json_pack("{s:i,s:i,s:s}", "cause", DR_BOOT_DECLINED, "code", 3, "text", text);
	char *dump = json_dumps(j, JSON_COMPACT);
	dr_assert(dump && strlen(dump) < UINT16_MAX);
	head[2] = (uint8_t)(strlen(dump) >> 8);
	head[3] = (uint8_t)strlen(dump);
	dr_assert(dr_conv_out_raw(c, head, dump, strlen(dump)) == 0);
	free(dump); /* lint-ok: of jansson */
	json_decref(j);
}

static void say(int fd, struct dr_conv *c)
{
	const uint8_t *out;
	size_t n = dr_conv_output(c, &out);

	if (n)
		(void)!send(fd, out, n, MSG_NOSIGNAL);
	dr_conv_sent(c, n, dr_now_ns());
}

static void serve(int fd)
{
	struct dr_conv_opts o = { .role = DR_CONV_SERVER, .stage_ns = 5 * DR_NS_PER_S };
	struct dr_conv_event ev;
	struct dr_conv c;
	uint8_t buf[4096];
	ssize_t n;

	memcpy(o.hello.build, evil, 40);
	dr_assert(dr_random_bytes(o.ephemeral, sizeof(o.ephemeral)) == 0);
	dr_assert(dr_conv_init(&c, &o, dr_now_ns()) == 0);
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		for (size_t at = 0; at < (size_t)n;) {
			at += dr_conv_feed(&c, buf + at, (size_t)n - at, dr_now_ns(), &ev);
			if (ev.kind == DR_CONV_IDENTIFIED)
				refuse(&c);
		}
		say(fd, &c);
		if (ev.kind == DR_CONV_IDENTIFIED)
			shutdown(fd, SHUT_WR);
	}
	dr_conv_fini(&c);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	char name[512];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 2 || sodium_init() < 0)
		return 2;
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 16) ||
		getsockname(fd, (struct sockaddr *)&a, &len))
		return 1;
	snprintf(name, sizeof(name), "%.500s.new", argv[1]);
	FILE *f = fopen(name, "w");
	if (!f || fprintf(f, "%u\n", ntohs(a.sin_port)) < 0 || fclose(f) || rename(name, argv[1]))
		return 1;
	for (;;) {
		int c = accept(fd, NULL, NULL);
		if (c < 0)
			return 1;
		serve(c);
		close(c);
	}
}
