/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: taking a place, making the cgroup, trying each controller. What does not: which places there are
 * (cgroup-place.c), and what is said where none is to be had (cgroup-reasons.c). */

#include "host/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/cgroup-reasons.h"
#include "host/disk-weights.h"

/* What enforces limits, and a file in a hierarchy of version 1 that would be written for it, with what is no limit. */
static const struct {
        const char *name, *v1_name, *file, *nothing;
        const char *limits[3]; /* ends with NULL */
} controllers[N_HOST_CONTROLLERS] = {
        [HOST_CPU] = { "cpu", "cpu", "cpu.cfs_quota_us", "-1", { "cpu_millis", "cpu_weight" } },
        [HOST_MEMORY] = { "memory", "memory", "memory.limit_in_bytes", "-1", {} }, /* without it keepers measure */
        [HOST_PIDS] = { "pids", "pids", "pids.max", "max", {} }, /* without it keepers have RLIMIT_NPROC */
        [HOST_IO] = { "io", "blkio", "blkio.bfq.weight", "100", { "io_weight" } },
};

/* Finding out, while it goes on. */
typedef struct Search {
        const HostCgroupOptions *options;
        HostCgroups *cgroups;
        CgroupHost host;
        int place_fd; /* -1: there is none */
        bool is_cleared;
        CgroupReason blocked; /* why processes cannot be got out of the way there */
} Search;

const char *host_controller_name(int controller) {
        return controllers[controller].name;
}

/* ---- What there is ---- */

static bool tree_has_controllers(const char *mount) {
        _cleanup_close_ int fd = mount ? open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

        return fd >= 0 &&
               (cgroup_lists(fd, "cgroup.controllers", "memory") || cgroup_lists(fd, "cgroup.controllers", "cpu") ||
                cgroup_lists(fd, "cgroup.controllers", "pids"));
}

/* Hierarchies of version 1 that an ordinary user would have to be given. */
static char *find_v1_mounts(void) {
        StringBuilder builder = {};

        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                _cleanup_free_ char *mounts = cgroup_read_file(AT_FDCWD, "/proc/self/mountinfo"),
                                    *groups = cgroup_read_file(AT_FDCWD, "/proc/self/cgroup"), *mount = NULL,
                                    *own = NULL;

                if (i != HOST_IO && mounts && groups &&
                    cgroup_parse_own(mounts, groups, controllers[i].v1_name, &mount, &own) == 0)
                        string_builder_appendf(&builder, " %s", mount);
        }
        return builder.len > 0 ? string_builder_take(&builder) : NULL;
}

static void look(Search *search) {
        CgroupHost *host = &search->host;
        const struct passwd *user = getpwuid(geteuid());

        (void) cgroup_sight_read("self", &host->sight);
        host->rules = (PlaceRules){
                .is_root = geteuid() == 0,
                .has_systemd = systemd_is_running(),
                .has_controllers = tree_has_controllers(host->sight.mount),
        };
        host->v1_mounts = find_v1_mounts();
        if (user)
                host->user = xstrdup(user->pw_name);
        else if (asprintf(&host->user, "uid %u", geteuid()) < 0)
                abort();
        search->cgroups->has_v1 = host->sight.has_v1;
}

/* ---- The place ---- */

/* Makes @place/hutch-INSTANCE: 1, or finds it: 0. */
static int make_folder(const char *place, const char *instance_id, char **ret_path, int *ret_fd) {
        _cleanup_free_ char *path = NULL;
        int fd, r = 1;

        if (asprintf(&path, "%s/hutch-%s", place, instance_id) < 0)
                abort();
        if (mkdir(path, 0700) < 0)
                r = errno == EEXIST ? 0 : -errno;
        if (r < 0)
                return r;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;

        *ret_path = TAKE_PTR(path);
        *ret_fd = fd;
        return r;
}

/* Whether new cgroups and processes can be put there. */
static int check_place(int place) {
        static const char *const names[] = { ".", "cgroup.procs" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (faccessat(place, names[i], W_OK, AT_EACCESS) < 0)
                        return -errno;
        return 0;
}

static int try_place(Search *search, const char *path) {
        HostCgroups *cgroups = search->cgroups;
        _cleanup_close_ int place = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
        _cleanup_free_ char *parent = NULL;
        int r = place < 0 ? -errno : 0;

        /* Where there are no controllers a cgroup is of use also when processes cannot be moved to it. */
        if (r == 0 && search->host.rules.has_controllers)
                r = check_place(place);
        if (r == 0)
                r = make_folder(path, search->options->instance_id, &parent, &fd);
        if (r >= 0 && parent && faccessat(fd, "cgroup.kill", F_OK, 0) < 0) {
                (void) rmdir(parent);
                r = -EOPNOTSUPP;
        }
        if (r < 0)
                return r;

        cgroups->place = xstrdup(path);
        cgroups->parent = TAKE_PTR(parent);
        cgroups->fd = TAKE_FD(fd);
        search->place_fd = TAKE_FD(place);
        return 0;
}

/* Where the operator has made a leaf for a user's daemon, that is where it stays. */
static bool is_delegated(const CgroupSight *sight) {
        _cleanup_free_ char *above = cgroup_is_in_old_leaf(sight)
                                             ? xstrndup(sight->own, (size_t) (strrchr(sight->own, '/') - sight->own))
                                             : NULL;

        return above && access(above, W_OK) == 0;
}

/* Has systemd make a place. */
static int take_scope(Search *search) {
        CgroupHost *host = &search->host;
        _cleanup_(cgroup_sight_clear) CgroupSight sight = {};
        _cleanup_free_ char *name = NULL, *folder = NULL;
        char pid[16], *end;
        int r;

        host->has_session = !host->rules.is_root && systemd_has_session(&folder);
        if (!host->rules.has_systemd || !host->rules.has_controllers ||
            (!host->rules.is_root && (!host->has_session || is_delegated(&host->sight))))
                return -ENOENT;

        if (asprintf(&name, "hutch-%s.scope", search->options->instance_id) < 0)
                abort();
        r = systemd_scope_take(name, host->rules.is_root, &search->cgroups->scope, &host->scope_error);
        if (r < 0)
                return r;

        /* It may be in the leaf. */
        (void) snprintf(pid, sizeof(pid), "%d", (int) search->cgroups->scope.process);
        r = cgroup_sight_read(pid, &sight);
        end = sight.own ? strstr(sight.own, name) : NULL;
        if (r < 0 || !end)
                return -ENOENT;
        end[strlen(name)] = '\0';
        return try_place(search, sight.own);
}

static void find_place(Search *search) {
        HostCgroups *cgroups = search->cgroups;
        const CgroupSight *sight = &search->host.sight;
        char **places = sight->mount ? cgroup_places(sight, &search->host.rules) : NULL;
        int r = places ? take_scope(search) : -ENOENT;

        for (char **place = places; place && *place && r < 0; place++)
                r = try_place(search, *place);
        if (r < 0) {
                CgroupReason reason = cgroup_reason_no_place(&search->host, sight->own, r);

                cgroups->why = reason.why;
                cgroups->fix = reason.fix;
        }
        (void) strv_free(places);
}

/* ---- Controllers ---- */

/* The root of the whole tree is the one cgroup that may have processes and pass controllers on. */
static bool is_real_root(int place) {
        return faccessat(place, "cgroup.type", F_OK, 0) < 0 && errno == ENOENT;
}

/* Gets processes out of the way in the place, once. */
static int clear_place(Search *search) {
        Bystander bystander = {};
        int r;

        if (search->is_cleared || is_real_root(search->place_fd))
                return 0;
        if (search->blocked.why)
                return -EBUSY;

        r = cgroup_place_clear(search->place_fd, &search->cgroups->moved, &bystander);
        search->is_cleared = r == 0;
        if (r == -EBUSY)
                search->blocked = cgroup_reason_bystander(search->cgroups->place, &bystander);
        return r;
}

/* Has cgroups below the place get the controller. Even one that could be passed on by a cgroup with processes is not:
 * those below could then have no processes but threads. */
static int enable_in_place(Search *search, const char *name) {
        HostCgroups *cgroups = search->cgroups;
        size_t len = strlen(cgroups->enabled);
        char text[16];
        int r;

        if (cgroup_lists(search->place_fd, "cgroup.subtree_control", name))
                return 0;

        r = clear_place(search);
        (void) snprintf(text, sizeof(text), "+%s", name);
        if (r == 0)
                r = cgroup_write_file(search->place_fd, "cgroup.subtree_control", text);
        if (r == 0)
                (void) snprintf(cgroups->enabled + len, sizeof(cgroups->enabled) - len, "-%s ", name);
        return r;
}

/* Has the sandboxes' cgroups get the controller, if the tree of version 2 has it and gives it to the daemon. */
static int enable_controller(Search *search, int i, CgroupReason *ret_reason) {
        HostCgroups *cgroups = search->cgroups;
        const char *name = controllers[i].name;
        char text[16];
        int r;

        if (search->place_fd < 0) {
                *ret_reason = (CgroupReason){ xstrdup(cgroups->why), xstrdup(cgroups->fix) };
                return -ENOENT;
        }
        if (!cgroup_lists(search->place_fd, "cgroup.controllers", name)) {
                _cleanup_free_ char *known = cgroup_read_file(AT_FDCWD, "/proc/cgroups");

                *ret_reason =
                        cgroup_reason_not_given(&search->host, cgroups->place, name, controllers[i].v1_name, known);
                return -ENOENT;
        }

        r = enable_in_place(search, name);
        (void) snprintf(text, sizeof(text), "+%s", name);
        if (r == 0)
                r = cgroup_write_file(cgroups->fd, "cgroup.subtree_control", text);
        if (r == 0)
                cgroups->controllers[i].parent = xstrdup(cgroups->parent);
        else if (search->blocked.why)
                *ret_reason = (CgroupReason){ xstrdup(search->blocked.why), xstrdup(search->blocked.fix) };
        else
                *ret_reason = cgroup_reason_not_enabled(&search->host, cgroups->place, name, r);
        return r;
}

static void set_reason(HostController *controller, CgroupReason reason) {
        free(controller->why);
        free(controller->fix);
        controller->why = reason.why;
        controller->fix = reason.fix;
}

/* Makes a folder for sandboxes in the hierarchy of version 1 that has the controller, and tries it. */
static int make_v1_parent(Search *search, int i) {
        HostController *controller = &search->cgroups->controllers[i];
        _cleanup_free_ char *own = NULL, *parent = NULL;
        _cleanup_close_ int fd = -1;
        int made, r = cgroup_find_v1(controllers[i].v1_name, &own);

        if (r < 0) /* that there is none says nothing about the tree of version 2 */
                return r;

        made = make_folder(own, search->options->instance_id, &parent, &fd);
        r = made < 0 ? made : cgroup_write_file(fd, controllers[i].file, controllers[i].nothing);
        if (r < 0) {
                if (made > 0 && parent)
                        (void) rmdir(parent);
                set_reason(controller, cgroup_reason_no_place(&search->host, own, r));
                return r;
        }

        controller->parent = TAKE_PTR(parent);
        controller->parent_fd = TAKE_FD(fd);
        return 0;
}

static bool find_controller(Search *search, int i) {
        HostController *controller = &search->cgroups->controllers[i];
        CgroupReason reason = {};

        if (i == HOST_IO && !disk_has_weights(search->options->state_folder)) {
                set_reason(
                        controller,
                        (CgroupReason){ xstrdup("the state folder's disk knows no weights: its scheduler is not bfq"),
                                        disk_weights_fix(search->options->state_folder) });
                return false;
        }
        if (enable_controller(search, i, &reason) == 0)
                return true;

        set_reason(controller, reason);
        if (make_v1_parent(search, i) < 0)
                return false;
        set_reason(controller, (CgroupReason){});
        return true;
}

void host_cgroups_find(const HostCgroupOptions *options, HostCgroups *ret_cgroups) {
        Search search = { .options = options, .cgroups = ret_cgroups, .place_fd = -1 };
        size_t n = 0;

        *ret_cgroups = (HostCgroups){ .fd = -1, .probes = options->probes, .scope.anchor = -1 };
        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                ret_cgroups->controllers[i].parent_fd = -1;
        look(&search);
        find_place(&search);
        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                const HostController *controller = &ret_cgroups->controllers[i];

                if (find_controller(&search, i))
                        continue;
                for (const char *const *limit = controllers[i].limits; *limit; limit++)
                        ret_cgroups->unenforced[n++] = (UnenforcedLimit){ *limit, controller->why, controller->fix };
        }

        fd_close(search.place_fd);
        free(search.blocked.why);
        free(search.blocked.fix);
        cgroup_host_clear(&search.host);
}

/* ---- The end ---- */

static void undo(HostCgroups *cgroups) {
        _cleanup_close_ int place = open(cgroups->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (place < 0)
                return;
        if (*cgroups->enabled)
                (void) cgroup_write_file(place, "cgroup.subtree_control", cgroups->enabled);
        cgroup_place_restore(place, &cgroups->moved);
}

void host_cgroups_release(HostCgroups *cgroups) {
        cgroups->fd = fd_close(cgroups->fd);
        /* They go only when no sandbox is left in them. */
        if (cgroups->parent)
                (void) rmdir(cgroups->parent);
        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                HostController *controller = &cgroups->controllers[i];

                if (controller->parent_fd >= 0)
                        (void) rmdir(controller->parent);
                controller->parent_fd = fd_close(controller->parent_fd);
                free(controller->parent);
                free(controller->why);
                free(controller->fix);
        }
        if (cgroups->probes && cgroups->place)
                undo(cgroups);
        systemd_scope_release(&cgroups->scope);
        free(cgroups->moved.pids);
        free(cgroups->parent);
        free(cgroups->place);
        free(cgroups->why);
        free(cgroups->fix);
        *cgroups = (HostCgroups){ .fd = -1, .scope.anchor = -1 };
        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                cgroups->controllers[i].parent_fd = -1;
}
