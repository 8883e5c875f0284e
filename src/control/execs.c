/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: execs as objects, the one place that writes their states, and what callers ask of them. What does
 * not: being attached to one (attachments.c), how one is started (converge.c), and how it went (observe.c).
 *
 * Execs that have ended are not in memory, unless somebody is attached: they are read from the store. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"
#include "control/text.h"
#include "output/output-file.h"

#define MAIN_ID "main"
#define LIST_PAGE 64

Exec *exec_new(Sandbox *sandbox, const ExecRecord *record, ExecSpec *spec) {
        Exec *exec = new0(Exec, 1);

        exec->sandbox = sandbox;
        exec->record = *record;
        exec->record.spec = exec_spec_ref(spec);
        return exec;
}

Exec *exec_free(Exec *exec) {
        if (!exec)
                return NULL;

        assert(!exec->attachments);
        exec_record_free(exec->saved);
        (void) exec_spec_unref(exec->record.spec);
        free(exec);
        return NULL;
}

void exec_record_free(ExecRecord *record) {
        if (!record)
                return;
        (void) exec_spec_unref(record->spec);
        free(record);
}

void exec_count(Exec *exec, int sign) {
        if (!exec_is_active(exec))
                return;
        exec->sandbox->n_active += (uint32_t) sign;
        exec->sandbox->owner->n_active += (uint32_t) sign;
        exec->sandbox->control->counts.active_execs += (uint32_t) sign;
}

void exec_insert(Exec *exec) {
        Sandbox *sandbox = exec->sandbox;
        size_t i = sandbox->n_execs;

        if (i == sandbox->execs_size) {
                sandbox->execs_size = 2 * sandbox->execs_size + 4;
                sandbox->execs = xreallocarray(sandbox->execs, sandbox->execs_size, sizeof(Exec *));
        }
        /* All but those that are read from the store again come last. */
        for (; i > 0 && sandbox->execs[i - 1]->record.serial > exec->record.serial; i--)
                sandbox->execs[i] = sandbox->execs[i - 1];
        sandbox->execs[i] = exec;
        sandbox->n_execs++;
        table_add(&sandbox->execs_by_id, exec->record.id, exec);
        exec_count(exec, 1);
}

void exec_drop(Exec *exec) {
        Sandbox *sandbox = exec->sandbox;
        size_t low = 0, high = sandbox->n_execs;

        while (low + 1 < high) {
                size_t middle = low + (high - low) / 2;

                if (sandbox->execs[middle]->record.serial <= exec->record.serial)
                        low = middle;
                else
                        high = middle;
        }
        assert(sandbox->n_execs > 0 && sandbox->execs[low] == exec);

        exec_count(exec, -1);
        table_remove(&sandbox->execs_by_id, exec->record.id);
        memmove(sandbox->execs + low, sandbox->execs + low + 1, (sandbox->n_execs - low - 1) * sizeof(Exec *));
        sandbox->n_execs--;
        exec_detach(exec);
        exec->is_gone = true;
        if (!exec->attachments)
                (void) exec_free(exec);
}

void exec_change(Exec *exec) {
        sandbox_touch(exec->sandbox);
        exec->is_unwritten = true;
        if (exec->is_changed)
                return;

        exec->is_changed = true;
        exec->next_changed = exec->sandbox->changed_execs;
        exec->sandbox->changed_execs = exec;
        if (exec->is_new)
                return;
        exec->saved = new0(ExecRecord, 1);
        *exec->saved = exec->record;
        (void) exec_spec_ref(exec->saved->spec);
}

/* The only place that writes an exec's state. */
static void exec_set_state(Exec *exec, ExecState state, const ExecResult *result, const Caller *caller) {
        Event event = { .type = EVENT_EXEC_STATE_CHANGED, .exec = &exec->record, .exec_from = exec->record.state };

        exec_change(exec);
        exec_count(exec, -1);
        exec->record.state = state;
        exec_count(exec, 1);
        if (!exec_is_active(exec)) {
                exec->record.result = *result;
                sandbox_change(exec->sandbox);
                exec->sandbox->record.output_kept +=
                        result->out.total - result->out.dropped + result->err.total - result->err.dropped;
                if (exec->record.end_time == 0)
                        exec->record.end_time = clock_realtime_ns();
                event.reason = result->failure;
                event.message = result->message;
        }

        event_add(exec->sandbox, &event, caller);
        exec_update_follow(exec);
        sandbox_update_idle(exec->sandbox);
        log_debug("exec changed", LOG_STR("sandbox", exec->sandbox->record.id), LOG_STR("exec", exec->record.id),
                  LOG_STR("to", exec_state_name(state)));
}

int exec_apply(Exec *exec, ExecInput input, const ExecResult *result, const Caller *caller, HutchError *err) {
        ExecTransition transition;
        int r = exec_state_apply(exec->record.state, input, &transition, err);

        if (r < 0) {
                error_add_pair(err, "state", "%s", exec_state_name(exec->record.state));
                return r;
        }
        if (transition.action == TRANSITION_MOVE)
                exec_set_state(exec, transition.state, result, caller);
        return transition.action;
}

/* What there is of a stream of output, as far as that is known. */
static StreamSummary output_so_far(const Exec *exec, int stream) {
        RuntimeSandbox *remote = exec->record.state == EXEC_RUNNING ? sandbox_remote(exec->sandbox) : NULL;
        _cleanup_close_ int fd = remote ? remote->verbs->open_output(remote, exec->record.id, stream) : -1;
        OutputWindow window;

        if (fd < 0 || output_file_window(fd, exec->record.spec->output_limit, &window) < 0)
                return (StreamSummary){};
        return (StreamSummary){ .total = window.total, .dropped = output_window_dropped(window) };
}

/* How an exec ends with its sandbox, as far as only that is known. */
static ExecResult result_of_end(const Sandbox *sandbox, ExecInput input) {
        ExecResult result = {};

        if (input == EXEC_OBSERVED_REBOOTED) {
                result.end_reason = EXEC_END_MACHINE_DOWN;
                text_copy(result.message, sizeof result.message, "the machine went down");
                return result;
        }
        switch (sandbox->record.state) {
        case SANDBOX_STOPPING:
        case SANDBOX_STOPPED:
                result.end_reason = EXEC_END_SANDBOX_STOPPED;
                text_copy(result.message, sizeof result.message, "its sandbox was stopped");
                break;
        case SANDBOX_DELETING:
        case SANDBOX_DELETED:
                result.end_reason = EXEC_END_SANDBOX_DELETED;
                text_copy(result.message, sizeof result.message, "its sandbox was deleted");
                break;
        default:
                result.end_reason = EXEC_END_SANDBOX_FAILED;
                text_copy(result.message, sizeof result.message, "its sandbox failed");
        }
        return result;
}

void execs_end(Sandbox *sandbox, ExecInput input, bool only_waiting) {
        ExecResult result = result_of_end(sandbox, input);

        for (size_t i = 0; i < sandbox->n_execs; i++) {
                Exec *exec = sandbox->execs[i];

                if (!exec_is_active(exec) || (only_waiting && exec->start_asked))
                        continue;
                result.out = output_so_far(exec, 1);
                result.err = output_so_far(exec, 2);
                (void) exec_apply(exec, input, &result, NULL, NULL);
        }
}

static bool layer_has(const EnvVariable *variables, size_t n_variables, const char *name) {
        for (size_t i = 0; i < n_variables; i++)
                if (str_equal(variables[i].name, name))
                        return true;
        return false;
}

bool exec_wants_default(const Sandbox *sandbox, const ExecSpec *spec, const char *name) {
        for (char *const *unset = spec->unset_env; unset && *unset; unset++)
                if (str_equal(*unset, name))
                        return false;
        return !layer_has(sandbox->record.spec->env, sandbox->record.spec->n_env, name) &&
               !layer_has(spec->env, spec->n_env, name);
}

/* What a process of the sandbox gets, but for exec_wants_default(). */
int exec_environment(const Sandbox *sandbox, const ExecSpec *spec, char ***ret_environment, HutchError *err) {
        const EnvVariable defaults[] = {
                { "HUTCH_SANDBOX_ID", sandbox->record.id },
                { "LANG", "C.UTF-8" },
                { "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
                { "TERM", "xterm-256color" },
        };
        const EnvLayer layers[] = {
                { defaults, spec->terminal ? 4 : 3 },
                { sandbox->record.spec->env, sandbox->record.spec->n_env },
                { spec->env, spec->n_env },
        };
        _cleanup_free_ char **environment = NULL;
        size_t n_unset = 0;
        int r;

        while (spec->unset_env && spec->unset_env[n_unset])
                n_unset++;
        r = environment_merge(layers, 3, (const char *const *) spec->unset_env, n_unset, &environment, err);
        if (r < 0)
                return r;
        r = arguments_check_size(spec->argv, environment, err);
        if (r < 0)
                return r;

        *ret_environment = TAKE_PTR(environment);
        return 0;
}

uint64_t exec_timeout(const Exec *exec) {
        uint64_t own = exec->record.spec->timeout, limit = exec->sandbox->record.spec->limits.exec_timeout;

        return own == 0 || (limit > 0 && limit < own) ? limit : own;
}

const char *exec_user(const Sandbox *sandbox, const ExecSpec *spec) {
        return spec->user ? spec->user : sandbox->record.spec->user;
}

void exec_expect(Sandbox *sandbox, const ExecSpec *spec) {
        if (sandbox->remote && !spec->terminal)
                sandbox->remote->verbs->expect_exec(sandbox->remote, exec_user(sandbox, spec));
}

Exec *exec_accept(Sandbox *sandbox, const char *id, ExecSpec *spec, bool bound, const Caller *caller) {
        ExecRecord record = {
                .sandbox_serial = sandbox->record.serial,
                .state = EXEC_PENDING,
                .create_time = clock_realtime_ns(),
                .bound = bound,
        };
        Event event = { .type = EVENT_EXEC_CREATED, .is_new = true };
        Exec *exec;

        if ((sandbox->record.state == SANDBOX_READY || sandbox->operation == OPERATION_START) &&
            sandbox->n_active == 0 && !(sandbox->is_new && sandbox->was_warm))
                exec_expect(sandbox, spec);
        sandbox_change(sandbox);
        text_copy(record.id, sizeof record.id, id);
        record.serial = sandbox->record.next_exec_serial++;
        exec = exec_new(sandbox, &record, spec);
        exec->is_new = true;
        exec_insert(exec);
        exec_change(exec);
        sandbox->execs_need_converge = true;
        event.exec = &exec->record;
        event_add(sandbox, &event, caller);
        sandbox_update_idle(sandbox);
        return exec;
}

static int ignore_exec(const ExecRecord *record, const StoredSpec *stored, void *user) {
        (void) record;
        (void) stored;
        (void) user;
        return 0;
}

/* Whether there is or was an exec of that id: 1 or 0. */
static int exec_exists(Sandbox *sandbox, const char *id, HutchError *err) {
        _cleanup_(error_clear) HutchError problem = {};
        int r;

        if (table_get(&sandbox->execs_by_id, id))
                return 1;
        r = store_find_exec(sandbox->control->options.store, sandbox->record.serial, id, ignore_exec, NULL, &problem);
        if (r == -ENOENT)
                return 0;
        return r < 0 ? reason_set(err, r, REASON_STORE_UNAVAILABLE, "%s", error_message(&problem)) : 1;
}

/* The sandbox's command runs once, when it is READY for the first time; a resume does not run it again. */
int exec_main_is_due(Sandbox *sandbox, HutchError *err) {
        int r = sandbox->record.spec->command ? exec_exists(sandbox, MAIN_ID, err) : 1;

        return r < 0 ? r : r == 0;
}

void exec_create_main(Sandbox *sandbox) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec =
                sandbox->control->options.codec->make_main_spec(sandbox->record.spec);

        (void) exec_accept(sandbox, MAIN_ID, spec, false, NULL);
}

int exec_check_new(Sandbox *sandbox, const char *id, const ExecSpec *spec, HutchError *err) {
        const ControlLimits *limits = &sandbox->control->options.limits;
        const Owner *owner = table_get(&sandbox->control->owners, sandbox->record.owner);
        _cleanup_free_ char **environment = NULL;
        int r;

        r = sandbox_apply(sandbox, SANDBOX_REQUEST_USE, REASON_UNSPECIFIED, "", NULL, err);
        if (r < 0)
                return r;

        r = *id != '\0' && str_equal(id, MAIN_ID) && sandbox->record.spec->command ? 1 : 0;
        if (r == 0 && *id != '\0')
                r = exec_exists(sandbox, id, err);
        if (r < 0)
                return r;
        if (r > 0)
                return reason_set(err, -EEXIST, REASON_ID_TAKEN, "sandbox '%s' has an exec '%s' already",
                                  sandbox->record.id, id);

        r = quota_check(sandbox->n_active, limits->execs_per_sandbox, "execs_per_sandbox", "execs in this sandbox",
                        err);
        if (r < 0)
                return r;
        r = quota_check(owner ? owner->n_active : 0, limits->execs_per_caller, "execs_per_caller",
                        "execs of this caller", err);
        if (r < 0)
                return r;
        r = quota_check(sandbox->control->counts.active_execs, limits->execs, "execs", "execs", err);
        if (r < 0)
                return r;
        return exec_environment(sandbox, spec, &environment, err);
}

int control_repeat_exec(Control *control, const Caller *caller, const RequestKey *key, ExecView *ret_view,
                        HutchError *err) {
        RequestRow row;
        int r = request_find(control, caller, key, &row, err);

        if (r <= 0)
                return r;
        r = control_get_exec(control, caller, row.sandbox_id, row.exec_id, ret_view, err);
        return r < 0 ? r : 1;
}

int control_create_exec(Control *control, const Caller *caller, const RequestKey *key, const char *sandbox_id,
                        const char *exec_id, ExecSpec *spec, bool bound, ExecView *ret_view, HutchError *err) {
        char id[ID_LEN_MAX + 1];
        Sandbox *sandbox;
        int r;

        r = sandbox_find(control, caller, sandbox_id, &sandbox, err);
        if (r < 0)
                return r;
        r = exec_check_new(sandbox, exec_id, spec, err);
        if (r < 0)
                return r;

        if (*exec_id == '\0')
                id_make("ex-", id);
        else
                text_copy(id, sizeof id, exec_id);
        r = request_add(control, caller, key, sandbox_id, id, err);
        if (r < 0)
                return r;

        *ret_view = exec_view(exec_accept(sandbox, id, spec, bound, caller));
        FAILPOINT("control.exec.accepted");
        return 0;
}

/* Finding. */

typedef struct Found {
        Sandbox *sandbox;
        Exec *exec;
} Found;

static int take_found(const ExecRecord *record, const StoredSpec *stored, void *user) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = NULL;
        Found *found = user;
        int r = found->sandbox->control->options.codec->decode_exec_spec(stored, &spec, NULL);

        if (r < 0)
                return r;
        found->exec = exec_new(found->sandbox, record, spec);
        return 0;
}

int exec_load(Sandbox *sandbox, const char *exec_id, Exec **ret_exec, HutchError *err) {
        _cleanup_(error_clear) HutchError problem = {};
        Found found = { .sandbox = sandbox };
        int r = store_find_exec(sandbox->control->options.store, sandbox->record.serial, exec_id, take_found, &found,
                                &problem);

        if (r == -ENOENT)
                return reason_set(err, r, REASON_EXEC_NOT_FOUND, "sandbox '%s' has no exec '%s'", sandbox->record.id,
                                  exec_id);
        if (r < 0)
                return reason_set(err, r, REASON_STORE_UNAVAILABLE, "exec '%s' cannot be read: %s", exec_id,
                                  error_message(&problem));
        *ret_exec = found.exec;
        return 0;
}

int exec_find(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id, Exec **ret_exec,
              HutchError *err) {
        Sandbox *sandbox;
        int r;

        control->found_exec = exec_free(control->found_exec);
        r = sandbox_find(control, caller, sandbox_id, &sandbox, err);
        if (r < 0)
                return r;

        *ret_exec = table_get(&sandbox->execs_by_id, exec_id);
        if (*ret_exec)
                return 0;
        r = exec_load(sandbox, exec_id, &control->found_exec, err);
        if (r < 0)
                return r;
        *ret_exec = control->found_exec;
        return 0;
}

ExecView exec_view(const Exec *exec) {
        bool has_ended = !exec_is_active(exec);

        return (ExecView){
                .record = &exec->record,
                .sandbox_id = exec->sandbox->record.id,
                .stdout_bytes = has_ended ? exec->record.result.out.total : output_so_far(exec, 1).total,
                .stderr_bytes = has_ended ? exec->record.result.err.total : output_so_far(exec, 2).total,
        };
}

int control_get_exec(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id,
                     ExecView *ret_view, HutchError *err) {
        Exec *exec;
        int r = exec_find(control, caller, sandbox_id, exec_id, &exec, err);

        if (r < 0)
                return r;
        *ret_view = exec_view(exec);
        return 0;
}

void exec_cancel(Exec *exec, uint64_t grace, const Caller *caller) {
        static const ExecResult result = {
                .end_reason = EXEC_END_CANCELLED,
                .message = "it was cancelled before it started",
        };

        /* One that the runtime has been told of may have started: then it is ended once that is known. */
        if (exec->record.state == EXEC_PENDING && !exec->start_asked) {
                exec_change(exec);
                exec->record.cancel_time = clock_realtime_ns();
                exec->record.cancel_grace = grace;
                (void) exec_apply(exec, EXEC_REQUEST_CANCEL, &result, caller, NULL);
        } else if (exec_is_active(exec) && exec->record.cancel_time == 0) {
                exec_change(exec);
                exec->record.cancel_time = clock_realtime_ns();
                exec->record.cancel_grace = grace;
                exec->sandbox->execs_need_converge = true;
        }
        FAILPOINT("control.cancel.accepted");
}

int control_cancel_exec(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id,
                        uint64_t grace, ExecView *ret_view, HutchError *err) {
        Exec *exec;
        int r = exec_find(control, caller, sandbox_id, exec_id, &exec, err);

        if (r < 0)
                return r;
        exec_cancel(exec, grace == UINT64_MAX ? exec->record.spec->kill_grace : grace, caller);
        *ret_view = exec_view(exec);
        return 0;
}

/* A list: a page at a time, so that the store is not being read while the callback does what it likes. */
typedef struct ExecPage {
        Sandbox *sandbox;
        unsigned states;
        Exec *items[LIST_PAGE]; /* those that are in memory are borrowed */
        size_t n;
        size_t n_rows;
        uint64_t after;
} ExecPage;

static int page_add(const ExecRecord *record, const StoredSpec *stored, void *user) {
        ExecPage *page = user;
        Found found = { .sandbox = page->sandbox };
        Exec *exec;
        int r;

        page->n_rows++;
        page->after = record->serial;
        if (page->states != 0 && !(page->states >> record->state & 1))
                return 0;

        exec = table_get(&page->sandbox->execs_by_id, record->id);
        if (!exec) {
                r = take_found(record, stored, &found);
                if (r < 0)
                        return r;
                exec = found.exec;
                exec->is_gone = true;
        }
        page->items[page->n++] = exec;
        return 0;
}

int control_list_execs(Control *control, const Caller *caller, const char *sandbox_id, unsigned states, uint64_t *after,
                       ExecCallback callback, void *user, HutchError *err) {
        ExecPage page = { .states = states, .after = *after };
        size_t n_looks = 0;
        bool go_on = true;
        int r;

        r = sandbox_find(control, caller, sandbox_id, &page.sandbox, err);
        if (r < 0)
                return r;
        r = control_flush(control, err);
        if (r < 0)
                return r;

        do {
                page.n = page.n_rows = 0;
                r = store_each_exec(control->options.store, page.sandbox->record.serial, page.after, LIST_PAGE,
                                    page_add, &page, err);
                for (size_t i = 0; i < page.n; i++) {
                        ExecView view;

                        if (r >= 0 && go_on) {
                                view = exec_view(page.items[i]);
                                go_on = callback(&view, user);
                        }
                        if (page.items[i]->is_gone)
                                (void) exec_free(page.items[i]);
                }
                n_looks += page.n_rows;
        } while (r >= 0 && go_on && page.n_rows == LIST_PAGE && n_looks < LOOKS_MAX);
        if (r < 0 || !go_on || page.n_rows < LIST_PAGE)
                return r < 0 ? r : 0;

        *after = page.after;
        return 1;
}
