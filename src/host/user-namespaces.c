/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: trying user namespaces, and the settings of hosts that forbid them. What does not: mapping ids
 * (id-map.c), building sandboxes (keeper/). */

#include "host/user-namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"

#define APPARMOR_PROFILE "/etc/apparmor.d/hutch"

static int make_and_use(bool with_network) {
        enum { ALL = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP };

        if (unshare(with_network ? ALL | CLONE_NEWNET : ALL) < 0 || sethostname("hutch", strlen("hutch")) < 0)
                return errno;
        return 0;
}

int user_namespaces_try(bool with_network) {
        pid_t pid = fork();
        int status;

        if (pid < 0)
                return -errno;
        if (pid == 0)
                _exit(make_and_use(with_network));
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static bool has_value(const char *root, const char *path, const char *value) {
        char full[PATH_MAX], text[32];

        (void) snprintf(full, sizeof(full), "%s%s", root, path);

        _cleanup_close_ int fd = open(full, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

        if (n < 0)
                return false;
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        return str_equal(text, value);
}

bool user_namespaces_find_obstacle(const char *root, int error, NamespaceObstacle *ret_obstacle) {
        static const struct {
                const char *path;
                int error;
                NamespaceObstacle obstacle;
        } settings[] = {
                { "/proc/sys/user/max_user_namespaces",
                  -ENOSPC,
                  { "user.max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=65536" } },
                { "/proc/sys/kernel/unprivileged_userns_clone",
                  -EPERM,
                  { "kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1" } },
                { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                  -EPERM,
                  { "kernel.apparmor_restrict_unprivileged_userns", "1",
                    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" } },
        };
        char profile[PATH_MAX];

        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
                if (settings[i].error != (error == -EACCES ? -EPERM : error) ||
                    !has_value(root, settings[i].path, settings[i].obstacle.value))
                        continue;

                *ret_obstacle = settings[i].obstacle;
                (void) snprintf(profile, sizeof(profile), "%s" APPARMOR_PROFILE, root);
                /* It frees the programs of Hutch alone, and may not have been loaded since it was installed. */
                if (str_has_prefix(ret_obstacle->setting, "kernel.apparmor") && access(profile, F_OK) == 0)
                        ret_obstacle->command = "apparmor_parser -r " APPARMOR_PROFILE;
                return true;
        }
        return false;
}
