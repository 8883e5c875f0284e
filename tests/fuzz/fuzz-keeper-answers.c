/* SPDX-License-Identifier: Apache-2.0 */

/* Input: what a keeper tells the daemon, and what the daemon asks meanwhile: a byte for what happens, and for messages
 * another with their length, and them. Keepers, their connections and their processes are played here; what the native
 * runtime makes of it is its own. */

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "model/reason.h"
#include "rpc/core/protobuf.h"
#include "runtime/native/execs.h"
#include "runtime/native/keeper-config.h"
#include "runtime/native/keeper-process.h"
#include "runtime/native/sandbox.h"
#include "runtime/native/usage.h"

#define CALLS_MAX 64
#define N_EXECS 3
#define MEMORY_CAP ((size_t) 1 << 20)
#define ID "fuzzed"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was asked of the keeper and is not answered. */
typedef struct Asked {
        const ProtobufCMessageDescriptor *type;
        KeeperReply done; /* NULL: Describe */
        void *user;
} Asked;

struct KeeperClient {
        char unused;
};

struct ChildProcess {
        char unused;
};

typedef enum ExecIs { EXEC_IS_NOBODYS, EXEC_IS_ASKED_FOR, EXEC_IS_STARTED, EXEC_IS_OVER } ExecIs;

static struct {
        uv_loop_t loop;
        NativeRuntime runtime;
        NativeSandbox *sandbox;
        int folder, trash;
        SandboxSpec *spec;
        ExecSpec *exec_spec;

        KeeperClient *client;
        const KeeperClientEvents *client_events;
        void *client_user;
        Asked asked[CALLS_MAX];
        size_t n_asked;
        ChildProcess *child;
        ChildEnded child_ended;
        bool keeper_is_there;
        void (*files_gone)(void *user);

        bool is_busy, is_started; /* a verb is under way; the sandbox runs */
        ExecIs execs[N_EXECS];
} fuzz;

/* ---- The keeper, as the runtime sees it ---- */

static void ask(const ProtobufCMessageDescriptor *type, KeeperReply done, void *user) {
        if (fuzz.n_asked < CALLS_MAX)
                fuzz.asked[fuzz.n_asked++] = (Asked){ type, done, user };
}

int keeper_client_new(ChannelHub *hub, int socket_path, uint64_t answer_timeout, uint64_t extra_time,
                      const KeeperClientEvents *events, void *user, KeeperClient **ret_client, HutchError *err) {
        (void) hub, (void) socket_path, (void) answer_timeout, (void) extra_time, (void) err;
        assert(!fuzz.client);
        *ret_client = fuzz.client = new0(KeeperClient, 1);
        fuzz.client_events = events;
        fuzz.client_user = user;
        keeper_client_describe(fuzz.client);
        return 0;
}

KeeperClient *keeper_client_free(KeeperClient *client) {
        if (client) {
                fuzz.client = NULL;
                fuzz.n_asked = 0;
                free(client);
        }
        return NULL;
}

void keeper_client_call(KeeperClient *client, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done, void *user) {
        (void) client, (void) method, (void) request, (void) extra_time;
        ask(type, done, user);
}

void keeper_client_call_encoded(KeeperClient *client, const char *method, const void *request, size_t len,
                                const ProtobufCMessageDescriptor *type, uint64_t extra_time, KeeperReply done,
                                void *user) {
        (void) client, (void) method, (void) request, (void) len, (void) extra_time;
        ask(type, done, user);
}

void keeper_client_describe(KeeperClient *client) {
        (void) client;
        ask(&hutch__keeper__v1__describe_response__descriptor, NULL, NULL);
}

ChannelCall *keeper_client_send_input(KeeperClient *client, const ChannelEvents *events, void *user) {
        (void) client, (void) events, (void) user;
        abort();
}

ChannelCall *keeper_client_carry(KeeperClient *client, const char *path, const char *user_name, const char *key,
                                 uint64_t deadline, const ChannelEvents *events, void *user) {
        (void) client, (void) path, (void) user_name, (void) key, (void) deadline, (void) events, (void) user;
        abort();
}

void keeper_status_error(const ClientStatus *status, HutchError *err) {
        (void) status, (void) err;
        abort();
}

int keeper_process_spawn(KeeperNest *nest, int folder, const KeeperStart *start, ChildEnded ended, void *user,
                         ChildProcess **ret_keeper, HutchError *err) {
        (void) nest, (void) folder, (void) start, (void) user, (void) err;
        *ret_keeper = fuzz.child = new0(ChildProcess, 1);
        fuzz.child_ended = ended;
        fuzz.keeper_is_there = true;
        return 0;
}

int keeper_process_open_socket(int folder) {
        (void) folder;
        return fuzz.keeper_is_there ? fcntl(fuzz.folder, F_DUPFD_CLOEXEC, 0) : -ENOENT;
}

int keeper_process_find(int folder, int *ret_pidfd) {
        *ret_pidfd = -1;
        return keeper_process_open_socket(folder);
}

void keeper_process_last_words(int folder, char *buffer, size_t size) {
        (void) folder, (void) size;
        *buffer = '\0';
}

int child_process_spawn(uv_loop_t *loop, const ChildOptions *options, ChildEnded ended, void *user,
                        ChildProcess **ret_child, HutchError *err) {
        (void) loop, (void) options, (void) ended, (void) user, (void) ret_child, (void) err;
        abort();
}

int child_process_adopt(uv_loop_t *loop, int pidfd, ChildEnded ended, void *user, ChildProcess **ret_child) {
        (void) loop, (void) pidfd, (void) ended, (void) user, (void) ret_child;
        abort();
}

void child_process_kill(ChildProcess *child) {
        (void) child;
        fuzz.keeper_is_there = false;
}

ChildProcess *child_process_free(ChildProcess *child) {
        if (child)
                fuzz.child = NULL;
        free(child);
        return NULL;
}

const char *child_end_text(ChildEnd end, char *buffer, size_t size) {
        (void) end;
        (void) snprintf(buffer, size, "ended");
        return buffer;
}

void keeper_config_encode(const NativeRuntime *runtime, const char *id, const RuntimeSpec *spec,
                          const NativeSources *sources, uint8_t **ret_bytes, size_t *ret_len) {
        (void) runtime, (void) id, (void) spec, (void) sources;
        *ret_bytes = xcalloc(1, 1);
        *ret_len = 1;
}

int remover_folder(const Remover *remover) {
        (void) remover;
        return fuzz.trash;
}

void remover_add(Remover *remover, const char *name, void (*done)(void *user), void *user) {
        (void) remover, (void) user;
        (void) unlinkat(fuzz.trash, name, AT_REMOVEDIR);
        fuzz.files_gone = done;
}

void remover_forget(Remover *remover, const char *name) {
        (void) remover, (void) name;
        fuzz.files_gone = NULL;
}

/* ---- What the runtime tells: what the rest of the daemon relies on ---- */

static void over(void) {
        assert(fuzz.is_busy || fuzz.is_started);
        fuzz.is_busy = fuzz.is_started = false;
        memset(fuzz.execs, 0, sizeof(fuzz.execs));
}

static void on_over(void *user) {
        (void) user;
        over();
}

static void on_failed(void *user, const HutchError *err) {
        (void) user;
        assert(err->error > 0 && reason_from_name(err->reason) != REASON_UNSPECIFIED);
        over();
}

static void on_started(void *user) {
        (void) user;
        assert(fuzz.is_busy);
        fuzz.is_busy = false;
        fuzz.is_started = true;
}

static void on_pause_done(void *user, bool paused) {
        (void) user, (void) paused;
        fuzz.is_busy = false;
}

static void on_pause_failed(void *user, const HutchError *err) {
        (void) user, (void) err;
        fuzz.is_busy = false;
}

static ExecIs *exec_of(const char *id) {
        assert(str_has_prefix(id, "exec-") && id[5] >= '0' && id[5] < '0' + N_EXECS && !id[6]);
        return &fuzz.execs[id[5] - '0'];
}

static void on_exec_started(void *user, const char *id, uint64_t start_time) {
        (void) user;
        assert(*exec_of(id) == EXEC_IS_ASKED_FOR && start_time > 0);
        *exec_of(id) = EXEC_IS_STARTED;
}

static void on_exec_ended(void *user, const char *id, const RuntimeExecEnd *end) {
        (void) user;
        assert(*exec_of(id) == (end->cause == RUNTIME_END_NOT_STARTED ? EXEC_IS_ASKED_FOR : EXEC_IS_STARTED));
        assert((end->cause == RUNTIME_END_NOT_STARTED) == (end->failure != NULL));
        assert(end->out.dropped <= end->out.total && end->err.dropped <= end->err.total);
        *exec_of(id) = EXEC_IS_OVER;
}

static void on_exec_unknown(void *user, const char *id) {
        (void) user;
        assert(*exec_of(id) == EXEC_IS_ASKED_FOR || *exec_of(id) == EXEC_IS_STARTED);
        *exec_of(id) = EXEC_IS_NOBODYS;
}

static void on_limit_hit(void *user, const char *limit, uint64_t count, const char *id) {
        (void) user, (void) limit;
        assert(count > 0 && (!*id || exec_of(id)));
}

static void on_output_grew(void *user, const char *id) {
        (void) user, (void) id;
        abort();
}

static void on_usage(const RuntimeUsage *usage, const HutchError *err, void *user) {
        (void) user;
        assert(!usage == !!err);
}

static const RuntimeEvents events = {
        .started = on_started,
        .start_failed = on_failed,
        .stopped = on_over,
        .removed = on_over,
        .pause_done = on_pause_done,
        .pause_failed = on_pause_failed,
        .lost = on_failed,
        .exec_started = on_exec_started,
        .exec_ended = on_exec_ended,
        .exec_unknown = on_exec_unknown,
        .limit_hit = on_limit_hit,
        .output_grew = on_output_grew,
};

/* ---- What happens ---- */

static void describe(const ProtobufCMessage *message) {
        Hutch__Keeper__V1__DescribeResponse *all = (Hutch__Keeper__V1__DescribeResponse *) message;
        char *told = all->sandbox_id;

        /* That it is the right one is easily said. */
        if (!*told)
                all->sandbox_id = (char *) ID;
        fuzz.client_events->described(fuzz.client_user, all);
        all->sandbox_id = told;
}

static void answer(const uint8_t *bytes, size_t len) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        Asked asked = fuzz.asked[0];

        if (fuzz.n_asked == 0 || protobuf_unpack(asked.type, bytes, len, MEMORY_CAP, &message) < 0)
                return;
        memmove(fuzz.asked, fuzz.asked + 1, --fuzz.n_asked * sizeof(Asked));
        if (asked.done)
                asked.done(asked.user, message, NULL);
        else
                describe(message);
}

static void refuse(void) {
        _cleanup_(error_clear) HutchError err = {};
        Asked asked = fuzz.asked[0];

        if (fuzz.n_asked == 0 || !asked.done)
                return;
        memmove(fuzz.asked, fuzz.asked + 1, --fuzz.n_asked * sizeof(Asked));
        (void) reason_set(&err, -EIO, REASON_INTERNAL, "no");
        asked.done(asked.user, NULL, &err);
}

static void happen(const uint8_t *bytes, size_t len) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;

        if (fuzz.client && protobuf_unpack(&hutch__keeper__v1__watch_keeper_response__descriptor, bytes, len,
                                           MEMORY_CAP, &message) == 0)
                fuzz.client_events->happened(fuzz.client_user,
                                             (const Hutch__Keeper__V1__WatchKeeperResponse *) message);
}

static void break_connection(void) {
        _cleanup_(error_clear) HutchError err = {};

        if (!fuzz.client)
                return;
        (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "broken");
        fuzz.client_events->broken(fuzz.client_user, &err);
}

static void end_keeper(void) {
        fuzz.keeper_is_there = false;
        if (fuzz.child)
                fuzz.child_ended(fuzz.sandbox, (ChildEnd){});
}

static void pass_time(void) {
        uv_timer_t *timer = &fuzz.sandbox->timer;

        if (!uv_is_active((uv_handle_t *) timer))
                return;
        (void) uv_timer_stop(timer);
        timer->timer_cb(timer);
}

static void gone(void) {
        void (*done)(void *user) = fuzz.files_gone;

        fuzz.files_gone = NULL;
        if (done)
                done(fuzz.sandbox);
}

/* ---- What is asked ---- */

static void recover(void) {
        static const char *const ids[N_EXECS + 1] = { "exec-0", "exec-1", "exec-2" };

        fuzz.is_busy = true;
        for (size_t i = 0; i < N_EXECS; i++)
                fuzz.execs[i] = EXEC_IS_ASKED_FOR;
        native_sandbox_recover(&fuzz.sandbox->base, ids);
}

static void start_exec(unsigned number) {
        static char *const environment[] = { NULL };
        char id[] = { 'e', 'x', 'e', 'c', '-', (char) ('0' + number), '\0' };

        if (!fuzz.is_started || fuzz.execs[number] != EXEC_IS_NOBODYS)
                return;
        fuzz.execs[number] = EXEC_IS_ASKED_FOR;
        execs_start(&fuzz.sandbox->base, &(RuntimeExec){ .exec_id = id,
                                                         .spec = fuzz.exec_spec,
                                                         .environment = environment,
                                                         .working_directory = "/",
                                                         .user = "agent" });
}

/* Verbs that others exclude: one at a time. */
static void ask_verb(unsigned verb) {
        RuntimeSandbox *sandbox = &fuzz.sandbox->base;

        if (fuzz.is_busy)
                return;
        if (verb == 0 && !fuzz.is_started) {
                fuzz.is_busy = true;
                native_sandbox_start(sandbox, &(RuntimeSpec){ .spec = fuzz.spec, .owner = "" });
        } else if (verb == 1) {
                recover();
        } else if (verb > 1 && fuzz.is_started) {
                fuzz.is_busy = true;
                native_sandbox_set_paused(sandbox, verb == 2);
        }
}

static void step(uint8_t what, const uint8_t *bytes, size_t len) {
        static const char *const ids[N_EXECS] = { "exec-0", "exec-1", "exec-2" };
        RuntimeSandbox *sandbox = &fuzz.sandbox->base;
        unsigned number = what / 16 % N_EXECS;

        switch (what % 16) {
        case 0:
                answer(bytes, len);
                break;
        case 1:
                happen(bytes, len);
                break;
        case 2:
                refuse();
                break;
        case 3:
                break_connection();
                break;
        case 4:
                end_keeper();
                break;
        case 5:
                pass_time();
                break;
        case 6:
                ask_verb(what / 16 % 4);
                break;
        case 7:
                start_exec(number);
                break;
        case 8:
                execs_cancel(sandbox, ids[number], 0);
                break;
        case 9:
                if (fuzz.execs[number] == EXEC_IS_OVER) {
                        fuzz.execs[number] = EXEC_IS_NOBODYS;
                        execs_forget(sandbox, ids[number]);
                }
                break;
        case 10:
                usages_get(sandbox, on_usage, NULL);
                break;
        case 11:
                fuzz.is_busy = true;
                native_sandbox_stop(sandbox, what / 16);
                break;
        case 12:
                fuzz.is_busy = true;
                native_sandbox_remove(sandbox);
                break;
        case 13:
                gone();
                break;
        default:
                (void) uv_run(&fuzz.loop, UV_RUN_NOWAIT);
        }
}

static char paths[2][32];

static void remove_folders(void) {
        for (int i = 0; i < 2; i++)
                (void) rmdir(paths[i]);
}

static int make_folder(char path[static 32]) {
        int fd;

        (void) snprintf(path, 32, "/tmp/hutch-fuzz-XXXXXX");
        fd = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        if (fd < 0)
                abort();
        return fd;
}

static void set_up(void) {
        if (fuzz.spec)
                return;
        log_default.fd = -1;
        (void) uv_loop_init(&fuzz.loop);
        fuzz.folder = make_folder(paths[0]);
        fuzz.trash = make_folder(paths[1]);
        (void) atexit(remove_folders);
        fuzz.spec = sandbox_spec_new();
        fuzz.exec_spec = exec_spec_new();
        fuzz.exec_spec->argv = new0(char *, 2);
        fuzz.exec_spec->argv[0] = xstrdup("true");
        fuzz.runtime = (NativeRuntime){
                .base.verbs = &fuzz.runtime.verbs,
                .loop = &fuzz.loop,
                /* Nobody looks into these. */
                .hub = (ChannelHub *) &fuzz,
                .keeper_program = (KeeperProgram *) &fuzz,
                .nest = (KeeperNest *) &fuzz,
                .remover = (Remover *) &fuzz,
                .cgroups = { .fd = -1, .scope.anchor = -1 },
                .sandboxes_fd = fuzz.folder,
                .start_timeout = UINT64_C(1) << 40,
                .answer_timeout = UINT64_C(1) << 40,
        };
        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                fuzz.runtime.cgroups.controllers[i].parent_fd = -1;
        task_queue_init(&fuzz.runtime.queue, &fuzz.loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        set_up();
        fuzz.is_busy = fuzz.is_started = fuzz.keeper_is_there = false;
        memset(fuzz.execs, 0, sizeof(fuzz.execs));
        fuzz.sandbox = (NativeSandbox *) native_sandbox_attach(&fuzz.runtime.base, ID, &events, NULL);
        while (size > 0) {
                uint8_t what = *data++;
                size_t len = 0;

                size--;
                if (what % 16 < 2 && size > 0) {
                        len = *data++;
                        size--;
                        len = len < size ? len : size;
                }
                step(what, data, len);
                data += len;
                size -= len;
        }
        native_sandbox_free(&fuzz.sandbox->base);
        (void) uv_run(&fuzz.loop, UV_RUN_NOWAIT);
        (void) unlinkat(fuzz.folder, ID, AT_REMOVEDIR);
        return 0;
}
