/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what Hutch needs of the machine, tried rather than looked up where that can be done. What does not:
 * Hutch's own programs (doctor.c). */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/doctor.h"
#include "host/overlay-try.h"
#include "host/project-quota.h"
#include "host/user-namespaces.h"

#define FREE_SPACE_LOW ((uint64_t) 1 << 30)
#define FILES_LOW 4096
#define PROCESSES_LOW 1024
#define RAISED 65536u
#define PROJECT_TO_TRY 0x3fffffffu /* nobody's */

/* The first line of a small file; "" when it cannot be read. */
static const char *read_line(const char *path, char *ret_line, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, ret_line, size - 1);

        ret_line[n > 0 ? n : 0] = '\0';
        ret_line[strcspn(ret_line, "\n")] = '\0';
        return ret_line;
}

/* ---- The kernel ---- */

static bool kernel_is_at_least(unsigned want_major, unsigned want_minor) {
        unsigned major = 0, minor = 0;
        struct utsname name;

        (void) uname(&name);
        (void) sscanf(name.release, "%u.%u", &major, &minor);
        return major > want_major || (major == want_major && minor >= want_minor);
}

static void examine_version(Findings *findings) {
        struct utsname name;

        (void) uname(&name);
        if (kernel_is_at_least(5, 19))
                findings_add(findings, "kernel", VERDICT_OK, NULL, "Linux %s", name.release);
        else
                findings_add(findings, "kernel", VERDICT_BAD, NULL, "Linux %s is too old: it takes 5.19 or later",
                             name.release);
}

/* How to start a container of the kind that this is, so that it has namespaces; NULL: it is none. */
static const char *mend_container(void) {
        if (access("/run/.containerenv", F_OK) == 0)
                return "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL IMAGE";
        if (access("/.dockerenv", F_OK) == 0)
                return "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
                       "--security-opt systempaths=unconfined IMAGE";
        return NULL;
}

static void examine_namespaces(Findings *findings) {
        int r = user_namespaces_try(true);
        NamespaceObstacle obstacle;

        if (r == 0)
                findings_add(findings, "namespaces", VERDICT_OK, NULL,
                             "user, mount, pid, network, ipc, uts and cgroup");
        else if (user_namespaces_find_obstacle("", r, &obstacle))
                findings_add(findings, "namespaces", VERDICT_BAD, obstacle.command,
                             "they cannot be made and used: %s, because %s is %s", strerror(-r), obstacle.setting,
                             obstacle.value);
        else
                findings_add(findings, "namespaces", VERDICT_BAD, mend_container(), "they cannot be made and used: %s",
                             strerror(-r));
}

/* The kernel's argument that brings Landlock, which is built in and not in use. */
static char *mend_landlock(void) {
        StringBuilder mend = {};
        char others[256];

        (void) read_line("/sys/kernel/security/lsm", others, sizeof(others));
        if (access("/etc/default/grub", F_OK) == 0)
                string_builder_appendf(&mend,
                                       "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,%s /' /etc/default/grub && "
                                       "update-grub && reboot",
                                       others);
        else
                string_builder_appendf(&mend, "lsm=landlock,%s in the kernel's arguments", others);
        return string_builder_take(&mend);
}

static void examine_landlock(Findings *findings) {
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        bool is_off = abi < 0 && errno == EOPNOTSUPP;
        _cleanup_free_ char *mend = is_off ? mend_landlock() : NULL;

        if (abi >= 6)
                findings_add(findings, "landlock", VERDICT_OK, NULL, "ABI %ld", abi);
        else if (abi >= 2)
                findings_add(findings, "landlock", VERDICT_OK, NULL,
                             "ABI %ld: around files%s; Linux 6.12 has it around processes and abstract sockets, too",
                             abi, abi < 3 ? " (which can be cut off)" : "");
        else if (abi == 1)
                findings_add(findings, "landlock", VERDICT_WARNING, NULL, "ABI 1 is not used: it takes Linux 5.19");
        else
                findings_add(findings, "landlock", VERDICT_WARNING, mend,
                             is_off ? "it is not enabled" : "this kernel was built without it");
}

static void examine_filters(Findings *findings) {
        unsigned action = SECCOMP_RET_KILL_PROCESS;

        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
                findings_add(findings, "seccomp", VERDICT_OK, NULL, "system calls can be filtered");
        else
                findings_add(findings, "seccomp", VERDICT_BAD, NULL,
                             "system calls cannot be filtered: this kernel was built without CONFIG_SECCOMP_FILTER");
        examine_landlock(findings);
}

/* ---- Folders ---- */

/* Cuts @path down to what is there. */
static void cut_to_existing(char *path) {
        while (access(path, F_OK) < 0 && path[1]) {
                char *slash = strrchr(path, '/');

                slash[slash == path] = '\0';
        }
}

static bool can_write(const char *folder) {
        _cleanup_(string_builder_clear) StringBuilder path = {};

        string_builder_appendf(&path, "%s/hutch-doctor-XXXXXX", folder);
        return mkdtemp(path.text) && rmdir(path.text) == 0;
}

/* What keeps a file system from having the state of sandboxes; NULL: nothing. */
static const char *find_problem(const struct statfs *info) {
        if (info->f_type == NFS_SUPER_MAGIC || info->f_type == FUSE_SUPER_MAGIC)
                return "it is on a network or FUSE file system";
        if (info->f_type == TMPFS_MAGIC && !kernel_is_at_least(6, 6))
                return "it is on a tmpfs, and Linux before 6.6 keeps no attributes there";
        return NULL;
}

/* Names another folder, one that would do. */
static char *mend_state_folder(void) {
        static const char *const places[] = { "/var/lib", "/var/tmp", "/srv", "/mnt", "/tmp", "/dev/shm" };
        const char *home = getenv("HOME"), *place = home;
        StringBuilder mend = {};
        struct statfs info;

        for (size_t i = 0; i <= sizeof(places) / sizeof(places[0]); place = places[i++]) {
                if (!place || statfs(place, &info) < 0 || find_problem(&info) || !can_write(place))
                        continue;
                string_builder_appendf(&mend, "export HUTCH_STATE=%s/hutch-%u", place, geteuid());
                return string_builder_take(&mend);
        }
        string_builder_append(&mend, "export HUTCH_STATE=FOLDER # on ext4, xfs or btrfs");
        return string_builder_take(&mend);
}

static void examine_state_folder(Findings *findings, const char *state, const OverlaySupport *overlays) {
        _cleanup_(string_builder_clear) StringBuilder sizes = {};
        struct statfs info = {};
        const char *problem = statfs(state, &info) < 0 ? strerror(errno) : find_problem(&info);

        if (!problem && !can_write(state))
                problem = "it cannot be written to";
        if (problem) {
                _cleanup_free_ char *mend = mend_state_folder();

                findings_add(findings, "state folder", VERDICT_BAD, mend, "%s: %s", state, problem);
                return;
        }

        if (overlays->is_there && !overlays->has_changes) {
                _cleanup_free_ char *mend = mend_state_folder();

                findings_add(findings, "state folder", VERDICT_WARNING, mend,
                             "%s: its file system cannot hold changes to the root of sandboxes%s: they are in memory, "
                             "and gone when a sandbox is stopped; home and workspace are kept",
                             state,
                             info.f_type == OVERLAYFS_SUPER_MAGIC ? " (an overlay, as the root of a container is)"
                                                                  : "");
                return;
        }

        string_builder_appendf(&sizes, "du -xh -d 2 %s | sort -h | tail", state);
        if ((uint64_t) info.f_bavail * (uint64_t) info.f_bsize < FREE_SPACE_LOW)
                findings_add(findings, "state folder", VERDICT_WARNING, sizes.text, "%s: less than 1 GiB is free",
                             state);
        else
                findings_add(findings, "state folder", VERDICT_OK, NULL, "%s", state);
}

/* What keeps namespaces from users keeps mounts from them, too. */
static const char *mend_overlays(const OverlaySupport *overlays) {
        NamespaceObstacle obstacle;

        if (overlays->error == 0)
                return "modprobe overlay";
        return user_namespaces_find_obstacle("", overlays->error, &obstacle) ? obstacle.command : NULL;
}

static void examine_overlays(Findings *findings, const OverlaySupport *overlays) {
        if (overlays->error < 0 || !overlays->is_there) {
                findings_add(findings, "overlayfs", VERDICT_BAD, mend_overlays(overlays), "it cannot be mounted: %s",
                             overlays->error < 0 ? strerror(-overlays->error) : "the kernel does not have it");
                return;
        }
        findings_add(findings, "overlayfs", VERDICT_OK, NULL, "can be mounted in a user namespace");
        if (overlays->has_host_folders)
                findings_add(findings, "host's files", VERDICT_OK, NULL, "sandboxes have inodes of their own");
        else
                findings_add(
                        findings, "host's files", VERDICT_WARNING,
                        "findmnt --list --output TARGET,FSTYPE | grep -E '^/(usr|opt|bin|sbin|lib)[^ ]*/'",
                        "something is mounted below the host's programs: sandboxes share inodes with it, see which "
                        "programs it starts, and cannot have the profile 'strict'");
}

/* How a daemon of ours keeps sandboxes within their disk limits there. */
static void examine_disk_limits(Findings *findings, const char *state, const char *existing) {
        _cleanup_close_ int folder = open(existing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(string_builder_clear) StringBuilder mend = {};

        if (geteuid() != 0) {
                findings_add(findings, "disk limits", VERDICT_OK, NULL,
                             "by measuring: quotas are for daemons of root only");
                return;
        }
        if (folder >= 0 && project_quota_try(folder, PROJECT_TO_TRY) == 0) {
                findings_add(findings, "disk limits", VERDICT_OK, NULL, "by quotas of %s", existing);
                return;
        }

        string_builder_appendf(&mend,
                               "truncate -s 100G %s.img && mkfs.ext4 -q -O quota,project %s.img && mkdir -p %s && "
                               "mount -o loop,prjquota %s.img %s",
                               state, state, state, state, state);
        findings_add(findings, "disk limits", VERDICT_OK, mend.text,
                     "by measuring; with quotas of projects, which this file system lacks, they are exact");
}

/* How the user gets at a socket that others have: by its group, if that may use it. */
static char *mend_socket(const char *socket) {
        const struct passwd *user = getpwuid(geteuid());
        StringBuilder mend = {};
        struct stat status;

        if (stat(socket, &status) == 0 && (status.st_mode & 0060) == 0060 && status.st_gid != 0) {
                const struct group *group = getgrgid(status.st_gid);

                if (group && user)
                        string_builder_appendf(&mend, "usermod -aG %s %s", group->gr_name, user->pw_name);
        }
        if (mend.len == 0)
                string_builder_append(&mend, "/etc/hutch/hutchd.yaml: socket_group: GROUP");
        return string_builder_take(&mend);
}

void examine_socket(Findings *findings, const char *socket) {
        _cleanup_free_ char *folder = xstrdup(socket);
        char other[64];
        struct stat status;

        (void) snprintf(other, sizeof(other), "export HUTCH_SOCKET=/tmp/hutch-%u/hutchd.sock", geteuid());
        *strrchr(folder, '/') = '\0';
        if (stat(*folder ? folder : "/", &status) < 0) {
                cut_to_existing(folder);
                if (access(folder, W_OK) == 0)
                        findings_add(findings, "socket", VERDICT_OK, NULL, "%s; its folder will be made", socket);
                else
                        findings_add(findings, "socket", VERDICT_BAD, other, "its folder cannot be made in %s", folder);
                return;
        }

        if (access(socket, F_OK) == 0 && access(socket, R_OK | W_OK) < 0) {
                _cleanup_free_ char *mend = mend_socket(socket);

                findings_add(findings, "socket", VERDICT_BAD, mend, "%s is not for you", socket);
        } else if (access(socket, F_OK) < 0 && access(*folder ? folder : "/", W_OK) < 0) {
                findings_add(findings, "socket", VERDICT_BAD, other, "%s cannot be written to", folder);
        } else {
                findings_add(findings, "socket", VERDICT_OK, NULL, "%s", socket);
        }
}

/* ---- Limits ---- */

static void examine_limit(Findings *findings, const char *check, int resource, rlim_t low, const char *name) {
        _cleanup_(string_builder_clear) StringBuilder mend = {};
        const struct passwd *user = getpwuid(geteuid());
        struct rlimit limit = {};
        bool is_low;

        (void) getrlimit((__rlimit_resource_t) resource, &limit);
        if (limit.rlim_max == RLIM_INFINITY) {
                findings_add(findings, check, VERDICT_OK, NULL, "unlimited");
                return;
        }

        is_low = limit.rlim_max < low;
        /* From the next login on. */
        string_builder_appendf(&mend, "echo '%s - %s %u' > /etc/security/limits.d/hutch-%s.conf",
                               user ? user->pw_name : "*", name, RAISED, name);
        findings_add(findings, check, is_low ? VERDICT_WARNING : VERDICT_OK, is_low ? mend.text : NULL, "%llu at most",
                     (unsigned long long) limit.rlim_max);
}

void examine_kernel(Findings *findings) {
        examine_version(findings);
        examine_namespaces(findings);
        examine_filters(findings);
        examine_limit(findings, "open files", RLIMIT_NOFILE, FILES_LOW, "nofile");
        examine_limit(findings, "processes", RLIMIT_NPROC, PROCESSES_LOW, "nproc");
}

void examine_state(Findings *findings, const char *state) {
        _cleanup_free_ char *existing = xstrdup(state);
        OverlaySupport overlays = { .error = -ENOTSUP };

        cut_to_existing(existing);
        if (can_write(existing))
                overlays = overlay_try(existing);
        examine_cgroups(findings, existing);
        examine_state_folder(findings, existing, &overlays);
        if (overlays.error != -ENOTSUP) /* else the state folder's own check says why nothing was tried */
                examine_overlays(findings, &overlays);
        examine_disk_limits(findings, state, existing);
}
