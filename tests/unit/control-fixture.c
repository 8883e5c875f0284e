/* SPDX-License-Identifier: Apache-2.0 */

#include "control-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"

const Caller alice = { .name = "uid:1000" }, bob = { .name = "uid:1001" }, root = { .name = "uid:0", .admin = true };

void append_text(char *buffer, size_t size, const char *text) {
        size_t len = strlen(buffer);

        (void) snprintf(buffer + len, size - len, "%s", text);
}

/* The pretended runtime. */

typedef enum ToldKind {
        TOLD_STARTED,
        TOLD_STOPPED,
        TOLD_REMOVED,
        TOLD_PAUSED,
        TOLD_UNPAUSED,
        TOLD_LOST,
        TOLD_EXEC_STARTED,
        TOLD_EXEC_ENDED,
        TOLD_EXEC_UNKNOWN,
} ToldKind;

/* What is to be told in the next turn. */
typedef struct Told {
        struct Told *next;
        ToldKind kind;
        char exec_id[64];
} Told;

struct FakeRemote {
        RuntimeSandbox base;
        Fake *fake;
        FakeSandbox *sandbox;
        const RuntimeEvents *events;
        void *user;
        Told *told, **told_end;
};

typedef struct FakeInput {
        RuntimeInput base;
        FakeSandbox *sandbox;
        const RuntimeInputEvents *events;
        void *user;
} FakeInput;

static const RuntimeVerbs fake_verbs;

static FakeSandbox *find(Fake *fake, const char *id) {
        for (size_t i = 0; i < fake->n_sandboxes; i++)
                if (strcmp(fake->sandboxes[i]->id, id) == 0)
                        return fake->sandboxes[i];
        return NULL;
}

static FakeExec *find_exec(FakeSandbox *sandbox, const char *id) {
        for (size_t i = 0; i < sandbox->n_execs; i++)
                if (strcmp(sandbox->execs[i].id, id) == 0)
                        return &sandbox->execs[i];
        return NULL;
}

static void tell(FakeRemote *remote, ToldKind kind, const char *exec_id) {
        Told *told = new0(Told, 1);

        told->kind = kind;
        append(told->exec_id, exec_id);
        *remote->told_end = told;
        remote->told_end = &told->next;
}

/* Tells what is to be told; whether there was anything. */
static bool deliver(FakeRemote *remote) {
        Told *told = remote->told;
        FakeExec *exec;

        if (!told)
                return false;
        remote->told = told->next;
        if (!remote->told)
                remote->told_end = &remote->told;

        exec = find_exec(remote->sandbox, told->exec_id);
        switch (told->kind) {
        case TOLD_STARTED:
                remote->events->started(remote->user);
                break;
        case TOLD_STOPPED:
                remote->events->stopped(remote->user);
                break;
        case TOLD_REMOVED:
                remote->events->removed(remote->user);
                break;
        case TOLD_PAUSED:
        case TOLD_UNPAUSED:
                remote->events->pause_done(remote->user, told->kind == TOLD_PAUSED);
                break;
        case TOLD_LOST: {
                _cleanup_(error_clear) HutchError err = {};

                (void) error_set(&err, -ECONNRESET, "KEEPER_UNAVAILABLE", "the keeper is gone");
                remote->events->lost(remote->user, &err);
                break;
        }
        case TOLD_EXEC_STARTED:
                remote->events->exec_started(remote->user, told->exec_id, 1000);
                break;
        case TOLD_EXEC_ENDED:
                remote->events->exec_ended(remote->user, told->exec_id, &exec->end);
                break;
        case TOLD_EXEC_UNKNOWN:
                remote->events->exec_unknown(remote->user, told->exec_id);
                break;
        }
        free(told);
        return true;
}

static void forget_told(FakeRemote *remote) {
        for (Told *next; remote->told; remote->told = next) {
                next = remote->told->next;
                free(remote->told);
        }
        remote->told_end = &remote->told;
}

static int fake_check(Runtime *runtime, HutchError *err) {
        return 0;
}

static int fake_list(Runtime *runtime, RuntimeFound callback, void *user, HutchError *err) {
        Fake *fake = (Fake *) runtime;

        for (size_t i = 0; i < fake->n_sandboxes; i++)
                if (fake->sandboxes[i]->exists)
                        callback(fake->sandboxes[i]->id, fake->sandboxes[i]->uid_slot, user);
        return 0;
}

static RuntimeSandbox *fake_attach(Runtime *runtime, const char *id, const RuntimeEvents *events, void *user) {
        Fake *fake = (Fake *) runtime;
        FakeRemote *remote = new0(FakeRemote, 1);

        remote->base.verbs = &fake_verbs;
        remote->fake = fake;
        remote->events = events;
        remote->user = user;
        remote->told_end = &remote->told;
        remote->sandbox = find(fake, id);
        if (!remote->sandbox) {
                remote->sandbox = fake->sandboxes[fake->n_sandboxes++] = new0(FakeSandbox, 1);
                append(remote->sandbox->id, id);
        }
        assert_null(remote->sandbox->remote);
        remote->sandbox->remote = remote;
        return &remote->base;
}

static int fake_get_shape(Runtime *runtime, const SandboxSpec *spec, uint8_t **ret_shape, size_t *ret_len) {
        if (spec->n_mounts > 0)
                return -EOPNOTSUPP;
        *ret_shape = (uint8_t *) new0(uint64_t, 1);
        *ret_len = sizeof(uint64_t);
        memcpy(*ret_shape, &spec->limits.memory_bytes, sizeof(uint64_t));
        return 0;
}

static void fake_rebind(RuntimeSandbox *base, const RuntimeEvents *events, void *user) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->events = events;
        remote->user = user;
}

static void fake_free(RuntimeSandbox *base) {
        FakeRemote *remote = (FakeRemote *) base;

        forget_told(remote);
        remote->sandbox->remote = NULL;
        free(remote);
}

static void fake_start(RuntimeSandbox *base, const RuntimeSpec *spec) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->sandbox->n_start++;
        remote->sandbox->exists = remote->sandbox->runs = true;
        remote->sandbox->uid_slot = spec->uid_slot;
        remote->sandbox->spared[0] = '\0';
        for (const char *const *id = spec->exec_ids; id && *id; id++) {
                append(remote->sandbox->spared, *id);
                append(remote->sandbox->spared, " ");
        }
        if (spec->expected_user) {
                append(remote->sandbox->expected, spec->expected_user);
                append(remote->sandbox->expected, " ");
        }
        if (!remote->fake->hold_start)
                tell(remote, TOLD_STARTED, "");
}

static void fake_recover(RuntimeSandbox *base, const char *const *exec_ids) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->sandbox->n_recover++;
        if (remote->fake->hold_recover)
                return;
        if (!remote->sandbox->runs) {
                tell(remote, TOLD_LOST, "");
                return;
        }
        for (; *exec_ids; exec_ids++) {
                FakeExec *exec = find_exec(remote->sandbox, *exec_ids);

                if (!exec) {
                        tell(remote, TOLD_EXEC_UNKNOWN, *exec_ids);
                        continue;
                }
                assert_false(exec->forgotten);
                if (exec->started)
                        tell(remote, TOLD_EXEC_STARTED, exec->id);
                if (exec->ended)
                        tell(remote, TOLD_EXEC_ENDED, exec->id);
        }
        tell(remote, TOLD_STARTED, "");
}

static void end_all(FakeRemote *remote) {
        forget_told(remote);
        for (size_t i = 0; i < remote->sandbox->n_execs; i++) {
                FakeExec *exec = &remote->sandbox->execs[i];

                if (!exec->started || exec->ended)
                        continue;
                exec->ended = true;
                exec->end = (RuntimeExecEnd){ .cause = RUNTIME_END_SHUTDOWN, .wait_status = 15, .end_time = 2000 };
                tell(remote, TOLD_EXEC_ENDED, exec->id);
        }
        remote->sandbox->runs = remote->sandbox->is_paused = false;
}

static void fake_stop(RuntimeSandbox *base, uint64_t grace) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->sandbox->n_stop++;
        remote->sandbox->stop_grace = grace;
        if (remote->fake->hold_stop) {
                forget_told(remote);
                return;
        }
        end_all(remote);
        tell(remote, TOLD_STOPPED, "");
}

static void fake_remove(RuntimeSandbox *base) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->sandbox->n_remove++;
        if (remote->fake->hold_remove) {
                forget_told(remote);
                return;
        }
        end_all(remote);
        remote->sandbox->exists = false;
        tell(remote, TOLD_REMOVED, "");
}

static void fake_set_paused(RuntimeSandbox *base, bool paused) {
        FakeRemote *remote = (FakeRemote *) base;

        remote->sandbox->n_pause++;
        if (remote->fake->hold_pause)
                return;
        remote->sandbox->is_paused = paused;
        tell(remote, paused ? TOLD_PAUSED : TOLD_UNPAUSED, "");
}

static void fake_get_usage(RuntimeSandbox *base,
                           void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user), void *user) {
        const RuntimeUsage usage = { .processes = 7 };

        callback(&usage, NULL, user);
}

static void fake_expect(RuntimeSandbox *base, const char *user) {
        FakeSandbox *sandbox = ((FakeRemote *) base)->sandbox;

        append(sandbox->expected, user);
        append(sandbox->expected, " ");
}

static void fake_start_one(RuntimeSandbox *base, const RuntimeExec *exec) {
        FakeRemote *remote = (FakeRemote *) base;
        FakeExec *known = find_exec(remote->sandbox, exec->exec_id);

        if (!known) {
                assert_true(remote->sandbox->n_execs < 16);
                known = &remote->sandbox->execs[remote->sandbox->n_execs++];
                *known = (FakeExec){};
                append(known->id, exec->exec_id);
        }
        known->timeout = exec->timeout;
        known->set_home = exec->set_home;
        known->set_user = exec->set_user;
        for (char *const *variable = exec->environment; *variable; variable++) {
                append(known->environment, *variable);
                append(known->environment, " ");
        }
        if (!remote->fake->hold_exec) {
                known->started = true;
                tell(remote, TOLD_EXEC_STARTED, known->id);
        }
}

static void fake_cancel_exec(RuntimeSandbox *base, const char *exec_id, uint64_t grace) {
        FakeRemote *remote = (FakeRemote *) base;
        FakeExec *exec = find_exec(remote->sandbox, exec_id);

        exec->cancelled = exec->ended = true;
        exec->end =
                (RuntimeExecEnd){ .cause = RUNTIME_END_CANCELLED, .wait_status = grace > 0 ? 15 : 9, .end_time = 3 };
        tell(remote, TOLD_EXEC_ENDED, exec_id);
}

static void fake_forget_exec(RuntimeSandbox *base, const char *exec_id) {
        FakeExec *exec = find_exec(((FakeRemote *) base)->sandbox, exec_id);

        assert_non_null(exec);
        exec->forgotten = true;
}

static RuntimeInput *fake_open_input(RuntimeSandbox *base, const char *exec_id, const RuntimeInputEvents *events,
                                     void *user) {
        FakeInput *input = new0(FakeInput, 1);

        assert_true(find_exec(((FakeRemote *) base)->sandbox, exec_id)->started);
        *input = (FakeInput){ { &fake_verbs }, ((FakeRemote *) base)->sandbox, events, user };
        input->sandbox->last_input = &input->base;
        return &input->base;
}

static void fake_free_input(RuntimeInput *input) {
        FakeSandbox *sandbox = ((FakeInput *) input)->sandbox;

        if (sandbox->last_input == input)
                sandbox->last_input = NULL;
        free(input);
}

static int fake_send_input(RuntimeInput *input, const void *bytes, size_t len) {
        strncat(((FakeInput *) input)->sandbox->input, bytes, len);
        return 0;
}

static bool fake_input_is_writable(const RuntimeInput *input) {
        return !((const FakeInput *) input)->sandbox->input_is_full;
}

static int fake_close_stdin(RuntimeInput *input) {
        return fake_send_input(input, "|", 1);
}

static int fake_resize(RuntimeInput *input, uint32_t rows, uint32_t columns) {
        return fake_send_input(input, "#", 1);
}

static int fake_send_signal(RuntimeInput *input, uint32_t number) {
        return fake_send_input(input, "!", 1);
}

static RuntimeCall *fake_open_call(RuntimeSandbox *base, const RuntimeCallRequest *request,
                                   const RuntimeCallEvents *events, void *user) {
        FakeCall *call = new0(FakeCall, 1);

        call->base.verbs = &fake_verbs;
        call->sandbox = ((FakeRemote *) base)->sandbox;
        call->events = events;
        call->user = user;
        call->deadline = request->deadline;
        append(call->path, request->path);
        append(call->user_name, request->user);
        append(call->key, request->key ? request->key : "");
        call->sandbox->last_call = call;
        call->sandbox->n_calls++;
        return &call->base;
}

static void fake_free_call(RuntimeCall *base) {
        FakeCall *call = (FakeCall *) base;

        if (call->sandbox->last_call == call)
                call->sandbox->last_call = NULL;
        for (size_t i = 0; i < call->n_messages; i++)
                free(call->messages[i]);
        free(call);
}

static int fake_send_call_taken(RuntimeCall *base, uint8_t *bytes, size_t len) {
        FakeCall *call = (FakeCall *) base;

        assert_false(call->is_whole);
        assert_true(call->n_messages < sizeof(call->messages) / sizeof(call->messages[0]));
        call->lens[call->n_messages] = len;
        call->messages[call->n_messages++] = bytes;
        return 0;
}

static int fake_send_call(RuntimeCall *base, const void *bytes, size_t len) {
        uint8_t *copy = malloc(len + 1);

        assert_non_null(copy);
        memcpy(copy, bytes, len);
        return fake_send_call_taken(base, copy, len);
}

static bool fake_call_is_writable(const RuntimeCall *base) {
        return !((const FakeCall *) base)->is_full;
}

static void fake_half_close(RuntimeCall *base) {
        ((FakeCall *) base)->is_whole = true;
}

static void fake_read_call(RuntimeCall *base) {
        ((FakeCall *) base)->demand++;
}

static void output_path(const Fake *fake, const char *sandbox_id, const char *exec_id, int stream, char path[256]) {
        (void) snprintf(path, 256, "%s/%s.%s.%d", fake->folder, sandbox_id, exec_id, stream);
}

static int fake_open_output(RuntimeSandbox *base, const char *exec_id, int stream) {
        FakeRemote *remote = (FakeRemote *) base;
        char path[256];
        int fd;

        output_path(remote->fake, remote->sandbox->id, exec_id, stream, path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int fake_drop_output(RuntimeSandbox *base, const char *exec_id) {
        FakeRemote *remote = (FakeRemote *) base;
        char path[256];

        for (int stream = 1; stream <= 2; stream++) {
                output_path(remote->fake, remote->sandbox->id, exec_id, stream, path);
                (void) unlink(path);
        }
        return 0;
}

static void fake_follow_output(RuntimeSandbox *base, const char *exec_id, bool follow) {
        FakeExec *exec = find_exec(((FakeRemote *) base)->sandbox, exec_id);

        exec->following += follow ? 1 : -1;
        assert_in_range(exec->following, 0, 1);
}

static const RuntimeVerbs fake_verbs = {
        .name = "fake",
        .features = (const char *const[]){ "pause", NULL },
        .not_enforced = (const UnenforcedLimit[]){ {} },
        .check = fake_check,
        .list = fake_list,
        .get_shape = fake_get_shape,
        .attach = fake_attach,
        .rebind = fake_rebind,
        .free = fake_free,
        .start = fake_start,
        .recover = fake_recover,
        .stop = fake_stop,
        .remove = fake_remove,
        .set_paused = fake_set_paused,
        .get_usage = fake_get_usage,
        .expect_exec = fake_expect,
        .start_exec = fake_start_one,
        .cancel_exec = fake_cancel_exec,
        .forget_exec = fake_forget_exec,
        .open_input = fake_open_input,
        .free_input = fake_free_input,
        .send_input = fake_send_input,
        .input_is_writable = fake_input_is_writable,
        .close_stdin = fake_close_stdin,
        .resize = fake_resize,
        .send_signal = fake_send_signal,
        .open_call = fake_open_call,
        .free_call = fake_free_call,
        .send_call = fake_send_call,
        .send_call_taken = fake_send_call_taken,
        .call_is_writable = fake_call_is_writable,
        .end_call = fake_half_close,
        .read_call = fake_read_call,
        .open_output = fake_open_output,
        .drop_output = fake_drop_output,
        .follow_output = fake_follow_output,
};

void fake_answer(FakeCall *call, const void *bytes, size_t len) {
        uint8_t *copy = malloc(len + 1);

        assert_non_null(copy);
        memcpy(copy, bytes, len);
        assert_true(call->demand > 0);
        call->demand--;
        call->events->message(call->user, copy, len);
}

void fake_end_call(FakeCall *call, Reason reason) {
        _cleanup_(error_clear) HutchError err = {};

        if (reason != REASON_UNSPECIFIED)
                (void) reason_set(&err, -EIO, reason, "it was so inside");
        call->events->ended(call->user, reason == REASON_UNSPECIFIED ? NULL : &err);
}

FakeSandbox *fake_sandbox(Fixture *fixture, const char *id) {
        FakeSandbox *sandbox = find(&fixture->fake, id);

        assert_non_null(sandbox);
        return sandbox;
}

FakeExec *fake_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id) {
        FakeExec *exec = find_exec(fake_sandbox(fixture, sandbox_id), exec_id);

        assert_non_null(exec);
        return exec;
}

const RuntimeEvents *fake_events(FakeSandbox *sandbox, void **ret_user) {
        assert_non_null(sandbox->remote);
        *ret_user = sandbox->remote->user;
        return sandbox->remote->events;
}

void fake_start_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id) {
        fake_exec(fixture, sandbox_id, exec_id)->started = true;
        if (fake_sandbox(fixture, sandbox_id)->remote)
                tell(fake_sandbox(fixture, sandbox_id)->remote, TOLD_EXEC_STARTED, exec_id);
}

void fake_end_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id, RuntimeExecEnd end) {
        FakeExec *exec = fake_exec(fixture, sandbox_id, exec_id);

        exec->ended = true;
        exec->end = end;
        if (fake_sandbox(fixture, sandbox_id)->remote)
                tell(fake_sandbox(fixture, sandbox_id)->remote, TOLD_EXEC_ENDED, exec_id);
}

void fake_lose(Fixture *fixture, const char *id) {
        fake_sandbox(fixture, id)->runs = false;
        tell(fake_sandbox(fixture, id)->remote, TOLD_LOST, "");
}

void fake_break_input(Fixture *f, const char *sandbox_id) {
        const FakeInput *input = (const FakeInput *) fake_sandbox(f, sandbox_id)->last_input;
        _cleanup_(error_clear) HutchError err = {};

        assert_non_null(input);
        (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "it broke");
        input->events->closed(input->user, &err);
}

void fake_write(Fixture *fixture, const char *sandbox_id, const char *exec_id, int stream, const char *text) {
        FakeSandbox *sandbox = fake_sandbox(fixture, sandbox_id);
        FakeExec *exec = find_exec(sandbox, exec_id);
        char path[256];
        _cleanup_close_ int fd = -1;

        output_path(&fixture->fake, sandbox_id, exec_id, stream, path);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
        if (sandbox->remote && exec && exec->following > 0)
                sandbox->remote->events->output_grew(sandbox->remote->user, exec_id);
}

/* The codec: texts. */

static uint64_t milliseconds(const char *text, const char *name) {
        const char *at = strstr(text, name);

        return at ? strtoull(at + strlen(name), NULL, 10) * NSEC_PER_MSEC : 0;
}

static char *word(const char *text, const char *name) {
        const char *at = strstr(text, name);

        return at ? xstrndup(at + strlen(name), strcspn(at + strlen(name), " ")) : NULL;
}

SandboxSpec *fixture_spec(const char *text) {
        SandboxSpec *spec = sandbox_spec_new();
        _cleanup_free_ char *command = word(text, "command="), *labels = word(text, "labels=");
        char *rest = labels, *pair;

        spec->encoded = (uint8_t *) xstrdup(text);
        spec->encoded_len = strlen(text);
        spec->effective = (uint8_t *) xstrdup("e");
        spec->effective_len = 1;
        spec->image = xstrdup("host");
        spec->runtime = word(text, "runtime=");
        if (!spec->runtime)
                spec->runtime = xstrdup("");
        spec->user = xstrdup("agent");
        spec->working_directory = xstrdup("/workspace");
        spec->workspace = xstrdup("/workspace");
        spec->idle_ttl = milliseconds(text, "idle=");
        spec->max_lifetime = milliseconds(text, "life=");
        spec->lifetime_action = strstr(text, "delete=1") ? LIFETIME_DELETE : LIFETIME_STOP;
        spec->limits.exec_timeout = milliseconds(text, "timeout=");
        spec->env = new0(EnvVariable, 1);
        spec->env[spec->n_env++] = (EnvVariable){ xstrdup("WHERE"), xstrdup("sandbox") };
        if (command) {
                spec->command = new0(char *, 2);
                spec->command[0] = TAKE_PTR(command);
        }
        spec->labels = new0(Label, 8);
        while ((pair = strsep(&rest, ","))) {
                char *value = strchr(pair, '=');

                *value = '\0';
                spec->labels[spec->n_labels++] = (Label){ xstrdup(pair), xstrdup(value + 1) };
        }
        return spec;
}

ExecSpec *fixture_exec_spec(const char *text) {
        ExecSpec *spec = exec_spec_new();

        spec->encoded = (uint8_t *) xstrdup(text);
        spec->encoded_len = strlen(text);
        spec->argv = new0(char *, 2);
        spec->argv[0] = xstrndup(text, strcspn(text, " "));
        spec->timeout = milliseconds(text, "timeout=");
        spec->kill_grace = 5 * NSEC_PER_SEC;
        spec->stdin_stream = strstr(text, "stdin=1");
        spec->terminal = strstr(text, "tty=1");
        spec->output_limit = 1 << 20;
        if (strstr(text, "large"))
                spec->argv[0] = (free(spec->argv[0]), memset(new0(char, 140000), 'x', 139999));
        return spec;
}

static char *stored_text(const StoredSpec *stored) {
        return stored->encoded_len > 0 ? xstrndup((const char *) stored->encoded, stored->encoded_len) : xstrdup("");
}

static int decode_sandbox_spec(const StoredSpec *stored, SandboxSpec **ret_spec, HutchError *err) {
        _cleanup_free_ char *text = stored_text(stored);

        *ret_spec = fixture_spec(text);
        return 0;
}

static int decode_exec_spec(const StoredSpec *stored, ExecSpec **ret_spec, HutchError *err) {
        _cleanup_free_ char *text = stored_text(stored);

        *ret_spec = fixture_exec_spec(text);
        return 0;
}

static ExecSpec *make_main_spec(const SandboxSpec *sandbox_spec) {
        return fixture_exec_spec(sandbox_spec->command[0]);
}

static int encode_event(const Event *event, uint8_t **ret_bytes, size_t *ret_len) {
        char text[512];
        int n = 0;

        switch (event->type) {
        case EVENT_SANDBOX_CREATED:
                n = snprintf(text, sizeof text, "%s created", event->sandbox->id);
                break;
        case EVENT_SANDBOX_STATE_CHANGED:
                n = snprintf(text, sizeof text, "%s %s", event->sandbox->id, sandbox_state_name(event->sandbox->state));
                break;
        case EVENT_SANDBOX_UPDATED:
                n = snprintf(text, sizeof text, "%s updated %s", event->sandbox->id, event->fields[0]);
                break;
        case EVENT_EXEC_CREATED:
                n = snprintf(text, sizeof text, "%s/%s created", event->sandbox->id, event->exec->id);
                break;
        case EVENT_EXEC_STATE_CHANGED:
                n = snprintf(text, sizeof text, "%s/%s %s", event->sandbox->id, event->exec->id,
                             exec_state_name(event->exec->state));
                break;
        case EVENT_LIMIT_HIT:
                n = snprintf(text, sizeof text, "%s limit %s", event->sandbox->id, event->limit);
                break;
        }
        *ret_bytes = (uint8_t *) xstrdup(text);
        *ret_len = (size_t) n;
        return 0;
}

static const ControlCodec codec = {
        .decode_sandbox_spec = decode_sandbox_spec,
        .decode_exec_spec = decode_exec_spec,
        .make_main_spec = make_main_spec,
        .encode_event = encode_event,
};

/* The control plane. */

static void store_path(const Fixture *fixture, char path[128]) {
        (void) snprintf(path, 128, "%s/hutch.db", fixture->fake.folder);
}

void fixture_start(Fixture *fixture) {
        char path[128];
        int r;

        store_path(fixture, path);
        assert_int_equal(store_open(path, &fixture->store, &fixture->err), 0);
        fixture->options.store = fixture->store;
        r = control_new(&fixture->loop, &fixture->options, &fixture->control, &fixture->err);
        if (r < 0)
                fail_msg("%s", error_message(&fixture->err));
}

void fixture_stop(Fixture *fixture) {
        control_free(TAKE_PTR(fixture->control), NULL, NULL);
        (void) uv_run(&fixture->loop, UV_RUN_DEFAULT);
        fixture->store = store_close(fixture->store);
}

void fixture_restart(Fixture *fixture) {
        fixture_stop(fixture);
        fixture_start(fixture);
        fixture_turn(fixture);
}

int fixture_set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);

        log_default.level = LOG_LEVEL_ERROR + 1;
        append(fixture->fake.folder, "/tmp/hutch-control-XXXXXX");
        assert_non_null(mkdtemp(fixture->fake.folder));
        fixture->fake.runtime.verbs = &fake_verbs;
        fixture->runtimes[0] = &fixture->fake.runtime;
        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        fixture->options = (ControlOptions){
                .codec = &codec,
                .runtimes = fixture->runtimes,
                .limits = control_limits_default,
                .instance_id = "this-one",
                .boot_id = "first",
        };
        fixture_start(fixture);
        *state = fixture;
        return 0;
}

int fixture_tear_down(void **state) {
        Fixture *fixture = *state;
        char command[128];

        fixture_stop(fixture);
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        for (size_t i = 0; i < fixture->fake.n_sandboxes; i++) {
                assert_null(fixture->fake.sandboxes[i]->remote);
                free(fixture->fake.sandboxes[i]);
        }
        (void) snprintf(command, sizeof command, "rm -rf %s", fixture->fake.folder);
        assert_int_equal(system(command), 0);
        error_clear(&fixture->err);
        error_clear(&fixture->durable_err);
        free(fixture);
        return 0;
}

static bool deliver_one(Fake *fake) {
        for (size_t i = 0; i < fake->n_sandboxes; i++)
                if (fake->sandboxes[i]->remote && deliver(fake->sandboxes[i]->remote))
                        return true;
        return false;
}

static void run(Fixture *fixture) {
        (void) uv_run(&fixture->loop, UV_RUN_NOWAIT);
        control_sync(fixture->control); /* as if something were sent in each turn */
}

void fixture_turn(Fixture *fixture) {
        for (unsigned quiet = 0; quiet < 3; quiet++) {
                run(fixture);
                while (deliver_one(&fixture->fake)) {
                        run(fixture);
                        quiet = 0;
                }
        }
}

void fixture_wait(Fixture *fixture, unsigned duration) {
        uint64_t end = clock_monotonic_ns() + duration * NSEC_PER_MSEC;

        do {
                fixture_turn(fixture);
                (void) usleep(1000);
        } while (clock_monotonic_ns() < end);
        fixture_turn(fixture); /* however long that sleep was */
}

/* Somebody else writes, for longer than the store waits. */
void fixture_break_store(Fixture *fixture, bool broken) {
        static sqlite3 *db;
        char path[128];

        store_path(fixture, path);
        if (broken) {
                assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
                assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        } else {
                assert_int_equal(sqlite3_close(TAKE_PTR(db)), SQLITE_OK);
        }
}

void create(Fixture *fixture, const char *id, const char *text) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = fixture_spec(text);
        SandboxView view;
        int r = control_create_sandbox(fixture->control, &alice, &(const RequestKey){ .method = "CreateSandbox" }, id,
                                       spec, &view, &fixture->err);

        if (r < 0)
                fail_msg("%s", error_message(&fixture->err));
        fixture_turn(fixture);
        control_commit(fixture->control); /* as when somebody asks: that it is READY may wait for that */
        fixture_turn(fixture);
}

void create_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id, const char *text) {
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = fixture_exec_spec(text);
        ExecView view;
        int r = control_create_exec(fixture->control, &alice, &(const RequestKey){ .method = "CreateExec" }, sandbox_id,
                                    exec_id, spec, false, &view, &fixture->err);

        if (r < 0)
                fail_msg("%s", error_message(&fixture->err));
        fixture_turn(fixture);
}

SandboxView sandbox(Fixture *fixture, const char *id) {
        SandboxView view;

        if (control_get_sandbox(fixture->control, &root, id, &view, &fixture->err) < 0)
                fail_msg("%s", error_message(&fixture->err));
        return view;
}

ExecView exec(Fixture *fixture, const char *sandbox_id, const char *exec_id) {
        ExecView view;

        if (control_get_exec(fixture->control, &root, sandbox_id, exec_id, &view, &fixture->err) < 0)
                fail_msg("%s", error_message(&fixture->err));
        return view;
}

void bring_to(Fixture *fixture, const char *id, SandboxState state) {
        Fake *fake = &fixture->fake;
        SandboxView view;

        fake->hold_start = fake->hold_pause = fake->hold_stop = fake->hold_remove = false;
        fake->hold_start = state == SANDBOX_PENDING;
        create(fixture, id, "");
        fake->hold_stop = state == SANDBOX_STOPPING;
        fake->hold_remove = state == SANDBOX_DELETING;
        switch (state) {
        case SANDBOX_PAUSED:
                assert_int_equal(control_pause_sandbox(fixture->control, &alice, id, true, &view, NULL), 0);
                break;
        case SANDBOX_STOPPING:
        case SANDBOX_STOPPED:
                assert_int_equal(control_stop_sandbox(fixture->control, &alice, id, 0, &view, NULL), 0);
                break;
        case SANDBOX_FAILED:
                fake_lose(fixture, id);
                break;
        case SANDBOX_DELETING:
        case SANDBOX_DELETED:
                assert_int_equal(control_delete_sandbox(fixture->control, &alice, id, &view, NULL), 0);
                break;
        default:
                break;
        }
        fixture_turn(fixture);
        assert_state(fixture, id, sandbox_state_name(state));
}

void assert_refused(Fixture *fixture, int r, const char *reason) {
        assert_true(r < 0);
        assert_string_equal(fixture->err.reason, reason);
        error_clear(&fixture->err);
}

char *read_watch(Watch *watch) {
        _cleanup_(string_builder_clear) StringBuilder text = {};
        _cleanup_(error_clear) HutchError err = {};
        WatchedEvent event;
        int r;

        while ((r = watch_next(watch, &event, &err)) > 0) {
                string_builder_append_bytes(&text, (const char *) event.encoded, event.encoded_len);
                string_builder_append(&text, "; ");
        }
        if (r < 0)
                string_builder_append(&text, err.reason);
        return string_builder_take(&text);
}

static void ignore_watch(Watch *watch, void *user) {}

char *events_after(Fixture *fixture, uint64_t cursor) {
        _cleanup_(watch_freep) Watch *watch = NULL;

        control_commit(fixture->control); /* as before any answer */
        assert_int_equal(control_watch(fixture->control, &root, &(const WatchFilter){ .all_owners = true }, cursor,
                                       ignore_watch, NULL, &watch, &fixture->err),
                         0);
        return read_watch(watch);
}
