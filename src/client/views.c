/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sandboxes, execs and files, from messages to what callers read. What does not: events (watch.c). */

#include "client/views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "client/pairs.h"
#include "contract/hutch/v1/state.pb-c.h"

const char *enum_name(const ProtobufCEnumDescriptor *type, int value, const char *prefix) {
        const ProtobufCEnumValue *found = value != 0 ? protobuf_c_enum_descriptor_get_value(type, value) : NULL;

        if (!found)
                return "";
        return str_has_prefix(found->name, prefix) ? found->name + strlen(prefix) : found->name;
}

const char *reason_text(Hutch__V1__Reason reason) {
        return enum_name(&hutch__v1__reason__descriptor, (int) reason, "REASON_");
}

const char *hutch_sandbox_state_name(HutchSandboxState state) {
        return enum_name(&hutch__v1__sandbox_state__descriptor, (int) state, "SANDBOX_STATE_");
}

const char *hutch_exec_state_name(HutchExecState state) {
        return enum_name(&hutch__v1__exec_state__descriptor, (int) state, "EXEC_STATE_");
}

const char *hutch_file_type_name(HutchFileType type) {
        return enum_name(&hutch__v1__file_type__descriptor, (int) type, "FILE_TYPE_");
}

const char *hutch_file_change_name(HutchFileChangeType type) {
        return enum_name(&hutch__v1__file_change_type__descriptor, (int) type, "FILE_CHANGE_TYPE_");
}

const char *hutch_image_change_name(HutchImageChangeType type) {
        return enum_name(&hutch__v1__image_change_type__descriptor, (int) type, "IMAGE_CHANGE_TYPE_");
}

uint64_t timestamp_to_ns(const Google__Protobuf__Timestamp *timestamp) {
        if (!timestamp || timestamp->seconds < 0)
                return 0;
        if ((uint64_t) timestamp->seconds >= UINT64_MAX / NSEC_PER_SEC)
                return UINT64_MAX; /* after the year 2554 */
        return (uint64_t) timestamp->seconds * NSEC_PER_SEC + (uint64_t) timestamp->nanos;
}

uint64_t duration_to_ns(const Google__Protobuf__Duration *duration) {
        if (!duration || duration->seconds < 0)
                return 0;
        return (uint64_t) duration->seconds * NSEC_PER_SEC + (uint64_t) duration->nanos;
}

Google__Protobuf__Duration *duration_from_ns(uint64_t ns, Google__Protobuf__Duration *message) {
        *message = (Google__Protobuf__Duration) GOOGLE__PROTOBUF__DURATION__INIT;
        message->seconds = (int64_t) (ns / NSEC_PER_SEC);
        message->nanos = (int32_t) (ns % NSEC_PER_SEC);
        return message;
}

int sandbox_view_fill(SandboxView *view, const Hutch__V1__Sandbox *message) {
        const Hutch__V1__SandboxSpec *spec = message->spec;
        size_t len;
        int r = protobuf_pack(&message->base, &view->encoded, &len);

        if (r < 0)
                return r;

        view->view = (HutchSandbox){
                .id = message->id,
                .state = (HutchSandboxState) message->state,
                .state_reason = reason_text(message->state_reason),
                .state_message = message->state_message,
                .image = spec ? spec->image : "",
                .owner = message->owner,
                .runtime = message->runtime,
                .profile = message->effective ? message->effective->profile : "",
                .create_time = timestamp_to_ns(message->create_time),
                .state_time = timestamp_to_ns(message->state_time),
                .sequence = message->sequence,
                .active_execs = message->active_execs,
                .encoded = view->encoded,
                .encoded_len = len,
        };
        return pairs_to_texts(spec ? (const Pair *const *) spec->labels : NULL, spec ? spec->n_labels : 0,
                              &view->view.labels);
}

void sandbox_view_clear(SandboxView *view) {
        free((void *) view->view.labels);
        free(view->encoded);
        (void) protobuf_free(view->message);
        *view = (SandboxView){};
}

int exec_view_fill(ExecView *view, const Hutch__V1__Exec *message) {
        static const Hutch__V1__ExecResult no_result = HUTCH__V1__EXEC_RESULT__INIT;
        const Hutch__V1__ExecResult *result = message->result ? message->result : &no_result;
        size_t len;
        int r = protobuf_pack(&message->base, &view->encoded, &len);

        if (r < 0)
                return r;

        view->view = (HutchExec){
                .id = message->id,
                .sandbox_id = message->sandbox_id,
                .state = (HutchExecState) message->state,
                .has_exit_code = result->opt_exit_code_case == HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE,
                .signal = (int) result->signal,
                .end_reason = enum_name(&hutch__v1__exec_end_reason__descriptor, (int) result->end_reason,
                                        "EXEC_END_REASON_"),
                .failure = reason_text(result->failure),
                .message = result->message,
                .stdout_bytes = message->stdout_bytes,
                .stderr_bytes = message->stderr_bytes,
                .stdout_dropped = result->stdout ? result->stdout->dropped_bytes : 0,
                .stderr_dropped = result->stderr ? result->stderr->dropped_bytes : 0,
                .create_time = timestamp_to_ns(message->create_time),
                .start_time = timestamp_to_ns(message->start_time),
                .end_time = timestamp_to_ns(message->end_time),
                .cpu_time = duration_to_ns(result->cpu_time),
                .peak_memory = result->peak_memory_bytes,
                .encoded = view->encoded,
                .encoded_len = len,
        };
        if (view->view.has_exit_code)
                view->view.exit_code = result->exit_code;
        return 0;
}

void exec_view_clear(ExecView *view) {
        free(view->encoded);
        (void) protobuf_free(view->message);
        *view = (ExecView){};
}

int file_view_fill(FileView *view, const Hutch__V1__FileInfo *message) {
        size_t len;
        int r = protobuf_pack(&message->base, &view->encoded, &len);

        if (r < 0)
                return r;

        view->view = (HutchFile){
                .path = message->path,
                .name = message->name,
                .type = (HutchFileType) message->type,
                .size = message->size_bytes,
                .mode = message->mode,
                .uid = message->uid,
                .gid = message->gid,
                .modify_time = timestamp_to_ns(message->modify_time),
                .symlink_target = message->symlink_target,
                .version = message->version,
                .links = message->links,
                .disk_bytes = message->disk_bytes,
                .encoded = view->encoded,
                .encoded_len = len,
        };
        return 0;
}

void file_view_clear(FileView *view) {
        free(view->encoded);
        (void) protobuf_free(view->message);
        *view = (FileView){};
}

int sandbox_view_new(ProtobufCMessage *whole, const Hutch__V1__Sandbox *part, HutchSandbox **ret_sandbox) {
        SandboxView *view = part ? try_new0(SandboxView, 1) : NULL;
        int r;

        if (!view) {
                (void) protobuf_free(whole);
                return part ? -ENOMEM : -EBADMSG;
        }

        view->message = whole;
        r = sandbox_view_fill(view, part);
        if (r < 0) {
                hutch_sandbox_free(&view->view);
                return r;
        }

        *ret_sandbox = &view->view;
        return 0;
}

int exec_view_new(ProtobufCMessage *whole, const Hutch__V1__Exec *part, HutchExec **ret_exec) {
        ExecView *view = part ? try_new0(ExecView, 1) : NULL;
        int r;

        if (!view) {
                (void) protobuf_free(whole);
                return part ? -ENOMEM : -EBADMSG;
        }

        view->message = whole;
        r = exec_view_fill(view, part);
        if (r < 0) {
                hutch_exec_free(&view->view);
                return r;
        }

        *ret_exec = &view->view;
        return 0;
}

int file_view_new(ProtobufCMessage *whole, const Hutch__V1__FileInfo *part, HutchFile **ret_file) {
        FileView *view = part ? try_new0(FileView, 1) : NULL;
        int r;

        if (!view) {
                (void) protobuf_free(whole);
                return part ? -ENOMEM : -EBADMSG;
        }

        view->message = whole;
        r = file_view_fill(view, part);
        if (r < 0) {
                hutch_file_free(&view->view);
                return r;
        }

        *ret_file = &view->view;
        return 0;
}

void hutch_sandbox_free(HutchSandbox *sandbox) {
        if (!sandbox)
                return;

        sandbox_view_clear((SandboxView *) sandbox);
        free(sandbox);
}

void hutch_exec_free(HutchExec *exec) {
        if (!exec)
                return;

        exec_view_clear((ExecView *) exec);
        free(exec);
}

void hutch_file_free(HutchFile *file) {
        if (!file)
                return;

        file_view_clear((FileView *) file);
        free(file);
}
