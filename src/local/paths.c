/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: where the daemon's things are. What does not: what is in them, and how the programs find each other
 * (program.c). */

#include "local/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static char *no_memory(HutchError *err) {
        (void) error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for a path");
        return NULL;
}

static char *copy(const char *path, HutchError *err) {
        char *made = strdup(path);

        return made ? made : no_memory(err);
}

/* @name below the variable's value or, without one, below the home. @instead is what else can be set. */
static char *below(const char *variable, const char *home_folder, const char *name, const char *instead,
                   HutchError *err) {
        const char *folder = getenv(variable), *home = getenv("HOME");
        char *path = NULL;
        int len;

        if (folder && folder[0] == '/') {
                len = asprintf(&path, "%s/%s", folder, name);
        } else if (home && home[0] == '/') {
                len = asprintf(&path, "%s/%s/%s", home, home_folder, name);
        } else {
                (void) error_set(err, -ENOENT, "FIELD_REQUIRED",
                                 "%s or HOME is not set to an absolute path: set it%s%s", variable,
                                 instead ? ", or " : "", instead ? instead : "");
                return NULL;
        }

        return len < 0 ? no_memory(err) : path;
}

/* @path made absolute. */
static char *absolute(const char *path, HutchError *err) {
        _cleanup_free_ char *folder = path[0] == '/' ? NULL : getcwd(NULL, 0);
        char *made = NULL;

        if (path[0] == '\0' || (path[0] != '/' && !folder)) {
                (void) error_set(err, -EINVAL, "PATH_EMPTY", "a path is empty, or there is no current folder");
                return NULL;
        }

        if (asprintf(&made, "%s%s%s", folder ? folder : "", folder ? "/" : "", path) < 0)
                return no_memory(err);
        return made;
}

/* The first of those that is given. */
static const char *first_given(const char *flag, const char *variable, const char *configured) {
        const char *value = getenv(variable);

        if (flag)
                return flag;
        return value && value[0] != '\0' ? value : configured;
}

/* ---- Where the socket of a user other than root is ---- */

static char *path_in(const char *folder, const char *name, HutchError *err) {
        char *path = NULL;

        return asprintf(&path, "%s/%s", folder, name) < 0 ? no_memory(err) : path;
}

/* The folder that XDG_RUNTIME_DIR names. NULL: none, or one of somebody else's, as su and sudo leave it. */
static const char *named_runtime_folder(void) {
        const char *folder = getenv("XDG_RUNTIME_DIR");
        struct stat info;

        if (!folder || folder[0] != '/')
                return NULL;
        return stat(folder, &info) == 0 && info.st_uid != geteuid() ? NULL : folder;
}

/* Whether @folder is one, of this user's, in which nobody else can put anything. */
static bool is_own_folder(const char *folder) {
        struct stat info;

        return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
               (info.st_mode & 022) == 0;
}

/* Makes @folder, below one that everybody may write to. What is there already may have been put there by anybody. It is
 * made by those who look for a daemon, too: while it is missing, somebody else could make it between their look and
 * their connecting. Once it is the user's, the sticky bit of the folder above keeps it. */
static int make_shared_folder(const char *folder, HutchError *err) {
        static const char mend[] = "set XDG_RUNTIME_DIR to a folder of your own, or HUTCH_SOCKET to a path";
        struct stat info;

        if ((mkdir(folder, 0700) < 0 && errno != EEXIST) || lstat(folder, &info) < 0)
                return error_set(err, -errno, "FILE_PERMISSION", "cannot make the folder %s: %s; %s", folder,
                                 strerror(errno), mend);
        if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
                return error_set(err, -EPERM, "FILE_PERMISSION",
                                 "%s is no folder of this user's alone (owner %u, mode %04o): have it removed, or %s",
                                 folder, info.st_uid, info.st_mode & 07777, mend);
        return 0;
}

char *path_of_user_socket(const char *sessions, const char *shared, HutchError *err) {
        const char *named = named_runtime_folder();
        _cleanup_free_ char *session = NULL, *own = NULL;

        if (named)
                return path_in(named, "hutch/hutchd.sock", err);

        if (asprintf(&session, "%s/%u", sessions, geteuid()) < 0 ||
            asprintf(&own, "%s/hutch-%u", shared, geteuid()) < 0)
                return no_memory(err);
        if (is_own_folder(session))
                return path_in(session, "hutch/hutchd.sock", err);
        return make_shared_folder(own, err) < 0 ? NULL : path_in(own, "hutchd.sock", err);
}

char *path_of_socket(const char *flag, const char *configured, HutchError *err) {
        const char *given = first_given(flag, "HUTCH_SOCKET", configured);

        if (given)
                return absolute(given, err);
        if (geteuid() == 0)
                return copy("/run/hutch/hutchd.sock", err);
        return path_of_user_socket("/run/user", "/tmp", err);
}

char *path_of_state(const char *flag, const char *configured, HutchError *err) {
        const char *given = first_given(flag, "HUTCH_STATE", configured);

        if (given)
                return absolute(given, err);
        if (geteuid() == 0)
                return copy("/var/lib/hutch", err);
        return below("XDG_STATE_HOME", ".local/state", "hutch", "HUTCH_STATE", err);
}

char *path_of_configuration(const char *flag, bool *ret_explicit, HutchError *err) {
        const char *given = first_given(flag, "HUTCH_CONFIG", NULL);

        *ret_explicit = given;
        if (given)
                return absolute(given, err);
        if (geteuid() == 0)
                return copy("/etc/hutch/hutchd.yaml", err);
        return below("XDG_CONFIG_HOME", ".config", "hutch/hutchd.yaml", "HUTCH_CONFIG", err);
}

char *path_of_contexts(HutchError *err) {
        return below("XDG_CONFIG_HOME", ".config", "hutch/contexts.json", NULL, err);
}

static int make_folders(char *path) {
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                int r;

                *slash = '\0';
                r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
                *slash = '/';
                if (r < 0)
                        return r;
        }

        return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int make_private_folder(const char *path, HutchError *err) {
        char parts[PATH_MAX];
        struct stat info = {};
        int r = -ENAMETOOLONG;

        if (strlen(path) < sizeof(parts))
                r = make_folders(memcpy(parts, path, strlen(path) + 1));
        if (r == 0 && stat(path, &info) < 0)
                r = -errno;
        if (r < 0)
                return error_set(err, r, "FILE_PERMISSION", "cannot make the folder %s: %s", path, strerror(-r));
        if (!S_ISDIR(info.st_mode))
                return error_set(err, -ENOTDIR, "NOT_A_DIRECTORY", "%s is no folder", path);
        if (info.st_uid != geteuid() || (info.st_mode & 022))
                return error_set(err, -EPERM, "FILE_PERMISSION",
                                 "the folder %s belongs to somebody else, or others may write there", path);
        return 0;
}
