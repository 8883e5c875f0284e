/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sandboxes as objects, how they are found, and the one place that writes their states. What does not:
 * what callers ask of them (requests.c), what runtimes tell of them (observe.c), and when their time is over
 * (deadlines.c). */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"
#include "control/text.h"

Runtime *runtime_find(const Control *control, const char *name) {
        for (Runtime *const *runtime = control->options.runtimes; *runtime; runtime++)
                if (!name || *name == '\0' || str_equal((*runtime)->verbs->name, name))
                        return *runtime;
        return NULL;
}

Sandbox *sandbox_new(Control *control, const SandboxRecord *record, SandboxSpec *spec) {
        Sandbox *sandbox = new0(Sandbox, 1);

        sandbox->control = control;
        sandbox->record = *record;
        sandbox->record.spec = sandbox_spec_ref(spec);
        sandbox->runtime = runtime_find(control, spec->runtime);
        sandbox->idle_deadline = sandbox->lifetime_deadline = sandbox->unclaimed_deadline = UINT64_MAX;
        sandbox->retry_deadline = sandbox->deadline = UINT64_MAX;
        sandbox->heap_index = SIZE_MAX;
        return sandbox;
}

Sandbox *sandbox_free(Sandbox *sandbox) {
        if (!sandbox)
                return NULL;

        assert(sandbox->n_execs == 0 && sandbox->n_attachments == 0 && sandbox->n_file_calls == 0);
        sandbox_detach(sandbox);
        sandbox_saved_free(sandbox->saved);
        (void) sandbox_spec_unref(sandbox->record.spec);
        table_clear(&sandbox->execs_by_id);
        free(sandbox->execs);
        free(sandbox);
        return NULL;
}

void sandbox_saved_free(SandboxSaved *saved) {
        if (!saved)
                return;
        (void) sandbox_spec_unref(saved->record.spec);
        free(saved);
}

/* Lists. */

size_t sandbox_list_after(const SandboxList *list, uint64_t serial) {
        size_t low = 0, high = list->n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (list->items[middle]->record.serial <= serial)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static void list_add(SandboxList *list, Sandbox *sandbox) {
        assert(list->n == 0 || list->items[list->n - 1]->record.serial < sandbox->record.serial);

        if (list->n == list->size) {
                list->size = 2 * list->size + 8;
                list->items = xreallocarray(list->items, list->size, sizeof(Sandbox *));
        }
        list->items[list->n++] = sandbox;
}

static void list_remove(SandboxList *list, const Sandbox *sandbox) {
        size_t after = sandbox_list_after(list, sandbox->record.serial);

        assert(after > 0 && list->items[after - 1] == sandbox);
        memmove(list->items + after - 1, list->items + after, (list->n - after) * sizeof(Sandbox *));
        list->n--;
}

/* Owners. */

Owner *owner_get(Control *control, const char *name) {
        Owner *owner = table_get(&control->owners, name);

        if (!owner) {
                owner = new0(Owner, 1);
                owner->name = xstrdup(name);
                table_add(&control->owners, owner->name, owner);
        }
        return owner;
}

void owner_release(Control *control, Owner *owner) {
        if (owner->sandboxes.n > 0 || owner->n_watches > 0)
                return;

        table_remove(&control->owners, owner->name);
        free(owner->sandboxes.items);
        free(owner->name);
        free(owner);
}

/* In and out of memory. */

void sandbox_count(Sandbox *sandbox, int sign) {
        if (sandbox->record.state == SANDBOX_DELETED)
                return;
        if (sandbox->record.state == SANDBOX_PENDING)
                sandbox->control->n_pending += (uint32_t) sign;
        sandbox->control->counts.sandboxes += (uint32_t) sign;
        sandbox->owner->n_counted += (uint32_t) sign;
}

void sandbox_insert(Sandbox *sandbox) {
        Control *control = sandbox->control;

        sandbox->owner = owner_get(control, sandbox->record.owner);
        table_add(&control->sandboxes_by_id, sandbox->record.id, sandbox);
        list_add(&control->sandboxes, sandbox);
        list_add(&sandbox->owner->sandboxes, sandbox);
        uid_slots_mark(&control->uid_slots, sandbox->record.uid_slot, true);
        sandbox_count(sandbox, 1);
}

void sandbox_drop(Sandbox *sandbox) {
        Control *control = sandbox->control;

        while (sandbox->n_execs > 0)
                exec_drop(sandbox->execs[sandbox->n_execs - 1]);
        sandbox_count(sandbox, -1);
        sandbox_disarm(sandbox);
        table_remove(&control->sandboxes_by_id, sandbox->record.id);
        list_remove(&control->sandboxes, sandbox);
        list_remove(&sandbox->owner->sandboxes, sandbox);
        owner_release(control, TAKE_PTR(sandbox->owner));
        uid_slots_mark(&control->uid_slots, sandbox->record.uid_slot, false);
        sandbox->is_gone = true;
        control_forget_waiting(sandbox);
        file_calls_end(sandbox);
        sandbox_detach(sandbox);
        sandbox_release(sandbox);
}

void sandbox_release(Sandbox *sandbox) {
        if (sandbox->is_gone && sandbox->n_attachments == 0)
                (void) sandbox_free(sandbox);
}

void sandbox_touch(Sandbox *sandbox) {
        Control *control = sandbox->control;

        if (sandbox->is_gone)
                return;
        control_arm(control);
        if (sandbox->is_touched)
                return;

        sandbox->is_touched = true;
        sandbox->next_touched = NULL;
        *control->touched_end = sandbox;
        control->touched_end = &sandbox->next_touched;
}

void sandbox_change(Sandbox *sandbox) {
        sandbox_touch(sandbox);
        sandbox->is_unwritten = true;
        if (sandbox->is_changed)
                return;

        sandbox->is_changed = true;
        if (sandbox->is_new)
                return;
        sandbox->saved = new0(SandboxSaved, 1);
        *sandbox->saved = (SandboxSaved){
                .record = sandbox->record,
                .idle_deadline = sandbox->idle_deadline,
                .lifetime_deadline = sandbox->lifetime_deadline,
        };
        (void) sandbox_spec_ref(sandbox->saved->record.spec);
}

/* The only place that writes a sandbox's state. */
static void sandbox_set_state(Sandbox *sandbox, SandboxState state, Reason reason, const char *message,
                              const Caller *caller) {
        SandboxRecord *record = &sandbox->record;
        SandboxState from = record->state;
        Event event = { .type = EVENT_SANDBOX_STATE_CHANGED, .from_state = from };

        sandbox_change(sandbox);
        sandbox_count(sandbox, -1);
        record->state = state;
        sandbox_count(sandbox, 1);
        record->state_time = clock_realtime_ns();
        if (message) {
                text_copy(record->state_message, sizeof record->state_message, message);
                record->state_reason = reason;
        }
        record->pause_wanted = PAUSE_WANTED_NONE;

        event.reason = record->state_reason;
        event.message = record->state_message;
        event_add(sandbox, &event, caller);
        sandbox_update_idle(sandbox);
        sandbox_arm(sandbox);
        log_info("sandbox changed", LOG_STR("sandbox", record->id), LOG_STR("from", sandbox_state_name(from)),
                 LOG_STR("to", sandbox_state_name(state)), LOG_STR("why", message && *message ? message : NULL));
}

int sandbox_apply(Sandbox *sandbox, SandboxInput input, Reason reason, const char *message, const Caller *caller,
                  HutchError *err) {
        SandboxTransition transition;
        int r = sandbox_state_apply(sandbox->record.state, input, &transition, err);

        if (r < 0) {
                error_add_pair(err, "state", "%s", sandbox_state_name(sandbox->record.state));
                return r;
        }
        if (transition.action == TRANSITION_MOVE)
                sandbox_set_state(sandbox, transition.state, reason, message, caller);
        return transition.action;
}

int sandbox_stop(Sandbox *sandbox, uint64_t grace, Reason reason, const char *message, const Caller *caller,
                 HutchError *err) {
        int r = sandbox_apply(sandbox, SANDBOX_REQUEST_STOP, reason, message, caller, err);

        if (r != TRANSITION_MOVE)
                return r;
        sandbox->record.stop_grace = grace;
        execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, true);
        return r;
}

int sandbox_delete(Sandbox *sandbox, Reason reason, const char *message, const Caller *caller, HutchError *err) {
        int r = sandbox_apply(sandbox, SANDBOX_REQUEST_DELETE, reason, message, caller, err);

        if (r == TRANSITION_MOVE)
                execs_end(sandbox, EXEC_OBSERVED_SANDBOX_ENDED, true);
        return r;
}

/* Finding. */

static int take_found(const SandboxRecord *record, const StoredSpec *stored, void *user) {
        Control *control = user;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        int r = control->options.codec->decode_sandbox_spec(stored, &spec, NULL);

        if (r < 0)
                return r;
        control->found_sandbox = sandbox_new(control, record, spec);
        return 0;
}

int sandbox_find(Control *control, const Caller *caller, const char *id, Sandbox **ret_sandbox, HutchError *err) {
        Sandbox *sandbox = table_get(&control->sandboxes_by_id, id);
        int r;

        if (!sandbox) {
                _cleanup_(error_clear) HutchError problem = {};

                control->found_exec = exec_free(control->found_exec);
                control->found_sandbox = sandbox_free(control->found_sandbox);
                r = store_find_sandbox(control->options.store, id, take_found, control, &problem);
                if (r < 0 && r != -ENOENT)
                        return reason_set(err, r, REASON_STORE_UNAVAILABLE, "sandbox '%s' cannot be read: %s", id,
                                          error_message(&problem));
                sandbox = control->found_sandbox;
        }
        if (!sandbox || (!caller->admin && !str_equal(sandbox->record.owner, caller->name)))
                return reason_set(err, -ENOENT, REASON_SANDBOX_NOT_FOUND, "there is no sandbox '%s'", id);

        *ret_sandbox = sandbox;
        return 0;
}
