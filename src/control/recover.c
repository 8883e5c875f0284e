/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a daemon does at its start: it reads everything back. What does
 * not: what belongs to nobody (orphans.c), how work goes on from there, which is as always (converge.c). */

#include "base/clock.h"
#include "control/plane.h"

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
        uint64_t last_cursor;
        int r;

        r = store_last_serial(store, &control->last_serial, err);
        if (r < 0)
                return r;
        r = store_last_cursor(store, &last_cursor, err);
        if (r < 0)
                return r;
        event_log_init(&control->events, last_cursor);
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
