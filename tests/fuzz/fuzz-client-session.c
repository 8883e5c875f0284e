/* SPDX-License-Identifier: Apache-2.0 */

/* Input: what a server sends (http2-input.h), to a client session with several calls open. Whatever it is, each call
 * ends once, nothing stays in memory, and what the client sends is not out of proportion. */

#include "rpc/core/client-session.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "rpc/core/metadata.h"

#include "http2-input.h"

#define INPUT_NO_SETTINGS 0x02 /* the server's first SETTINGS are part of the input */
#define INPUT_KEEPALIVE 0x04
#define INPUT_TIGHT 0x08 /* limits that are soon reached */
#define INPUT_SHY 0x10   /* calls read only when the input says so */
#define INPUT_LAZY 0x20  /* one stream is dispatched, one buffer produced, and the rest is left for later */

#define CALLS_MAX 32
#define OUTPUT_PER_BYTE 256
#define OUTPUT_ANYWAY 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Slot {
        ClientCall *call; /* NULL: it has ended */
        bool cancelled;
        size_t n_headers;
        bool shy;
} Slot;

typedef struct Fuzz {
        ClientSession *session;
        Slot slots[CALLS_MAX];
        size_t n_slots;
        uint64_t now;
        size_t n_in, n_out;
        size_t piece;
        bool shy, lazy;
} Fuzz;

static Slot *slot_of(ClientCall *call) {
        Slot *slot = client_call_user(call);

        assert(slot->call == call);
        return slot;
}

static void on_headers(ClientCall *call, const Metadata *metadata) {
        (void) metadata;
        assert(!slot_of(call)->cancelled && ++slot_of(call)->n_headers == 1);
}

static void on_message(ClientCall *call, const uint8_t *message, size_t len) {
        Slot *slot = slot_of(call);

        assert(!slot->cancelled);
        if (len > 0 && message[0] == '!') {
                slot->cancelled = true;
                client_call_cancel(call);
        } else if (!slot->shy) {
                client_call_read(call);
        }
}

static void on_writable(ClientCall *call) {
        assert(!slot_of(call)->cancelled);
}

static void on_ended(ClientCall *call, const ClientStatus *status) {
        Slot *slot = slot_of(call);

        assert(status->message && status->trailing);
        assert(!slot->cancelled || (status->code == STATUS_CANCELLED && !status->from_server));
        slot->call = NULL;
}

static const ClientEvents events = {
        .headers = on_headers,
        .message = on_message,
        .writable = on_writable,
        .ended = on_ended,
};

/* Of @kind, bit 0 lets it go on sending, bit 1 reads nothing, bit 2 compresses, bit 3 has a deadline. */
static void start(Fuzz *fuzz, uint8_t kind) {
        const ClientRequest request = {
                .path = "/f.F/Call",
                .deadline = kind & 8 ? fuzz->now + 50 * NSEC_PER_MSEC : DEADLINE_NONE,
                .compresses = kind & 4,
        };
        Slot *slot = &fuzz->slots[fuzz->n_slots];

        if (fuzz->n_slots == CALLS_MAX)
                return;

        fuzz->n_slots++;
        slot->shy = fuzz->shy || (kind & 2);
        slot->call = client_call_start(fuzz->session, &request, &events, slot);
        if (!slot->call)
                return;

        assert(client_call_send(slot->call, "request", 7) == 0);
        if (!(kind & 1))
                client_call_end(slot->call);
        if (!slot->shy)
                client_call_read(slot->call);
}

/* Runs what is ready, and fetches what is to be sent. */
static void turn(Fuzz *fuzz) {
        static uint8_t buffer[SESSION_BUFFER_SIZE];
        Session *session = client_session_base(fuzz->session);
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

                (void) session_receive(client_session_base(fuzz->session), bytes + at, n, fuzz->now);
                turn(fuzz);
        }
}

/* Headers, trailers, or both in one. */
static size_t write_answer(Input *input, uint8_t ret_frame[static INPUT_FRAME_MAX]) {
        static const char *const statuses[] = { "200", "100", "404", "503" };
        static const char *const codes[] = { "0", "5", "14", "99" };
        uint32_t stream = input_stream(input);
        uint8_t kind = input_byte(input), flags = input_byte(input), block[INPUT_FRAME_MAX - 9];
        size_t len = 0;

        if (!(kind & 0x01)) {
                len = field_write(block, len, ":status", statuses[flags >> 6]);
                len = field_write(block, len, "content-type", flags & 0x02 ? "text/html" : "application/grpc");
                if (flags & 0x04)
                        len = field_write(block, len, "grpc-encoding", flags & 0x08 ? "br" : "gzip");
        }
        if (kind & 0x03) {
                len = field_write(block, len, "grpc-status", codes[kind >> 6]);
                if (kind & 0x04)
                        len = field_write(block, len, "grpc-message", "50%25 %E2%82%AC %");
                if (kind & 0x08)
                        len = field_write(block, len, "grpc-status-details-bin", flags & 0x10 ? "AAEC" : "*");
        }
        if (flags & 0x20)
                len = field_write(block, len, "x-bin", "AAEC,Aw==");
        return frame_write(ret_frame, 1, 0x04 | (flags & 0x01), stream, block, len);
}

/* The owner of the call that @operand points at does something. */
static void poke(Fuzz *fuzz, uint8_t operand) {
        Slot *slot = &fuzz->slots[(operand & 0x0f) % CALLS_MAX];

        if (!slot->call)
                return;

        switch (operand >> 4) {
        case 0:
                (void) client_call_send(slot->call, "poke", 4);
                break;
        case 1:
                client_call_end(slot->call);
                break;
        case 2:
                slot->cancelled = true;
                client_call_cancel(slot->call);
                break;
        default:
                client_call_read(slot->call);
        }
}

static void step(Fuzz *fuzz, Input *input) {
        Session *session = client_session_base(fuzz->session);
        uint8_t op = input_byte(input), frame[INPUT_FRAME_MAX];

        fuzz->n_in += 2;
        if (op <= 9) {
                receive(fuzz, frame, input_frame(input, op, frame));
        } else if (op == 'H') {
                receive(fuzz, frame, write_answer(input, frame));
        } else if (op == 'M') {
                receive(fuzz, frame, input_message(input, frame));
        } else if (op == 'T') {
                fuzz->now += NSEC_PER_USEC << (input_byte(input) % 40);
                session_tick(session, fuzz->now);
                turn(fuzz);
        } else if (op == 'C') {
                start(fuzz, input_byte(input));
                turn(fuzz);
        } else {
                poke(fuzz, input_byte(input));
                turn(fuzz);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const ClientIdentity identity = { .authority = "localhost", .user_agent = "fuzz" };
        Fuzz fuzz = { .now = NSEC_PER_SEC };
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
                limits.stream_window = 200;
                limits.connection_window = 65535;
                limits.max_message = 300;
                limits.max_header_list = 200;
                limits.max_held = 100;
                limits.max_buffered = 600;
                limits.high_water = 8;
                limits.max_idle_frames = 10;
        }

        fuzz.session = client_session_new(&identity, &limits, fuzz.now);
        assert(fuzz.session);
        for (uint8_t i = 0; i < 6; i++)
                start(&fuzz, i % 4);
        turn(&fuzz);

        if (!(options & INPUT_NO_SETTINGS))
                receive(&fuzz, frame, frame_write(frame, 4, 0, 0, NULL, 0));
        if (options & INPUT_STRUCTURED)
                while (input.len > 0)
                        step(&fuzz, &input);
        else
                receive(&fuzz, input.data, input.len);

        client_session_free(fuzz.session);
        for (size_t i = 0; i < fuzz.n_slots; i++)
                assert(!fuzz.slots[i].call);
        return 0;
}
