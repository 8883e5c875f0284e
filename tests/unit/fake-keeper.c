/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the keeper protocol, badly on purpose. What does not: sandboxes. */

#include "fake-keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "model/reason.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"
#include "rpc/core/status-details.h"
#include "rpc/server.h"

#define CONFIG_FD 3
#define SOCKET_FD 4
#define EXECS_MAX 64
#define MESSAGE_CAP ((size_t) 1 << 20)
#define CAUSE(name) HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_##name
#define STATE(name) HUTCH__KEEPER__V1__KEEPER_STATE__KEEPER_STATE_##name

typedef struct FakeExec {
        char id[64];
        bool ended;
        Hutch__Keeper__V1__KeeperEndCause cause;
} FakeExec;

static struct {
        uv_loop_t loop;
        uv_timer_t timer;
        Server *server;
        MethodTable *methods;
        char *sandbox_id;
        Hutch__Keeper__V1__KeeperState state;
        Call *watch;
        FakeExec execs[EXECS_MAX];
        size_t n_execs;
        bool dropped;
        Call *refused;
        int socket;
} fake;

/* What the keeper says of an exec, with room for its parts. */
typedef struct Told {
        Hutch__Keeper__V1__KeeperExec exec;
        Hutch__Keeper__V1__KeeperExecEnd end;
        Hutch__Keeper__V1__KeeperFailure failure;
        Google__Protobuf__Timestamp start_time, end_time;
        Google__Protobuf__Duration cpu_time;
} Told;

static void tell(Told *told, FakeExec *exec) {
        bool lies = str_has_prefix(exec->id, "exec-lies");

        hutch__keeper__v1__keeper_exec__init(&told->exec);
        hutch__keeper__v1__keeper_exec_end__init(&told->end);
        google__protobuf__timestamp__init(&told->start_time);
        google__protobuf__timestamp__init(&told->end_time);
        google__protobuf__duration__init(&told->cpu_time);
        told->start_time.seconds = lies ? INT64_MAX : 1600000000;
        told->end_time.seconds = lies ? -5 : 1600000001;
        told->cpu_time.seconds = lies ? INT64_MAX : 2;
        told->cpu_time.nanos = lies ? -1 : 0;
        told->exec.exec_id = exec->id;
        told->exec.start_time = &told->start_time;
        told->exec.stdout_bytes = lies ? UINT64_MAX : 10;
        told->end.stdout_dropped_bytes = lies ? UINT64_MAX : 4;
        told->end.wait_status = lies ? 0x7f : 7 << 8;
        told->end.end_time = &told->end_time;
        told->end.cpu_time = &told->cpu_time;
        told->end.cause = exec->cause;
        if (exec->ended)
                told->exec.end = &told->end;
}

static void send_watch(Hutch__Keeper__V1__WatchKeeperResponse *response) {
        if (fake.watch)
                (void) call_send_protobuf(fake.watch, &response->base);
}

static void watch_exec(FakeExec *exec) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Told told;

        tell(&told, exec);
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_EXEC;
        response.exec = &told.exec;
        send_watch(&response);
}

static void watch_hit(const char *limit, const char *exec_id) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperLimitHit hit = HUTCH__KEEPER__V1__KEEPER_LIMIT_HIT__INIT;

        hit.limit = (char *) limit;
        hit.exec_id = (char *) exec_id;
        hit.count = 1;
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_LIMIT_HIT;
        response.limit_hit = &hit;
        send_watch(&response);
}

static void on_watch_ended(Call *call, CallEnd how) {
        (void) how;
        if (fake.watch == call)
                fake.watch = NULL;
}

static void watch_keeper(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .ended = on_watch_ended };
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__WatchSynced synced = HUTCH__KEEPER__V1__WATCH_SYNCED__INIT;
        FakeExec nobodys = { .id = "exec-nobodys", .ended = true };

        (void) message;
        (void) len;
        (void) context;
        call_set_events(call, &events, NULL);
        fake.watch = call;
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_SYNCED;
        response.synced = &synced;
        send_watch(&response);
        watch_exec(&nobodys);
}

static FakeExec *find(const char *id) {
        for (size_t i = 0; i < fake.n_execs; i++)
                if (str_equal(fake.execs[i].id, id))
                        return &fake.execs[i];
        return NULL;
}

static void serve(void) {
        if (server_new(&fake.loop, fake.methods, &server_options_default, &fake.server) < 0 ||
            server_listen_fd(fake.server, fcntl(fake.socket, F_DUPFD_CLOEXEC, 10), NULL, NULL) < 0)
                abort();
}

static void on_dropped(void *user) {
        (void) user;
        serve();
}

static void forget(const FakeExec *exec) {
        size_t i = (size_t) (exec - fake.execs);

        fake.n_execs--;
        memmove(&fake.execs[i], &fake.execs[i + 1], (fake.n_execs - i) * sizeof(FakeExec));
}

static void on_drop(uv_timer_t *timer) {
        (void) timer;
        for (size_t i = fake.n_execs; i > 0; i--)
                if (strstr(fake.execs[i - 1].id, "vanishes"))
                        forget(&fake.execs[i - 1]);
        server_free(fake.server, on_dropped, NULL);
}

static void describe(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__DescribeResponse response = HUTCH__KEEPER__V1__DESCRIBE_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperFailure failure = HUTCH__KEEPER__V1__KEEPER_FAILURE__INIT;
        Hutch__Keeper__V1__KeeperExec *list[EXECS_MAX];
        static Told told[EXECS_MAX];

        (void) message;
        (void) len;
        (void) context;
        for (size_t i = 0; i < fake.n_execs; i++) {
                tell(&told[i], &fake.execs[i]);
                list[i] = &told[i].exec;
        }
        failure.error = ENOSPC;
        failure.reason = (char *) "DISK_FULL";
        failure.message = (char *) "there is no room";
        response.protocol_version = 1;
        response.sandbox_id = str_has_prefix(fake.sandbox_id, "fake-other") ? (char *) "other" : fake.sandbox_id;
        response.state = fake.state;
        response.failure = fake.state == STATE(FAILED) ? &failure : NULL;
        response.execs = list;
        response.n_execs = fake.n_execs;
        call_reply_protobuf(call, &response.base);
        (void) fprintf(stderr, "describe\n");
        if (str_has_prefix(fake.sandbox_id, "fake-flaps"))
                (void) uv_timer_start(&fake.timer, on_drop, 1, 0);
}

static void on_turn(uv_timer_t *timer) {
        (void) timer;
        call_finish(fake.refused, STATUS_INVALID_ARGUMENT, "not this one");
}

static void on_revive(uv_timer_t *timer) {
        FakeExec exec = { .id = "exec-revives-1" };

        (void) timer;
        watch_exec(&exec);
}

/* Refuses those that are to be, before or after the watch has told otherwise. */
static bool refuse(Call *call, const char *id) {
        FakeExec exec = { .id = "exec-turns-1" };

        if (str_equal(id, exec.id)) {
                watch_exec(&exec);
                fake.refused = call;
                (void) uv_timer_start(&fake.timer, on_turn, 20, 0);
                return true;
        }
        if (!str_has_prefix(id, "exec-refused") && !str_equal(id, "exec-revives-1"))
                return false;
        if (str_equal(id, "exec-revives-1"))
                (void) uv_timer_start(&fake.timer, on_revive, 20, 0);
        call_finish(call, STATUS_INVALID_ARGUMENT, "not this one");
        return true;
}

static void start_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__StartExecResponse response = HUTCH__KEEPER__V1__START_EXEC_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked =
                call_unpack(call, &hutch__keeper__v1__start_exec_request__descriptor, message, len, MESSAGE_CAP);
        const char *id = ((const Hutch__Keeper__V1__StartExecRequest *) unpacked)->exec_id;
        FakeExec *exec = find(id);
        Told told;

        (void) context;
        if (str_has_prefix(id, "exec-kills"))
                _exit(4);
        if (refuse(call, id))
                return;

        if (!exec) {
                exec = &fake.execs[fake.n_execs++];
                *exec = (FakeExec){ .cause = CAUSE(EXITED) };
                (void) snprintf(exec->id, sizeof(exec->id), "%s", id);
        }
        for (int i = 0; i < 1000 && str_has_prefix(id, "exec-hits"); i++) {
                watch_hit("max_processes", "");
                watch_hit("memory_bytes", id);
        }
        if (!str_has_prefix(id, "exec-runs") && !str_has_prefix(id, "exec-lingers")) {
                exec->ended = true;
                watch_exec(exec);
        }
        if (str_has_prefix(id, "exec-drops") && !fake.dropped) {
                fake.dropped = true;
                (void) uv_timer_start(&fake.timer, on_drop, 0, 0);
                return;
        }

        tell(&told, exec);
        /* The answer is older than what the watch has told. */
        told.exec.end = NULL;
        response.exec = &told.exec;
        call_reply_protobuf(call, &response.base);
}

static void end_cancelled(FakeExec *exec) {
        exec->ended = true;
        exec->cause = CAUSE(CANCELLED);
        watch_exec(exec);
}

static void on_lingered(uv_timer_t *timer) {
        (void) timer;
        for (size_t i = 0; i < fake.n_execs; i++)
                if (str_has_prefix(fake.execs[i].id, "exec-lingers"))
                        end_cancelled(&fake.execs[i]);
}

static void cancel_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked =
                call_unpack(call, &hutch__keeper__v1__cancel_exec_request__descriptor, message, len, MESSAGE_CAP);
        const Hutch__Keeper__V1__CancelExecRequest *request = (const Hutch__Keeper__V1__CancelExecRequest *) unpacked;
        FakeExec *exec = find(request->exec_id);

        (void) context;
        (void) fprintf(stderr, "cancel %s %lld\n", request->exec_id,
                       (long long) request->grace->seconds * 1000000000 + request->grace->nanos);
        if (!exec || strstr(exec->id, "forgotten")) {
                _cleanup_(error_clear) HutchError err = {};

                (void) reason_set(&err, -ENOENT, REASON_EXEC_NOT_FOUND, "no such exec");
                call_fail(call, &err);
                return;
        }

        if (str_has_prefix(exec->id, "exec-lingers"))
                (void) uv_timer_start(&fake.timer, on_lingered, 50, 0);
        else
                end_cancelled(exec);
        call_reply(call, "", 0);
}

/* Input is taken, and goes nowhere. */
static void on_input(Call *call, const uint8_t *message, size_t len) {
        (void) message;
        (void) len;
        call_read(call);
}

static void send_input(Call *call, void *context) {
        static const CallEvents events = { .message = on_input };

        call_set_events(call, &events, context);
        call_read(call);
}

static void forget_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked =
                call_unpack(call, &hutch__keeper__v1__forget_exec_request__descriptor, message, len, MESSAGE_CAP);
        const FakeExec *exec = find(((const Hutch__Keeper__V1__ForgetExecRequest *) unpacked)->exec_id);

        (void) context;
        if (exec && !exec->ended) {
                call_finish(call, STATUS_FAILED_PRECONDITION, "it runs");
                return;
        }

        if (exec) {
                (void) fprintf(stderr, "forget %s\n", exec->id);
                forget(exec);
        }
        call_reply(call, "", 0);
}

static const char *metadata_text(const Call *call, const char *name) {
        const MetadataEntry *entry = metadata_find(call_metadata(call), name);

        return entry ? entry->value : "";
}

/* File work: each message comes back behind who asked; "fail" and "lie" end the call. */
static void on_file_message(Call *call, const uint8_t *message, size_t len) {
        static const StatusPair facts[] = { { "path", "/a" } };
        static char answer[65536];
        int n;

        if (len == 4 && memcmp(message, "fail", 4) == 0) {
                const HutchError err = { .code = STATUS_UNKNOWN, .message = (char *) "there is no '/a'" };
                StatusDetails details = { .reason = "FILE_NOT_FOUND", .domain = "hutch", .pairs = facts, .n_pairs = 1 };

                call_fail_details(call, &err, &details);
                return;
        }
        if (len == 3 && memcmp(message, "lie", 3) == 0) {
                call_fail_with(call, STATUS_PERMISSION_DENIED, "NO_SUCH_REASON", "\xff");
                return;
        }

        n = snprintf(answer, sizeof(answer), "%s %s %.*s", metadata_text(call, "hutch-user"),
                     metadata_text(call, "hutch-key"), (int) len, (const char *) message);
        (void) call_send(call, answer, (size_t) n);
        call_read(call);
}

static void on_file_half_closed(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void on_file_ended(Call *call, CallEnd how) {
        (void) call;
        if (how == CALL_END_CANCELLED || how == CALL_END_LOST)
                (void) fprintf(stderr, "file work cancelled\n");
}

static void upload_file(Call *call, void *context) {
        static const CallEvents events = {
                .message = on_file_message,
                .half_closed = on_file_half_closed,
                .ended = on_file_ended,
        };

        call_set_events(call, &events, context);
        call_read(call);
}

static void reply_empty(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message;
        (void) len;
        (void) context;
        call_reply(call, "", 0);
}

static void on_exit_time(uv_timer_t *timer) {
        (void) timer;
        _exit(0);
}

static void shut_down(Call *call, const uint8_t *message, size_t len, void *context) {
        reply_empty(call, message, len, context);
        if (!str_has_prefix(fake.sandbox_id, "fake-sticks"))
                (void) uv_timer_start(&fake.timer, on_exit_time, 10, 0);
}

static void on_built(uv_timer_t *timer) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperStateChange change = HUTCH__KEEPER__V1__KEEPER_STATE_CHANGE__INIT;

        (void) timer;
        fake.state = change.state = STATE(RUNNING);
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_STATE;
        response.state = &change;
        send_watch(&response);
}

static void read_config(void) {
        const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
        static uint8_t bytes[65536];
        ssize_t n = pread(CONFIG_FD, bytes, sizeof(bytes), 0);
        ProtobufCMessage *config;

        if (n < 0 || (fcntl(CONFIG_FD, F_GET_SEALS) & seals) != seals ||
            protobuf_unpack(&hutch__keeper__v1__keeper_config__descriptor, bytes, (size_t) n, MESSAGE_CAP, &config) < 0)
                abort();
        fake.sandbox_id = strdup(((const Hutch__Keeper__V1__KeeperConfig *) config)->sandbox_id);
        protobuf_free(config);
}

static int keep(void) {
#define METHOD(name, function)                                                                                         \
        { .path = "/hutch.keeper.v1.KeeperService/" name, .handle = function }
        static const Method methods[] = {
                METHOD("Describe", describe),
                METHOD("WatchKeeper", watch_keeper),
                METHOD("StartExec", start_exec),
                METHOD("CancelExec", cancel_exec),
                METHOD("ForgetExec", forget_exec),
                METHOD("SetPaused", reply_empty),
                METHOD("GetUsage", reply_empty),
                METHOD("Shutdown", shut_down),
                { .path = "/hutch.keeper.v1.KeeperService/SendInput", .start = send_input },
                { .path = "/hutch.v1.FileService/UploadFile", .start = upload_file },
        };

        read_config();
        (void) fprintf(stderr, "the last words of %s\n", fake.sandbox_id);
        /* Who listens is whom the daemon takes for the keeper. */
        fake.socket = SOCKET_FD;
        if (listen(SOCKET_FD, 16) < 0)
                abort();
        if (str_has_prefix(fake.sandbox_id, "fake-dies"))
                _exit(3);
        while (str_has_prefix(fake.sandbox_id, "fake-hangs"))
                (void) pause();

        fake.methods = method_table_new();
        (void) uv_loop_init(&fake.loop);
        (void) uv_timer_init(&fake.loop, &fake.timer);
        if (method_table_add(fake.methods, methods, sizeof(methods) / sizeof(*methods)) < 0)
                abort();
        fake.state = str_has_prefix(fake.sandbox_id, "fake-fails") ? STATE(FAILED) : STATE(RUNNING);
        if (str_has_prefix(fake.sandbox_id, "fake-slow")) {
                fake.state = STATE(STARTING);
                (void) uv_timer_start(&fake.timer, on_built, 50, 0);
        }
        serve();
        return uv_run(&fake.loop, UV_RUN_DEFAULT);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw) {
        (void) status;
        (void) type;
        (void) ftw;
        return remove(path);
}

int fake_keeper_main(int argc, char *argv[]) {
        if (argc == 2 && str_equal(argv[1], "nest"))
                return 2; /* it keeps one sandbox only */
        if (argc == 3 && str_equal(argv[1], "remove"))
                return nftw(argv[2], remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : 1;

        return keep();
}
