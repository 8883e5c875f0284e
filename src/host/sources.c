/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules of sources, and opening them by these. What does not: what is done with them (the keeper),
 * where they come to be inside (the api). */

#include "host/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/mountinfo.h"
#include "model/reason.h"
#include "policy/path-rules.h"

#define OWNER_PREFIX "uid:"
#define PASSWD_SIZE 4096

void source_rules_clear(SourceRules *rules) {
        rules->read = strv_free(rules->read);
        rules->write = strv_free(rules->write);
        rules->own = strv_free(rules->own);
        rules->tools = strv_free(rules->tools);
        free(TAKE_PTR(rules->file));
}

static bool is_daemons_user(const char *owner) {
        char own[sizeof(OWNER_PREFIX) + 16];

        (void) snprintf(own, sizeof(own), OWNER_PREFIX "%u", geteuid());
        return owner && (str_equal(owner, own) || str_equal(owner, OWNER_PREFIX "0"));
}

SourceRules source_rules_for(const SourceRules *rules, const char *owner) {
        static char *everything[] = { (char *) "/", NULL };
        SourceRules own = *rules;

        if (!owner || !str_has_prefix(owner, OWNER_PREFIX))
                own.file = NULL;
        if (own.read || !is_daemons_user(owner))
                return own;
        own.read = everything;
        if (!own.write)
                own.write = everything;
        return own;
}

char *source_home(const char *owner) {
        struct passwd entry, *found = NULL;
        char buffer[PASSWD_SIZE], *end;
        unsigned long uid;

        if (!str_has_prefix(owner, OWNER_PREFIX) || !ascii_is_digit(owner[strlen(OWNER_PREFIX)]))
                return NULL;
        uid = strtoul(owner + strlen(OWNER_PREFIX), &end, 10);
        if (*end || getpwuid_r((uid_t) uid, &entry, buffer, sizeof(buffer), &found) != 0 || !found ||
            found->pw_dir[0] != '/')
                return NULL;
        return xstrdup(found->pw_dir);
}

/* What follows @folder in @path, with its slash; NULL: it is not below it, nor the folder itself. */
static const char *rest_below(const char *path, const char *folder) {
        size_t len = strlen(folder);

        while (len > 0 && folder[len - 1] == '/')
                len--;
        return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

static bool is_own(const SourceRules *rules, const char *path) {
        for (char **own = rules->own; own && *own; own++)
                if (rest_below(path, *own) || rest_below(*own, path))
                        return true;
        return false;
}

static int refuse(HutchError *err, const char *source, const char *why) {
        return reason_set(err, -EINVAL, REASON_SOURCE_INVALID, "the source '%s' %s", source, why);
}

static int forbid(HutchError *err, const char *source, const char *why) {
        return reason_set(err, -EACCES, REASON_SOURCE_NOT_ALLOWED, "the source '%s' %s", source, why);
}

static int forbid_folder(HutchError *err, const char *source, SourceUse use, const SourceRules *rules) {
        return reason_set(err, -EACCES, REASON_SOURCE_NOT_ALLOWED,
                          "the source '%s' is in no folder that callers may %s; the operator adds one to %s in %s, and "
                          "restarts hutchd",
                          source, use == SOURCE_WRITE ? "write to" : "read",
                          use == SOURCE_WRITE ? "sources.write" : "sources.read",
                          rules->file ? rules->file : "the daemon's configuration");
}

static int resolve(const char *source, const char *home, char **ret_path, HutchError *err) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        _cleanup_free_ char *below_home = NULL;
        int r;

        if (str_equal(source, "~") || str_has_prefix(source, "~/")) {
                if (!home)
                        return refuse(err, source, "begins with '~', and the caller has no home on this host");
                if (asprintf(&below_home, "%s%s", home, source + 1) < 0)
                        return -ENOMEM;
        }
        r = path_resolve(below_home ? below_home : source, strlen(below_home ? below_home : source), &context, ret_path,
                         NULL, NULL);
        return r == -EINVAL ? refuse(err, source,
                                     "is no path that sources may have: absolute or beginning with '~/', without '..' "
                                     "and control characters")
                            : r;
}

/* Opens @rest below the folder of the operator's. */
static int open_in(const char *folder, const char *rest) {
        struct open_how how = {
                .flags = O_PATH | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        _cleanup_close_ int top = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd;

        if (top < 0)
                return -errno;
        fd = (int) syscall(SYS_openat2, top, rest[strspn(rest, "/")] ? rest + strspn(rest, "/") : ".", &how,
                           sizeof(how));
        return fd < 0 ? -errno : fd;
}

static const char *text_of(int r) {
        switch (r) {
        case -ELOOP:
                return "is a symlink, or leads through one: give the path that it leads to";
        case -ENOENT:
        case -ENOTDIR:
                return "does not exist";
        case -EACCES:
                return "cannot be reached by the daemon's user";
        default:
                return "cannot be opened";
        }
}

/* The first of @folders that @path is in, and where the rest of it begins. */
static const char *find_folder(char **folders, const char *path, const char **ret_rest) {
        for (; folders && *folders; folders++) {
                *ret_rest = rest_below(path, *folders);
                if (*ret_rest)
                        return *folders;
        }
        return NULL;
}

/* What the kernel shows of itself is not for sandboxes: their own view of it is restricted. */
static bool is_of_kernel(int fd) {
        static const unsigned long kinds[] = { PROC_SUPER_MAGIC,    SYSFS_MAGIC,   CGROUP_SUPER_MAGIC,
                                               CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
                                               SECURITYFS_MAGIC,    BPF_FS_MAGIC,  NSFS_MAGIC };
        struct statfs status;

        if (fstatfs(fd, &status) < 0)
                return true;
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
                if ((unsigned long) status.f_type == kinds[i])
                        return true;
        return false;
}

static bool is_kernel_type(const char *type) {
        static const char *const types[] = { "proc",       "sysfs",   "cgroup",     "cgroup2", "debugfs",
                                             "tracefs",    "bpf",     "securityfs", "nsfs",    "configfs",
                                             "efivarfs",   "pstore",  "selinuxfs",  "smackfs", "binfmt_misc",
                                             "resctrl",    "fusectl", "devtmpfs",   "devpts",  "mqueue",
                                             "rpc_pipefs", "nfsd" };

        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
                if (str_equal(type, types[i]))
                        return true;
        return false;
}

/* Refuses a folder in which such a file system is mounted at whatever depth: it would be mounted inside, too. One that
 * another mount hides counts as well. */
static int check_below(int fd, const char *name, HutchError *err) {
        FILE *file = fopen("/proc/self/mountinfo", "re");
        char self[32], path[PATH_MAX];
        size_t size = 0;
        char *line = NULL;
        ssize_t len;
        int r = 0;

        (void) snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        len = readlink(self, path, sizeof(path) - 1);
        if (!file || len <= 0)
                r = refuse(err, name, "cannot be checked for what is mounted in it");
        path[len > 0 ? len : 0] = '\0';
        while (r == 0 && getline(&line, &size, file) > 0) {
                const char *rest = NULL;
                MountInfo mount;

                if (mountinfo_parse(line, &mount) && is_kernel_type(mount.type))
                        rest = rest_below(mount.path, path);
                if (rest)
                        r = reason_set(err, -EINVAL, REASON_SOURCE_INVALID,
                                       "the source '%s' has a file system of the kernel's (%s) in it, at '%s%s'", name,
                                       mount.type, name, rest);
        }
        free(line);
        if (file)
                (void) fclose(file);
        return r;
}

static bool may(int fd, int access) {
        return syscall(SYS_faccessat2, fd, "", access, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

/* Where it is known, the group is the owner's first one: the folder's may be one that its owner is not in. */
static gid_t group_of(const struct stat *status) {
        struct passwd entry, *found = NULL;
        char buffer[PASSWD_SIZE];

        if (getpwuid_r(status->st_uid, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
                return status->st_gid;
        return found->pw_gid;
}

static int check(const Source *source, const char *name, SourceUse use, gid_t *ret_group, HutchError *err) {
        struct stat status;
        int r;

        if (fstat(source->fd, &status) < 0)
                return refuse(err, name, text_of(-errno));
        if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
                return refuse(err, name, "is neither a folder nor a regular file");
        if (is_of_kernel(source->fd))
                return refuse(err, name, "is in a file system of the kernel's");
        r = S_ISDIR(status.st_mode) ? check_below(source->fd, name, err) : 0;
        if (r < 0)
                return r;
        *ret_group = group_of(&status);
        if (!may(source->fd, R_OK) || (use == SOURCE_WRITE && !may(source->fd, W_OK)))
                return forbid(err, name,
                              use == SOURCE_WRITE ? "is not the daemon's user's to write" : "is not its to read");
        /* A sandbox would make files there that are root's, and programs that whoever runs them is root by. */
        if (use == SOURCE_WRITE && geteuid() == 0 && (status.st_uid == 0 || *ret_group == 0))
                return forbid(err, name, "belongs to root: it can be mounted read-only");
        return 0;
}

int source_open(const SourceRules *rules, const char *source, const char *home, SourceUse use, Source *ret_source,
                HutchError *err) {
        _cleanup_(source_close) Source opened = { .fd = -1 };
        const char *folder, *rest = NULL;
        int r = resolve(source, home, &opened.path, err);

        if (r < 0)
                return r;
        folder = find_folder(use == SOURCE_WRITE ? rules->write : rules->read, opened.path, &rest);
        if (!folder)
                return forbid_folder(err, source, use, rules);
        if (is_own(rules, opened.path))
                return forbid(err, source, "has files of the daemon's own in it, or is one");
        opened.fd = open_in(folder, rest);
        if (opened.fd < 0)
                return refuse(err, source, text_of(opened.fd));
        r = check(&opened, source, use, &opened.group, err);
        if (r < 0)
                return r;

        *ret_source = (Source){ .fd = TAKE_FD(opened.fd), .path = TAKE_PTR(opened.path), .group = opened.group };
        return 0;
}

void source_close(Source *source) {
        source->fd = fd_close(source->fd);
        free(TAKE_PTR(source->path));
}
