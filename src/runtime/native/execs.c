/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: execs as the daemon's side of a keeper sees them. What does not: running them, which the keeper
 * does; what a sandbox is at (sandbox.c). */

#include "runtime/native/execs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "model/ids.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"

#define EXPECTING_MS 4000  /* less than a keeper has a process wait */
#define DESCRIBED_MAX 4096 /* execs; no keeper has more */
#define OUTPUT_PATH_SIZE (2 * (ID_LEN_MAX + 1) + 64)
#define OUTPUT_NAME_SIZE (ID_LEN_MAX + sizeof(".out"))

struct NativeExec {
        NativeSandbox *sandbox;
        NativeExec *prev, *next;
        char *id;

        bool known;          /* start_exec() or recover() named it, and forget_exec() has not been answered */
        bool stray;          /* the keeper knows it, and nobody here: it is to end and to be forgotten */
        bool spared;         /* start() named it, and nobody has asked for it yet */
        bool spared_ended;   /* if so, and the keeper has told of all */
        bool missing;        /* in what the keeper has told of all */
        bool started, ended; /* it was told */
        uint64_t start_time; /* that was */
        uint32_t limits_hit; /* and this: a bit for each limit */

        /* What is wanted of the keeper, in this order, until it has answered. */
        uint8_t *request; /* StartExec */
        size_t request_len;
        bool cancel;
        uint64_t cancel_grace;
        bool forget;
        bool calling; /* for one of these */

        bool no_memory; /* for the request; to be told */
        unsigned n_follows;
        OutputFollow *follow; /* NULL: there is no folder yet */
        bool grown;           /* to be told */
};

static NativeExec *find(const NativeSandbox *sandbox, const char *id) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                if (strcmp(exec->id, id) == 0)
                        return exec;
        return NULL;
}

static NativeExec *get(NativeSandbox *sandbox, const char *id) {
        NativeExec *exec = find(sandbox, id);

        if (exec)
                return exec;

        exec = new0(NativeExec, 1);
        *exec = (NativeExec){ .sandbox = sandbox, .id = xstrdup(id), .prev = sandbox->last_exec };
        *(exec->prev ? &exec->prev->next : &sandbox->execs) = exec;
        sandbox->last_exec = exec;
        return exec;
}

static void exec_free(NativeExec *exec) {
        *(exec->prev ? &exec->prev->next : &exec->sandbox->execs) = exec->next;
        *(exec->next ? &exec->next->prev : &exec->sandbox->last_exec) = exec->prev;
        output_follow_free(exec->follow);
        free(exec->request);
        free(exec->id);
        free(exec);
}

/* Forgets what was known of it; it stays while somebody follows its output or a call is under way. */
static void exec_reset(NativeExec *exec) {
        if (exec->n_follows == 0 && !exec->calling) {
                exec_free(exec);
                return;
        }

        exec->known = exec->stray = exec->spared = exec->started = exec->ended = exec->cancel = exec->forget = false;
        exec->request = (free(exec->request), NULL);
}

bool execs_take_hit(NativeSandbox *sandbox, const char *exec_id, unsigned limit) {
        NativeExec *exec = find(sandbox, exec_id);
        uint32_t mark = UINT32_C(1) << limit;

        if (!exec || !exec->known || exec->limits_hit & mark)
                return false;

        exec->limits_hit |= mark;
        return true;
}

/* The folder of the sandbox, or a file in it. */
static void output_path(const NativeSandbox *sandbox, const char *file, char ret_path[static OUTPUT_PATH_SIZE]) {
        (void) snprintf(ret_path, OUTPUT_PATH_SIZE, "/proc/self/fd/%d/%s/%s", sandbox->runtime->sandboxes_fd,
                        sandbox->id, file);
}

static void on_grown(void *user) {
        NativeExec *exec = user;

        exec->sandbox->events->output_grew(exec->sandbox->user, exec->id);
}

/* Begins to watch its files. What was written before counts as growth. */
static void follow(NativeExec *exec) {
        char folder[OUTPUT_PATH_SIZE];

        output_path(exec->sandbox, "", folder);
        exec->follow = output_follow_new(exec->sandbox->runtime->outputs, folder, exec->id, on_grown, exec);
        if (!exec->follow)
                return;

        exec->grown = true;
        sandbox_wake(exec->sandbox);
}

static void tell_started(NativeExec *exec, uint64_t start_time) {
        NativeSandbox *sandbox = exec->sandbox;

        if (exec->started || exec->ended || sandbox->freed)
                return;

        exec->started = true;
        exec->start_time = start_time;
        if (exec->n_follows > 0 && !exec->follow)
                follow(exec);
        sandbox->events->exec_started(sandbox->user, exec->id, start_time);
}

static void tell_ended(NativeExec *exec, const RuntimeExecEnd *end) {
        NativeSandbox *sandbox = exec->sandbox;

        if (exec->ended || sandbox->freed)
                return;

        exec->ended = true;
        exec->cancel = false;
        native_inputs_end(sandbox, exec->id);
        sandbox->events->exec_ended(sandbox->user, exec->id, end);
}

/* One that was told to have started is not known to run any more: how it ended is not known either. */
static void tell_not_started(NativeExec *exec, const HutchError *err) {
        tell_ended(exec, &(RuntimeExecEnd){
                                 .cause = exec->started ? RUNTIME_END_EXITED : RUNTIME_END_NOT_STARTED,
                                 .wait_status = exec->started ? KEEPER_EXIT_UNKNOWN : 0,
                                 .end_time = clock_realtime_ns(),
                                 .failure = exec->started ? NULL : err,
                         });
}

/* Tells what is new in what the keeper says. The exec is still there afterwards, whatever is done about it. */
static void take(NativeExec *exec, const KeeperExec *told) {
        _cleanup_(error_clear) HutchError failure = {};
        uint64_t now = clock_realtime_ns();
        RuntimeExecEnd end;

        if (told->start_time)
                tell_started(exec, keeper_time(told->start_time, now));
        if (!told->end)
                return;

        /* Only what has started can end, and it cannot have ended by not having started. */
        end = keeper_exec_end(told, now, &failure);
        if (end.cause != RUNTIME_END_NOT_STARTED)
                tell_started(exec, end.end_time);
        else if (exec->started) {
                end.cause = RUNTIME_END_EXITED;
                end.failure = NULL;
        }
        if (exec->started && end.end_time < exec->start_time)
                end.end_time = exec->start_time;
        tell_ended(exec, &end);
}

static void exec_sync(NativeExec *exec);

static void on_start_answered(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        NativeExec *exec = user;
        const KeeperExec *told = reply ? ((const Hutch__Keeper__V1__StartExecResponse *) reply)->exec : NULL;

        FAILPOINT("native.exec.answered");
        exec->calling = false;
        exec->request = (free(exec->request), NULL);
        if (told && str_equal(told->exec_id, exec->id)) {
                take(exec, told);
        } else {
                _cleanup_(error_clear) HutchError failure = {};

                if (!err)
                        (void) reason_set(&failure, -EBADMSG, REASON_INTERNAL, "the keeper speaks of another exec");
                tell_not_started(exec, err ? err : &failure);
        }
        exec_sync(exec);
}

/* The keeper does not know it any more. */
static void tell_unknown(NativeExec *exec) {
        const NativeSandbox *sandbox = exec->sandbox;
        _cleanup_free_ char *id = xstrdup(exec->id);
        bool is_awaited = exec->known && !exec->ended && !sandbox->freed;

        exec_reset(exec);
        if (is_awaited)
                sandbox->events->exec_unknown(sandbox->user, id);
}

static void on_cancel_answered(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        NativeExec *exec = user;

        (void) reply;
        exec->calling = exec->cancel = false;
        if (err && !exec->request && reason_from_name(err->reason) == REASON_EXEC_NOT_FOUND) {
                tell_unknown(exec);
                return;
        }
        if (err)
                log_warning("exec cannot be cancelled", LOG_STR("sandbox", exec->sandbox->id),
                            LOG_STR("exec", exec->id), LOG_STR("error", error_message(err)));
        exec_sync(exec);
}

static void on_forget_answered(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        NativeExec *exec = user;

        (void) reply;
        (void) err;
        exec->calling = false;
        /* Somebody may have started it again meanwhile, which is a question. */
        if (exec->request)
                exec_sync(exec);
        else
                exec_reset(exec);
}

/* Asks the keeper for what is wanted next, one thing at a time. */
static void exec_sync(NativeExec *exec) {
        KeeperClient *client = exec->sandbox->client;

        if (exec->calling || !sandbox_is_connected(exec->sandbox))
                return;

        if (exec->request) {
                exec->calling = true;
                keeper_client_call_encoded(client, "StartExec", exec->request, exec->request_len,
                                           &hutch__keeper__v1__start_exec_response__descriptor, 0, on_start_answered,
                                           exec);
                exec->sandbox->n_started++;
                FAILPOINT("native.exec.sent");
        } else if (exec->cancel) {
                Hutch__Keeper__V1__CancelExecRequest request = HUTCH__KEEPER__V1__CANCEL_EXEC_REQUEST__INIT;
                Google__Protobuf__Duration grace = keeper_duration_of(exec->cancel_grace);

                exec->calling = true;
                request.exec_id = exec->id;
                request.grace = &grace;
                keeper_client_call(client, "CancelExec", &request.base,
                                   &hutch__keeper__v1__cancel_exec_response__descriptor, 0, on_cancel_answered, exec);
                FAILPOINT("native.exec.cancel");
        } else if (exec->forget) {
                Hutch__Keeper__V1__ForgetExecRequest request = HUTCH__KEEPER__V1__FORGET_EXEC_REQUEST__INIT;

                exec->calling = true;
                request.exec_id = exec->id;
                keeper_client_call(client, "ForgetExec", &request.base,
                                   &hutch__keeper__v1__forget_exec_response__descriptor, 0, on_forget_answered, exec);
                FAILPOINT("native.exec.forget");
        }
}

void execs_sync(NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                exec_sync(exec);
}

/* Nobody will ever ask for it: it is ended, and forgotten once it has. */
static void take_stray(NativeExec *exec, const KeeperExec *told) {
        exec->cancel = !told->end;
        exec->cancel_grace = 0;
        exec->forget = told->end != NULL;
        exec_sync(exec);
}

void execs_take(NativeSandbox *sandbox, const KeeperExec *told) {
        NativeExec *exec = find(sandbox, told->exec_id);

        if (exec && exec->known)
                take(exec, told);
        else if (exec && exec->stray)
                take_stray(exec, told);
}

/* As execs_take(), in an answer that has all execs. Tells whether it is a new one, of nobody's. */
static bool take_described(NativeSandbox *sandbox, const KeeperExec *told) {
        NativeExec *exec = find(sandbox, told->exec_id);
        bool is_new = !exec || (!exec->known && !exec->stray);

        if (is_new && exec && exec->spared) {
                exec->missing = false;
                exec->spared_ended = told->end;
                return false;
        }
        if (is_new) {
                /* While the sandbox ends they end with it. */
                if (sandbox->phase != PHASE_CONNECTING || id_check(told->exec_id, strlen(told->exec_id), NULL) < 0)
                        return false;
                exec = get(sandbox, told->exec_id);
                exec->stray = true;
        }
        exec->missing = false;
        execs_take(sandbox, told);
        return is_new;
}

static NativeExec *find_missing(const NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is not in the list any more. */
                if (exec->missing && exec->known)
                        return exec;
        return NULL;
}

void execs_take_all(NativeSandbox *sandbox, KeeperExec *const *told, size_t n_told) {
        NativeExec *exec, *next;
        uint64_t n_strays = 0;

        for (exec = sandbox->execs; exec; exec = exec->next)
                exec->missing = true;
        for (size_t i = 0; i < n_told && i < DESCRIBED_MAX; i++)
                n_strays += take_described(sandbox, told[i]);
        if (n_strays > 0)
                log_warning("keeper has execs of nobody's; they are ended and forgotten",
                            LOG_STR("sandbox", sandbox->id), LOG_UINT("execs", n_strays));

        while (!sandbox->freed && (exec = find_missing(sandbox))) {
                exec->missing = false;
                /* One that is about to be started is answered by that, and one that has ended needs no answer. */
                if (!exec->request && !exec->ended)
                        tell_unknown(exec);
        }

        for (exec = sandbox->execs; exec; exec = next) {
                next = exec->next;
                if (exec->missing && exec->stray)
                        exec_reset(exec);
        }
}

void execs_ask(NativeSandbox *sandbox, const char *exec_id) {
        NativeExec *exec = get(sandbox, exec_id);

        exec->known = true;
        exec->stray = exec->started = exec->ended = false;
}

void execs_spare(NativeSandbox *sandbox, const char *exec_id) {
        NativeExec *exec = get(sandbox, exec_id);

        exec->spared = !exec->known;
        exec->missing = true;
}

void execs_end_spared(NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs, *next; exec; exec = next) {
                next = exec->next;
                if (!exec->spared)
                        continue;
                exec->spared = false;
                if (exec->missing) {
                        exec_reset(exec);
                        continue;
                }
                exec->stray = true;
                exec->cancel = !exec->spared_ended;
                exec->cancel_grace = 0;
                exec->forget = exec->spared_ended;
                exec_sync(exec);
        }
}

void execs_disconnect(NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                exec->calling = false;
}

void execs_reset(NativeSandbox *sandbox) {
        sandbox->expecting_until = sandbox->n_started = 0;
        for (NativeExec *exec = sandbox->execs, *next; exec; exec = next) {
                next = exec->next;
                exec_reset(exec);
        }
}

void execs_detach(NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                exec->follow = output_follow_free(exec->follow);
}

void execs_free(NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs, *next; exec; exec = next) {
                next = exec->next;
                exec_free(exec);
        }
}

static NativeExec *find_to_tell(const NativeSandbox *sandbox) {
        for (NativeExec *exec = sandbox->execs; exec; exec = exec->next)
                if (exec->no_memory || exec->grown)
                        return exec;
        return NULL;
}

void execs_run(NativeSandbox *sandbox) {
        NativeExec *exec;

        while (!sandbox->freed && (exec = find_to_tell(sandbox))) {
                if (exec->no_memory) {
                        _cleanup_(error_clear) HutchError err = {};

                        exec->no_memory = false;
                        (void) reason_set(&err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory to start it");
                        tell_not_started(exec, &err);
                } else {
                        exec->grown = false;
                        on_grown(exec);
                }
        }
}

/* An environment as the keeper wants it. */
typedef struct EncodedEnvironment {
        size_t n;
        Hutch__Keeper__V1__EnvironmentVariable *variables;
        Hutch__Keeper__V1__EnvironmentVariable **list; /* of these */
        char **names;                                  /* theirs; ends with NULL */
} EncodedEnvironment;

static void encoded_environment_clear(EncodedEnvironment *encoded) {
        free(encoded->variables);
        free((void *) encoded->list);
        strv_free(encoded->names);
}

/* Splits NAME=VALUE texts, which outlive it. @encoded is to be cleared also when it fails. */
static int encode_environment(char *const *environment, EncodedEnvironment *encoded) {
        size_t n = 0;

        while (environment[n])
                n++;
        encoded->variables = try_new0(Hutch__Keeper__V1__EnvironmentVariable, n + 1);
        encoded->list = (Hutch__Keeper__V1__EnvironmentVariable **) try_new0(void *, n + 1);
        encoded->names = try_new0(char *, n + 1);
        if (!encoded->variables || !encoded->list || !encoded->names)
                return -ENOMEM;

        for (; encoded->n < n; encoded->n++) {
                Hutch__Keeper__V1__EnvironmentVariable *variable = &encoded->variables[encoded->n];
                char *text = environment[encoded->n], *equals = strchrnul(text, '=');
                char *name = strndup(text, (size_t) (equals - text));

                if (!name)
                        return -ENOMEM;
                hutch__keeper__v1__environment_variable__init(variable);
                variable->name = encoded->names[encoded->n] = name;
                variable->value = *equals ? equals + 1 : equals;
                encoded->list[encoded->n] = variable;
        }
        return 0;
}

static int encode_start(const RuntimeExec *exec, uint8_t **ret_bytes, size_t *ret_len) {
        const ExecSpec *spec = exec->spec;
        Hutch__Keeper__V1__StartExecRequest request = HUTCH__KEEPER__V1__START_EXEC_REQUEST__INIT;
        Hutch__Keeper__V1__KeeperTerminalSize size = HUTCH__KEEPER__V1__KEEPER_TERMINAL_SIZE__INIT;
        Google__Protobuf__Duration timeout = keeper_duration_of(exec->timeout);
        Google__Protobuf__Duration grace = keeper_duration_of(spec->kill_grace);
        EncodedEnvironment environment = {};
        int r;

        size.rows = spec->rows;
        size.columns = spec->columns;
        request.exec_id = (char *) exec->exec_id;
        request.argv = spec->argv;
        while (spec->argv[request.n_argv])
                request.n_argv++;
        request.set_home = exec->set_home;
        request.set_user = exec->set_user;
        request.quietly = exec->quietly;
        request.working_directory = (char *) exec->working_directory;
        request.user = (char *) exec->user;
        request.timeout = exec->timeout ? &timeout : NULL;
        request.kill_grace = &grace;
        request.stdin_stream = spec->stdin_stream;
        request.terminal = spec->terminal ? &size : NULL;
        request.output_limit_bytes = spec->output_limit;
        if (!spec->stdin_stream)
                request.input = (ProtobufCBinaryData){ .data = spec->input, .len = spec->input_len };

        r = encode_environment(exec->environment, &environment);
        request.env = environment.list;
        request.n_env = environment.n;
        if (r == 0)
                r = protobuf_pack(&request.base, ret_bytes, ret_len);
        encoded_environment_clear(&environment);
        return r;
}

static void on_expect_answered(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        (void) user;
        (void) reply;
        (void) err; /* keepers of the release before do not know of it */
}

/* The keeper does not need to be told while others run, and after the second it expects the next one by itself. One
 * that still builds the sandbox begins with it, whatever ran there before. */
static void expect(NativeSandbox *sandbox, const char *user, bool patiently) {
        Hutch__Keeper__V1__ExpectExecRequest request = HUTCH__KEEPER__V1__EXPECT_EXEC_REQUEST__INIT;
        bool is_starting = sandbox->phase == PHASE_CONNECTING && sandbox->spawned && sandbox->client;

        if (!(is_starting || (!sandbox->execs && sandbox_is_connected(sandbox))) ||
            uv_now(sandbox->runtime->loop) < sandbox->expecting_until)
                return;

        request.user = (char *) user;
        request.patiently = patiently;
        keeper_client_call(sandbox->client, "ExpectExec", &request.base,
                           &hutch__keeper__v1__expect_exec_response__descriptor,
                           is_starting ? sandbox->runtime->start_timeout : 0, on_expect_answered, sandbox);
        /* That one does come, in the end, is to be told. */
        sandbox->expecting_until = patiently ? 0 : uv_now(sandbox->runtime->loop) + EXPECTING_MS;
}

void execs_expect(RuntimeSandbox *base, const char *user) {
        expect((NativeSandbox *) base, user, false);
}

void execs_expect_start(NativeSandbox *sandbox) {
        expect(sandbox, sandbox->expected_user, sandbox->expects_patiently);
}

void execs_start(RuntimeSandbox *base, const RuntimeExec *start) {
        NativeExec *exec = get((NativeSandbox *) base, start->exec_id);
        uint8_t *request = NULL;
        size_t len = 0;

        exec->known = true;
        exec->stray = exec->spared = exec->started = exec->ended = exec->forget = false;
        if (exec->request) /* it is asked for already */
                return;

        if (encode_start(start, &request, &len) < 0) {
                exec->no_memory = true;
                sandbox_wake(exec->sandbox);
                return;
        }
        exec->request = request;
        exec->request_len = len;
        exec_sync(exec);
}

void execs_cancel(RuntimeSandbox *base, const char *exec_id, uint64_t grace) {
        NativeExec *exec = find((NativeSandbox *) base, exec_id);

        if (!exec || !exec->known || exec->ended)
                return;

        exec->cancel = true;
        exec->cancel_grace = grace;
        exec_sync(exec);
}

void execs_forget(RuntimeSandbox *base, const char *exec_id) {
        NativeExec *exec = find((NativeSandbox *) base, exec_id);

        if (!exec || !exec->known)
                return;

        exec->forget = true;
        exec_sync(exec);
        exec->sandbox->expecting_until =
                exec->sandbox->n_started > 1 ? uv_now(exec->sandbox->runtime->loop) + EXPECTING_MS : 0;
}

static void output_name(const char *exec_id, int stream, char ret_name[static OUTPUT_NAME_SIZE]) {
        (void) snprintf(ret_name, OUTPUT_NAME_SIZE, "%s.%s", exec_id, stream == 1 ? "out" : "err");
}

int execs_open_output(RuntimeSandbox *base, const char *exec_id, int stream) {
        _cleanup_close_ int fd = -1;
        char name[OUTPUT_NAME_SIZE], path[OUTPUT_PATH_SIZE];
        struct stat status;

        output_name(exec_id, stream, name);
        output_path((const NativeSandbox *) base, name, path);
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;

        /* The folder is the keeper's: another name of a file may be one that only the daemon may read. */
        return S_ISREG(status.st_mode) && status.st_nlink == 1 ? TAKE_FD(fd) : -ENOENT;
}

static void ignore_removed(void *user) {
        (void) user;
}

/* Removing a large file takes its time: that is for others to do. No sandbox's id is like the names in the trash. */
int execs_drop_output(RuntimeSandbox *base, const char *exec_id) {
        NativeRuntime *runtime = ((NativeSandbox *) base)->runtime;
        int trash = remover_folder(runtime->remover), r = 0;
        char folder[32];

        (void) snprintf(folder, sizeof(folder), "+%" PRIu64, ++runtime->last_dropped);
        if (mkdirat(trash, folder, 0700) < 0)
                return -errno;
        for (int stream = 1; stream <= 2; stream++) {
                char name[OUTPUT_NAME_SIZE], path[OUTPUT_PATH_SIZE], target[sizeof(folder) + OUTPUT_NAME_SIZE];

                output_name(exec_id, stream, name);
                output_path((const NativeSandbox *) base, name, path);
                (void) snprintf(target, sizeof(target), "%s/%s", folder, name);
                if (renameat(AT_FDCWD, path, trash, target) < 0 && errno != ENOENT)
                        r = -errno;
        }
        remover_add(runtime->remover, folder, ignore_removed, NULL);
        return r;
}

void execs_follow_output(RuntimeSandbox *base, const char *exec_id, bool on) {
        NativeSandbox *sandbox = (NativeSandbox *) base;
        NativeExec *exec;

        if (on) {
                exec = get(sandbox, exec_id);
                if (exec->n_follows++ == 0)
                        follow(exec);
                return;
        }

        exec = find(sandbox, exec_id);
        if (!exec || exec->n_follows == 0 || --exec->n_follows > 0)
                return;
        exec->follow = output_follow_free(exec->follow);
        exec->grown = false;
        if (!exec->known && !exec->calling)
                exec_free(exec);
}
