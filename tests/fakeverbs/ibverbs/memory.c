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

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	int err = dr_fake_enter(DR_FAKE_CALL_reg_mr);
	struct dr_fake_mr *mr = calloc(1, sizeof(*mr));

	dr_fake_lock();
	if (!err && dr_fake_dev_of(pd->context)->fatal)
		err = EIO;
	if (!err && (access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		err = EINVAL;
	if (!err && len == 0)
		err = EINVAL;
	if (!err)
		err = mr ? slot_for(mr) : ENOMEM;
	if (!err) {
		mr->ibv.context = pd->context;
		mr->ibv.pd = pd;
		mr->ibv.addr = addr;
		mr->ibv.length = len;
		mr->access = access;
		dr_fake_set_add(&dr_fake_mrs, mr);
	}
	dr_fake_unlock();
	if (!err)
		return &mr->ibv;
	free(mr);
	errno = err;
	return NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access)
{
	int err = dr_fake_enter(DR_FAKE_CALL_reg_dmabuf_mr);

	(void)pd;
	(void)off;
	(void)len;
	(void)iova;
	(void)fd;
	(void)access;
	errno = err ? err : EOPNOTSUPP;
	return NULL;
}

void dr_fake_mr_free(void *p)
{
	slots[((const struct ibv_mr *)p)->handle].mr = NULL;
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

const struct dr_fake_mr *dr_fake_mr_find(
	const struct ibv_pd *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len, int access)
{
	unsigned at = ((key & ~(uint32_t)REMOTE) >> 8) - 1;
	const struct dr_fake_mr *mr = at < SLOTS ? slots[at].mr : NULL;
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
