/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What processes inside a sandbox may ask of the kernel: a list of what is allowed. The daemon makes it once, as a
 * program of the kernel's; keepers only hand it on to the kernel.
 *
 *   allowed                            as the kernel does it
 *   known to the list, but not on it   EPERM
 *   newer than the list, and clone3    ENOSYS, so that programs and libc do what they do on older kernels
 *   numbers that the host has once     ENOSYS (asynchronous I/O), ENOMEM (huge pages), EINVAL (listeners of filters)
 *   protocols but TCP and UDP          EPROTONOSUPPORT
 *   btrfs's ioctls, but for clones     ENOTTY, as from other file systems
 *   32-bit and x32 calls               the process is killed: their numbers mean other calls
 *
 * A filter sees numbers only, never what they point to: this is why clone3 is not allowed at all. */

typedef enum SeccompFilter {
        SECCOMP_FILTER_SANDBOX, /* of what is inside */
        SECCOMP_FILTER_KEEPER,  /* of its keeper, and so of that as well: the same, and what it takes to go in */
        SECCOMP_FILTER_ENTERED, /* of what has the keeper's and is inside: with that one the same as the first; it is
                                   short, because the kernel takes a while to compile a long one */
} SeccompFilter;

/* Makes the program, an array of struct sock_filter, which the caller frees. */
int seccomp_filter_make(SeccompFilter whose, uint8_t **ret_program, size_t *ret_size, HutchError *err)
        __attribute__((nonnull(2, 3)));
