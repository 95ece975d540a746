/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/*
 * Protection domains, memory regions, address handles.
 *
 * A key is a slot and its generation, so that the key of a region that is gone names nothing; remote
 * keys have a bit that local ones have not, so that one taken for the other is found out.
 */
enum { SLOTS = 4096, REMOTE = 1 << 30 };
static struct {
	struct dr_fake_mr *mr;
	uint8_t generation;
} slots[SLOTS];
static unsigned next_slot;

static bool pd_in_use(const struct ibv_pd *pd)
{
	for (unsigned i = 0; i < dr_fake_mrs.n; i++)
		if (((struct dr_fake_mr *)dr_fake_mrs.p[i])->ibv.pd == pd)
			return true;
	for (unsigned i = 0; i < dr_fake_qps.n; i++)
		if (((struct dr_fake_qp *)dr_fake_qps.p[i])->ibv.pd == pd)
			return true;
	for (unsigned i = 0; i < dr_fake_ahs.n; i++)
		if (((struct dr_fake_ah *)dr_fake_ahs.p[i])->ibv.pd == pd)
			return true;
	return false;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	int err = dr_fake_enter(DR_FAKE_CALL_alloc_pd);
	struct ibv_pd *pd;

	dr_fake_lock();
	if (!err && dr_fake_dev_of(c)->fatal)
		err = EIO;
	pd = err ? NULL : calloc(1, sizeof(*pd));
	if (pd) {
		pd->context = c;
		dr_fake_set_add(&dr_fake_pds, pd);
	}
	dr_fake_unlock();
	if (!pd)
		errno = err ? err : ENOMEM;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = dr_fake_enter(DR_FAKE_CALL_dealloc_pd);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_pds, pd)) {
		dr_fake_violation("dealloc_pd of no protection domain");
		err = EINVAL;
	} else if (!err && pd_in_use(pd)) {
		err = EBUSY;
	} else if (!err) {
		dr_fake_set_del(&dr_fake_pds, pd);
		free(pd);
	}
	dr_fake_unlock();
	return err;
}

static int slot_for(struct dr_fake_mr *mr)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		unsigned at = next_slot++ % SLOTS;

		if (slots[at].mr)
			continue;
		slots[at].mr = mr;
		mr->ibv.lkey = mr->lkey = (at + 1) << 8 | ++slots[at].generation;
		mr->ibv.rkey = mr->rkey = mr->lkey | REMOTE;
		mr->ibv.handle = at;
		return 0;
	}
	return ENOMEM;
}

static struct {
	uintptr_t base;
	size_t len;
	int err;
} refused;

void dr_fake_mr_refuse(const void *base, size_t len, int err)
{
	refused.base = (uintptr_t)base;
	refused.len = len;
	refused.err = err;
}

static int check_access(const struct ibv_pd *pd, size_t len, int access)
{
	if (dr_fake_dev_of(pd->context)->fatal)
		return EIO;
	if ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return len == 0 ? EINVAL : 0;
}

/* Locked; fd -1: host memory. */
static int make(struct dr_fake_mr *mr, struct ibv_pd *pd, uint64_t addr, size_t len, int access,
	int fd, uint64_t off)
{
	int err = fd >= 0 ? dr_fake_gpu_map(mr, fd, off, len) : 0;

	if (!err)
		err = slot_for(mr);
	if (err) {
		dr_fake_gpu_unmap(mr);
		return err;
	}
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = (void *)(uintptr_t)addr;
	mr->ibv.length = len;
	mr->access = access;
	dr_fake_set_add(&dr_fake_mrs, mr);
	return 0;
}

static struct ibv_mr *finish(struct dr_fake_mr *mr, int err)
{
	if (!err)
		return &mr->ibv;
	free(mr);
	errno = err;
	return NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	int err = dr_fake_enter(DR_FAKE_CALL_reg_mr), fd;
	struct dr_fake_mr *mr = calloc(1, sizeof(*mr));
	uint64_t off = 0;

	dr_fake_lock();
	if (!err)
		err = mr ? check_access(pd, len, access) : ENOMEM;
	if (!err && (uintptr_t)addr - refused.base < refused.len)
		err = refused.err;
	fd = dr_fake_gpu_find((uintptr_t)addr, len, &off);
	if (!err)
		err = make(mr, pd, (uintptr_t)addr, len, access, fd, off);
	dr_fake_unlock();
	return finish(mr, err);
}

struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access)
{
	int err = dr_fake_enter(DR_FAKE_CALL_reg_dmabuf_mr);
	struct dr_fake_mr *mr = calloc(1, sizeof(*mr));

	dr_fake_lock();
	if (!err)
		err = mr ? check_access(pd, len, access) : ENOMEM;
	if (!err)
		err = dr_fake_dev_of(pd->context)->dmabuf_err;
	if (!err)
		err = fd >= 0 ? make(mr, pd, iova, len, access, fd, off) : EBADF;
	dr_fake_unlock();
	return finish(mr, err);
}

void dr_fake_mr_free(void *p)
{
	slots[((const struct ibv_mr *)p)->handle].mr = NULL;
	dr_fake_gpu_unmap(p);
	free(p);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = dr_fake_enter(DR_FAKE_CALL_dereg_mr);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_mrs, mr)) {
		dr_fake_violation("dereg_mr of no memory region");
		err = EINVAL;
	} else if (!err) {
		dr_fake_set_del(&dr_fake_mrs, mr);
		dr_fake_mr_free(mr);
	}
	dr_fake_unlock();
	return err;
}

struct dr_fake_mr *dr_fake_mr_find(
	const struct ibv_pd *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len, int access)
{
	unsigned at = ((key & ~(uint32_t)REMOTE) >> 8) - 1;
	struct dr_fake_mr *mr = at < SLOTS ? slots[at].mr : NULL;
	uint64_t base;

	if (!mr || (remote ? mr->rkey : mr->lkey) != key || mr->ibv.pd != pd)
		return NULL;
	base = (uintptr_t)mr->ibv.addr;
	if ((mr->access & access) != access || addr < base || len > mr->ibv.length ||
		addr - base > mr->ibv.length - len)
		return NULL;
	return mr;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	int err = dr_fake_enter(DR_FAKE_CALL_create_ah);
	struct dr_fake_ah *ah = calloc(1, sizeof(*ah));
	struct dr_fake_dev *d = dr_fake_dev_of(pd->context);

	dr_fake_lock();
	if (!err && d->fatal)
		err = EIO;
	if (!err && !dr_fake_route_ok(d, a))
		err = EINVAL;
	if (!err && !ah)
		err = ENOMEM;
	if (!err) {
		ah->ibv.context = pd->context;
		ah->ibv.pd = pd;
		ah->attr = *a;
		ah->sgid = d->gid[a->grh.sgid_index].gid;
		dr_fake_set_add(&dr_fake_ahs, ah);
	}
	dr_fake_unlock();
	if (!err)
		return &ah->ibv;
	free(ah);
	errno = err;
	return NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	int err = dr_fake_enter(DR_FAKE_CALL_destroy_ah);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_ahs, ah)) {
		dr_fake_violation("destroy_ah of no address handle");
		err = EINVAL;
	} else if (!err) {
		dr_fake_set_del(&dr_fake_ahs, ah);
		free(dr_container_of(ah, struct dr_fake_ah, ibv));
	}
	dr_fake_unlock();
	return err;
}
