/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/mailbox.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

void dr_mailbox_init(struct dr_mailbox *m)
{
	memset(m, 0, sizeof(*m));
	STAILQ_INIT(&m->mails);
}

static void drop_head(struct dr_mailbox *m)
{
	struct dr_mail *mail = STAILQ_FIRST(&m->mails);
	STAILQ_REMOVE_HEAD(&m->mails, next);
	m->count--;
	m->bytes -= mail->len;
	dr_free(mail);
}

void dr_mailbox_fini(struct dr_mailbox *m)
{
	while (!STAILQ_EMPTY(&m->mails))
		drop_head(m);
	dr_mailbox_init(m);
}

int dr_mailbox_post(struct dr_mailbox *m, uint8_t type, const void *data, size_t len, bool force)
{
	if (!force &&
		(m->count >= DR_MAILBOX_MESSAGES_MAX || m->bytes + len > DR_MAILBOX_BYTES_MAX))
		return -ENOBUFS;
	struct dr_mail *mail = dr_calloc(1, sizeof(*mail) + len);
	if (!mail)
		return -ENOMEM;
	mail->seq = ++m->last;
	mail->type = type;
	mail->len = len;
	if (len)
		memcpy(mail->data, data, len);
	STAILQ_INSERT_TAIL(&m->mails, mail, next);
	if (!m->unsent)
		m->unsent = mail;
	m->count++;
	m->bytes += len;
	return 0;
}

const struct dr_mail *dr_mailbox_unsent(const struct dr_mailbox *m)
{
	return m->unsent;
}

void dr_mailbox_sent(struct dr_mailbox *m)
{
	dr_assert(m->unsent);
	m->unsent = STAILQ_NEXT(m->unsent, next);
}

int dr_mailbox_ack(struct dr_mailbox *m, uint64_t seq)
{
	uint64_t sent = m->unsent ? m->unsent->seq - 1 : m->last;
	if (seq < m->acked || seq > sent)
		return -EPROTO;
	while (!STAILQ_EMPTY(&m->mails) && STAILQ_FIRST(&m->mails)->seq <= seq)
		drop_head(m);
	m->acked = seq;
	return 0;
}

int dr_mailbox_receive(struct dr_mailbox *m, uint64_t seq)
{
	if (seq != m->received + 1)
		return -EPROTO;
	m->received = seq;
	return 0;
}

int dr_mailbox_resume(struct dr_mailbox *m, uint64_t seq)
{
	int rc = dr_mailbox_ack(m, seq);
	if (rc)
		return rc;
	m->unsent = STAILQ_FIRST(&m->mails);
	m->told = m->received;
	return 0;
}

void dr_mailbox_validate(const struct dr_mailbox *m)
{
	unsigned count = 0;
	size_t bytes = 0;
	uint64_t seq = m->acked;
	bool unsent_found = m->unsent == NULL;
	for (const struct dr_mail *mail = STAILQ_FIRST(&m->mails); mail;
		mail = STAILQ_NEXT(mail, next)) {
		dr_assert(mail->seq == ++seq);
		unsent_found = unsent_found || mail == m->unsent;
		count++;
		bytes += mail->len;
	}
	dr_assert(seq == m->last && unsent_found && count == m->count && bytes == m->bytes);
	dr_assert(m->told <= m->received);
}
