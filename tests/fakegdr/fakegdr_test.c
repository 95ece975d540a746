/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/fakegdr/fakegdr.h"

/* libnccl-net-fakegdr.so with CUDA memory in host memory. */

enum { ROOM = 1 << 20, REQUESTS = TCPX_REQUESTS_MAX };

static void check_common(const struct min_net_v9 *n, int memory, int flush)
{
	struct min_props_v9 props;

	memset(&props, 0xa5, sizeof(props));
	MUST(n->get_properties(0, &props) == MIN_OK);
	MUST(strcmp(props.name, "lo") == 0);
	MUST(props.ptr_support == memory && props.force_flush == flush);
	MUST(props.max_recvs == 1 && props.device_type == 0 && props.reg_is_global == 0);
	MUST(props.vprops.ndevs == 1 && props.max_p2p_bytes == GDR_MESSAGE_MAX);
	MUST(!n->get_device_mr && !n->irecv_consumed && !n->make_vdevice);
}

static void tell(void)
{
	const struct min_net_v7 *n = pair_load();
	struct min_props_v7 props;

	MUST(strcmp(n->name, "FakeGDR") == 0);
	MUST(n->init(NULL) == MIN_OK);
	MUST(n->init(NULL) == MIN_OK);
	memset(&props, 0xa5, sizeof(props));
	MUST(n->get_properties(0, &props) == MIN_OK);
	MUST(strcmp(props.name, "lo") == 0);
	MUST(props.ptr_support == (MIN_PTR_HOST | GDR_PTR_CUDA));
	MUST(props.max_recvs == 1 && props.device_type == 0 && props.device_version == 0);
	MUST(!n->get_device_mr && !n->irecv_consumed);
	check_common(pair_table(9), MIN_PTR_HOST | GDR_PTR_CUDA, 1);
}

static void tell_more(void)
{
	MUST(pair_load()->init(NULL) == MIN_OK);
	check_common(pair_table(9), MIN_PTR_HOST | GDR_PTR_CUDA | GDR_PTR_DMABUF, 0);
}

/* The device handle is left alone, and CUDA memory starts anywhere. */
static void connect_plainly(void)
{
	static const struct min_device_handle none;
	struct pair p;
	void *mh;

	pair_init(&p, ROOM);
	MUST(memcmp(&p.device, &none, sizeof(none)) == 0);
	MUST(p.net->reg_mr(p.rcomm, p.in + 1, 8, GDR_PTR_CUDA, &mh) == MIN_OK);
	pair_fini(&p);
}

static void refuse(void)
{
	MUST(pair_load()->init(pair_log) == MIN_INTERNAL_ERROR);
}

static void *flush(struct pair *p, int size)
{
	void *data = p->in, *r = p;

	MUST(p->net->iflush(p->rcomm, 1, &data, &size, &p->in_mh, &r) == MIN_OK && r != p);
	return r;
}

/* The last 4,096 bytes come with the flush, and nothing comes behind the message. */
static void need_flush(void)
{
	const int size = 10000;
	struct pair p;
	void *s, *r, *f;

	pair_init(&p, ROOM);
	s = pair_send(&p, 0, size);
	r = pair_receive(&p, 0, ROOM);
	pair_wait(&p, s, NULL);
	MUST(p.size == size);
	p.size = 0;
	pair_wait(&p, NULL, r);
	MUST(p.size == size);
	for (int i = 0; i < size + 1; i++)
		MUST(p.in[i] == (i == size ? 0xee : i < size - GDR_HELD_MAX ? 0x5a : GDR_POISON));
	f = flush(&p, size);
	for (int i = 1, done = -1; i <= GDR_FLUSH_TESTS; i++) {
		MUST(p.in[size - 1] == GDR_POISON);
		MUST(p.net->test(f, &done, NULL) == MIN_OK && done == (i == GDR_FLUSH_TESTS));
	}
	for (int i = 0; i < size + 1; i++)
		MUST(p.in[i] == (i == size ? 0xee : 0x5a));
	pair_fini(&p);
}

/* Of all receives, and of one with an empty message. */
static void need_none(int size)
{
	struct pair p;

	pair_init(&p, ROOM);
	pair_wait(&p, pair_send(&p, 0, size), pair_receive(&p, 0, ROOM));
	for (int i = 0; i < size; i++)
		MUST(p.in[i] == 0x5a);
	MUST(!flush(&p, size));
	pair_fini(&p);
}

static void need_none_when_ordered(void)
{
	need_none(10000);
}

static void need_none_when_empty(void)
{
	need_none(0);
}

/* Whoever gives a comm up deregisters its memory and closes it, whatever is outstanding. */
static void close_in_a_flush(void)
{
	struct pair p;

	pair_init(&p, ROOM);
	pair_wait(&p, pair_send(&p, 0, 100), pair_receive(&p, 0, ROOM));
	MUST(flush(&p, 100));
	pair_fini(&p);
}

static void use_any_order(void)
{
	static const int order[] = { 2, 0, 3, 1 };
	void *s[4], *r[4];
	struct pair p;

	pair_init(&p, ROOM);
	for (int i = 0; i < 4; i++) {
		s[i] = pair_send(&p, 0, 100 + i);
		r[i] = pair_receive(&p, (size_t)i * TCPX_PAGE, TCPX_PAGE);
	}
	for (int i = 0; i < 4; i++) {
		pair_wait(&p, s[order[i]], NULL);
		MUST(p.size == 100 + order[i]);
	}
	for (int i = 0; i < 4; i++) {
		pair_wait(&p, NULL, r[order[i]]);
		MUST(p.size == 100 + order[i]);
	}
	pair_wait(&p, pair_send(&p, 0, 8), pair_receive(&p, 0, 8));
	pair_fini(&p);
}

/* One too many is not taken, and is when there is room again. */
static void fill_requests(void)
{
	void *s[REQUESTS], *r[REQUESTS], *data, *more = &data;
	int size = 8, tag = 0;
	struct pair p;

	pair_init(&p, ROOM);
	for (int i = 0; i < REQUESTS; i++) {
		s[i] = pair_send(&p, 0, 8);
		r[i] = pair_receive(&p, 0, 8);
	}
	data = p.in;
	MUST(p.net->isend(p.scomm, p.out, 8, 0, p.out_mh, &more) == MIN_OK && !more);
	more = &data;
	MUST(p.net->irecv(p.rcomm, 1, &data, &size, &tag, &p.in_mh, &more) == MIN_OK && !more);
	for (int i = 0; i < REQUESTS; i++)
		pair_wait(&p, s[i], r[i]);
	pair_wait(&p, pair_send(&p, 0, 8), pair_receive(&p, 0, 8));
	pair_fini(&p);
}

static void use_version_9(void)
{
	const struct min_net_v9 *n = pair_table(9);
	size_t size = 5000, room = ROOM;
	int tag = 0;
	struct pair p;
	void *data, *s, *r;

	pair_listen(&p);
	pair_connect(&p, true);
	pair_register(&p, ROOM);
	MUST(p.net->dereg_mr(p.rcomm, p.in_mh) == MIN_OK);
	MUST(n->reg_mr(p.rcomm, p.in, room, GDR_PTR_CUDA, &p.in_mh) == MIN_OK);
	data = p.in;
	MUST(n->isend(p.scomm, p.out, size, 0, p.out_mh, &s) == MIN_OK && s);
	MUST(n->irecv(p.rcomm, 1, &data, &room, &tag, &p.in_mh, &r) == MIN_OK && r);
	pair_wait(&p, s, r);
	MUST(p.size == (int)size && p.in[0] == 0x5a);
	pair_fini(&p);
}

static enum min_result failure_of(struct pair *p, void *r)
{
	enum min_result result = MIN_OK;
	int64_t start = dr_now_ns();
	int done;

	while (result == MIN_OK) {
		result = p->net->test(r, &done, NULL);
		MUST(done == 0);
		pair_in_time(start);
	}
	return result;
}

static void lose_data(void)
{
	struct pair p;
	void *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	(void)pair_send(&p, 0, 8);
	MUST(shutdown(p.data_fd, SHUT_RDWR) == 0);
	for (int i = 0, done; i < 3; i++)
		(void)p.net->test(pair_send(&p, 0, 8), &done, NULL);
	MUST(failure_of(&p, r) == MIN_REMOTE_ERROR);
	pair_fini(&p);
}

static void lose_control(void)
{
	struct pair p;
	void *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	MUST(shutdown(p.ctrl_fd, SHUT_RDWR) == 0);
	MUST(failure_of(&p, r) == MIN_SYSTEM_ERROR);
	pair_fini(&p);
}

static void deregister(void)
{
	struct pair p;
	void *s, *r;

	pair_init(&p, TCPX_PAGE);
	r = pair_receive(&p, 0, 8);
	s = pair_send(&p, 0, 8);
	MUST(p.net->dereg_mr(p.rcomm, p.in_mh) == MIN_OK);
	p.in_mh = NULL;
	pair_wait(&p, s, NULL);
	for (int i = 0; i < 1000; i++)
		MUST(!pair_done(&p, r));
	MUST(p.in[0] == 0xee);
	pair_fini(&p);
}

/* Of memory whose receive is complete, while an older one is not. */
static void deregister_complete(void)
{
	int size = 8, tag = 0;
	void *s, *r[2], *data, *mh;
	struct pair p;

	pair_init(&p, (size_t)2 * TCPX_PAGE);
	data = p.in + TCPX_PAGE;
	MUST(p.net->reg_mr(p.rcomm, data, TCPX_PAGE, GDR_PTR_CUDA, &mh) == MIN_OK);
	r[0] = pair_receive(&p, 0, 8);
	MUST(p.net->irecv(p.rcomm, 1, &data, &size, &tag, &mh, &r[1]) == MIN_OK && r[1]);
	for (int i = 0; i < 2; i++) {
		s = pair_send(&p, 0, 8);
		pair_wait(&p, s, i == 1 ? r[1] : NULL);
	}
	MUST(p.net->dereg_mr(p.rcomm, mh) == MIN_OK);
	pair_wait(&p, NULL, r[0]);
	pair_wait(&p, pair_send(&p, 0, 8), pair_receive(&p, 0, 8));
	pair_fini(&p);
}

/* A memfd stands for the dma-buf. It starts a page before the memory. */
static void use_dmabuf(void)
{
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);
	struct pair p;
	uint8_t *map;

	MUST(fd >= 0 && ftruncate(fd, ROOM) == 0);
	map = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED);
	pair_init(&p, ROOM);
	MUST(p.net->dereg_mr(p.rcomm, p.in_mh) == MIN_OK);
	free(p.in);
	p.in = map + TCPX_PAGE;
	p.in[0] = 1;
	MUST(p.net->reg_mr_dmabuf(p.rcomm, p.in, ROOM - TCPX_PAGE, GDR_PTR_CUDA, TCPX_PAGE, fd,
		     &p.in_mh) == MIN_OK);
	(void)close(fd);
	MUST(p.in[0] == 1 && p.in[ROOM - TCPX_PAGE - 1] == 0);
	pair_wait(&p, pair_send(&p, 0, ROOM / 2), pair_receive(&p, 0, ROOM / 2));
	MUST(p.in[0] == 0x5a);
	p.in = NULL;
	pair_fini(&p);
	(void)munmap(map, ROOM);
}

static void tells_what_it_is(void **state)
{
	(void)state;
	pair_ends(tell, 0, "");
	pair_ends(connect_plainly, 0, "");
	(void)setenv("FAKEGDR_DMABUF", "1", 1);
	(void)setenv("FAKEGDR_ORDERED", "1", 1);
	pair_ends(tell_more, 0, "");
	(void)setenv("FAKEGDR_MEMORY", "gpu", 1);
	pair_ends(refuse, 0, "FAKEGDR_MEMORY=gpu is neither host nor cuda");
	(void)unsetenv("FAKEGDR_MEMORY");
	(void)setenv("NCCL_NSOCKS_PERTHREAD", "9", 1);
	pair_ends(refuse, 0, "9 data connections, 1 to 8 are possible");
}

static void needs_a_flush(void **state)
{
	(void)state;
	pair_ends(need_flush, 0, "");
	pair_ends(need_none_when_empty, 0, "");
	pair_ends(close_in_a_flush, 0, "");
	(void)setenv("FAKEGDR_ORDERED", "1", 1);
	pair_ends(need_none_when_ordered, 0, "");
}

static void takes_requests(void **state)
{
	(void)state;
	pair_ends(use_any_order, 0, "");
	pair_ends(fill_requests, 0, "");
	(void)unsetenv("NCCL_DYNAMIC_CHUNK_SIZE");
	pair_ends(use_version_9, 0, "");
}

static void lost_connections(void **state)
{
	(void)state;
	pair_ends(lose_data, 0, "a data connection: ");
	pair_ends(lose_control, 0, "");
}

static void registers_memory(void **state)
{
	(void)state;
	pair_ends(deregister, 0, "");
	pair_ends(deregister_complete, 0, "");
	(void)setenv("FAKEGDR_DMABUF", "1", 1);
	pair_ends(use_dmabuf, 0, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(tells_what_it_is, pair_setup),
		cmocka_unit_test_setup(needs_a_flush, pair_setup),
		cmocka_unit_test_setup(takes_requests, pair_setup),
		cmocka_unit_test_setup(lost_connections, pair_setup),
		cmocka_unit_test_setup(registers_memory, pair_setup),
	};

	pair_plugin = pair_fakegdr;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
