/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Messages with descriptors, over a SOCK_SEQPACKET socket, between two of our processes. */

#define PASSED_FDS_MAX 253 /* with one message: what the kernel allows */

/* Sends @bytes, and with them copies of @n_fds descriptors. */
int fds_send(int socket, const void *bytes, size_t len, const int *fds, size_t n_fds);

/* Waits for a message of @len bytes, and takes the descriptors that come with it, close-on-exec: no more than @n_fds.
 * Returns how many. -EPIPE: the other side is gone; -EBADMSG: it sent something else. */
int fds_receive(int socket, void *ret_bytes, size_t len, int *ret_fds, size_t n_fds);
