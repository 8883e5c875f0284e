/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making the one sysfs, and handing it on. What does not: where it is mounted (rootfs-enter.c). */

#include "keeper/root/shared-sys.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/box/init.h"
#include "keeper/root/rootfs.h"

void shared_sys_make(void) {
        _cleanup_close_ int tree = -1;
        if (unshare(CLONE_NEWNET) == 0 && raise_loopback() >= 0 && rootfs_open_sys(&tree) >= 0)
                (void) dup2(tree, SHARED_SYS_FD);
}

static bool is_there(void) {
        struct statfs st;
        return fstatfs(SHARED_SYS_FD, &st) == 0 && st.f_type == SYSFS_MAGIC;
}

bool shared_sys_clone(void) {
        unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
        _cleanup_close_ int tree = is_there() ? open_tree(SHARED_SYS_FD, "", flags) : -1;
        return tree >= 0 && dup2(tree, SHARED_SYS_FD) >= 0;
}

void shared_sys_close(void) {
        _cleanup_close_ int nothing = is_there() ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
        if (nothing >= 0)
                (void) dup2(nothing, SHARED_SYS_FD);
}
