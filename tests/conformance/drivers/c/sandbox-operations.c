/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: commands about sandboxes, and the events of them. What does not: execs and files. */

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "driver.h"

static json_t *sandbox_to_value(const HutchSandbox *sandbox) {
        return message_to_value("Sandbox", sandbox->encoded, sandbox->encoded_len);
}

/* Answers with @sandbox, and frees it. */
static int answer(int r, HutchSandbox *sandbox, json_t *ok) {
        if (r >= 0)
                json_object_set_new(ok, "sandbox", sandbox_to_value(sandbox));
        hutch_sandbox_free(sandbox);
        return r;
}

static uint32_t states_of(const Command *command) {
        const json_t *list = json_object_get(command->args, "states"), *value;
        uint32_t states = 0;
        size_t i;

        json_array_foreach(list, i,
                           value) for (unsigned state = HUTCH_SANDBOX_PENDING; state <= HUTCH_SANDBOX_DELETED;
                                       state++) if (str_has_suffix(json_string_value(value),
                                                                   hutch_sandbox_state_name((HutchSandboxState) state)))
                states |= 1U << state;
        return states;
}

static int create(Command *command, json_t *ok, HutchError **ret_error) {
        const json_t *value = json_object_get(command->args, "spec");
        Bytes spec = value ? encode_value(command, value, hutch_message_descriptor("SandboxSpec")) : (Bytes){};
        HutchSandbox *sandbox = NULL;
        int r = hutch_sandbox_create_encoded(command->client, arg_text(command, "sandbox_id"),
                                             arg_text(command, "request_id"), spec.data, spec.len, &sandbox, ret_error);

        return answer(r, sandbox, ok);
}

#define DEFINE_SIMPLE(name)                                                                                            \
        static int name(Command *command, json_t *ok, HutchError **ret_error) {                                        \
                HutchSandbox *sandbox = NULL;                                                                          \
                int r = hutch_sandbox_##name(command->client, arg_text(command, "sandbox_id"), &sandbox, ret_error);   \
                                                                                                                       \
                return answer(r, sandbox, ok);                                                                         \
        }

DEFINE_SIMPLE(get)
DEFINE_SIMPLE(resume)
DEFINE_SIMPLE(pause)
DEFINE_SIMPLE(unpause)
DEFINE_SIMPLE(delete)

static int stop(Command *command, json_t *ok, HutchError **ret_error) {
        uint64_t grace = duration_of(command, command->args, "grace");
        HutchSandbox *sandbox = NULL;
        int r = hutch_sandbox_stop(command->client, arg_text(command, "sandbox_id"), grace, &sandbox, ret_error);

        return answer(r, sandbox, ok);
}

static int update(Command *command, json_t *ok, HutchError **ret_error) {
        const char *id = arg_text(command, "sandbox_id");
        const char *const *labels = pairs_of(command, command->args, "labels");
        uint64_t ttl = duration_of(command, command->args, "idle_ttl");
        HutchSandbox *sandbox = NULL;
        int r;

        if (labels)
                r = hutch_sandbox_set_labels(command->client, id, labels, &sandbox, ret_error);
        else
                r = hutch_sandbox_set_idle_ttl(command->client, id, ttl > 0 ? ttl : HUTCH_FOREVER, &sandbox, ret_error);
        return answer(r, sandbox, ok);
}

static int wait_for_state(Command *command, json_t *ok, HutchError **ret_error) {
        HutchSandbox *sandbox = NULL;
        int r = hutch_sandbox_wait(command->client, arg_text(command, "sandbox_id"), states_of(command),
                                   command->timeout, &sandbox, ret_error);

        return answer(r, sandbox, ok);
}

static int add_sandbox(const HutchSandbox *sandbox, void *user) {
        return json_array_append_new(user, sandbox_to_value(sandbox));
}

static int list(Command *command, json_t *ok, HutchError **ret_error) {
        json_t *sandboxes = json_array();

        json_object_set_new(ok, "sandboxes", sandboxes);
        return hutch_sandbox_list(command->client, arg_text(command, "selector"), states_of(command), add_sandbox,
                                  sandboxes, ret_error);
}

static int delete_many(Command *command, json_t *ok, HutchError **ret_error) {
        size_t count = 0;
        int r = hutch_sandboxes_delete(command->client, arg_text(command, "selector"), &count, ret_error);

        json_object_set_new(ok, "count", json_integer((json_int_t) count));
        return r;
}

/* ---- Events ---- */

/* Whether @event is the last that was asked for, @n_events having come with it. */
static bool is_last(const Command *command, const HutchEvent *event, size_t n_events) {
        const char *until = arg_text(command, "until");

        return until ? *event->to_state && *event->exec_id == '\0' && str_has_suffix(until, event->to_state)
                     : n_events == arg_number(command, "count");
}

static int take_events(Command *command, HutchWatch *watch, json_t *ok, HutchError **ret_error) {
        json_t *events = json_object_get(ok, "events"), *sandboxes = json_object_get(ok, "sandboxes");
        HutchEvent event;
        int r;

        for (;;) {
                r = hutch_watch_next(watch, false, &event, ret_error);
                if (r == -EAGAIN)
                        r = command_wait(command);
                else if (r == 1 && event.sandbox)
                        (void) add_sandbox(event.sandbox, sandboxes);
                else if (r == 1)
                        json_array_append_new(events, message_to_value("Event", event.encoded, event.encoded_len));
                if (r < 0)
                        return r;
                if (r == 0 || event.sandbox)
                        continue;

                command_note(command);
                if (is_last(command, &event, json_array_size(events)))
                        return 0;
        }
}

static int watch_events(Command *command, json_t *ok, HutchError **ret_error) {
        const HutchWatchOptions options = {
                .sandbox_ids = texts_of(command, command->args, "sandbox_ids"),
                .selector = arg_text(command, "selector"),
                .has_after_cursor = arg_has(command, "after_cursor"),
                .after_cursor = arg_number(command, "after_cursor"),
                .snapshot = arg_flag(command, "snapshot"),
        };
        HutchWatch *watch = NULL;
        int r = hutch_watch_new(command->client, &options, &watch, ret_error);

        if (r < 0)
                return r;

        json_object_set_new(ok, "events", json_array());
        json_object_set_new(ok, "sandboxes", json_array());
        r = take_events(command, watch, ok, ret_error);
        json_object_set_new(ok, "cursor", json_integer((json_int_t) hutch_watch_cursor(watch)));
        hutch_watch_free(watch);
        return r;
}

const NamedOperation sandbox_operations[] = {
        { "sandbox.create", create },
        { "sandbox.get", get },
        { "sandbox.list", list },
        { "sandbox.update", update },
        { "sandbox.stop", stop },
        { "sandbox.resume", resume },
        { "sandbox.pause", pause },
        { "sandbox.unpause", unpause },
        { "sandbox.delete", delete },
        { "sandbox.delete_many", delete_many },
        { "sandbox.wait", wait_for_state },
        { "events.watch", watch_events },
        { NULL, NULL },
};
