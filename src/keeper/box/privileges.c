/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how processes that go into a sandbox give up what they may do. What does not: who they become. */

#include "keeper/box/privileges.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int keyring_leave(void) {
        /* There are kernels without keyrings. */
        return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -errno : 0;
}

int user_become(uid_t id) {
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
                return -errno;
        if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
                return -errno;
        return 0;
}

int privileges_bound(uint64_t kept) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return -errno;
        /* EINVAL is the first capability that the kernel does not know. */
        for (unsigned long capability = 0; capability < CHAR_BIT * sizeof(kept); capability++)
                if (!(kept & UINT64_C(1) << capability) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
                        return errno != EINVAL ? -errno : 0;
        return 0;
}

int privileges_seal(bool has_capabilities) {
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return has_capabilities ? privileges_bound(0) : 0;
}

int privileges_drop(uint64_t kept) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
        for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
                uint32_t word = (uint32_t) (kept >> 32 * i);
                sets[i] = (struct __user_cap_data_struct){ .effective = word, .permitted = word, .inheritable = word };
        }
        return syscall(SYS_capset, &header, sets) < 0 ? -errno : 0;
}

int filter_install(const Filter *filter) {
        if (!filter->instructions)
                return 0;
        const struct sock_fprog program = { .len = filter->len, .filter = filter->instructions };
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

void signals_reset(void) {
        /* What the kernel takes, all of it 0: SIG_DFL. libc's own call leaves out the signals that libc uses itself. */
        const struct {
                void (*handler)(int);
                unsigned long flags;
                void (*restorer)(void);
                uint64_t mask;
        } by_default = { .handler = SIG_DFL };
        /* KILL and STOP say no. */
        for (int i = 1; i < NSIG; i++)
                (void) syscall(SYS_rt_sigaction, i, &by_default, NULL, sizeof(by_default.mask));
}
