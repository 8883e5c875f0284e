/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How much memory a sandbox uses, where no cgroup counts it: read from its /proc, its file systems in memory, its IPC
 * and its sockets.
 *
 * Counted are private memory with swap and page tables, files in memory, System V shared memory, semaphores and
 * messages, and what sockets hold. What could not be counted is not there: memory-filter.h. Not counted are the cache
 * of files, which the kernel takes back, and what it has for processes themselves: pipes, open files, locks. */

/* Where it is read. -1: nowhere. */
enum { MEMORY_SHM, MEMORY_MESSAGES, MEMORY_SEMAPHORES, MEMORY_SOCKETS, N_MEMORY_PARTS };
typedef struct MemorySources {
        int proc;                  /* the sandbox's own: it has its processes, and no others */
        int pids;                  /* its pid namespace */
        int parts[N_MEMORY_PARTS]; /* from memory_parts_open() */
        int files[2];              /* folders of its file systems in memory */
        uint64_t sockets_before;   /* that are not the sandbox's */
        char *text;                /* of the file that is read */
        size_t text_size;
} MemorySources;

typedef struct MemoryProcess {
        pid_t pid, parent, session; /* as the sandbox numbers them */
        pid_t thread;               /* one that has not ended: @pid, or another */
        uint64_t bytes;
        uint64_t tables; /* of that, page tables */
} MemoryProcess;

typedef struct MemoryCount {
        MemoryProcess *processes; /* without PID 1 */
        size_t n, size;
        uint64_t shared; /* what belongs to no process */
        uint64_t total;
} MemoryCount;

/* In the sandbox's namespaces of IPC and of the network: opens what tells of them. Some may be /dev/null. */
int memory_parts_open(int ret_parts[static N_MEMORY_PARTS]);

/* Counts. Pages that processes share count for each of them, as long as it all stays within @limit. Only when it does
 * not it is counted exactly, which takes longer: until @deadline (monotonic) at most, and what was not counted by then
 * stays as it is. */
void memory_count(MemorySources *sources, uint64_t limit, uint64_t deadline, MemoryCount *count)
        __attribute__((nonnull));

/* How many sockets there are in the sandbox's network. */
uint64_t memory_count_sockets(MemorySources *sources) __attribute__((nonnull));

void memory_count_clear(MemoryCount *count) __attribute__((nonnull));
