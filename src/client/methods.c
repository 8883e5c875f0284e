/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the contract's methods and messages by their names. What does not: calling them (outcall.c). */

#include "client/methods.h"

#include <hutch/hutch.h>
#include <string.h>

#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "contract/hutch/v1/image.pb-c.h"
#include "contract/hutch/v1/policy.pb-c.h"
#include "contract/hutch/v1/port.pb-c.h"
#include "contract/hutch/v1/provider.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"
#include "contract/hutch/v1/system.pb-c.h"

static const ProtobufCServiceDescriptor *const services[] = {
        &hutch__v1__agent_sandbox_service__descriptor, &hutch__v1__exec_service__descriptor,
        &hutch__v1__sandbox_exec_service__descriptor,  &hutch__v1__file_service__descriptor,
        &hutch__v1__policy_service__descriptor,        &hutch__v1__provider_service__descriptor,
        &hutch__v1__port_service__descriptor,          &hutch__v1__image_service__descriptor,
        &hutch__v1__system_service__descriptor,
};

/* protobuf-c's descriptors do not tell these. */
static const char *const streaming[] = {
        "WatchEvents",   "AttachExec",      "ReadExecOutput", "Exec",       "UploadFile",  "DownloadFile",
        "UploadArchive", "DownloadArchive", "WatchFiles",     "ForwardTcp", "ImportImage", "PullImage",
};

static const char *const reading[] = { "Get", "List", "Watch", "Read", "Download", "Stat", "Ping" }; /* begin so */

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

static bool is_streaming(const char *method) {
        for (size_t i = 0; i < N_ELEMENTS(streaming); i++)
                if (str_equal(method, streaming[i]))
                        return true;

        return false;
}

static bool is_reading(const char *method) {
        for (size_t i = 0; i < N_ELEMENTS(reading); i++)
                if (str_has_prefix(method, reading[i]))
                        return true;

        return false;
}

static const ProtobufCServiceDescriptor *find_service(const char *name, size_t len) {
        for (size_t i = 0; i < N_ELEMENTS(services); i++)
                if (strlen(services[i]->short_name) == len && memcmp(services[i]->short_name, name, len) == 0)
                        return services[i];

        return NULL;
}

bool method_find(const char *name, MethodInfo *ret_method) {
        const char *slash = strchr(name, '/');
        const ProtobufCServiceDescriptor *service = slash ? find_service(name, (size_t) (slash - name)) : NULL;
        const ProtobufCMethodDescriptor *method =
                service ? protobuf_c_service_descriptor_get_method_by_name(service, slash + 1) : NULL;

        if (!method)
                return false;

        *ret_method = (MethodInfo){
                .request = method->input,
                .reply = method->output,
                .request_id = protobuf_c_message_descriptor_get_field_by_name(method->input, "request_id"),
                .streams = is_streaming(method->name),
                .safe = is_reading(method->name),
        };
        ret_method->safe |= ret_method->request_id != NULL;
        return true;
}

bool hutch_method_descriptors(const char *method, const ProtobufCMessageDescriptor **ret_request,
                              const ProtobufCMessageDescriptor **ret_reply) {
        MethodInfo found;

        if (!method_find(method, &found))
                return false;

        *ret_request = found.request;
        *ret_reply = found.reply;
        return true;
}

/* Seeks a message in @type and below it. The contract has no message that contains itself. */
static const ProtobufCMessageDescriptor *find_below(const ProtobufCMessageDescriptor *type, const char *name) {
        const ProtobufCMessageDescriptor *found = str_equal(type->short_name, name) ? type : NULL;

        for (unsigned i = 0; i < type->n_fields && !found; i++)
                if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
                        found = find_below(type->fields[i].descriptor, name);
        return found;
}

const ProtobufCMessageDescriptor *hutch_message_descriptor(const char *name) {
        for (size_t i = 0; i < N_ELEMENTS(services); i++)
                for (unsigned j = 0; j < services[i]->n_methods; j++) {
                        const ProtobufCMethodDescriptor *method = &services[i]->methods[j];
                        const ProtobufCMessageDescriptor *found = find_below(method->input, name);

                        if (!found)
                                found = find_below(method->output, name);
                        if (found)
                                return found;
                }

        return NULL;
}
