/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what an exec prints as it comes, and what it reads. What does not: calls with one message each way
 * (exec.c). */

#include <errno.h>
#include <hutch/hutch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/exec-message.h"
#include "client/exec-stream.h"
#include "client/outcall.h"
#include "client/request-id.h"
#include "client/views.h"
#include "model/ids.h"

#define STDIN_MAX ((size_t) 1 << 20) /* bytes in one message */
#define CANCEL_TIMEOUT (5 * NSEC_PER_SEC)
#define RESUMES_MAX 6               /* in a row that brought nothing */
#define MADE_MAX ((size_t) 1 << 20) /* bytes in memory of an exec that is put together here */

typedef Hutch__V1__AttachExecRequest AttachRequest;

typedef enum StreamKind {
        STREAM_ATTACHED, /* by AttachExec: it takes input */
        STREAM_READ,     /* by ReadExecOutput: it is resumed */
        STREAM_ONCE,     /* by SandboxExecService.Exec: the exec is made of what is told of it */
} StreamKind;

struct HutchExecStream {
        HutchClient *client;
        HutchCall *call;
        void *user;
        char sandbox_id[ID_LEN_MAX + 1];
        char exec_id[ID_LEN_MAX + 1];

        StreamKind kind;
        bool owns;  /* the exec, which ends with the stream */
        bool ended; /* it has told how the exec is at the end of the stream */
        ExecView exec;
        ProtobufCMessage *message; /* that the last chunk is in */
        HutchBuffer limits;        /* that are in force for a one-shot, encoded */

        /* For resuming. */
        HutchReadOptions options; /* with the offsets that were reached */
        bool seen[2];             /* something of the stream came, so its offset is known */
        unsigned n_resumes;
};

static void stream_free(HutchExecStream *stream) {
        (void) outcall_free(stream->call);
        exec_view_clear(&stream->exec);
        (void) protobuf_free(stream->message);
        hutch_buffer_clear(&stream->limits);
        free(stream);
}

DEFINE_CLEANUP(HutchExecStream *, stream_free);

static HutchExecStream *stream_new(HutchClient *client, const char *sandbox_id, const char *exec_id, void *user) {
        HutchExecStream *stream = try_new0(HutchExecStream, 1);

        if (!stream)
                return NULL;

        stream->client = client;
        stream->user = user;
        snprintf(stream->sandbox_id, sizeof(stream->sandbox_id), "%s", sandbox_id); /* both were checked */
        snprintf(stream->exec_id, sizeof(stream->exec_id), "%s", exec_id);
        return stream;
}

/* Begins the call with its first message. */
static int begin(HutchExecStream *stream, const char *method, const ProtobufCMessage *message, Failure *failure) {
        /* Attaching only reads, creating has a request id, and input waits for the first answer. */
        const OutcallOptions options = { .method = method, .safe = true, .user = stream->user };
        int r = outcall_new(stream->client, &options, &stream->call, failure);

        if (r == 0)
                r = outcall_queue(stream->call, message, failure);
        return r == -EPIPE ? 0 : r; /* why it is over, the first chunk will tell */
}

/* Checks that both ids are there. */
static int check_ids(const char *sandbox_id, const char *exec_id, const char *above, Failure *failure) {
        _cleanup_(checks_clear) Checks checks = { .above = above };

        checks_id(&checks, "sandbox_id", sandbox_id);
        checks_id(&checks, "exec_id", exec_id);
        return checks_result(&checks, failure);
}

/* ---- Beginning ---- */

static int start(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, void *user,
                 HutchExecStream **ret_stream, Failure *failure) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__CreateExecRequest create = HUTCH__V1__CREATE_EXEC_REQUEST__INIT;
        _cleanup_(exec_message_clear) ExecMessage exec = {};
        _cleanup_(stream_freep) HutchExecStream *stream = NULL;
        char exec_id[EXEC_ID_SIZE], request_id[REQUEST_ID_SIZE];
        int r = exec_message_fill(&exec, sandbox_id, spec, "create.", failure);

        if (r < 0)
                return r;
        /* The id is made here, so that the exec can be ended though the daemon has not answered yet. */
        if (exec_id_make(exec_id) < 0 || request_id_make(request_id) < 0)
                return error_set(&failure->error, -EIO, "INTERNAL", "there are no random numbers");

        stream = stream_new(client, sandbox_id, spec->id && *spec->id ? spec->id : exec_id, user);
        if (!stream)
                return -ENOMEM;
        create.sandbox_id = stream->sandbox_id;
        create.exec_id = stream->exec_id;
        create.request_id = spec->request_id && *spec->request_id ? (char *) spec->request_id : request_id;
        create.spec = &exec.spec;
        create.bound = spec->bound;
        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_CREATE;
        message.create = &create;
        r = begin(stream, "ExecService/AttachExec", &message.base, failure);
        if (r < 0)
                return r;

        stream->owns = true;
        *ret_stream = TAKE_PTR(stream);
        return 0;
}

static int attach(HutchExecStream *stream, uint64_t stdout_offset, uint64_t stderr_offset, Failure *failure) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__AttachTarget target = HUTCH__V1__ATTACH_TARGET__INIT;

        target.sandbox_id = stream->sandbox_id;
        target.exec_id = stream->exec_id;
        target.stdout_offset = stdout_offset;
        target.stderr_offset = stderr_offset;
        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_ATTACH;
        message.attach = &target;
        return begin(stream, "ExecService/AttachExec", &message.base, failure);
}

/* Begins to read, or goes on from the offsets that were reached. */
static int read_on(HutchExecStream *stream, Failure *failure) {
        Hutch__V1__ReadExecOutputRequest request = HUTCH__V1__READ_EXEC_OUTPUT_REQUEST__INIT;
        const HutchReadOptions *options = &stream->options;
        Hutch__V1__OutputStream only = options->only_stdout ? HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT
                                                            : HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR;
        int r;

        request.sandbox_id = stream->sandbox_id;
        request.exec_id = stream->exec_id;
        request.streams = &only;
        request.n_streams = options->only_stdout != options->only_stderr;
        request.stdout_offset = options->stdout_offset;
        request.stderr_offset = options->stderr_offset;
        request.follow = options->follow;
        if (options->has_tail_lines) {
                request.opt_tail_lines_case = HUTCH__V1__READ_EXEC_OUTPUT_REQUEST__OPT_TAIL_LINES_TAIL_LINES;
                request.tail_lines = options->tail_lines;
        }
        r = begin(stream, "ExecService/ReadExecOutput", &request.base, failure);
        if (r == 0)
                hutch_call_end(stream->call);
        return r;
}

int hutch_exec_start(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, void *user,
                     HutchExecStream **ret_stream, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = start(client, sandbox_id, spec, user, ret_stream, &failure);

        return failure_tell(&failure, r, ret_error);
}

int exec_stream_once(HutchClient *client, const Hutch__V1__ExecRequest *request, void *user,
                     HutchExecStream **ret_stream, Failure *failure) {
        _cleanup_(stream_freep) HutchExecStream *stream = stream_new(client, "", "", user);
        int r;

        if (!stream)
                return -ENOMEM;
        stream->kind = STREAM_ONCE;
        r = begin(stream, "SandboxExecService/Exec", &request->base, failure);
        if (r < 0)
                return r;

        hutch_call_end(stream->call);
        *ret_stream = TAKE_PTR(stream);
        return 0;
}

int hutch_exec_attach(HutchClient *client, const char *sandbox_id, const char *exec_id, uint64_t stdout_offset,
                      uint64_t stderr_offset, void *user, HutchExecStream **ret_stream, HutchError **ret_error) {
        _cleanup_(stream_freep) HutchExecStream *stream = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        int r = check_ids(sandbox_id, exec_id, "attach.", &failure);

        if (r == 0) {
                stream = stream_new(client, sandbox_id, exec_id, user);
                r = stream ? attach(stream, stdout_offset, stderr_offset, &failure) : -ENOMEM;
        }
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        *ret_stream = TAKE_PTR(stream);
        return 0;
}

int hutch_exec_read(HutchClient *client, const char *sandbox_id, const char *exec_id, const HutchReadOptions *options,
                    void *user, HutchExecStream **ret_stream, HutchError **ret_error) {
        _cleanup_(stream_freep) HutchExecStream *stream = NULL;
        _cleanup_(failure_clear) Failure failure = {};
        int r = check_ids(sandbox_id, exec_id, NULL, &failure);

        if (r == 0) {
                stream = stream_new(client, sandbox_id, exec_id, user);
                r = stream ? 0 : -ENOMEM;
        }
        if (r == 0) {
                stream->kind = STREAM_READ;
                if (options)
                        stream->options = *options;
                r = read_on(stream, &failure);
        }
        if (r < 0)
                return failure_tell(&failure, r, ret_error);

        *ret_stream = TAKE_PTR(stream);
        return 0;
}

/* ---- Output ---- */

/* What the steps of all methods are here. */
typedef struct Step {
        const Hutch__V1__OutputChunk *output;
        const Hutch__V1__Exec *exec;
        const Hutch__V1__ExecStarted *started;
        const Hutch__V1__ExecExit *exit;
        bool is_end;
} Step;

static Step step_of_attached(const Hutch__V1__AttachExecResponse *message) {
        switch (message->item_case) {
        case HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ATTACHED:
                return (Step){ .exec = message->attached };
        case HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_OUTPUT:
                return (Step){ .output = message->output };
        case HUTCH__V1__ATTACH_EXEC_RESPONSE__ITEM_ENDED:
                return (Step){ .exec = message->ended, .is_end = true };
        default:
                return (Step){};
        }
}

static Step step_of_read(const Hutch__V1__ReadExecOutputResponse *message) {
        switch (message->item_case) {
        case HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_OUTPUT:
                return (Step){ .output = message->output };
        case HUTCH__V1__READ_EXEC_OUTPUT_RESPONSE__ITEM_EXEC:
                return (Step){ .exec = message->exec, .is_end = true };
        default:
                return (Step){};
        }
}

static Step step_of_once(const Hutch__V1__ExecResponse *message) {
        switch (message->item_case) {
        case HUTCH__V1__EXEC_RESPONSE__ITEM_STARTED:
                return (Step){ .started = message->started };
        case HUTCH__V1__EXEC_RESPONSE__ITEM_OUTPUT:
                return (Step){ .output = message->output };
        case HUTCH__V1__EXEC_RESPONSE__ITEM_EXIT:
                return (Step){ .exit = message->exit, .is_end = true };
        default:
                return (Step){};
        }
}

static Step step_of(const HutchExecStream *stream) {
        switch (stream->kind) {
        case STREAM_READ:
                return step_of_read((const Hutch__V1__ReadExecOutputResponse *) stream->message);
        case STREAM_ONCE:
                return step_of_once((const Hutch__V1__ExecResponse *) stream->message);
        default:
                return step_of_attached((const Hutch__V1__AttachExecResponse *) stream->message);
        }
}

/* Keeps the exec as it is told, with the message that it is in. */
static int keep_exec(HutchExecStream *stream, const Hutch__V1__Exec *exec) {
        exec_view_clear(&stream->exec);
        stream->exec.message = TAKE_PTR(stream->message);
        return exec_view_fill(&stream->exec, exec);
}

/* Keeps an exec that was put together here. */
static int keep_made_exec(HutchExecStream *stream, const Hutch__V1__Exec *exec) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r = protobuf_pack(&exec->base, &bytes, &len);

        if (r < 0)
                return r;
        exec_view_clear(&stream->exec);
        r = protobuf_unpack(&hutch__v1__exec__descriptor, bytes, len, MADE_MAX, &stream->exec.message);
        return r < 0 ? r : exec_view_fill(&stream->exec, (const Hutch__V1__Exec *) stream->exec.message);
}

/* Keeps what took effect, and the exec as far as it is known. */
static int keep_started(HutchExecStream *stream, const Hutch__V1__ExecStarted *started) {
        Hutch__V1__Exec exec = HUTCH__V1__EXEC__INIT;

        snprintf(stream->sandbox_id, sizeof(stream->sandbox_id), "%s", started->sandbox_id);
        hutch_buffer_clear(&stream->limits);
        if (started->effective &&
            protobuf_pack(&started->effective->base, &stream->limits.data, &stream->limits.len) < 0)
                return -ENOMEM;
        exec.sandbox_id = stream->sandbox_id;
        exec.state = HUTCH__V1__EXEC_STATE__EXEC_STATE_PENDING;
        return keep_made_exec(stream, &exec);
}

static Hutch__V1__ExecState state_after(Hutch__V1__ExecEndReason reason) {
        switch (reason) {
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_TIMED_OUT:
                return HUTCH__V1__EXEC_STATE__EXEC_STATE_TIMED_OUT;
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_NOT_STARTED:
                return HUTCH__V1__EXEC_STATE__EXEC_STATE_FAILED;
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_CANCELLED:
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_SANDBOX_STOPPED:
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_SANDBOX_DELETED:
        case HUTCH__V1__EXEC_END_REASON__EXEC_END_REASON_SANDBOX_FAILED:
                return HUTCH__V1__EXEC_STATE__EXEC_STATE_CANCELLED;
        default:
                return HUTCH__V1__EXEC_STATE__EXEC_STATE_EXITED;
        }
}

static int keep_exit(HutchExecStream *stream, const Hutch__V1__ExecExit *exit) {
        Hutch__V1__ExecResult result = HUTCH__V1__EXEC_RESULT__INIT;
        Hutch__V1__Exec exec = HUTCH__V1__EXEC__INIT;

        if (exit->result)
                result = *exit->result;
        result.opt_exit_code_case = HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE;
        result.exit_code = exit->exit_code;
        exec.sandbox_id = stream->sandbox_id;
        exec.state = state_after(result.end_reason);
        exec.stdout_bytes = result.stdout ? result.stdout->total_bytes : 0;
        exec.stderr_bytes = result.stderr ? result.stderr->total_bytes : 0;
        exec.result = &result;
        return keep_made_exec(stream, &exec);
}

static int keep_step(HutchExecStream *stream, const Step *step) {
        if (step->started)
                return keep_started(stream, step->started);
        if (step->exit)
                return keep_exit(stream, step->exit);
        return step->exec ? keep_exec(stream, step->exec) : 0;
}

/* Takes a chunk, and notes how far it goes. */
static void take_chunk(HutchExecStream *stream, const Hutch__V1__OutputChunk *output, HutchChunk *ret_chunk) {
        bool is_stderr = output->stream == HUTCH__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR;
        HutchReadOptions *options = &stream->options;

        *(is_stderr ? &options->stderr_offset : &options->stdout_offset) = output->offset + output->data.len;
        stream->seen[is_stderr] = true;
        stream->n_resumes = 0;
        *ret_chunk = (HutchChunk){
                .stream = is_stderr ? 2 : 1,
                .offset = output->offset,
                .data = (const char *) output->data.data,
                .len = output->data.len,
        };
}

/* The connection is lost. Goes on from where the stream has come to, or fails. */
static int resume(HutchExecStream *stream, int r, Failure *failure) {
        HutchReadOptions *options = &stream->options;

        if (stream->kind != STREAM_READ || failure->error.code != STATUS_UNAVAILABLE ||
            stream->n_resumes == RESUMES_MAX)
                return r;

        /* The daemon sends the last lines of both streams at once. Of one that has sent none, none were there; but it
         * cannot be known where no lines were to begin. */
        if (options->has_tail_lines && (stream->seen[0] || stream->seen[1])) {
                if (options->tail_lines == 0 && stream->seen[0] != stream->seen[1])
                        return r;
                options->has_tail_lines = false;
        }

        stream->n_resumes++;
        failure_clear(failure);
        stream->call = outcall_free(stream->call);
        return read_on(stream, failure);
}

static int next(HutchExecStream *stream, bool wait, HutchChunk *ret_chunk, Failure *failure) {
        static const ProtobufCMessageDescriptor *const types[] = {
                [STREAM_ATTACHED] = &hutch__v1__attach_exec_response__descriptor,
                [STREAM_READ] = &hutch__v1__read_exec_output_response__descriptor,
                [STREAM_ONCE] = &hutch__v1__exec_response__descriptor,
        };

        while (!stream->ended) {
                Step step;
                int r;

                stream->message = protobuf_free(stream->message);
                r = stream->call ? outcall_receive_message(stream->call, wait, types[stream->kind], &stream->message,
                                                           failure)
                                 : -ECONNREFUSED;
                if (r == -EAGAIN)
                        return r;
                if (r == 0)
                        return error_set_code(&failure->error, STATUS_DATA_LOSS, -EPROTO, "STREAM_INCOMPLETE",
                                              "the daemon never told how the command ended");
                if (r < 0) {
                        r = resume(stream, r, failure);
                        if (r < 0)
                                return r;
                        continue;
                }

                step = step_of(stream);
                r = keep_step(stream, &step);
                if (r < 0)
                        return r;
                stream->ended = step.is_end;
                if (step.output && step.output->data.len > 0) {
                        take_chunk(stream, step.output, ret_chunk);
                        return 1;
                }
        }

        return 0;
}

int hutch_exec_stream_next(HutchExecStream *stream, bool wait, HutchChunk *ret_chunk, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = next(stream, wait, ret_chunk, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

const HutchExec *hutch_exec_stream_exec(const HutchExecStream *stream) {
        return stream->exec.message ? &stream->exec.view : NULL;
}

const void *hutch_exec_stream_limits(const HutchExecStream *stream, size_t *ret_len) {
        *ret_len = stream->limits.len;
        return stream->limits.data;
}

/* ---- Input ---- */

/* Until the daemon has answered, all that was sent may have to be sent again. So what must not come twice, bytes and
 * signals, waits for that. */

static int send_step(HutchExecStream *stream, const AttachRequest *message, Failure *failure) {
        int r;

        if (stream->kind != STREAM_ATTACHED)
                return error_set_code(&failure->error, STATUS_FAILED_PRECONDITION, -EBADF, "NO_SUCH_STREAM",
                                      "this stream takes no input");

        r = outcall_queue(stream->call, &message->base, failure);
        return r == -EPIPE ? 0 : r; /* after the end it goes nowhere */
}

static int write_all(HutchExecStream *stream, bool wait, const uint8_t *bytes, size_t len, Failure *failure) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;

        if (!wait && stream->kind == STREAM_ATTACHED && !outcall_takes_input(stream->call) &&
            !outcall_is_over(stream->call))
                return -EAGAIN;

        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN;
        while (len > 0) {
                size_t n = len < STDIN_MAX ? len : STDIN_MAX;
                int r;

                if (wait && stream->kind == STREAM_ATTACHED && !outcall_wait_for_input(stream->call))
                        return 0;
                message.stdin = (ProtobufCBinaryData){ .len = n, .data = (uint8_t *) bytes };
                r = send_step(stream, &message, failure);
                if (r < 0)
                        return r;
                bytes += n;
                len -= n;
        }

        return 0;
}

int hutch_exec_stream_write(HutchExecStream *stream, bool wait, const void *data, size_t len, HutchError **ret_error) {
        _cleanup_(failure_clear) Failure failure = {};
        int r = write_all(stream, wait, data, len, &failure);

        return r == -EAGAIN ? r : failure_tell(&failure, r, ret_error);
}

bool hutch_exec_stream_is_writable(const HutchExecStream *stream) {
        return stream->kind == STREAM_ATTACHED && outcall_takes_input(stream->call);
}

int hutch_exec_stream_close_input(HutchExecStream *stream, HutchError **ret_error) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__StdinClose close = HUTCH__V1__STDIN_CLOSE__INIT;
        _cleanup_(failure_clear) Failure failure = {};

        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN_CLOSE;
        message.stdin_close = &close;
        return failure_tell(&failure, send_step(stream, &message, &failure), ret_error);
}

int hutch_exec_stream_resize(HutchExecStream *stream, uint32_t rows, uint32_t columns, HutchError **ret_error) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        Hutch__V1__TerminalSize size = HUTCH__V1__TERMINAL_SIZE__INIT;
        _cleanup_(failure_clear) Failure failure = {};

        size.rows = rows;
        size.columns = columns;
        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_RESIZE;
        message.resize = &size;
        return failure_tell(&failure, send_step(stream, &message, &failure), ret_error);
}

int hutch_exec_stream_signal(HutchExecStream *stream, int signal, HutchError **ret_error) {
        AttachRequest message = HUTCH__V1__ATTACH_EXEC_REQUEST__INIT;
        _cleanup_(failure_clear) Failure failure = {};

        if (stream->kind == STREAM_ATTACHED)
                outcall_wait_for_answer(stream->call);
        message.item_case = HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_SIGNAL;
        message.signal = (uint32_t) signal;
        return failure_tell(&failure, send_step(stream, &message, &failure), ret_error);
}

/* ---- The end ---- */

void hutch_exec_stream_cancel(HutchExecStream *stream) {
        outcall_cancel(stream->call);
}

/* Ends the exec, without waiting for that. */
static void cancel_exec(const HutchExecStream *stream) {
        Hutch__V1__CancelExecRequest request = HUTCH__V1__CANCEL_EXEC_REQUEST__INIT;

        request.sandbox_id = (char *) stream->sandbox_id;
        request.exec_id = (char *) stream->exec_id;
        outcall_part(stream->client, "ExecService/CancelExec", &request.base, CANCEL_TIMEOUT);
}

void hutch_exec_stream_free(HutchExecStream *stream) {
        bool refused;

        if (!stream || !client_is_ours(stream->client))
                return;

        /* One that was refused never began. */
        refused = stream->owns && outcall_is_over(stream->call) && !stream->call->answered;
        if (stream->owns && !stream->ended && !refused)
                cancel_exec(stream);
        stream_free(stream);
}
