/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/memory.h"

/* File descriptors that close themselves. -1 stands for none. */

/* Closes a descriptor when its variable goes out of scope. */
#define _cleanup_close_ _cleanup_(fd_closep)

/* Evaluates to the descriptor in the variable @fd, which is -1 afterwards: ownership moves to the reader. */
#define TAKE_FD(fd)                                                                                                    \
        ({                                                                                                             \
                int *take_from_ = &(fd);                                                                               \
                int taken_ = *take_from_;                                                                              \
                *take_from_ = -1;                                                                                      \
                taken_;                                                                                                \
        })

/* Closes @fd unless it is -1, and keeps errno. Returns -1. */
int fd_close(int fd);

static inline void fd_closep(int *fd) {
        *fd = fd_close(*fd);
}

/* Writes all @len bytes, over as many writes as it takes. Returns 0 or a negative errno, with an unknown part written.
 * For descriptors that block: -EAGAIN is an error like any other. */
int fd_write_all(int fd, const void *bytes, size_t len);
