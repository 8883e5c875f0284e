/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client of hutchd that takes next to no time itself. What does not: what it is compared with
 * (sandbox-floor.c), and what becomes of the numbers (sandbox.py).
 *
 *         sandbox-client SOCKET cold COUNT      creates a sandbox, runs a command in it, deletes it: microseconds from
 *                                               the request to the command's result, each
 *         sandbox-client SOCKET once COUNT      the same in one call, which deletes the sandbox itself
 *         sandbox-client SOCKET exec COUNT      runs commands in one sandbox: microseconds, each
 *         sandbox-client SOCKET create COUNT    creates sandboxes; ends when all are READY
 *         sandbox-client SOCKET run COUNT       as cold, without waiting for what is deleted to be gone
 *         sandbox-client SOCKET attached COUNT  ends when the daemon has the keepers of COUNT sandboxes
 *         sandbox-client SOCKET delete          deletes all sandboxes; ends when they are gone */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"
#include "rpc/blocking.h"
#include "rpc/core/protobuf.h"

#define CALL_TIMEOUT (60 * NSEC_PER_SEC)
#define REPLY_MAX ((size_t) 64 << 20) /* what an answer may unfold to */
#define PAGE_SIZE 1000
#define SANDBOXES "/hutch.v1.AgentSandboxService/"
#define EXECS "/hutch.v1.ExecService/"
#define ONE_SHOTS "/hutch.v1.SandboxExecService/"

static void pause_a_little(void) {
        (void) nanosleep(&(struct timespec){ .tv_nsec = NSEC_PER_MSEC }, NULL);
}

static void print_time_since(uint64_t start) {
        printf("%.1f\n", (double) (clock_monotonic_ns() - start) / NSEC_PER_USEC);
}

/* Takes the bytes of @message. NULL, with an error, when they are no @type. */
static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, const BlockingMessage *message,
                                HutchError *err) {
        ProtobufCMessage *reply = NULL;
        int r = protobuf_unpack(type, message->data, message->len, REPLY_MAX, &reply);

        if (r < 0)
                (void) error_set(err, r, "INTERNAL", "the daemon's answer cannot be read");
        free(message->data);
        return reply;
}

/* Makes a call with one message each way. NULL, with an error, when it fails. */
static ProtobufCMessage *call(Blocking *daemon, const char *path, const ProtobufCMessage *request,
                              const ProtobufCMessageDescriptor *type, HutchError *err) {
        _cleanup_free_ uint8_t *bytes = NULL;
        BlockingMessage reply = {};
        size_t len;
        int r = protobuf_pack(request, &bytes, &len);

        if (r < 0) {
                (void) error_set(err, r, "HOST_EXHAUSTED", "no memory for a request");
                return NULL;
        }
        r = blocking_unary(daemon, &(ChannelRequest){ .path = path, .deadline = uv_hrtime() + CALL_TIMEOUT }, bytes,
                           len, &reply, err);
        return r < 0 ? NULL : unpack(type, &reply, err);
}

/* ---- Requests ---- */

/* Creates a sandbox that is labelled with this process. The caller frees the id. */
static int create_sandbox(Blocking *daemon, const char *label, char **ret_id, HutchError *err) {
        Hutch__V1__CreateSandboxRequest request = HUTCH__V1__CREATE_SANDBOX_REQUEST__INIT;
        Hutch__V1__SandboxSpec spec = HUTCH__V1__SANDBOX_SPEC__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry entry = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT, *labels = &entry;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;

        entry.key = (char *) "client";
        entry.value = (char *) label;
        spec.n_labels = 1;
        spec.labels = &labels;
        request.spec = &spec;
        reply = call(daemon, SANDBOXES "CreateSandbox", &request.base, &hutch__v1__create_sandbox_response__descriptor,
                     err);
        if (!reply)
                return -err->error;

        *ret_id = xstrdup(((Hutch__V1__CreateSandboxResponse *) reply)->sandbox->id);
        return 0;
}

static int run_true(Blocking *daemon, char *id, HutchError *err) {
        Hutch__V1__RunCommandRequest request = HUTCH__V1__RUN_COMMAND_REQUEST__INIT;
        Hutch__V1__ExecSpec spec = HUTCH__V1__EXEC_SPEC__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        const Hutch__V1__ExecResult *result;
        char *argv[] = { (char *) "/bin/true" };

        spec.n_argv = 1;
        spec.argv = argv;
        request.sandbox_id = id;
        request.spec = &spec;
        reply = call(daemon, EXECS "RunCommand", &request.base, &hutch__v1__run_command_response__descriptor, err);
        if (!reply)
                return -err->error;

        result = ((Hutch__V1__RunCommandResponse *) reply)->exec->result;
        if (!result || result->opt_exit_code_case != HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE ||
            result->exit_code != 0)
                return error_set(err, -ECHILD, "INTERNAL", "the command failed: %s", result ? result->message : "");
        return 0;
}

static int delete_sandbox(Blocking *daemon, char *id, HutchError *err) {
        Hutch__V1__DeleteSandboxRequest request = HUTCH__V1__DELETE_SANDBOX_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;

        request.sandbox_id = id;
        reply = call(daemon, SANDBOXES "DeleteSandbox", &request.base, &hutch__v1__delete_sandbox_response__descriptor,
                     err);
        return reply ? 0 : -err->error;
}

/* Calls @callback with every sandbox that is there or is being deleted. Returns their number. */
static int each_sandbox(Blocking *daemon,
                        int (*callback)(Blocking *daemon, const Hutch__V1__Sandbox *sandbox, HutchError *err),
                        HutchError *err) {
        Hutch__V1__ListSandboxesRequest request = HUTCH__V1__LIST_SANDBOXES_REQUEST__INIT;
        _cleanup_free_ char *token = xstrdup("");
        int count = 0;

        request.page_size = PAGE_SIZE;
        do {
                _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
                const Hutch__V1__ListSandboxesResponse *page;

                request.page_token = token;
                reply = call(daemon, SANDBOXES "ListSandboxes", &request.base,
                             &hutch__v1__list_sandboxes_response__descriptor, err);
                if (!reply)
                        return -err->error;
                page = (const Hutch__V1__ListSandboxesResponse *) reply;
                for (size_t i = 0; i < page->n_sandboxes; i++, count++) {
                        int r = callback(daemon, page->sandboxes[i], err);

                        if (r < 0)
                                return r;
                }
                free(token);
                token = xstrdup(page->next_page_token);
        } while (*token);

        return count;
}

/* ---- Waiting ---- */

/* Begins to watch the states of this process's sandboxes. NULL, with an error, when that fails. */
static BlockingCall *watch(Blocking *daemon, const char *label, HutchError *err) {
        Hutch__V1__WatchEventsRequest request = HUTCH__V1__WATCH_EVENTS_REQUEST__INIT;
        Hutch__V1__EventType type = HUTCH__V1__EVENT_TYPE__EVENT_TYPE_SANDBOX_STATE_CHANGED;
        _cleanup_(blocking_call_freep) BlockingCall *events = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        _cleanup_free_ char *selector = NULL;
        BlockingMessage started = {};
        size_t len;
        int r;

        if (asprintf(&selector, "client=%s", label) < 0)
                abort();
        request.selector = selector;
        request.n_types = 1;
        request.types = &type;
        r = protobuf_pack(&request.base, &bytes, &len);
        if (r == 0)
                r = blocking_call_new(daemon,
                                      &(ChannelRequest){ .path = SANDBOXES "WatchEvents", .deadline = DEADLINE_NONE },
                                      &events);
        if (r == 0)
                r = blocking_call_send(events, bytes, len);
        if (r != 0) {
                (void) error_set(err, r, "HOST_EXHAUSTED", "cannot watch: %s", strerror(-r));
                return NULL;
        }

        blocking_call_end(events);
        r = blocking_call_read(events, &started, err);
        if (r == 0)
                (void) error_set(err, -EPROTO, "INTERNAL", "the watch ended at once");
        free(started.data);
        return r > 0 ? TAKE_PTR(events) : NULL;
}

/* Takes the next event. 1: a sandbox is READY. */
static int next_is_ready(BlockingCall *events, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        const Hutch__V1__WatchEventsResponse *step;
        BlockingMessage message = {};
        int r = blocking_call_read(events, &message, err);

        if (r == 0)
                return error_set(err, -EPROTO, "INTERNAL", "the watch ended");
        if (r > 0)
                reply = unpack(&hutch__v1__watch_events_response__descriptor, &message, err);
        if (!reply)
                return -err->error;

        step = (const Hutch__V1__WatchEventsResponse *) reply;
        if (step->item_case != HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT ||
            step->event->change_case != HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE)
                return 0;
        if (step->event->sandbox_state->to_state == HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_FAILED)
                return error_set(err, -ECHILD, "INTERNAL", "a sandbox failed: %s", step->event->message);
        return step->event->sandbox_state->to_state == HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_READY;
}

static int ignore(Blocking *daemon, const Hutch__V1__Sandbox *sandbox, HutchError *err) {
        (void) daemon;
        (void) sandbox;
        (void) err;
        return 0;
}

static int wait_until_gone(Blocking *daemon, HutchError *err) {
        int count;

        while ((count = each_sandbox(daemon, ignore, err)) > 0)
                pause_a_little();
        return count;
}

/* Waits until the keeper of @sandbox tells what that uses, which it is not asked before the daemon has it. */
static int wait_for_usage(Blocking *daemon, const Hutch__V1__Sandbox *sandbox, HutchError *err) {
        Hutch__V1__GetSandboxRequest request = HUTCH__V1__GET_SANDBOX_REQUEST__INIT;

        request.sandbox_id = sandbox->id;
        request.include_usage = true;
        for (;;) {
                _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;

                reply = call(daemon, SANDBOXES "GetSandbox", &request.base,
                             &hutch__v1__get_sandbox_response__descriptor, err);
                if (reply)
                        return 0;
                if (!str_equal(err->reason, "KEEPER_UNAVAILABLE"))
                        return -err->error;
                pause_a_little();
        }
}

/* ---- What is measured ---- */

/* Creates a sandbox, runs a command in it and deletes it. */
static int run_one(Blocking *daemon, const char *label, bool prints, HutchError *err) {
        _cleanup_free_ char *id = NULL;
        uint64_t started = clock_monotonic_ns();
        int r = create_sandbox(daemon, label, &id, err);

        if (r == 0)
                r = run_true(daemon, id, err);
        if (r < 0)
                return r;
        if (prints)
                print_time_since(started);
        return delete_sandbox(daemon, id, err);
}

/* Reads the steps of a one-shot up to its end, which must be a good one. */
static int read_steps(BlockingCall *steps, HutchError *err) {
        for (;;) {
                _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
                const Hutch__V1__ExecResponse *step;
                BlockingMessage message = {};
                int r = blocking_call_read(steps, &message, err);

                if (r == 0)
                        return error_set(err, -EPROTO, "INTERNAL", "the call ended without an exit");
                if (r > 0)
                        reply = unpack(&hutch__v1__exec_response__descriptor, &message, err);
                if (!reply)
                        return -err->error;

                step = (const Hutch__V1__ExecResponse *) reply;
                if (step->item_case == HUTCH__V1__EXEC_RESPONSE__ITEM_EXIT)
                        return step->exit->exit_code == 0 ? 0
                                                          : error_set(err, -ECHILD, "INTERNAL", "the command failed");
        }
}

/* Runs a command in a sandbox of its own, in one call. */
static int run_once(Blocking *daemon, const char *label, HutchError *err) {
        Hutch__V1__ExecRequest request = HUTCH__V1__EXEC_REQUEST__INIT;
        Hutch__V1__ExecRequest__LabelsEntry entry = HUTCH__V1__EXEC_REQUEST__LABELS_ENTRY__INIT, *labels = &entry;
        _cleanup_(blocking_call_freep) BlockingCall *steps = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        char *argv[] = { (char *) "/bin/true" };
        uint64_t started = clock_monotonic_ns();
        size_t len;
        int r;

        entry.key = (char *) "client";
        entry.value = (char *) label;
        request.n_labels = 1;
        request.labels = &labels;
        request.n_argv = 1;
        request.argv = argv;
        r = protobuf_pack(&request.base, &bytes, &len);
        if (r == 0)
                r = blocking_call_new(
                        daemon, &(ChannelRequest){ .path = ONE_SHOTS "Exec", .deadline = uv_hrtime() + CALL_TIMEOUT },
                        &steps);
        if (r == 0)
                r = blocking_call_send(steps, bytes, len);
        if (r != 0)
                return error_set(err, r, "HOST_EXHAUSTED", "cannot call: %s", strerror(-r));

        blocking_call_end(steps);
        r = read_steps(steps, err);
        print_time_since(started);
        return r;
}

static int measure_once(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        int r = 0;

        for (unsigned long i = 0; r >= 0 && i < count; i++) {
                r = run_once(daemon, label, err);
                if (r >= 0)
                        r = wait_until_gone(daemon, err);
        }
        return r;
}

static int measure_cold(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        int r = 0;

        for (unsigned long i = 0; r >= 0 && i < count; i++) {
                r = run_one(daemon, label, true, err);
                if (r >= 0)
                        r = wait_until_gone(daemon, err);
        }
        return r;
}

static int measure_exec(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        _cleanup_free_ char *id = NULL;
        int r = create_sandbox(daemon, label, &id, err);

        if (r == 0)
                r = run_true(daemon, id, err);
        for (unsigned long i = 0; r == 0 && i < count; i++) {
                uint64_t started = clock_monotonic_ns();

                r = run_true(daemon, id, err);
                print_time_since(started);
        }
        return r < 0 ? r : delete_sandbox(daemon, id, err);
}

static int create_many(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *events = watch(daemon, label, err);
        unsigned long ready = 0;
        int r = 0;

        if (!events)
                return -err->error;
        for (unsigned long i = 0; r == 0 && i < count; i++) {
                _cleanup_free_ char *id = NULL;

                r = create_sandbox(daemon, label, &id, err);
        }
        while (r >= 0 && ready < count) {
                r = next_is_ready(events, err);
                ready += r > 0;
        }
        return r;
}

static int run_many(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        int r = 0;

        for (unsigned long i = 0; r == 0 && i < count; i++)
                r = run_one(daemon, label, false, err);
        return r;
}

static int wait_until_attached(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        int r = each_sandbox(daemon, wait_for_usage, err);

        (void) label;
        if (r >= 0 && (unsigned long) r != count)
                return error_set(err, -ENOENT, "INTERNAL", "there are %d sandboxes, not %lu", r, count);
        return r;
}

static int delete_one(Blocking *daemon, const Hutch__V1__Sandbox *sandbox, HutchError *err) {
        return delete_sandbox(daemon, sandbox->id, err);
}

static int delete_all(Blocking *daemon, const char *label, unsigned long count, HutchError *err) {
        int r = each_sandbox(daemon, delete_one, err);

        (void) label;
        (void) count;
        return r < 0 ? r : wait_until_gone(daemon, err);
}

static const struct {
        const char *name;
        int (*run)(Blocking *daemon, const char *label, unsigned long count, HutchError *err);
} modes[] = {
        { "cold", measure_cold },  { "once", measure_once }, { "exec", measure_exec },
        { "create", create_many }, { "run", run_many },      { "attached", wait_until_attached },
        { "delete", delete_all },
};

#define N_MODES (sizeof(modes) / sizeof(modes[0]))

int main(int argc, char *argv[]) {
        _cleanup_(blocking_freep) Blocking *daemon = NULL;
        _cleanup_(error_clear) HutchError err = {};
        ChannelOptions options = channel_options_default;
        char target[256], label[32];
        size_t mode = 0;
        int r;

        while (argc > 2 && mode < N_MODES && !str_equal(argv[2], modes[mode].name))
                mode++;
        if (argc < 3 || mode == N_MODES) {
                (void) fprintf(stderr,
                               "usage: sandbox-client SOCKET cold|once|exec|create|run|attached|delete [COUNT]\n");
                return 2;
        }

        (void) snprintf(target, sizeof(target), "unix:%s", argv[1]);
        (void) snprintf(label, sizeof(label), "%d", (int) getpid());
        options.target = target;
        r = blocking_new(&options, &daemon, &err);
        if (r == 0)
                r = modes[mode].run(daemon, label, argc > 3 ? strtoul(argv[3], NULL, 10) : 0, &err);
        if (r < 0)
                (void) fprintf(stderr, "sandbox-client: %s: %s\n", argv[2], error_message(&err));
        return r < 0 ? 1 : 0;
}
