/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which services are being served, and the calls that watch that. What does not: who decides it. */

#include "rpc/health.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "contract/grpc/health/v1/health.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"

#define REQUEST_MAX 4096 /* bytes in memory, most of them the name of a service */

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus ServingStatus;
typedef Grpc__Health__V1__HealthListResponse ListResponse;
typedef Grpc__Health__V1__HealthListResponse__StatusesEntry ListEntry;

#define SERVING_STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

typedef struct Service Service;
typedef struct Watcher Watcher;

struct Service {
        Service *next;
        Response status;
        ListEntry entry; /* its name and @status, for List */
        char name[];
};

/* A call of Watch. */
struct Watcher {
        Watcher *next, **at; /* in the list, and what points to it there */
        const Health *health;
        Call *call;
        ServingStatus told; /* UNKNOWN: nothing was */
        char service[];
};

struct Health {
        Service *services;
        size_t n_services;
        Watcher *watchers;
        Method methods[3];
};

static Service *find_service(const Health *health, const char *name) {
        for (Service *service = health->services; service; service = service->next)
                if (strcmp(service->name, name) == 0)
                        return service;

        return NULL;
}

static void service_set(Service *service, bool serving) {
        service->status.status = serving ? SERVING_STATUS(SERVING) : SERVING_STATUS(NOT_SERVING);
}

/* Tells the latest status, unless that was told. While the peer does not keep up, those in between are skipped. */
static void watcher_tell(Watcher *watcher) {
        const Service *service = find_service(watcher->health, watcher->service);
        Response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

        response.status = service ? service->status.status : SERVING_STATUS(SERVICE_UNKNOWN);
        if (response.status == watcher->told || !call_is_writable(watcher->call))
                return;

        watcher->told = response.status;
        if (call_send_protobuf(watcher->call, &response.base) == -ENOMEM)
                call_fail_with(watcher->call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for the answer");
}

static void watcher_writable(Call *call) {
        watcher_tell(call_user(call));
}

static void watcher_ended(Call *call, CallEnd how) {
        Watcher *watcher = call_user(call);

        (void) how;
        *watcher->at = watcher->next;
        if (watcher->next)
                watcher->next->at = watcher->at;
        free(watcher);
}

static const CallEvents watcher_events = { .writable = watcher_writable, .ended = watcher_ended };

static void watch(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        Health *health = context;
        Watcher *watcher;
        const char *name;
        size_t size;

        unpacked = call_unpack(call, &grpc__health__v1__health_check_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        name = ((const Request *) unpacked)->service;
        size = strlen(name) + 1;
        watcher = calloc(1, sizeof(*watcher) + size);
        if (!watcher) {
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory");
                return;
        }

        watcher->health = health;
        watcher->call = call;
        memcpy(watcher->service, name, size);
        watcher->at = &health->watchers;
        watcher->next = health->watchers;
        if (watcher->next)
                watcher->next->at = &watcher->next;
        health->watchers = watcher;

        call_set_events(call, &watcher_events, watcher);
        watcher_tell(watcher);
}

static void check(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const Service *service;

        unpacked = call_unpack(call, &grpc__health__v1__health_check_request__descriptor, message, len, REQUEST_MAX);
        if (!unpacked)
                return;

        service = find_service(context, ((const Request *) unpacked)->service);
        if (service)
                call_reply_protobuf(call, &service->status.base);
        else
                call_fail_with(call, STATUS_NOT_FOUND, "SERVICE_NOT_FOUND", "nothing is known of that service");
}

static void list(Call *call, const uint8_t *message, size_t len, void *context) {
        const Health *health = context;
        ListEntry **entries = try_new0(ListEntry *, health->n_services + 1);
        ListResponse response = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;

        (void) message, (void) len; /* it has no fields */
        if (!entries) {
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for the answer");
                return;
        }

        response.statuses = entries;
        for (Service *service = health->services; service; service = service->next)
                entries[response.n_statuses++] = &service->entry;
        call_reply_protobuf(call, &response.base);
        free(entries);
}

Health *health_new(void) {
        Health *health = try_new0(Health, 1);

        if (!health)
                return NULL;

        health->methods[0] = (Method){ .path = "/grpc.health.v1.Health/Check", .handle = check, .context = health };
        health->methods[1] = (Method){ .path = "/grpc.health.v1.Health/Watch", .handle = watch, .context = health };
        health->methods[2] = (Method){ .path = "/grpc.health.v1.Health/List", .handle = list, .context = health };
        return health;
}

Health *health_free(Health *health) {
        if (!health)
                return NULL;

        for (Watcher *watcher = health->watchers, *next; watcher; watcher = next) {
                next = watcher->next;
                call_set_events(watcher->call, NULL, NULL);
                call_fail_with(watcher->call, STATUS_UNAVAILABLE, "DRAINING", "the server shuts down");
                free(watcher);
        }
        for (Service *service = health->services, *next; service; service = next) {
                next = service->next;
                free(service);
        }
        free(health);
        return NULL;
}

/* A service of which nothing was said before. NULL when memory is out. */
static Service *add_service(Health *health, const char *name) {
        size_t size = strlen(name) + 1;
        Service *service = calloc(1, sizeof(*service) + size);

        if (!service)
                return NULL;

        memcpy(service->name, name, size);
        service->status = (Response) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
        service->entry = (ListEntry) GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__STATUSES_ENTRY__INIT;
        service->entry.key = service->name;
        service->entry.value = &service->status;
        service->next = health->services;
        health->services = service;
        health->n_services++;
        return service;
}

int health_set(Health *health, const char *service, bool serving) {
        Service *found = find_service(health, service);

        if (!found)
                found = add_service(health, service);
        if (!found)
                return -ENOMEM;

        service_set(found, serving);
        for (Watcher *watcher = health->watchers; watcher; watcher = watcher->next)
                watcher_tell(watcher);
        return 0;
}

void health_shut_down(Health *health) {
        for (Service *service = health->services; service; service = service->next)
                service_set(service, false);
        for (Watcher *watcher = health->watchers; watcher; watcher = watcher->next) {
                watcher_tell(watcher);
                call_fail_with(watcher->call, STATUS_UNAVAILABLE, "DRAINING", "the server shuts down");
        }
}

int health_add_methods(Health *health, MethodTable *table) {
        return method_table_add(table, health->methods, sizeof(health->methods) / sizeof(*health->methods));
}
