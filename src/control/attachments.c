/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: those who are attached to execs: they hear of changes once these are durable, read output from its
 * files, and send input through the runtime. What does not: the files' form (output/output-file.h). */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/memory.h"
#include "control/plane.h"
#include "output/output-file.h"

#define QUEUE_MAX (64 * 1024) /* bytes of memory for input that waits, before the sender has to */

typedef struct Stream {
        bool is_wanted;
        bool has_ended;
        bool was_read; /* some of it */
        uint64_t offset;
        int fd; /* -1: not open yet */
} Stream;

/* A step of input that came before it could be sent. */
typedef struct Input {
        struct Input *next;
        enum { INPUT_BYTES, INPUT_CLOSE, INPUT_RESIZE, INPUT_SIGNAL } kind;
        uint32_t rows, columns;
        uint32_t signal;
        size_t len;
        uint8_t bytes[];
} Input;

struct Attachment {
        Exec *exec;
        bool follow;
        const AttachmentEvents *events;
        void *user;
        Stream streams[2];
        int turn; /* the stream to be read next */

        RuntimeInput *input;
        bool input_is_closed;
        HutchError input_error; /* why some of it was lost, until it is told */
        Input *queue, **queue_end;
        size_t queued; /* bytes of memory */

        bool holds;
        Attachment *next, **prev; /* of the exec's */
        bool tell_changed, tell_readable, tell_writable, tell_input_failed;
        Attachment *next_notify, **prev_notify; /* @prev_notify NULL: not in the list */
};

/* Telling. */

static void notify(Attachment *attachment) {
        Control *control = attachment->exec->sandbox->control;

        if (attachment->prev_notify)
                return;
        attachment->next_notify = NULL;
        attachment->prev_notify = control->notify_end;
        *control->notify_end = attachment;
        control->notify_end = &attachment->next_notify;
        control->n_notify++;
        control_arm(control);
}

static void unnotify(Attachment *attachment) {
        Control *control = attachment->exec->sandbox->control;

        if (!attachment->prev_notify)
                return;
        *attachment->prev_notify = attachment->next_notify;
        if (attachment->next_notify)
                attachment->next_notify->prev_notify = attachment->prev_notify;
        if (control->notify_end == &attachment->next_notify)
                control->notify_end = attachment->prev_notify;
        attachment->prev_notify = NULL;
        control->n_notify--;
}

/* An exec that has ended meanwhile has lost nothing. */
static void tell_input_failed(Attachment *attachment) {
        _cleanup_(error_clear) HutchError err = attachment->input_error;

        attachment->input_error = (HutchError){};
        if (exec_is_active(attachment->exec))
                attachment->events->input_failed(attachment, &err, attachment->user);
}

/* Tells one thing, and the next when it is its turn again, as whoever hears it may let go of the attachment. */
static void tell_next(Attachment *attachment) {
        const AttachmentEvents *events = attachment->events;
        void (*event)(Attachment * attachment, void *user);

        if (attachment->tell_input_failed) {
                attachment->tell_input_failed = false;
                if (attachment->tell_changed || attachment->tell_readable || attachment->tell_writable)
                        notify(attachment);
                tell_input_failed(attachment);
                return;
        }

        if (attachment->tell_changed) {
                attachment->tell_changed = false;
                event = events->changed;
        } else if (attachment->tell_readable) {
                attachment->tell_readable = false;
                event = events->readable;
        } else {
                attachment->tell_writable = false;
                event = events->writable;
        }
        if (attachment->tell_readable || attachment->tell_writable)
                notify(attachment);
        if (event)
                event(attachment, attachment->user);
}

void attachments_notify(Control *control) {
        /* What comes up meanwhile waits for the next turn; each has up to four things to be told. */
        for (size_t n = 4 * control->n_notify; n > 0 && control->notify; n--) {
                Attachment *attachment = control->notify;

                unnotify(attachment);
                tell_next(attachment);
        }
}

void exec_tell_changed(Exec *exec) {
        for (Attachment *attachment = exec->attachments; attachment; attachment = attachment->next) {
                attachment->tell_changed = attachment->tell_readable = attachment->tell_writable = true;
                notify(attachment);
        }
}

void exec_tell_grew(Exec *exec) {
        for (Attachment *attachment = exec->attachments; attachment; attachment = attachment->next)
                if (attachment->follow) {
                        attachment->tell_readable = true;
                        notify(attachment);
                }
}

/* Has the runtime tell of more output exactly while somebody wants to hear of it. */
void exec_update_follow(Exec *exec) {
        RuntimeSandbox *remote = exec->sandbox->remote;
        bool wanted = false;

        for (const Attachment *attachment = exec->attachments; attachment; attachment = attachment->next)
                wanted |= attachment->follow;
        wanted = wanted && exec->record.state == EXEC_RUNNING && !exec->is_gone && remote;
        if (wanted == exec->is_followed)
                return;
        exec->is_followed = wanted;
        remote->verbs->follow_output(remote, exec->record.id, wanted);
}

/* Input. */

static void on_writable(void *user) {
        Attachment *attachment = user;

        attachment->tell_writable = true;
        notify(attachment);
}

/* Some input is lost, and nobody is to wait for what it would have done. */
static void fail_input(Attachment *attachment, const HutchError *err) {
        attachment->input_is_closed = true;
        error_clear(&attachment->input_error);
        (void) error_set_code(&attachment->input_error, err->code, -err->error, err->reason, "%s", error_message(err));
        attachment->tell_input_failed = true;
        notify(attachment);
}

static void on_closed(void *user, const HutchError *err) {
        Attachment *attachment = user;

        attachment->input_is_closed = true;
        if (err)
                fail_input(attachment, err);
        on_writable(attachment);
}

static const RuntimeInputEvents input_events = { .writable = on_writable, .closed = on_closed };

static int open_input(Attachment *attachment, HutchError *err) {
        RuntimeSandbox *remote = attachment->exec->sandbox->remote;

        if (attachment->input)
                return 0;
        attachment->input = remote->verbs->open_input(remote, attachment->exec->record.id, &input_events, attachment);
        if (!attachment->input)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "there is no memory for input to an exec");
        return 0;
}

/* Input to what has ended goes nowhere, as into a closed pipe; to what has not, `closed` is told. */
static int input_sent(int r, HutchError *err) {
        if (r >= 0 || r == -EPIPE)
                return 0;
        return r == -ENOMEM ? reason_set(err, r, REASON_HOST_EXHAUSTED, "there is no memory for input to an exec")
                            : reason_set(err, r, REASON_KEEPER_UNAVAILABLE, "input cannot be sent: %s", strerror(-r));
}

static int send_now(Attachment *attachment, const Input *input, const void *bytes, HutchError *err) {
        const RuntimeVerbs *verbs;
        int r;

        if (attachment->input_is_closed)
                return 0;
        r = open_input(attachment, err);
        if (r < 0)
                return r;

        verbs = attachment->input->verbs;
        switch (input->kind) {
        case INPUT_BYTES:
                return input_sent(verbs->send_input(attachment->input, bytes, input->len), err);
        case INPUT_CLOSE:
                return input_sent(verbs->close_stdin(attachment->input), err);
        case INPUT_RESIZE:
                return input_sent(verbs->resize(attachment->input, input->rows, input->columns), err);
        case INPUT_SIGNAL:
                return input_sent(verbs->send_signal(attachment->input, input->signal), err);
        }
        return 0;
}

static int queue(Attachment *attachment, const Input *input, const void *bytes, HutchError *err) {
        Input *copy = calloc(1, sizeof *copy + input->len);

        if (!copy)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "there is no memory for input to an exec");
        *copy = *input;
        copy->next = NULL;
        if (bytes)
                memcpy(copy->bytes, bytes, input->len);
        *attachment->queue_end = copy;
        attachment->queue_end = &copy->next;
        attachment->queued += sizeof *copy + input->len;
        return 0;
}

/* Input waits for the start and, after one of the daemon, for the runtime to have found the exec again. */
static bool input_waits(const Attachment *attachment) {
        const Sandbox *sandbox = attachment->exec->sandbox;

        switch (attachment->exec->record.state) {
        case EXEC_PENDING:
                return true;
        case EXEC_RUNNING:
                return !attachment->input && !attachment->input_is_closed &&
                       (!sandbox->remote || sandbox->needs_recovery || sandbox->operation == OPERATION_RECOVER);
        default:
                return false;
        }
}

static int send_input(Attachment *attachment, const Input *input, const void *bytes, HutchError *err) {
        if (!exec_is_active(attachment->exec))
                return 0;
        return input_waits(attachment) ? queue(attachment, input, bytes, err) : send_now(attachment, input, bytes, err);
}

static void send_queue(Attachment *attachment) {
        Input *input = TAKE_PTR(attachment->queue);

        attachment->queue_end = &attachment->queue;
        attachment->queued = 0;
        for (Input *next; input; input = next) {
                _cleanup_(error_clear) HutchError err = {};

                next = input->next;
                if (send_now(attachment, input, input->bytes, &err) < 0)
                        fail_input(attachment, &err);
                free(input);
        }
}

void exec_tell_started(Exec *exec) {
        for (Attachment *attachment = exec->attachments; attachment; attachment = attachment->next) {
                if (!input_waits(attachment))
                        send_queue(attachment);
                attachment->tell_readable = attachment->tell_writable = true;
                notify(attachment);
        }
}

static int check_stdin(const Attachment *attachment, HutchError *err) {
        const ExecSpec *spec = attachment->exec->record.spec;

        return spec->stdin_stream ? 0
                                  : reason_set(err, -ESTALE, REASON_NO_SUCH_STREAM,
                                               "exec '%s' has no stdin; ask for it when the exec is made",
                                               attachment->exec->record.id);
}

int attachment_send(Attachment *attachment, const void *bytes, size_t len, HutchError *err) {
        int r = check_stdin(attachment, err);

        if (r < 0 || len == 0)
                return r;
        return send_input(attachment, &(const Input){ .kind = INPUT_BYTES, .len = len }, bytes, err);
}

int attachment_close_stdin(Attachment *attachment, HutchError *err) {
        int r = check_stdin(attachment, err);

        return r < 0 ? r : send_input(attachment, &(const Input){ .kind = INPUT_CLOSE }, NULL, err);
}

int attachment_resize(Attachment *attachment, uint32_t rows, uint32_t columns, HutchError *err) {
        const Input input = { .kind = INPUT_RESIZE, .rows = rows, .columns = columns };

        if (!attachment->exec->record.spec->terminal)
                return reason_set(err, -ESTALE, REASON_NO_SUCH_STREAM, "exec '%s' has no terminal",
                                  attachment->exec->record.id);
        return send_input(attachment, &input, NULL, err);
}

int attachment_signal(Attachment *attachment, uint32_t number, HutchError *err) {
        const Input input = { .kind = INPUT_SIGNAL, .signal = number };
        int r = exec_apply(attachment->exec, EXEC_REQUEST_SIGNAL, NULL, NULL, err);

        return r < 0 ? r : send_input(attachment, &input, NULL, err);
}

bool attachment_can_send(const Attachment *attachment) {
        if (input_waits(attachment))
                return attachment->queued < QUEUE_MAX;
        return attachment->exec->record.state != EXEC_RUNNING || !attachment->input || attachment->input_is_closed ||
               attachment->input->verbs->input_is_writable(attachment->input);
}

/* Output. */

static bool has_ended_durably(const Exec *exec) {
        return !exec_is_active(exec) && !exec->is_changed;
}

static int open_stream(Attachment *attachment, int index) {
        Stream *stream = &attachment->streams[index];
        RuntimeSandbox *remote = sandbox_remote(attachment->exec->sandbox);

        int fd;

        if (stream->fd >= 0)
                return 0;
        fd = remote ? remote->verbs->open_output(remote, attachment->exec->record.id, index + 1) : -ENOENT;
        if (fd < 0)
                return fd;
        stream->fd = fd;
        return 0;
}

/* As attachment_read(), of one stream. */
static ssize_t read_stream(Attachment *attachment, int index, void *buffer, size_t size, uint64_t *ret_offset,
                           HutchError *err) {
        const Exec *exec = attachment->exec;
        Stream *stream = &attachment->streams[index];
        const StreamSummary *summary = index == 0 ? &exec->record.result.out : &exec->record.result.err;
        bool has_ended = has_ended_durably(exec); /* asked before reading: then nothing comes after it */
        ssize_t n;

        if (!stream->is_wanted || stream->has_ended)
                return -ENODATA;

        n = open_stream(attachment, index);
        if (n == 0)
                n = output_file_read(stream->fd, exec->record.spec->output_limit, stream->offset, buffer, size,
                                     ret_offset);
        if (n > 0) {
                stream->offset = *ret_offset + (uint64_t) n;
                stream->was_read = true;
                return n;
        }
        if (n < 0 && n != -ENOENT) {
                stream->has_ended = true;
                return reason_set(err, (int) n, REASON_IO_ERROR, "the output of exec '%s' cannot be read",
                                  exec->record.id);
        }
        if (!has_ended)
                return 0;

        stream->has_ended = true;
        if (!stream->was_read && stream->offset > summary->total)
                return reason_set(err, -ERANGE, REASON_OFFSET_OUT_OF_RANGE,
                                  "the offset %" PRIu64 " is beyond the end of the stream at %" PRIu64, stream->offset,
                                  summary->total);
        return -ENODATA;
}

ssize_t attachment_read(Attachment *attachment, void *buffer, size_t size, int *ret_stream, uint64_t *ret_offset,
                        HutchError *err) {
        ssize_t result = -ENODATA;

        for (int i = 0; i < 2; i++) {
                int index = attachment->turn ^ i;
                ssize_t n = read_stream(attachment, index, buffer, size, ret_offset, err);

                if (n > 0) {
                        *ret_stream = index + 1;
                        attachment->turn = !index;
                        return n;
                }
                if (n < 0 && n != -ENODATA)
                        return n;
                if (n == 0)
                        result = 0;
        }
        return result;
}

int attachment_seek_tail(Attachment *attachment, uint64_t lines, HutchError *err) {
        for (int i = 0; i < 2; i++) {
                Stream *stream = &attachment->streams[i];
                int r;

                if (!stream->is_wanted)
                        continue;
                r = open_stream(attachment, i);
                if (r == 0)
                        r = output_file_tail(stream->fd, attachment->exec->record.spec->output_limit, lines,
                                             &stream->offset);
                if (r < 0 && r != -ENOENT)
                        return reason_set(err, r, REASON_IO_ERROR, "the output of exec '%s' cannot be read",
                                          attachment->exec->record.id);
        }
        return 0;
}

ExecView attachment_exec(const Attachment *attachment) {
        return exec_view(attachment->exec);
}

/* Coming and going. */

int control_attach(Control *control, const Caller *caller, const char *sandbox_id, const char *exec_id, bool follow,
                   OutputPosition out, OutputPosition err_output, const AttachmentEvents *events, void *user,
                   Attachment **ret_attachment, HutchError *err) {
        Attachment *attachment;
        Exec *exec;
        int r;

        r = exec_find(control, caller, sandbox_id, exec_id, &exec, err);
        if (r < 0)
                return r;
        if (exec->sandbox->record.state == SANDBOX_DELETED) {
                (void) reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE,
                                  "sandbox '%s' was deleted, and the output of its execs with it", sandbox_id);
                error_add_pair(err, "state", "%s", sandbox_state_name(SANDBOX_DELETED));
                return -EBUSY;
        }
        if (exec == control->found_exec)
                exec_insert(TAKE_PTR(control->found_exec));

        attachment = new0(Attachment, 1);
        *attachment = (Attachment){
                .exec = exec,
                .follow = follow,
                .events = events,
                .user = user,
                .streams = {
                        { .is_wanted = out.wanted, .offset = out.offset, .fd = -1 },
                        { .is_wanted = err_output.wanted, .offset = err_output.offset, .fd = -1 },
                },
                .queue_end = &attachment->queue,
                .next = exec->attachments,
                .prev = &exec->attachments,
        };
        if (attachment->next)
                attachment->next->prev = &attachment->next;
        exec->attachments = attachment;
        exec->sandbox->n_attachments++;
        exec->sandbox->n_readers += events->readable != NULL;
        exec_update_follow(exec);
        sandbox_update_idle(exec->sandbox);
        *ret_attachment = attachment;
        return 0;
}

void attachment_hold(Attachment *attachment) {
        Exec *exec = attachment->exec;

        exec->n_holds += !attachment->holds;
        exec->claim_deadline = 0;
        attachment->holds = true;
}

bool attachment_release(Attachment *attachment, const Caller *caller) {
        Exec *exec = attachment->exec;
        bool is_last = attachment->holds && exec->n_holds == 1;

        exec->n_holds -= attachment->holds;
        attachment->holds = false;
        if (is_last && exec->record.bound && !exec->is_gone)
                exec_cancel(exec, exec->record.spec->kill_grace, caller);
        return is_last;
}

void attachment_leave(Attachment *attachment) {
        Exec *exec = attachment->exec;

        exec->n_holds -= attachment->holds;
        attachment->holds = false;
        if (exec->n_holds > 0 || !exec->record.bound || exec->is_gone)
                return;

        exec_await_claim(exec, exec->sandbox->control->options.repeat_time);
        sandbox_arm(exec->sandbox);
}

void exec_detach(Exec *exec) {
        for (Attachment *attachment = exec->attachments; attachment; attachment = attachment->next) {
                RuntimeInput *input = TAKE_PTR(attachment->input);

                if (input)
                        input->verbs->free_input(input);
                attachment->input_is_closed = true;
        }
        if (exec->is_followed)
                exec->sandbox->remote->verbs->follow_output(exec->sandbox->remote, exec->record.id, false);
        exec->is_followed = false;
}

Attachment *attachment_free(Attachment *attachment) {
        Exec *exec;
        Sandbox *sandbox;
        bool is_reader;

        if (!attachment)
                return NULL;
        exec = attachment->exec;
        sandbox = exec->sandbox;
        is_reader = attachment->events->readable != NULL;

        exec->n_holds -= attachment->holds;
        unnotify(attachment);
        *attachment->prev = attachment->next;
        if (attachment->next)
                attachment->next->prev = attachment->prev;
        if (attachment->input)
                attachment->input->verbs->free_input(attachment->input);
        for (Input *next; attachment->queue; attachment->queue = next) {
                next = attachment->queue->next;
                free(attachment->queue);
        }
        error_clear(&attachment->input_error);
        for (int i = 0; i < 2; i++)
                if (attachment->streams[i].fd >= 0)
                        (void) fd_close(attachment->streams[i].fd);
        free(attachment);

        sandbox->n_attachments--;
        sandbox->n_readers -= is_reader;
        exec_update_follow(exec);
        if (!exec->attachments) {
                if (exec->is_gone)
                        (void) exec_free(exec);
                else if (has_ended_durably(exec))
                        exec_drop(exec);
        }
        sandbox_update_idle(sandbox);
        sandbox_release(sandbox);
        return NULL;
}
