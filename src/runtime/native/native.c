/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the runtime itself, its folders, its table of verbs. What does not: what becomes of one sandbox
 * (sandbox.c). */

#include "runtime/native/native.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/cgroups.h"
#include "host/overlay-try.h"
#include "host/subordinate-ids.h"
#include "host/user-namespaces.h"
#include "model/ids.h"
#include "model/reason.h"
#include "runtime/native/cgroup.h"
#include "runtime/native/disk-quota.h"
#include "runtime/native/execs.h"
#include "runtime/native/keeper-config.h"
#include "runtime/native/sandbox.h"
#include "runtime/native/seccomp-filter.h"
#include "runtime/native/uid-range.h"
#include "runtime/native/usage.h"

#define START_TIMEOUT (30 * NSEC_PER_SEC)
#define ANSWER_TIMEOUT (10 * NSEC_PER_SEC)

/* Once it may make them, it is not tried again. */
static int check_user_namespaces(NativeRuntime *runtime, HutchError *err) {
        int r = runtime->has_namespaces ? 0 : user_namespaces_try(false);
        NamespaceObstacle obstacle;

        runtime->has_namespaces = r == 0;
        if (r == 0)
                return 0;
        if (user_namespaces_find_obstacle("", r, &obstacle))
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE,
                                  "this host does not let hutchd use user namespaces, which sandboxes need: %s is %s; "
                                  "as root run: %s",
                                  obstacle.setting, obstacle.value, obstacle.command);
        return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE,
                          "this host does not let hutchd use user namespaces, which sandboxes need (%s): run 'hutch "
                          "doctor'",
                          strerror(-r));
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

        if (r == 0 && runtime->cgroups.fd >= 0)
                r = list_folder(runtime->cgroups.fd, runtime->sandboxes_fd, callback, user);
        for (int i = 0; r == 0 && i < N_HOST_CONTROLLERS; i++)
                if (runtime->cgroups.controllers[i].parent_fd >= 0)
                        r = list_folder(runtime->cgroups.controllers[i].parent_fd, runtime->sandboxes_fd, callback,
                                        user);
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

/* Finds a place for cgroups, and out which limits can be enforced. Without any sandboxes run nevertheless. */
static void find_cgroups(NativeRuntime *runtime) {
        HostCgroups *cgroups = &runtime->cgroups;

        host_cgroups_find(
                &(HostCgroupOptions){ .instance_id = runtime->instance_id, .state_folder = runtime->sandboxes_fd },
                cgroups);
        if (cgroups->parent)
                log_info("cgroups for sandboxes", LOG_STR("at", cgroups->parent));
        else
                log_warning("no cgroups for sandboxes", LOG_STR("error", cgroups->why), LOG_STR("fix", cgroups->fix));
        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                const HostController *controller = &cgroups->controllers[i];

                if (controller->parent)
                        continue;
                if (i == HOST_PIDS)
                        log_info("processes are limited for each user of a sandbox", LOG_STR("error", controller->why),
                                 LOG_STR("fix", controller->fix));
                else if (i == HOST_MEMORY)
                        log_info("memory is limited by measuring", LOG_STR("error", controller->why),
                                 LOG_STR("fix", controller->fix));
                else
                        log_warning("limits are not enforced", LOG_STR("controller", host_controller_name(i)),
                                    LOG_STR("error", controller->why), LOG_STR("fix", controller->fix));
        }
}

static void on_anchor_ended(void *user, ChildEnd end);

/* Watches the process that keeps the scope of the sandboxes alive, where there is one. */
static void watch_anchor(NativeRuntime *runtime) {
        _cleanup_(error_clear) HutchError err = {};

        if (runtime->cgroups.scope.anchor >= 0 &&
            child_process_watch(runtime->loop, runtime->cgroups.scope.process, on_anchor_ended, runtime,
                                &runtime->anchor, &err) < 0)
                log_warning("the scope of the sandboxes is not watched", LOG_STR("error", error_message(&err)));
}

/* Somebody stopped the scope, and so all sandboxes: the next ones need another. */
static void on_anchor_ended(void *user, ChildEnd end) {
        NativeRuntime *runtime = user;
        char text[64];

        log_warning("the scope of the sandboxes ended; taking another",
                    LOG_STR("how", child_end_text(end, text, sizeof(text))));
        runtime->anchor = child_process_free(runtime->anchor);
        runtime->cgroups.scope.anchor = fd_close(runtime->cgroups.scope.anchor); /* it has been reaped */
        host_cgroups_release(&runtime->cgroups);
        find_cgroups(runtime);
        watch_anchor(runtime);
}

/* Into hierarchies of version 1 processes move, and so does each keeper that has a user of its own into its cgroup. On
 * hosts that have version 2 alone another hierarchy would be seen in everybody's /proc/self/cgroup. */
static void favor_moves(NativeRuntime *runtime) {
        bool moves = runtime->uid_ranges && runtime->cgroups.fd >= 0;

        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                moves = moves || runtime->cgroups.controllers[i].parent_fd >= 0;
        if (moves && runtime->cgroups.has_v1)
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

        if (runtime->cgroups.fd >= 0)
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
        if (!runtime->cgroups.controllers[HOST_MEMORY].parent)
                runtime->features[n++] = "memory-accounting";
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
                .instance_id = xstrdup(options->instance_id),
                .keeper_program = keeper_program_new(options->keeper_program),
                .uid_ranges = options->uid_ranges,
                .sources = options->sources,
                .cgroups = { .fd = -1, .scope.anchor = -1 },
                .sandboxes_fd = -1,
                .favored_moves = -1,
                .start_timeout = options->start_timeout ? options->start_timeout : START_TIMEOUT,
                .answer_timeout = options->answer_timeout ? options->answer_timeout : ANSWER_TIMEOUT,
        };
        runtime->verbs.not_enforced = runtime->cgroups.unenforced;
        runtime->verbs.features = runtime->features;
        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                runtime->cgroups.controllers[i].parent_fd = -1;
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
        find_cgroups(runtime);
        watch_anchor(runtime);
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
        free(runtime->instance_id);
        keeper_program_free(runtime->keeper_program);
        id_map_clear(&runtime->subordinate_ids);
        free(runtime->seccomp_filter);
        free(runtime->keeper_filter);
        free(runtime->entered_filter);
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
        runtime->anchor = child_process_free(runtime->anchor);
        host_cgroups_release(&runtime->cgroups);
        runtime->favored_moves = fd_close(runtime->favored_moves);
        runtime->sandboxes_fd = fd_close(runtime->sandboxes_fd);
        runtime->queue.idle.data = runtime;
        uv_close((uv_handle_t *) &runtime->queue.idle, on_closed);
}
