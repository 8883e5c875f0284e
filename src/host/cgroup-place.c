/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the order in which cgroups are tried, and whom the daemon may move. What does not: making cgroups,
 * and controllers (cgroups.c). */

#include "host/cgroup-place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"

#define ROUNDS_MAX 16 /* of moving processes, which fork meanwhile */

/* ---- Which ---- */

bool cgroup_is_in_old_leaf(const CgroupSight *sight) {
        return sight->own && strlen(sight->own) > strlen(sight->mount) &&
               str_has_suffix(sight->own, "/" CGROUP_OLD_LEAF);
}

static bool is_unit(const char *name, size_t len) {
        static const char *const kinds[] = { ".scope", ".service", ".slice" };

        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                size_t kind_len = strlen(kinds[i]);

                if (len > kind_len && strncmp(name + len - kind_len, kinds[i], kind_len) == 0)
                        return true;
        }
        return false;
}

/* How much of @own is the folder of the innermost unit of systemd on the way from @mount_len on. What is above belongs
 * to systemd, who takes controllers away there as it likes. */
static size_t find_unit(const char *own, size_t mount_len) {
        size_t found = mount_len;

        for (const char *name = own + mount_len; *name;) {
                size_t len;

                name += *name == '/';
                len = strcspn(name, "/");
                if (is_unit(name, len))
                        found = (size_t) (name + len - own);
                name += len;
        }
        return found;
}

char **cgroup_places(const CgroupSight *sight, const PlaceRules *rules) {
        size_t mount_len = strlen(sight->mount), own_len = strlen(sight->own), n = 0, at = mount_len;
        char **list = new0(char *, own_len - mount_len + 2);

        if (!rules->has_controllers) {
                if (cgroup_is_in_old_leaf(sight))
                        own_len -= strlen("/" CGROUP_OLD_LEAF);
                list[0] = xstrndup(sight->own, own_len);
                return list;
        }

        if (!rules->is_root && rules->has_systemd)
                at = find_unit(sight->own, mount_len);
        for (;;) {
                list[n++] = xstrndup(sight->own, at);
                if (at >= own_len)
                        return list;
                at += 1 + strcspn(sight->own + at + 1, "/");
        }
}

/* ---- Whom to move ---- */

static pid_t parent_of(pid_t pid) {
        char path[64];
        _cleanup_free_ char *text = NULL;
        const char *rest;

        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        text = cgroup_read_file(AT_FDCWD, path);
        /* PID (NAME) STATE PARENT …, and the name may be anything. */
        rest = text ? strrchr(text, ')') : NULL;
        return rest && strlen(rest) > 4 ? (pid_t) strtol(rest + 4, NULL, 10) : 0;
}

/* Whether it is a program of Hutch, of our user. A keeper runs from a copy in memory. */
static bool is_program(pid_t pid) {
        static const char *const names[] = { "hutch", "hutchd", "hutch-keeper", "memfd:hutch-keeper" };
        char path[64], program[PATH_MAX], *name;
        struct stat status;
        ssize_t len;

        (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
        if (stat(path, &status) < 0 || status.st_uid != geteuid())
                return false;
        (void) snprintf(path, sizeof(path), "/proc/%d/exe", (int) pid);
        len = readlink(path, program, sizeof(program) - 1);
        if (len <= 0)
                return false;

        program[len] = '\0';
        if (str_has_suffix(program, " (deleted)"))
                program[len - (ssize_t) strlen(" (deleted)")] = '\0';
        name = strrchr(program, '/');
        for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
                if (str_equal(name + 1, names[i]))
                        return true;
        return false;
}

static bool is_ours(pid_t pid) {
        return pid == getpid() || (pid > 0 && parent_of(pid) == getpid()) || is_program(pid);
}

static void name_bystander(pid_t pid, Bystander *ret_bystander) {
        char path[64];
        _cleanup_free_ char *name = NULL;

        (void) snprintf(path, sizeof(path), "/proc/%d/comm", (int) pid);
        name = cgroup_read_file(AT_FDCWD, path);
        if (name)
                name[strcspn(name, "\n")] = '\0';
        *ret_bystander = (Bystander){ .pid = pid };
        (void) snprintf(ret_bystander->name, sizeof(ret_bystander->name), "%s", name ? name : "?");
        str_make_printable(ret_bystander->name);
}

static int move(int place, const char *folder, pid_t pid) {
        char path[64], text[16];

        (void) snprintf(path, sizeof(path), "%scgroup.procs", folder);
        (void) snprintf(text, sizeof(text), "%d", (int) pid);
        return cgroup_write_file(place, path, text);
}

static int move_to_leaf(int place, MovedProcesses *moved, pid_t pid) {
        int r;

        if (mkdirat(place, CGROUP_LEAF, 0755) < 0 && errno != EEXIST)
                return -errno;
        r = move(place, CGROUP_LEAF "/", pid);
        if (r == -ESRCH)
                return 0;
        if (r < 0)
                return r;

        moved->pids = xreallocarray(moved->pids, moved->n + 1, sizeof(moved->pids[0]));
        moved->pids[moved->n++] = pid;
        return 0;
}

/* Finds somebody in a list of pids whom the daemon may not move. Whoever is gone meanwhile is nobody. */
static bool find_bystander(const char *pids, Bystander *ret_bystander) {
        for (const char *line = pids; *line; line += strcspn(line, "\n"), line += *line == '\n') {
                pid_t pid = (pid_t) strtol(line, NULL, 10);

                if (is_ours(pid) || (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH))
                        continue;
                name_bystander(pid, ret_bystander);
                return true;
        }
        return false;
}

/* Moves all that are in it now, unless one of them may not be moved. 1: there were some. */
static int clear_once(int place, MovedProcesses *moved, Bystander *ret_bystander) {
        _cleanup_free_ char *pids = cgroup_read_file(place, "cgroup.procs");

        if (!pids)
                return -errno;
        if (find_bystander(pids, ret_bystander))
                return -EBUSY;

        for (const char *line = pids; *line; line += strcspn(line, "\n"), line += *line == '\n') {
                int r = move_to_leaf(place, moved, (pid_t) strtol(line, NULL, 10));

                if (r < 0)
                        return r;
        }
        return *pids != '\0';
}

int cgroup_place_clear(int place, MovedProcesses *moved, Bystander *ret_bystander) {
        int r = 1;

        for (int i = 0; r > 0 && i < ROUNDS_MAX; i++)
                r = clear_once(place, moved, ret_bystander);
        return r > 0 ? -EAGAIN : r;
}

void cgroup_place_restore(int place, MovedProcesses *moved) {
        for (size_t i = 0; i < moved->n; i++)
                (void) move(place, "", moved->pids[i]);
        (void) unlinkat(place, CGROUP_LEAF, AT_REMOVEDIR);
        free(moved->pids);
        *moved = (MovedProcesses){};
}
