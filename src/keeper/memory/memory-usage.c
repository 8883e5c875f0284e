/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: counting the memory of processes that are not to be trusted. What does not: when, and what follows
 * from it (memory-watch.c); what sockets hold (memory-sockets.c). */

#include "keeper/memory/memory-usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/memory/memory-sockets.h"

#define TEXT_SIZE ((size_t) 16 << 10) /* grows: a process can have many groups, which stand before its memory */
#define TEXT_MAX ((size_t) 4 << 20)
#define INODE_BYTES 1024   /* that a file in memory takes, beside its pages */
#define MESSAGE_BYTES 64   /* that a message takes, beside its text */
#define SEMAPHORE_BYTES 64 /* that each semaphore takes */
#define CANDIDATE_PART 64  /* of the limit: processes with less are not looked at for sharing all they have */
#define CANDIDATES_MAX 128

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

void memory_count_clear(MemoryCount *count) {
        free(count->processes);
        *count = (MemoryCount){};
}

int memory_parts_open(int ret_parts[static N_MEMORY_PARTS]) {
        static const char *const paths[] = {
                [MEMORY_SHM] = "/proc/sysvipc/shm",
                [MEMORY_MESSAGES] = "/proc/sysvipc/msg",
                [MEMORY_SEMAPHORES] = "/proc/sysvipc/sem",
        };
        for (int i = 0; i < N_MEMORY_PARTS; i++) {
                ret_parts[i] = i == MEMORY_SOCKETS ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
                                                   : open(paths[i], O_RDONLY | O_CLOEXEC);
                /* Where the kernel does not have it there is nothing to count. */
                if (ret_parts[i] < 0)
                        ret_parts[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                if (ret_parts[i] < 0)
                        return -errno;
        }
        return 0;
}

/* ---- Text of the kernel ---- */

/* Reads all of @fd, from its start, into the buffer. NULL: it cannot be read. */
static const char *read_text(MemorySources *sources, int fd) {
        size_t len = 0;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return NULL;
        for (;;) {
                if (len + 1 >= sources->text_size) {
                        if (sources->text_size >= TEXT_MAX)
                                break;
                        sources->text_size = sources->text_size > 0 ? 2 * sources->text_size : TEXT_SIZE;
                        sources->text = xreallocarray(sources->text, sources->text_size, 1);
                }
                ssize_t n = read(fd, sources->text + len, sources->text_size - len - 1);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return NULL;
                if (n == 0)
                        break;
                len += (size_t) n;
        }
        sources->text[len] = '\0';
        return sources->text;
}

static const char *read_file(MemorySources *sources, const char *path) {
        _cleanup_close_ int fd = openat(sources->proc, path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? NULL : read_text(sources, fd);
}

static const char *read_of_process(MemorySources *sources, pid_t pid, const char *name) {
        char path[64];
        (void) snprintf(path, sizeof(path), "%d/%s", (int) pid, name);
        return read_file(sources, path);
}

/* The number behind @key at the start of a line; 0: there is none. A process chooses its name, but cannot put a newline
 * there. */
static uint64_t number_of(const char *text, const char *key) {
        size_t len = strlen(key);
        for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
                if (strncmp(line, key, len) == 0)
                        return strtoull(line + len, NULL, 10);
        return 0;
}

static uint64_t kibibytes_of(const char *text, const char *key) {
        return number_of(text, key) << 10;
}

/* ---- Processes ---- */

static bool take_status(const char *status, MemoryProcess *process) {
        if (!status || !strstr(status, "\nVmRSS:"))
                return false;
        process->tables = kibibytes_of(status, "VmPTE:");
        process->bytes = process->tables + kibibytes_of(status, "RssAnon:") + kibibytes_of(status, "VmSwap:") +
                         kibibytes_of(status, "HugetlbPages:");
        return true;
}

/* A process whose first thread has ended looks like a zombie, and has its memory all the same. Each thread is found in
 * /proc by its own number. */
static void find_in_threads(MemorySources *sources, MemoryProcess *process) {
        char path[64];
        (void) snprintf(path, sizeof(path), "%d/task", (int) process->pid);
        int fd = openat(sources->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(closedirp) DIR *threads = fd < 0 ? NULL : fdopendir(fd);
        if (!threads) {
                fd_close(fd);
                return;
        }
        for (const struct dirent *entry; (entry = readdir(threads));) {
                pid_t thread = (pid_t) strtol(entry->d_name, NULL, 10);
                MemoryProcess found = *process;
                if (thread <= 0 || !take_status(read_of_process(sources, thread, "status"), &found))
                        continue;
                found.thread = thread;
                *process = found;
                return;
        }
}

static void count_process(MemorySources *sources, pid_t pid, MemoryCount *count) {
        const char *status = read_of_process(sources, pid, "status");
        if (!status)
                return;
        MemoryProcess process = {
                .pid = pid,
                .thread = pid,
                .parent = (pid_t) number_of(status, "PPid:"),
                .session = (pid_t) number_of(status, "NSsid:"),
        };
        bool has_threads = number_of(status, "Threads:") > 1;
        if (!take_status(status, &process) && has_threads)
                find_in_threads(sources, &process);
        if (count->n == count->size) {
                count->size = count->size > 0 ? 2 * count->size : 64;
                count->processes = xreallocarray(count->processes, count->size, sizeof(*count->processes));
        }
        count->processes[count->n++] = process;
}

static void count_processes(MemorySources *sources, MemoryCount *count) {
        int fd = openat(sources->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(closedirp) DIR *entries = fd < 0 ? NULL : fdopendir(fd);
        if (!entries) {
                fd_close(fd);
                return;
        }
        for (const struct dirent *entry; (entry = readdir(entries));) {
                pid_t pid = ascii_is_digit(entry->d_name[0]) ? (pid_t) strtol(entry->d_name, NULL, 10) : 0;
                if (pid > 1)
                        count_process(sources, pid, count);
        }
}

/* ---- What belongs to no process ---- */

static uint64_t count_files(const MemorySources *sources) {
        uint64_t sum = 0;
        for (size_t i = 0; i < sizeof(sources->files) / sizeof(sources->files[0]); i++) {
                struct statfs info;
                if (sources->files[i] >= 0 && fstatfs(sources->files[i], &info) == 0)
                        sum += (uint64_t) (info.f_blocks - info.f_bfree) * (uint64_t) info.f_bsize +
                               (uint64_t) (info.f_files - info.f_ffree) * INODE_BYTES;
        }
        return sum;
}

/* The sum of two columns, from 0, of a table with a line of names, each times its factor. */
static uint64_t sum_columns(const char *text, int first, uint64_t first_factor, int second, uint64_t second_factor) {
        uint64_t sum = 0;
        const char *line = text ? strchr(text, '\n') : NULL;
        for (; line && line[1]; line = strchr(line + 1, '\n')) {
                char *at = (char *) line + 1; /* NOLINT(cppcoreguidelines-pro-type-cast-qual) */
                for (int i = 0; i <= first || i <= second; i++) {
                        uint64_t value = strtoull(at, &at, 10);
                        sum += (i == first ? value * first_factor : 0) + (i == second ? value * second_factor : 0);
                }
        }
        return sum;
}

static uint64_t count_ipc(MemorySources *sources) {
        /* key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap */
        uint64_t sum = sum_columns(read_text(sources, sources->parts[MEMORY_SHM]), 14, 1, 15, 1);
        /* key msqid perms cbytes qnum … */
        sum += sum_columns(read_text(sources, sources->parts[MEMORY_MESSAGES]), 3, 1, 4, MESSAGE_BYTES);
        /* key semid perms nsems … */
        return sum + sum_columns(read_text(sources, sources->parts[MEMORY_SEMAPHORES]), 3, SEMAPHORE_BYTES, 3, 0);
}

uint64_t memory_count_sockets(MemorySources *sources) {
        return number_of(read_file(sources, "1/net/sockstat"), "sockets: used");
}

static uint64_t count_sockets(MemorySources *sources) {
        uint64_t used = memory_count_sockets(sources);
        if (used <= sources->sockets_before)
                return 0;
        /* It is in the buffer still. */
        bool has_internet = number_of(sources->text, "TCP: inuse") > 0 || number_of(sources->text, "UDP: inuse") > 0 ||
                            !read_file(sources, "1/net/sockstat6") || number_of(sources->text, "TCP6: inuse") > 0 ||
                            number_of(sources->text, "UDP6: inuse") > 0;
        return memory_sockets_sum(sources->parts[MEMORY_SOCKETS], used - sources->sockets_before, has_internet);
}

/* ---- Exactly ---- */

/* Whether a process of the host is one of the sandbox's. */
static bool is_inside(pid_t outer, const struct stat *pids) {
        char path[64];
        struct stat st;
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int) outer);
        return stat(path, &st) == 0 && st.st_ino == pids->st_ino && st.st_dev == pids->st_dev;
}

/* The number that the sandbox has for a process of the host; 0: none. */
static pid_t inner_pid(MemorySources *sources, int proc, const char *name) {
        char path[64];
        (void) snprintf(path, sizeof(path), "%.20s/status", name);
        _cleanup_close_ int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
        const char *status = fd < 0 ? NULL : read_text(sources, fd), *line = status ? strstr(status, "\nNSpid:") : NULL;
        if (!line)
                return 0;
        size_t len = strcspn(line + 1, "\n");
        const char *last = (const char *) memrchr(line + 1, '\t', len);
        return last ? (pid_t) strtol(last, NULL, 10) : 0;
}

typedef struct Candidate {
        MemoryProcess *process;
        pid_t outer; /* 0: not found */
} Candidate;

/* Finds what the host calls them. */
static void find_outer(MemorySources *sources, Candidate *candidates, size_t n) {
        struct stat pids;
        _cleanup_(closedirp) DIR *entries = opendir("/proc");
        if (!entries || fstat(sources->pids, &pids) < 0)
                return;
        for (const struct dirent *entry; (entry = readdir(entries));) {
                if (!ascii_is_digit(entry->d_name[0]))
                        continue;
                pid_t inner = inner_pid(sources, dirfd(entries), entry->d_name);
                pid_t outer = (pid_t) strtol(entry->d_name, NULL, 10);
                for (size_t i = 0; inner > 0 && i < n; i++)
                        if (candidates[i].process->pid == inner && candidates[i].outer == 0 && is_inside(outer, &pids))
                                candidates[i].outer = outer;
        }
}

/* A process that is about to start another by vfork() shares all of its memory with it for a moment. The kernel's
 * numbers of the two do not say so. What is shared counts for the first of them. */
static void leave_out_shared(MemorySources *sources, uint64_t limit, MemoryCount *count) {
        Candidate candidates[CANDIDATES_MAX] = {};
        size_t n = 0;
        for (size_t i = 0; i < count->n && n < CANDIDATES_MAX; i++)
                if (count->processes[i].bytes > limit / CANDIDATE_PART)
                        candidates[n++].process = &count->processes[i];
        if (n < 2)
                return;
        find_outer(sources, candidates, n);
        for (size_t i = 1; i < n; i++)
                for (size_t j = 0; j < i; j++)
                        if (candidates[i].outer > 0 && candidates[j].outer > 0 && candidates[j].process->bytes > 0 &&
                            syscall(SYS_kcmp, candidates[i].outer, candidates[j].outer, KCMP_VM, 0, 0) == 0) {
                                candidates[i].process->bytes = 0;
                                break;
                        }
}

/* What pages that several processes share are worth: each has its part. */
static void refine(MemorySources *sources, uint64_t deadline, MemoryCount *count) {
        for (size_t i = 0; i < count->n && clock_monotonic_ns() < deadline; i++) {
                MemoryProcess *process = &count->processes[i];
                if (process->bytes == 0)
                        continue;
                const char *text = read_of_process(sources, process->thread, "smaps_rollup");
                if (text && strstr(text, "\nPss_Anon:"))
                        process->bytes = process->tables + kibibytes_of(text, "Pss_Anon:") +
                                         kibibytes_of(text, "SwapPss:") + kibibytes_of(text, "Private_Hugetlb:");
                else if (!take_status(read_of_process(sources, process->thread, "status"), process))
                        process->bytes = 0; /* it has ended */
        }
}

static void sum_up(MemoryCount *count) {
        count->total = count->shared;
        for (size_t i = 0; i < count->n; i++)
                count->total += count->processes[i].bytes;
}

void memory_count(MemorySources *sources, uint64_t limit, uint64_t deadline, MemoryCount *count) {
        count->n = 0;
        count_processes(sources, count);
        count->shared = count_files(sources) + count_ipc(sources) + count_sockets(sources);
        sum_up(count);
        if (count->total <= limit)
                return;
        refine(sources, deadline, count);
        sum_up(count);
        if (count->total <= limit)
                return;
        leave_out_shared(sources, limit, count);
        sum_up(count);
}
