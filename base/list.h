/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_LIST_H
#define DR_BASE_LIST_H

/* Takes item out of the singly linked list that begins at *head; `next` is the member that links it. Does nothing if it is
 * not there. */
#define DR_UNLINK(head, item, next)                                                                \
	do {                                                                                       \
		__typeof__(head) at_ = (head);                                                     \
		while (*at_ && *at_ != (item))                                                     \
			at_ = &(*at_)->next;                                                       \
		if (*at_)                                                                          \
			*at_ = (*at_)->next;                                                       \
	} while (0)

#endif
