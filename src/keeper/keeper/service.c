/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the handlers, the calls that wait, and the watchers. What does not: what is done for them
 * (keeper.c), and input, whose calls have a life of their own (service-input.c). */

#include "keeper/keeper/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "keeper/files/file-service.h"
#include "keeper/keeper/keeper.h"
#include "keeper/keeper/messages.h"
#include "keeper/keeper/service-input.h"
#include "rpc/core/call.h"
#include "rpc/core/protobuf.h"

#define PROTOCOL_VERSION 1
#define REQUEST_MAX 4096             /* bytes in memory of a request with an id and a few numbers */
#define START_REQUEST_MAX (64 << 20) /* of one with as many arguments and variables as the daemon takes */

typedef struct Waiter Waiter;

/* A call that is answered later, or a watcher. */
struct Waiter {
        Waiter *next, **at;
        Call *call;
        KeptExec *exec; /* of StartExec */
        Service *service;
        uint64_t told; /* of a watcher: the number of the latest change that it knows */
};

struct Service {
        Keeper *keeper;
        Waiter *starts, *shutdowns, *watchers;
        Method methods[10];
        FileService *files;
};

/* ---- Calls that wait ---- */

static void waiter_free(Waiter *waiter) {
        *waiter->at = waiter->next;
        if (waiter->next)
                waiter->next->at = waiter->at;
        free(waiter);
}

static void waiter_ended(Call *call, CallEnd how) {
        (void) how;
        waiter_free(call_user(call));
}

static const CallEvents waiter_events = { .ended = waiter_ended };

static Waiter *waiter_new(Service *service, Waiter **list, Call *call, const CallEvents *events) {
        Waiter *waiter = new0(Waiter, 1);

        *waiter = (Waiter){ .next = *list, .at = list, .call = call, .service = service };
        if (waiter->next)
                waiter->next->at = &waiter->next;
        *list = waiter;
        call_set_events(call, events, waiter);
        return waiter;
}

static void reply_with_exec(Call *call, const KeptExec *exec) {
        Hutch__Keeper__V1__StartExecResponse response = HUTCH__KEEPER__V1__START_EXEC_RESPONSE__INIT;
        ExecMessage message;

        exec_message_init(&message, exec);
        response.exec = &message.exec;
        call_reply_protobuf(call, &response.base);
}

/* ---- Watchers ---- */

static int send_state(Call *call, const Keeper *keeper) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperStateChange state = HUTCH__KEEPER__V1__KEEPER_STATE_CHANGE__INIT;
        Hutch__Keeper__V1__KeeperFailure failure;

        state.state = (Hutch__Keeper__V1__KeeperState) keeper->state;
        if (keeper->state == KEEPER_FAILED) {
                failure = failure_message(&keeper->failure);
                state.failure = &failure;
        }
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_STATE;
        response.state = &state;
        return call_send_protobuf(call, &response.base);
}

static int send_exec(Call *call, const KeptExec *exec) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        ExecMessage message;

        exec_message_init(&message, exec);
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_EXEC;
        response.exec = &message.exec;
        return call_send_protobuf(call, &response.base);
}

/* Tells what is new, in order, as far as the peer keeps up: what changes twice meanwhile is told once, as it is. */
static void watcher_tell(Waiter *watcher) {
        const Keeper *keeper = watcher->service->keeper;
        KeptExec *next = NULL;
        int r = 0;

        for (KeptExec *exec = keeper->last; exec && kept_exec_link(exec)->change > watcher->told;
             exec = kept_exec_link(exec)->prev)
                next = exec;

        while (r >= 0 && watcher->told < keeper->n_changes && call_is_writable(watcher->call)) {
                uint64_t change = next ? kept_exec_link(next)->change : keeper->n_changes;

                if (keeper->state_change > watcher->told && keeper->state_change <= change) {
                        r = send_state(watcher->call, keeper);
                        watcher->told = keeper->state_change;
                } else if (next) {
                        /* One that starts is no news. */
                        r = kept_exec_is_starting(next) ? 0 : send_exec(watcher->call, next);
                        watcher->told = change;
                        next = kept_exec_link(next)->next;
                } else {
                        watcher->told = keeper->n_changes;
                }
        }
        if (r == -ENOMEM)
                call_finish(watcher->call, STATUS_RESOURCE_EXHAUSTED, "no memory");
}

static void watcher_writable(Call *call) {
        watcher_tell(call_user(call));
}

static const CallEvents watcher_events = { .writable = watcher_writable, .ended = waiter_ended };

static void watch_keeper(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__WatchSynced synced = HUTCH__KEEPER__V1__WATCH_SYNCED__INIT;
        Service *service = context;
        Waiter *watcher;

        (void) message, (void) len; /* it has no fields */
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_SYNCED;
        response.synced = &synced;
        if (call_send_protobuf(call, &response.base) < 0) {
                call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no memory");
                return;
        }

        watcher = waiter_new(service, &service->watchers, call, &watcher_events);
        watcher->told = service->keeper->n_changes;
}

void service_keeper_changed(Service *service) {
        file_service_keeper_changed(service->files);
        for (Waiter *watcher = service->watchers; watcher; watcher = watcher->next)
                watcher_tell(watcher);
        /* An answered call is over before long, and answering it again has no effect. */
        for (Waiter *start = service->starts; start; start = start->next)
                if (start->exec && !kept_exec_is_starting(start->exec)) {
                        reply_with_exec(start->call, start->exec);
                        start->exec = NULL;
                }
}

void service_disk_full(Service *service, const char *limit) {
        file_service_disk_full(service->files, limit);
}

void service_limit_hit(Service *service, const char *limit, uint64_t count, const char *exec_id) {
        Hutch__Keeper__V1__WatchKeeperResponse response = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperLimitHit hit = HUTCH__KEEPER__V1__KEEPER_LIMIT_HIT__INIT;

        hit.limit = (char *) limit;
        hit.count = count;
        hit.exec_id = (char *) exec_id;
        response.item_case = HUTCH__KEEPER__V1__WATCH_KEEPER_RESPONSE__ITEM_LIMIT_HIT;
        response.limit_hit = &hit;
        for (Waiter *watcher = service->watchers; watcher; watcher = watcher->next)
                if (call_is_writable(watcher->call) && call_send_protobuf(watcher->call, &response.base) == -ENOMEM)
                        call_finish(watcher->call, STATUS_RESOURCE_EXHAUSTED, "no memory");
}

void service_keeper_gone(Service *service) {
        Hutch__Keeper__V1__ShutdownResponse response = HUTCH__KEEPER__V1__SHUTDOWN_RESPONSE__INIT;

        for (Waiter *watcher = service->watchers; watcher; watcher = watcher->next)
                call_finish(watcher->call, STATUS_OK, NULL);
        for (Waiter *shutdown = service->shutdowns; shutdown; shutdown = shutdown->next)
                call_reply_protobuf(shutdown->call, &response.base);
}

/* ---- Handlers ---- */

static void reply_described(Call *call, const Keeper *keeper, ExecMessage *messages,
                            Hutch__Keeper__V1__KeeperExec **execs) {
        Hutch__Keeper__V1__DescribeResponse response = HUTCH__KEEPER__V1__DESCRIBE_RESPONSE__INIT;
        Hutch__Keeper__V1__KeeperFailure failure;

        response.protocol_version = PROTOCOL_VERSION;
        response.version = (char *) HUTCH_VERSION;
        response.sandbox_id = keeper->config->sandbox_id;
        response.state = (Hutch__Keeper__V1__KeeperState) keeper->state;
        response.incarnation = (char *) keeper->incarnation;
        if (keeper->state == KEEPER_FAILED) {
                failure = failure_message(&keeper->failure);
                response.failure = &failure;
        }
        response.execs = execs;
        for (KeptExec *exec = keeper->first; exec; exec = kept_exec_link(exec)->next) {
                exec_message_init(&messages[response.n_execs], exec);
                execs[response.n_execs] = &messages[response.n_execs].exec;
                response.n_execs++;
        }
        call_reply_protobuf(call, &response.base);
}

static void describe(Call *call, const uint8_t *message, size_t len, void *context) {
        const Keeper *keeper = ((Service *) context)->keeper;
        ExecMessage *messages = try_new0(ExecMessage, keeper->n_execs + 1);
        Hutch__Keeper__V1__KeeperExec **execs = try_new0(Hutch__Keeper__V1__KeeperExec *, keeper->n_execs + 1);

        (void) message, (void) len; /* it has no fields */
        if (messages && execs)
                reply_described(call, keeper, messages, execs);
        else
                call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
        free(messages);
        free(execs);
}

static void expect_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__ExpectExecResponse response = HUTCH__KEEPER__V1__EXPECT_EXEC_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const Hutch__Keeper__V1__ExpectExecRequest *request;

        unpacked = call_unpack(call, &hutch__keeper__v1__expect_exec_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        request = (const Hutch__Keeper__V1__ExpectExecRequest *) unpacked;
        keeper_expect_exec(((Service *) context)->keeper, request->user, request->patiently);
        call_reply_protobuf(call, &response.base);
}

static void start_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        _cleanup_(exec_order_clear) ExecOrder order = {};
        _cleanup_(error_clear) HutchError err = {};
        Service *service = context;
        KeptExec *exec;

        unpacked =
                call_unpack(call, &hutch__keeper__v1__start_exec_request__descriptor, message, len, START_REQUEST_MAX);
        if (!unpacked)
                return;

        if (exec_order_init(&order, (const Hutch__Keeper__V1__StartExecRequest *) unpacked, &err) < 0 ||
            keeper_start_exec(service->keeper, &order.plan, &exec, &err) < 0)
                call_fail(call, &err);
        else if (kept_exec_is_starting(exec))
                waiter_new(service, &service->starts, call, &waiter_events)->exec = exec;
        else
                reply_with_exec(call, exec);
}

static void cancel_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__CancelExecResponse response = HUTCH__KEEPER__V1__CANCEL_EXEC_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const Hutch__Keeper__V1__CancelExecRequest *request;
        KeptExec *exec;

        unpacked = call_unpack(call, &hutch__keeper__v1__cancel_exec_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        request = (const Hutch__Keeper__V1__CancelExecRequest *) unpacked;
        exec = keeper_find_exec(((Service *) context)->keeper, request->exec_id);
        if (!exec) {
                call_fail_unknown_exec(call, request->exec_id);
                return;
        }

        kept_exec_kill(exec, EXEC_END_CAUSE_CANCELLED, duration_to_ns(request->grace, UINT64_MAX));
        call_reply_protobuf(call, &response.base);
}

static void forget_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__ForgetExecResponse response = HUTCH__KEEPER__V1__FORGET_EXEC_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        _cleanup_(error_clear) HutchError err = {};
        Service *service = context;

        unpacked = call_unpack(call, &hutch__keeper__v1__forget_exec_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        if (keeper_forget_exec(service->keeper, ((const Hutch__Keeper__V1__ForgetExecRequest *) unpacked)->exec_id,
                               &err) < 0)
                call_fail(call, &err);
        else
                call_reply_protobuf(call, &response.base);
}

static void set_paused(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__SetPausedResponse response = HUTCH__KEEPER__V1__SET_PAUSED_RESPONSE__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        _cleanup_(error_clear) HutchError err = {};
        Service *service = context;

        unpacked = call_unpack(call, &hutch__keeper__v1__set_paused_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        if (keeper_set_paused(service->keeper, ((const Hutch__Keeper__V1__SetPausedRequest *) unpacked)->paused, &err) <
            0)
                call_fail(call, &err);
        else
                call_reply_protobuf(call, &response.base);
}

static void get_usage(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__Keeper__V1__GetUsageResponse response = HUTCH__KEEPER__V1__GET_USAGE_RESPONSE__INIT;
        Keeper *keeper = ((Service *) context)->keeper;
        Google__Protobuf__Duration cpu_time;
        SandboxUsage usage;

        (void) message, (void) len; /* it has no fields */
        if (!keeper->sandbox) {
                call_finish(call, STATUS_FAILED_PRECONDITION, "the sandbox does not run");
                return;
        }

        keeper_get_usage(keeper, &usage);
        cpu_time = duration_from_ns(usage.cpu_time);
        response.cpu_time = &cpu_time;
        response.memory_bytes = usage.memory_bytes;
        response.memory_peak_bytes = usage.memory_peak_bytes;
        response.processes = usage.processes;
        response.disk_bytes = usage.disk_bytes;
        response.disk_inodes = usage.disk_inodes;
        call_reply_protobuf(call, &response.base);
}

static void shut_down(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const Hutch__Keeper__V1__ShutdownRequest *request;
        Service *service = context;

        unpacked = call_unpack(call, &hutch__keeper__v1__shutdown_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        request = (const Hutch__Keeper__V1__ShutdownRequest *) unpacked;
        waiter_new(service, &service->shutdowns, call, &waiter_events);
        keeper_stop(service->keeper, duration_to_ns(request->grace, EXEC_DEFAULT_GRACE));
}

#define PATH(method) "/hutch.keeper.v1.KeeperService/" method

Service *service_new(Keeper *keeper) {
        Service *service = new0(Service, 1);
        const Method methods[] = {
                { .path = PATH("Describe"), .handle = describe, .context = service },
                { .path = PATH("WatchKeeper"), .handle = watch_keeper, .context = service },
                { .path = PATH("ExpectExec"), .handle = expect_exec, .context = service },
                { .path = PATH("StartExec"), .handle = start_exec, .context = service },
                { .path = PATH("CancelExec"), .handle = cancel_exec, .context = service },
                { .path = PATH("SendInput"), .start = service_send_input, .context = keeper },
                { .path = PATH("ForgetExec"), .handle = forget_exec, .context = service },
                { .path = PATH("SetPaused"), .handle = set_paused, .context = service },
                { .path = PATH("GetUsage"), .handle = get_usage, .context = service },
                { .path = PATH("Shutdown"), .handle = shut_down, .context = service },
        };

        _Static_assert(sizeof(methods) == sizeof(service->methods), "all methods are there");
        service->keeper = keeper;
        service->files = file_service_new(keeper);
        memcpy(service->methods, methods, sizeof(methods));
        return service;
}

int service_add_methods(Service *service, MethodTable *table) {
        int r = method_table_add(table, service->methods, sizeof(service->methods) / sizeof(*service->methods));

        return r < 0 ? r : file_service_add_methods(service->files, table);
}
