/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: trying to make overlays. What does not: those of sandboxes (keeper/root/rootfs-enter.c,
 * keeper/root/rootfs-host.c). */

#include "host/overlay-try.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define LOWER "lower"
#define UPPER "upper"
#define WORK "work"

static int write_file(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* Becomes root in a user namespace of its own. */
static int enter(void) {
        char uids[32], gids[32];
        (void) snprintf(uids, sizeof(uids), "0 %u 1", (unsigned) geteuid());
        (void) snprintf(gids, sizeof(gids), "0 %u 1", (unsigned) getegid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return -errno;
        int r = write_file("/proc/self/uid_map", uids);
        if (r >= 0)
                r = write_file("/proc/self/setgroups", "deny");
        return r < 0 ? r : write_file("/proc/self/gid_map", gids);
}

/* Makes an overlay that is mounted nowhere. @upper and @work may be NULL. */
static bool can_make(const char *lower, const char *upper, const char *work) {
        _cleanup_close_ int context = fsopen("overlay", FSOPEN_CLOEXEC);
        if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "lowerdir", lower, 0) < 0 ||
            fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
                return false;
        if (upper && (fsconfig(context, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
                      fsconfig(context, FSCONFIG_SET_STRING, "workdir", work, 0) < 0))
                return false;
        return fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0;
}

static bool can_have_host_folders(void) {
        static const char *const folders[] = { HOST_PROGRAM_FOLDERS };
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
                struct stat st;
                char folder[16], layers[32];
                (void) snprintf(folder, sizeof(folder), "/%s", folders[i]);
                if (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
                        continue;
                (void) snprintf(layers, sizeof(layers), "%s:" LOWER, folder);
                if (!can_make(layers, NULL, NULL))
                        return false;
        }
        return true;
}

static OverlaySupport try_in(const char *folder) {
        OverlaySupport support = {};
        support.error = chdir(folder) < 0 ? -errno : enter();
        if (support.error < 0)
                return support;
        _cleanup_close_ int context = fsopen("overlay", FSOPEN_CLOEXEC);
        support.is_there = context >= 0;
        support.has_host_folders = support.is_there && can_have_host_folders();
        support.has_changes = support.is_there && can_make(LOWER, UPPER, WORK);
        return support;
}

static OverlaySupport try_apart(const char *folder) {
        OverlaySupport support = { .error = -ECHILD };
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
                return (OverlaySupport){ .error = -errno };
        _cleanup_close_ int ours = pair[0], its = pair[1];
        pid_t child = fork();
        if (child < 0)
                return (OverlaySupport){ .error = -errno };
        if (child == 0) {
                support = try_in(folder);
                _exit(write(its, &support, sizeof(support)) != (ssize_t) sizeof(support));
        }
        fd_closep(&its);
        if (read(ours, &support, sizeof(support)) != (ssize_t) sizeof(support))
                support = (OverlaySupport){ .error = -ECHILD };
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                ;
        return support;
}

OverlaySupport overlay_try(const char *state_folder) {
        static const char *const parts[] = { LOWER, UPPER, WORK };
        char folder[PATH_MAX];
        if ((size_t) snprintf(folder, sizeof(folder), "%s/try-XXXXXX", state_folder) >= sizeof(folder))
                return (OverlaySupport){ .error = -ENAMETOOLONG };
        if (!mkdtemp(folder))
                return (OverlaySupport){ .error = -errno };
        _cleanup_close_ int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && at >= 0; i++)
                (void) mkdirat(at, parts[i], 0700);
        OverlaySupport support = try_apart(folder);
        (void) unlinkat(at, WORK "/work", AT_REMOVEDIR); /* the kernel's own */
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
                (void) unlinkat(at, parts[i], AT_REMOVEDIR);
        (void) rmdir(folder);
        return support;
}
