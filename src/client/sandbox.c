/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: calls about sandboxes. What does not: waiting for a state (sandbox-wait.c), and what is watched
 * (watch.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/checks.h"
#include "client/outcall.h"
#include "client/pairs.h"
#include "client/views.h"
#include "contract/google/protobuf/field_mask.pb-c.h"
#include "contract/hutch/v1/state.pb-c.h"

#define PAGE_SIZE 1000
#define SPEC_MAX ((size_t) 64 << 20) /* bytes in memory that an encoded spec may unfold to */

/* A text as messages have them; they are only read. */
static char *text_or_empty(const char *text) {
        return (char *) (text ? text : protobuf_c_empty_string);
}

/* Tells what the answer to a call must have and has not. */
static int fail_incomplete(Failure *failure) {
        return error_set_code(&failure->error, STATUS_INTERNAL, -EBADMSG, "INTERNAL",
                              "the daemon's answer has not what it must have");
}

_Static_assert(offsetof(Hutch__V1__GetSandboxResponse, sandbox) ==
                               offsetof(Hutch__V1__CreateSandboxResponse, sandbox) &&
                       offsetof(Hutch__V1__GetSandboxResponse, sandbox) ==
                               offsetof(Hutch__V1__UpdateSandboxResponse, sandbox),
               "answers with a sandbox have one shape");

/* Makes a call whose answer has one field, a sandbox. */
static int call_for_sandbox(HutchClient *client, const char *method, const ProtobufCMessage *request,
                            HutchSandbox **ret_sandbox, Failure *failure) {
        HutchSandbox *sandbox = NULL;
        ProtobufCMessage *reply;
        int r = outcall_unary_message(client, method, request, 0, &reply, failure);

        if (r < 0)
                return r;

        r = sandbox_view_new(reply, ((const Hutch__V1__GetSandboxResponse *) reply)->sandbox, &sandbox);
        if (r < 0)
                return r == -EBADMSG ? fail_incomplete(failure) : r;

        if (ret_sandbox)
                *ret_sandbox = sandbox;
        else
                hutch_sandbox_free(sandbox);
        return 0;
}

/* The same, when @checks find nothing. */
static int call_checked(HutchClient *client, const char *method, const ProtobufCMessage *request, const Checks *checks,
                        HutchSandbox **ret_sandbox, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = checks_result(checks, &failure);

        if (r == 0)
                r = call_for_sandbox(client, method, request, ret_sandbox, &failure);
        return failure_tell(&failure, r, ret_error);
}

/* ---- Creating ---- */

/* A request with all that it points to. */
typedef struct CreateMessage {
        Hutch__V1__CreateSandboxRequest request;
        Hutch__V1__SandboxSpec spec;
        Hutch__V1__ResourceLimits limits;
        Google__Protobuf__Duration exec_timeout, idle_ttl, max_lifetime;
        Pair **env, **labels;
} CreateMessage;

static void create_message_clear(CreateMessage *message) {
        free(message->env);
        free(message->labels);
}

static void fill_limits(CreateMessage *message, const HutchSandboxSpec *spec) {
        Hutch__V1__ResourceLimits *limits = &message->limits;

        *limits = (Hutch__V1__ResourceLimits) HUTCH__V1__RESOURCE_LIMITS__INIT;
        message->spec.limits = limits;
        if (spec->memory_bytes > 0) {
                limits->opt_memory_bytes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_MEMORY_BYTES_MEMORY_BYTES;
                limits->memory_bytes = spec->memory_bytes;
        }
        if (spec->cpu_millis > 0) {
                limits->opt_cpu_millis_case = HUTCH__V1__RESOURCE_LIMITS__OPT_CPU_MILLIS_CPU_MILLIS;
                limits->cpu_millis = spec->cpu_millis;
        }
        if (spec->max_processes > 0) {
                limits->opt_max_processes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_MAX_PROCESSES_MAX_PROCESSES;
                limits->max_processes = spec->max_processes;
        }
        if (spec->disk_bytes > 0) {
                limits->opt_disk_bytes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_DISK_BYTES_DISK_BYTES;
                limits->disk_bytes = spec->disk_bytes;
        }
        if (spec->exec_timeout > 0)
                limits->exec_timeout = duration_from_ns(spec->exec_timeout, &message->exec_timeout);
}

/* A time to live as messages have it: unset is the daemon's default, and 0 is for ever. */
static Google__Protobuf__Duration *fill_ttl(uint64_t ttl, Google__Protobuf__Duration *message) {
        return ttl > 0 ? duration_from_ns(ttl == HUTCH_FOREVER ? 0 : ttl, message) : NULL;
}

static int fill_create(CreateMessage *message, const HutchSandboxSpec *spec) {
        int r;

        message->request = (Hutch__V1__CreateSandboxRequest) HUTCH__V1__CREATE_SANDBOX_REQUEST__INIT;
        message->request.sandbox_id = text_or_empty(spec->id);
        message->request.request_id = text_or_empty(spec->request_id);
        message->request.spec = &message->spec;

        message->spec = (Hutch__V1__SandboxSpec) HUTCH__V1__SANDBOX_SPEC__INIT;
        message->spec.image = text_or_empty(spec->image);
        message->spec.profile = text_or_empty(spec->profile);
        message->spec.runtime = text_or_empty(spec->runtime);
        message->spec.working_directory = text_or_empty(spec->working_directory);
        message->spec.user = text_or_empty(spec->user);
        message->spec.command = (char **) spec->command;
        message->spec.n_command = texts_count(spec->command);
        message->spec.idle_ttl = fill_ttl(spec->idle_ttl, &message->idle_ttl);
        message->spec.max_lifetime = fill_ttl(spec->max_lifetime, &message->max_lifetime);
        if (spec->delete_at_lifetime)
                message->spec.lifetime_action = HUTCH__V1__LIFETIME_ACTION__LIFETIME_ACTION_DELETE;
        if (spec->delete_when_idle)
                message->spec.idle_action = HUTCH__V1__IDLE_ACTION__IDLE_ACTION_DELETE;
        fill_limits(message, spec);

        r = pairs_from_texts(spec->env, &hutch__v1__sandbox_spec__env_entry__descriptor, &message->env,
                             &message->spec.n_env);
        if (r == 0)
                r = pairs_from_texts(spec->labels, &hutch__v1__sandbox_spec__labels_entry__descriptor, &message->labels,
                                     &message->spec.n_labels);
        message->spec.env = (Hutch__V1__SandboxSpec__EnvEntry **) message->env;
        message->spec.labels = (Hutch__V1__SandboxSpec__LabelsEntry **) message->labels;
        return r;
}

/* Durations that a time to live can have. */
static void check_ttl(Checks *checks, const char *field, uint64_t ttl) {
        if (ttl != HUTCH_FOREVER)
                checks_duration(checks, field, ttl);
}

int hutch_sandbox_create(HutchClient *client, const HutchSandboxSpec *spec, HutchSandbox **ret_sandbox,
                         HutchError **ret_error) {
        static const HutchSandboxSpec defaults;
        _cleanup_(create_message_clear) CreateMessage message = {};
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r;

        if (!spec)
                spec = &defaults;

        checks_new_id(&checks, "sandbox_id", spec->id);
        checks_request_id(&checks, spec->request_id);
        check_ttl(&checks, "spec.idle_ttl", spec->idle_ttl);
        check_ttl(&checks, "spec.max_lifetime", spec->max_lifetime);
        checks_duration(&checks, "spec.limits.exec_timeout", spec->exec_timeout);
        checks_pairs(&checks, "spec.env", "ENV_NAME_MALFORMED", spec->env);
        checks_pairs(&checks, "spec.labels", "LABEL_MALFORMED", spec->labels);
        r = checks_result(&checks, &failure);
        if (r == 0)
                r = fill_create(&message, spec);
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        checks_sandbox_spec(&checks, &message.spec);
        return call_checked(client, "AgentSandboxService/CreateSandbox", &message.request.base, &checks, ret_sandbox,
                            ret_error);
}

int hutch_sandbox_create_encoded(HutchClient *client, const char *id, const char *request_id, const void *spec,
                                 size_t spec_len, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__CreateSandboxRequest request = HUTCH__V1__CREATE_SANDBOX_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *decoded = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r = protobuf_unpack(&hutch__v1__sandbox_spec__descriptor, spec, spec_len, SPEC_MAX, &decoded);

        if (r < 0) {
                if (r != -ENOMEM)
                        (void) error_set(&failure.error, r = -EINVAL, "FIELD_INVALID",
                                         "spec: the bytes are no hutch.v1.SandboxSpec");
                return failure_tell(&failure, r, ret_error);
        }

        request.sandbox_id = text_or_empty(id);
        request.request_id = text_or_empty(request_id);
        request.spec = (Hutch__V1__SandboxSpec *) decoded; /* with the fields that are not known here */
        checks_new_id(&checks, "sandbox_id", id);
        checks_request_id(&checks, request_id);
        checks_sandbox_spec(&checks, request.spec);
        return call_checked(client, "AgentSandboxService/CreateSandbox", &request.base, &checks, ret_sandbox,
                            ret_error);
}

/* ---- One that is there ---- */

int hutch_sandbox_get(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__GetSandboxRequest request = HUTCH__V1__GET_SANDBOX_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        request.sandbox_id = text_or_empty(id);
        return call_checked(client, "AgentSandboxService/GetSandbox", &request.base, &checks, ret_sandbox, ret_error);
}

int hutch_sandbox_stop(HutchClient *client, const char *id, uint64_t grace, HutchSandbox **ret_sandbox,
                       HutchError **ret_error) {
        Hutch__V1__StopSandboxRequest request = HUTCH__V1__STOP_SANDBOX_REQUEST__INIT;
        Google__Protobuf__Duration duration;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        checks_duration(&checks, "grace", grace);
        request.sandbox_id = text_or_empty(id);
        request.grace = grace > 0 ? duration_from_ns(grace, &duration) : NULL;
        return call_checked(client, "AgentSandboxService/StopSandbox", &request.base, &checks, ret_sandbox, ret_error);
}

int hutch_sandbox_resume(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__ResumeSandboxRequest request = HUTCH__V1__RESUME_SANDBOX_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        request.sandbox_id = text_or_empty(id);
        return call_checked(client, "AgentSandboxService/ResumeSandbox", &request.base, &checks, ret_sandbox,
                            ret_error);
}

int hutch_sandbox_pause(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__PauseSandboxRequest request = HUTCH__V1__PAUSE_SANDBOX_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        request.sandbox_id = text_or_empty(id);
        return call_checked(client, "AgentSandboxService/PauseSandbox", &request.base, &checks, ret_sandbox, ret_error);
}

int hutch_sandbox_unpause(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__UnpauseSandboxRequest request = HUTCH__V1__UNPAUSE_SANDBOX_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        request.sandbox_id = text_or_empty(id);
        return call_checked(client, "AgentSandboxService/UnpauseSandbox", &request.base, &checks, ret_sandbox,
                            ret_error);
}

int hutch_sandbox_delete(HutchClient *client, const char *id, HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__DeleteSandboxRequest request = HUTCH__V1__DELETE_SANDBOX_REQUEST__INIT;
        _cleanup_(checks_clear) Checks checks = {};

        checks_id(&checks, "sandbox_id", id);
        request.sandbox_id = text_or_empty(id);
        return call_checked(client, "AgentSandboxService/DeleteSandbox", &request.base, &checks, ret_sandbox,
                            ret_error);
}

/* ---- Changing ---- */

/* Sets the field @field to what @spec has there, when @checks find nothing. */
static int update(HutchClient *client, const char *id, Hutch__V1__SandboxSpec *spec, const char *field, Checks *checks,
                  HutchSandbox **ret_sandbox, HutchError **ret_error) {
        Hutch__V1__UpdateSandboxRequest request = HUTCH__V1__UPDATE_SANDBOX_REQUEST__INIT;
        Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
        char *path = (char *) field;

        checks_id(checks, "sandbox_id", id);
        mask.n_paths = 1;
        mask.paths = &path;
        request.sandbox_id = text_or_empty(id);
        request.spec = spec;
        request.update_mask = &mask;
        return call_checked(client, "AgentSandboxService/UpdateSandbox", &request.base, checks, ret_sandbox, ret_error);
}

int hutch_sandbox_set_labels(HutchClient *client, const char *id, const char *const *labels, HutchSandbox **ret_sandbox,
                             HutchError **ret_error) {
        Hutch__V1__SandboxSpec spec = HUTCH__V1__SANDBOX_SPEC__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        _cleanup_free_ Pair **pairs = NULL;
        int r;

        checks_pairs(&checks, "spec.labels", "LABEL_MALFORMED", labels);
        r = checks_result(&checks, &failure);
        if (r == 0)
                r = pairs_from_texts(labels, &hutch__v1__sandbox_spec__labels_entry__descriptor, &pairs,
                                     &spec.n_labels);
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        spec.labels = (Hutch__V1__SandboxSpec__LabelsEntry **) pairs;
        checks_sandbox_spec(&checks, &spec);
        return update(client, id, &spec, "labels", &checks, ret_sandbox, ret_error);
}

int hutch_sandbox_set_idle_ttl(HutchClient *client, const char *id, uint64_t idle_ttl, HutchSandbox **ret_sandbox,
                               HutchError **ret_error) {
        Hutch__V1__SandboxSpec spec = HUTCH__V1__SANDBOX_SPEC__INIT;
        _cleanup_(checks_clear) Checks checks = {};
        Google__Protobuf__Duration duration;

        check_ttl(&checks, "spec.idle_ttl", idle_ttl);
        spec.idle_ttl = fill_ttl(idle_ttl, &duration);
        return update(client, id, &spec, "idle_ttl", &checks, ret_sandbox, ret_error);
}

/* ---- Many ---- */

int hutch_sandboxes_delete(HutchClient *client, const char *selector, size_t *ret_count, HutchError **ret_error) {
        Hutch__V1__DeleteSandboxesRequest request = HUTCH__V1__DELETE_SANDBOXES_REQUEST__INIT;
        _cleanup_(protobuf_freep) ProtobufCMessage *reply = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(checks_clear) Checks checks = {};
        int r;

        checks_selector(&checks, selector, false);
        r = checks_result(&checks, &failure);
        request.selector = text_or_empty(selector);
        if (r == 0)
                r = outcall_unary_message(client, "AgentSandboxService/DeleteSandboxes", &request.base, 0, &reply,
                                          &failure);
        if (r == 0 && ret_count)
                *ret_count = ((const Hutch__V1__DeleteSandboxesResponse *) reply)->n_sandbox_ids;
        return failure_tell(&failure, r, ret_error);
}

/* Hands out one page. */
static int hand_out(const Hutch__V1__ListSandboxesResponse *page,
                    int (*callback)(const HutchSandbox *sandbox, void *user), void *user, HutchError **ret_error) {
        int r = 0;

        for (size_t i = 0; i < page->n_sandboxes && r == 0; i++) {
                _cleanup_(sandbox_view_clear) SandboxView view = {};

                if (sandbox_view_fill(&view, page->sandboxes[i]) < 0)
                        return failure_tell(&(Failure){}, -ENOMEM, ret_error);
                r = callback(&view.view, user);
        }

        return r;
}

int hutch_sandbox_list(HutchClient *client, const char *selector, uint32_t states,
                       int (*callback)(const HutchSandbox *sandbox, void *user), void *user, HutchError **ret_error) {
        Hutch__V1__ListSandboxesRequest request = HUTCH__V1__LIST_SANDBOXES_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *page = NULL;
        _cleanup_(checks_clear) Checks checks = {};
        Hutch__V1__SandboxState wanted[32];
        int r;

        checks_selector(&checks, selector, true);
        r = checks_result(&checks, &failure);
        for (unsigned state = 1; state < 32; state++)
                if (states & UINT32_C(1) << state)
                        wanted[request.n_states++] = (Hutch__V1__SandboxState) state;
        request.selector = text_or_empty(selector);
        request.states = wanted;
        request.page_size = PAGE_SIZE;

        do {
                ProtobufCMessage *next = NULL;

                if (r == 0)
                        r = outcall_unary_message(client, "AgentSandboxService/ListSandboxes", &request.base, 0, &next,
                                                  &failure);
                if (r < 0)
                        return failure_tell(&failure, r, ret_error);

                (void) protobuf_free(page); /* whose token was sent */
                page = next;
                request.page_token = ((Hutch__V1__ListSandboxesResponse *) page)->next_page_token;
                r = hand_out((const Hutch__V1__ListSandboxesResponse *) page, callback, user, ret_error);
        } while (r == 0 && *request.page_token);

        return r;
}
