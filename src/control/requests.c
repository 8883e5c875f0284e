/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what callers ask about sandboxes, and what all requests share: ids, quotas and repeated requests.
 * What does not: requests about execs (execs.c, attachments.c) and events (watches.c). */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"
#include "control/text.h"

#define DELETED_PAGE 64
#define WALL_CHANGE_MIN (100 * NSEC_PER_MSEC) /* less is taken for the time between reading two clocks */

void id_make(const char *prefix, char ret_id[static ID_LEN_MAX + 1]) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        size_t at = strlen(prefix), end = at + 20;

        memcpy(ret_id, prefix, at);
        while (at < end) {
                uint8_t bytes[24];
                ssize_t n = getrandom(bytes, sizeof bytes, 0);

                /* 252 is a multiple of 36: what is above would prefer some letters. */
                for (ssize_t i = 0; i < n && at < end; i++)
                        if (bytes[i] < 252)
                                ret_id[at++] = letters[bytes[i] % 36];
        }
        ret_id[at] = '\0';
}

int quota_check(uint64_t used, uint64_t limit, const char *name, const char *what, HutchError *err) {
        if (limit == 0 || used < limit)
                return 0;

        (void) reason_set(err, -EDQUOT, REASON_QUOTA_EXCEEDED,
                          "there are %" PRIu64 " %s already, and %s allows no more", used, what, name);
        error_add_pair(err, "limit", "%s", name);
        error_add_pair(err, "value", "%" PRIu64, limit);
        return -EDQUOT;
}

int request_find(Control *control, const Caller *caller, const RequestKey *key, RequestRow *ret_row, HutchError *err) {
        RequestRow row = { .caller = caller->name, .method = key->method, .request_id = key->request_id };
        _cleanup_(error_clear) HutchError problem = {};
        int r;

        if (!key->request_id || *key->request_id == '\0')
                return 0;

        r = store_find_request(control->options.store, &row, &problem);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return reason_set(err, r, REASON_STORE_UNAVAILABLE, "%s", error_message(&problem));
        if (memcmp(row.fingerprint, key->fingerprint, FINGERPRINT_SIZE) != 0)
                return reason_set(err, -EEXIST, REASON_REQUEST_ID_REUSED,
                                  "the request id '%s' was used for another %s; give each request its own",
                                  key->request_id, key->method);

        *ret_row = row;
        return 1;
}

int request_add(Control *control, const Caller *caller, const RequestKey *key, const char *sandbox_id,
                const char *exec_id, HutchError *err) {
        RequestRow row = {
                .caller = caller->name,
                .method = key->method,
                .request_id = key->request_id,
                .time = clock_realtime_ns(),
        };

        if (!key->request_id || *key->request_id == '\0')
                return 0;

        memcpy(row.fingerprint, key->fingerprint, FINGERPRINT_SIZE);
        text_copy(row.sandbox_id, sizeof row.sandbox_id, sandbox_id);
        text_copy(row.exec_id, sizeof row.exec_id, exec_id);
        control_arm(control);
        return store_add_request(control->options.store, &row, err);
}

/* The moment @deadline of the clock that does not jump, as a time in whole milliseconds. It is the same whenever it is
 * asked for, though the clocks cannot be read at once, unless the wall clock was set meanwhile. */
static uint64_t wall_time(Control *control, uint64_t deadline) {
        uint64_t offset = clock_realtime_ns() - clock_monotonic_ns();
        uint64_t change = offset > control->wall_offset ? offset - control->wall_offset : control->wall_offset - offset;

        if (deadline == UINT64_MAX)
                return 0;
        if (change > WALL_CHANGE_MIN)
                control->wall_offset = offset;
        return (deadline + control->wall_offset) / NSEC_PER_MSEC * NSEC_PER_MSEC;
}

/* Of one that is DELETED nothing is due any more, whether it comes from memory still or from the store. */
static SandboxView view_of(const Sandbox *sandbox) {
        bool is_there = sandbox->record.state != SANDBOX_DELETED;

        return (SandboxView){
                .record = &sandbox->record,
                .active_execs = sandbox->n_active,
                .idle_deadline = wall_time(sandbox->control, is_there ? sandbox->idle_deadline : UINT64_MAX),
                .lifetime_deadline = wall_time(sandbox->control, is_there ? sandbox->lifetime_deadline : UINT64_MAX),
        };
}

static int check_new_id(Control *control, const char *id, HutchError *err) {
        int r = table_get(&control->sandboxes_by_id, id) || orphan_is_there(control, id) || warm_is_there(control, id);

        if (r == 0)
                r = store_id_is_used(control->options.store, id, err);
        if (r < 0)
                return r;
        return r > 0 ? reason_set(err, -EEXIST, REASON_ID_TAKEN, "the id '%s' is or was in use; choose another one", id)
                     : 0;
}

int sandbox_check_new(Control *control, const Caller *caller, const SandboxSpec *spec, HutchError *err) {
        const ControlLimits *limits = &control->options.limits;
        const Owner *owner = table_get(&control->owners, caller->name);
        int r;

        r = quota_check(owner ? owner->n_counted : 0, limits->sandboxes_per_caller, "sandboxes_per_caller",
                        "sandboxes of this caller", err);
        if (r < 0)
                return r;
        r = quota_check(control->counts.sandboxes, limits->sandboxes, "sandboxes", "sandboxes", err);
        if (r < 0)
                return r;

        for (Runtime *const *runtime = control->options.runtimes; *runtime; runtime++)
                if (!spec->runtime || *spec->runtime == '\0' || str_equal((*runtime)->verbs->name, spec->runtime))
                        return 0;
        return reason_set(err, -EINVAL, REASON_RUNTIME_UNKNOWN, "there is no runtime '%s' here", spec->runtime);
}

Sandbox *sandbox_make(Control *control, const Caller *caller, const char *id, SandboxSpec *spec) {
        SandboxRecord record = { .state = SANDBOX_PENDING, .next_exec_serial = 1 };
        Sandbox *sandbox;

        text_copy(record.id, sizeof record.id, id);
        text_copy(record.owner, sizeof record.owner, caller->name);
        sandbox = sandbox_new(control, &record, spec);
        sandbox->is_new = true;
        return sandbox;
}

void sandbox_accept(Sandbox *sandbox, const Caller *caller, WarmShape *shape) {
        Event event = { .type = EVENT_SANDBOX_CREATED, .is_new = true };
        SandboxRecord *record = &sandbox->record;

        record->serial = ++sandbox->control->last_serial;
        record->create_time = record->state_time = clock_realtime_ns();
        if (!warm_take(sandbox, shape))
                record->uid_slot = uid_slots_take(&sandbox->control->uid_slots);
        sandbox_insert(sandbox);
        sandbox_change(sandbox);
        sandbox_init_times(sandbox, record->spec->max_lifetime);
        event_add(sandbox, &event, caller);
}

int control_repeat_sandbox(Control *control, const Caller *caller, const RequestKey *key, SandboxView *ret_view,
                           HutchError *err) {
        RequestRow row;
        int r = request_find(control, caller, key, &row, err);

        if (r <= 0)
                return r;
        r = control_get_sandbox(control, caller, row.sandbox_id, ret_view, err);
        return r < 0 ? r : 1;
}

int control_create_sandbox(Control *control, const Caller *caller, const RequestKey *key, const char *id,
                           SandboxSpec *spec, SandboxView *ret_view, HutchError *err) {
        _cleanup_(warm_shape_clear) WarmShape shape = {};
        char new_id[ID_LEN_MAX + 1];
        Sandbox *sandbox;
        int r;

        if (*id == '\0') {
                warm_choose_id(control, spec, &shape, new_id);
        } else {
                r = check_new_id(control, id, err);
                if (r < 0)
                        return r;
                text_copy(new_id, sizeof new_id, id);
        }
        r = sandbox_check_new(control, caller, spec, err);
        if (r < 0)
                return r;
        r = request_add(control, caller, key, new_id, "", err);
        if (r < 0)
                return r;

        sandbox = sandbox_make(control, caller, new_id, spec);
        sandbox_accept(sandbox, caller, &shape);
        /* It has a process wait for its first exec. That would be soon now, or never. */
        if (sandbox->was_warm)
                sandbox->remote->verbs->expect_exec(sandbox->remote, spec->user);
        FAILPOINT("control.create.accepted");

        *ret_view = view_of(sandbox);
        return 0;
}

int control_get_sandbox(Control *control, const Caller *caller, const char *id, SandboxView *ret_view,
                        HutchError *err) {
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        *ret_view = view_of(sandbox);
        return 0;
}

int control_stop_sandbox(Control *control, const Caller *caller, const char *id, uint64_t grace, SandboxView *ret_view,
                         HutchError *err) {
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        r = sandbox_stop(sandbox, grace, REASON_UNSPECIFIED, "", caller, err);
        if (r < 0)
                return r;
        FAILPOINT("control.stop.accepted");
        *ret_view = view_of(sandbox);
        return 0;
}

int control_resume_sandbox(Control *control, const Caller *caller, const RequestKey *key, const char *id,
                           SandboxView *ret_view, HutchError *err) {
        SandboxTransition transition = { .action = TRANSITION_REFUSE };
        Sandbox *sandbox;
        int r;

        r = control_repeat_sandbox(control, caller, key, ret_view, err);
        if (r != 0)
                return r < 0 ? r : 0;
        r = sandbox_find(control, caller, id, &sandbox, err);
        if (r < 0)
                return r;

        if (sandbox_state_apply(sandbox->record.state, SANDBOX_REQUEST_RESUME, &transition, NULL) == 0 &&
            transition.action == TRANSITION_MOVE && sandbox->record.expired)
                return reason_set(err, -EBUSY, REASON_SANDBOX_EXPIRED,
                                  "the maximum lifetime of sandbox '%s' has passed; it can only be deleted", id);
        if (transition.action != TRANSITION_REFUSE) {
                r = request_add(control, caller, key, id, "", err);
                if (r < 0)
                        return r;
        }
        r = sandbox_apply(sandbox, SANDBOX_REQUEST_RESUME, REASON_UNSPECIFIED, "", caller, err);
        if (r < 0)
                return r;
        FAILPOINT("control.resume.accepted");
        *ret_view = view_of(sandbox);
        return 0;
}

static bool can_pause(const Sandbox *sandbox) {
        const char *const *feature = sandbox->remote ? sandbox->remote->verbs->features : NULL;

        while (feature && *feature && !str_equal(*feature, "pause"))
                feature++;
        return feature && *feature;
}

int control_pause_sandbox(Control *control, const Caller *caller, const char *id, bool pause, SandboxView *ret_view,
                          HutchError *err) {
        PauseWanted wanted = pause ? PAUSE_WANTED_PAUSE : PAUSE_WANTED_UNPAUSE;
        PauseWanted opposite = pause ? PAUSE_WANTED_UNPAUSE : PAUSE_WANTED_PAUSE;
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        r = sandbox_apply(sandbox, pause ? SANDBOX_REQUEST_PAUSE : SANDBOX_REQUEST_UNPAUSE, REASON_UNSPECIFIED, "",
                          caller, err);
        if (r < 0)
                return r;
        if (pause && r == TRANSITION_OK && !can_pause(sandbox))
                return reason_set(err, -EOPNOTSUPP, REASON_FEATURE_UNSUPPORTED,
                                  "sandboxes cannot be paused here: that takes cgroups that hutchd may use");
        if (sandbox->record.pause_wanted == opposite)
                return reason_set(err, -EBUSY, REASON_OPERATION_IN_PROGRESS, "sandbox '%s' is being %s; wait for it",
                                  id, pause ? "unpaused" : "paused");

        if (r == TRANSITION_OK && sandbox->record.pause_wanted != wanted) {
                sandbox_change(sandbox);
                sandbox->record.pause_wanted = wanted;
                FAILPOINT("control.pause.accepted");
        }
        *ret_view = view_of(sandbox);
        return 0;
}

int control_delete_sandbox(Control *control, const Caller *caller, const char *id, SandboxView *ret_view,
                           HutchError *err) {
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        r = sandbox_delete(sandbox, REASON_UNSPECIFIED, "", caller, err);
        if (r < 0)
                return r;
        FAILPOINT("control.delete.accepted");
        *ret_view = view_of(sandbox);
        return 0;
}

/* The lifetime counts from the creation, whatever it was before. */
static uint64_t new_lifetime_left(const Sandbox *sandbox, const SandboxSpec *spec) {
        uint64_t old = sandbox->record.spec->max_lifetime, now = clock_realtime_ns();
        uint64_t passed = now > sandbox->record.create_time ? now - sandbox->record.create_time : 0;

        if (old > 0 && !sandbox->record.expired)
                passed = old - sandbox_lifetime_left(sandbox, clock_monotonic_ns());
        return spec->max_lifetime > passed ? spec->max_lifetime - passed : 0;
}

int control_update_sandbox(Control *control, const Caller *caller, const char *id, SandboxSpec *spec,
                           const char *const *fields, SandboxView *ret_view, HutchError *err) {
        Event event = { .type = EVENT_SANDBOX_UPDATED, .fields = fields };
        uint64_t lifetime_left;
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        r = sandbox_apply(sandbox, SANDBOX_REQUEST_UPDATE, REASON_UNSPECIFIED, "", caller, err);
        if (r < 0)
                return r;

        if (*fields) {
                sandbox_change(sandbox);
                lifetime_left = new_lifetime_left(sandbox, spec);
                (void) sandbox_spec_ref(spec);
                (void) sandbox_spec_unref(sandbox->record.spec);
                sandbox->record.spec = spec;
                if (spec->max_lifetime == 0 || lifetime_left > 0)
                        sandbox->record.expired = false;
                sandbox_init_times(sandbox, lifetime_left);
                sandbox_update_idle(sandbox);
                event_add(sandbox, &event, caller);
                FAILPOINT("control.update.accepted");
        }
        *ret_view = view_of(sandbox);
        return 0;
}

/* Lists. */

static bool filter_matches(const SandboxFilter *filter, const SandboxRecord *record) {
        unsigned states = filter->states ? filter->states : ~(1u << SANDBOX_DELETED);

        return (states >> record->state & 1) &&
               (!filter->selector || selector_matches(filter->selector, record->spec->labels, record->spec->n_labels));
}

static int check_all_owners(const Caller *caller, bool all_owners, HutchError *err) {
        return all_owners && !caller->admin
                       ? reason_set(err, -EPERM, REASON_CALLER_NOT_ALLOWED, "only admins see what belongs to others")
                       : 0;
}

/* DELETED sandboxes, a page of them, out of the store. */
typedef struct DeletedPage {
        Control *control;
        const char *owner;
        Sandbox *items[DELETED_PAGE];
        size_t n, at;
        uint64_t after;
        bool is_last;
} DeletedPage;

static void page_clear(DeletedPage *page) {
        for (; page->at < page->n; page->at++)
                page->items[page->at] = sandbox_free(page->items[page->at]);
}

static int page_add(const SandboxRecord *record, const StoredSpec *stored, void *user) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        DeletedPage *page = user;
        int r = page->control->options.codec->decode_sandbox_spec(stored, &spec, NULL);

        if (r < 0)
                return r;
        page->items[page->n++] = sandbox_new(page->control, record, spec);
        page->after = record->serial;
        return 0;
}

/* The next of them, or NULL. */
static int page_peek(DeletedPage *page, Sandbox **ret_sandbox, HutchError *err) {
        int r;

        if (page->at == page->n && !page->is_last) {
                page->at = page->n = 0;
                r = store_each_deleted(page->control->options.store, page->owner, page->after, DELETED_PAGE, page_add,
                                       page, err);
                if (r < 0)
                        return r;
                page->is_last = page->n < DELETED_PAGE;
        }
        *ret_sandbox = page->at < page->n ? page->items[page->at] : NULL;
        return 0;
}

static const SandboxList no_sandboxes = {};

int control_list_sandboxes(Control *control, const Caller *caller, const SandboxFilter *filter, uint64_t *after,
                           SandboxCallback callback, void *user, HutchError *err) {
        _cleanup_(page_clear) DeletedPage page = { .control = control, .after = *after };
        const SandboxList *list = &control->sandboxes;
        bool deleted = filter->states >> SANDBOX_DELETED & 1, live = filter->states != 1u << SANDBOX_DELETED;
        uint64_t last = *after;
        size_t i, n_dead = 0;
        int r;

        r = check_all_owners(caller, filter->all_owners, err);
        if (r < 0)
                return r;
        if (!filter->all_owners) {
                const Owner *owner = table_get(&control->owners, caller->name);

                page.owner = caller->name;
                list = owner ? &owner->sandboxes : &no_sandboxes;
        }
        page.is_last = !deleted;
        if (deleted) {
                r = control_flush(control, err);
                if (r < 0)
                        return r;
        }

        for (i = live ? sandbox_list_after(list, *after) : list->n;;) {
                Sandbox *dead, *next = i < list->n ? list->items[i] : NULL;
                SandboxView view;
                bool go_on = true;

                /* One that is DELETED and still in memory is in the store as well. */
                if (next && next->record.state == SANDBOX_DELETED) {
                        i++;
                        continue;
                }
                r = page_peek(&page, &dead, err);
                if (r < 0)
                        return r;
                if (!next && !dead)
                        return 0;
                if (n_dead == LOOKS_MAX) {
                        *after = last;
                        return 1;
                }

                if (dead && (!next || dead->record.serial < next->record.serial)) {
                        next = dead;
                        page.at++;
                        n_dead++;
                } else {
                        dead = NULL;
                        i++;
                }
                if (filter_matches(filter, &next->record)) {
                        view = view_of(next);
                        go_on = callback(&view, user);
                }
                last = next->record.serial;
                (void) sandbox_free(dead);
                if (!go_on)
                        return 0;
        }
}

int control_delete_sandboxes(Control *control, const Caller *caller, const SandboxFilter *filter,
                             SandboxCallback callback, void *user, HutchError *err) {
        const SandboxList *list = &control->sandboxes;
        int r;

        r = check_all_owners(caller, filter->all_owners, err);
        if (r < 0)
                return r;
        if (!filter->all_owners) {
                const Owner *owner = table_get(&control->owners, caller->name);

                list = owner ? &owner->sandboxes : &no_sandboxes;
        }

        for (size_t i = 0; i < list->n; i++) {
                Sandbox *sandbox = list->items[i];
                SandboxView view;

                if (!filter_matches(filter, &sandbox->record) || sandbox->record.state == SANDBOX_DELETED)
                        continue;
                r = sandbox_delete(sandbox, REASON_UNSPECIFIED, "", caller, err);
                if (r < 0)
                        return r;
                view = view_of(sandbox);
                if (!callback(&view, user))
                        break;
        }
        return 0;
}
