/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of allowed system calls, and making a program of it. What does not: installing it
 * (keeper/privileges.c). */

#include "runtime/native/seccomp-filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "model/reason.h"

#define NEWEST_CALL 450       /* set_mempolicy_home_node: the list was made of those up to it; same number everywhere */
#define X32_CALLS 0x40000000u /* numbers from here on are of x32 */
#define LOW_WORD 0xffffffffull /* all that the kernel looks at of an int */
#define NEW_NAMESPACES                                                                                                 \
        (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* where clone() has its signal */
#endif

typedef scmp_filter_ctx Context;

static void context_release(Context *context) {
        if (*context)
                seccomp_release(*context);
}

/* Allowed whatever their arguments are. Those that other kinds of machines do not have are left out there. What is not
 * here on purpose: mounts of either kind, namespaces, keyrings, bpf, perf, userfaultfd, io_uring, handles of files that
 * are opened by them, other processes' memory and descriptors but by ptrace, modules, kexec, clocks that are set, swap,
 * quotas, accounting, the kernel's log, ports, policies of memory, and what nobody uses any more. */
static const char *const allowed[] = {
        /* files */
        "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
        "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat",
        "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs",
        "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch",
        "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
        "io_setup", "io_submit", "ioctl", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
        "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at",
        "newfstatat", "open", "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
        "read", "readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2",
        "rmdir", "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
        "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
        "vmsplice", "write", "writev",
        /* waiting, pipes, sockets */
        "accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait",
        "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getpeername", "getsockname", "getsockopt", "listen",
        "pipe", "pipe2", "poll", "ppoll", "pselect6", "recvfrom", "recvmmsg", "recvmsg", "select", "sendmmsg",
        "sendmsg", "sendto", "setsockopt", "shutdown", "signalfd", "signalfd4",
        /* memory */
        "brk", "madvise", "membarrier", "memfd_create", "memfd_secret", "mincore", "mlock", "mlock2", "mlockall",
        "mmap", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
        "pkey_mprotect", "remap_file_pages",
        /* processes and threads */
        "arch_prctl", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_waitv", "get_robust_list",
        "get_thread_area", "getcpu", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit", "getrusage",
        "getsid", "gettid", "ioprio_get", "ioprio_set", "kill", "pause", "pidfd_open", "pidfd_send_signal", "prctl",
        "prlimit64", "process_mrelease", "ptrace", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending",
        "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
        "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
        "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
        "sched_setscheduler", "sched_yield", "set_robust_list", "set_thread_area", "set_tid_address", "setpgid",
        "setpriority", "setrlimit", "setsid", "sigaltstack", "tgkill", "tkill", "vfork", "wait4", "waitid",
        /* users and rights, which can only become fewer */
        "capget", "capset", "getegid", "geteuid", "getgid", "getgroups", "getresgid", "getresuid", "getuid",
        "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp", "setfsgid", "setfsuid",
        "setgid", "setgroups", "setregid", "setresgid", "setresuid", "setreuid", "setuid",
        /* time */
        "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday", "nanosleep",
        "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
        "timerfd_create", "timerfd_gettime", "timerfd_settime", "times",
        /* System V and POSIX IPC: the sandbox has its own */
        "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget",
        "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget",
        /* the rest */
        "getrandom", "sysinfo", "uname"
};

/* Allowed when an argument has one value, or, with @also, two have one each. */
static const struct {
        const char *call;
        struct scmp_arg_cmp only, also;
} allowed_with[] = {
        { "clone", SCMP_A0(SCMP_CMP_MASKED_EQ, NEW_NAMESPACES, 0), {} },
        { "unshare", SCMP_A0(SCMP_CMP_MASKED_EQ, NEW_NAMESPACES | CLONE_NEWTIME, 0), {} },
        { "personality", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, 0), {} },
        { "personality", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, LOW_WORD), {} },          /* asks */
        { "personality", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, ADDR_NO_RANDOMIZE), {} }, /* debuggers */
        { "socket", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, AF_UNIX), {} },
        { "socket", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, AF_INET), {} },
        { "socket", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, AF_INET6), {} },
        { "socket", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, AF_NETLINK),
          SCMP_A2(SCMP_CMP_MASKED_EQ, LOW_WORD, 0) }, /* of routes */
        { "socketpair", SCMP_A0(SCMP_CMP_MASKED_EQ, LOW_WORD, AF_UNIX), {} },
};

/* What keepers, and their children on the way into a sandbox, need beyond that. */
static const char *const allowed_to_keepers[] = { "clone3", "setns" };

/* Goes before libseccomp's program, which cannot say these things: it compares 64 bits, of which the kernel looks at
 * 32, and its conditions are met by one value each. */
static const struct sock_filter first[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
        /* Input for a terminal that nobody typed. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])), /* the low word */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low word of an argument is its first");

static int add(Context context, uint32_t action, const char *call, unsigned n, const struct scmp_arg_cmp *compared) {
        int number = seccomp_syscall_resolve_name(call);
        /* An older libseccomp does not know it: then it is refused. */
        return number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add_array(context, action, number, n, compared);
}

static int fill_for_keepers(Context context) {
        const struct scmp_arg_cmp own_cgroups = SCMP_A0(SCMP_CMP_EQ, CLONE_NEWCGROUP, 0);
        int r = add(context, SCMP_ACT_ALLOW, "unshare", 1, &own_cgroups);
        for (size_t i = 0; i < sizeof(allowed_to_keepers) / sizeof(allowed_to_keepers[0]) && r >= 0; i++)
                r = add(context, SCMP_ACT_ALLOW, allowed_to_keepers[i], 0, NULL);
        return r;
}

static int fill(Context context, SeccompFilter whose) {
        int r = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        if (r >= 0)
                r = seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree */
        for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]) && r >= 0; i++)
                r = add(context, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
        for (size_t i = 0; i < sizeof(allowed_with) / sizeof(allowed_with[0]) && r >= 0; i++) {
                const struct scmp_arg_cmp compared[] = { allowed_with[i].only, allowed_with[i].also };
                r = add(context, SCMP_ACT_ALLOW, allowed_with[i].call, compared[1].op != _SCMP_CMP_MIN ? 2 : 1,
                        compared);
        }
        if (r < 0)
                return r;
        return whose == SECCOMP_FILTER_KEEPER ? fill_for_keepers(context)
                                              : add(context, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
}

/* Puts @first and what libseccomp makes one behind the other. */
static int export(Context context, uint8_t **ret_program, size_t *ret_size) {
        _cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
        if (fd < 0)
                return -errno;
        int r = fd_write_all(fd, first, sizeof(first));
        if (r >= 0)
                r = seccomp_export_bpf(context, fd);
        if (r < 0)
                return r;

        struct stat status;
        if (fstat(fd, &status) < 0)
                return -errno;
        size_t size = (size_t) status.st_size;
        _cleanup_free_ uint8_t *program = new0(uint8_t, size);
        if (pread(fd, program, size, 0) != (ssize_t) size)
                return -EIO;
        *ret_program = TAKE_PTR(program);
        *ret_size = size;
        return 0;
}

int seccomp_filter_make(SeccompFilter whose, uint8_t **ret_program, size_t *ret_size, HutchError *err) {
        _cleanup_(context_release) Context context = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = context ? fill(context, whose) : -ENOMEM;
        if (r >= 0)
                r = export(context, ret_program, ret_size);
        return r < 0 ? reason_set(err, r, REASON_RUNTIME_UNAVAILABLE,
                                  "cannot make the list of allowed system calls: %s", strerror(-r))
                     : 0;
}
