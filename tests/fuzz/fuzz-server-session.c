/* SPDX-License-Identifier: Apache-2.0 */

/* Input: what a client sends (http2-input.h), to a server session with methods of every kind. Whatever it is, each call
 * that began ends once, nothing stays in memory, and the answers are not out of proportion. */

#include "rpc/core/server-session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/peer.h"

#include "http2-input.h"

#define INPUT_NO_PREFACE 0x02 /* the client's preface and SETTINGS are part of the input */
#define INPUT_KEEPALIVE 0x04
#define INPUT_TIGHT 0x08 /* limits that are soon reached */
#define INPUT_SHY 0x10   /* handlers read only when the input says so */
#define INPUT_LAZY 0x20  /* one stream is dispatched, one buffer produced, and the rest is left for later */

#define POUR_MESSAGES 6
#define OUTPUT_PER_BYTE 2048
#define OUTPUT_ANYWAY 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Fuzz Fuzz;

/* A call that runs. */
typedef struct Running {
        Fuzz *fuzz;
        Call *call;
        struct Running *next;
        size_t n_sent;
        bool finished; /* the handler has finished it: no event but the end may come */
} Running;

struct Fuzz {
        ServerSession *session;
        SessionBudget budget;
        Running *running;
        size_t n_begun, n_ended;
        bool shy, lazy;
        uint64_t now;
        size_t n_in, n_out;
        size_t piece;
};

static Running *running_of(Call *call) {
        Running *running = call_user(call);

        assert(running->call == call);
        return running;
}

static void on_ended(Call *call, CallEnd how) {
        Running *running = running_of(call), **at = &running->fuzz->running;

        (void) how;
        assert(call_send(call, "late", 4) < 0);
        while (*at != running)
                at = &(*at)->next;
        *at = running->next;
        free(running);
}

static void finish(Call *call, StatusCode status, const char *message) {
        running_of(call)->finished = true;
        call_finish(call, status, message);
}

static void read_more(Call *call) {
        if (!running_of(call)->fuzz->shy)
                call_read(call);
}

static void on_count(Call *call, const uint8_t *message, size_t len) {
        (void) message, (void) len;
        assert(!running_of(call)->finished);
        read_more(call);
}

static void on_counted(Call *call) {
        assert(!running_of(call)->finished);
        running_of(call)->finished = true;
        call_reply(call, "counted", 7);
}

static void on_converse(Call *call, const uint8_t *message, size_t len) {
        assert(!running_of(call)->finished);
        if (len > 0 && message[0] == '!')
                finish(call, STATUS_ABORTED, "as you wish");
        else if (call_is_writable(call))
                assert(call_send(call, message, len) == 0);
        read_more(call);
}

static void on_conversed(Call *call) {
        assert(!running_of(call)->finished);
        finish(call, STATUS_OK, NULL);
}

static void pour_some(Call *call) {
        static const uint8_t block[2000];
        Running *running = running_of(call);

        assert(!running->finished);
        for (; running->n_sent < POUR_MESSAGES && call_is_writable(call); running->n_sent++)
                assert(call_send(call, block, sizeof(block)) == 0);
        if (running->n_sent == POUR_MESSAGES)
                finish(call, STATUS_OK, NULL);
}

static const CallEvents count_events = { .message = on_count, .half_closed = on_counted, .ended = on_ended };
static const CallEvents converse_events = { .message = on_converse, .half_closed = on_conversed, .ended = on_ended };
static const CallEvents pour_events = { .writable = pour_some, .ended = on_ended };
static const CallEvents hang_events = { .ended = on_ended };

static void follow(Call *call, Fuzz *fuzz, const CallEvents *events) {
        Running *running = new0(Running, 1);

        *running = (Running){ .fuzz = fuzz, .call = call, .next = fuzz->running };
        fuzz->running = running;
        call_set_events(call, events, running);
}

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        const Metadata *metadata = call_metadata(call);

        follow(call, context, &hang_events);
        for (size_t i = 0; i < metadata->n_entries; i++) {
                const MetadataEntry *entry = &metadata->entries[i];

                (void) metadata_add(call_initial_metadata(call), entry->name, entry->value, entry->value_len);
                (void) metadata_add(call_trailing_metadata(call), entry->name, entry->value, entry->value_len);
        }
        call_set_compression(call, true);
        running_of(call)->finished = true;
        call_reply(call, message, len);
}

static void pour(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len;
        follow(call, context, &pour_events);
        pour_some(call);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) message, (void) len;
        follow(call, context, &hang_events);
}

static void count(Call *call, void *context) {
        follow(call, context, &count_events);
        read_more(call);
}

static void converse(Call *call, void *context) {
        follow(call, context, &converse_events);
        read_more(call);
}

static void end_early(Call *call, void *context) {
        follow(call, context, &hang_events);
        call_read(call);
        assert(call_send(call, "early", 5) == 0);
        finish(call, STATUS_RESOURCE_EXHAUSTED, "no more \xe2\x82\xac");
}

static int on_begin(Call *call, void *context, HutchError *err) {
        Fuzz *fuzz = context;

        if (metadata_find(call_metadata(call), "x-refuse"))
                return error_set_code(err, STATUS_PERMISSION_DENIED, -EPERM, "REFUSED", "refused");
        fuzz->n_begun++;
        return 0;
}

static void on_end(Call *call, StatusCode status, CallEnd how, void *context) {
        Fuzz *fuzz = context;

        (void) call, (void) status, (void) how;
        fuzz->n_ended++;
}

static const char *const paths[] = {
        "/f.F/Echo", "/f.F/Pour", "/f.F/Hang", "/f.F/Count", "/f.F/Converse", "/f.F/Early", "/f.F/None", "broken",
};

/* Runs what is ready, and fetches what is to be sent. */
static void turn(Fuzz *fuzz) {
        static uint8_t buffer[SESSION_BUFFER_SIZE];
        Session *session = server_session_base(fuzz->session);
        ssize_t n;

        do {
                while (session_dispatch(session, fuzz->lazy ? 1 : 3) && !fuzz->lazy)
                        ;
                n = session_produce(session, buffer, sizeof(buffer));
                assert(n >= 0);
                fuzz->n_out += (size_t) n;
                assert(fuzz->n_out <= OUTPUT_ANYWAY + OUTPUT_PER_BYTE * fuzz->n_in);
        } while (!fuzz->lazy && (n > 0 || session->ready_first));

        assert(session->held <= session->buffered);
        assert(session->buffered == fuzz->budget.buffered && session->n_streams == fuzz->budget.streams);
        assert(session->n_streams > 0 || session->buffered == 0);
        assert(!session_is_finished(session) || session->broken || session->dead || session->n_streams == 0 ||
               !nghttp2_session_want_read(session->http2));
        assert(session->withheld == 0 || session->held > session->limits.max_held);
}

static void receive(Fuzz *fuzz, const uint8_t *bytes, size_t len) {
        size_t piece = fuzz->piece ? fuzz->piece : len;

        fuzz->n_in += len;
        for (size_t at = 0; at < len; at += piece) {
                size_t n = len - at < piece ? len - at : piece;

                (void) session_receive(server_session_base(fuzz->session), bytes + at, n, fuzz->now);
                turn(fuzz);
        }
}

static size_t write_request(Input *input, uint8_t ret_frame[static INPUT_FRAME_MAX]) {
        uint32_t stream = input_stream(input);
        uint8_t kind = input_byte(input), flags = input_byte(input), block[INPUT_FRAME_MAX - 9];
        size_t len = 0;

        len = field_write(block, len, ":method", flags & 0x02 ? "GET" : "POST");
        len = field_write(block, len, ":scheme", "http");
        len = field_write(block, len, ":path", paths[kind % (sizeof(paths) / sizeof(paths[0]))]);
        len = field_write(block, len, ":authority", "localhost");
        len = field_write(block, len, "te", "trailers");
        len = field_write(block, len, "content-type", "application/grpc");
        if (flags & 0x04)
                len = field_write(block, len, "grpc-timeout", "50m");
        if (flags & 0x08)
                len = field_write(block, len, "grpc-encoding", "gzip");
        if (flags & 0x10)
                len = field_write(block, len, "grpc-accept-encoding", "gzip");
        if (flags & 0x20)
                len = field_write(block, len, "x-bin", "AAEC");
        if (flags & 0x40)
                len = field_write(block, len, "x-refuse", "1");
        if (flags & 0x80)
                len = field_write(block, len, "x-long", "01234567890123456789012345678901234567890123456789");
        return frame_write(ret_frame, 1, 0x04 | (flags & 0x01), stream, block, len);
}

/* The call that @index points at does what nobody asked for. */
static void poke(Fuzz *fuzz, uint8_t operand) {
        Running *running = fuzz->running;

        for (uint8_t i = operand & 0x0f; running && i > 0; i--)
                running = running->next;
        if (!running)
                return;

        switch (operand >> 4) {
        case 0:
                (void) call_send(running->call, "poke", 4);
                break;
        case 1:
                finish(running->call, STATUS_UNAVAILABLE, "poked");
                break;
        case 2:
                running->finished = true;
                call_reply(running->call, "poke", 4);
                break;
        case 3:
                running->finished = true;
                call_finish_details(running->call, STATUS_ABORTED, "poked", "\0\1\2", 3);
                break;
        default:
                call_read(running->call);
        }
}

static void step(Fuzz *fuzz, Input *input) {
        Session *session = server_session_base(fuzz->session);
        uint8_t op = input_byte(input), frame[INPUT_FRAME_MAX];

        fuzz->n_in += 2;
        if (op <= 9) {
                receive(fuzz, frame, input_frame(input, op, frame));
        } else if (op == 'H') {
                receive(fuzz, frame, write_request(input, frame));
        } else if (op == 'M') {
                receive(fuzz, frame, input_message(input, frame));
        } else if (op == 'T') {
                fuzz->now += NSEC_PER_USEC << (input_byte(input) % 40);
                session_tick(session, fuzz->now);
                assert(session->dead || session->limits.keepalive_interval > 0 ||
                       session_deadline(session) > fuzz->now);
                turn(fuzz);
        } else if (op == 'D') {
                (void) input_byte(input);
                (void) session_drain(session);
                turn(fuzz);
        } else if (op == 'G') {
                session_goaway(session, input_byte(input), "the input says so");
                turn(fuzz);
        } else {
                poke(fuzz, input_byte(input));
                turn(fuzz);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const Peer peer;
        Fuzz fuzz = { .now = NSEC_PER_SEC, .budget = { .max_buffered = 1 << 20, .max_streams = 64 } };
        const Method methods[] = {
                { .path = paths[0], .handle = echo, .context = &fuzz },
                { .path = paths[1], .handle = pour, .context = &fuzz },
                { .path = paths[2], .handle = hang, .context = &fuzz },
                { .path = paths[3], .start = count, .context = &fuzz },
                { .path = paths[4], .start = converse, .context = &fuzz },
                { .path = paths[5], .start = end_early, .context = &fuzz },
        };
        const Interceptor interceptor = { .begin = on_begin, .end = on_end, .context = &fuzz };
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        const ServerHandlers handlers = { .methods = table, .interceptors = &interceptor, .n_interceptors = 1 };
        SessionLimits limits = session_limits_default;
        Input input = { .data = data, .len = size };
        uint8_t options = input_byte(&input), frame[INPUT_FRAME_MAX];

        fuzz.piece = input_byte(&input);
        fuzz.shy = options & INPUT_SHY;
        fuzz.lazy = options & INPUT_LAZY;
        limits.max_message = 16384;
        if (options & INPUT_KEEPALIVE) {
                limits.keepalive_interval = NSEC_PER_SEC;
                limits.keepalive_timeout = NSEC_PER_SEC / 10;
        }
        if (options & INPUT_TIGHT) {
                fuzz.budget.max_streams = 2;
                limits.max_streams = 3;
                limits.stream_window = 200;
                limits.connection_window = 65535;
                limits.max_message = 300;
                limits.max_header_list = 400;
                limits.max_held = 100;
                limits.max_buffered = 600;
                limits.high_water = 4000;
                limits.max_idle_frames = 10;
        }

        assert(method_table_add(table, methods, sizeof(methods) / sizeof(methods[0])) == 0);
        fuzz.session = server_session_new(&handlers, &limits, &fuzz.budget, &peer, fuzz.now);
        assert(fuzz.session);

        if (!(options & INPUT_NO_PREFACE)) {
                receive(&fuzz, (const uint8_t *) "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
                receive(&fuzz, frame, frame_write(frame, 4, 0, 0, NULL, 0));
        }
        if (options & INPUT_STRUCTURED)
                while (input.len > 0)
                        step(&fuzz, &input);
        else
                receive(&fuzz, input.data, input.len);

        server_session_free(fuzz.session);
        assert(!fuzz.running && fuzz.n_begun == fuzz.n_ended);
        assert(fuzz.budget.buffered == 0 && fuzz.budget.streams == 0);
        return 0;
}
