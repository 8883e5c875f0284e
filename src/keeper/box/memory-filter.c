/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the filter of calls for sandboxes whose memory is measured. What does not: the list of all calls,
 * which is the daemon's, and has refused calls of other machines before this one sees them. */

#include "keeper/box/memory-filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "keeper/box/privileges.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_NOT(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define IF(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, skip, 0)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define FAIL(error) (SECCOMP_RET_ERRNO | (error))

int memory_filter_install(void) {
        static struct sock_filter instructions[] = {
                LOAD(nr),
                IF(SYS_memfd_create, 2),
                IF(SYS_memfd_secret, 1),
                IF_NOT(SYS_vmsplice, 1),
                RETURN(FAIL(ENOSYS)),
                IF_NOT(SYS_mmap, 5),
                LOAD(args[3]),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, MAP_TYPE | MAP_ANONYMOUS),
                IF_NOT(MAP_SHARED | MAP_ANONYMOUS, 1),
                RETURN(FAIL(EPERM)),
                RETURN(SECCOMP_RET_ALLOW),
                IF_NOT(SYS_setsockopt, 6),
                LOAD(args[1]),
                IF_NOT(SOL_SOCKET, 4),
                LOAD(args[2]),
                IF(SO_SNDBUF, 1),
                IF_NOT(SO_RCVBUF, 1),
                RETURN(FAIL(0)),
                RETURN(SECCOMP_RET_ALLOW),
        };
        const Filter filter = { .instructions = instructions, .len = sizeof(instructions) / sizeof(instructions[0]) };
        return filter_install(&filter);
}
