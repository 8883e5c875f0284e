/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: finding what belongs to nobody, and having it removed. What does not: removing (the runtime). */

#include "control/orphans.h"

#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"
#include "control/text.h"

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
        uid_slots_mark(&orphan->control->uid_slots, uid_slot, true);
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
        if (uid_slot >= 0 && !uid_slots_has(&control->uid_slots, (uint32_t) uid_slot))
                orphan_hold_uids(orphan, (uint32_t) uid_slot);
}

int orphans_find(Control *control, HutchError *err) {
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
                        uid_slots_mark(&control->uid_slots, orphan->uid_slot, false);
                free(orphan);
                if (!all && !control->orphans)
                        warm_update(control);
        }
}
