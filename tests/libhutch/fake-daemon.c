/* SPDX-License-Identifier: Apache-2.0 */

#include "fake-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"
#include "contract/hutch/v1/system.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"
#include "rpc/core/status-details.h"
#include "rpc/server.h"
#include "rpc/tls.h"

#include "certificates.h"
#include "test.h"

#define DECODED_MAX ((size_t) 64 << 20)
#define CHUNK 10

char fake_daemon_address[80];

static FakeDaemon *told; /* shared with the test */
static char folder[32];
static pid_t supervisor, cleaner;

/* Notes a call. */
static typeof(told->calls[0]) *note(Call *call) {
        static typeof(told->calls[0]) beyond;
        const MetadataEntry *authorization = metadata_find(call_metadata(call), "authorization");
        typeof(beyond) *noted = told->n_calls < FAKE_CALLS ? &told->calls[told->n_calls] : &beyond;

        told->n_calls++;
        snprintf(noted->method, sizeof(noted->method), "%s", strrchr(call_path(call), '/') + 1);
        noted->has_deadline = call_deadline(call) != UINT64_MAX;
        if (authorization)
                snprintf(noted->authorization, sizeof(noted->authorization), "%s", authorization->value);
        noted->timeout_ms = (call_deadline(call) - uv_hrtime()) / NSEC_PER_MSEC;
        return noted;
}

/* Decodes a request, which the caller frees. */
static void *decode(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len) {
        ProtobufCMessage *message = NULL;

        if (protobuf_unpack(type, bytes, len, DECODED_MAX, &message) < 0)
                _exit(3);
        return message;
}

static void die(uv_timer_t *timer) {
        (void) timer;
        _exit(0);
}

/* Dies when what was sent has left. */
static void die_soon(uv_loop_t *loop) {
        static uv_timer_t timer;

        uv_timer_init(loop, &timer);
        uv_timer_start(&timer, die, 10, 0);
}

/* Fails a call, if it is to. */
static bool is_failed(Call *call) {
        if (told->failures == 0)
                return false;

        told->failures--;
        call_fail_with(call, STATUS_UNAVAILABLE, "STARTING", "not yet");
        return true;
}

static void ping(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        note(call);
        if (!is_failed(call))
                call_reply(call, "", 0);
}

static void get_info(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__GetInfoResponse response = HUTCH__V1__GET_INFO_RESPONSE__INIT;
        Hutch__V1__ServerLimits limits = HUTCH__V1__SERVER_LIMITS__INIT;

        (void) message, (void) len, (void) context;
        note(call);
        limits.max_request_bytes = told->max_request;
        response.version = (char *) "9.9.9";
        response.limits = &limits;
        call_reply_protobuf(call, &response.base);
}

/* A sandbox as the test says. */
static void reply_sandbox(Call *call, char *id, Hutch__V1__SandboxSpec *spec, int state) {
        Hutch__V1__GetSandboxResponse response = HUTCH__V1__GET_SANDBOX_RESPONSE__INIT;
        Hutch__V1__Sandbox sandbox = HUTCH__V1__SANDBOX__INIT;

        sandbox.id = id;
        sandbox.spec = spec;
        sandbox.state = (Hutch__V1__SandboxState) state;
        sandbox.sequence = 7;
        response.sandbox = &sandbox;
        call_reply_protobuf(call, &response.base);
}

static void create_sandbox(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__CreateSandboxRequest *request = decode(&hutch__v1__create_sandbox_request__descriptor, message, len);
        typeof(told->calls[0]) *noted = note(call);

        (void) context;
        snprintf(noted->request_id, sizeof(noted->request_id), "%s", request->request_id);
        snprintf(noted->id, sizeof(noted->id), "%s", request->sandbox_id);
        if (!is_failed(call))
                reply_sandbox(call, *request->sandbox_id ? request->sandbox_id : (char *) "sb-made", request->spec, 1);
        protobuf_free(&request->base);
}

static void get_sandbox(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(error_clear) HutchError err = {};
        Hutch__V1__GetSandboxRequest *request = decode(&hutch__v1__get_sandbox_request__descriptor, message, len);
        const StatusPair pairs[] = { { "sandbox", "no-such-sandbox" }, { "hint", "none" }, { "third", "3" } };
        const StatusDetails details = { .domain = "hutch", .pairs = pairs, .n_pairs = 3 };

        (void) context;
        note(call);
        if (str_equal(request->sandbox_id, "no-such-sandbox")) {
                (void) error_set(&err, -ENOENT, "SANDBOX_NOT_FOUND", "there is no such sandbox");
                call_fail_details(call, &err, &details);
        } else {
                reply_sandbox(call, request->sandbox_id, NULL, told->sandbox_state);
        }
        protobuf_free(&request->base);
}

static void list_sandboxes(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__ListSandboxesRequest *request = decode(&hutch__v1__list_sandboxes_request__descriptor, message, len);
        Hutch__V1__ListSandboxesResponse response = HUTCH__V1__LIST_SANDBOXES_RESPONSE__INIT;
        Hutch__V1__Sandbox sandboxes[2] = { HUTCH__V1__SANDBOX__INIT, HUTCH__V1__SANDBOX__INIT };
        Hutch__V1__Sandbox *list[] = { &sandboxes[0], &sandboxes[1] };
        int first = atoi(request->page_token);
        char ids[2][24], token[16];

        (void) context;
        note(call);
        response.sandboxes = list;
        for (int i = first; i < first + 2 && i < FAKE_SANDBOXES; i++) {
                snprintf(ids[i - first], sizeof(ids[0]), "sandbox-%d", i);
                sandboxes[i - first].id = ids[i - first];
                response.n_sandboxes++;
        }
        snprintf(token, sizeof(token), "%d", first + 2);
        if (first + 2 < FAKE_SANDBOXES)
                response.next_page_token = token;
        call_reply_protobuf(call, &response.base);
        protobuf_free(&request->base);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len, (void) context;
        note(call);
}

/* ---- Streams that answer ---- */

static bool breaks_after(int n_sent) {
        return told->break_after != 0 && n_sent >= told->break_after;
}

static void send_event(Call *call, uint64_t cursor) {
        Hutch__V1__WatchEventsResponse response = HUTCH__V1__WATCH_EVENTS_RESPONSE__INIT;
        Hutch__V1__Event event = HUTCH__V1__EVENT__INIT;
        Hutch__V1__SandboxStateChange change = HUTCH__V1__SANDBOX_STATE_CHANGE__INIT;

        change.to_state = (Hutch__V1__SandboxState) told->sandbox_state;
        event.cursor = cursor;
        event.sequence = cursor;
        event.sandbox_id = (char *) "sandbox-0";
        event.type = HUTCH__V1__EVENT_TYPE__EVENT_TYPE_SANDBOX_STATE_CHANGED;
        event.change_case = HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE;
        event.sandbox_state = &change;
        response.item_case = HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_EVENT;
        response.event = &event;
        (void) call_send_protobuf(call, &response.base);
}

static void send_started(Call *call, uint64_t cursor, bool snapshot) {
        Hutch__V1__WatchEventsResponse response = HUTCH__V1__WATCH_EVENTS_RESPONSE__INIT;
        Hutch__V1__WatchStarted started = HUTCH__V1__WATCH_STARTED__INIT;
        Hutch__V1__Sandbox sandbox = HUTCH__V1__SANDBOX__INIT;

        if (snapshot) {
                sandbox.id = (char *) "sandbox-0";
                sandbox.state = (Hutch__V1__SandboxState) told->sandbox_state;
                response.item_case = HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_SANDBOX;
                response.sandbox = &sandbox;
                (void) call_send_protobuf(call, &response.base);
        }
        started.cursor = cursor;
        response.item_case = HUTCH__V1__WATCH_EVENTS_RESPONSE__ITEM_STARTED;
        response.started = &started;
        (void) call_send_protobuf(call, &response.base);
}

static void lag(Call *call, uint64_t cursor) {
        _cleanup_(error_clear) HutchError err = {};

        (void) error_set_code(&err, STATUS_RESOURCE_EXHAUSTED, -ENOSPC, "WATCHER_LAGGED", "too slow");
        error_add_pair(&err, "cursor", "%" PRIu64, cursor);
        call_fail(call, &err);
}

static void watch_events(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__WatchEventsRequest *request = decode(&hutch__v1__watch_events_request__descriptor, message, len);
        typeof(told->calls[0]) *noted = note(call);
        uint64_t cursor = 0;
        int n_sent = 0;

        told->sandbox_state += told->changes_state;
        told->changes_state = false;
        noted->has_cursor = request->opt_after_cursor_case > 0;
        noted->cursor = cursor = noted->has_cursor ? request->after_cursor : 0;
        noted->has_sequence = request->opt_after_sequence_case > 0;
        noted->sequence = noted->has_sequence ? request->after_sequence : 0;
        send_started(call, cursor, request->include_snapshot);
        while (cursor < FAKE_EVENTS && !breaks_after(n_sent++))
                send_event(call, ++cursor);
        if (cursor < FAKE_EVENTS && told->lags)
                lag(call, cursor);
        else if (cursor < FAKE_EVENTS)
                die_soon(context);
        protobuf_free(&request->base);
}

static void send_chunk(Call *call, bool is_stderr, uint64_t offset) {
        Hutch__V1__ReadExecOutputResponse response = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__INIT;
        Hutch__V1__OutputChunk chunk = HUTCH__V1__OUTPUT_CHUNK__INIT;
        uint8_t bytes[CHUNK];

        for (size_t i = 0; i < CHUNK; i++)
                bytes[i] = (uint8_t) ('a' + (offset + i) % 26);
        chunk.stream = is_stderr ? HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR
                                 : HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT;
        chunk.offset = offset;
        chunk.data = (ProtobufCBinaryData){ .len = CHUNK, .data = bytes };
        response.item_case = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_OUTPUT;
        response.output = &chunk;
        (void) call_send_protobuf(call, &response.base);
}

static void read_exec_output(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__ReadExecOutputRequest *request =
                decode(&hutch__v1__read_exec_output_request__descriptor, message, len);
        Hutch__V1__ReadExecOutputResponse response = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__INIT;
        Hutch__V1__Exec exec = HUTCH__V1__EXEC__INIT;
        typeof(told->calls[0]) *noted = note(call);
        uint64_t out = request->stdout_offset, err = request->stderr_offset;
        int n_sent = 0;

        noted->stdout_offset = out;
        noted->stderr_offset = err;
        noted->has_tail = request->opt_tail_lines_case > 0;
        for (bool is_stderr = false; (out < FAKE_OUTPUT || err < FAKE_OUTPUT) && !breaks_after(n_sent++);
             is_stderr = !is_stderr) {
                uint64_t *offset = (is_stderr && err < FAKE_OUTPUT) || out == FAKE_OUTPUT ? &err : &out;

                send_chunk(call, offset == &err, *offset);
                *offset += CHUNK;
        }
        if (out < FAKE_OUTPUT || err < FAKE_OUTPUT) {
                die_soon(context);
        } else {
                exec.id = (char *) "exec-0";
                exec.state = HUTCH__V1__EXEC_STATE__EXEC_STATE_RUNNING;
                response.item_case = HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_EXEC;
                response.exec = &exec;
                (void) call_send_protobuf(call, &response.base);
                call_finish(call, STATUS_OK, NULL);
        }
        protobuf_free(&request->base);
}

/* ---- Files ---- */

/* Sends bytes of the file, every other time in a message that has more than them. */
static void send_data(Call *call, uint64_t offset) {
        static const uint8_t unknown_field[] = { 0xf8, 0x7f, 0x01 };
        uint8_t message[PROTOBUF_BYTES_HEAD_MAX + CHUNK + sizeof(unknown_field)];
        size_t len = protobuf_write_bytes_head(message, HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_DATA, CHUNK);

        for (size_t i = 0; i < CHUNK; i++)
                message[len++] = (uint8_t) ('a' + (offset + i) % 26);
        if (offset / CHUNK % 2 > 0) {
                memcpy(message + len, unknown_field, sizeof(unknown_field));
                len += sizeof(unknown_field);
        }
        (void) call_send(call, message, len);
}

static void download_file(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__DownloadFileRequest *request = decode(&hutch__v1__download_file_request__descriptor, message, len);
        Hutch__V1__DownloadFileResponse response = HUTCH__V1__DOWNLOAD_FILE_RESPONSE__INIT;
        Hutch__V1__FileInfo file = HUTCH__V1__FILE_INFO__INIT;
        uint64_t offset = request->offset;
        int n_sent = 0;

        note(call)->stdout_offset = offset;
        file.path = request->path;
        file.version = (char *) "1";
        response.item_case = HUTCH__V1__DOWNLOAD_FILE_RESPONSE__ITEM_FILE;
        response.file = &file;
        (void) call_send_protobuf(call, &response.base);
        for (; offset < FAKE_OUTPUT && !breaks_after(n_sent++); offset += CHUNK)
                send_data(call, offset);
        if (offset < FAKE_OUTPUT)
                die_soon(context);
        else
                call_finish(call, STATUS_OK, NULL);
        protobuf_free(&request->base);
}

/* ---- Commands ---- */

static void send_exec(Call *call, Hutch__V1__AttachExecResponse__ItemCase item, const char *id) {
        Hutch__V1__AttachExecResponse response = HUTCH__V1__ATTACH_EXEC_RESPONSE__INIT;
        Hutch__V1__ExecResult result = HUTCH__V1__EXEC_RESULT__INIT;
        Hutch__V1__Exec exec = HUTCH__V1__EXEC__INIT;

        exec.id = (char *) id;
        exec.state = HUTCH__V1__EXEC_STATE__EXEC_STATE_RUNNING;
        if (item == HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED) {
                exec.state = HUTCH__V1__EXEC_STATE__EXEC_STATE_EXITED;
                result.opt_exit_code_case = HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE;
                result.exit_code = 3;
                result.end_reason = HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_EXITED;
                exec.result = &result;
        }
        response.item_case = item;
        response.attached = &exec;
        (void) call_send_protobuf(call, &response.base);
}

static void attach_begin(Call *call, const Hutch__V1__AttachExecRequest *request, uv_loop_t *loop) {
        bool creates = request->item_case == HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE;
        const char *program = creates ? request->create->spec->argv[0] : "";
        typeof(told->calls[0]) *noted = note(call);

        if (creates) {
                snprintf(noted->request_id, sizeof(noted->request_id), "%s", request->create->request_id);
                snprintf(noted->id, sizeof(noted->id), "%s", request->create->exec_id);
        }
        if (str_equal(program, "refuse")) {
                call_fail_with(call, STATUS_NOT_FOUND, "SANDBOX_NOT_FOUND", "there is no such sandbox");
                return;
        }

        send_exec(call, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ATTACHED, noted->id);
        if (str_equal(program, "vanish"))
                call_finish(call, STATUS_OK, NULL);
        if (str_equal(program, "break"))
                die_soon(loop);
}

static void attach_input(Call *call, const Hutch__V1__AttachExecRequest *request) {
        Hutch__V1__AttachExecResponse response = HUTCH__V1__ATTACH_EXEC_RESPONSE__INIT;
        Hutch__V1__OutputChunk chunk = HUTCH__V1__OUTPUT_CHUNK__INIT;
        char text[64];

        chunk.stream = HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT;
        chunk.data = (ProtobufCBinaryData){ .data = (uint8_t *) text };
        switch (request->item_case) {
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN:
                told->n_input += request->stdin.len;
                chunk.data = request->stdin;
                break;
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_RESIZE:
                chunk.data.len = (size_t) snprintf(text, sizeof(text), "size %ux%u", request->resize->rows,
                                                   request->resize->columns);
                break;
        case HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_SIGNAL:
                chunk.data.len = (size_t) snprintf(text, sizeof(text), "signal %u", request->signal);
                break;
        default:
                send_exec(call, HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED, "exec-0");
                call_finish(call, STATUS_OK, NULL);
                return;
        }
        response.item_case = HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_OUTPUT;
        response.output = &chunk;
        (void) call_send_protobuf(call, &response.base);
}

static void on_attach_message(Call *call, const uint8_t *message, size_t len) {
        Hutch__V1__AttachExecRequest *request = decode(&hutch__v1__attach_exec_request__descriptor, message, len);

        if (request->item_case == HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE ||
            request->item_case == HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_ATTACH)
                attach_begin(call, request, call_user(call));
        else
                attach_input(call, request);
        protobuf_free(&request->base);
        call_read(call);
}

static void attach_exec(Call *call, void *context) {
        static const CallEvents events = { .message = on_attach_message };

        call_set_events(call, &events, context);
        call_read(call);
}

static void cancel_exec(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__CancelExecRequest *request = decode(&hutch__v1__cancel_exec_request__descriptor, message, len);
        typeof(told->calls[0]) *noted = note(call);

        (void) context;
        snprintf(noted->id, sizeof(noted->id), "%s", request->exec_id);
        call_reply(call, "", 0);
        protobuf_free(&request->base);
}

static uint8_t poured[FAKE_POUR];

#define POUR_CHUNK ((size_t) 100 * 1000) /* of a one-shot */

static void run_command(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__RunCommandRequest *request = decode(&hutch__v1__run_command_request__descriptor, message, len);
        Hutch__V1__RunCommandResponse response = HUTCH__V1__RUN_COMMAND_RESPONSE__INIT;
        Hutch__V1__Exec exec = HUTCH__V1__EXEC__INIT;
        typeof(told->calls[0]) *noted = note(call);

        (void) context;
        snprintf(noted->request_id, sizeof(noted->request_id), "%s", request->request_id);
        exec.id = (char *) "exec-0";
        response.exec = &exec;
        if (request->spec && request->spec->timeout)
                noted->exec_timeout = (uint64_t) request->spec->timeout->seconds;
        response.stdout = request->input;
        if (request->spec && str_equal(request->spec->argv[0], "pour"))
                response.stdout = (ProtobufCBinaryData){ .data = poured, .len = FAKE_POUR };
        call_reply_protobuf(call, &response.base);
        protobuf_free(&request->base);
}

/* ---- One-shots ---- */

static void send_once_started(Call *call) {
        Hutch__V1__ExecResponse response = HUTCH__V1__EXEC_RESPONSE__INIT;
        Hutch__V1__ExecStarted started = HUTCH__V1__EXEC_STARTED__INIT;
        Hutch__V1__EffectiveLimits effective = HUTCH__V1__EFFECTIVE_LIMITS__INIT;

        effective.profile = (char *) "strict";
        started.sandbox_id = (char *) "sandbox-once";
        started.effective = &effective;
        response.item_case = HUTCH__V1__EXEC_RESPONSE__ITEM_STARTED;
        response.started = &started;
        (void) call_send_protobuf(call, &response.base);
}

static void send_once_output(Call *call, uint64_t offset, const uint8_t *data, size_t len) {
        Hutch__V1__ExecResponse response = HUTCH__V1__EXEC_RESPONSE__INIT;
        Hutch__V1__OutputChunk chunk = HUTCH__V1__OUTPUT_CHUNK__INIT;

        chunk.stream = HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT;
        chunk.offset = offset;
        chunk.data = (ProtobufCBinaryData){ .data = (uint8_t *) data, .len = len };
        response.item_case = HUTCH__V1__EXEC_RESPONSE__ITEM_OUTPUT;
        response.output = &chunk;
        (void) call_send_protobuf(call, &response.base);
}

static void send_once_exit(Call *call, size_t n_stdout) {
        Hutch__V1__ExecResponse response = HUTCH__V1__EXEC_RESPONSE__INIT;
        Hutch__V1__ExecExit exit = HUTCH__V1__EXEC_EXIT__INIT;
        Hutch__V1__ExecResult result = HUTCH__V1__EXEC_RESULT__INIT;
        Hutch__V1__StreamSummary summary = HUTCH__V1__STREAM_SUMMARY__INIT;

        summary.total_bytes = n_stdout;
        result.stdout = &summary;
        result.end_reason = HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_EXITED;
        exit.exit_code = 7;
        exit.result = &result;
        response.item_case = HUTCH__V1__EXEC_RESPONSE__ITEM_EXIT;
        response.exit = &exit;
        (void) call_send_protobuf(call, &response.base);
}

static void exec_once(Call *call, const uint8_t *message, size_t len, void *context) {
        Hutch__V1__ExecRequest *request = decode(&hutch__v1__exec_request__descriptor, message, len);
        typeof(told->calls[0]) *noted = note(call);
        const char *program = request->argv[0];
        size_t n_printed = request->input.len;

        snprintf(noted->request_id, sizeof(noted->request_id), "%s", request->request_id);
        if (str_equal(program, "refuse")) {
                call_fail_with(call, STATUS_RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", "there are too many");
                protobuf_free(&request->base);
                return;
        }

        send_once_started(call);
        if (str_equal(program, "break")) {
                die_soon(context);
        } else if (str_equal(program, "vanish")) {
                call_finish(call, STATUS_OK, NULL);
        } else if (!str_equal(program, "hang")) {
                send_once_output(call, 0, request->input.data, request->input.len);
                for (; str_equal(program, "pour") && n_printed < FAKE_POUR; n_printed += POUR_CHUNK)
                        send_once_output(call, n_printed, poured, POUR_CHUNK);
                send_once_exit(call, n_printed);
                if (str_equal(program, "babble"))
                        send_once_output(call, n_printed, (const uint8_t *) "more", 4);
                call_finish(call, STATUS_OK, NULL);
        }
        protobuf_free(&request->base);
}

/* ---- The process ---- */

/* Gets @number when the parent ends; @parent may have ended already. */
static void end_with_parent(pid_t parent, int number) {
        (void) prctl(PR_SET_PDEATHSIG, number);
        if (getppid() != parent)
                (void) raise(number);
}

static int remove_folder(void) {
        static const char *const left[] = { "s",          "mute.s",     "ca.pem",     "ca.key",
                                            "server.pem", "server.key", "client.pem", "client.key" };
        int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

        for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
                (void) unlinkat(fd, left[i], 0);
        (void) close(fd);
        return rmdir(folder);
}

/* A test that runs out of memory ends without its tear down. */
_Noreturn static void on_test_gone(int number) {
        (void) number;
        (void) remove_folder();
        _exit(1);
}

_Noreturn static void serve(int fd, TlsContext *tls) {
        uv_loop_t loop;
        const Method methods[] = {
                { .path = "/hutch.v1.SystemService/Ping", .handle = ping },
                { .path = "/hutch.v1.SystemService/GetInfo", .handle = get_info },
                { .path = "/hutch.v1.AgentSandboxService/CreateSandbox", .handle = create_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/GetSandbox", .handle = get_sandbox },
                { .path = "/hutch.v1.AgentSandboxService/ListSandboxes", .handle = list_sandboxes },
                { .path = "/hutch.v1.AgentSandboxService/DeleteSandbox", .handle = hang },
                { .path = "/hutch.v1.AgentSandboxService/WatchEvents", .handle = watch_events, .context = &loop },
                { .path = "/hutch.v1.ExecService/ReadExecOutput", .handle = read_exec_output, .context = &loop },
                { .path = "/hutch.v1.ExecService/AttachExec", .start = attach_exec, .context = &loop },
                { .path = "/hutch.v1.ExecService/CancelExec", .handle = cancel_exec },
                { .path = "/hutch.v1.ExecService/RunCommand", .handle = run_command },
                { .path = "/hutch.v1.SandboxExecService/Exec", .handle = exec_once, .context = &loop },
                { .path = "/hutch.v1.FileService/DownloadFile", .handle = download_file, .context = &loop },
        };
        MethodTable *table = method_table_new();
        SessionLimits limits = session_limits_default;
        ServerOptions options = server_options_default;
        Server *server;

        limits.max_message = 32 << 20;
        options.limits = &limits;
        end_with_parent(supervisor, SIGKILL);
        if (!table || uv_loop_init(&loop) < 0 ||
            method_table_add(table, methods, sizeof(methods) / sizeof(methods[0])) < 0 ||
            server_new(&loop, table, &options, &server) < 0 || server_listen_fd(server, fd, tls, NULL) < 0)
                _exit(2);
        (void) uv_run(&loop, UV_RUN_DEFAULT);
        _exit(2);
}

/* Has one daemon follow the other. */
_Noreturn static void supervise(int fd, TlsContext *tls, pid_t test) {
        end_with_parent(test, SIGKILL);
        supervisor = getpid();
        for (;;) {
                pid_t pid = fork();
                int status;

                if (pid == 0)
                        serve(fd, tls);
                if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
                        _exit(1);
        }
}

/* Has a daemon serve @fd, which listens. */
static void begin(int fd, TlsContext *tls, void **state) {
        pid_t test = getpid();

        told->sandbox_state = 2;
        supervisor = fork();
        assert_int_not_equal(supervisor, -1);
        if (supervisor == 0)
                supervise(fd, tls, test);
        (void) close(fd);
        *state = told;
}

/* Has the folder removed when the test is gone, by a process that who ends all of the test's does not find. */
static void begin_cleaner(void) {
        pid_t test = getpid();

        cleaner = fork();
        assert_int_not_equal(cleaner, -1);
        if (cleaner == 0) {
                (void) setpgid(0, 0);
                (void) signal(SIGTERM, on_test_gone);
                end_with_parent(test, SIGTERM);
                for (;;)
                        (void) pause();
        }
        (void) setpgid(cleaner, 0);
}

static void prepare(void) {
        told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        snprintf(folder, sizeof(folder), "/tmp/hutch-fake-XXXXXX");
        assert_non_null(mkdtemp(folder));
        begin_cleaner();
}

int fake_daemon_set_up(void **state) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        prepare();
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
        snprintf(fake_daemon_address, sizeof(fake_daemon_address), "unix:%s", address.sun_path);
        assert_int_equal(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 100), 0);
        begin(fd, NULL, state);
        return 0;
}

int fake_daemon_set_up_tls(void **state) {
        static const CertificateSpec specs[] = {
                { .name = "ca", .is_ca = true },
                { .name = "server", .issuer = "ca", .is_for = "DNS:localhost,IP:127.0.0.1" },
                { .name = "client", .issuer = "ca" },
        };
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        _cleanup_(tls_context_unrefp) TlsContext *tls = NULL;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        socklen_t len = sizeof(address);

        prepare();
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
                certificate_make(folder, &specs[i]);
        const TlsServerOptions options = {
                .certificate_file = fake_daemon_file("server", ".pem"),
                .key_file = fake_daemon_file("server", ".key"),
                .client_ca_file = fake_daemon_file("ca", ".pem"),
                .client_certificates = TLS_CLIENT_CERTIFICATES_REQUIRED,
        };
        assert_int_equal(tls_context_new_server(&options, &tls, NULL), 0);
        assert_int_equal(bind(fd, (const struct sockaddr *) &address, len), 0);
        assert_int_equal(listen(fd, 100), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *) &address, &len), 0);
        snprintf(fake_daemon_address, sizeof(fake_daemon_address), "127.0.0.1:%u", ntohs(address.sin_port));
        begin(fd, tls, state);
        return 0;
}

const char *fake_daemon_file(const char *name, const char *suffix) {
        return certificate_file(folder, name, suffix);
}

int fake_daemon_tear_down(void **state) {
        int status = 0;

        (void) state;
        (void) waitpid(supervisor, &status, WNOHANG);
        assert_int_equal(status, 0); /* it has not given up */
        (void) kill(supervisor, SIGKILL);
        (void) waitpid(supervisor, NULL, 0);
        (void) kill(cleaner, SIGKILL);
        (void) waitpid(cleaner, NULL, 0);
        assert_int_equal(remove_folder(), 0);
        (void) munmap(told, sizeof(*told));
        return 0;
}

int fake_daemon_count(const FakeDaemon *daemon, const char *method) {
        int n = 0;

        for (int i = 0; i < daemon->n_calls && i < FAKE_CALLS; i++)
                n += str_equal(daemon->calls[i].method, method);
        return n;
}

void rule_holds(const char *test, const char *rule) {
        const char *results = getenv("HUTCH_CONFORMANCE_DIR");
        char path[4096];
        FILE *file;

        if (!results)
                return;

        snprintf(path, sizeof(path), "%s/c-libhutch.tsv", results);
        file = fopen(path, "ae");
        assert_non_null(file);
        fprintf(file, "%s\tpass\tlibhutch/%s\n", rule, test);
        assert_int_equal(fclose(file), 0);
}
