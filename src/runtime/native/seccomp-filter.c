/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the list of allowed system calls, and making a program of it. What does not: installing it
 * (keeper/box/privileges.c).
 *
 * Every start of a program inside has the kernel check, translate and compile what is installed, which takes as long as
 * the program is long. libseccomp, which knows the numbers of the calls, makes one that compares with each of them.
 * This one looks for the range of numbers, all allowed or all refused, that a call is in: it is a third as long. */

#include "runtime/native/seccomp-filter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/memory.h"
#include "model/reason.h"

#define NEWEST_CALL 450       /* set_mempolicy_home_node: the list was made of those up to it; same number everywhere */
#define X32_CALLS 0x40000000u /* numbers from here on are of x32 */
#define NO_CALL 0xffffffffu   /* a debugger has the kernel leave out a call */
#define ANY 0xffffffffu       /* a mask that leaves all: of an int the kernel looks at the low word only */
#define IOCTL_TYPE 0xff00u
#define OTHER_SOCKET_TYPES 0xcu /* bits that SOCK_STREAM, SOCK_DGRAM and SOCK_RAW do not have */
#define NEW_NAMESPACES                                                                                                 \
        (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* where clone() has its signal */
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define MISSING (SECCOMP_RET_ERRNO | ENOSYS)
#define NO_IOCTL (SECCOMP_RET_ERRNO | ENOTTY)
#define NO_MEMORY (SECCOMP_RET_ERRNO | ENOMEM)
#define NO_PROTOCOL (SECCOMP_RET_ERRNO | EPROTONOSUPPORT)
#define NO_FLAG (SECCOMP_RET_ERRNO | EINVAL)
#define KILL SECCOMP_RET_KILL_PROCESS

/* Allowed whatever their arguments are. Those that other kinds of machines do not have are left out there. What is not
 * here on purpose: mounts of either kind, namespaces, keyrings, bpf, perf, userfaultfd, io_uring, handles of files that
 * are opened by them, other processes' memory and descriptors but by ptrace, modules, kexec, clocks that are set, swap,
 * quotas, accounting, the kernel's log, ports, policies of memory, and what nobody uses any more. */
static const char *const allowed[] = {
        /* files */
        "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
        "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat",
        "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync",
        "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch", "inotify_init",
        "inotify_init1", "inotify_rm_watch", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
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
        "brk", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mlockall", "mprotect", "mremap", "msync",
        "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
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
        "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "setfsgid", "setfsuid", "setgid",
        "setgroups", "setregid", "setresgid", "setresuid", "setreuid", "setuid",
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

/* As if the kernel did not have them, so that programs do without. Requests of the old asynchronous I/O are a number of
 * the whole host (fs.aio-max-nr). Secret memory breaks up the kernel's own map of all memory, and while somebody has it
 * the host does not hibernate. */
static const char *const missing[] = { "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
                                       "io_setup",  "io_submit",  "memfd_secret" };

/* Which arguments a rule is for, by the low word of one of them. */
typedef enum Test {
        IS,            /* masked, it is @value */
        IS_AND_ARG2_0, /* it is, and argument 2 is 0 */
        IS_NOT,        /* masked, it is another */
        HAS,           /* a bit of @mask */
        OTHERWISE,     /* the last of each call */
} Test;

/* What is done with a call. The first rule that holds counts. Those of a call stand together. */
typedef struct Rule {
        const char *call;
        Test test;
        unsigned argument;
        uint32_t mask, value;
        uint32_t action;
} Rule;

static const Rule rules[] = {
        /* Huge pages are a pool of the host's, which no limit of memory covers. */
        { "mmap", HAS, 3, MAP_HUGETLB, 0, NO_MEMORY },
        { "mmap", OTHERWISE, 0, 0, 0, ALLOW },
        { "memfd_create", HAS, 1, MFD_HUGETLB, 0, NO_MEMORY },
        { "memfd_create", OTHERWISE, 0, 0, 0, ALLOW },
        { "clone", HAS, 0, NEW_NAMESPACES, 0, REFUSE },
        { "clone", OTHERWISE, 0, 0, 0, ALLOW },
        /* A lease holds up whoever opens the file, on the host as well. Watches of folders that are no inotify's are
         * not counted. */
        { "fcntl", IS, 1, ANY, F_SETLEASE, REFUSE },
        { "fcntl", IS, 1, ANY, F_NOTIFY, REFUSE },
        { "fcntl", OTHERWISE, 0, 0, 0, ALLOW },
        { "ioctl", IS, 1, ANY, TIOCSTI, REFUSE }, /* input for a terminal that nobody typed */
        { "ioctl", IS, 1, ANY, TIOCLINUX, REFUSE },
        { "ioctl", IS, 1, ANY, TIOCSETD, REFUSE }, /* drivers for what is on the line */
        { "ioctl", IS, 1, ANY, FICLONE, ALLOW },
        { "ioctl", IS, 1, ANY, FICLONERANGE, ALLOW },
        { "ioctl", IS, 1, ANY, FIDEDUPERANGE, ALLOW },
        { "ioctl", IS, 1, IOCTL_TYPE, _IOC_TYPE(FICLONE) << _IOC_TYPESHIFT, NO_IOCTL }, /* the rest of btrfs's */
        { "ioctl", OTHERWISE, 0, 0, 0, ALLOW },
        { "personality", IS, 0, ANY, 0, ALLOW },
        { "personality", IS, 0, ANY, 0xffffffff, ALLOW },        /* asks */
        { "personality", IS, 0, ANY, ADDR_NO_RANDOMIZE, ALLOW }, /* debuggers */
        { "personality", OTHERWISE, 0, 0, 0, REFUSE },
        /* A filter lives as long as its listener, and what the kernel compiles it to is no sandbox's memory. Without
         * listeners there is a bound to it for each process. */
        { "seccomp", HAS, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, NO_FLAG },
        { "seccomp", OTHERWISE, 0, 0, 0, ALLOW },
        { "socket", IS, 0, ANY, AF_UNIX, ALLOW },
        { "socket", IS_AND_ARG2_0, 0, ANY, AF_NETLINK, ALLOW }, /* of routes */
        { "socket", IS_NOT, 0, ~(uint32_t) (AF_INET ^ AF_INET6), (AF_INET & AF_INET6), REFUSE },
        /* Protocols that few have looked at, some of which the kernel would load a module for. Those who ask for
         * multipath TCP take TCP then. */
        { "socket", HAS, 1, OTHER_SOCKET_TYPES, 0, NO_PROTOCOL },
        { "socket", IS, 2, ANY, 0, ALLOW },
        { "socket", IS, 2, ANY, IPPROTO_TCP, ALLOW },
        { "socket", IS, 2, ANY, IPPROTO_UDP, ALLOW },
        { "socket", OTHERWISE, 0, 0, 0, NO_PROTOCOL },
        { "socketpair", IS, 0, ANY, AF_UNIX, ALLOW },
        { "socketpair", OTHERWISE, 0, 0, 0, REFUSE },
        { "unshare", HAS, 0, NEW_NAMESPACES | CLONE_NEWTIME, 0, REFUSE },
        { "unshare", OTHERWISE, 0, 0, 0, ALLOW },
};

_Static_assert(((AF_INET ^ AF_INET6) & ((AF_INET ^ AF_INET6) - 1)) == 0, "the two families differ in one bit");

/* What keepers, and their children on the way into a sandbox, need beyond that, and what comes of it inside. */
static const struct {
        const char *call;
        uint32_t action_inside;
} allowed_to_keepers[] = { { "clone3", MISSING }, { "kcmp", REFUSE }, { "setns", REFUSE } };
static const Rule own_cgroups = { "unshare", IS, 0, ANY, CLONE_NEWCGROUP, ALLOW };

#define N_RULES (sizeof(rules) / sizeof(rules[0]))
#define N_ALLOWED_TO_KEEPERS (sizeof(allowed_to_keepers) / sizeof(allowed_to_keepers[0]))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low word of an argument is its first");

/* ---- The program ---- */

#define N_INSTRUCTIONS 1024

typedef struct Program {
        size_t n;
        bool too_long; /* for a jump, or for the program */
        struct sock_filter instructions[N_INSTRUCTIONS];
} Program;

static void set_jump(Program *program, size_t at, size_t if_true, size_t if_false) {
        program->too_long = program->too_long || if_true > UINT8_MAX || if_false > UINT8_MAX;
        program->instructions[at].jt = (uint8_t) if_true;
        program->instructions[at].jf = (uint8_t) if_false;
}

static void put(Program *program, uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false) {
        program->too_long = program->too_long || program->n + 1 == N_INSTRUCTIONS;
        if (!program->too_long)
                program->instructions[program->n++] = (struct sock_filter) BPF_JUMP(code, k, if_true, if_false);
}

static void put_load(Program *program, size_t offset) {
        put(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t) offset, 0, 0);
}

static void put_return(Program *program, uint32_t action) {
        put(program, BPF_RET | BPF_K, action, 0, 0);
}

/* The numbers below mean something else in calls of other kinds. */
static void put_machine(Program *program) {
        put_load(program, offsetof(struct seccomp_data, arch));
        put(program, BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0);
        put_return(program, KILL);
        put_load(program, offsetof(struct seccomp_data, nr));
        put(program, BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 0, 3);
        put(program, BPF_JMP | BPF_JEQ | BPF_K, NO_CALL, 0, 1);
        put_return(program, REFUSE);
        put_return(program, KILL);
        put(program, BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1);
        put_return(program, MISSING);
}

/* A rule's jump that is taken if it holds, and its action. */
typedef struct Branch {
        size_t at;
        bool if_true, has_way;
        uint32_t action;
} Branch;

#define NO_ARGUMENT UINT_MAX

/* Goes on behind it unless the rule holds. @loaded is the argument that is there already, if any. */
static Branch put_test(Program *program, const Rule *rule, unsigned *loaded) {
        if (*loaded != rule->argument)
                put_load(program, offsetof(struct seccomp_data, args) + rule->argument * sizeof(uint64_t));
        *loaded = rule->argument;
        if (rule->test == HAS) {
                put(program, BPF_JMP | BPF_JSET | BPF_K, rule->mask, 0, 0);
                return (Branch){ program->n - 1, true, false, rule->action };
        }
        if (rule->mask != ANY) {
                put(program, BPF_ALU | BPF_AND | BPF_K, rule->mask, 0, 0);
                *loaded = NO_ARGUMENT;
        }
        put(program, BPF_JMP | BPF_JEQ | BPF_K, rule->value, 0, rule->test == IS_AND_ARG2_0 ? 2 : 0);
        if (rule->test == IS_AND_ARG2_0) {
                put_load(program, offsetof(struct seccomp_data, args[2]));
                put(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 0);
                *loaded = NO_ARGUMENT;
        }
        return (Branch){ program->n - 1, rule->test != IS_NOT, false, rule->action };
}

/* Puts a return that has those of @branches come to it whose action it is. */
static void put_outcome(Program *program, uint32_t action, Branch branches[], size_t n) {
        for (size_t i = 0; i < n; i++) {
                if (branches[i].has_way || branches[i].action != action)
                        continue;
                size_t way = program->n - branches[i].at - 1;
                set_jump(program, branches[i].at, branches[i].if_true ? way : 0, branches[i].if_true ? 0 : way);
                branches[i].has_way = true;
        }
        put_return(program, action);
}

/* All that there is to say of one call: @extra, where it is of the same, and the @n rules. */
static void put_call(Program *program, const Rule *extra, const Rule *of_call, size_t n) {
        int number = seccomp_syscall_resolve_name(of_call->call);
        if (number < 0)
                return;
        Branch branches[N_RULES + 1];
        size_t begin = program->n, n_branches = 0;
        unsigned loaded = NO_ARGUMENT;
        put(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) number, 0, 0);
        if (extra && strcmp(extra->call, of_call->call) == 0)
                branches[n_branches++] = put_test(program, extra, &loaded);
        for (size_t i = 0; i + 1 < n; i++)
                branches[n_branches++] = put_test(program, &of_call[i], &loaded);
        put_outcome(program, of_call[n - 1].action, branches, n_branches); /* also of those for whom no rule holds */
        for (size_t i = 0; i < n_branches; i++)
                if (!branches[i].has_way)
                        put_outcome(program, branches[i].action, branches, n_branches);
        set_jump(program, begin, 0, program->n - begin - 1);
}

/* Puts what there is to say of @call; NULL: of all calls. */
static void put_rules(Program *program, const char *call, const Rule *extra) {
        for (size_t i = 0, n; i < N_RULES; i += n) {
                for (n = 1; i + n < N_RULES && strcmp(rules[i].call, rules[i + n].call) == 0;)
                        n++;
                if (!call || strcmp(rules[i].call, call) == 0)
                        put_call(program, extra, &rules[i], n);
        }
}

/* ---- Ranges ---- */

/* Numbers from @begin to that of the next range have one action. */
typedef struct Range {
        uint32_t begin, action;
} Range;

typedef struct Ranges {
        size_t n;
        Range ranges[NEWEST_CALL + 1];
} Ranges;

#define NO_ACTION 0xffffffffu /* calls with rules do not come to the tree: they are of the range that ends there */

static void set_action(uint32_t actions[static NEWEST_CALL + 1], const char *call, uint32_t action) {
        /* Negative: this machine, or an older libseccomp, does not know it. Then it is refused. */
        int number = seccomp_syscall_resolve_name(call);
        if (number >= 0 && number <= NEWEST_CALL)
                actions[number] = action;
}

static void find_ranges(SeccompFilter whose, Ranges *ret_ranges) {
        uint32_t actions[NEWEST_CALL + 1];
        for (size_t i = 0; i <= NEWEST_CALL; i++)
                actions[i] = REFUSE;
        for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
                set_action(actions, allowed[i], ALLOW);
        for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++)
                set_action(actions, missing[i], MISSING);
        for (size_t i = 0; i < N_ALLOWED_TO_KEEPERS; i++)
                set_action(actions, allowed_to_keepers[i].call,
                           whose == SECCOMP_FILTER_KEEPER ? ALLOW : allowed_to_keepers[i].action_inside);
        for (size_t i = 0; i < N_RULES; i++)
                set_action(actions, rules[i].call, NO_ACTION);

        ret_ranges->n = 0;
        for (uint32_t i = 0; i <= NEWEST_CALL; i++) {
                if (actions[i] == NO_ACTION)
                        actions[i] = i > 0 ? actions[i - 1] : REFUSE;
                if (i == 0 || actions[i] != actions[i - 1])
                        ret_ranges->ranges[ret_ranges->n++] = (Range){ i, actions[i] };
        }
}

/* What can come of a range, in the order of the returns behind the tree. */
static const uint32_t outcomes[] = { ALLOW, REFUSE, MISSING };

#define N_OUTCOMES (sizeof(outcomes) / sizeof(outcomes[0]))

/* Puts the tree that finds a number's range: one instruction less than there are ranges, and then, at @returns, what
 * comes of them. Returns how far the instruction at @from jumps for these @n. */
/* NOLINTNEXTLINE(misc-no-recursion): of log(n) */
static size_t put_tree(Program *program, size_t from, const Range *ranges, size_t n, size_t returns) {
        if (n == 1) {
                size_t outcome = 0;
                while (outcome + 1 < N_OUTCOMES && outcomes[outcome] != ranges[0].action)
                        outcome++;
                return returns + outcome - from - 1;
        }
        size_t here = program->n, half = n / 2;
        put(program, BPF_JMP | BPF_JGE | BPF_K, ranges[half].begin, 0, 0);
        size_t below = put_tree(program, here, ranges, half, returns);
        size_t above = put_tree(program, here, ranges + half, n - half, returns);
        set_jump(program, here, above, below);
        return here - from - 1;
}

static void put_ranges(Program *program, const Ranges *ranges) {
        size_t begin = program->n;
        (void) put_tree(program, begin, ranges->ranges, ranges->n, begin + ranges->n - 1);
        for (size_t i = 0; i < N_OUTCOMES; i++)
                put_return(program, outcomes[i]);
}

static void make_whole(Program *program, SeccompFilter whose) {
        _cleanup_free_ Ranges *ranges = new0(Ranges, 1);
        put_machine(program);
        put_rules(program, NULL, whose == SECCOMP_FILTER_KEEPER ? &own_cgroups : NULL);
        find_ranges(whose, ranges);
        put_ranges(program, ranges);
}

/* Takes away what keepers alone are allowed. Calls of other kinds are refused by the keeper's filter. */
static void make_difference(Program *program) {
        put_load(program, offsetof(struct seccomp_data, nr));
        put_rules(program, own_cgroups.call, NULL);
        for (size_t i = 0; i < N_ALLOWED_TO_KEEPERS; i++) {
                int number = seccomp_syscall_resolve_name(allowed_to_keepers[i].call);
                if (number < 0)
                        continue;
                put(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) number, 0, 1);
                put_return(program, allowed_to_keepers[i].action_inside);
        }
        put_return(program, ALLOW);
}

int seccomp_filter_make(SeccompFilter whose, uint8_t **ret_program, size_t *ret_size, HutchError *err) {
        _cleanup_free_ Program *program = new0(Program, 1);
        if (whose == SECCOMP_FILTER_ENTERED)
                make_difference(program);
        else
                make_whole(program, whose);
        if (program->too_long)
                return reason_set(err, -E2BIG, REASON_RUNTIME_UNAVAILABLE,
                                  "the list of allowed system calls is too long");

        *ret_size = program->n * sizeof(program->instructions[0]);
        *ret_program = new0(uint8_t, *ret_size);
        memcpy(*ret_program, program->instructions, *ret_size);
        return 0;
}
