/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_LIST_H
#define DR_BASE_LIST_H

/* Takes item out of the singly linked list from *head, linked by member `next`, if it is there. */
#define DR_UNLINK(head, item, next)                                                                \
	do {                                                                                       \
		__typeof__(head) at_ = (head);                                                     \
		while (*at_ && *at_ != (item))                                                     \
			at_ = &(*at_)->next;                                                       \
		if (*at_)                                                                          \
			*at_ = (*at_)->next;                                                       \
	} while (0)

#endif
