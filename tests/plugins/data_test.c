/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/bed.h"

#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* libnccl-net-fake.so through each version of its interface: what it says of itself, and data, with every byte compared. */

static struct ends e;

/* ---- what it is ---- */

static void check_properties(const struct dr_nccl *n)
{
	bool pieces = ends_way->fake == PIECES, direct = ends_way->fake == DIRECT;
	bool one = ends_way->fake != SOCKET;
	bool more = getenv("FAKENET_DMABUF"); /* and ordered */
	struct dr_nccl_properties p;

	MUST(dr_nccl_properties(n, 0, &p) == NCCL_SUCCESS && !p.unset && !p.past_end);
	MUST(strcmp(p.name, "lo") == 0 && !p.pci_path && p.guid == if_nametoindex("lo"));
	MUST(p.ptr_support == (pieces || direct ? NCCL_PTR_HOST | NCCL_PTR_CUDA : NCCL_PTR_HOST) +
				      (direct && more ? NCCL_PTR_DMABUF : 0));
	MUST(p.speed_mbps > 0 && p.port == 0 && p.max_comms > 0);
	MUST(p.max_recvs == (one ? 1 : DR_NCCL_GROUP_MAX));
	MUST(p.device_type == (pieces ? NCCL_NET_DEVICE_UNPACK : NCCL_NET_DEVICE_HOST));
	MUST(p.device_version == (pieces ? FN_UNPACK_VERSION : 0));
	MUST(p.reg_is_global == 0);
	if (n->version >= 9)
		MUST(p.force_flush == (direct && !more) && p.ndevs == 1 &&
			p.p2p_bytes == FN_MESSAGE_MAX);
	if (n->version >= 11)
		MUST(p.multi_request == 1);
	MUST(dr_nccl_properties(n, 1, &p) == NCCL_INTERNAL_ERROR);
	MUST(dr_nccl_properties(n, -1, &p) == NCCL_INTERNAL_ERROR);
}

static void tell(void)
{
	static const char *const name[] = { [SOCKET] = "FakeSocket",
		[PIECES] = "GPUDirectTCPX_v7",
		[DIRECT] = "FakeDirect",
		[FAST] = "FakeFast" };
	struct dr_nccl n = ends_load(0), again = n;
	int ndev = -1;

	MUST(strcmp(n.name, name[ends_way->fake]) == 0 && !n.missing);
	MUST((n.reg_dmabuf != NULL) == (ends_way->fake == DIRECT));
	MUST((n.consumed != NULL) == (ends_way->fake == PIECES));
	MUST(dr_nccl_init(&n) == NCCL_SUCCESS && (n.version < 11 || n.ctx));
	MUST(dr_nccl_init(&again) ==
		(ends_way->fake == PIECES ? NCCL_INTERNAL_ERROR : NCCL_SUCCESS));
	MUST(n.devices(&ndev) == NCCL_SUCCESS && ndev == 1);
	check_properties(&n);
	MUST(dr_nccl_finalize(&n) == NCCL_SUCCESS && dr_nccl_finalize(&again) == NCCL_SUCCESS);
	/* NCCL 2.28 calls it after a failed init, too. */
	MUST(n.version < 11 || n.finalize(NULL) == NCCL_SUCCESS);
}

static void refuse_settings(void)
{
	struct dr_nccl n = ends_load(0);

	MUST(dr_nccl_init(&n) == NCCL_INTERNAL_ERROR);
}

static void tell_device(void)
{
	static const struct nccl_net_device_handle none;

	ends_init(&e, FN_PAGE);
	if (ends_way->fake == PIECES)
		MUST(e.device.netDeviceType == 1 && e.device.netDeviceVersion == 7 &&
			e.device.size == sizeof(struct fn_unpack_handle) &&
			e.device.needsProxyProgress == 1 && e.unpack->head == UINT64_MAX);
	else
		MUST(memcmp(&e.device, &none, sizeof(none)) == 0);
	ends_fini(&e);
}

/* ---- many messages ---- */

static void carry(void)
{
	static struct bed b[2];

	for (unsigned i = 0; i < 2; i++) {
		bed_make(&b[i], NULL);
		b[i].messages = 32;
		b[i].held = 3;
		bed_connect(&b[i], &b[0]);
		bed_register(&b[i], b[i].e.scomm, &b[i].out);
		bed_register(&b[i], b[i].e.rcomm, &b[i].in);
	}
	bed_carry(b, 2);
	for (unsigned i = 0; i < 2; i++) {
		MUST(b[i].scattered == bed_pieces());
		if (i == 0)
			b[i].e.net.initialised = false; /* the other one is */
		bed_close(&b[i]);
		bed_drop(&b[i]);
	}
}

/* ---- requests ---- */

/* So many of each end, one more is none; tested from the last to the first. Then there is room again. */
static void fill_requests(void)
{
	unsigned n = ends_way->requests, left = 2 * n;
	void *s[32], *r[32], *more = &more;
	struct dr_nccl_buffer b;
	int size;

	ends_init(&e, FN_PAGE);
	for (unsigned i = 0; i < n; i++) {
		e.out[i] = (uint8_t)(i + 1);
		s[i] = ends_send(&e, i, 1);
		r[i] = ends_receive(&e, i, 1);
	}
	b = (struct dr_nccl_buffer){ e.out, e.out_mh, 1, 0 };
	MUST(dr_nccl_isend(&e.net, e.scomm, &b, &more) == NCCL_SUCCESS && !more);
	more = &more;
	b = (struct dr_nccl_buffer){ e.in, e.in_mh, 1, 0 };
	MUST(dr_nccl_irecv(&e.net, e.rcomm, 1, &b, &more) == NCCL_SUCCESS && !more);
	while (left > 0)
		for (unsigned i = n; i-- > 0;) {
			if (s[i] && ends_done(&e, s[i], NULL)) {
				s[i] = NULL;
				left--;
			}
			if (r[i] && ends_done(&e, r[i], &size)) {
				MUST(size == 1);
				r[i] = NULL;
				left--;
			}
		}
	if (ends_way->fake == SOCKET)
		MUST(memcmp(e.in, e.out, n) == 0);
	(void)ends_wait(&e, ends_send(&e, 0, 8), ends_receive(&e, 0, 8));
	ends_fini(&e);
}

/* Receives of several buffers get the messages with their tags, sent in the opposite order. */
static void group(void)
{
	struct dr_nccl_buffer in[DR_NCCL_GROUP_MAX], out;
	int size[DR_NCCL_GROUP_MAX], done = 0;
	void *s, *r;

	ends_init(&e, DR_NCCL_GROUP_MAX * 64);
	for (int n = 1; n <= DR_NCCL_GROUP_MAX; n++) {
		memset(e.in, 0xee, e.room);
		for (int i = 0; i < n; i++)
			in[i] = (struct dr_nccl_buffer){ e.in + i * 64, e.in_mh, 64, i + 1 };
		MUST(dr_nccl_irecv(&e.net, e.rcomm, n, in, &r) == NCCL_SUCCESS && r);
		for (int i = n - 1; i >= 0; i--) {
			out = (struct dr_nccl_buffer){ e.out + i * 64, e.out_mh, (size_t)i * 8,
				i + 1 };
			memset(out.data, i + 1, 64);
			MUST(dr_nccl_isend(&e.net, e.scomm, &out, &s) == NCCL_SUCCESS && s);
			MUST(ends_wait(&e, s, NULL) == i * 8);
		}
		for (done = 0; !done;)
			MUST(e.net.test(r, &done, size) == NCCL_SUCCESS);
		for (int i = 0; i < n; i++)
			for (int k = 0; k < 64; k++)
				MUST(size[i] == i * 8 &&
					e.in[i * 64 + k] == (k < i * 8 ? i + 1 : 0xee));
	}
	ends_fini(&e);
}

/* Packets with bytes that the sender's data connection has sent. */
static unsigned segments(void)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	MUST(getsockopt(e.data_fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info.tcpi_data_segs_out;
}

/* isend moves nothing, and the first test only starts. */
static void start_one_by_one(void)
{
	void *s[3], *r[3];
	unsigned before;

	ends_init(&e, (size_t)3 * FN_PAGE);
	before = segments();
	for (int i = 0; i < 3; i++) {
		s[i] = ends_send(&e, (size_t)i * FN_PAGE, 8);
		r[i] = ends_receive(&e, (size_t)i * FN_PAGE, 8);
	}
	MUST(segments() == before);
	MUST(!ends_done(&e, s[0], NULL));
	for (int i = 0; i < 3; i++) {
		(void)ends_wait(&e, s[i], r[i]);
		if (ends_way->fake == PIECES)
			ends_consume(&e, r[i]);
	}
	ends_fini(&e);
}

/* A send ends without its receive; with RECV_SYNC it waits for it. */
static void send_first(void)
{
	void *s;

	ends_init(&e, FN_PAGE);
	s = ends_send(&e, 0, 8);
	if (getenv("NCCL_GPUDIRECTTCPX_RECV_SYNC")) {
		ends_never(&e, s);
	} else {
		(void)ends_wait(&e, s, NULL);
		s = NULL;
	}
	(void)ends_wait(&e, s, ends_receive(&e, 0, 8));
	ends_fini(&e);
}

/* Whoever gives a comm up deregisters its memory and closes it, whatever is outstanding. */
static void close_in_a_flush(void)
{
	ends_init(&e, FN_PAGE);
	(void)ends_wait(&e, ends_send(&e, 0, 100), ends_receive(&e, 0, FN_PAGE));
	MUST(ends_flush(&e, 0, 100));
	ends_fini(&e);
}

/* ---- connections that end ---- */

/* Of pieces, a test after the data connection's end never says done, and no error either. */
static void lose_data(void)
{
	void *r;
	int done;

	ends_init(&e, FN_PAGE);
	r = ends_receive(&e, 0, 8);
	MUST(shutdown(e.data_fd, SHUT_RDWR) == 0);
	for (int i = 0; i < (ends_way->fake == PIECES ? 1 : 3); i++)
		(void)e.net.test(ends_send(&e, 0, 8), &done, NULL);
	if (ends_way->fake == PIECES)
		ends_never(&e, r);
	else
		MUST(ends_failure(&e, r) == NCCL_REMOTE_ERROR);
	ends_fini(&e);
}

static void lose_control(void)
{
	void *r;

	ends_init(&e, FN_PAGE);
	r = ends_receive(&e, 0, 8);
	MUST(shutdown(e.ctrl_fd, SHUT_RDWR) == 0);
	MUST(ends_failure(&e, r) ==
		(ends_way->fake == SOCKET ? NCCL_REMOTE_ERROR : NCCL_SYSTEM_ERROR));
	ends_fini(&e);
}

/* What was sent before still arrives, and what was complete is told. Later requests have the error, too. */
static void close_sender(void)
{
	struct dr_nccl_buffer b;
	void *r[3], *more = &more;

	ends_init(&e, FN_PAGE);
	for (int i = 0; i < 2; i++)
		(void)ends_wait(&e, ends_send(&e, 0, 8), NULL);
	MUST(e.net.close_send(e.scomm) == NCCL_SUCCESS);
	e.scomm = NULL;
	for (int i = 0; i < 3; i++)
		r[i] = ends_receive(&e, 0, 8);
	MUST(ends_wait(&e, NULL, r[0]) == 8);
	MUST(ends_failure(&e, r[2]) == NCCL_REMOTE_ERROR);
	MUST(ends_wait(&e, NULL, r[1]) == 8);
	b = (struct dr_nccl_buffer){ e.in, e.in_mh, 8, 0 };
	MUST(dr_nccl_irecv(&e.net, e.rcomm, 1, &b, &more) == NCCL_REMOTE_ERROR && !more);
	ends_fini(&e);
}

static void close_receiver(void)
{
	enum nccl_result result = NCCL_SUCCESS;
	struct dr_nccl_buffer b;
	int done;
	void *s;

	ends_init(&e, FN_PAGE);
	MUST(e.net.close_recv(e.rcomm) == NCCL_SUCCESS);
	e.rcomm = NULL;
	b = (struct dr_nccl_buffer){ e.out, e.out_mh, FN_PAGE, 0 };
	IN_TIME
	{
		for (done = 0, s = NULL; result == NCCL_SUCCESS && !done;) {
			if (!s)
				result = dr_nccl_isend(&e.net, e.scomm, &b, &s);
			if (s && result == NCCL_SUCCESS)
				result = e.net.test(s, &done, NULL);
		}
		if (result != NCCL_SUCCESS)
			break;
	}
	MUST(result == NCCL_REMOTE_ERROR);
	ends_fini(&e);
}

/* ---- memory ---- */

/*
 * After deregMr of the memory of a receive nothing is written to it, though bytes for it are there, and no request
 * of its comm goes on; over socket they fail.
 */
static void deregister(void)
{
	void *r[2], *mh;
	struct dr_nccl_buffer b;

	ends_init(&e, (size_t)2 * FN_PAGE);
	MUST(ends_reg(&e.net, e.rcomm, e.in + FN_PAGE, 8, e.type, &mh) == NCCL_SUCCESS);
	b = (struct dr_nccl_buffer){ e.in + FN_PAGE, mh, 8, 0 };
	r[0] = ends_receive(&e, 0, 8);
	MUST(dr_nccl_irecv(&e.net, e.rcomm, 1, &b, &r[1]) == NCCL_SUCCESS);
	for (int i = 0; i < 2; i++)
		(void)ends_wait(&e, ends_send(&e, 0, 8), NULL);
	MUST(e.net.dereg_mr(e.rcomm, e.in_mh) == NCCL_SUCCESS);
	e.in_mh = NULL;
	if (ends_way->fake == SOCKET)
		for (int i = 1; i >= 0; i--)
			MUST(ends_failure(&e, r[i]) == NCCL_INTERNAL_ERROR);
	else
		ends_never(&e, r[0]);
	for (int i = 0; i < 2 * FN_PAGE; i++)
		MUST(e.in[i] == 0xee);
	MUST(e.net.dereg_mr(e.rcomm, mh) == NCCL_SUCCESS);
	ends_fini(&e);
}

/* Of memory whose receive is complete, while an older one is not. */
static void deregister_complete(void)
{
	void *r[2], *mh;
	struct dr_nccl_buffer b;

	ends_init(&e, (size_t)2 * FN_PAGE);
	MUST(ends_reg(&e.net, e.rcomm, e.in + FN_PAGE, FN_PAGE, e.type, &mh) == NCCL_SUCCESS);
	b = (struct dr_nccl_buffer){ e.in + FN_PAGE, mh, 8, 0 };
	r[0] = ends_receive(&e, 0, 8);
	MUST(dr_nccl_irecv(&e.net, e.rcomm, 1, &b, &r[1]) == NCCL_SUCCESS && r[1]);
	for (int i = 0; i < 2; i++)
		(void)ends_wait(&e, ends_send(&e, 0, 8), i == 1 ? r[1] : NULL);
	MUST(e.net.dereg_mr(e.rcomm, mh) == NCCL_SUCCESS);
	(void)ends_wait(&e, NULL, r[0]);
	(void)ends_wait(&e, ends_send(&e, 0, 8), ends_receive(&e, 0, 8));
	ends_fini(&e);
}

/* A memfd stands for the dma-buf. It starts a page before the memory. */
static void use_dmabuf(void)
{
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);
	size_t room = 1 << 16;
	uint8_t *map;

	MUST(fd >= 0 && ftruncate(fd, (off_t)room) == 0);
	map = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED);
	ends_init(&e, room);
	MUST(e.net.dereg_mr(e.rcomm, e.in_mh) == NCCL_SUCCESS);
	free(e.in);
	e.in = map + FN_PAGE;
	e.in[0] = 1;
	MUST(e.net.reg_dmabuf(e.rcomm, e.in, room - FN_PAGE, NCCL_PTR_CUDA, FN_PAGE, fd,
		     &e.in_mh) == NCCL_SUCCESS);
	(void)close(fd);
	MUST(e.in[0] == 1 && e.in[room - FN_PAGE - 1] == 0);
	(void)ends_wait(&e, ends_send(&e, 0, room / 2), ends_receive(&e, 0, room / 2));
	MUST(e.in[0] == 0x5a);
	e.in = NULL;
	ends_fini(&e);
	(void)munmap(map, room);
}

/* Connections and chunks of an odd size; pages have to be used again. */
#define SPREAD                                                                                     \
	"NCCL_GPUDIRECTTCPX_RECV_SYNC=1 NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=2 "           \
	"FAKENET_SEED=7 FAKENET_PAGES=2048 "

/* clang-format off */
static const struct ends_case cases[] = {
	{ EACH("tells what it is", tell, ANY_FAKE | FAST) },
	{ EACH("tells of its device", tell_device, ANY_FAKE | FAST) },
	{ EACH("tells that it takes dma-bufs", tell, DIRECT),
		.env = "FAKENET_DMABUF=1 FAKENET_ORDERED=1" },
	{ NEWEST("refuses other memory", refuse_settings, CUDA_FAKE),
		.env = "FAKENET_MEMORY=gpu", .says = "FAKENET_MEMORY=gpu is neither host nor cuda" },
	{ NEWEST("refuses too many connections", refuse_settings, CUDA_FAKE),
		.env = "NCCL_NSOCKS_PERTHREAD=9", .says = "9 data connections, 1 to 8 are possible" },
	{ NEWEST("refuses too few pages", refuse_settings, PIECES),
		.env = "FAKENET_PAGES=2047", .says = "FAKENET_PAGES=2047, 2048 to 32768 are possible" },
	{ EACH("carries data between threads", carry, ANY_FAKE | FAST) },
	{ EACH("carries data, and senders wait", carry, PIECES),
		.env = "NCCL_GPUDIRECTTCPX_RECV_SYNC=1" },
	{ NEWEST("carries data over eight connections", carry, CUDA_FAKE),
		.env = SPREAD "NCCL_DYNAMIC_CHUNK_SIZE=20000" },
	{ NEWEST("carries ordered data", carry, DIRECT),
		.env = SPREAD "NCCL_DYNAMIC_CHUNK_SIZE FAKENET_ORDERED=1" },
	{ EACH("takes so many requests", fill_requests, SOCKET | DIRECT) },
	{ EACH("receives into several buffers", group, SOCKET) },
	{ NEWEST("starts requests one by one", start_one_by_one, ANY_FAKE) },
	{ NEWEST("sends before the receive", send_first, ANY_FAKE | FAST) },
	{ EACH("sends after the receive", send_first, PIECES),
		.env = "NCCL_GPUDIRECTTCPX_RECV_SYNC=1" },
	{ NEWEST("loses a data connection of pieces", lose_data, PIECES) },
	{ NEWEST("loses a data connection", lose_data, DIRECT), .says = "a data connection: " },
	{ NEWEST("loses control", lose_control, ANY_FAKE) },
	{ EACH("loses its sender", close_sender, SOCKET) },
	{ EACH("loses its receiver", close_receiver, SOCKET) },
	{ EACH("deregisters memory", deregister, ANY_FAKE) },
	{ EACH("deregisters what is complete", deregister_complete, SOCKET | DIRECT) },
	{ EACH("takes a dma-buf", use_dmabuf, DIRECT), .env = "FAKENET_DMABUF=1" },
	{ EACH("closes in a flush", close_in_a_flush, DIRECT), .env = "FAKENET_DMABUF=1" },
};
/* clang-format on */

int main(void)
{
	return ends_main(cases, LENGTH(cases), ends_setup, NULL);
}
