/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Messages with descriptors, over a SOCK_SEQPACKET socket, between two processes of one keeper. */

#define PASSED_FDS_MAX 16

/* Sends @bytes, and with them copies of @n_fds descriptors. */
int fds_send(int socket, const void *bytes, size_t len, const int *fds, size_t n_fds);

/* Waits for a message of @len bytes, and takes the descriptors that come with it, close-on-exec: all @n_fds or none.
 * Returns how many. -EPIPE: the other side is gone; -EBADMSG: it sent something else. */
int fds_receive(int socket, void *ret_bytes, size_t len, int *ret_fds, size_t n_fds);
