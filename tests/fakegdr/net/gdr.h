/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEGDR_NET_GDR_H
#define DR_TESTS_FAKEGDR_NET_GDR_H

#include "tests/fakegdr/fakegdr.h"
#include "tests/faketcpx/net/tcpx.h"

/* tests/fakegdr/fakegdr.h describes the plugin. */
struct gdr_settings {
	bool ordered, dmabuf, dmabuf_only;
};

extern struct gdr_settings gdr_settings;

/* direct.c: the receiver's functions of struct tcpx_kind. */
enum min_result gdr_direct_init(struct tcpx_comm *c);
void gdr_direct_fini(struct tcpx_comm *c);
void gdr_direct_posted(struct tcpx_comm *c, struct tcpx_request *r);
uint8_t *gdr_direct_place(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len);
enum min_result gdr_direct_filled(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len);
enum min_result gdr_direct_complete(struct tcpx_comm *c, struct tcpx_request *r);
enum min_result gdr_iflush(void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
/* Of receives and sends, and of flushes. */
enum min_result gdr_test(void *request, int *done, int *size);
enum min_result gdr_dereg(void *comm, void *mh);

/* dmabuf.c */
enum min_result gdr_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);

#endif
