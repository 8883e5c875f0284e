/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "keeper/box/kept-sandbox.h"
#include "keeper/root/rootfs.h"

/* The sandbox's PID 1: sets the sandbox up from within, then does nothing but be there. Its end is the sandbox's. */

/* What it says when it is done, over a SOCK_SEQPACKET socket: with success come the descriptors of its namespaces, in
 * the order of SandboxNamespace, then of the sandbox's ptmx, of its root and of its message queues, and, where the
 * keeper measures memory, those of memory_parts_open(). */
typedef struct InitReport {
        int32_t error;             /* errno, positive; 0: the sandbox stands */
        char what[INIT_WHAT_SIZE]; /* what it failed at */
        char reason[32];           /* empty, or @what is a sentence, and this is its reason */
} InitReport;

/* The life of PID 1, in a process that was cloned into its namespaces by a keeper of the group @gid, but for those of
 * the network and of cgroups. Over @socket @rootfs is handed over when its uids are mapped, and a byte comes when it is
 * in its cgroups. Ends when the other end of @socket is closed, as it is with the keeper's end. */
_Noreturn void init_run(const KeptSandbox *sandbox, Rootfs *rootfs, int socket, gid_t gid) __attribute__((nonnull));

/* Brings up the loopback of the network namespace that the process is in. */
int raise_loopback(void);
