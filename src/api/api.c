/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the api as a whole: its limits and what it lends to control. What does not: any method (the
 * services), and who may call (callers.c). */

#include "api/api.h"

#include <assert.h>
#include <stdlib.h>

#include "api/convert.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/core/method-table.h"

#define MIB(n) (UINT64_C(1048576) * (n))
#define GIB(n) MIB(UINT64_C(1024) * (n))

const ApiLimits api_limits_default = {
        .max_request_bytes = MIB(4),
        .max_response_bytes = MIB(17),
        .run_output_bytes = MIB(16),
        .exec_output_bytes = MIB(64),
        .max_exec_output_bytes = GIB(16),
        .file_bytes = MIB(256),
        .max_file_bytes = GIB(64),
        .small_file_bytes = MIB(3),
        .listing_bytes = MIB(8),
        .max_image_bytes = GIB(64),
        .sandboxes_per_caller = 1000,
        .sandboxes = 10000,
        .execs_per_sandbox = 256,
        .streams_per_caller = 1000,
        .default_idle_ttl = 600 * NSEC_PER_SEC,
        .history_retention = UINT64_C(15) * 24 * 3600 * NSEC_PER_SEC,
};

static ExecSpec *make_main_spec(const SandboxSpec *sandbox) {
        return exec_spec_make_main(sandbox, api_limits_default.exec_output_bytes);
}

const ControlCodec api_codec = {
        .decode_sandbox_spec = sandbox_spec_decode,
        .decode_exec_spec = exec_spec_decode,
        .make_main_spec = make_main_spec,
        .encode_event = event_encode,
};

static void end_call(Call *call, StatusCode status, CallEnd how, void *context) {
        const Caller *caller = api_caller(call);

        (void) how;
        (void) context;
        if (log_default.level > LOG_LEVEL_DEBUG)
                return;

        log_debug("call ended", LOG_STR("method", call_path(call)), LOG_STR("status", status_code_name(status)),
                  LOG_STR("caller", caller->name));
}

SandboxRules api_sandbox_rules(const Api *api) {
        return (SandboxRules){
                .runtimes = control_runtimes(api->options.control),
                .caps = api->limits.caps,
                .allow_unenforced = api->limits.allow_unenforced,
                .allow_capabilities = api->limits.allow_capabilities,
                .default_idle_ttl = api->limits.default_idle_ttl,
                .max_lifetime = api->limits.max_lifetime,
                .sources = api->options.sources,
        };
}

ExecRules api_exec_rules(const Api *api) {
        return (ExecRules){
                .output = api->limits.exec_output_bytes,
                .max_output = api->limits.max_exec_output_bytes,
        };
}

/* A method, and whose it is. */
struct ServedMethod {
        Api *api;
        const ApiMethod *method;
};

static void handle(Call *call, const uint8_t *bytes, size_t len, void *context) {
        _cleanup_(request_clear) Request request = {};
        const ServedMethod *served = context;

        if (request_begin(&request, served->api, call, served->method->request, bytes, len))
                served->method->handle(&request);
}

static void add_method(Api *api, const ApiMethod *method) {
        ServedMethod *served = &api->served[api->n_methods];

        *served = (ServedMethod){ .api = api, .method = method };
        api->methods[api->n_methods++] = (Method){
                .path = method->path,
                .handle = method->handle ? handle : NULL,
                .start = method->start,
                .context = method->handle ? (void *) served : api,
        };
}

Api *api_new(const ApiOptions *options) {
        const MethodList lists[] = { sandbox_service_methods(), exec_service_methods(), sandbox_exec_service_methods(),
                                     file_service_methods(), system_service_methods() };
        Api *api = new0(Api, 1);
        size_t n = 0;

        api->options = *options;
        api->limits = options->limits;
        api->remote = options->remote;
        api->start_time = clock_realtime_ns();
        api->interceptor = (Interceptor){ .begin = api_admit, .end = end_call, .context = api };
        (void) uv_timer_init(options->loop, &api->timer);
        api->timer.data = api;

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                n += lists[i].n;
        api->methods = new0(Method, n);
        api->served = new0(ServedMethod, n);
        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                for (size_t j = 0; j < lists[i].n; j++)
                        add_method(api, &lists[i].methods[j]);
        return api;
}

static void timer_closed(uv_handle_t *handle) {
        Api *api = handle->data;

        free(api->methods);
        free(api->served);
        free(api);
}

void api_free(Api *api) {
        assert(!api->streams);
        uv_close((uv_handle_t *) &api->timer, timer_closed);
}

int api_add_methods(Api *api, MethodTable *table) {
        return method_table_add(table, api->methods, api->n_methods);
}

const Interceptor *api_interceptor(const Api *api) {
        return &api->interceptor;
}

void api_set_limits(Api *api, const ApiLimits *limits) {
        api->limits = *limits;
}

void api_set_remote(Api *api, const ApiRemote *remote) {
        api->remote = *remote;
}
