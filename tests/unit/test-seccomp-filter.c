/* SPDX-License-Identifier: Apache-2.0 */

#include "runtime/native/seccomp-filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define HIGH_BITS (1ul << 32) /* of an int, which the kernel does not look at */

/* What is installed, one after the other. */
static struct sock_fprog programs[2];
static size_t n_programs;

static int make(SeccompFilter whose) {
        struct sock_fprog *program = &programs[n_programs++];
        uint8_t *bytes = NULL;
        size_t size = 0;
        int r = seccomp_filter_make(whose, &bytes, &size, NULL);
        if (r < 0 || size % sizeof(struct sock_filter) != 0 || size / sizeof(struct sock_filter) > BPF_MAXINSNS)
                return -1;
        program->filter = (struct sock_filter *) (void *) bytes;
        program->len = (unsigned short) (size / sizeof(struct sock_filter));
        return 0;
}

static int make_program(void **state) {
        return make(SECCOMP_FILTER_SANDBOX);
}

static int make_keepers_program(void **state) {
        return make(SECCOMP_FILTER_KEEPER);
}

static int make_both_programs(void **state) {
        return make(SECCOMP_FILTER_KEEPER) < 0 ? -1 : make(SECCOMP_FILTER_ENTERED);
}

static int free_programs(void **state) {
        while (n_programs > 0)
                free(programs[--n_programs].filter);
        return 0;
}

static int install(void) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -1;
        for (size_t i = 0; i < n_programs; i++)
                if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &programs[i]) < 0)
                        return -1;
        return 0;
}

typedef struct Asked {
        const char *what;
        long number;
        unsigned long arguments[5];
        int error; /* 0: anything that the filter does not answer */
} Asked;

/* How the child ended that asked for this under the filter; its exit status is the errno. */
static int ask(const Asked *asked, bool is_filtered) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                const unsigned long *a = asked->arguments;
                if (is_filtered && install() < 0)
                        _exit(255);
                long r = syscall(asked->number, a[0], a[1], a[2], a[3], a[4]);
                _exit(r < 0 ? errno : 0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void expect(const Asked *asked, size_t n) {
        for (size_t i = 0; i < n; i++) {
                int status = ask(&asked[i], true);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != asked[i].error)
                        fail_msg("%s: status %#x, not errno %d", asked[i].what, (unsigned) status, asked[i].error);
        }
}

#define EXPECT(table) expect(table, sizeof(table) / sizeof((table)[0]))

static void what_reaches_out_is_refused(void **state) {
        static const Asked table[] = {
                { "mount", SYS_mount, {}, EPERM },
                { "umount2", SYS_umount2, {}, EPERM },
                { "pivot_root", SYS_pivot_root, {}, EPERM },
                { "chroot", SYS_chroot, {}, EPERM },
                { "fsopen", SYS_fsopen, {}, EPERM },
                { "open_tree", SYS_open_tree, {}, EPERM },
                { "move_mount", SYS_move_mount, {}, EPERM },
                { "mount_setattr", SYS_mount_setattr, {}, EPERM },
                { "keyctl", SYS_keyctl, {}, EPERM },
                { "add_key", SYS_add_key, {}, EPERM },
                { "request_key", SYS_request_key, {}, EPERM },
                { "bpf", SYS_bpf, {}, EPERM },
                { "perf_event_open", SYS_perf_event_open, {}, EPERM },
                { "userfaultfd", SYS_userfaultfd, {}, EPERM },
                { "io_uring_setup", SYS_io_uring_setup, {}, EPERM },
                { "io_uring_enter", SYS_io_uring_enter, {}, EPERM },
                { "io_uring_register", SYS_io_uring_register, {}, EPERM },
                { "open_by_handle_at", SYS_open_by_handle_at, {}, EPERM },
                { "kexec_load", SYS_kexec_load, {}, EPERM },
                { "init_module", SYS_init_module, {}, EPERM },
                { "finit_module", SYS_finit_module, {}, EPERM },
                { "delete_module", SYS_delete_module, {}, EPERM },
                { "reboot", SYS_reboot, {}, EPERM },
                { "swapon", SYS_swapon, {}, EPERM },
                { "acct", SYS_acct, {}, EPERM },
                { "quotactl", SYS_quotactl, {}, EPERM },
                { "clock_settime", SYS_clock_settime, {}, EPERM },
                { "settimeofday", SYS_settimeofday, {}, EPERM },
                { "syslog", SYS_syslog, { 3 }, EPERM },
                { "process_vm_readv", SYS_process_vm_readv, {}, EPERM },
                { "process_vm_writev", SYS_process_vm_writev, {}, EPERM },
                { "pidfd_getfd", SYS_pidfd_getfd, {}, EPERM },
                { "fanotify_init", SYS_fanotify_init, {}, EPERM },
                { "vhangup", SYS_vhangup, {}, EPERM },
        };
        EXPECT(table);
}

static void namespaces_are_refused_and_threads_are_not(void **state) {
        static const unsigned long kinds[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                               CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                const Asked table[] = {
                        { "unshare", SYS_unshare, { kinds[i] }, EPERM },
                        { "unshare with more", SYS_unshare, { kinds[i] | CLONE_FS | HIGH_BITS }, EPERM },
                        { "clone", SYS_clone, { kinds[i] | SIGCHLD }, EPERM },
                        { "clone with more", SYS_clone, { kinds[i] | CLONE_PARENT | HIGH_BITS }, EPERM },
                };
                EXPECT(table);
        }
        static const Asked others[] = {
                { "setns", SYS_setns, { (unsigned long) -1 }, EPERM },
                { "unshare of a clock", SYS_unshare, { 0x80 }, EPERM },
                { "unshare of folders and files", SYS_unshare, { CLONE_FS | CLONE_FILES }, 0 },
                { "clone", SYS_clone, { SIGCHLD }, 0 },
        };
        EXPECT(others);
}

static void what_libc_falls_back_from_is_not_there(void **state) {
        static const Asked table[] = {
                { "clone3", SYS_clone3, {}, ENOSYS },
                { "the first newer call", 451, {}, ENOSYS },
                { "a newer call", 1000, {}, ENOSYS },
                { "the last number", 0x3fffffff, {}, ENOSYS },
        };
        EXPECT(table);
}

static void numbers_of_the_host_are_not_to_be_had(void **state) {
        static const Asked table[] = {
                { "io_setup", SYS_io_setup, { 1, 0 }, ENOSYS },
                { "io_destroy", SYS_io_destroy, {}, ENOSYS },
                { "io_submit", SYS_io_submit, {}, ENOSYS },
                { "io_cancel", SYS_io_cancel, {}, ENOSYS },
                { "io_getevents", SYS_io_getevents, {}, ENOSYS },
                { "io_pgetevents", SYS_io_pgetevents, {}, ENOSYS },
                { "memfd_secret", SYS_memfd_secret, { (unsigned long) -1 }, ENOSYS },
                { "huge pages", SYS_mmap, { 0, 0, 0, MAP_PRIVATE | MAP_HUGETLB }, ENOMEM },
                { "huge pages of 2 MiB", SYS_mmap, { 0, 0, 0, MAP_PRIVATE | MAP_HUGETLB | 21u << 26 }, ENOMEM },
                { "other memory", SYS_mmap, { 0, 0, 0, MAP_PRIVATE | MAP_ANONYMOUS }, EINVAL },
                { "a file of huge pages", SYS_memfd_create, { 0, MFD_HUGETLB | MFD_CLOEXEC }, ENOMEM },
                { "another file in memory", SYS_memfd_create, { 0, MFD_CLOEXEC }, EFAULT },
                { "a listener", SYS_seccomp, { SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER }, EINVAL },
                { "a filter", SYS_seccomp, { SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC }, EFAULT },
        };
        EXPECT(table);
}

static void a_call_that_a_debugger_leaves_out_does_not_kill(void **state) {
        static const Asked none = { "no call", -1, {}, 0 };
        int status = ask(&none, true);
        assert_true(WIFEXITED(status));
}

static void sockets_are_of_four_families(void **state) {
        static const Asked table[] = {
                { "unix", SYS_socket, { AF_UNIX, SOCK_STREAM }, 0 },
                { "inet", SYS_socket, { AF_INET, SOCK_STREAM }, 0 },
                { "inet6", SYS_socket, { AF_INET6, SOCK_DGRAM }, 0 },
                { "routes", SYS_socket, { AF_NETLINK, SOCK_RAW, 0 }, 0 },
                { "audit", SYS_socket, { AF_NETLINK, SOCK_RAW, 9 }, EPERM },
                { "netfilter", SYS_socket, { AF_NETLINK, SOCK_RAW, 12 | HIGH_BITS }, EPERM },
                { "packet", SYS_socket, { AF_PACKET, SOCK_RAW }, EPERM },
                { "packet, disguised", SYS_socket, { AF_PACKET | HIGH_BITS, SOCK_RAW }, EPERM },
                { "alg", SYS_socket, { AF_ALG, SOCK_SEQPACKET }, EPERM },
                { "vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM }, EPERM },
        };
        EXPECT(table);
}

static void sockets_are_of_two_protocols(void **state) {
        static const unsigned long families[] = { AF_INET, AF_INET6 };
        for (size_t i = 0; i < 2; i++) {
                const unsigned long family = families[i];
                const Asked table[] = {
                        { "tcp", SYS_socket, { family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP }, 0 },
                        { "udp", SYS_socket, { family, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP }, 0 },
                        { "tcp, not named", SYS_socket, { family, SOCK_STREAM | SOCK_NONBLOCK, 0 }, 0 },
                        { "mptcp", SYS_socket, { family, SOCK_STREAM, 262 }, EPROTONOSUPPORT },
                        { "mptcp, disguised", SYS_socket, { family, SOCK_STREAM, 262 | HIGH_BITS }, EPROTONOSUPPORT },
                        { "smc", SYS_socket, { family, SOCK_STREAM, 256 }, EPROTONOSUPPORT },
                        { "sctp", SYS_socket, { family, SOCK_STREAM, IPPROTO_SCTP }, EPROTONOSUPPORT },
                        { "sctp, not named", SYS_socket, { family, SOCK_SEQPACKET }, EPROTONOSUPPORT },
                        { "dccp", SYS_socket, { family, SOCK_DCCP, IPPROTO_DCCP }, EPROTONOSUPPORT },
                        { "dccp, not named", SYS_socket, { family, SOCK_DCCP | SOCK_CLOEXEC }, EPROTONOSUPPORT },
                        { "udplite", SYS_socket, { family, SOCK_DGRAM, IPPROTO_UDPLITE }, EPROTONOSUPPORT },
                        { "l2tp", SYS_socket, { family, SOCK_DGRAM, 115 }, EPROTONOSUPPORT },
                        { "icmp", SYS_socket, { family, SOCK_DGRAM, IPPROTO_ICMP }, EPROTONOSUPPORT },
                        { "icmpv6", SYS_socket, { family, SOCK_DGRAM, IPPROTO_ICMPV6 }, EPROTONOSUPPORT },
                        { "icmp, raw", SYS_socket, { family, SOCK_RAW, IPPROTO_ICMP }, EPROTONOSUPPORT },
                };
                EXPECT(table);
        }
        static const Asked others[] = {
                { "unix with records", SYS_socket, { AF_UNIX, SOCK_SEQPACKET, 0 }, 0 },
                { "unix, named", SYS_socket, { AF_UNIX, SOCK_STREAM, PF_UNIX }, 0 },
                { "unix of another protocol", SYS_socket, { AF_UNIX, SOCK_STREAM, 6 }, EPROTONOSUPPORT },
        };
        EXPECT(others);
}

static void arguments_are_looked_at(void **state) {
        static const Asked table[] = {
                { "TIOCSTI", SYS_ioctl, { (unsigned long) -1, TIOCSTI }, EPERM },
                { "TIOCSTI, disguised", SYS_ioctl, { (unsigned long) -1, TIOCSTI | HIGH_BITS }, EPERM },
                { "TIOCLINUX", SYS_ioctl, { (unsigned long) -1, TIOCLINUX }, EPERM },
                { "TIOCSETD", SYS_ioctl, { (unsigned long) -1, TIOCSETD }, EPERM },
                { "a snapshot", SYS_ioctl, { (unsigned long) -1, _IOW(0x94, 1, char[4096]) }, ENOTTY },
                { "a search in the tree", SYS_ioctl, { (unsigned long) -1, _IOWR(0x94, 17, char[4096]) }, ENOTTY },
                { "a label", SYS_ioctl, { (unsigned long) -1, FS_IOC_SETFSLABEL | HIGH_BITS }, ENOTTY },
                { "a clone's number alone", SYS_ioctl, { (unsigned long) -1, 0x9400 | _IOC_NR(FICLONE) }, ENOTTY },
                { "a clone", SYS_ioctl, { (unsigned long) -1, FICLONE }, EBADF },
                { "a clone of a part", SYS_ioctl, { (unsigned long) -1, FICLONERANGE }, EBADF },
                { "parts that are the same", SYS_ioctl, { (unsigned long) -1, FIDEDUPERANGE }, EBADF },
                { "flags of a file", SYS_ioctl, { (unsigned long) -1, FS_IOC_GETFLAGS }, EBADF },
                { "a lease", SYS_fcntl, { (unsigned long) -1, F_SETLEASE, F_RDLCK }, EPERM },
                { "a lease, disguised", SYS_fcntl, { (unsigned long) -1, F_SETLEASE | HIGH_BITS, F_WRLCK }, EPERM },
                { "a watch of a folder", SYS_fcntl, { (unsigned long) -1, F_NOTIFY, DN_CREATE }, EPERM },
                { "a lock", SYS_fcntl, { (unsigned long) -1, F_SETLK }, EBADF },
                { "the size of a pipe", SYS_fcntl, { (unsigned long) -1, F_SETPIPE_SZ }, EBADF },
                { "another ioctl", SYS_ioctl, { (unsigned long) -1, TIOCGWINSZ }, EBADF },
                { "personality", SYS_personality, { 0xffffffff }, 0 },
                { "personality without randomness", SYS_personality, { 0x0040000 }, 0 },
                { "personality that maps page 0", SYS_personality, { 0x0100000 }, EPERM },
                { "personality that makes all executable", SYS_personality, { 0x0400000 }, EPERM },
        };
        EXPECT(table);
}

static void calls_of_other_machines_kill(void **state) {
#ifdef __x86_64__
        static const Asked x32 = { "getpid of x32", 0x40000000 + SYS_getpid, {}, 0 };
        int status = ask(&x32, true);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
        status = ask(&x32, false);
        assert_true(WIFEXITED(status)); /* so it was the filter that killed */

        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (install() < 0)
                        _exit(255);
                long r = 20; /* getpid, where a 64-bit process has writev */
                __asm__ volatile("int $0x80" : "+a"(r) : : "r8", "r9", "r10", "r11", "memory");
                _exit(r > 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        /* A kernel without 32-bit calls ends it as well, in its own way. */
        assert_true(WIFSIGNALED(status));
#else
        skip();
#endif
}

static void keepers_can_enter_namespaces_and_make_one_kind(void **state) {
        static const Asked table[] = {
                { "setns", SYS_setns, { (unsigned long) -1 }, EBADF },
                { "clone3", SYS_clone3, {}, EINVAL },
                { "unshare of users", SYS_unshare, { CLONE_NEWUSER }, EPERM },
                { "unshare of mounts", SYS_unshare, { CLONE_NEWNS }, EPERM },
                { "unshare of cgroups and mounts", SYS_unshare, { CLONE_NEWCGROUP | CLONE_NEWNS }, EPERM },
                { "clone of users", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM },
        };
        EXPECT(table);
        static const Asked cgroups = { "unshare of cgroups", SYS_unshare, { CLONE_NEWCGROUP }, 0 };
        assert_int_equal(ask(&cgroups, true), ask(&cgroups, false));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_reaches_out_is_refused),
                cmocka_unit_test(namespaces_are_refused_and_threads_are_not),
                cmocka_unit_test(what_libc_falls_back_from_is_not_there),
                cmocka_unit_test(a_call_that_a_debugger_leaves_out_does_not_kill),
                cmocka_unit_test(numbers_of_the_host_are_not_to_be_had),
                cmocka_unit_test(sockets_are_of_four_families),
                cmocka_unit_test(sockets_are_of_two_protocols),
                cmocka_unit_test(arguments_are_looked_at),
                cmocka_unit_test(calls_of_other_machines_kill),
        };
        const struct CMUnitTest keepers_tests[] = {
                cmocka_unit_test(what_reaches_out_is_refused),
                cmocka_unit_test(keepers_can_enter_namespaces_and_make_one_kind),
                cmocka_unit_test(numbers_of_the_host_are_not_to_be_had),
                cmocka_unit_test(sockets_are_of_four_families),
                cmocka_unit_test(sockets_are_of_two_protocols),
                cmocka_unit_test(arguments_are_looked_at),
                cmocka_unit_test(calls_of_other_machines_kill),
        };
        int failed = cmocka_run_group_tests(tests, make_program, free_programs);
        failed += cmocka_run_group_tests(keepers_tests, make_keepers_program, free_programs);
        return failed + cmocka_run_group_tests_name("the keeper's and what is inside's", tests, make_both_programs,
                                                    free_programs);
}
