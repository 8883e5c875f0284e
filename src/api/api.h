/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "control/control.h"
#include "policy/profile.h"
#include "rpc/core/call.h"

/* The public contract, served: AgentSandboxService (all but snapshots), ExecService, FileService and
 * SystemService.
 *
 *         r = control_new(loop, &(ControlOptions){ .codec = &api_codec, … }, &control, &err);
 *         api = api_new(&(ApiOptions){ .loop = loop, .control = control, .uid = geteuid(), … });
 *         r = api_add_methods(api, methods);
 *         options.interceptors = api_interceptor(api);      who may call
 *         options.before_flush = …                          control_commit(control)
 *         options.before_send = …                           control_sync(control)
 *
 * A request is checked whole before anything happens, and every violation is told at once; then control decides. Every
 * answer waits for control_when_committed(). On the Unix socket the daemon's own user and root may call and are admins;
 * members of the group, if there is one, may call. Over TCP those may who have a token or certificate. Callers are
 * named "uid:1000", "token:ci", "cert:CN=alice,O=Example", and "anonymous" where nobody has to say who he is. */

typedef struct Api Api;
typedef struct MethodTable MethodTable;
typedef struct SourceRules SourceRules;
typedef struct Tokens Tokens;

/* What GetInfo reports and, where it is for the api to do so, what is enforced here. 0: no limit. */
typedef struct ApiLimits {
        uint64_t max_request_bytes;  /* by the server */
        uint64_t max_response_bytes; /* never less than a page and 1 MiB */
        uint64_t run_output_bytes;
        uint64_t exec_output_bytes;
        uint64_t max_exec_output_bytes;
        uint64_t file_bytes;
        uint64_t max_file_bytes;
        uint64_t small_file_bytes;
        uint64_t listing_bytes;
        uint64_t max_image_bytes;
        uint32_t sandboxes_per_caller; /* by control, as the next two */
        uint32_t sandboxes;
        uint32_t execs_per_sandbox;
        uint32_t streams_per_caller;
        LimitCaps caps;
        uint64_t default_idle_ttl;  /* nanoseconds, as the next two */
        uint64_t max_lifetime;      /* 0: for ever */
        uint64_t history_retention; /* by control */
        bool allow_unenforced;      /* limits that a runtime cannot enforce may be asked for, and are reported so */
        bool allow_capabilities;    /* of root inside, for sandboxes that ask */
} ApiLimits;

extern const ApiLimits api_limits_default;

/* Who may call over TCP, and who is an admin. What it points to outlives its use. */
typedef struct ApiRemote {
        Tokens *tokens; /* that are accepted; NULL: none are looked at. Stays the same */
        bool token_required;
        bool certificates; /* of clients are accepted */
        bool certificate_required;
        bool insecure;       /* connections need no TLS and, without tokens and certificates, callers no name */
        char *const *admins; /* as callers are named: "token:ci"; ends with NULL; NULL: none */
} ApiRemote;

typedef struct ApiOptions {
        uv_loop_t *loop;
        Control *control; /* outlives it */
        const char *version;
        uid_t uid; /* the daemon's */
        bool has_group;
        gid_t group;                /* whose members may call */
        const SourceRules *sources; /* as long as it; NULL: no files of the host are for sandboxes */
        ApiRemote remote;
        ApiLimits limits;
} ApiOptions;

/* What control needs of the contract. */
extern const ControlCodec api_codec;

Api *api_new(const ApiOptions *options) __attribute__((nonnull, returns_nonnull));

/* Frees @api while the loop runs on. No call of its methods is left. */
void api_free(Api *api) __attribute__((nonnull));

/* As method_table_add(); @api outlives the table. */
int api_add_methods(Api *api, MethodTable *table) __attribute__((nonnull));

/* Refuses callers who may not call (CALLER_NOT_ALLOWED) or do not say who they are (CREDENTIALS_…), and logs what was
 * called. As long as @api. */
const Interceptor *api_interceptor(const Api *api) __attribute__((nonnull, returns_nonnull));

/* For requests from now on. */
void api_set_limits(Api *api, const ApiLimits *limits) __attribute__((nonnull));
void api_set_remote(Api *api, const ApiRemote *remote) __attribute__((nonnull));

/* Ends every stream, and takes no new ones: DRAINING. What they were attached to goes on, also what RunCommand runs. */
void api_shut_down(Api *api) __attribute__((nonnull));
