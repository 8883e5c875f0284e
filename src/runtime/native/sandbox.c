/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how a sandbox gets from one phase to the next, and what is told then. What does not: its execs
 * (execs.c), processes, connections and cgroups as such. */

#include "runtime/native/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "model/reason.h"
#include "runtime/native/cgroup.h"
#include "runtime/native/disk-quota.h"
#include "runtime/native/execs.h"
#include "runtime/native/keeper-config.h"
#include "runtime/native/keeper-messages.h"
#include "runtime/native/keeper-process.h"
#include "runtime/native/usage.h"

#define PROTOCOL_VERSION 1
#define CLEAN_TIMEOUT_MS 10000
#define REMOVE_TIMEOUT_MS                                                                                              \
        300000 /* the same where nobody waits for it: on a busy host the killed take their time to die */
#define CLEAN_PAUSE_MAX_MS 100
#define CONNECT_PAUSE_MIN_MS 10
#define CONNECT_PAUSE_MAX_MS 1000
#define PAUSE_TIMEOUT (30 * NSEC_PER_SEC) /* to freeze everything */
#define LAST_WORDS_MAX 512

#define STATE(name) HUTCH__KEEPER__V1__KEEPER_STATE__KEEPER_STATE_##name

static void clean(NativeSandbox *sandbox);
static void on_timer(uv_timer_t *timer);

void sandbox_wake(NativeSandbox *sandbox) {
        task_queue_add(&sandbox->runtime->queue, &sandbox->task);
}

static void set_goal(NativeSandbox *sandbox, Goal goal) {
        sandbox->goal = goal;
        sandbox->goal_is_new = true;
        sandbox_wake(sandbox);
}

static void arm(NativeSandbox *sandbox, uint64_t pause_ms) {
        (void) uv_timer_start(&sandbox->timer, on_timer, pause_ms, 0);
}

static void disarm(NativeSandbox *sandbox) {
        (void) uv_timer_stop(&sandbox->timer);
}

static uint64_t to_ms(uint64_t nanoseconds) {
        return nanoseconds / NSEC_PER_MSEC;
}

static uint64_t now_ms(const NativeSandbox *sandbox) {
        return uv_now(sandbox->runtime->loop);
}

/* The next pause of a row of tries: it doubles. */
static uint64_t next_pause(NativeSandbox *sandbox, uint64_t first, uint64_t max) {
        uint64_t pause = sandbox->pause_ms == 0 ? first : sandbox->pause_ms * 2;

        sandbox->pause_ms = pause < max ? pause : max;
        return sandbox->pause_ms;
}

/* Opens the folder of the sandbox. */
static int open_folder(const NativeSandbox *sandbox) {
        int fd = openat(sandbox->runtime->sandboxes_fd, sandbox->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

static int make_folder(const NativeSandbox *sandbox, HutchError *err) {
        _cleanup_close_ int fd = -1;
        int r = 0;

        if (mkdirat(sandbox->runtime->sandboxes_fd, sandbox->id, 0700) < 0 && errno != EEXIST)
                r = -errno;
        if (r == 0)
                r = fd = open_folder(sandbox);
        if (r < 0)
                return reason_set(err, r, r == -ENOSPC || r == -EDQUOT ? REASON_DISK_FULL : REASON_RUNTIME_UNAVAILABLE,
                                  "cannot make the folder of the sandbox: %s", strerror(-r));

        FAILPOINT("native.start.folder");
        return TAKE_FD(fd);
}

static void drop_client(NativeSandbox *sandbox) {
        sandbox->client = keeper_client_free(sandbox->client);
        sandbox->described = false;
        sandbox->pause_is_asked = false;
        execs_disconnect(sandbox);
        usages_fail(sandbox, true);
}

/* The keeper is to be gone; then everything it left is. */
static void end_keeper(NativeSandbox *sandbox) {
        drop_client(sandbox);
        if (!sandbox->keeper) {
                clean(sandbox);
                return;
        }

        sandbox->phase = PHASE_ENDING;
        sandbox->killed = true;
        child_process_kill(sandbox->keeper);
        arm(sandbox, to_ms(sandbox->runtime->answer_timeout));
}

/* What is wanted cannot be had: that is to be told. */
static void give_up_goal(NativeSandbox *sandbox) {
        if (sandbox->goal == GOAL_NONE || sandbox->goal == GOAL_RECOVER)
                sandbox->goal = GOAL_LOST;
        /* A keeper of an earlier start is merely in the way of this one. */
        else if (sandbox->goal == GOAL_START && sandbox->spawned)
                sandbox->goal = GOAL_START_FAILED;
}

/* Gives up, because of @err; NULL: the keeper is gone, and how is told by its end. */
static void fail(NativeSandbox *sandbox, const HutchError *err) {
        give_up_goal(sandbox);
        if (err && !sandbox->error.error)
                (void) error_set_code(&sandbox->error, err->code, -err->error, err->reason, "%s", error_message(err));
        end_keeper(sandbox);
}

static void fail_unavailable(NativeSandbox *sandbox, const char *why) {
        _cleanup_(error_clear) HutchError err = {};

        (void) reason_set(&err, -EIO, REASON_KEEPER_UNAVAILABLE, "%s", why);
        fail(sandbox, &err);
}

static void on_keeper_ended(void *user, ChildEnd end) {
        NativeSandbox *sandbox = user;
        char text[64];

        sandbox->keeper = child_process_free(sandbox->keeper);
        (void) child_end_text(end, text, sizeof(text));
        log_debug("keeper ended", LOG_STR("sandbox", sandbox->id), LOG_STR("how", text));
        if (!sandbox->error.error)
                (void) reason_set(&sandbox->error, -EIO, REASON_KEEPER_UNAVAILABLE,
                                  "the keeper of the sandbox %s unexpectedly", text);

        give_up_goal(sandbox);
        if (!sandbox->client) {
                clean(sandbox);
                return;
        }

        /* What it said at last is still to be read, and then that it is gone. */
        sandbox->phase = PHASE_ENDING;
        arm(sandbox, to_ms(sandbox->runtime->answer_timeout));
}

static void on_shut_down(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        NativeSandbox *sandbox = user;

        (void) reply;
        if (sandbox->phase != PHASE_SHUTTING)
                return;

        FAILPOINT("native.stop.answered");
        if (err) {
                log_warning("keeper does not shut down", LOG_STR("sandbox", sandbox->id),
                            LOG_STR("error", error_message(err)));
                end_keeper(sandbox);
                return;
        }

        sandbox->phase = PHASE_ENDING;
        arm(sandbox, to_ms(sandbox->runtime->answer_timeout));
}

/* Has the keeper end everything and then itself. */
static void shut_down(NativeSandbox *sandbox, uint64_t grace) {
        Hutch__Keeper__V1__ShutdownRequest request = HUTCH__KEEPER__V1__SHUTDOWN_REQUEST__INIT;
        Google__Protobuf__Duration duration = keeper_duration_of(grace);

        sandbox->phase = PHASE_SHUTTING;
        sandbox->killed = false;
        disarm(sandbox);
        request.grace = &duration;
        keeper_client_call(sandbox->client, "Shutdown", &request.base,
                           &hutch__keeper__v1__shutdown_response__descriptor, grace, on_shut_down, sandbox);
        FAILPOINT("native.stop.sent");
}

static void on_paused(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        NativeSandbox *sandbox = user;

        (void) reply;
        sandbox->pause_is_asked = sandbox->pausing = false;
        if (err)
                sandbox->events->pause_failed(sandbox->user, err);
        else
                sandbox->events->pause_done(sandbox->user, sandbox->paused);
}

/* There is nothing to pause. */
static void fail_pause(NativeSandbox *sandbox) {
        _cleanup_(error_clear) HutchError err = {};

        sandbox->pausing = false;
        (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "the sandbox does not run");
        sandbox->events->pause_failed(sandbox->user, &err);
}

/* Asks for what set_paused() wants, as soon as the keeper can be asked. */
static void sync_paused(NativeSandbox *sandbox) {
        Hutch__Keeper__V1__SetPausedRequest request = HUTCH__KEEPER__V1__SET_PAUSED_REQUEST__INIT;

        if (!sandbox->pausing || sandbox->pause_is_asked || !sandbox_is_connected(sandbox))
                return;

        sandbox->pause_is_asked = true;
        request.paused = sandbox->paused;
        keeper_client_call(sandbox->client, "SetPaused", &request.base,
                           &hutch__keeper__v1__set_paused_response__descriptor, PAUSE_TIMEOUT, on_paused, sandbox);
        FAILPOINT("native.pause.sent");
}

/* The sandbox runs, and all is told that was to be told before. */
static void set_running(NativeSandbox *sandbox) {
        bool tell = sandbox->goal == GOAL_START || sandbox->goal == GOAL_RECOVER;

        sandbox->phase = PHASE_RUNNING;
        sandbox->running_since = now_ms(sandbox);
        disarm(sandbox);
        error_clear(&sandbox->error);
        execs_sync(sandbox);
        sync_paused(sandbox);
        native_inputs_tell_broken(sandbox);
        if (!tell)
                return;

        FAILPOINT("native.start.running");
        sandbox->goal = GOAL_NONE;
        sandbox->events->started(sandbox->user);
        if (!sandbox->freed)
                execs_end_spared(sandbox);
}

/* Acts on the state that the keeper is in. */
static void settle(NativeSandbox *sandbox) {
        if (sandbox->phase != PHASE_CONNECTING && sandbox->phase != PHASE_RUNNING)
                return;

        switch (sandbox->state) {
        case STATE(RUNNING):
        case STATE(PAUSED):
                if (sandbox->described && sandbox->phase == PHASE_CONNECTING)
                        set_running(sandbox);
                return;
        case STATE(FAILED):
                sandbox->goal = sandbox->goal == GOAL_START ? GOAL_START_FAILED : GOAL_LOST;
                shut_down(sandbox, 0);
                return;
        case STATE(STOPPING):
                fail_unavailable(sandbox, "the sandbox is being ended by its keeper");
                return;
        default:
                return;
        }
}

/* The keeper says how the sandbox is. What is older than what it said before is not news. */
static void take_state(NativeSandbox *sandbox, Hutch__Keeper__V1__KeeperState state, const KeeperFailure *failure) {
        if (state == STATE(UNSPECIFIED) || (state == STATE(STARTING) && sandbox->state != STATE(UNSPECIFIED)))
                return;

        sandbox->state = state;
        if (state == STATE(FAILED) && !sandbox->error.error)
                keeper_failure(failure, &sandbox->error);
}

static void on_described(void *user, const Hutch__Keeper__V1__DescribeResponse *all) {
        NativeSandbox *sandbox = user;

        FAILPOINT("native.start.watched");
        if (!str_equal(all->sandbox_id, sandbox->id) || all->protocol_version > PROTOCOL_VERSION) {
                fail_unavailable(sandbox, "the keeper is not one that this daemon can work with");
                return;
        }

        sandbox->described = true;
        take_state(sandbox, all->state, all->failure);
        execs_take_all(sandbox, all->execs, all->n_execs);
        if (!sandbox->freed)
                settle(sandbox);
}

static void on_happened(void *user, const Hutch__Keeper__V1__WatchKeeperResponse *what) {
        NativeSandbox *sandbox = user;

        switch (what->item_case) {
        case HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_STATE:
                take_state(sandbox, what->state->state, what->state->failure);
                settle(sandbox);
                return;
        case HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_EXEC:
                execs_take(sandbox, what->exec);
                return;
        case HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_LIMIT_HIT:
                limit_hits_take(sandbox, what->limit_hit);
                return;
        default:
                return;
        }
}

static void on_broken(void *user, const HutchError *err) {
        NativeSandbox *sandbox = user;
        uint64_t pause;

        log_debug("connection to keeper broken", LOG_STR("sandbox", sandbox->id), LOG_STR("error", error_message(err)));
        drop_client(sandbox);
        if (sandbox->freed)
                return;

        switch (sandbox->phase) {
        case PHASE_RUNNING:
                /* A keeper that breaks one connection after the other is not to keep the daemon busy. */
                if (now_ms(sandbox) - sandbox->running_since >= CONNECT_PAUSE_MAX_MS)
                        sandbox->pause_ms = 0;
                pause = next_pause(sandbox, CONNECT_PAUSE_MIN_MS, CONNECT_PAUSE_MAX_MS);
                sandbox->deadline = now_ms(sandbox) + pause + to_ms(sandbox->runtime->answer_timeout);
                sandbox->phase = PHASE_CONNECTING;
                arm(sandbox, pause);
                return;
        case PHASE_CONNECTING:
                if (now_ms(sandbox) >= sandbox->deadline)
                        fail(sandbox, err);
                else
                        arm(sandbox, next_pause(sandbox, CONNECT_PAUSE_MIN_MS, CONNECT_PAUSE_MAX_MS));
                return;
        case PHASE_SHUTTING:
                end_keeper(sandbox);
                return;
        case PHASE_ENDING:
                if (!sandbox->keeper)
                        clean(sandbox);
                return;
        default:
                return;
        }
}

static const KeeperClientEvents client_events = {
        .described = on_described,
        .happened = on_happened,
        .broken = on_broken,
};

/* Begins to speak to the keeper whose socket @socket_path is, which is taken over. It may be about to start. */
static int open_client(NativeSandbox *sandbox, int socket_path) {
        const NativeRuntime *runtime = sandbox->runtime;
        _cleanup_(error_clear) HutchError err = {};
        int r;

        sandbox->state = STATE(UNSPECIFIED);
        r = keeper_client_new(runtime->hub, socket_path, runtime->answer_timeout, runtime->start_timeout,
                              &client_events, sandbox, &sandbox->client, &err);
        if (r < 0)
                return r;

        sandbox->phase = PHASE_CONNECTING;
        return 0;
}

/* Connects to a keeper that is there. -ECONNREFUSED, -ENOENT: there is none. */
static int find_keeper(NativeSandbox *sandbox) {
        _cleanup_close_ int folder = open_folder(sandbox), socket_path = -1, pidfd = -1;

        if (folder < 0)
                return folder;
        socket_path = keeper_process_find(folder, &pidfd);
        if (socket_path < 0)
                return socket_path;

        /* Without this its end shows by the connection alone. */
        if (pidfd >= 0 && !sandbox->keeper)
                (void) child_process_adopt(sandbox->runtime->loop, TAKE_FD(pidfd), on_keeper_ended, sandbox,
                                           &sandbox->keeper);
        return open_client(sandbox, TAKE_FD(socket_path));
}

static bool is_gone(int r) {
        return r == -ECONNREFUSED || r == -ENOENT || r == -ENOTDIR;
}

/* Tries once more to connect: it is CONNECTING, without a connection. */
static void try_connect(NativeSandbox *sandbox) {
        int r = find_keeper(sandbox);
        uint64_t now = now_ms(sandbox);

        if (r == 0) {
                arm(sandbox, sandbox->deadline > now ? sandbox->deadline - now : 0);
        } else if (is_gone(r)) {
                fail(sandbox, NULL);
        } else if (sandbox->goal == GOAL_START) {
                sandbox->goal = GOAL_START_FAILED;
                (void) reason_set(&sandbox->error, r, REASON_HOST_EXHAUSTED, "cannot look for the keeper: %s",
                                  strerror(-r));
                end_keeper(sandbox);
        } else {
                /* A daemon that is short of something must not take its sandboxes for dead. */
                log_warning("keeper cannot be reached", LOG_STR("sandbox", sandbox->id),
                            LOG_STR("error", strerror(-r)));
                sandbox->phase = PHASE_CONNECTING;
                sandbox->deadline = now + to_ms(sandbox->runtime->answer_timeout);
                arm(sandbox, next_pause(sandbox, CONNECT_PAUSE_MIN_MS, CONNECT_PAUSE_MAX_MS));
        }
}

/* Starts a keeper: nothing is left of an earlier one. */
static void spawn(NativeSandbox *sandbox) {
        NativeRuntime *runtime = sandbox->runtime;
        _cleanup_close_ int folder = -1;
        int r;

        error_clear(&sandbox->error);
        sandbox->spawned = true;
        sandbox->killed = false;
        sandbox->error = sandbox->source_error;
        sandbox->source_error = (HutchError){};
        r = sandbox->error.reason[0] ? -EINVAL : 0;
        if (r >= 0)
                folder = r = make_folder(sandbox, &sandbox->error);
        if (r >= 0)
                r = keeper_process_spawn(runtime->nest, folder,
                                         &(KeeperStart){ sandbox->config, sandbox->config_len, &sandbox->sources },
                                         on_keeper_ended, sandbox, &sandbox->keeper, &sandbox->error);
        native_sources_clear(&sandbox->sources);
        if (r >= 0) {
                r = keeper_process_open_socket(folder);
                r = r < 0 ? r : open_client(sandbox, r);
                if (r < 0)
                        (void) reason_set(&sandbox->error, r, REASON_HOST_EXHAUSTED, "cannot speak to the keeper: %s",
                                          strerror(-r));
        }
        if (r < 0) {
                fail(sandbox, NULL);
                return;
        }

        if (sandbox->expected_user)
                execs_expect_start(sandbox);
        sandbox->pause_ms = 0;
        sandbox->deadline = now_ms(sandbox) + to_ms(runtime->start_timeout);
        arm(sandbox, to_ms(runtime->start_timeout));
}

static void on_files_gone(void *user);

/* Moves the files out of the way and has them removed. */
static void remove_files(NativeSandbox *sandbox) {
        const NativeRuntime *runtime = sandbox->runtime;
        int trash = remover_folder(runtime->remover);

        sandbox->phase = PHASE_REMOVING;
        if (runtime->disk_projects > 0)
                disk_quota_forget(runtime->sandboxes_fd, sandbox->id, runtime->disk_projects);
        if (renameat2(runtime->sandboxes_fd, sandbox->id, trash, sandbox->id, RENAME_NOREPLACE) < 0 &&
            errno != ENOENT && errno != EEXIST) {
                log_warning("sandbox's files cannot be moved away", LOG_STR("sandbox", sandbox->id),
                            LOG_STR("error", strerror(errno)));
                arm(sandbox, next_pause(sandbox, CONNECT_PAUSE_MAX_MS, CLEAN_TIMEOUT_MS));
                return;
        }

        FAILPOINT("native.remove.moved");
        if (faccessat(trash, sandbox->id, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
                on_files_gone(sandbox);
        else
                remover_add(runtime->remover, sandbox->id, on_files_gone, sandbox);
}

static void on_files_gone(void *user) {
        NativeSandbox *sandbox = user;

        /* What was in the trash may have been of an earlier try. */
        if (faccessat(sandbox->runtime->sandboxes_fd, sandbox->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
                remove_files(sandbox);
                return;
        }

        FAILPOINT("native.remove.done");
        sandbox->phase = PHASE_IDLE;
        sandbox->goal = GOAL_NONE;
        sandbox->events->removed(sandbox->user);
}

/* Logs why it ended, with what the keeper said last, which is for operators only. */
static void log_end(const NativeSandbox *sandbox) {
        _cleanup_close_ int folder = open_folder(sandbox);
        char words[LAST_WORDS_MAX] = "";

        if (folder >= 0)
                keeper_process_last_words(folder, words, sizeof(words));
        log_warning("sandbox ended", LOG_STR("sandbox", sandbox->id), LOG_STR("error", error_message(&sandbox->error)),
                    LOG_STR("keeper", *words ? words : NULL));
}

/* Nothing of it runs any more. Goes on with what is wanted. */
static void set_clean(NativeSandbox *sandbox) {
        _cleanup_(error_clear) HutchError err = {};
        Goal goal = sandbox->goal;

        disarm(sandbox);
        sandbox->phase = PHASE_IDLE;
        sandbox->pause_ms = 0;
        sandbox->pausing = false;
        if (goal == GOAL_START) {
                spawn(sandbox);
                return;
        }
        if (goal == GOAL_REMOVE) {
                remove_files(sandbox);
                return;
        }

        sandbox->goal = GOAL_NONE;
        if (!sandbox->error.error)
                (void) reason_set(&sandbox->error, -EIO, REASON_KEEPER_UNAVAILABLE,
                                  "the keeper of the sandbox is gone");
        if (goal == GOAL_LOST || goal == GOAL_START_FAILED)
                log_end(sandbox);
        err = sandbox->error;
        sandbox->error = (HutchError){};

        if (goal == GOAL_STOP)
                sandbox->events->stopped(sandbox->user);
        else if (goal == GOAL_START_FAILED)
                sandbox->events->start_failed(sandbox->user, &err);
        else
                sandbox->events->lost(sandbox->user, &err);
}

/* Removes all cgroups of the sandbox. Killing what is in the first of them empties the others. */
static int remove_cgroups(const NativeRuntime *runtime, const char *id) {
        int r = runtime->cgroups.fd < 0 ? 0 : cgroup_remove(runtime->cgroups.fd, id);

        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                int fd = runtime->cgroups.controllers[i].parent_fd, one = fd < 0 ? 0 : cgroup_remove(fd, id);

                r = r < 0 ? r : one;
        }
        return r;
}

static void try_clean(NativeSandbox *sandbox) {
        int r = remove_cgroups(sandbox->runtime, sandbox->id);
        uint64_t more = sandbox->goal == GOAL_REMOVE ? REMOVE_TIMEOUT_MS - CLEAN_TIMEOUT_MS : 0;
        _cleanup_close_ int folder = -1;

        if (r < 0 && now_ms(sandbox) < sandbox->deadline + more) {
                arm(sandbox, next_pause(sandbox, 1, CLEAN_PAUSE_MAX_MS));
                return;
        }
        if (r < 0)
                log_error("cgroup of a sandbox cannot be removed", LOG_STR("sandbox", sandbox->id),
                          LOG_STR("error", strerror(-r)));

        folder = open_folder(sandbox);
        if (folder >= 0)
                (void) unlinkat(folder, KEEPER_SOCKET, 0);
        FAILPOINT("native.clean.done");
        set_clean(sandbox);
}

/* Ends and removes all that a keeper left, which is gone. */
static void clean(NativeSandbox *sandbox) {
        sandbox->phase = PHASE_CLEANING;
        sandbox->deadline = now_ms(sandbox) + CLEAN_TIMEOUT_MS;
        sandbox->pause_ms = 0;
        execs_reset(sandbox);
        try_clean(sandbox);
}

static void on_timer(uv_timer_t *timer) {
        NativeSandbox *sandbox = timer->data;

        switch (sandbox->phase) {
        case PHASE_CONNECTING:
                if (sandbox->client)
                        fail_unavailable(sandbox, sandbox->goal == GOAL_START ? "the sandbox did not start in time"
                                                                              : "the keeper did not answer in time");
                else
                        try_connect(sandbox);
                return;
        case PHASE_ENDING:
                if (sandbox->keeper && !sandbox->killed) {
                        end_keeper(sandbox);
                        return;
                }
                if (sandbox->keeper)
                        log_error("keeper cannot be killed", LOG_STR("sandbox", sandbox->id));
                sandbox->keeper = child_process_free(sandbox->keeper);
                drop_client(sandbox);
                clean(sandbox);
                return;
        case PHASE_CLEANING:
                try_clean(sandbox);
                return;
        case PHASE_REMOVING:
                remove_files(sandbox);
                return;
        default:
                return;
        }
}

/* Begins to start or to recover. */
static void begin(NativeSandbox *sandbox) {
        const NativeRuntime *runtime = sandbox->runtime;

        if (sandbox->phase == PHASE_RUNNING && sandbox->goal == GOAL_START) {
                set_running(sandbox);
        } else if (sandbox->phase == PHASE_RUNNING) {
                sandbox->phase = PHASE_CONNECTING;
                sandbox->deadline = now_ms(sandbox) + to_ms(runtime->answer_timeout);
                sandbox->described = false;
                arm(sandbox, to_ms(runtime->answer_timeout));
                keeper_client_describe(sandbox->client);
        } else if (sandbox->phase == PHASE_IDLE) {
                sandbox->deadline = now_ms(sandbox) + to_ms(runtime->answer_timeout);
                try_connect(sandbox);
        }
}

/* Begins to stop or to remove. */
static void end(NativeSandbox *sandbox) {
        uint64_t grace = sandbox->goal == GOAL_STOP ? sandbox->grace : 0;

        switch (sandbox->phase) {
        case PHASE_IDLE:
        case PHASE_CONNECTING:
        case PHASE_RUNNING:
                if (sandbox->client || find_keeper(sandbox) == 0)
                        shut_down(sandbox, grace);
                else
                        end_keeper(sandbox);
                return;
        case PHASE_SHUTTING:
                if (sandbox->goal == GOAL_REMOVE)
                        end_keeper(sandbox);
                return;
        default:
                return;
        }
}

static void run(void *user) {
        NativeSandbox *sandbox = user;

        execs_run(sandbox);
        usages_fail(sandbox, false);
        if (sandbox->freed)
                return;

        if (sandbox->pausing && sandbox->phase == PHASE_IDLE && sandbox->goal == GOAL_NONE)
                fail_pause(sandbox);
        sync_paused(sandbox);
        native_inputs_tell_broken(sandbox);
        native_calls_tell_broken(sandbox);
        if (!sandbox->goal_is_new)
                return;

        sandbox->goal_is_new = false;
        if (sandbox->goal == GOAL_START || sandbox->goal == GOAL_RECOVER)
                begin(sandbox);
        else if (sandbox->goal == GOAL_STOP || sandbox->goal == GOAL_REMOVE)
                end(sandbox);
}

RuntimeSandbox *native_sandbox_attach(Runtime *runtime, const char *id, const RuntimeEvents *events, void *user) {
        NativeSandbox *sandbox = new0(NativeSandbox, 1);

        *sandbox = (NativeSandbox){
                .base.verbs = runtime->verbs,
                .runtime = (NativeRuntime *) runtime,
                .id = xstrdup(id),
                .events = events,
                .user = user,
                .task = { .run = run, .user = sandbox },
        };
        (void) uv_timer_init(sandbox->runtime->loop, &sandbox->timer);
        sandbox->timer.data = sandbox;
        return &sandbox->base;
}

static void on_closed(uv_handle_t *handle) {
        NativeSandbox *sandbox = handle->data;

        execs_free(sandbox);
        usages_free(sandbox);
        error_clear(&sandbox->error);
        free(sandbox->config);
        free(sandbox->expected_user);
        native_sources_clear(&sandbox->sources);
        error_clear(&sandbox->source_error);
        free(sandbox->id);
        free(sandbox);
}

void native_sandbox_free(RuntimeSandbox *base) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        sandbox->freed = true;
        task_queue_remove(&sandbox->runtime->queue, &sandbox->task);
        remover_forget(sandbox->runtime->remover, sandbox->id);
        native_inputs_detach(sandbox);
        native_calls_detach(sandbox);
        drop_client(sandbox);
        execs_detach(sandbox);
        sandbox->keeper = child_process_free(sandbox->keeper);
        /* Whoever is at work with it may be the caller: it is there until the loop's next turn. */
        uv_close((uv_handle_t *) &sandbox->timer, on_closed);
}

/* Whether what is copied was, at an earlier start. */
static bool has_copies(const NativeSandbox *sandbox) {
        _cleanup_free_ char *mark = NULL;

        if (asprintf(&mark, "%s/fs/copied", sandbox->id) < 0)
                abort();
        return faccessat(sandbox->runtime->sandboxes_fd, mark, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void native_sandbox_start(RuntimeSandbox *base, const RuntimeSpec *spec) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        sandbox->config = (free(sandbox->config), NULL);
        native_sources_clear(&sandbox->sources);
        error_clear(&sandbox->source_error);
        /* That one cannot be had is of interest only when no keeper is there that has them all. */
        (void) native_sources_open(sandbox->runtime->sources, spec, !has_copies(sandbox), &sandbox->sources,
                                   &sandbox->source_error);
        keeper_config_encode(sandbox->runtime, sandbox->id, spec, &sandbox->sources, &sandbox->config,
                             &sandbox->config_len);
        sandbox->spawned = false;
        free(sandbox->expected_user);
        sandbox->expected_user = spec->expected_user ? xstrdup(spec->expected_user) : NULL;
        sandbox->expects_patiently = spec->expects_patiently;
        for (const char *const *id = spec->exec_ids; id && *id; id++)
                execs_spare(sandbox, *id);
        set_goal(sandbox, GOAL_START);
}

void native_sandbox_recover(RuntimeSandbox *base, const char *const *exec_ids) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        /* It is known to be lost, and about to be told. */
        if (sandbox->goal == GOAL_LOST)
                return;

        for (; *exec_ids; exec_ids++)
                execs_ask(sandbox, *exec_ids);
        set_goal(sandbox, GOAL_RECOVER);
}

void native_sandbox_stop(RuntimeSandbox *base, uint64_t grace) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        if (sandbox->goal == GOAL_REMOVE)
                return;

        sandbox->grace = grace;
        set_goal(sandbox, GOAL_STOP);
}

void native_sandbox_remove(RuntimeSandbox *base) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        if (sandbox->goal != GOAL_REMOVE)
                set_goal(sandbox, GOAL_REMOVE);
}

void native_sandbox_set_paused(RuntimeSandbox *base, bool paused) {
        NativeSandbox *sandbox = (NativeSandbox *) base;

        sandbox->pausing = true;
        sandbox->paused = paused;
        sandbox_wake(sandbox);
}
