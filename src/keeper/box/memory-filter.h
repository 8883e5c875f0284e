/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For processes of a sandbox whose memory is limited by measuring: takes from them what would hide memory from whoever
 * measures. A file of memfd_create() and a shared mapping of no file keep all their pages while somebody has one of
 * them, and nobody without rights on the host can see how many those are. Pages given to a pipe by vmsplice() leave the
 * process that had them. Sockets keep the sizes of their buffers.
 *
 *   memfd_create, memfd_secret, vmsplice         ENOSYS
 *   mmap with MAP_SHARED and MAP_ANONYMOUS       EPERM; POSIX and System V shared memory are there instead
 *   setsockopt of SO_SNDBUF and SO_RCVBUF        does nothing
 *
 * The same is true of a shared mapping of /dev/zero: such a sandbox has /dev/full in its place, which reads the same
 * and cannot be mapped. */
int memory_filter_install(void);
