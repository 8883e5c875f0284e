/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the states of the sandbox, the list of execs, and the end of everything. What does not: the life of
 * an exec (exec.c), the kernel's side of the sandbox (sandbox.h), and who is told (service.c). */

#include "keeper/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "keeper/box/limit-groups.h"
#include "keeper/box/privileges.h"
#include "keeper/loop.h"
#include "model/reason.h"

#define PREPARED_TIME (5 * NSEC_PER_SEC)  /* that a process waits for the next exec */
#define EMPTY_TIME (50 * NSEC_PER_MSEC)   /* that a group does */
#define HIT_PAUSE NSEC_PER_SEC            /* between messages about a limit, which can be hit a million times in one */
#define GIVE_UP_AFTER (10 * NSEC_PER_SEC) /* after the KILL, for processes that the kernel does not let go */

/* The group of an exec that has ended. */
struct LeftOver {
        Keeper *keeper;
        ExecGroup *group;
        Watch *watch;         /* its processes run on */
        Alarm *alarm;         /* it has none: it is removed, unless the next exec has a use for it */
        LeftOver *next, **at; /* in the list, and what points to it there */
};

static void keeper_end_build(Keeper *keeper);
static void keeper_end_if_empty(Keeper *keeper);
static void keeper_tell_process_hits(Keeper *keeper);
static void keeper_watch_limits(Keeper *keeper);

static void keeper_set_state(Keeper *keeper, KeeperState state) {
        keeper->state = state;
        keeper->state_change = ++keeper->n_changes;
        keeper->events->changed(keeper->events->user);
}

/* ---- The list ---- */

static void list_remove(Keeper *keeper, KeptExec *exec) {
        ExecLink *link = kept_exec_link(exec);

        *(link->prev ? &kept_exec_link(link->prev)->next : &keeper->first) = link->next;
        *(link->next ? &kept_exec_link(link->next)->prev : &keeper->last) = link->prev;
}

static void list_append(Keeper *keeper, KeptExec *exec) {
        ExecLink *link = kept_exec_link(exec);

        *link = (ExecLink){ .prev = keeper->last, .change = ++keeper->n_changes };
        *(keeper->last ? &kept_exec_link(keeper->last)->next : &keeper->first) = exec;
        keeper->last = exec;
}

static void keeper_exec_ended(Keeper *keeper, KeptExec *exec) {
        const char *limit = keeper->disk ? disk_watch_check(keeper->disk) : NULL;

        if (limit)
                kept_exec_note_disk_limit(exec, limit);
        keeper->n_running--;
        keeper_watch_limits(keeper);
}

static void on_exec_changed(KeptExec *exec, void *user) {
        Keeper *keeper = user;
        ExecStatus status;

        kept_exec_status(exec, &status);
        if (status.ended && status.memory_kills > 0)
                keeper->events->limit_hit("memory_bytes", status.memory_kills, status.id, keeper->events->user);
        if (status.ended && status.process_limit_hits > 0)
                keeper_tell_process_hits(keeper);
        if (status.ended)
                keeper_exec_ended(keeper, exec);
        list_remove(keeper, exec);
        list_append(keeper, exec);
        keeper->events->changed(keeper->events->user);
        keeper_end_if_empty(keeper);
}

KeptExec *keeper_find_exec(const Keeper *keeper, const char *id) {
        for (KeptExec *exec = keeper->last; exec; exec = kept_exec_link(exec)->prev)
                if (str_equal(kept_exec_id(exec), id))
                        return exec;

        return NULL;
}

static bool execs_have_ended(const Keeper *keeper) {
        for (KeptExec *exec = keeper->last; exec; exec = kept_exec_link(exec)->prev)
                if (!kept_exec_has_ended(exec))
                        return false;

        return true;
}

/* ---- The next exec ---- */

/* Lets go of the process that waits, which is about to be taken, or is not wanted. */
static void keeper_unwatch_prepared(Keeper *keeper) {
        keeper->prepared_watch = watch_free(keeper->prepared_watch);
        keeper->prepared_alarm = alarm_free(keeper->prepared_alarm);
}

static void keeper_unprepare(Keeper *keeper) {
        keeper_unwatch_prepared(keeper);
        sandbox_unprepare(keeper->sandbox);
}

static void on_prepared_not_wanted(void *user) {
        keeper_unprepare(user);
}

/* So that no program inside ever meets a process that waits. */
static bool is_empty(const Keeper *keeper) {
        return keeper->n_running == 0 && !keeper->left_over;
}

/* Has a process wait, if nothing runs, for @time. @used is taken over: see sandbox_prepare(). */
static void keeper_prepare(Keeper *keeper, const char *user, uint64_t time, ExecGroup *used) {
        if (keeper->state != KEEPER_RUNNING || !is_empty(keeper) || keeper->prepared_alarm) {
                (void) exec_group_free(used);
                if (keeper->prepared_alarm)
                        alarm_set(keeper->prepared_alarm, time);
                return;
        }
        if (sandbox_prepare(keeper->sandbox, user, used, NULL) < 0)
                return;

        keeper->prepared_watch = watch_new(keeper->loop, sandbox_prepared_pidfd(keeper->sandbox), UV_READABLE,
                                           on_prepared_not_wanted, keeper);
        keeper->prepared_alarm = alarm_new(keeper->loop, on_prepared_not_wanted, keeper);
        alarm_set(keeper->prepared_alarm, time);
}

/* ---- What execs leave running ---- */

static void left_over_free(LeftOver *left_over) {
        *left_over->at = left_over->next;
        if (left_over->next)
                left_over->next->at = left_over->at;
        watch_free(left_over->watch);
        alarm_free(left_over->alarm);
        exec_group_free(left_over->group);
        keeper_watch_limits(left_over->keeper);
        free(left_over);
}

static void on_left_over_alarm(void *user) {
        LeftOver *left_over = user;
        Keeper *keeper = left_over->keeper;

        left_over_free(left_over);
        keeper_end_if_empty(keeper);
}

static void on_left_over_changed(void *user) {
        LeftOver *left_over = user;

        if (!exec_group_is_populated(left_over->group))
                on_left_over_alarm(left_over);
}

/* Processes that run on are known, so that they hear of the end of the sandbox. */
static void on_left_over(ExecGroup *group, void *user) {
        Keeper *keeper = user;
        LeftOver *left_over = new0(LeftOver, 1);
        int fd = exec_group_events_fd(group);

        *left_over =
                (LeftOver){ .keeper = keeper, .group = group, .next = keeper->left_over, .at = &keeper->left_over };
        if (left_over->next)
                left_over->next->at = &left_over->next;
        keeper->left_over = left_over;
        if (fd >= 0 && exec_group_is_populated(group))
                left_over->watch = watch_new(keeper->loop, fd, UV_PRIORITIZED, on_left_over_changed, left_over);
        keeper_watch_limits(keeper);
        if (left_over->watch && keeper->ending)
                (void) exec_group_signal(group, SIGTERM);
        if (!left_over->watch) {
                left_over->alarm = alarm_new(keeper->loop, on_left_over_alarm, left_over);
                alarm_set(left_over->alarm, keeper->ending ? 0 : EMPTY_TIME);
        }
}

/* Removes those that wait for it, but for the last of their groups, which is returned; NULL: there are none. */
static ExecGroup *keeper_take_empty(Keeper *keeper) {
        ExecGroup *group = NULL;

        for (LeftOver *left_over = keeper->left_over, *next; left_over; left_over = next) {
                next = left_over->next;
                if (!left_over->alarm)
                        continue;
                (void) exec_group_free(group);
                group = TAKE_PTR(left_over->group);
                left_over_free(left_over);
        }
        return group;
}

/* ---- Too many processes ---- */

static void on_process_alarm(void *user) {
        Keeper *keeper = user;

        keeper->process_alarm = alarm_free(keeper->process_alarm);
        keeper_tell_process_hits(keeper);
}

static void keeper_tell_process_hits(Keeper *keeper) {
        uint64_t hits = sandbox_process_limit_hits(keeper->sandbox);

        if (hits <= keeper->process_hits || keeper->process_alarm)
                return;

        keeper->events->limit_hit("max_processes", hits - keeper->process_hits, "", keeper->events->user);
        keeper->process_hits = hits;
        keeper->process_alarm = alarm_new(keeper->loop, on_process_alarm, keeper);
        alarm_set(keeper->process_alarm, HIT_PAUSE);
}

static void on_process_limit(void *user) {
        keeper_tell_process_hits(user);
}

/* ---- Too much on disk ---- */

static void on_disk_limit(const char *limit, bool kill, void *user) {
        Keeper *keeper = user;

        keeper->events->limit_hit(limit, 1, "", keeper->events->user);
        /* None of them changes before the loop has run. */
        for (KeptExec *exec = keeper->first; exec; exec = kept_exec_link(exec)->next)
                if (!kept_exec_has_ended(exec)) {
                        kept_exec_note_disk_limit(exec, limit);
                        if (kill)
                                kept_exec_kill(exec, EXEC_END_CAUSE_DISK_LIMIT, 0);
                }
        for (LeftOver *left_over = keeper->left_over; kill && left_over; left_over = left_over->next)
                (void) exec_group_kill(left_over->group);
        if (kill)
                keeper->events->disk_full(limit, keeper->events->user);
}

/* Has limits looked after while something runs. */
static void keeper_watch_limits(Keeper *keeper) {
        bool is_active =
                keeper->state != KEEPER_PAUSED && (keeper->n_running > 0 || keeper->n_writing > 0 || keeper->left_over);

        if (keeper->disk)
                disk_watch_set_active(keeper->disk, is_active);
        if (keeper->memory)
                memory_watch_set_active(keeper->memory, is_active);
}

int keeper_begin_writing(Keeper *keeper, HutchError *err) {
        const char *limit = keeper->disk ? disk_watch_begin_writing(keeper->disk) : NULL;

        if (limit) {
                (void) reason_set(err, -EDQUOT, REASON_DISK_FULL,
                                  "the sandbox has more on disk than it may: remove some");
                error_add_pair(err, "limit", "%s", limit);
                return -EDQUOT;
        }
        keeper->n_writing++;
        keeper_watch_limits(keeper);
        return 0;
}

void keeper_end_writing(Keeper *keeper) {
        if (keeper->disk)
                (void) disk_watch_check(keeper->disk);
        keeper->n_writing--;
        keeper_watch_limits(keeper);
}

static void keeper_make_disk_watch(Keeper *keeper, bool is_new) {
        int r;

        keeper->disk_events = (DiskWatchEvents){ .hit = on_disk_limit, .user = keeper };
        r = disk_watch_new(keeper->loop, keeper->sandbox, is_new, &keeper->disk_events, &keeper->disk);
        if (r < 0)
                log_error("disk limits are not looked after", LOG_STR("sandbox", keeper->config->sandbox_id),
                          LOG_STR("error", strerror(-r)));
}

/* ---- Too much memory ---- */

static size_t list_first_processes(pid_t *ret_pids, size_t max, void *user) {
        const Keeper *keeper = user;
        size_t n = 0;

        for (KeptExec *exec = keeper->first; exec && n < max; exec = kept_exec_link(exec)->next)
                if (!kept_exec_has_ended(exec) && kept_exec_pid(exec) > 0)
                        ret_pids[n++] = kept_exec_pid(exec);
        return n;
}

static void on_memory_limit(pid_t pid, void *user) {
        Keeper *keeper = user;

        if (pid == 0) {
                keeper->events->limit_hit("memory_bytes", 1, "", keeper->events->user);
                return;
        }
        /* It does not change before the loop has run. Its end tells of the limit. */
        for (KeptExec *exec = keeper->first; exec; exec = kept_exec_link(exec)->next)
                if (!kept_exec_has_ended(exec) && kept_exec_pid(exec) == pid)
                        kept_exec_kill_for_memory(exec);
}

static int keeper_make_memory_watch(Keeper *keeper) {
        keeper->memory_events =
                (MemoryWatchEvents){ .list = list_first_processes, .hit = on_memory_limit, .user = keeper };
        if (!keeper_config_measures_memory(keeper->config))
                return 0;
        return memory_watch_new(keeper->loop, keeper->sandbox, &keeper->memory_events, &keeper->memory);
}

/* ---- The end ---- */

static void keeper_end(Keeper *keeper) {
        keeper_unwatch_prepared(keeper);
        keeper->stop_alarm = alarm_free(keeper->stop_alarm);
        keeper->init_watch = watch_free(keeper->init_watch);
        keeper->process_watch = watch_free(keeper->process_watch);
        keeper->process_alarm = alarm_free(keeper->process_alarm);
        keeper->disk = disk_watch_free(keeper->disk);
        keeper->memory = memory_watch_free(keeper->memory);
        for (LeftOver *left_over = keeper->left_over, *next; left_over; left_over = next) {
                next = left_over->next;
                left_over_free(left_over);
        }
        keeper_end_build(keeper);
        keeper->owner.sandbox = keeper->sandbox = sandbox_destroy(keeper->sandbox);
        log_info("sandbox gone", LOG_STR("sandbox", keeper->config->sandbox_id));
        keeper->events->gone(keeper->events->user);
}

static void keeper_end_if_empty(Keeper *keeper) {
        if (keeper->ending && keeper->stop_alarm && !keeper->left_over && execs_have_ended(keeper))
                keeper_end(keeper);
}

static void on_stop_alarm(void *user) {
        Keeper *keeper = user;
        bool killed = keeper->stop_at == 0;

        for (LeftOver *left_over = keeper->left_over; left_over; left_over = left_over->next)
                (void) exec_group_kill(left_over->group);
        if (!killed) {
                limit_groups_let_end(keeper->sandbox);
                keeper->stop_at = 0;
                alarm_set(keeper->stop_alarm, GIVE_UP_AFTER);
                return;
        }

        log_error("processes do not end", LOG_STR("sandbox", keeper->config->sandbox_id));
        /* Each change moves an exec to the end of the list: those that have not ended come first in time. */
        while (!execs_have_ended(keeper))
                for (KeptExec *exec = keeper->first; exec; exec = kept_exec_link(exec)->next)
                        if (!kept_exec_has_ended(exec)) {
                                kept_exec_give_up(exec);
                                break;
                        }
        if (keeper->stop_alarm)
                keeper_end(keeper);
}

/* Has everything end: TERM at once, KILL after @grace. */
static void keeper_begin_end(Keeper *keeper, uint64_t grace) {
        uint64_t now = clock_monotonic_ns(), stop_at = grace < UINT64_MAX - now ? now + grace : UINT64_MAX;

        if (!keeper->ending) {
                keeper->ending = true;
                if (keeper->prepared_alarm)
                        keeper_unprepare(keeper);
                (void) exec_group_free(keeper_take_empty(keeper));
                keeper->stop_at = UINT64_MAX;
                keeper->stop_alarm = alarm_new(keeper->loop, on_stop_alarm, keeper);
                for (LeftOver *left_over = keeper->left_over; left_over; left_over = left_over->next)
                        (void) exec_group_signal(left_over->group, SIGTERM);
        }
        if (!keeper->stop_alarm || stop_at > keeper->stop_at)
                return;

        keeper->stop_at = stop_at;
        alarm_set(keeper->stop_alarm, grace);
        /* None of them changes before the loop has run. */
        for (KeptExec *exec = keeper->first; exec; exec = kept_exec_link(exec)->next)
                kept_exec_kill(exec, EXEC_END_CAUSE_SHUTDOWN, grace);
        keeper_end_if_empty(keeper);
}

void keeper_stop(Keeper *keeper, uint64_t grace) {
        _cleanup_(error_clear) HutchError err = {};

        if (keeper->state == KEEPER_PAUSED && sandbox_set_frozen(keeper->sandbox, false, &err) < 0)
                log_warning("cannot thaw", LOG_STR("error", error_message(&err)));
        if (keeper->state != KEEPER_FAILED && keeper->state != KEEPER_STOPPING)
                keeper_set_state(keeper, KEEPER_STOPPING);
        keeper_begin_end(keeper, grace);
}

/* PID 1 is gone, and with it everything in the sandbox. */
static void on_init_ended(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        Keeper *keeper = user;

        keeper->init_watch = watch_free(keeper->init_watch);
        if (keeper->ending)
                return;

        reason_set(&err, -ESHUTDOWN, REASON_KEEPER_UNAVAILABLE, "the sandbox's first process was killed");
        log_error("sandbox lost", LOG_STR("sandbox", keeper->config->sandbox_id));
        failure_set(&keeper->failure, &err);
        keeper_set_state(keeper, KEEPER_FAILED);
        keeper_begin_end(keeper, 0);
}

/* ---- The start ---- */

static int open_output_folder(const KeeperConfig *config, HutchError *err) {
        int fd = open(config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return reason_set(err, -errno, reason_from_errno(-errno), "cannot open the folder for output: %s",
                                  strerror(errno));
        return fd;
}

int keeper_init(Keeper *keeper, uv_loop_t *loop, const KeeperConfig *config, const KeeperEvents *events,
                HutchError *err) {
        uint8_t random[INCARNATION_SIZE / 2];
        _cleanup_close_ int output_folder = open_output_folder(config, err), null = -1;

        if (output_folder < 0)
                return output_folder;
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0)
                return reason_set(err, -errno, reason_from_errno(-errno), "cannot open /dev/null: %s", strerror(errno));
        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return reason_set(err, -EIO, REASON_IO_ERROR, "cannot get random numbers");

        *keeper = (Keeper){
                .loop = loop,
                .config = config,
                .events = events,
                .state = KEEPER_STARTING,
                .owner = {
                        .loop = loop,
                        .budget = pump_budget_new(loop, config->cpu_millis),
                        .output_folder = TAKE_FD(output_folder),
                        .null = TAKE_FD(null),
                        .changed = on_exec_changed,
                        .left_over = on_left_over,
                        .user = keeper,
                },
        };
        for (size_t i = 0; i < sizeof(random); i++)
                (void) snprintf(keeper->incarnation + 2 * i, 3, "%02x", random[i]);
        return 0;
}

/* From now on the keeper needs no right but those of its user: who owns the sandbox's user namespace may enter it. */
static int keeper_drop_rights(const Keeper *keeper) {
        /* Others never had any. To be sealed and to have a list of system calls was a part of building the sandbox. */
        int r = keeper->config->keeper_id != 0 ? privileges_drop(0) : 0;
        return r < 0 ? r : sandbox_confine(keeper->sandbox, keeper->owner.output_folder);
}

/* Lets go of everything that only a sandbox that is being built needs. */
static void keeper_end_build(Keeper *keeper) {
        keeper->build_watch = watch_free(keeper->build_watch);
        keeper->build_alarm = alarm_free(keeper->build_alarm);
        keeper->expected_group = exec_group_free(keeper->expected_group);
        free(TAKE_PTR(keeper->expected_user));
        keeper->building = sandbox_destroy(keeper->building);
}

static void keeper_fail_build(Keeper *keeper, const HutchError *err) {
        keeper_end_build(keeper);
        sandbox_give_up(keeper->config, keeper->owner.output_folder);
        log_error("cannot build the sandbox", LOG_STR("sandbox", keeper->config->sandbox_id),
                  LOG_STR("reason", err->reason), LOG_STR("error", error_message(err)));
        failure_set(&keeper->failure, err);
        keeper_set_state(keeper, KEEPER_FAILED);
}

static uint64_t expecting_time(bool patiently) {
        return patiently ? UINT64_MAX : PREPARED_TIME;
}

/* The sandbox stands, and has become the keeper's. */
static void keeper_begin_running(Keeper *keeper) {
        _cleanup_free_ char *expected_user = TAKE_PTR(keeper->expected_user);
        ExecGroup *expected_group = TAKE_PTR(keeper->expected_group);

        keeper->owner.sandbox = keeper->sandbox;
        keeper->init_watch =
                watch_new(keeper->loop, sandbox_init_pidfd(keeper->sandbox), UV_READABLE, on_init_ended, keeper);
        if (sandbox_process_limit_fd(keeper->sandbox) >= 0)
                keeper->process_watch = watch_new(keeper->loop, sandbox_process_limit_fd(keeper->sandbox),
                                                  UV_PRIORITIZED, on_process_limit, keeper);
        keeper->process_hits = sandbox_process_limit_hits(keeper->sandbox);
        keeper_set_state(keeper, KEEPER_RUNNING);
        if (expected_user)
                keeper_prepare(keeper, expected_user, expecting_time(keeper->expects_patiently), expected_group);
        log_info("sandbox runs", LOG_STR("sandbox", keeper->config->sandbox_id));
}

static void on_report(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        Keeper *keeper = user;
        int r = sandbox_finish(keeper->building, &err);

        if (r < 0) {
                keeper_fail_build(keeper, &err);
                return;
        }
        keeper->sandbox = TAKE_PTR(keeper->building);
        keeper_make_disk_watch(keeper, keeper->files_are_new);
        r = keeper_make_memory_watch(keeper);
        if (r >= 0)
                r = keeper_drop_rights(keeper);
        if (r < 0) {
                (void) reason_set(&err, r, REASON_INTERNAL, "the keeper cannot give up its rights: %s", strerror(-r));
                keeper->disk = disk_watch_free(keeper->disk);
                keeper->memory = memory_watch_free(keeper->memory);
                keeper->building = TAKE_PTR(keeper->sandbox);
                keeper_fail_build(keeper, &err);
                return;
        }
        keeper->build_watch = watch_free(keeper->build_watch);
        keeper->build_alarm = alarm_free(keeper->build_alarm);
        keeper_begin_running(keeper);
}

static void on_build_alarm(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        Keeper *keeper = user;

        (void) reason_set(&err, -ETIMEDOUT, REASON_DEADLINE_EXCEEDED, "the sandbox did not start in time");
        keeper_fail_build(keeper, &err);
}

void keeper_build(Keeper *keeper) {
        _cleanup_(error_clear) HutchError err = {};
        int r;

        keeper->files_are_new = faccessat(keeper->owner.output_folder, "fs", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
        r = sandbox_begin(keeper->config, &keeper->building, &err);
        if (r < 0) {
                keeper_fail_build(keeper, &err);
                return;
        }
        keeper->build_watch =
                watch_new(keeper->loop, sandbox_report_fd(keeper->building), UV_READABLE, on_report, keeper);
        keeper->build_alarm = alarm_new(keeper->loop, on_build_alarm, keeper);
        alarm_set(keeper->build_alarm, keeper->config->start_timeout);
}

/* ---- What others ask ---- */

static int wrong_state(HutchError *err) {
        return reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE, "the sandbox does not run");
}

int keeper_start_exec(Keeper *keeper, const ExecPlan *plan, KeptExec **ret_exec, HutchError *err) {
        KeptExec *exec = keeper_find_exec(keeper, plan->id);
        const char *limit;
        int r;

        if (exec) {
                *ret_exec = exec;
                return 0;
        }
        if (keeper->state != KEEPER_RUNNING)
                return wrong_state(err);
        if (keeper->n_execs >= KEEPER_EXECS_MAX)
                return reason_set(err, -EMFILE, REASON_HOST_EXHAUSTED, "the sandbox has %d execs: forget some",
                                  KEEPER_EXECS_MAX);

        limit = keeper->disk ? disk_watch_begin_writing(keeper->disk) : NULL;
        keeper->owner.files_must_not_grow = limit != NULL;
        keeper_unwatch_prepared(keeper);
        r = kept_exec_start(&keeper->owner, plan, &exec, err);
        sandbox_unprepare(keeper->sandbox); /* that was not taken */
        if (r < 0)
                return r;

        keeper->n_started++;
        free(keeper->last_user);
        keeper->last_user = xstrdup(plan->user);
        list_append(keeper, exec);
        keeper->n_execs++;
        if (limit)
                kept_exec_note_disk_limit(exec, limit);
        if (kept_exec_has_ended(exec)) {
                keeper->events->changed(keeper->events->user);
        } else {
                keeper->n_running++;
                keeper_watch_limits(keeper);
        }
        *ret_exec = exec;
        return 0;
}

void keeper_expect_exec(Keeper *keeper, const char *user, bool patiently) {
        if (keeper->building) {
                keeper->expects_patiently = patiently;
                if (keeper->expected_user)
                        return;
                keeper->expected_user = xstrdup(user);
                (void) sandbox_prepare_group(keeper->building, &keeper->expected_group, NULL);
                return;
        }
        keeper_prepare(keeper, user, expecting_time(patiently), keeper_take_empty(keeper));
}

int keeper_forget_exec(Keeper *keeper, const char *id, HutchError *err) {
        KeptExec *exec = keeper_find_exec(keeper, id);

        if (!exec)
                return 0;
        if (!kept_exec_has_ended(exec))
                return reason_set(err, -EBUSY, REASON_EXEC_WRONG_STATE, "exec %s has not ended", id);

        list_remove(keeper, exec);
        keeper->n_execs--;
        kept_exec_free(exec);
        /* Who has started two in a row starts a third. */
        if (keeper->n_started > 1)
                keeper_prepare(keeper, keeper->last_user, PREPARED_TIME, keeper_take_empty(keeper));
        return 0;
}

int keeper_set_paused(Keeper *keeper, bool paused, HutchError *err) {
        int r;

        if (keeper->state != KEEPER_RUNNING && keeper->state != KEEPER_PAUSED)
                return wrong_state(err);
        if ((keeper->state == KEEPER_PAUSED) == paused)
                return 0;

        keeper_unprepare(keeper);
        r = sandbox_set_frozen(keeper->sandbox, paused, err);
        if (r < 0)
                return r;

        keeper_set_state(keeper, paused ? KEEPER_PAUSED : KEEPER_RUNNING);
        keeper_watch_limits(keeper);
        return 0;
}

void keeper_get_usage(Keeper *keeper, SandboxUsage *ret_usage) {
        sandbox_get_usage(keeper->sandbox, ret_usage);
        if (keeper->memory)
                memory_watch_usage(keeper->memory, &ret_usage->memory_bytes, &ret_usage->memory_peak_bytes);
        if (keeper->disk) {
                DiskUsage disk = disk_watch_usage(keeper->disk);

                ret_usage->disk_bytes = disk.bytes;
                ret_usage->disk_inodes = disk.inodes;
        }
}
