/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: finding and signalling the processes that come from one, by /proc. What does not: groups where there
 * are cgroups (exec-group.c). */

#include "keeper/execs/process-tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define PASSES_MAX 2000 /* over a tree that makes processes as fast as they are killed, or does not get to die */
#define PASS_PAUSE_NS 1000000

typedef struct Process {
        pid_t pid, parent, session;
        bool is_zombie, is_ours;
} Process;

typedef struct Processes {
        Process *items;
        size_t n, size;
} Processes;

static void processes_clear(Processes *processes) {
        free(processes->items);
        *processes = (Processes){};
}

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

static bool read_process(pid_t pid, Process *ret_process) {
        char path[64], text[1024];
        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return false;
        text[n] = '\0';
        /* The name in parentheses is anything at all. */
        const char *end = strrchr(text, ')');
        char state;
        int parent, session, n_threads;
        int n_read = !end ? 0
                          : sscanf(end + 1, /* NOLINT(cert-err34-c) */
                                   " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state,
                                   &parent, &session, &n_threads);
        if (n_read != 4)
                return false;
        /* One whose first thread alone has ended looks like a zombie. */
        *ret_process = (Process){
                .pid = pid, .parent = parent, .session = session, .is_zombie = state == 'Z' && n_threads <= 1
        };
        return true;
}

static const Process *find(const Processes *processes, pid_t pid) {
        for (size_t i = 0; i < processes->n; i++)
                if (processes->items[i].pid == pid)
                        return &processes->items[i];
        return NULL;
}

static int read_all(Processes *processes) {
        _cleanup_(closedirp) DIR *proc = opendir("/proc");
        if (!proc)
                return -errno;
        for (const struct dirent *entry; (entry = readdir(proc));) {
                Process process;
                if (!ascii_is_digit(entry->d_name[0]) ||
                    !read_process((pid_t) strtol(entry->d_name, NULL, 10), &process))
                        continue;
                if (processes->n == processes->size) {
                        processes->size = processes->size ? 2 * processes->size : 256;
                        processes->items = xreallocarray(processes->items, processes->size, sizeof(Process));
                }
                processes->items[processes->n++] = process;
        }
        return 0;
}

/* Reads the processes and marks those that come from @main_pid. */
static int find_tree(pid_t main_pid, Processes *processes) {
        int r = read_all(processes);
        if (r < 0)
                return r;
        for (bool is_changed = true; is_changed;) {
                is_changed = false;
                for (size_t i = 0; i < processes->n; i++) {
                        Process *process = &processes->items[i];
                        if (process->is_ours)
                                continue;
                        const Process *parent = find(processes, process->parent);
                        process->is_ours =
                                process->pid == main_pid || process->session == main_pid || (parent && parent->is_ours);
                        is_changed |= process->is_ours;
                }
        }
        return 0;
}

/* Signals what @process was read as, if it is that still. */
static void signal_process(const Process *process, int number) {
        _cleanup_close_ int pidfd = (int) syscall(SYS_pidfd_open, process->pid, 0);
        Process now;
        if (pidfd >= 0 && read_process(process->pid, &now) &&
            (now.parent == process->parent || now.session == process->session))
                (void) syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

/* Signals all, but for the first process if @spares_main. Returns how many were there. */
static int signal_tree(pid_t main_pid, int number, bool spares_main) {
        if (main_pid <= 0)
                return 0;
        _cleanup_(processes_clear) Processes processes = {};
        int r = find_tree(main_pid, &processes);
        if (r < 0)
                return r;
        int count = 0;
        for (size_t i = 0; i < processes.n; i++) {
                const Process *process = &processes.items[i];
                if (!process->is_ours || process->is_zombie || (spares_main && process->pid == main_pid))
                        continue;
                if (number != 0)
                        signal_process(process, number);
                count++;
        }
        return count;
}

int process_tree_signal(pid_t main_pid, int number) {
        int r = signal_tree(main_pid, number, false);
        return r < 0 ? r : 0;
}

int process_tree_kill(pid_t main_pid) {
        const struct timespec pause = { .tv_nsec = PASS_PAUSE_NS };
        int r = signal_tree(main_pid, SIGKILL, true);
        for (int i = 0; i < PASSES_MAX && r > 0; i++) {
                (void) nanosleep(&pause, NULL);
                r = signal_tree(main_pid, SIGKILL, true);
        }
        return process_tree_signal(main_pid, SIGKILL);
}

bool process_tree_is_populated(pid_t main_pid) {
        return signal_tree(main_pid, 0, false) > 0;
}
