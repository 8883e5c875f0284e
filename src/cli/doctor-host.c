/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what Hutch needs of the machine, tried rather than looked up where that can be done. What does not:
 * Hutch's own programs (doctor.c). */

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/overlay-try.h"
#include "base/project-quota.h"
#include "base/strings.h"
#include "cli/doctor.h"

#define FREE_SPACE_LOW ((uint64_t) 1 << 30)
#define FILES_LOW 4096
#define PROCESSES_LOW 1024
#define PROJECT_TO_TRY 0x3fffffffu /* nobody's */

/* The first line of a small file; "" when it cannot be read. */
static const char *read_line(const char *path, char *ret_line, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, ret_line, size - 1);

        ret_line[n > 0 ? n : 0] = '\0';
        ret_line[strcspn(ret_line, "\n")] = '\0';
        return ret_line;
}

/* Calls @function in a process of its own, because it changes what cannot be changed back. Returns what it returns: 0
 * or a negative errno. */
static int try_apart(int (*function)(const char *folder), const char *folder) {
        pid_t pid = fork();
        int status;

        if (pid < 0)
                return -errno;
        if (pid == 0)
                _exit(-function(folder));
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
                return -EIO;
        return -WEXITSTATUS(status);
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
                findings_add(findings, "kernel", VERDICT_BAD, "boot a kernel of 5.19 or later", "Linux %s is too old",
                             name.release);
}

static int make_namespaces(const char *folder) {
        enum { ALL = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };

        (void) folder;
        return unshare(ALL | CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

/* What keeps a kernel that has user namespaces from giving them. */
static const char *mend_namespaces(void) {
        static const struct {
                const char *file, *value, *mend;
        } settings[] = {
                { "/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=65536" },
                { "/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1" },
                { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
                  "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
        };
        char line[32];

        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
                if (str_equal(read_line(settings[i].file, line, sizeof(line)), settings[i].value))
                        return settings[i].mend;
        return "run outside of a container, or allow namespaces in it";
}

static void examine_namespaces(Findings *findings) {
        int r = try_apart(make_namespaces, "");

        if (r == 0)
                findings_add(findings, "namespaces", VERDICT_OK, NULL,
                             "user, mount, pid, network, ipc, uts and cgroup");
        else
                findings_add(findings, "namespaces", VERDICT_BAD, mend_namespaces(), "they cannot be made: %s",
                             strerror(-r));
}

static void examine_filters(Findings *findings) {
        unsigned action = SECCOMP_RET_KILL_PROCESS;
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
                findings_add(findings, "seccomp", VERDICT_OK, NULL, "system calls can be filtered");
        else
                findings_add(findings, "seccomp", VERDICT_BAD, "boot a kernel with CONFIG_SECCOMP_FILTER",
                             "system calls cannot be filtered");
        if (abi >= 6)
                findings_add(findings, "landlock", VERDICT_OK, NULL, "ABI %ld", abi);
        else if (abi >= 2)
                findings_add(findings, "landlock", VERDICT_OK, "boot Linux 6.12 or later to have all of it",
                             "ABI %ld: around files%s, not around processes and abstract sockets", abi,
                             abi < 3 ? " (which can be cut off)" : "");
        else if (abi == 1)
                findings_add(findings, "landlock", VERDICT_WARNING, "boot Linux 5.19 or later", "ABI 1: not used");
        else
                findings_add(findings, "landlock", VERDICT_WARNING,
                             "boot with lsm=landlock,… in the kernel's arguments", "it is not there");
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

static void examine_state_folder(Findings *findings, const char *state, const OverlaySupport *overlays) {
        struct statfs info = {};
        struct stat status;
        const char *problem = NULL;

        if (stat(state, &status) < 0 || statfs(state, &info) < 0) {
                findings_add(findings, "state folder", VERDICT_BAD, "export HUTCH_STATE=/a/folder/on/ext4/xfs/or/btrfs",
                             "%s: %s", state, strerror(errno));
                return;
        }

        if (info.f_type == NFS_SUPER_MAGIC || info.f_type == FUSE_SUPER_MAGIC)
                problem = "it is on a network or FUSE file system";
        else if (info.f_type == TMPFS_MAGIC && !kernel_is_at_least(6, 6))
                problem = "it is on a tmpfs, and Linux before 6.6 keeps no attributes there";
        if (problem) {
                findings_add(findings, "state folder", VERDICT_BAD,
                             "HUTCH_STATE=/a/folder/on/ext4/xfs/or/btrfs hutch daemon start", "%s: %s", state, problem);
                return;
        }
        if (!can_write(state))
                findings_add(findings, "state folder", VERDICT_BAD, "export HUTCH_STATE=/a/folder/on/ext4/xfs/or/btrfs",
                             "%s cannot be written to", state);
        else if (overlays->is_there && !overlays->has_changes)
                findings_add(findings, "state folder", VERDICT_WARNING,
                             "HUTCH_STATE=/a/folder/on/ext4/xfs/or/btrfs hutch daemon start; for a container: a volume",
                             "%s: its file system cannot hold changes to the root of sandboxes%s: they are in memory, "
                             "and gone when a sandbox is stopped; home and workspace are kept",
                             state,
                             info.f_type == OVERLAYFS_SUPER_MAGIC ? " (an overlay, as the root of a container is)"
                                                                  : "");
        else if ((uint64_t) info.f_bavail * (uint64_t) info.f_bsize < FREE_SPACE_LOW)
                findings_add(findings, "state folder", VERDICT_WARNING, "make room there",
                             "%s: less than 1 GiB is free", state);
        else
                findings_add(findings, "state folder", VERDICT_OK, NULL, "%s", state);
}

static void examine_overlays(Findings *findings, const OverlaySupport *overlays) {
        if (overlays->error < 0 || !overlays->is_there) {
                findings_add(findings, "overlayfs", VERDICT_BAD,
                             overlays->error < 0 ? "see the checks above this one" : "modprobe overlay",
                             "it cannot be mounted: %s",
                             overlays->error < 0 ? strerror(-overlays->error) : "the kernel does not have it");
                return;
        }
        findings_add(findings, "overlayfs", VERDICT_OK, NULL, "can be mounted in a user namespace");
        if (overlays->has_host_folders)
                findings_add(findings, "host's files", VERDICT_OK, NULL, "sandboxes have inodes of their own");
        else
                findings_add(findings, "host's files", VERDICT_WARNING,
                             "have nothing mounted below /usr, /opt, /bin and /lib: see findmnt",
                             "sandboxes share inodes with the host, see which programs it starts, and cannot have the "
                             "profile 'strict'");
}

/* How a daemon of ours keeps sandboxes within their disk limits there. */
static void examine_disk_limits(Findings *findings, const char *state, const char *existing) {
        static const char commands[] = "truncate -s 100G IMAGE; mkfs.ext4 -O quota,project IMAGE; "
                                       "mount -o loop,prjquota IMAGE ";
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

        string_builder_appendf(&mend, "to have exact limits: %s%s", commands, state);
        findings_add(findings, "disk limits", VERDICT_OK, mend.text,
                     "by measuring: the file system has no quotas of projects");
}

void examine_socket(Findings *findings, const char *socket) {
        _cleanup_free_ char *folder = xstrdup(socket);
        struct stat status;

        *strrchr(folder, '/') = '\0';
        if (stat(*folder ? folder : "/", &status) < 0) {
                cut_to_existing(folder);
                if (access(folder, W_OK) == 0)
                        findings_add(findings, "socket", VERDICT_OK, NULL, "%s; its folder will be made", socket);
                else
                        findings_add(findings, "socket", VERDICT_BAD, "export HUTCH_SOCKET=/a/path",
                                     "its folder cannot be made in %s", folder);
                return;
        }

        if (access(socket, F_OK) == 0 && access(socket, R_OK | W_OK) < 0)
                findings_add(findings, "socket", VERDICT_BAD, "have the operator set socket_group", "%s is not for you",
                             socket);
        else if (access(socket, F_OK) < 0 && access(*folder ? folder : "/", W_OK) < 0)
                findings_add(findings, "socket", VERDICT_BAD, "export HUTCH_SOCKET=/a/path", "%s cannot be written to",
                             folder);
        else
                findings_add(findings, "socket", VERDICT_OK, NULL, "%s", socket);
}

/* ---- Limits ---- */

static void examine_limit(Findings *findings, const char *check, int resource, rlim_t low, const char *mend) {
        struct rlimit limit = {};

        (void) getrlimit((__rlimit_resource_t) resource, &limit);
        if (limit.rlim_max == RLIM_INFINITY)
                findings_add(findings, check, VERDICT_OK, NULL, "unlimited");
        else
                findings_add(findings, check, limit.rlim_max < low ? VERDICT_WARNING : VERDICT_OK,
                             limit.rlim_max < low ? mend : NULL, "%llu at most", (unsigned long long) limit.rlim_max);
}

void examine_kernel(Findings *findings) {
        examine_version(findings);
        examine_namespaces(findings);
        examine_filters(findings);
        examine_limit(findings, "open files", RLIMIT_NOFILE, FILES_LOW,
                      "ulimit -Hn 65536, as root; of a service: LimitNOFILE=65536");
        examine_limit(findings, "processes", RLIMIT_NPROC, PROCESSES_LOW,
                      "ulimit -Hu 65536, as root; of a service: LimitNPROC=65536");
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
