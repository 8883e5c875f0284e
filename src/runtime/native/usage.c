/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: who waits for an answer about usage. What does not: measuring, which the keeper does. */

#include "runtime/native/usage.h"

#include <errno.h>

#include "base/memory.h"
#include "model/reason.h"
#include "runtime/native/keeper-messages.h"

/* A question for what the sandbox uses. */
struct NativeUsage {
        NativeSandbox *sandbox;
        NativeUsage *next;
        void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user);
        void *user;
        bool asked; /* the keeper was */
};

void usages_fail(NativeSandbox *sandbox, bool all) {
        NativeUsage *usages = TAKE_PTR(sandbox->usages);

        while (usages) {
                _cleanup_(error_clear) HutchError err = {};
                NativeUsage *usage = usages;

                usages = usage->next;
                if (sandbox->freed || (usage->asked && !all)) {
                        usage->next = sandbox->usages;
                        sandbox->usages = usage;
                        continue;
                }
                (void) reason_set(&err, -EPIPE, REASON_KEEPER_UNAVAILABLE, "the sandbox does not run");
                usage->callback(NULL, &err, usage->user);
                free(usage);
        }
}

void usages_free(NativeSandbox *sandbox) {
        for (NativeUsage *usage = sandbox->usages, *next; usage; usage = next) {
                next = usage->next;
                free(usage);
        }
}

static void on_usage(void *user, const ProtobufCMessage *reply, const HutchError *err) {
        const Hutch__Keeper__V1__GetUsageResponse *told = (const Hutch__Keeper__V1__GetUsageResponse *) reply;
        NativeUsage *usage = user;
        NativeUsage **link = &usage->sandbox->usages;
        RuntimeUsage used = {};

        while (*link != usage)
                link = &(*link)->next;
        *link = usage->next;
        if (told)
                used = (RuntimeUsage){
                        .memory_bytes = told->memory_bytes,
                        .memory_peak_bytes = told->memory_peak_bytes,
                        .cpu_time = keeper_duration(told->cpu_time),
                        .processes = told->processes,
                        .disk_bytes = told->disk_bytes,
                        .disk_inodes = told->disk_inodes,
                };
        usage->callback(told ? &used : NULL, err, usage->user);
        free(usage);
}

void usages_get(RuntimeSandbox *base, void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user),
                void *user) {
        const Hutch__Keeper__V1__GetUsageRequest request = HUTCH__KEEPER__V1__GET_USAGE_REQUEST__INIT;
        NativeSandbox *sandbox = (NativeSandbox *) base;
        NativeUsage *usage = new0(NativeUsage, 1);

        *usage = (NativeUsage){
                .sandbox = sandbox,
                .next = sandbox->usages,
                .callback = callback,
                .user = user,
                .asked = sandbox_is_connected(sandbox),
        };
        sandbox->usages = usage;
        if (usage->asked)
                keeper_client_call(sandbox->client, "GetUsage", &request.base,
                                   &hutch__keeper__v1__get_usage_response__descriptor, 0, on_usage, usage);
        else
                sandbox_wake(sandbox);
}
