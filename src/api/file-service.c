/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutch.v1.FileService: requests are decoded, checked and completed, and carried to the sandbox's
 * keeper, which serves the same methods; its answers are decoded and carried back. Bytes of files are passed on as they
 * are. What does not: the rules (file-checks.c), whose work waits for what (control), and the work itself (keeper).
 *
 * Nothing is read from one side before the other has taken what was read last, so that a call holds a few messages,
 * whatever the file's size and however slow its reader. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/file-checks.h"
#include "api/message.h"
#include "api/service.h"
#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "model/ids.h"
#include "model/sandbox.h"
#include "rpc/core/protobuf.h"

#define SERVICE "/hutch.v1.FileService/"
#define HEADER_FIELD 1 /* of requests that are streamed */

typedef struct FileMethod {
        const char *path;
        const ProtobufCMessageDescriptor *request, *response;
        FileCheck check;
        unsigned data_in;     /* clients stream: a header, then bytes in this field; 0: they send one message */
        unsigned data_out;    /* the bytes of answers stand in this field; 0: they have none, or with other fields */
        unsigned first_field; /* of a oneof, the field that the first answer has, and no other; 0: there is no oneof */
        bool answers_stream;
} FileMethod;

#define METHOD(name, lower)                                                                                            \
        .path = SERVICE name, .request = &hutch__v1__##lower##_request__descriptor,                                    \
        .response = &hutch__v1__##lower##_response__descriptor, .check = check_##lower

static const FileMethod file_methods[] = {
        { METHOD("UploadFile", upload_file), .data_in = 2 },
        { METHOD("DownloadFile", download_file), .data_out = 2, .first_field = 1, .answers_stream = true },
        { METHOD("UploadArchive", upload_archive), .data_in = 2 },
        { METHOD("DownloadArchive", download_archive), .data_out = 1, .answers_stream = true },
        { METHOD("ReadFile", read_file) },
        { METHOD("WriteFile", write_file) },
        { METHOD("StatFile", stat_file) },
        { METHOD("ListFiles", list_files) },
        { METHOD("MakeDirectory", make_directory) },
        { METHOD("MoveFile", move_file) },
        { METHOD("RemoveFile", remove_file) },
        { METHOD("WatchFiles", watch_files), .first_field = 1, .answers_stream = true },
        { METHOD("ListChanges", list_changes) },
};

#define N_FILE_METHODS (sizeof(file_methods) / sizeof(file_methods[0]))

/* A call, between its client and the keeper. */
typedef struct Relay {
        ApiStream base; /* first */
        const FileMethod *method;
        FileCall *call; /* NULL: not begun */
        bool is_answered;
        bool reads_later;         /* the client's next message is asked for when the keeper takes more */
        bool reads_answers_later; /* the other way round */
        uint8_t *answer;          /* the only one, until the keeper says that all went well */
        size_t answer_len;
} Relay;

static const FileMethod *find_method(const Call *call) {
        const FileMethod *method = file_methods;

        while (!str_equal(method->path, call_path(call)))
                method++;
        return method;
}

static void *member(const ProtobufCMessage *message, const char *name) {
        const ProtobufCFieldDescriptor *field =
                protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

        return field ? (char *) message + field->offset : NULL;
}

/* The text in that field; empty where there is no such field. */
static const char *text_of(const ProtobufCMessage *message, const char *name) {
        char *const *text = member(message, name);

        return text ? *text : "";
}

/* Which field of the oneof that @number belongs to is set; 0: none. */
static unsigned item_of(const ProtobufCMessage *message, unsigned number) {
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(message->descriptor, number);
        const void *item = (const char *) message + field->quantifier_offset;

        return *(const uint32_t *) item;
}

static void relay_free(Relay *relay) {
        (void) file_call_free(relay->call);
        api_stream_end_of_call(&relay->base);
        free(relay->answer);
        free(relay);
}

/* Answers. */

static void fail_answer(Relay *relay) {
        _cleanup_(error_clear) HutchError err = {};

        (void) reason_set(&err, -EBADMSG, REASON_INTERNAL, "the answer of the sandbox's keeper cannot be read");
        api_stream_fail(&relay->base, &err);
        relay->call = file_call_free(relay->call);
}

/* Decodes what the keeper says, which may have been told it by whoever is inside, and encodes what is to be said. */
static int read_answer(const Relay *relay, const uint8_t *bytes, size_t len, uint8_t **ret_bytes, size_t *ret_len) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        const FileMethod *method = relay->method;

        message = message_unpack(method->response, bytes, len, &violations);
        if (!message || violations.n > 0)
                return -EBADMSG;
        if (method->first_field > 0) {
                unsigned item = item_of(message, method->first_field);

                if (item == 0 || item == method->data_out || (item == method->first_field) == relay->is_answered)
                        return -EBADMSG;
        }
        return protobuf_pack(message, ret_bytes, ret_len);
}

static void read_next_answer(Relay *relay) {
        if (relay->base.finished)
                return;

        relay->reads_answers_later = !call_is_writable(relay->base.call);
        if (!relay->reads_answers_later)
                file_call_read(relay->call);
}

static void on_answer(void *user, uint8_t *bytes, size_t len) {
        _cleanup_free_ uint8_t *received = bytes;
        Relay *relay = user;
        const FileMethod *method = relay->method;
        bool is_data = method->data_out > 0 && is_plain_data(bytes, len, method->data_out) &&
                       (relay->is_answered || method->first_field == 0);

        if (relay->base.finished)
                return;

        if (is_data) {
                api_stream_send_taken(&relay->base, TAKE_PTR(received), len);
        } else {
                uint8_t *answer;
                size_t answer_len;

                if ((relay->is_answered && !method->answers_stream) ||
                    read_answer(relay, bytes, len, &answer, &answer_len) < 0) {
                        fail_answer(relay);
                        return;
                }
                if (method->answers_stream) {
                        api_stream_send_taken(&relay->base, answer, answer_len);
                } else {
                        relay->answer = answer;
                        relay->answer_len = answer_len;
                }
        }
        relay->is_answered = true;
        read_next_answer(relay);
}

/* The field that what the keeper refuses is about. */
static const char *field_of(const FileMethod *method, Reason reason) {
        switch (reason) {
        case REASON_PAGE_TOKEN_INVALID:
                return "page_token";
        case REASON_CHECKSUM_MISMATCH:
                return "sha256";
        case REASON_SIZE_MISMATCH:
                return "size_bytes";
        case REASON_PATH_PROTECTED:
                return method->check == check_move_file ? "source" : "path";
        default:
                return method->check == check_move_file ? "target" : "path";
        }
}

/* What was found to be wrong with the request only inside is told as what was found before. */
static void fail_inside(Relay *relay, const HutchError *err) {
        _cleanup_(violations_clear) Violations violations = {};
        Reason reason = reason_from_name(err->reason);
        size_t above = 0;

        if (relay->base.finished)
                return;

        relay->base.finished = true;
        if (reason == REASON_ARCHIVE_REFUSED) {
                violations_add(&violations, "data", reason, "%s", error_message(err));
        } else if (err->code == STATUS_INVALID_ARGUMENT) {
                if (relay->method->data_in > 0)
                        above = violations_enter(&violations, "header");
                violations_add(&violations, field_of(relay->method, reason), reason, "%s", error_message(err));
                violations_leave(&violations, above);
        }
        api_fail(relay->base.call, err, &violations);
}

static void on_answers_ended(void *user, const HutchError *err) {
        Relay *relay = user;
        bool is_whole = relay->is_answered || (relay->method->answers_stream && relay->method->first_field == 0);

        if (err) {
                fail_inside(relay, err);
                return;
        }
        if (!is_whole) {
                fail_answer(relay);
                return;
        }

        if (relay->answer)
                api_stream_send_taken(&relay->base, TAKE_PTR(relay->answer), relay->answer_len);
        api_stream_finish(&relay->base);
}

/* Requests. */

static void read_next(Relay *relay) {
        assert(relay->call);
        if (relay->base.finished)
                return;

        relay->reads_later = !file_call_is_writable(relay->call);
        if (!relay->reads_later)
                call_read(relay->base.call);
}

static void on_can_send(void *user) {
        Relay *relay = user;

        if (relay->reads_later)
                read_next(relay);
}

/* What makes a repeat of a request the same; the caller frees it. Request ids have no other than printable ASCII. */
static char *make_key(const Request *request, const RequestKey *key) {
        _cleanup_(string_builder_clear) StringBuilder text = {};

        for (size_t i = 0; i < sizeof(key->fingerprint); i++)
                string_builder_appendf(&text, "%02x", key->fingerprint[i]);
        string_builder_appendf(&text, ":%s/%s", request->caller->name, key->request_id);
        return string_builder_take(&text);
}

/* Checks @message, or the header of it, as much of it as can be checked without knowing the sandbox when there is none.
 * Fails with @request.err or with violations. */
static int check(const FileMethod *method, Request *request, ProtobufCMessage *message) {
        _cleanup_(error_clear) HutchError err = {};
        const char *sandbox_id = text_of(message, "sandbox_id");
        FileRules rules = { .limits = &request->api->limits };
        SandboxView view;
        int found, r;

        check_id(request, "sandbox_id", sandbox_id);
        check_request_id(request, text_of(message, "request_id"));
        found = id_check(sandbox_id, strlen(sandbox_id), NULL);
        if (found >= 0)
                found = control_get_sandbox(request->api->options.control, request->caller, sandbox_id, &view, &err);
        if (found >= 0) {
                rules.working_directory = view.record->spec->working_directory;
                rules.workspace = view.record->spec->workspace;
        }
        method->check(message, &rules, &request->violations);

        r = violations_result(&request->violations, &request->err);
        if (r < 0)
                return r;
        if (found < 0) {
                request->err = err;
                err = (HutchError){};
        }
        return found < 0 ? found : 0;
}

/* Begins the work that @message, or the header of it, asks for. Fails with @request.err or with violations. */
static int begin(Relay *relay, Request *request, ProtobufCMessage *message, ProtobufCMessage *header) {
        static const FileCallEvents events = { on_answer, on_can_send, on_answers_ended };
        const FileMethod *method = relay->method;
        ProtobufCMessage *asked = header ? header : message;
        _cleanup_free_ char *key_text = NULL;
        uint8_t *bytes;
        size_t len;
        RequestKey key;
        int r;

        /* Before it is completed: what makes it the same is what was said. */
        r = request_key(asked, method->path + strlen(SERVICE), text_of(asked, "request_id"), &key);
        if (r < 0)
                return reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        r = check(method, request, asked);
        if (r < 0)
                return r;
        if (*key.request_id)
                key_text = make_key(request, &key);

        r = protobuf_pack(message, &bytes, &len);
        if (r < 0)
                return reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        r = control_open_file_call(request->api->options.control, request->caller, text_of(asked, "sandbox_id"),
                                   &(FileCallRequest){
                                           .path = method->path,
                                           .key = key_text,
                                           .deadline = call_deadline(request->call),
                                           .is_whole = !header,
                                   },
                                   bytes, len, &events, relay, &relay->call, &request->err);
        if (r < 0)
                return r;
        file_call_read(relay->call);
        return 0;
}

static void on_writable(Call *call) {
        Relay *relay = call_user(call);

        if (relay->reads_answers_later)
                read_next_answer(relay);
}

static void on_ended(Call *call, CallEnd how) {
        (void) how;
        relay_free(call_user(call));
}

/* Methods whose clients send one message. */
static void handle(Request *request) {
        static const CallEvents events = { .writable = on_writable, .ended = on_ended };
        const FileMethod *method = find_method(request->call);
        Relay *relay = new0(Relay, 1);

        relay->method = method;
        if (api_stream_begin(&relay->base, request->api, request->call, request->caller, method->answers_stream,
                             &request->err) < 0) {
                free(relay);
                request_fail(request);
                return;
        }
        if (begin(relay, request, request->message, NULL) < 0) {
                relay_free(relay);
                api_fail(request->call, &request->err, &request->violations);
                return;
        }
        call_set_events(request->call, &events, relay);
}

/* Methods whose clients stream. */

static void refuse(Relay *relay, const Request *request) {
        relay->base.finished = true;
        api_fail(relay->base.call, &request->err, &request->violations);
        relay->call = file_call_free(relay->call);
}

static int take_header(Relay *relay, Request *request, ProtobufCMessage *message) {
        size_t above;
        int r;

        if (item_of(message, HEADER_FIELD) != HEADER_FIELD) {
                violations_add(&request->violations, NULL, REASON_STREAM_ORDER, "the first message is `header`");
                return violations_result(&request->violations, &request->err);
        }

        above = violations_enter(&request->violations, "header");
        r = begin(relay, request, message, *(ProtobufCMessage **) member(message, "header"));
        violations_leave(&request->violations, above);
        return r;
}

/* Bytes that do not stand alone in their message, or are too many. */
static int take_data(Relay *relay, Request *request, const ProtobufCMessage *message) {
        const ProtobufCBinaryData *data = member(message, "data");
        Violations *violations = &request->violations;
        uint8_t *bytes;
        size_t len;
        int r;

        if (item_of(message, HEADER_FIELD) == HEADER_FIELD)
                violations_add(violations, NULL, REASON_STREAM_ORDER, "only the first message is `header`");
        else if (item_of(message, HEADER_FIELD) == 0)
                violations_add(violations, NULL, REASON_FIELD_REQUIRED, "the message says nothing");
        else if (data->len > FILE_DATA_MAX)
                violations_add_limit(violations, "data", REASON_FIELD_TOO_LONG, "data_bytes", FILE_DATA_MAX,
                                     "at most %zu bytes at a time", FILE_DATA_MAX);
        r = violations_result(violations, &request->err);
        if (r < 0)
                return r;

        r = protobuf_pack(message, &bytes, &len);
        if (r == 0)
                r = file_call_send_taken(relay->call, bytes, len);
        return r == -ENOMEM ? reason_set(&request->err, r, REASON_HOST_EXHAUSTED, "the daemon is out of memory") : 0;
}

static void on_message(Call *call, const uint8_t *bytes, size_t len) {
        _cleanup_(request_clear) Request request = {};
        Relay *relay = call_user(call);
        ProtobufCMessage *message;
        int r;

        if (relay->base.finished)
                return;

        if (relay->call && is_plain_data(bytes, len, relay->method->data_in)) {
                /* When it cannot be sent, that is told as the end. */
                (void) file_call_send_taken(relay->call, call_take_message(call), len);
                read_next(relay);
                return;
        }

        message = request_begin(&request, relay->base.api, call, relay->method->request, bytes, len);
        if (!message) {
                relay->base.finished = true;
                return;
        }
        r = relay->call ? take_data(relay, &request, message) : take_header(relay, &request, message);
        if (r < 0)
                refuse(relay, &request);
        else
                read_next(relay);
}

static void on_half_closed(Call *call) {
        _cleanup_(request_clear) Request request = {};
        Relay *relay = call_user(call);

        if (relay->base.finished)
                return;
        if (relay->call) {
                file_call_end(relay->call);
                return;
        }

        violations_add(&request.violations, NULL, REASON_STREAM_ORDER, "the stream ended before its header");
        (void) violations_result(&request.violations, &request.err);
        refuse(relay, &request);
}

static void start(Call *call, void *context) {
        static const CallEvents events = {
                .message = on_message,
                .half_closed = on_half_closed,
                .writable = on_writable,
                .ended = on_ended,
        };
        _cleanup_(error_clear) HutchError err = {};
        Relay *relay = new0(Relay, 1);
        const Caller *caller = api_caller(call);

        relay->method = find_method(call);
        if (api_stream_begin(&relay->base, context, call, caller, true, &err) < 0) {
                free(relay);
                api_fail(call, &err, NULL);
                return;
        }
        call_set_events(call, &events, relay);
        call_read(call);
}

MethodList file_service_methods(void) {
        static ApiMethod methods[N_FILE_METHODS];

        for (size_t i = 0; i < N_FILE_METHODS; i++)
                methods[i] = (ApiMethod){
                        .path = file_methods[i].path,
                        .request = file_methods[i].request,
                        .handle = file_methods[i].data_in > 0 ? NULL : handle,
                        .start = file_methods[i].data_in > 0 ? start : NULL,
                };
        return (MethodList){ methods, N_FILE_METHODS };
}
