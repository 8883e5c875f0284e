/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the loop between a command in a sandbox and the descriptors and signals of this process. What does
 * not: the sandbox's life (run.c), and the stream itself (libhutch). */

#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/exit-codes.h"
#include "cli/report.h"
#include "cli/terminal.h"

#define INPUT_SIZE ((size_t) 64 << 10)

/* A pipe that poll(2) calls writable takes this much without blocking, so that signals are always heard. */
#define PIECE_SIZE ((size_t) 4096)

/* How far a reader of ours may be behind: a command does not wait for who reads what it prints, so that all beyond what
 * the daemon keeps of it would be lost. */
#define OUTPUT_KEPT ((uint64_t) 1 << 30)

DEFINE_CLEANUP(HutchExecStream *, hutch_exec_stream_free);

typedef struct Loop {
        const Session *session;
        Signals *signals;
        HutchExecStream *stream;
        Terminal terminal;

        /* What is to be written next. */
        HutchChunk chunk;
        int output;       /* where it goes; -1: there is nothing */
        uint64_t next[2]; /* where the next ones of stdout and stderr should begin */
        uint64_t lost;    /* bytes that never came */
        bool noted_limits;

        /* What was read and not yet taken. */
        char *input;
        size_t input_len;
        bool input_open;
} Loop;

void session_choose_input(Session *session, const Arguments *arguments, bool input) {
        bool person = terminal_is_interactive(), no_terminal = arguments_have(arguments, "no-tty");

        session->exec.terminal = !no_terminal && (person || arguments_have(arguments, "tty"));
        session->exec.stdin_stream = input || person || arguments_have(arguments, "interactive");
        if (session->exec.terminal)
                terminal_size(&session->exec.rows, &session->exec.columns);
        /* What stops a process that reads from a terminal which is not its own now. */
        if (isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != getpgrp())
                session->exec.stdin_stream = false;
}

/* ---- Output ---- */

/* Takes the next chunk, unless there is one. As hutch_exec_stream_next(). */
static int take_chunk(Loop *loop, HutchError **ret_error) {
        uint64_t *next;
        int r;

        if (loop->output >= 0)
                return 1;

        r = hutch_exec_stream_next(loop->stream, false, &loop->chunk, ret_error);
        if (r != 1)
                return r;

        loop->output = loop->chunk.stream == STDERR_FILENO ? STDERR_FILENO : STDOUT_FILENO;
        next = &loop->next[loop->output == STDERR_FILENO];
        loop->lost += loop->chunk.offset - *next;
        *next = loop->chunk.offset + loop->chunk.len;
        return 1;
}

static bool never_blocks(int fd) {
        struct stat info;

        return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

/* Writes a piece of the chunk. */
static int write_chunk(Loop *loop) {
        size_t len = loop->chunk.len;
        ssize_t n;

        if (len > PIECE_SIZE && !never_blocks(loop->output))
                len = PIECE_SIZE;
        n = len > 0 ? write(loop->output, loop->chunk.data, len) : 0;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n < 0 && loop->output == STDOUT_FILENO)
                return errno == EIO && loop->terminal.raw ? -EPIPE : -errno; /* EIO: the terminal is gone */
        if (n < 0)
                n = (ssize_t) loop->chunk.len; /* nobody reads errors */

        loop->chunk.data += n;
        loop->chunk.len -= (size_t) n;
        if (loop->chunk.len == 0)
                loop->output = -1;
        return 0;
}

/* ---- Input ---- */

static int send_input(Loop *loop, HutchError **ret_error) {
        int r = hutch_exec_stream_write(loop->stream, false, loop->input, loop->input_len, ret_error);

        if (r == -EAGAIN)
                return 0;
        loop->input_len = 0;
        return r < 0 ? r : 0;
}

static int read_input(Loop *loop, HutchError **ret_error) {
        ssize_t n = read(STDIN_FILENO, loop->input, INPUT_SIZE);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0) {
                loop->input_open = false;
                return hutch_exec_stream_close_input(loop->stream, ret_error);
        }

        loop->input_len = (size_t) n;
        return send_input(loop, ret_error);
}

/* ---- Signals ---- */

static int resize(Loop *loop, HutchError **ret_error) {
        uint32_t rows, columns;

        terminal_size(&rows, &columns);
        if (!loop->session->exec.terminal || rows == 0)
                return 0;
        return hutch_exec_stream_resize(loop->stream, rows, columns, ret_error);
}

static int take_signal(Loop *loop, HutchError **ret_error) {
        int number = signals_take(loop->signals);

        if (number == SIGCONT && loop->terminal.raw)
                terminal_make_raw(&loop->terminal); /* a shell has changed it meanwhile */
        if (number == SIGCONT || number == SIGWINCH)
                return resize(loop, ret_error);
        if (signals_note_end(loop->signals, number))
                return loop->session->once ? -EINTR : hutch_exec_stream_signal(loop->stream, number, ret_error);
        return 0;
}

/* ---- The loop ---- */

static int earlier(int a, int b) {
        if (a < 0 || b < 0)
                return a < 0 ? b : a;
        return a < b ? a : b;
}

/* Waits until something can be done, and does it. */
static int step(Loop *loop, HutchError **ret_error) {
        HutchClient *client = loop->session->client;
        bool reads = loop->input_open && loop->input_len == 0 && hutch_exec_stream_is_writable(loop->stream);
        struct pollfd fds[] = {
                { .fd = hutch_client_fd(client), .events = POLLIN },
                { .fd = loop->signals->fd, .events = POLLIN },
                { .fd = reads ? STDIN_FILENO : -1, .events = POLLIN },
                { .fd = loop->output, .events = POLLOUT },
        };
        int r = 0;

        (void) poll(fds, sizeof(fds) / sizeof(fds[0]),
                    earlier(hutch_client_timeout(client), signals_timeout(loop->signals)));
        if (fds[3].revents)
                r = write_chunk(loop);
        if (r == 0 && fds[1].revents)
                r = take_signal(loop, ret_error);
        if (r == 0 && signals_timeout(loop->signals) == 0)
                r = -EINTR;
        if (r == 0 && fds[2].revents)
                r = read_input(loop, ret_error);
        hutch_client_dispatch(client);
        if (r == 0 && loop->input_len > 0 && hutch_exec_stream_is_writable(loop->stream))
                r = send_input(loop, ret_error);
        return r;
}

/* Tells once what limits a one-shot has, as soon as that is known. */
static void note_limits(Loop *loop) {
        const void *limits;
        size_t len;

        if (loop->noted_limits || !loop->session->note_limits)
                return;
        limits = hutch_exec_stream_limits(loop->stream, &len);
        loop->noted_limits = limits;
        if (limits)
                loop->session->note_limits(limits, len, loop->session->user);
}

/* Until the exec has ended and all is written. */
static int run_loop(Loop *loop, HutchError **ret_error) {
        bool raw = loop->session->exec.terminal && loop->session->exec.stdin_stream && isatty(STDIN_FILENO);
        int r;

        for (;;) {
                r = take_chunk(loop, ret_error);
                note_limits(loop);
                if (r == 0 || (r < 0 && r != -EAGAIN))
                        return r;
                /* Not before the command is there: until then Ctrl-C is for us. */
                if (raw && !loop->terminal.raw && hutch_exec_stream_exec(loop->stream))
                        terminal_make_raw(&loop->terminal);
                r = step(loop, ret_error);
                if (r < 0)
                        return r;
        }
}

/* The exit code; what there is to say about the end is said. */
static int exit_code_of(const HutchExec *exec, uint64_t lost) {
        if (lost > 0) {
                report_note("%" PRIu64 " bytes of its output are lost: they were read too slowly", lost);
                return EXIT_HUTCH_FAILED;
        }
        if (exec->message[0])
                report_note("%s", exec->message);
        else if (!exec->has_exit_code)
                report_note("the command has no exit code: it is %s", hutch_exec_state_name(exec->state));
        return exec->has_exit_code ? exec->exit_code : EXIT_HUTCH_FAILED;
}

typedef struct Cancel {
        const Session *session;
        const char *exec_id;
} Cancel;

static int cancel(void *user) {
        const Cancel *cancel = user;

        return hutch_exec_cancel(cancel->session->client, cancel->session->sandbox_id, cancel->exec_id, 0, NULL, NULL);
}

/* Ends the exec that is given up, and waits until the daemon knows: what is freed is not told to a process that ends.
 */
static void cancel_exec(const Session *session, const HutchExecStream *stream, Signals *signals) {
        const HutchExec *exec = hutch_exec_stream_exec(stream);

        if (exec && signals_call(signals, cancel, &(Cancel){ session, exec->id }) == -EINTR)
                _exit(EXIT_SIGNAL + signals->end);
}

static int run_once(const Session *session, Signals *signals, int *ret_exit_code, HutchError **ret_error) {
        _cleanup_(hutch_exec_stream_freep) HutchExecStream *stream = NULL;
        _cleanup_free_ char *input = new0(char, INPUT_SIZE);
        Loop loop = {
                .session = session,
                .signals = signals,
                .output = -1,
                .input = input,
                .input_open = session->exec.stdin_stream,
        };
        int r;

        if (session->once)
                r = hutch_once_start_encoded(session->client, session->once, session->once_len, NULL, &stream,
                                             ret_error);
        else
                r = hutch_exec_start(session->client, session->sandbox_id, &session->exec, NULL, &stream, ret_error);
        if (r < 0)
                return r;

        loop.stream = stream;
        r = run_loop(&loop, ret_error);
        terminal_restore(&loop.terminal);
        if (r < 0 && (!*ret_error || signals->end) && !session->once)
                cancel_exec(session, stream, signals);
        if (r == 0)
                *ret_exit_code = exit_code_of(hutch_exec_stream_exec(stream), loop.lost);
        return r;
}

/* Whether the daemon does not keep as much as was asked for. */
static bool is_about_output_limit(const HutchError *error) {
        HutchViolation violation;

        for (size_t i = 0; error && hutch_error_violation(error, i, &violation); i++)
                if (str_has_suffix(violation.field, "output_limit_bytes"))
                        return true;
        return false;
}

int session_run(const Session *session, Signals *signals, int *ret_exit_code, HutchError **ret_error) {
        Session more = *session;
        int r;

        if (session->once)
                return run_once(session, signals, ret_exit_code, ret_error);

        more.exec.output_limit = OUTPUT_KEPT;
        r = run_once(&more, signals, ret_exit_code, ret_error);
        if (r == 0 || !is_about_output_limit(*ret_error))
                return r;

        /* An operator allows less. Nothing has run, and no input was read. */
        hutch_error_free(*ret_error);
        *ret_error = NULL;
        return run_once(session, signals, ret_exit_code, ret_error);
}

int session_report(int r, const HutchError *error, const Signals *signals) {
        if (r == -EINTR || signals->end)
                return EXIT_SIGNAL + signals->end;
        if (error)
                return report_error(error, NULL, EXIT_HUTCH_FAILED);
        if (r != -EPIPE)
                report_note("cannot write the command's output: %s", strerror(-r));
        return EXIT_HUTCH_FAILED;
}
