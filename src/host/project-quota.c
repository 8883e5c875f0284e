/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the kernel's calls for quotas of projects. What does not: which projects there are. */

#include "host/project-quota.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define PROJECTS 2 /* the kernel's PRJQUOTA, which glibc's header lacks */
#define BLOCK 1024 /* the unit of limits */
#define TRY_FOLDER "hutch-quota-try"

static int control(int folder, unsigned command, uint32_t project, void *argument) {
        return syscall(SYS_quotactl_fd, folder, QCMD(command, PROJECTS), project, argument) < 0 ? -errno : 0;
}

int project_quota_assign(int folder, uint32_t project) {
        struct fsxattr attributes;
        if (ioctl(folder, FS_IOC_FSGETXATTR, &attributes) < 0)
                return -errno;
        attributes.fsx_projid = project;
        attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
        return ioctl(folder, FS_IOC_FSSETXATTR, &attributes) < 0 ? -errno : 0;
}

int project_quota_find(int folder, uint32_t *ret_project) {
        struct fsxattr attributes;
        if (ioctl(folder, FS_IOC_FSGETXATTR, &attributes) < 0)
                return -errno;
        *ret_project = attributes.fsx_projid;
        return 0;
}

static int set_limits(int folder, uint32_t project, uint64_t bytes, uint64_t inodes) {
        struct dqblk limits = {
                .dqb_bhardlimit = bytes / BLOCK + (bytes % BLOCK > 0),
                .dqb_ihardlimit = inodes,
                .dqb_valid = QIF_LIMITS,
        };
        return control(folder, Q_SETQUOTA, project, &limits);
}

/* Only limits that are less than what the file system has are told by project_quota_read(). */
static uint64_t less_than(uint64_t limit, uint64_t all, uint64_t unit) {
        return all > unit && (limit == 0 || limit >= all) ? all - unit : limit;
}

int project_quota_limit(int folder, uint32_t project, uint64_t bytes, uint64_t inodes) {
        struct statfs info;
        /* With limits from before, what can be had is told to be those. */
        int r = project_quota_clear(folder, project);
        if (r < 0)
                return r;
        if (fstatfs(folder, &info) < 0)
                return -errno;
        uint64_t unit = (uint64_t) info.f_bsize;
        return set_limits(folder, project, less_than(bytes, info.f_blocks * unit, unit),
                          less_than(inodes, info.f_files, 1));
}

int project_quota_clear(int folder, uint32_t project) {
        return set_limits(folder, project, 0, 0);
}

int project_quota_read(int folder, ProjectUsage *ret_usage) {
        struct statfs info;
        if (fstatfs(folder, &info) < 0)
                return -errno;
        *ret_usage = (ProjectUsage){
                .bytes = (uint64_t) (info.f_blocks - info.f_bfree) * (uint64_t) info.f_bsize,
                .inodes = info.f_files - info.f_ffree,
        };
        return 0;
}

/* Whether limits of projects are not only counted, but enforced. That cannot be tried by who has CAP_SYS_RESOURCE. */
static int check_enforced(int folder) {
        struct fs_quota_statv state = { .qs_version = FS_QSTATV_VERSION1 };
        int r = control(folder, Q_XGETQSTATV, 0, &state);
        if (r < 0)
                return r;
        return state.qs_flags & FS_QUOTA_PDQ_ENFD ? 0 : -ESRCH;
}

static int try_in(int folder, uint32_t project) {
        int r = check_enforced(folder);
        if (r >= 0)
                r = project_quota_assign(folder, project);
        if (r >= 0)
                r = project_quota_limit(folder, project, 1 << 20, 16);
        if (r < 0)
                return r;
        ProjectUsage usage = {};
        r = mkdirat(folder, "counted", 0700) < 0 ? -errno : project_quota_read(folder, &usage);
        (void) unlinkat(folder, "counted", AT_REMOVEDIR);
        (void) project_quota_clear(folder, project);
        if (r < 0)
                return r;
        return usage.inodes == 2 ? 0 : -ESRCH;
}

int project_quota_try(int folder, uint32_t project) {
        if (mkdirat(folder, TRY_FOLDER, 0700) < 0 && errno != EEXIST)
                return -errno;
        _cleanup_close_ int inner = openat(folder, TRY_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = inner < 0 ? -errno : try_in(inner, project);
        (void) unlinkat(folder, TRY_FOLDER, AT_REMOVEDIR);
        return r;
}
