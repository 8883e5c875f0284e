/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the api as a whole: its limits, who may call, and what it lends to control. What does not: any
 * method (the services). */

#include "api/api.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "rpc/metadata.h"
#include "rpc/method-table.h"
#include "rpc/peer.h"

#define MIB(n) (UINT64_C(1048576) * (n))
#define GIB(n) MIB(UINT64_C(1024) * (n))
#define TRACEPARENT_LEN 55
#define TRACESTATE_MAX 512
#define GROUPS_MAX 1024
#define MEMBER_FOR (10 * NSEC_PER_SEC) /* how long the answer of the system's user database is used */

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

/* Asks the system's user database, which knows more groups than the socket tells. */
static bool is_member(uid_t uid, gid_t group) {
        _cleanup_free_ gid_t *groups = NULL;
        struct passwd entry, *found = NULL;
        int n = GROUPS_MAX;
        char buffer[4096];

        if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
                return false;

        groups = new0(gid_t, GROUPS_MAX);
        if (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) < 0)
                n = GROUPS_MAX;
        for (int i = 0; i < n; i++)
                if (groups[i] == group)
                        return true;

        return false;
}

static bool may_call(Api *api, const Peer *peer) {
        uint64_t now;

        if (peer->uid == 0 || peer->uid == api->options.uid)
                return true;
        if (!api->options.has_group)
                return false;
        if (peer->gid == api->options.group)
                return true;

        now = clock_monotonic_ns();
        if (now >= api->member_until || peer->uid != api->member_uid) {
                api->member_uid = peer->uid;
                api->member_allowed = is_member(peer->uid, api->options.group);
                api->member_until = now + MEMBER_FOR;
        }
        return api->member_allowed;
}

static int begin_call(Call *call, void *context, HutchError *err) {
        const Peer *peer = call_peer(call);

        if (!peer->has_credentials)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_MISSING,
                                  "callers are known by their user on the daemon's Unix socket");
        if (!may_call(context, peer))
                return reason_set(err, -EACCES, REASON_CALLER_NOT_ALLOWED,
                                  "uid %u may not call this daemon: ask its operator for membership in its group",
                                  peer->uid);
        return 0;
}

static void end_call(Call *call, StatusCode status, CallEnd how, void *context) {
        (void) how;
        (void) context;
        log_debug("call ended", LOG_STR("method", call_path(call)), LOG_STR("status", status_code_name(status)),
                  LOG_UINT("uid", call_peer(call)->uid));
}

static bool is_hex(const char *text, size_t len) {
        bool zero = true;

        for (size_t i = 0; i < len; i++) {
                if (!ascii_is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
                        return false;
                zero &= text[i] == '0';
        }

        return !zero || len == 2;
}

/* W3C Trace Context, version 00: "00-<trace>-<parent>-<flags>". */
static bool is_traceparent(const MetadataEntry *entry) {
        const char *text = entry->value;

        return entry->value_len == TRACEPARENT_LEN && memcmp(text, "00-", 3) == 0 && is_hex(text + 3, 32) &&
               text[35] == '-' && is_hex(text + 36, 16) && text[52] == '-' && is_hex(text + 53, 2);
}

void api_caller(const Api *api, Call *call, ApiCaller *ret_caller) {
        const MetadataEntry *parent = metadata_find(call_metadata(call), "traceparent");
        const MetadataEntry *state = metadata_find(call_metadata(call), "tracestate");
        uid_t uid = call_peer(call)->uid;

        (void) snprintf(ret_caller->name, sizeof(ret_caller->name), "uid:%u", uid);
        ret_caller->caller = (Caller){
                .name = ret_caller->name,
                .admin = uid == 0 || uid == api->options.uid,
        };
        if (!parent || !is_traceparent(parent))
                return;

        ret_caller->caller.traceparent = parent->value;
        if (state && state->value_len <= TRACESTATE_MAX)
                ret_caller->caller.tracestate = state->value;
}

SandboxRules api_sandbox_rules(const Api *api) {
        return (SandboxRules){
                .runtimes = control_runtimes(api->options.control),
                .caps = api->limits.caps,
                .allow_unenforced = api->limits.allow_unenforced,
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

Api *api_new(const ApiOptions *options) {
        const MethodList lists[] = { sandbox_service_methods(), exec_service_methods(), file_service_methods(),
                                     system_service_methods() };
        Api *api = new0(Api, 1);
        size_t n = 0;

        api->options = *options;
        api->limits = options->limits;
        api->start_time = clock_realtime_ns();
        api->interceptor = (Interceptor){ .begin = begin_call, .end = end_call, .context = api };
        (void) uv_timer_init(options->loop, &api->timer);
        api->timer.data = api;

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                n += lists[i].n;
        api->methods = new0(Method, n);
        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                for (size_t j = 0; j < lists[i].n; j++) {
                        Method *method = &api->methods[api->n_methods++];

                        *method = lists[i].methods[j];
                        method->context = api;
                }
        return api;
}

static void timer_closed(uv_handle_t *handle) {
        Api *api = handle->data;

        free(api->methods);
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
