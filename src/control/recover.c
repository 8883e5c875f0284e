/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a daemon does at its start: it reads everything back, and has what belongs to nobody removed.
 * What does not: how work goes on from there, which is as always (converge.c). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/objects.h"
#include "control/text.h"

typedef struct Loader {
        Control *control;
        HutchError *err;
} Loader;

/* How much lifetime is left after a time without a daemon. A clock that was set back adds nothing. */
static uint64_t lifetime_left(const SandboxRecord *record) {
        uint64_t now = clock_realtime_ns();
        uint64_t passed = now > record->lifetime_as_of ? now - record->lifetime_as_of : 0;

        return passed < record->lifetime_left ? record->lifetime_left - passed : 0;
}

static int load_sandbox(const SandboxRecord *record, const StoredSpec *stored, void *user) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Loader *loader = user;
        Sandbox *sandbox;
        int r = loader->control->options.codec->decode_sandbox_spec(stored, &spec, loader->err);

        if (r < 0)
                return r;
        sandbox = sandbox_new(loader->control, record, spec);
        sandbox_insert(sandbox);
        sandbox_init_times(sandbox, lifetime_left(record));
        sandbox->needs_recovery = record->state == SANDBOX_READY || record->state == SANDBOX_PAUSED;
        return 0;
}

static int load_exec(const ExecRecord *record, const StoredSpec *stored, void *user) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = NULL;
        Loader *loader = user;
        const SandboxList *list = &loader->control->sandboxes;
        size_t i = sandbox_list_after(list, record->sandbox_serial - 1);
        Sandbox *sandbox = i < list->n ? list->items[i] : NULL;
        Exec *exec;
        int r;

        /* A DELETED one's is of no more interest. */
        if (!sandbox || sandbox->record.serial != record->sandbox_serial)
                return 0;
        r = loader->control->options.codec->decode_exec_spec(stored, &spec, loader->err);
        if (r < 0)
                return r;

        exec = exec_new(sandbox, record, spec);
        exec_insert(exec);
        if (record->bound) {
                exec_await_claim(exec, loader->control->options.claim_time);
        }
        return 0;
}

int control_load(Control *control, HutchError *err) {
        Loader loader = { .control = control, .err = err };
        Store *store = control->options.store;
        int r;

        r = store_last_serial(store, &control->last_serial, err);
        if (r < 0)
                return r;
        r = store_last_cursor(store, &control->last_cursor, err);
        if (r < 0)
                return r;
        control->durable_cursor = control->last_cursor;
        control->ring_first = control->last_cursor + 1;
        r = store_each_sandbox(store, load_sandbox, &loader, err);
        if (r < 0)
                return r;

        r = store_each_active_exec(store, load_exec, &loader, err);
        if (r < 0)
                return r;

        for (size_t i = 0; i < control->sandboxes.n; i++) {
                Sandbox *sandbox = control->sandboxes.items[i];

                sandbox->execs_need_converge = true;
                sandbox_update_idle(sandbox);
                sandbox_arm(sandbox);
                sandbox_touch(sandbox);
        }
        return 0;
}

/* What a runtime has and the store does not know. */
struct Orphan {
        Control *control;
        Orphan *next;
        RuntimeSandbox *remote;
        bool has_uid_slot; /* that nobody else has */
        uint32_t uid_slot;
        bool is_removed;
        char id[ID_LEN_MAX + 1];
};

bool orphan_is_there(const Control *control, const char *id) {
        for (const Orphan *orphan = control->orphans; orphan; orphan = orphan->next)
                if (str_equal(orphan->id, id))
                        return true;
        return false;
}

static void ignore(void *user) {
        (void) user;
}

static void ignore_error(void *user, const HutchError *err) {
        (void) user;
        (void) err;
}

static void ignore_pause(void *user, bool paused) {
        (void) user;
        (void) paused;
}

static void ignore_exec(void *user, const char *exec_id) {
        (void) user;
        (void) exec_id;
}

static void ignore_exec_started(void *user, const char *exec_id, uint64_t start_time) {
        (void) user;
        (void) exec_id;
        (void) start_time;
}

static void ignore_exec_ended(void *user, const char *exec_id, const RuntimeExecEnd *end) {
        (void) user;
        (void) exec_id;
        (void) end;
}

static void ignore_limit(void *user, const char *limit, uint64_t count, const char *exec_id) {
        (void) user;
        (void) limit;
        (void) count;
        (void) exec_id;
}

static void on_removed(void *user) {
        Orphan *orphan = user;

        orphan->is_removed = true;
        control_arm(orphan->control);
}

const RuntimeEvents orphan_runtime_events = {
        .started = ignore,
        .start_failed = ignore_error,
        .stopped = ignore,
        .removed = on_removed,
        .pause_done = ignore_pause,
        .pause_failed = ignore_error,
        .lost = ignore_error,
        .exec_started = ignore_exec_started,
        .exec_ended = ignore_exec_ended,
        .exec_unknown = ignore_exec,
        .limit_hit = ignore_limit,
        .output_grew = ignore_exec,
};

static Orphan *orphan_new(Control *control, const char *id) {
        Orphan *orphan = new0(Orphan, 1);

        orphan->control = control;
        text_copy(orphan->id, sizeof orphan->id, id);
        orphan->next = control->orphans;
        control->orphans = orphan;
        return orphan;
}

/* Nobody else gets its uids while something of it may have them, or what the kernel counts for them. */
static void orphan_hold_uids(Orphan *orphan, uint32_t uid_slot) {
        uid_slot_mark(orphan->control, uid_slot, true);
        orphan->has_uid_slot = true;
        orphan->uid_slot = uid_slot;
}

void orphan_add(Control *control, const char *id, RuntimeSandbox *remote, uint32_t uid_slot) {
        Orphan *orphan = orphan_new(control, id);

        orphan_hold_uids(orphan, uid_slot);
        orphan->remote = remote;
        remote->verbs->rebind(remote, &orphan_runtime_events, orphan);
        remote->verbs->remove(remote);
}

static void note_orphan(const char *id, int64_t uid_slot, void *user) {
        Control *control = user;
        Orphan *orphan;

        if (strlen(id) > ID_LEN_MAX || table_get(&control->sandboxes_by_id, id) || orphan_is_there(control, id))
                return;

        orphan = orphan_new(control, id);
        if (uid_slot >= 0 && !uid_slot_is_used(control, (uint32_t) uid_slot))
                orphan_hold_uids(orphan, (uint32_t) uid_slot);
}

int control_remove_orphans(Control *control, HutchError *err) {
        for (Runtime *const *runtime = control->options.runtimes; *runtime; runtime++) {
                int r = (*runtime)->verbs->list(*runtime, note_orphan, control, err);

                if (r < 0)
                        return r;
                for (Orphan *orphan = control->orphans; orphan; orphan = orphan->next) {
                        if (orphan->remote)
                                continue;
                        log_warning("what is left of an unknown sandbox is removed", LOG_STR("sandbox", orphan->id),
                                    LOG_STR("runtime", (*runtime)->verbs->name));
                        orphan->remote =
                                (*runtime)->verbs->attach(*runtime, orphan->id, &orphan_runtime_events, orphan);
                        orphan->remote->verbs->remove(orphan->remote);
                }
        }
        FAILPOINT("control.recover.orphans");
        return 0;
}

void orphans_free(Control *control, bool all) {
        for (Orphan **place = &control->orphans; *place;) {
                Orphan *orphan = *place;

                if (!all && !orphan->is_removed) {
                        place = &orphan->next;
                        continue;
                }
                *place = orphan->next;
                if (orphan->remote)
                        orphan->remote->verbs->free(orphan->remote);
                if (orphan->has_uid_slot)
                        uid_slot_mark(control, orphan->uid_slot, false);
                free(orphan);
                if (!all && !control->orphans)
                        warm_update(control);
        }
}
