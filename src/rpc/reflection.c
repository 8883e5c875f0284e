/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the questions that reflection answers. What does not: the files and their symbols, which
 * scripts/generate has put into tables. */

#include "rpc/reflection.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "contract/grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"

#define REQUEST_MAX 8192 /* bytes in memory, most of them a name */

typedef Grpc__Reflection__V1__ErrorResponse ErrorResponse;
typedef Grpc__Reflection__V1__FileDescriptorResponse FilesResponse;
typedef Grpc__Reflection__V1__ListServiceResponse ServicesResponse;
typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;
typedef Grpc__Reflection__V1__ServiceResponse Service;

#define REQUEST(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

struct Reflection {
        const MethodTable *methods_served;
        const ReflectionFile *files;
        size_t n_files;
        Method methods[2];
};

/* A call: a client asks, is answered, and asks again. */
typedef struct Conversation {
        const Reflection *reflection;
        bool sent[]; /* by file: the client has it already */
} Conversation;

/* Tells whether @name is in a list of names, each with a NUL, and an empty one behind them. */
static bool names_contain(const char *names, const char *name) {
        for (; *names; names += strlen(names) + 1)
                if (strcmp(names, name) == 0)
                        return true;

        return false;
}

/* The index of the file; n_files: there is none. */
static size_t find_file(const Reflection *reflection, const char *name) {
        size_t i = 0;

        while (i < reflection->n_files && strcmp(reflection->files[i].name, name) != 0)
                i++;
        return i;
}

static size_t find_symbol(const Reflection *reflection, const char *symbol) {
        size_t i = 0;

        while (i < reflection->n_files && (!*symbol || !names_contain(reflection->files[i].symbols, symbol)))
                i++;
        return i;
}

static int answer(Call *call, const Request *request, Response *response) {
        response->valid_host = request->host;
        response->original_request = (Request *) request;
        return call_send_protobuf(call, &response->base);
}

static int answer_error(Call *call, const Request *request, StatusCode code, const char *message) {
        Response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

        error.error_code = (int32_t) code;
        error.error_message = (char *) message;
        response.message_response_case = RESPONSE(ERROR_RESPONSE);
        response.error_response = &error;
        return answer(call, request, &response);
}

/* Collects the file at @index, and all it imports that the client does not have yet, into @list, which has room for all
 * of them, as has @wanted. */
static int answer_files(Call *call, const Request *request, size_t index, ProtobufCBinaryData list[], bool wanted[]) {
        Conversation *conversation = call_user(call);
        const Reflection *reflection = conversation->reflection;
        Response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        FilesResponse files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;

        /* Files come after those they import, so one walk backwards finds all that are imported. */
        wanted[index] = true;
        for (size_t i = index + 1; i-- > 0;) {
                const ReflectionFile *file = &reflection->files[i];

                if (!wanted[i])
                        continue;
                for (const char *name = file->imports; *name; name += strlen(name) + 1) {
                        size_t imported = find_file(reflection, name);

                        if (imported < i)
                                wanted[imported] = true;
                }
                if (i < index && conversation->sent[i])
                        continue;
                conversation->sent[i] = true;
                list[files.n_file_descriptor_proto++] = (ProtobufCBinaryData){
                        .data = (uint8_t *) file->bytes,
                        .len = file->len,
                };
        }

        files.file_descriptor_proto = list;
        response.message_response_case = RESPONSE(FILE_DESCRIPTOR_RESPONSE);
        response.file_descriptor_response = &files;
        return answer(call, request, &response);
}

/* Answers with the file at @index and its imports. */
static int answer_file(Call *call, const Request *request, size_t index) {
        const Conversation *conversation = call_user(call);
        ProtobufCBinaryData *list;
        bool *wanted;
        int r = -ENOMEM;

        if (index == conversation->reflection->n_files)
                return answer_error(call, request, STATUS_NOT_FOUND, "no file of that name or with that symbol");

        list = try_new0(ProtobufCBinaryData, index + 1);
        wanted = try_new0(bool, index + 1);
        if (list && wanted)
                r = answer_files(call, request, index, list, wanted);
        free(list);
        free(wanted);
        return r;
}

/* The services of the methods, as texts that the caller frees. -ENOMEM. */
static int collect_services(const MethodTable *methods, char ***ret_names, size_t *ret_n) {
        size_t n_methods = 0, n = 0;
        const Method *method;
        char **names;

        while (method_table_at(methods, n_methods))
                n_methods++;
        names = try_new0(char *, n_methods + 1);
        if (!names)
                return -ENOMEM;

        *ret_names = names;
        *ret_n = 0;
        for (size_t i = 0; (method = method_table_at(methods, i)); i++) {
                size_t len = strcspn(method->path + 1, "/");
                bool known = false;

                for (size_t j = 0; j < n && !known; j++)
                        known = strncmp(names[j], method->path + 1, len) == 0 && names[j][len] == '\0';
                if (known)
                        continue;
                names[n] = strndup(method->path + 1, len);
                if (!names[n])
                        return -ENOMEM;
                *ret_n = ++n;
        }

        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Answers with @names, of which there are @n; @services and @pointers have room for as many. */
static int answer_services(Call *call, const Request *request, char **names, size_t n, Service services[],
                           Service *pointers[]) {
        Response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        ServicesResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

        qsort(names, n, sizeof(*names), compare_names);
        for (size_t i = 0; i < n; i++) {
                services[i] = (Service) GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
                services[i].name = names[i];
                pointers[i] = &services[i];
        }

        list.service = pointers;
        list.n_service = n;
        response.message_response_case = RESPONSE(LIST_SERVICES_RESPONSE);
        response.list_services_response = &list;
        return answer(call, request, &response);
}

static int list_services(Call *call, const Request *request) {
        const Conversation *conversation = call_user(call);
        Service *services, **pointers;
        char **names = NULL;
        size_t n = 0;
        int r;

        r = collect_services(conversation->reflection->methods_served, &names, &n);
        services = try_new0(Service, n + 1);
        pointers = try_new0(Service *, n + 1);
        if (r == 0)
                r = services && pointers ? answer_services(call, request, names, n, services, pointers) : -ENOMEM;

        free(pointers);
        free(services);
        while (n > 0)
                free(names[--n]);
        free(names);
        return r;
}

static int answer_request(Call *call, const Request *request) {
        const Conversation *conversation = call_user(call);
        const Reflection *reflection = conversation->reflection;

        switch (request->message_request_case) {
        case REQUEST(LIST_SERVICES):
                return list_services(call, request);
        case REQUEST(FILE_BY_FILENAME):
                return answer_file(call, request, find_file(reflection, request->file_by_filename));
        case REQUEST(FILE_CONTAINING_SYMBOL):
                return answer_file(call, request, find_symbol(reflection, request->file_containing_symbol));
        case REQUEST(FILE_CONTAINING_EXTENSION):
        case REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE):
                return answer_error(call, request, STATUS_NOT_FOUND, "there are no extensions");
        default:
                return answer_error(call, request, STATUS_UNIMPLEMENTED, "the question is unknown");
        }
}

static void on_message(Call *call, const uint8_t *message, size_t len) {
        _cleanup_(protobuf_freep) ProtobufCMessage *request = NULL;

        request = call_unpack(call, &grpc__reflection__v1__server_reflection_request__descriptor, message, len,
                              REQUEST_MAX);
        if (!request)
                return;

        if (answer_request(call, (const Request *) request) < 0)
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory for the answer");
        else if (call_is_writable(call))
                call_read(call);
}

static void on_half_closed(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void on_ended(Call *call, CallEnd how) {
        (void) how;
        free(call_user(call));
}

/* `writable` comes after call_is_writable() was false, so a message is asked for once. */
static const CallEvents events = {
        .message = on_message,
        .half_closed = on_half_closed,
        .writable = call_read,
        .ended = on_ended,
};

static void server_reflection_info(Call *call, void *context) {
        const Reflection *reflection = context;
        Conversation *conversation = calloc(1, sizeof(*conversation) + reflection->n_files * sizeof(bool));

        if (!conversation) {
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "HOST_EXHAUSTED", "no memory");
                return;
        }

        conversation->reflection = reflection;
        call_set_events(call, &events, conversation);
        call_read(call);
}

Reflection *reflection_new(const MethodTable *methods, const ReflectionFile files[], size_t n_files) {
        Reflection *reflection = try_new0(Reflection, 1);

        if (!reflection)
                return NULL;

        reflection->methods_served = methods;
        reflection->files = files;
        reflection->n_files = n_files;
        reflection->methods[0] = (Method){
                .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                .start = server_reflection_info,
                .context = reflection,
        };
        reflection->methods[1] = reflection->methods[0];
        reflection->methods[1].path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
        return reflection;
}

Reflection *reflection_free(Reflection *reflection) {
        free(reflection);
        return NULL;
}

int reflection_add_methods(Reflection *reflection, MethodTable *table) {
        return method_table_add(table, reflection->methods, sizeof(reflection->methods) / sizeof(*reflection->methods));
}
