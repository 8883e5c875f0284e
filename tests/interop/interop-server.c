/* SPDX-License-Identifier: Apache-2.0 */

/* A server of gRPC's interoperability tests, for official clients to try ours with: the service of proto/test.proto.
 *
 *         interop-server --unix PATH
 *         interop-server --port PORT [--cert FILE --key FILE [--client-ca FILE [--require-client-cert]]]
 *
 * Port 0 is any free one. Prints "listening on ADDRESS" when it does, and to standard error what is wrong with
 * connections that fail. Prints at SIGUSR1 how many bytes of memory it uses. Says by gRPC's health service that the
 * test service is served, or after each SIGUSR2 the opposite. Ends at SIGTERM, when its calls have. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "contract/hutch/files.h"
#include "rpc/core/call.h"
#include "rpc/core/metadata.h"
#include "rpc/core/method-table.h"
#include "rpc/core/status-details.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "test.pb-c.h"

#define PAYLOAD_MAX (4 << 20)
#define DRAIN_GRACE (5 * NSEC_PER_SEC)
#define TEST_SERVICE "grpc.testing.TestService"

typedef Grpc__Testing__BoolValue BoolValue;
typedef Grpc__Testing__EchoStatus EchoStatus;
typedef Grpc__Testing__Payload Payload;
typedef Grpc__Testing__ResponseParameters ResponseParameters;
typedef Grpc__Testing__SimpleRequest SimpleRequest;
typedef Grpc__Testing__SimpleResponse SimpleResponse;
typedef Grpc__Testing__StreamingInputCallRequest InputRequest;
typedef Grpc__Testing__StreamingInputCallResponse InputResponse;
typedef Grpc__Testing__StreamingOutputCallRequest OutputRequest;
typedef Grpc__Testing__StreamingOutputCallResponse OutputResponse;

/* A call of StreamingInputCall. */
typedef struct Input {
        int32_t sum;
} Input;

/* A call of StreamingOutputCall or FullDuplexCall. */
typedef struct Output {
        Call *call;
        OutputRequest *request; /* being answered; NULL: none is */
        size_t n_answered;      /* of its answers, how many were sent */
        bool waited;            /* for the interval before the next one */
        bool last;              /* no request follows */
        uv_timer_t timer;
} Output;

typedef struct Options {
        const char *unix_path; /* NULL: TCP */
        uint16_t port;
        TlsServerOptions tls; /* without certificate: no TLS */
} Options;

typedef struct Signals {
        Server *server;
        Health *health;
        bool serving;
        uv_signal_t terminate;
        uv_signal_t report;
        uv_signal_t change;
} Signals;

static uint8_t zeros[PAYLOAD_MAX];

static void message_freep(ProtobufCMessage **message) {
        if (*message)
                protobuf_c_message_free_unpacked(*message, NULL);
}

/* Decodes a request; ends the call and returns NULL when it cannot. */
static void *unpack(Call *call, const ProtobufCMessageDescriptor *type, const uint8_t *message, size_t len) {
        ProtobufCMessage *request = protobuf_c_message_unpack(type, NULL, len, message);

        if (!request)
                call_finish(call, STATUS_INTERNAL, "the message is no request of this method");
        return request;
}

static int send_message(Call *call, const ProtobufCMessage *message) {
        size_t len = protobuf_c_message_get_packed_size(message);
        _cleanup_free_ uint8_t *packed = new0(uint8_t, len + 1);

        protobuf_c_message_pack(message, packed);
        return call_send(call, packed, len);
}

static void reply(Call *call, const ProtobufCMessage *message) {
        if (send_message(call, message) == -ENOMEM)
                call_finish(call, STATUS_RESOURCE_EXHAUSTED, "no memory");
        else
                call_finish(call, STATUS_OK, NULL);
}

/* Sets a payload of zeros. Ends the call and returns -EINVAL when there cannot be one of that size. */
static int payload_init(Payload *payload, Call *call, int32_t size) {
        if (size < 0 || size > PAYLOAD_MAX) {
                call_finish(call, STATUS_INVALID_ARGUMENT, "payloads have 0 to 4 MiB");
                return -EINVAL;
        }

        *payload = (Payload) GRPC__TESTING__PAYLOAD__INIT;
        payload->body = (ProtobufCBinaryData){ .data = zeros, .len = (size_t) size };
        return 0;
}

/* Ends the call and returns -EINVAL when the message just handed out was not compressed as it says. */
static int check_compressed(Call *call, const BoolValue *expected) {
        if (!expected || expected->value == call_message_was_compressed(call))
                return 0;

        call_finish(call, STATUS_INVALID_ARGUMENT,
                    expected->value ? "the message is not compressed" : "the message is compressed");
        return -EINVAL;
}

/* Ends the call with a status that has more details than others. */
static void fail_with_details(Call *call, const HutchError *err) {
        static const StatusPair pair = { .key = "sandbox", .value = "sb-1" };
        static const StatusViolation violation = {
                .field = "spec.mounts[2].target",
                .reason = "PATH_DOTDOT",
                .description = "a path is not to have \"..\"",
        };
        static const StatusDetails details = {
                .domain = "interop",
                .pairs = &pair,
                .n_pairs = 1,
                .violations = &violation,
                .n_violations = 1,
        };

        call_fail_details(call, err, &details);
}

/* Ends the call and returns true when the request asks for a status. */
static bool echo_status(Call *call, const EchoStatus *status) {
        _cleanup_(error_clear) HutchError err = {};

        if (!status || status->code == 0)
                return false;

        (void) error_set_code(&err, (StatusCode) status->code, -EINVAL, "AS_ASKED", "%s", status->message);
        if (metadata_find(call_metadata(call), "x-test-details"))
                fail_with_details(call, &err);
        else
                call_fail(call, &err);
        return true;
}

static void echo_metadata(Call *call) {
        static const char initial[] = "x-grpc-test-echo-initial", trailing[] = "x-grpc-test-echo-trailing-bin";
        const MetadataEntry *entry;

        entry = metadata_find(call_metadata(call), initial);
        if (entry)
                (void) metadata_add(call_initial_metadata(call), initial, entry->value, entry->value_len);
        entry = metadata_find(call_metadata(call), trailing);
        if (entry)
                (void) metadata_add(call_trailing_metadata(call), trailing, entry->value, entry->value_len);
}

static void empty_call(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(message_freep) ProtobufCMessage *request = NULL;

        (void) context;
        request = unpack(call, &grpc__testing__empty__descriptor, message, len);
        if (request)
                call_reply(call, "", 0);
}

static void unary_call(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(message_freep) ProtobufCMessage *unpacked = NULL;
        SimpleResponse response = GRPC__TESTING__SIMPLE_RESPONSE__INIT;
        const SimpleRequest *request;
        Payload payload;

        (void) context;
        unpacked = unpack(call, &grpc__testing__simple_request__descriptor, message, len);
        if (!unpacked)
                return;

        request = (const SimpleRequest *) unpacked;
        echo_metadata(call);
        if (check_compressed(call, request->expect_compressed) < 0 || echo_status(call, request->response_status) ||
            payload_init(&payload, call, request->response_size) < 0)
                return;

        response.payload = &payload;
        call_set_compression(call, request->response_compressed && request->response_compressed->value);
        reply(call, &response.base);
}

static void input_message(Call *call, const uint8_t *message, size_t len) {
        _cleanup_(message_freep) ProtobufCMessage *unpacked = NULL;
        const InputRequest *request;
        Input *input = call_user(call);

        unpacked = unpack(call, &grpc__testing__streaming_input_call_request__descriptor, message, len);
        if (!unpacked)
                return;

        request = (const InputRequest *) unpacked;
        if (check_compressed(call, request->expect_compressed) < 0)
                return;

        if (request->payload)
                input->sum = (int32_t) ((uint32_t) input->sum + (uint32_t) request->payload->body.len);
        call_read(call);
}

static void input_half_closed(Call *call) {
        InputResponse response = GRPC__TESTING__STREAMING_INPUT_CALL_RESPONSE__INIT;
        const Input *input = call_user(call);

        response.aggregated_payload_size = input->sum;
        reply(call, &response.base);
}

static void input_ended(Call *call, CallEnd how) {
        (void) how;
        free(call_user(call));
}

static const CallEvents input_events = {
        .message = input_message,
        .half_closed = input_half_closed,
        .ended = input_ended,
};

static void streaming_input_call(Call *call, void *context) {
        (void) context;
        call_set_events(call, &input_events, new0(Input, 1));
        call_read(call);
}

static void output_run(Output *output);

static void output_timer(uv_timer_t *timer) {
        output_run(timer->data);
}

/* Sends the next answer, or waits until its time has come. Returns whether it was sent. */
static bool output_answer(Output *output) {
        const ResponseParameters *parameters = output->request->response_parameters[output->n_answered];
        OutputResponse response = GRPC__TESTING__STREAMING_OUTPUT_CALL_RESPONSE__INIT;
        Payload payload;

        if (parameters->interval_us > 0 && !output->waited) {
                output->waited = true;
                (void) uv_timer_start(&output->timer, output_timer, ((uint64_t) parameters->interval_us + 999) / 1000,
                                      0);
                return false;
        }
        if (payload_init(&payload, output->call, parameters->size) < 0)
                return false;

        response.payload = &payload;
        call_set_compression(output->call, parameters->compressed && parameters->compressed->value);
        if (send_message(output->call, &response.base) < 0) {
                call_finish(output->call, STATUS_RESOURCE_EXHAUSTED, "no memory");
                return false;
        }

        output->waited = false;
        output->n_answered++;
        return true;
}

/* Answers the request as far as time and the peer allow. */
static void output_run(Output *output) {
        if (!output->request || uv_is_active((uv_handle_t *) &output->timer))
                return;

        while (output->n_answered < output->request->n_response_parameters)
                if (!call_is_writable(output->call) || !output_answer(output))
                        return;

        grpc__testing__streaming_output_call_request__free_unpacked(TAKE_PTR(output->request), NULL);
        if (output->last)
                call_finish(output->call, STATUS_OK, NULL);
        else
                call_read(output->call);
}

static void output_message(Call *call, const uint8_t *message, size_t len) {
        Output *output = call_user(call);

        output->request = unpack(call, &grpc__testing__streaming_output_call_request__descriptor, message, len);
        output->n_answered = 0;
        output->waited = false;
        if (output->request && !echo_status(call, output->request->response_status))
                output_run(output);
}

static void output_half_closed(Call *call) {
        Output *output = call_user(call);

        output->last = true;
        if (!output->request)
                call_finish(call, STATUS_OK, NULL);
}

static void output_writable(Call *call) {
        output_run(call_user(call));
}

static void output_closed(uv_handle_t *handle) {
        free(handle->data);
}

static void output_ended(Call *call, CallEnd how) {
        Output *output = call_user(call);

        (void) how;
        if (output->request)
                grpc__testing__streaming_output_call_request__free_unpacked(output->request, NULL);
        uv_close((uv_handle_t *) &output->timer, output_closed);
}

static const CallEvents output_events = {
        .message = output_message,
        .half_closed = output_half_closed,
        .writable = output_writable,
        .ended = output_ended,
};

static Output *output_new(Call *call, uv_loop_t *loop) {
        Output *output = new0(Output, 1);

        output->call = call;
        (void) uv_timer_init(loop, &output->timer);
        output->timer.data = output;
        call_set_events(call, &output_events, output);
        return output;
}

static void streaming_output_call(Call *call, const uint8_t *message, size_t len, void *context) {
        output_new(call, context)->last = true;
        output_message(call, message, len);
}

static void full_duplex_call(Call *call, void *context) {
        (void) output_new(call, context);
        echo_metadata(call);
        call_read(call);
}

static void connection_failed(const Peer *peer, const HutchError *err, void *user) {
        (void) user;
        fprintf(stderr, "%s: %s: %s\n", peer->address, err->reason, error_message(err));
}

static int listen_at(Server *server, const Options *options, HutchError *err) {
        _cleanup_(tls_context_unrefp) TlsContext *tls = NULL;
        uint16_t port;
        int r;

        if (options->unix_path) {
                r = server_listen_unix(server, options->unix_path, 0600, err);
                if (r >= 0)
                        printf("listening on unix:%s\n", options->unix_path);
                return r;
        }

        if (options->tls.certificate_file) {
                r = tls_context_new_server(&options->tls, &tls, err);
                if (r < 0)
                        return r;
        }

        r = server_listen_tcp(server, "127.0.0.1", options->port, tls, &port, err);
        if (r >= 0)
                printf("listening on 127.0.0.1:%" PRIu16 "\n", port);
        return r;
}

static void on_drained(void *user) {
        server_free(user, NULL, NULL);
}

static void on_terminate(uv_signal_t *signal, int number) {
        Signals *signals = signal->data;

        (void) number;
        uv_close((uv_handle_t *) &signals->terminate, NULL);
        uv_close((uv_handle_t *) &signals->report, NULL);
        uv_close((uv_handle_t *) &signals->change, NULL);
        health_shut_down(signals->health);
        server_drain(signals->server, DRAIN_GRACE, on_drained, signals->server);
}

static void on_report(uv_signal_t *signal, int number) {
        struct mallinfo2 info = mallinfo2();

        (void) signal, (void) number;
        printf("%zu bytes in use\n", info.uordblks + info.hblkhd);
        (void) fflush(stdout);
}

static void on_change(uv_signal_t *signal, int number) {
        Signals *signals = signal->data;

        (void) number;
        signals->serving = !signals->serving;
        (void) health_set(signals->health, TEST_SERVICE, signals->serving);
}

static void watch(uv_loop_t *loop, uv_signal_t *signal, int number, uv_signal_cb callback, Signals *signals) {
        (void) uv_signal_init(loop, signal);
        signal->data = signals;
        (void) uv_signal_start(signal, callback, number);
}

static int serve(uv_loop_t *loop, const MethodTable *methods, Health *health, const Options *options, HutchError *err) {
        ServerOptions server_options = server_options_default;
        Signals signals = { .health = health, .serving = true };
        int r;

        server_options.connection_failed = connection_failed;
        r = server_new(loop, methods, &server_options, &signals.server);
        if (r < 0)
                return error_set(err, r, "SERVER_FAILED", "cannot make a server: %s", strerror(-r));

        watch(loop, &signals.terminate, SIGTERM, on_terminate, &signals);
        watch(loop, &signals.report, SIGUSR1, on_report, &signals);
        watch(loop, &signals.change, SIGUSR2, on_change, &signals);
        r = listen_at(signals.server, options, err);
        (void) fflush(stdout);
        if (r < 0)
                on_terminate(&signals.terminate, SIGTERM);

        (void) uv_run(loop, UV_RUN_DEFAULT);
        return r;
}

static int parse_options(int argc, char **argv, Options *options) {
        static const struct option known[] = {
                { "unix", required_argument, NULL, 'u' },
                { "port", required_argument, NULL, 'p' },
                { "cert", required_argument, NULL, 'c' },
                { "key", required_argument, NULL, 'k' },
                { "client-ca", required_argument, NULL, 'a' },
                { "require-client-cert", no_argument, NULL, 'r' },
                {},
        };
        int option;

        while ((option = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                switch (option) {
                case 'u':
                        options->unix_path = optarg;
                        break;
                case 'p':
                        options->port = (uint16_t) strtoul(optarg, NULL, 10);
                        break;
                case 'c':
                        options->tls.certificate_file = optarg;
                        break;
                case 'k':
                        options->tls.key_file = optarg;
                        break;
                case 'a':
                        options->tls.client_ca_file = optarg;
                        if (options->tls.client_certificates == TLS_CLIENT_CERTIFICATES_NONE)
                                options->tls.client_certificates = TLS_CLIENT_CERTIFICATES_WANTED;
                        break;
                case 'r':
                        options->tls.client_certificates = TLS_CLIENT_CERTIFICATES_REQUIRED;
                        break;
                default:
                        return -EINVAL;
                }
        }

        return optind == argc ? 0 : -EINVAL;
}

/* gRPC's own services. */
static int add_services(MethodTable *table, Health *health, Reflection *reflection) {
        if (!health || !reflection)
                return -ENOMEM;
        if (health_set(health, "", true) < 0 || health_set(health, TEST_SERVICE, true) < 0 ||
            health_add_methods(health, table) < 0)
                return -ENOMEM;
        return reflection_add_methods(reflection, table);
}

int main(int argc, char **argv) {
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        _cleanup_(health_freep) Health *health = health_new();
        _cleanup_(reflection_freep) Reflection *reflection = NULL;
        _cleanup_(error_clear) HutchError err = {};
        Options options = {};
        uv_loop_t loop;

        const Method methods[] = {
                { .path = "/grpc.testing.TestService/EmptyCall", .handle = empty_call },
                { .path = "/grpc.testing.TestService/UnaryCall", .handle = unary_call },
                { .path = "/grpc.testing.TestService/StreamingInputCall", .start = streaming_input_call },
                { .path = "/grpc.testing.TestService/StreamingOutputCall",
                  .handle = streaming_output_call,
                  .context = &loop },
                { .path = "/grpc.testing.TestService/FullDuplexCall", .start = full_duplex_call, .context = &loop },
        };

        if (parse_options(argc, argv, &options) < 0) {
                fprintf(stderr, "usage: %s --unix PATH | --port PORT [--cert FILE --key FILE …]\n", argv[0]);
                return 2;
        }
        if (table)
                reflection = reflection_new(table, contract_files, contract_files_len);
        if (!table || method_table_add(table, methods, sizeof(methods) / sizeof(*methods)) < 0 ||
            add_services(table, health, reflection) < 0 || uv_loop_init(&loop) < 0) {
                fprintf(stderr, "%s: cannot start\n", argv[0]);
                return 1;
        }

        if (serve(&loop, table, health, &options, &err) < 0) {
                fprintf(stderr, "%s: %s\n", argv[0], error_message(&err));
                return 1;
        }
        if (uv_loop_close(&loop) < 0) {
                fprintf(stderr, "%s: something is still open on the loop\n", argv[0]);
                return 1;
        }

        return 0;
}
