/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the turn of the control plane: what was changed is made durable, answered, shown and acted on, or
 * taken back. What does not: what the changes are (sandboxes.c, requests.c, execs.c, observe.c, deadlines.c), and the
 * work that follows from them (converge.c). */

#include "control/control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "control/plane.h"
#include "control/text.h"

#define RETRY_PAUSE NSEC_PER_SEC
#define LINGER_MSEC 5 /* that a change which nobody waits for does, for others to be committed with */
#define SYNC_MSEC 4   /* that what was committed, and nobody is told of, waits to be made durable with more */
#define SLOW_SYNC NSEC_PER_SEC
#define CLAIM_TIME (60 * NSEC_PER_SEC)
#define REPEAT_TIME (15 * NSEC_PER_SEC)
#define WARM_TIME (3600 * NSEC_PER_SEC)

const ControlLimits control_limits_default = {
        .sandboxes_per_caller = 1000,
        .sandboxes = 10000,
        .execs_per_sandbox = 256,
        .execs_per_caller = 5000,
        .execs = 20000,
        .watches_per_caller = 1000,
        .history_retention = 15 * 24 * 3600 * NSEC_PER_SEC,
        .request_retention = 24 * 3600 * NSEC_PER_SEC,
        .watch_buffer = 4096,
        .output_per_sandbox = UINT64_C(1) << 30,
};

struct Waiter {
        Waiter *next;
        void (*callback)(const HutchError *err, void *user);
        void *user;
        bool for_disk;   /* a commit is not enough */
        bool is_durable; /* whatever becomes of the next commit */
};

static void on_prepare(uv_prepare_t *handle) {
        control_commit(handle->data);
}

/* While there is something to do the loop does not wait. */
static void on_idle(uv_idle_t *handle) {
        (void) handle;
}

static void on_linger(uv_timer_t *handle) {
        control_arm(handle->data);
}

bool control_is_synced(const Control *control) {
        return store_is_synced(control->options.store);
}

static void append_waiter(Waiter ***end, Waiter *waiter) {
        waiter->next = NULL;
        **end = waiter;
        *end = &waiter->next;
}

void control_sync(Control *control) {
        _cleanup_(error_clear) HutchError err = {};
        uint64_t begun, taken;

        if (control_is_synced(control))
                return;

        begun = clock_monotonic_ns();
        /* Nobody was told of it, and nobody knows how much of it the disk has: the next daemon finds out. */
        if (store_sync(control->options.store, &err) < 0) {
                log_error("the disk did not take what was written to the store; the daemon ends, to begin anew",
                          LOG_STR("error", error_message(&err)));
                _exit(EXIT_FAILURE);
        }
        taken = clock_monotonic_ns() - begun;
        if (taken > SLOW_SYNC)
                log_warning("the disk is slow, and all had to wait for it",
                            LOG_INT("milliseconds", (int64_t) (taken / NSEC_PER_MSEC)));
        (void) uv_timer_stop(&control->sync);
        for (Waiter *next; control->for_disk; control->for_disk = next) {
                next = control->for_disk->next;
                control->for_disk->is_durable = true;
                append_waiter(&control->waiters_end, control->for_disk);
        }
        control->for_disk_end = &control->for_disk;
        if (control->waiters || control->n_converging > 0)
                control_arm(control);
}

static void on_sync(uv_timer_t *handle) {
        control_sync(handle->data);
}

void control_arm(Control *control) {
        if (control->is_armed)
                return;
        if (control->lingers) {
                if (!uv_is_active((uv_handle_t *) &control->linger))
                        (void) uv_timer_start(&control->linger, on_linger, LINGER_MSEC, 0);
                return;
        }

        control->is_armed = true;
        (void) uv_prepare_start(&control->prepare, on_prepare);
        (void) uv_idle_start(&control->idle, on_idle);
}

static bool has_work(const Control *control) {
        return control->touched || control->waiters || control->notify || control->watches.wake ||
               control->events.pending;
}

static void disarm(Control *control) {
        if (has_work(control))
                return;

        (void) uv_timer_stop(&control->linger);
        if (!control->is_armed)
                return;

        control->is_armed = false;
        (void) uv_prepare_stop(&control->prepare);
        (void) uv_idle_stop(&control->idle);
}

static void add_waiter(Control *control, bool for_disk, void (*callback)(const HutchError *err, void *user),
                       void *user) {
        Waiter *waiter = new0(Waiter, 1);

        *waiter = (Waiter){ .callback = callback, .user = user, .for_disk = for_disk };
        append_waiter(&control->waiters_end, waiter);
        control_arm(control);
}

void control_when_committed(Control *control, void (*callback)(const HutchError *err, void *user), void *user) {
        add_waiter(control, false, callback, user);
}

void control_when_durable(Control *control, void (*callback)(const HutchError *err, void *user), void *user) {
        add_waiter(control, true, callback, user);
}

static int write_sandbox(Sandbox *sandbox, uint64_t now, HutchError *err) {
        Store *store = sandbox->control->options.store;
        int r;

        if (sandbox->is_unwritten) {
                sandbox->record.lifetime_left = sandbox_lifetime_left(sandbox, clock_monotonic_ns());
                sandbox->record.lifetime_as_of = now;
                r = store_put_sandbox(store, &sandbox->record, err);
                if (r < 0)
                        return r;
                sandbox->is_unwritten = false;
        }

        for (Exec *exec = sandbox->changed_execs; exec; exec = exec->next_changed) {
                if (!exec->is_unwritten)
                        continue;
                r = store_put_exec(store, &exec->record, err);
                if (r < 0)
                        return r;
                exec->is_unwritten = false;
        }
        return 0;
}

int control_flush(Control *control, HutchError *err) {
        uint64_t now = clock_realtime_ns();
        int r;

        for (Sandbox *sandbox = control->touched; sandbox; sandbox = sandbox->next_touched) {
                r = write_sandbox(sandbox, now, err);
                if (r < 0)
                        return r;
        }
        return event_log_write(&control->events, control->options.store, err);
}

static Sandbox *take_touched(Control *control) {
        Sandbox *touched = TAKE_PTR(control->touched);

        control->touched_end = &control->touched;
        return touched;
}

static void exec_settle(Exec *exec) {
        Sandbox *sandbox = exec->sandbox;

        exec->saved = (exec_record_free(exec->saved), NULL);
        exec->is_new = exec->is_changed = false;
        exec_tell_changed(exec);
        if (exec_is_active(exec))
                return;

        if (sandbox->remote && exec->start_asked &&
            (sandbox->record.state == SANDBOX_READY || sandbox->record.state == SANDBOX_PAUSED))
                sandbox->remote->verbs->forget_exec(sandbox->remote, exec->record.id);
        if (!exec->attachments)
                exec_drop(exec);
}

static void add_converging(Control *control, Sandbox *sandbox) {
        if (control->n_converging == control->converging_size) {
                control->converging_size = 2 * control->converging_size + 16;
                control->converging = xreallocarray(control->converging, control->converging_size, sizeof(Sandbox *));
        }
        control->converging[control->n_converging++] = sandbox;
}

void control_forget_waiting(Sandbox *sandbox) {
        Control *control = sandbox->control;
        size_t n = 0;

        if (!sandbox->waits)
                return;
        for (size_t i = 0; i < control->n_converging; i++)
                if (control->converging[i] != sandbox)
                        control->converging[n++] = control->converging[i];
        control->n_converging = n;
}

/* What was changed is committed. */
static void settle(Control *control) {
        for (Sandbox *sandbox = take_touched(control), *next; sandbox; sandbox = next) {
                next = sandbox->next_touched;
                sandbox->saved = (sandbox_saved_free(sandbox->saved), NULL);
                sandbox->is_touched = sandbox->is_changed = sandbox->is_new = sandbox->is_observed = false;
                for (Exec *exec = TAKE_PTR(sandbox->changed_execs), *next_exec; exec; exec = next_exec) {
                        next_exec = exec->next_changed;
                        exec_settle(exec);
                }

                if (sandbox->record.state == SANDBOX_DELETED)
                        sandbox_drop(sandbox);
                else if (!sandbox->waits)
                        add_converging(control, sandbox);
        }
        event_log_publish(control);
}

static void exec_roll_back(Exec *exec) {
        exec->is_changed = exec->is_unwritten = false;
        if (exec->is_new) {
                exec_drop(exec);
                return;
        }

        exec_count(exec, -1);
        (void) exec_spec_unref(exec->record.spec);
        exec->record = *exec->saved;
        free(TAKE_PTR(exec->saved));
        exec_count(exec, 1);
        exec->cancel_asked = false;
        exec_update_follow(exec);

        /* Who it was bound to has gone, and the cancel for that was taken back. */
        if (exec->record.bound && exec_is_active(exec) && exec->record.cancel_time == 0 && exec->n_holds == 0 &&
            exec->claim_deadline == 0)
                exec_await_claim(exec, RETRY_PAUSE);
}

void sandbox_retry(Sandbox *sandbox) {
        sandbox->retry_deadline = sandbox->not_before = clock_monotonic_ns() + RETRY_PAUSE;
        sandbox_arm(sandbox);
}

/* It never was; what there is of it, because it was in the warm pool, is nobody's any more. */
static void drop_new(Sandbox *sandbox) {
        RuntimeSandbox *remote = sandbox->was_warm ? TAKE_PTR(sandbox->remote) : NULL;
        uint32_t uid_slot = sandbox->record.uid_slot;
        Control *control = sandbox->control;
        char id[ID_LEN_MAX + 1];

        text_copy(id, sizeof id, sandbox->record.id);
        sandbox->is_changed = false;
        sandbox_drop(sandbox);
        if (remote)
                orphan_add(control, id, remote, uid_slot);
}

static void sandbox_roll_back(Sandbox *sandbox) {
        for (Exec *exec = TAKE_PTR(sandbox->changed_execs), *next; exec; exec = next) {
                next = exec->next_changed;
                exec_roll_back(exec);
        }
        sandbox->is_touched = sandbox->is_unwritten = false;
        if (sandbox->is_new) {
                drop_new(sandbox);
                return;
        }

        if (sandbox->is_changed) {
                sandbox->is_changed = false;
                sandbox_count(sandbox, -1);
                (void) sandbox_spec_unref(sandbox->record.spec);
                sandbox->record = sandbox->saved->record;
                sandbox->idle_deadline = sandbox->saved->idle_deadline;
                sandbox->lifetime_deadline = sandbox->saved->lifetime_deadline;
                free(TAKE_PTR(sandbox->saved));
                sandbox_count(sandbox, 1);
        }

        /* What the runtime told is to be told again. */
        if (sandbox->is_observed)
                sandbox->needs_recovery = true;
        sandbox->is_observed = false;
        sandbox->execs_need_converge = true;
        sandbox_retry(sandbox);
}

static void roll_back(Control *control) {
        event_log_drop(&control->events);
        for (Sandbox *sandbox = take_touched(control), *next; sandbox; sandbox = next) {
                next = sandbox->next_touched;
                sandbox_roll_back(sandbox);
        }
}

/* Calls them, or has them wait for the disk if it is well and they are to. */
static void answer(Control *control, Waiter *waiter, const HutchError *err) {
        for (Waiter *next; waiter; waiter = next) {
                next = waiter->next;
                if (!err && waiter->for_disk && !waiter->is_durable && !control_is_synced(control)) {
                        append_waiter(&control->for_disk_end, waiter);
                        continue;
                }
                waiter->callback(waiter->is_durable ? NULL : err, waiter->user);
                free(waiter);
        }
}

static void waiters_free(Waiter *waiter) {
        for (Waiter *next; waiter; waiter = next) {
                next = waiter->next;
                free(waiter);
        }
}

/* What follows from the commit. What is removed does not come back when the machine does: this waits for the disk. */
static void converge(Control *control) {
        size_t n = control->n_converging;

        control->n_converging = 0;
        for (size_t i = 0; i < n; i++) {
                Sandbox *sandbox = control->converging[i];

                sandbox->waits = sandbox->record.state == SANDBOX_DELETING && !control_is_synced(control);
                if (sandbox->waits) {
                        control->converging[control->n_converging++] = sandbox;
                        continue;
                }
                file_calls_converge(sandbox);
                sandbox_converge(sandbox);
                sandbox_bound_output(sandbox);
        }
}

void control_commit(Control *control) {
        _cleanup_(error_clear) HutchError err = {};
        Waiter *waiters;
        int r;

        if (control->is_committing ||
            !(control->is_armed || control->touched || store_is_dirty(control->options.store)))
                return;

        if (control->options.before_commit)
                control->options.before_commit(control->options.user);
        control->is_committing = true;
        waiters = TAKE_PTR(control->waiters);
        control->waiters_end = &control->waiters;

        warm_tell_started(control);
        r = control_flush(control, &err);
        if (r < 0)
                (void) store_commit(control->options.store, NULL); /* takes it back, as some of it failed */
        else if (store_is_dirty(control->options.store))
                r = store_commit(control->options.store, &err);
        if (r < 0) {
                log_error("the store failed; what was asked is taken back", LOG_STR("error", error_message(&err)));
                roll_back(control);
        } else {
                FAILPOINT("control.commit.done");
                settle(control);
        }

        converge(control);
        answer(control, waiters, r < 0 ? &err : NULL);
        FAILPOINT("control.replies.sent");
        attachments_notify(control);
        watches_wake(control);
        orphans_free(control, false);
        if (!control_is_synced(control) && !uv_is_active((uv_handle_t *) &control->sync))
                (void) uv_timer_start(&control->sync, on_sync, SYNC_MSEC, 0);

        control->is_committing = false;
        disarm(control);
}

static int read_boot_id(char ret_id[static 64]) {
        _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, ret_id, 63) : -1;

        if (n < 0)
                return -errno;
        ret_id[n] = '\0';
        ret_id[strcspn(ret_id, "\n")] = '\0';
        return 0;
}

/* Ends what the machine's end has ended, if this is its first daemon since. */
static int check_boot(Control *control, HutchError *err) {
        const char *boot_id = control->options.boot_id;
        _cleanup_free_ char *known = NULL;
        char own[64];
        int r;

        if (!boot_id) {
                r = read_boot_id(own);
                if (r < 0)
                        return reason_set(err, r, REASON_INTERNAL, "the kernel's boot id cannot be read: %s",
                                          strerror(-r));
                boot_id = own;
        }

        r = store_get_fact(control->options.store, "boot_id", &known, err);
        if (r < 0 && r != -ENOENT)
                return r;
        error_clear(err);
        if (known && strcmp(known, boot_id) == 0)
                return 0;

        for (size_t i = 0; known && i < control->sandboxes.n; i++) {
                Sandbox *sandbox = control->sandboxes.items[i];

                if (sandbox->record.state != SANDBOX_DELETING)
                        execs_end(sandbox, EXEC_OBSERVED_REBOOTED, false);
                (void) sandbox_apply(sandbox, SANDBOX_OBSERVED_REBOOTED, REASON_UNSPECIFIED,
                                     "the machine was restarted", NULL, NULL);
        }
        return store_set_fact(control->options.store, "boot_id", boot_id, err);
}

/* Everything goes on from the store; nothing is told to anybody before it returns. */
static int start(Control *control, HutchError *err) {
        int r;

        r = control_load(control, err);
        if (r < 0)
                return r;
        r = check_boot(control, err);
        if (r < 0)
                return r;
        FAILPOINT("control.recover.loaded");

        r = orphans_find(control, err);
        if (r < 0)
                return r;
        r = control_flush(control, err);
        if (r < 0)
                return r;
        r = store_commit(control->options.store, err);
        if (r < 0)
                return r;
        r = store_sync(control->options.store, err);
        if (r < 0)
                return r;
        FAILPOINT("control.recover.done");
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        Control *control = handle->data;

        if (--control->n_handles > 0)
                return;
        if (control->free_done)
                control->free_done(control->free_user);
        free(control);
}

int control_new(uv_loop_t *loop, const ControlOptions *options, Control **ret_control, HutchError *err) {
        _cleanup_(error_clear) HutchError local = {};
        Control *control = new0(Control, 1);
        int r;

        err = err ? err : &local;
        control->loop = loop;
        control->options = *options;
        if (options->claim_time == 0)
                control->options.claim_time = CLAIM_TIME;
        if (options->repeat_time == 0)
                control->options.repeat_time = REPEAT_TIME;
        if (options->warm_time == 0)
                control->options.warm_time = WARM_TIME;
        control->touched_end = &control->touched;
        control->waiters_end = &control->waiters;
        control->for_disk_end = &control->for_disk;
        control->notify_end = &control->notify;
        control->events.pending_end = control->events.unwritten = &control->events.pending;
        control->watches.wake_end = &control->watches.wake;
        (void) uv_prepare_init(loop, &control->prepare);
        (void) uv_idle_init(loop, &control->idle);
        (void) uv_timer_init(loop, &control->deadlines.timer);
        (void) uv_timer_init(loop, &control->linger);
        (void) uv_timer_init(loop, &control->sync);
        control->prepare.data = control->idle.data = control->deadlines.timer.data = control->linger.data =
                control->sync.data = control;
        warm_init(control);
        control->n_handles = 6;

        r = start(control, err);
        if (r < 0) {
                control_free(control, NULL, NULL);
                return r;
        }

        event_log_resize(&control->events, options->limits.watch_buffer);
        settle(control);
        control_arm(control);
        deadlines_start(control);
        *ret_control = control;
        return 0;
}

void control_free(Control *control, void (*done)(void *user), void *user) {
        assert(!control->is_committing);

        while (control->sandboxes.n > 0)
                sandbox_drop(control->sandboxes.items[control->sandboxes.n - 1]);
        warm_free(control);
        orphans_free(control, true);
        event_log_free(&control->events);
        control->found_exec = exec_free(control->found_exec);
        control->found_sandbox = sandbox_free(control->found_sandbox);
        waiters_free(control->waiters);
        waiters_free(control->for_disk);
        table_clear(&control->sandboxes_by_id);
        table_clear(&control->owners);
        table_clear(&control->watches.by_id);
        free(control->sandboxes.items);
        uid_slots_clear(&control->uid_slots);
        free(control->deadlines.heap);
        free(control->converging);

        control->free_done = done;
        control->free_user = user;
        uv_close((uv_handle_t *) &control->prepare, on_closed);
        uv_close((uv_handle_t *) &control->idle, on_closed);
        uv_close((uv_handle_t *) &control->deadlines.timer, on_closed);
        uv_close((uv_handle_t *) &control->linger, on_closed);
        uv_close((uv_handle_t *) &control->sync, on_closed);
        uv_close((uv_handle_t *) &control->warm.timer, on_closed);
}

void control_set_limits(Control *control, const ControlLimits *limits) {
        control->options.limits = *limits;
        event_log_resize(&control->events, limits->watch_buffer);
        warm_update(control);
}

ControlCounts control_counts(const Control *control) {
        return control->counts;
}

const char *control_instance_id(const Control *control) {
        return control->options.instance_id;
}

Runtime *const *control_runtimes(const Control *control) {
        return control->options.runtimes;
}

uint64_t control_cursor(const Control *control) {
        return control->events.durable_cursor;
}
