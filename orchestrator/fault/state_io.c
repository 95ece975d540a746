/* SPDX-License-Identifier: Apache-2.0 */
/* State files as bytes: fixed fields, two blobs, a checksum that finds a torn write. */
#include "orchestrator/fault/state_io.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 0x44524653, VERSION = 1, FIXED = 256 };

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

int dr_state_where(struct dr_state_where *w, struct dr_err *e)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, w->boot, DR_STATE_BOOT_LEN);
	socklen_t len = sizeof(w->cookie);
	struct stat st;

	if (fd >= 0)
		close(fd);
	if (n != DR_STATE_BOOT_LEN || stat("/proc/self/ns/net", &st) < 0)
		return dr_err_set(
			e, -ENOENT, "fault state: cannot read boot id or namespace in /proc");
	w->boot[DR_STATE_BOOT_LEN] = '\0';
	w->netns = st.st_ino;
	/* Inode numbers of namespaces are used again within a boot, cookies (Linux 5.14) are not. */
	w->cookie = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &w->cookie, &len) < 0)
			w->cookie = 0;
		close(fd);
	}
	return 0;
}

static uint64_t checksum(const uint8_t *p, size_t n)
{
	uint64_t h = dr_mix64(n);

	for (size_t i = 0; i < n; i++)
		h = dr_mix64(h ^ p[i]);
	return h;
}

int dr_state_encode(
	const struct dr_state *s, const struct dr_state_where *w, uint8_t **out, size_t *out_len)
{
	size_t undo_len = s->undo ? strlen(s->undo) + 1 : 0;
	size_t cap = FIXED + undo_len + s->snap.len;
	uint8_t *p;
	struct dr_wbuf b;

	if (cap > DR_STATE_BYTES_MAX)
		return -EFBIG;
	p = dr_calloc(1, cap);
	if (!p)
		return -ENOMEM;
	dr_wbuf_init(&b, p, cap);
	dr_wbuf_u32(&b, MAGIC);
	dr_wbuf_u32(&b, VERSION);
	dr_wbuf_bytes(&b, w->boot, DR_STATE_BOOT_LEN);
	dr_wbuf_u64(&b, w->netns);
	dr_wbuf_u64(&b, w->cookie);
	dr_wbuf_u32(&b, (uint32_t)getpid());
	dr_wbuf_u32(&b, (uint32_t)s->kind);
	dr_wbuf_bytes(&b, s->nic, sizeof(s->nic));
	dr_wbuf_u32(&b, (uint32_t)s->ifindex);
	dr_wbuf_bytes(&b, s->mac, sizeof(s->mac));
	dr_wbuf_u32(&b, (uint32_t)undo_len);
	dr_wbuf_u32(&b, (uint32_t)s->snap.len);
	if (undo_len)
		dr_wbuf_bytes(&b, s->undo, undo_len);
	if (s->snap.len)
		dr_wbuf_bytes(&b, s->snap.bytes, s->snap.len);
	dr_wbuf_u64(&b, checksum(p, b.len));
	dr_assert(!b.failed);
	*out = p;
	*out_len = b.len;
	return 0;
}

static int decode_blobs(struct dr_rbuf *r, uint32_t undo_len, uint32_t snap_len, struct dr_state *s)
{
	const void *undo = NULL, *snap = NULL;

	if (undo_len &&
		(dr_rbuf_view(r, &undo, undo_len) < 0 || ((const char *)undo)[undo_len - 1]))
		return -EPROTO;
	if (snap_len && dr_rbuf_view(r, &snap, snap_len) < 0)
		return -EPROTO;
	if (undo) {
		s->undo = dr_strdup(undo);
		if (!s->undo)
			return -ENOMEM;
	}
	if (snap) {
		s->snap.bytes =
			dr_calloc(1, snap_len); /* aligned for netlink, the file's need not be */
		if (!s->snap.bytes)
			return -ENOMEM;
		memcpy(s->snap.bytes, snap, snap_len);
		s->snap.len = snap_len;
	}
	return 0;
}

int dr_state_decode(
	const uint8_t *p, size_t len, struct dr_state *s, struct dr_state_where *w, pid_t *pid)
{
	uint32_t magic = 0, version = 0, kind = 0, ifindex = 0, undo_len = 0, snap_len = 0,
		 owner = 0;
	uint64_t sum = 0;
	struct dr_rbuf r;
	int rc;

	memset(s, 0, sizeof(*s));
	memset(w, 0, sizeof(*w));
	dr_rbuf_init(&r, p, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u32(&r, &version);
	if (r.failed || magic != MAGIC || version != VERSION)
		return -EPROTO;
	dr_rbuf_bytes(&r, w->boot, DR_STATE_BOOT_LEN);
	dr_rbuf_u64(&r, &w->netns);
	dr_rbuf_u64(&r, &w->cookie);
	dr_rbuf_u32(&r, &owner);
	dr_rbuf_u32(&r, &kind);
	dr_rbuf_bytes(&r, s->nic, sizeof(s->nic));
	dr_rbuf_u32(&r, &ifindex);
	dr_rbuf_bytes(&r, s->mac, sizeof(s->mac));
	dr_rbuf_u32(&r, &undo_len);
	dr_rbuf_u32(&r, &snap_len);
	if (r.failed || kind >= DR_FAULT_KINDS || s->nic[sizeof(s->nic) - 1] != '\0')
		return -EPROTO;
	s->kind = (enum dr_fault_kind)kind;
	s->ifindex = (int)ifindex;
	*pid = (pid_t)owner;
	rc = decode_blobs(&r, undo_len, snap_len, s);
	dr_rbuf_u64(&r, &sum);
	if (rc == 0 && (dr_rbuf_done(&r) < 0 || sum != checksum(p, len - sizeof(sum))))
		rc = -EPROTO;
	if (rc < 0)
		dr_state_fini(s);
	return rc;
}

void dr_state_fini(struct dr_state *s)
{
	dr_free(s->undo);
	s->undo = NULL;
	dr_netdev_snapshot_fini(&s->snap);
}
