/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sentences and commands. What does not: finding out (cgroups.c). */

#include "host/cgroup-reasons.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define IN_CONTAINER "docker run --privileged --cgroupns=private IMAGE"

__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...) {
        va_list list;
        char *made;
        int n;

        va_start(list, format);
        n = vasprintf(&made, format, list);
        va_end(list);
        if (n < 0)
                abort();
        return made;
}

void cgroup_host_clear(CgroupHost *host) {
        cgroup_sight_clear(&host->sight);
        free(host->v1_mounts);
        free(host->user);
        free(host->scope_error);
        *host = (CgroupHost){};
}

/* Gives the user a cgroup, and moves the shell that the command is typed into there. In version 1 each hierarchy is one
 * of its own. */
static char *delegate(const CgroupHost *host) {
        unsigned uid = geteuid();

        if (host->v1_mounts)
                return text("sudo sh -c \"for t in %s%s; do mkdir -p \\$t/hutch-%u/hutchd && chown -R %u "
                            "\\$t/hutch-%u && echo $$ > \\$t/hutch-%u/hutchd/cgroup.procs; done\"; hutch daemon "
                            "stop; hutch daemon start",
                            host->sight.mount ? host->sight.mount : "", host->v1_mounts, uid, uid, uid, uid);
        return text("sudo sh -c \"cd %s && echo +cpu +memory +pids > cgroup.subtree_control && mkdir -p "
                    "hutch-%u/hutchd && chown -R %u hutch-%u && echo $$ > hutch-%u/hutchd/cgroup.procs\"; hutch daemon "
                    "stop; hutch daemon start",
                    host->sight.mount ? host->sight.mount : "/sys/fs/cgroup", uid, uid, uid, uid);
}

/* How an ordinary user gets a cgroup. */
static CgroupReason for_user(const CgroupHost *host, const char *path, int r) {
        const char *at = path ? path : "the cgroup tree";

        if (host->rules.has_systemd && host->has_session)
                return (CgroupReason){ text("systemd's user manager gave no scope: %s",
                                            host->scope_error ? host->scope_error : "it was not asked"),
                                       xstrdup("systemd-run --user --scope -p Delegate=yes hutchd") };
        if (host->rules.has_systemd && host->rules.has_controllers)
                return (CgroupReason){ text("%s may not write to %s, and has no systemd user session", host->user, at),
                                       text("sudo loginctl enable-linger %s; hutch daemon stop; hutch daemon start",
                                            host->user) };
        return (CgroupReason){ text("%s may not write to %s: %s", host->user, at, strerror(-r)), delegate(host) };
}

CgroupReason cgroup_reason_no_place(const CgroupHost *host, const char *path, int r) {
        if (r == -ENOENT)
                return (CgroupReason){ xstrdup("no cgroup v2 tree is mounted that hutchd is in"),
                                       xstrdup("sudo mount -t cgroup2 none /sys/fs/cgroup") };
        if (r == -EROFS)
                return (CgroupReason){ text("%s is mounted read-only, as in a container", path ? path : "it"),
                                       xstrdup(IN_CONTAINER) };
        if (r == -EOPNOTSUPP)
                return (CgroupReason){ text("%s has no cgroup.kill", path ? path : "the tree"),
                                       xstrdup("boot Linux 5.19 or later") };
        if ((r == -EACCES || r == -EPERM) && !host->rules.is_root)
                return for_user(host, path, r);
        return (CgroupReason){ text("cannot make a cgroup in %s: %s", path ? path : "the tree", strerror(-r)),
                               xstrdup(r == -EACCES || r == -EPERM ? IN_CONTAINER : "") };
}

CgroupReason cgroup_reason_bystander(const char *place, const Bystander *bystander) {
        if (bystander->pid == 0)
                return (CgroupReason){ text("a process of another pid namespace is in %s", place),
                                       xstrdup("docker run --cgroupns=private --privileged IMAGE") };
        return (CgroupReason){ text("process %d (%s) is in %s, which has to be empty to pass controllers on",
                                    (int) bystander->pid, bystander->name, place),
                               text("mkdir -p %s/others; echo %d > %s/others/cgroup.procs", place, (int) bystander->pid,
                                    place) };
}

/* The lowest cgroup from the mount down to @place that has the controller; NULL: there is none. */
static char *find_holder(const CgroupHost *host, const char *place, const char *controller) {
        size_t mount_len = host->sight.mount ? strlen(host->sight.mount) : 0;
        _cleanup_free_ char *at = xstrdup(place);

        while (host->sight.mount && strlen(at) >= mount_len) {
                _cleanup_close_ int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

                if (fd >= 0 && cgroup_lists(fd, "cgroup.controllers", controller))
                        return TAKE_PTR(at);
                if (strlen(at) == mount_len)
                        break;
                *strrchr(at, '/') = '\0';
        }
        return NULL;
}

/* Reads the line of a controller in /proc/cgroups: NAME HIERARCHY NUMBER ENABLED. */
static bool find_known(const char *known, const char *name, unsigned *ret_hierarchy, unsigned *ret_enabled) {
        size_t len = strlen(name);

        for (const char *line = known; line && *line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, len) == 0 && line[len] == '\t')
                        return sscanf(line + len, "%u %*u %u", ret_hierarchy, ret_enabled) ==
                               2; /* NOLINT(cert-err34-c) */
        }
        return false;
}

CgroupReason cgroup_reason_not_given(const CgroupHost *host, const char *place, const char *controller,
                                     const char *v1_name, const char *known) {
        _cleanup_free_ char *holder = find_holder(host, place, controller);
        unsigned hierarchy = 0, enabled = 1;

        if (holder && !host->rules.is_root && host->rules.has_systemd)
                return (CgroupReason){ text("systemd does not give the controller %s to users", controller),
                                       text("sudo sh -c \"mkdir -p /etc/systemd/system/user@.service.d && printf "
                                            "'[Service]\\nDelegate=cpu cpuset io memory pids\\n' > "
                                            "/etc/systemd/system/user@.service.d/delegate.conf && systemctl "
                                            "daemon-reload && systemctl restart user@%u\"",
                                            (unsigned) geteuid()) };
        if (holder)
                return (CgroupReason){ text("%s does not pass the controller %s on", holder, controller),
                                       text("%secho +%s %s %s/cgroup.subtree_control%s",
                                            host->rules.is_root ? "" : "sudo sh -c '", controller, ">", holder,
                                            host->rules.is_root ? "" : "'") };
        if (known && !find_known(known, v1_name, &hierarchy, &enabled))
                return (CgroupReason){ text("this kernel has no controller %s", controller),
                                       text("boot a kernel that has %s in /proc/cgroups", v1_name) };
        if (enabled == 0)
                return (CgroupReason){ text("the kernel was booted without the controller %s", controller),
                                       text("boot with cgroup_enable=%s", v1_name) };
        if (hierarchy > 0)
                return (CgroupReason){ text("the controller %s is in a hierarchy of version 1 that hutchd is not in",
                                            controller),
                                       text("boot with cgroup_no_v1=%s", v1_name) };
        return (CgroupReason){ text("%s is not given the controller %s by the cgroup above it", place, controller),
                               xstrdup(IN_CONTAINER) };
}

CgroupReason cgroup_reason_not_enabled(const CgroupHost *host, const char *place, const char *controller, int r) {
        if ((r == -EACCES || r == -EPERM) && !host->rules.is_root)
                return for_user(host, place, r);
        return (CgroupReason){ text("%s cannot pass the controller %s on: %s", place, controller, strerror(-r)),
                               r == -EROFS ? xstrdup(IN_CONTAINER) : xstrdup("") };
}
