/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the runtime itself, its folders, its table of verbs. What does not: what becomes of one sandbox
 * (sandbox.c). */

#include "runtime/native/native.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/overlay-try.h"
#include "base/strings.h"
#include "base/subordinate-ids.h"
#include "model/ids.h"
#include "model/reason.h"
#include "runtime/native/cgroup.h"
#include "runtime/native/disk-quota.h"
#include "runtime/native/disk-weights.h"
#include "runtime/native/execs.h"
#include "runtime/native/keeper-config.h"
#include "runtime/native/sandbox.h"
#include "runtime/native/seccomp-filter.h"
#include "runtime/native/uid-range.h"
#include "runtime/native/usage.h"

#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define ANSWER_TIMEOUT (10 * NSEC_PER_SEC)

/* Whether the daemon's user may make user namespaces. */
static int try_user_namespace(void) {
        int status;
        pid_t pid = fork();

        if (pid < 0)
                return -errno;
        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? errno : 0);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

/* Once it may, it is not tried again. */
static int check_user_namespaces(NativeRuntime *runtime, HutchError *err) {
        int r = runtime->has_namespaces ? 0 : try_user_namespace();

        runtime->has_namespaces = r == 0;
        if (r < 0)
                return reason_set(
                        err, r, REASON_RUNTIME_UNAVAILABLE,
                        "this host does not let hutchd make user namespaces, which sandboxes need (%s): 'hutch "
                        "doctor' tells why, and what to do",
                        strerror(-r));
        return 0;
}

static int check(Runtime *base, HutchError *err) {
        NativeRuntime *runtime = (NativeRuntime *) base;
        int r;

        r = keeper_program_load(runtime->keeper_program, err);
        if (r < 0)
                return r;
        if (access("/proc/self/ns/user", F_OK) < 0)
                return reason_set(err, -EOPNOTSUPP, REASON_RUNTIME_UNAVAILABLE,
                                  "this kernel has no user namespaces, which sandboxes need");
        if (faccessat(runtime->sandboxes_fd, ".", W_OK, AT_EACCESS) < 0)
                return reason_set(err, -errno, REASON_RUNTIME_UNAVAILABLE, "cannot write to '%s/sandboxes': %s",
                                  runtime->state_folder, strerror(errno));

        return check_user_namespaces(runtime, err);
}

/* Calls @callback with the folders in @folder that are called like sandboxes, and are not in @but (-1: any). */
static int list_folder(int folder, int but, RuntimeFound callback, void *user) {
        int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *entries = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;

        if (!entries) {
                int r = -errno;

                fd_close(fd);
                return r;
        }

        while ((entry = readdir(entries)))
                if (entry->d_type == DT_DIR && id_check(entry->d_name, strlen(entry->d_name), NULL) == 0 &&
                    (but < 0 || faccessat(but, entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW) < 0))
                        callback(entry->d_name, uid_range_slot(folder, entry->d_name), user);
        (void) closedir(entries);
        return 0;
}

static int list(Runtime *base, RuntimeFound callback, void *user, HutchError *err) {
        const NativeRuntime *runtime = (const NativeRuntime *) base;
        int r = list_folder(runtime->sandboxes_fd, -1, callback, user);

        if (r == 0 && runtime->cgroup_fd >= 0)
                r = list_folder(runtime->cgroup_fd, runtime->sandboxes_fd, callback, user);
        for (int i = 0; r == 0 && i < N_NATIVE_CONTROLLERS; i++)
                if (runtime->controllers[i].parent_fd >= 0)
                        r = list_folder(runtime->controllers[i].parent_fd, runtime->sandboxes_fd, callback, user);
        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "cannot list the sandboxes: %s", strerror(-r));

        return 0;
}

/* All that a start acts on is in the keeper's configuration. */
static int get_shape(Runtime *base, const SandboxSpec *spec, uint8_t **ret_shape, size_t *ret_len) {
        static const NativeSources nothing = {};

        if (spec->n_mounts > 0 || spec->n_copies > 0 || spec->tools)
                return -EOPNOTSUPP;

        keeper_config_encode((const NativeRuntime *) base, "", &(RuntimeSpec){ .spec = spec, .owner = "" }, &nothing,
                             ret_shape, ret_len);
        return 0;
}

static void rebind(RuntimeSandbox *base, const RuntimeEvents *events, void *user) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        sandbox->events = events;
        sandbox->user = user;
}

static const RuntimeVerbs verbs = {
        .name = "native",
        .check = check,
        .list = list,
        .get_shape = get_shape,
        .attach = native_sandbox_attach,
        .rebind = rebind,
        .free = native_sandbox_free,
        .start = native_sandbox_start,
        .recover = native_sandbox_recover,
        .stop = native_sandbox_stop,
        .remove = native_sandbox_remove,
        .set_paused = native_sandbox_set_paused,
        .get_usage = usages_get,
        .expect_exec = execs_expect,
        .start_exec = execs_start,
        .cancel_exec = execs_cancel,
        .forget_exec = execs_forget,
        .open_input = native_input_open,
        .free_input = native_input_free,
        .send_input = native_input_send,
        .input_is_writable = native_input_is_writable,
        .close_stdin = native_input_close_stdin,
        .resize = native_input_resize,
        .send_signal = native_input_signal,
        .open_call = native_call_open,
        .free_call = native_call_free,
        .send_call = native_call_send,
        .send_call_taken = native_call_send_taken,
        .call_is_writable = native_call_is_writable,
        .end_call = native_call_end,
        .read_call = native_call_read,
        .open_output = execs_open_output,
        .drop_output = execs_drop_output,
        .follow_output = execs_follow_output,
};

/* Makes a folder that only the daemon can enter. */
static int make_folder(const char *parent, const char *name, int *ret_fd, HutchError *err) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -1;
        int r = 0;

        if (asprintf(&path, "%s/%s", parent, name) < 0)
                abort();
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                r = -errno;
        if (r == 0) {
                fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                r = fd < 0 ? -errno : 0;
        }
        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "cannot make '%s': %s", path, strerror(-r));

        *ret_fd = TAKE_FD(fd);
        return 0;
}

/* The cgroup for sandboxes, of the daemon's own one: a leaf that was made for the daemon is not it, for a cgroup with
 * processes cannot give all controllers to those below. */
static void leave_leaf(char *path) {
        if (str_has_suffix(path, "/hutchd"))
                *strrchr(path, '/') = '\0';
}

/* Finds a place for cgroups. Without one sandboxes run nevertheless. */
static void make_cgroup_parent(NativeRuntime *runtime, const NativeOptions *options) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *parent = NULL, *name = NULL;
        int r = 0;

        if (options->cgroup_parent)
                parent = xstrdup(options->cgroup_parent);
        else
                r = cgroup_find_own(NULL, &parent, &err);
        if (parent && !options->cgroup_parent)
                leave_leaf(parent);
        if (asprintf(&name, "hutch-%s", options->instance_id) < 0)
                abort();
        if (r == 0)
                r = make_folder(parent, name, &runtime->cgroup_fd, &err);
        if (r == 0 && faccessat(runtime->cgroup_fd, "cgroup.kill", F_OK, 0) < 0) {
                runtime->cgroup_fd = fd_close(runtime->cgroup_fd);
                r = reason_set(&err, -EOPNOTSUPP, REASON_RUNTIME_UNAVAILABLE, "'%s' has no cgroup.kill", parent);
        }
        if (r < 0) {
                log_warning("no cgroups for sandboxes", LOG_STR("error", error_message(&err)));
                return;
        }

        if (asprintf(&runtime->cgroup_parent, "%s/%s", parent, name) < 0)
                abort();
}

/* What enforces limits, and a file in a hierarchy of version 1 that would be written for it, with what is no limit. */
static const struct {
        const char *name, *v1_name, *file, *nothing;
        const char *limits[3]; /* ends with NULL */
} controllers[N_NATIVE_CONTROLLERS] = {
        [NATIVE_CPU] = { "cpu", "cpu", "cpu.cfs_quota_us", "-1", { "cpu_millis", "cpu_weight" } },
        [NATIVE_MEMORY] = { "memory", "memory", "memory.limit_in_bytes", "-1", { "memory_bytes" } },
        [NATIVE_PIDS] = { "pids", "pids", "pids.max", "max", {} }, /* without it keepers have RLIMIT_NPROC */
        [NATIVE_IO] = { "io", "blkio", "blkio.bfq.weight", "100", { "io_weight" } },
};

static int write_file(int folder, const char *name, const char *text) {
        _cleanup_close_ int fd = openat(folder, name, O_WRONLY | O_CLOEXEC);

        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* Has the sandboxes' cgroups get the controller, if the tree of version 2 has it and gives it to the daemon. */
static int enable_controller(NativeRuntime *runtime, int i) {
        char text[16];
        int above, r;

        if (runtime->cgroup_fd < 0)
                return -ENOENT;

        (void) snprintf(text, sizeof(text), "+%s", controllers[i].name);
        /* Where this one fails it may have been done before, by who made the daemon's cgroup. */
        above = write_file(runtime->cgroup_fd, "../cgroup.subtree_control", text);
        r = write_file(runtime->cgroup_fd, "cgroup.subtree_control", text);
        if (r == 0)
                runtime->controllers[i].parent = xstrdup(runtime->cgroup_parent);
        /* The cgroup above has processes: as long as it passes on a controller no others may be in those below. */
        if (r == -EOPNOTSUPP && above == 0) {
                text[0] = '-';
                (void) write_file(runtime->cgroup_fd, "../cgroup.subtree_control", text);
        }
        return r;
}

/* Makes a folder for sandboxes in the hierarchy of version 1 that has the controller, and tries it. */
static int make_v1_parent(NativeRuntime *runtime, const char *instance_id, int i, HutchError *err) {
        _cleanup_free_ char *own = NULL, *name = NULL;
        _cleanup_close_ int fd = -1;
        int r = cgroup_find_own(controllers[i].v1_name, &own, err);

        if (asprintf(&name, "hutch-%s", instance_id) < 0)
                abort();
        if (r == 0)
                r = make_folder(own, name, &fd, err);
        if (r < 0)
                return r;

        r = write_file(fd, controllers[i].file, controllers[i].nothing);
        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE, "cannot write %s in '%s/%s': %s",
                                  controllers[i].file, own, name, strerror(-r));
        if (asprintf(&runtime->controllers[i].parent, "%s/%s", own, name) < 0)
                abort();
        runtime->controllers[i].parent_fd = TAKE_FD(fd);
        return 0;
}

/* Finds out which limits can be enforced here, by trying. */
static void find_controllers(NativeRuntime *runtime, const NativeOptions *options) {
        size_t n = 0;

        for (int i = 0; i < N_NATIVE_CONTROLLERS; i++) {
                _cleanup_(error_clear) HutchError err = {};

                if (i == NATIVE_IO && !disk_has_weights(runtime->sandboxes_fd))
                        reason_set(&err, -EOPNOTSUPP, REASON_RUNTIME_UNAVAILABLE,
                                   "the state folder's disk knows no weights: its scheduler is not bfq");
                else if (enable_controller(runtime, i) == 0 ||
                         make_v1_parent(runtime, options->instance_id, i, &err) == 0)
                        continue;
                if (i == NATIVE_PIDS) {
                        log_info("processes are limited for each user of a sandbox",
                                 LOG_STR("error", error_message(&err)));
                        continue;
                }
                log_warning("limits are not enforced", LOG_STR("controller", controllers[i].name),
                            LOG_STR("error", error_message(&err)));
                for (const char *const *limit = controllers[i].limits; *limit; limit++)
                        runtime->not_enforced[n++] = *limit;
        }
}

/* Into hierarchies of version 1 processes move, and so does each keeper that has a user of its own into its cgroup. */
static void favor_moves(NativeRuntime *runtime) {
        bool moves = runtime->uid_ranges && runtime->cgroup_fd >= 0;

        for (int i = 0; i < N_NATIVE_CONTROLLERS; i++)
                moves = moves || runtime->controllers[i].parent_fd >= 0;
        if (moves)
                runtime->favored_moves = cgroup_favor_moves();
}

/* Finds out which ids sandboxes of an ordinary user can have, by trying. With its own alone they run, too. */
static void find_subordinate_ids(NativeRuntime *runtime) {
        _cleanup_(error_clear) HutchError err = {};
        int r = subordinate_ids_find(&runtime->subordinate_ids, &err);

        if (r == 0)
                r = id_map_try(&runtime->subordinate_ids, &err);
        runtime->has_subordinate_ids = r == 0;
        if (r < 0)
                log_warning("sandboxes have one uid only", LOG_STR("error", error_message(&err)));
        else
                log_info("sandboxes have subordinate ids",
                         LOG_UINT("ranges", subordinate_ids_count_slots(&runtime->subordinate_ids.uids)));
}

/* Finds out how disk limits are enforced, which is logged, for it makes a difference to who is limited. */
static void find_disk_quota(NativeRuntime *runtime, const char *instance_id) {
        uint32_t projects = disk_projects_of(instance_id);
        int r = runtime->uid_ranges ? disk_quota_try(runtime->sandboxes_fd, projects) : -EPERM;

        if (r == 0)
                runtime->disk_projects = projects;
        log_info("disk limits", LOG_STR("by", r == 0 ? "quotas of projects" : "measuring"),
                 LOG_STR("error", r == 0 ? NULL : strerror(-r)));
}

/* What there is of Landlock, as keepers take it: from its second version on, and all that the kernel knows. */
static size_t tell_landlock(const char **features) {
        long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        size_t n = 0;

        if (version >= 2)
                features[n++] = "landlock";
        else
                log_warning("this kernel has no Landlock: sandboxes have one wall less");
        if (version >= 3)
                features[n++] = "landlock-truncate";
        if (version >= 6)
                features[n++] = "landlock-scopes";
        return n;
}

/* Finds out which overlays sandboxes can have. Where nothing can be tried, starts tell why. */
static void find_overlays(NativeRuntime *runtime) {
        OverlaySupport support = overlay_try(runtime->state_folder);

        runtime->private_files = support.has_host_folders;
        runtime->root_in_memory = support.is_there && !support.has_changes;
        if (!support.has_host_folders)
                log_warning("sandboxes share inodes with the host: there can be no overlay of its programs",
                            LOG_STR("error", support.error < 0 ? strerror(-support.error) : NULL));
        if (runtime->root_in_memory)
                log_warning("the state folder cannot hold changes to the root of sandboxes: they are in memory, and "
                            "lost when a sandbox is stopped",
                            LOG_STR("folder", runtime->state_folder));
}

/* What there is beyond the least. */
static void tell_features(NativeRuntime *runtime) {
        size_t n = 0;

        if (runtime->cgroup_fd >= 0)
                runtime->features[n++] = "pause";
        if (runtime->uid_ranges || runtime->has_subordinate_ids)
                runtime->features[n++] = "uid-ranges";
        if (runtime->uid_ranges)
                runtime->features[n++] = "own-uid-ranges";
        n += tell_landlock(runtime->features + n);
        runtime->features[n++] = runtime->disk_projects > 0 ? "disk-quota" : "disk-accounting";
        if (runtime->private_files)
                runtime->features[n++] = "private-files";
        if (runtime->root_in_memory)
                runtime->features[n++] = "root-in-memory";
}

static int open_folders(NativeRuntime *runtime, const NativeOptions *options, HutchError *err) {
        _cleanup_free_ char *trash = NULL;
        _cleanup_close_ int trash_fd = -1;
        int r;

        r = make_folder(options->state_folder, "sandboxes", &runtime->sandboxes_fd, err);
        if (r == 0)
                r = make_folder(options->state_folder, "trash", &trash_fd, err);
        if (r == 0)
                r = output_watch_new(runtime->loop, &runtime->outputs, err);
        if (r < 0)
                return r;

        if (asprintf(&trash, "%s/trash", options->state_folder) < 0)
                abort();
        return remover_new(runtime->loop, runtime->nest, trash,
                           runtime->has_subordinate_ids ? &runtime->subordinate_ids : NULL, &runtime->remover, err);
}

int native_runtime_new(uv_loop_t *loop, ChannelHub *hub, const NativeOptions *options, Runtime **ret_runtime,
                       HutchError *err) {
        NativeRuntime *runtime = new0(NativeRuntime, 1);
        int r;

        *runtime = (NativeRuntime){
                .base.verbs = &runtime->verbs,
                .verbs = verbs,
                .loop = loop,
                .last_dropped = clock_realtime_ns(), /* an earlier daemon may have left some */
                .hub = hub,
                .state_folder = xstrdup(options->state_folder),
                .keeper_program = keeper_program_new(options->keeper_program),
                .uid_ranges = options->uid_ranges,
                .sources = options->sources,
                .cgroup_fd = -1,
                .sandboxes_fd = -1,
                .favored_moves = -1,
                .start_timeout = options->start_timeout ? options->start_timeout : START_TIMEOUT,
                .answer_timeout = options->answer_timeout ? options->answer_timeout : ANSWER_TIMEOUT,
        };
        runtime->verbs.not_enforced = runtime->not_enforced;
        runtime->verbs.features = runtime->features;
        for (int i = 0; i < N_NATIVE_CONTROLLERS; i++)
                runtime->controllers[i].parent_fd = -1;
        runtime->nest = keeper_nest_new(loop, runtime->keeper_program);
        task_queue_init(&runtime->queue, loop);
        if (!runtime->uid_ranges)
                find_subordinate_ids(runtime);
        r = seccomp_filter_make(SECCOMP_FILTER_SANDBOX, &runtime->seccomp_filter, &runtime->seccomp_filter_size, err);
        if (r == 0)
                r = seccomp_filter_make(SECCOMP_FILTER_KEEPER, &runtime->keeper_filter, &runtime->keeper_filter_size,
                                        err);
        if (r == 0)
                r = seccomp_filter_make(SECCOMP_FILTER_ENTERED, &runtime->entered_filter, &runtime->entered_filter_size,
                                        err);
        if (r == 0)
                r = open_folders(runtime, options, err);
        if (r < 0) {
                native_runtime_free(&runtime->base, NULL, NULL);
                return r;
        }

        /* That it is not there is told by check(), and it may come to be. */
        (void) keeper_program_load(runtime->keeper_program, NULL);
        make_cgroup_parent(runtime, options);
        find_controllers(runtime, options);
        find_disk_quota(runtime, options->instance_id);
        find_overlays(runtime);
        tell_features(runtime);
        favor_moves(runtime);
        *ret_runtime = &runtime->base;
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        NativeRuntime *runtime = handle->data;
        void (*done)(void *user) = runtime->done;
        void *user = runtime->done_user;

        free(runtime->state_folder);
        keeper_program_free(runtime->keeper_program);
        free(runtime->cgroup_parent);
        id_map_clear(&runtime->subordinate_ids);
        free(runtime->seccomp_filter);
        free(runtime->keeper_filter);
        free(runtime->entered_filter);
        for (int i = 0; i < N_NATIVE_CONTROLLERS; i++)
                free(runtime->controllers[i].parent);
        free(runtime);
        if (done)
                done(user);
}

void native_runtime_free(Runtime *base, void (*done)(void *user), void *user) {
        NativeRuntime *runtime = (NativeRuntime *) base;

        runtime->done = done;
        runtime->done_user = user;
        runtime->remover = remover_free(runtime->remover);
        runtime->nest = keeper_nest_free(runtime->nest);
        runtime->outputs = output_watch_free(runtime->outputs);
        runtime->cgroup_fd = fd_close(runtime->cgroup_fd);
        /* Goes only when no sandbox is left in it. */
        if (runtime->cgroup_parent)
                (void) rmdir(runtime->cgroup_parent);
        for (int i = 0; i < N_NATIVE_CONTROLLERS; i++)
                if (runtime->controllers[i].parent_fd >= 0) {
                        runtime->controllers[i].parent_fd = fd_close(runtime->controllers[i].parent_fd);
                        (void) rmdir(runtime->controllers[i].parent);
                }
        runtime->favored_moves = fd_close(runtime->favored_moves);
        runtime->sandboxes_fd = fd_close(runtime->sandboxes_fd);
        runtime->queue.idle.data = runtime;
        uv_close((uv_handle_t *) &runtime->queue.idle, on_closed);
}
