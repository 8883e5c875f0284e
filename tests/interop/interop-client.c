/* SPDX-License-Identifier: Apache-2.0 */

/* A client of gRPC's interoperability tests, to try ours against official servers: runs one case on the service of
 * proto/test.proto.
 *
 *         interop-client --target TARGET --case NAME [--ca FILE [--cert FILE --key FILE] [--server-name NAME]]
 *
 * Exits with 0 when the case passed, or with 1 and a line that says what was wrong. With --no-probe, cases that
 * compress requests do not first make sure that the server notices a false claim, which not every server can. One case
 * is not among the public ones: in server_vanishes the server has to die when "answered" was printed. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "rpc/blocking.h"
#include "rpc/core/metadata.h"
#include "rpc/core/protobuf.h"
#include "rpc/tls.h"
#include "test.pb-c.h"

#define LIMIT (60 * NSEC_PER_SEC) /* of a call */
#define ANSWER_CAP ((size_t) 8 << 20)
#define LARGE_REQUEST 271828
#define LARGE_RESPONSE 314159
#define METHOD(name) "/grpc.testing.TestService/" name
#define N_SIZES 4

typedef Grpc__Testing__BoolValue BoolValue;
typedef Grpc__Testing__EchoStatus EchoStatus;
typedef Grpc__Testing__Payload Payload;
typedef Grpc__Testing__ResponseParameters ResponseParameters;
typedef Grpc__Testing__SimpleRequest SimpleRequest;
typedef Grpc__Testing__StreamingInputCallRequest InputRequest;
typedef Grpc__Testing__StreamingInputCallResponse InputResponse;
typedef Grpc__Testing__StreamingOutputCallRequest OutputRequest;
typedef Grpc__Testing__StreamingOutputCallResponse OutputResponse;

typedef struct Client {
        Blocking *blocking;
        bool probes;
} Client;

typedef struct Options {
        const char *target;
        const char *name; /* of the case */
        const char *server_name;
        TlsClientOptions tls; /* without CA: no TLS */
        bool no_probe;
} Options;

static const int32_t request_sizes[N_SIZES] = { 27182, 8, 1828, 45904 };
static const int32_t response_sizes[N_SIZES] = { 31415, 9, 2653, 58979 };
static uint8_t zeros[LARGE_RESPONSE];

/* What came is not what the case expects. */
#define wrong(err, ...) error_set(err, -EPROTO, "UNEXPECTED", __VA_ARGS__)

static void blocking_message_clear(BlockingMessage *message) {
        free(message->data);
        *message = (BlockingMessage){};
}

static Payload payload_of(int32_t size) {
        Payload payload = GRPC__TESTING__PAYLOAD__INIT;

        payload.body = (ProtobufCBinaryData){ .data = zeros, .len = (size_t) size };
        return payload;
}

static BoolValue bool_value(bool value) {
        BoolValue wrapped = GRPC__TESTING__BOOL_VALUE__INIT;

        wrapped.value = value;
        return wrapped;
}

static int start(const Client *client, ChannelRequest request, BlockingCall **ret_call, HutchError *err) {
        if (request.deadline == 0)
                request.deadline = uv_hrtime() + LIMIT;
        if (blocking_call_new(client->blocking, &request, ret_call) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for a call");

        return 0;
}

/* Sends @message. When the call is over already, reading tells why. */
static int send_message(BlockingCall *call, const ProtobufCMessage *message, HutchError *err) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        int r = protobuf_pack(message, &bytes, &len);

        if (r == 0)
                r = blocking_call_send(call, bytes, len);
        return r < 0 && r != -EPIPE ? error_set(err, r, "HOST_EXHAUSTED", "cannot send: %s", strerror(-r)) : 0;
}

/* Asks for an answer of @response_size bytes after @interval_us. */
static int send_output_request(BlockingCall *call, int32_t response_size, int32_t request_size, int32_t interval_us,
                               HutchError *err) {
        OutputRequest request = GRPC__TESTING__STREAMING_OUTPUT_CALL_REQUEST__INIT;
        ResponseParameters parameters = GRPC__TESTING__RESPONSE_PARAMETERS__INIT, *list[] = { &parameters };
        Payload payload = payload_of(request_size);

        parameters.size = response_size;
        parameters.interval_us = interval_us;
        request.response_parameters = list;
        request.n_response_parameters = 1;
        request.payload = &payload;
        return send_message(call, &request.base, err);
}

/* Waits for a message, which must come. */
static int read_message(BlockingCall *call, BlockingMessage *ret_message, HutchError *err) {
        int r = blocking_call_read(call, ret_message, err);

        return r == 0 ? wrong(err, "the call ended with OK where a message was expected") : r;
}

/* Waits for the end of the call, which must be OK and come next. */
static int read_end(BlockingCall *call, HutchError *err) {
        _cleanup_(blocking_message_clear) BlockingMessage message = {};
        int r = blocking_call_read(call, &message, err);

        return r > 0 ? wrong(err, "a message of %zu bytes came where the end was expected", message.len) : r;
}

/* @message must have a payload of @size zeros. Answers of unary and of streaming calls are alike in bytes. */
static int check_payload(const BlockingMessage *message, int32_t size, HutchError *err) {
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        const OutputResponse *response;
        int r = protobuf_unpack(&grpc__testing__streaming_output_call_response__descriptor, message->data, message->len,
                                ANSWER_CAP, &unpacked);

        if (r < 0)
                return wrong(err, "the answer is no protobuf message: %s", strerror(-r));

        response = (const OutputResponse *) unpacked;
        if (!response->payload || response->payload->body.len != (size_t) size)
                return wrong(err, "the payload has %zu bytes instead of %d",
                             response->payload ? response->payload->body.len : 0, (int) size);
        if (memcmp(response->payload->body.data, zeros, (size_t) size) != 0)
                return wrong(err, "the payload has other bytes than zeros");
        return 0;
}

static int read_payload(BlockingCall *call, int32_t size, HutchError *err) {
        _cleanup_(blocking_message_clear) BlockingMessage message = {};
        int r = read_message(call, &message, err);

        return r < 0 ? r : check_payload(&message, size, err);
}

/* A call that ended with @r and @err must have failed with @code, and with @message unless that is NULL. */
static int expect_failure(int r, HutchError *err, StatusCode code, const char *message) {
        if (r >= 0)
                return wrong(err, "the call did not fail with %s", status_code_name(code));
        if (err->code != code || strcmp(err->reason, "UNEXPECTED") == 0)
                return r;
        if (message && strcmp(error_message(err), message) != 0)
                return wrong(err, "the message of the status is '%s'", error_message(err));

        error_clear(err);
        return 0;
}

static int empty_unary(const Client *client, HutchError *err) {
        const ChannelRequest request = { .path = METHOD("EmptyCall"), .deadline = uv_hrtime() + LIMIT };
        _cleanup_(blocking_message_clear) BlockingMessage reply = {};
        int r = blocking_unary(client->blocking, &request, "", 0, &reply, err);

        if (r < 0)
                return r;
        return reply.len == 0 ? 0 : wrong(err, "the answer has %zu bytes instead of none", reply.len);
}

/* Calls UnaryCall with the large payloads. */
static int large_call(const Client *client, SimpleRequest message, bool compresses, bool *ret_was_compressed,
                      HutchError *err) {
        const ChannelRequest request = {
                .path = METHOD("UnaryCall"),
                .deadline = uv_hrtime() + LIMIT,
                .compresses = compresses,
        };
        _cleanup_(blocking_message_clear) BlockingMessage reply = {};
        _cleanup_free_ uint8_t *bytes = NULL;
        Payload payload = payload_of(LARGE_REQUEST);
        size_t len;
        int r;

        message.response_size = LARGE_RESPONSE;
        message.payload = &payload;
        r = protobuf_pack(&message.base, &bytes, &len);
        if (r < 0)
                return error_set(err, r, "HOST_EXHAUSTED", "no memory for a message");

        r = blocking_unary(client->blocking, &request, bytes, len, &reply, err);
        if (r < 0)
                return r;

        if (ret_was_compressed)
                *ret_was_compressed = reply.was_compressed;
        return check_payload(&reply, LARGE_RESPONSE, err);
}

static int large_unary(const Client *client, HutchError *err) {
        return large_call(client, (SimpleRequest) GRPC__TESTING__SIMPLE_REQUEST__INIT, false, NULL, err);
}

/* Sends one of the messages of StreamingInputCall. @expect_compressed may be NULL. */
static int send_input(BlockingCall *call, int32_t size, BoolValue *expect_compressed, HutchError *err) {
        InputRequest request = GRPC__TESTING__STREAMING_INPUT_CALL_REQUEST__INIT;
        Payload payload = payload_of(size);

        request.payload = &payload;
        request.expect_compressed = expect_compressed;
        return send_message(call, &request.base, err);
}

/* Ends what is sent by StreamingInputCall; the server must have counted @sum bytes. */
static int read_sum(BlockingCall *call, int32_t sum, HutchError *err) {
        _cleanup_(blocking_message_clear) BlockingMessage message = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        int32_t counted;
        int r;

        blocking_call_end(call);
        r = read_message(call, &message, err);
        if (r < 0)
                return r;
        r = protobuf_unpack(&grpc__testing__streaming_input_call_response__descriptor, message.data, message.len,
                            ANSWER_CAP, &unpacked);
        if (r < 0)
                return wrong(err, "the answer is no protobuf message: %s", strerror(-r));

        counted = ((const InputResponse *) unpacked)->aggregated_payload_size;
        return counted == sum ? read_end(call, err)
                              : wrong(err, "the sum is %d instead of %d", (int) counted, (int) sum);
}

static int client_streaming(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int32_t sum = 0;
        int r = start(client, (ChannelRequest){ .path = METHOD("StreamingInputCall") }, &call, err);

        for (size_t i = 0; r >= 0 && i < N_SIZES; i++) {
                sum += request_sizes[i];
                r = send_input(call, request_sizes[i], NULL, err);
        }

        return r < 0 ? r : read_sum(call, sum, err);
}

static int server_streaming(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        OutputRequest request = GRPC__TESTING__STREAMING_OUTPUT_CALL_REQUEST__INIT;
        ResponseParameters parameters[N_SIZES], *list[N_SIZES];
        int r;

        for (size_t i = 0; i < N_SIZES; i++) {
                parameters[i] = (ResponseParameters) GRPC__TESTING__RESPONSE_PARAMETERS__INIT;
                parameters[i].size = response_sizes[i];
                list[i] = &parameters[i];
        }
        request.response_parameters = list;
        request.n_response_parameters = N_SIZES;

        r = start(client, (ChannelRequest){ .path = METHOD("StreamingOutputCall") }, &call, err);
        if (r >= 0)
                r = send_message(call, &request.base, err);
        if (r < 0)
                return r;

        blocking_call_end(call);
        for (size_t i = 0; r >= 0 && i < N_SIZES; i++)
                r = read_payload(call, response_sizes[i], err);
        return r < 0 ? r : read_end(call, err);
}

static int ping_pong(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall") }, &call, err);

        for (size_t i = 0; r >= 0 && i < N_SIZES; i++) {
                r = send_output_request(call, response_sizes[i], request_sizes[i], 0, err);
                if (r >= 0)
                        r = read_payload(call, response_sizes[i], err);
        }
        if (r < 0)
                return r;

        blocking_call_end(call);
        return read_end(call, err);
}

static int empty_stream(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall") }, &call, err);

        if (r < 0)
                return r;

        blocking_call_end(call);
        return read_end(call, err);
}

/* @metadata, of which @what says which it is, must have @expected. */
static int check_metadata(const Metadata *metadata, const char *what, const MetadataEntry *expected, HutchError *err) {
        const MetadataEntry *entry = metadata_find(metadata, expected->name);

        if (!entry)
                return wrong(err, "the %s metadata has no %s", what, expected->name);
        if (entry->value_len != expected->value_len || memcmp(entry->value, expected->value, entry->value_len) != 0)
                return wrong(err, "the %s metadata has another %s", what, expected->name);
        return 0;
}

/* Reads one large answer, and the metadata around it. */
static int read_echo(BlockingCall *call, const Metadata *sent, HutchError *err) {
        int r;

        blocking_call_end(call);
        r = read_payload(call, LARGE_RESPONSE, err);
        if (r >= 0)
                r = check_metadata(blocking_call_initial_metadata(call), "initial", &sent->entries[0], err);
        if (r >= 0)
                r = read_end(call, err);
        if (r >= 0)
                r = check_metadata(blocking_call_trailing_metadata(call), "trailing", &sent->entries[1], err);
        return r;
}

static int custom_metadata(const Client *client, HutchError *err) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 1000 };
        _cleanup_(blocking_call_freep) BlockingCall *unary = NULL, *duplex = NULL;
        SimpleRequest request = GRPC__TESTING__SIMPLE_REQUEST__INIT;
        Payload payload = payload_of(LARGE_REQUEST);
        int r;

        if (metadata_add(&metadata, "x-grpc-test-echo-initial", "test_initial_metadata_value", 27) < 0 ||
            metadata_add(&metadata, "x-grpc-test-echo-trailing-bin", "\xab\xab\xab", 3) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory for metadata");

        request.response_size = LARGE_RESPONSE;
        request.payload = &payload;
        r = start(client, (ChannelRequest){ .path = METHOD("UnaryCall"), .metadata = &metadata }, &unary, err);
        if (r >= 0)
                r = send_message(unary, &request.base, err);
        if (r >= 0)
                r = read_echo(unary, &metadata, err);
        if (r < 0)
                return r;

        r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall"), .metadata = &metadata }, &duplex, err);
        if (r >= 0)
                r = send_output_request(duplex, LARGE_RESPONSE, LARGE_REQUEST, 0, err);
        return r < 0 ? r : read_echo(duplex, &metadata, err);
}

/* Asks UnaryCall to answer with UNKNOWN and @message. */
static int echo_status_unary(const Client *client, char *message, HutchError *err) {
        SimpleRequest request = GRPC__TESTING__SIMPLE_REQUEST__INIT;
        EchoStatus status = GRPC__TESTING__ECHO_STATUS__INIT;

        status.code = STATUS_UNKNOWN;
        status.message = message;
        request.response_status = &status;
        return expect_failure(large_call(client, request, false, NULL, err), err, STATUS_UNKNOWN, message);
}

/* The same with FullDuplexCall. */
static int echo_status_duplex(const Client *client, char *message, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        OutputRequest request = GRPC__TESTING__STREAMING_OUTPUT_CALL_REQUEST__INIT;
        EchoStatus status = GRPC__TESTING__ECHO_STATUS__INIT;
        int r;

        status.code = STATUS_UNKNOWN;
        status.message = message;
        request.response_status = &status;
        r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall") }, &call, err);
        if (r >= 0)
                r = send_message(call, &request.base, err);
        if (r < 0)
                return r;

        blocking_call_end(call);
        return expect_failure(read_end(call, err), err, STATUS_UNKNOWN, message);
}

static int status_code_and_message(const Client *client, HutchError *err) {
        char message[] = "test status message";
        int r = echo_status_unary(client, message, err);

        return r < 0 ? r : echo_status_duplex(client, message, err);
}

static int special_status_message(const Client *client, HutchError *err) {
        char message[] = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

        return echo_status_unary(client, message, err);
}

static int call_unimplemented(const Client *client, const char *path, HutchError *err) {
        const ChannelRequest request = { .path = path, .deadline = uv_hrtime() + LIMIT };
        _cleanup_(blocking_message_clear) BlockingMessage reply = {};

        return expect_failure(blocking_unary(client->blocking, &request, "", 0, &reply, err), err, STATUS_UNIMPLEMENTED,
                              NULL);
}

static int unimplemented_method(const Client *client, HutchError *err) {
        return call_unimplemented(client, METHOD("UnimplementedCall"), err);
}

static int unimplemented_service(const Client *client, HutchError *err) {
        return call_unimplemented(client, "/grpc.testing.UnimplementedService/UnimplementedCall", err);
}

static int cancel_after_begin(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, (ChannelRequest){ .path = METHOD("StreamingInputCall") }, &call, err);

        /* The server has heard of the call when it has answered one that was sent with it. */
        if (r >= 0)
                r = empty_unary(client, err);
        if (r < 0)
                return r;

        blocking_call_cancel(call);
        return expect_failure(read_end(call, err), err, STATUS_CANCELLED, NULL);
}

static int cancel_after_first_response(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall") }, &call, err);

        if (r >= 0)
                r = send_output_request(call, response_sizes[0], request_sizes[0], 0, err);
        if (r >= 0)
                r = read_payload(call, response_sizes[0], err);
        if (r < 0)
                return r;

        blocking_call_cancel(call);
        return expect_failure(read_end(call, err), err, STATUS_CANCELLED, NULL);
}

static int timeout_on_sleeping_server(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        ChannelRequest request = { .path = METHOD("FullDuplexCall") };
        int r = empty_unary(client, err); /* so that the time does not go by while connecting */

        if (r < 0)
                return r;

        request.deadline = uv_hrtime() + NSEC_PER_MSEC;
        r = start(client, request, &call, err);
        if (r >= 0)
                r = send_output_request(call, response_sizes[0], request_sizes[0], 5000000, err);
        return r < 0 ? r : expect_failure(read_end(call, err), err, STATUS_DEADLINE_EXCEEDED, NULL);
}

/* Calls UnaryCall with a message of which it says that it is compressed, or not. */
static int claim_unary(const Client *client, bool claim, bool compresses, HutchError *err) {
        SimpleRequest request = GRPC__TESTING__SIMPLE_REQUEST__INIT;
        BoolValue expected = bool_value(claim);

        request.expect_compressed = &expected;
        return large_call(client, request, compresses, NULL, err);
}

static int client_compressed_unary(const Client *client, HutchError *err) {
        int r = 0;

        if (client->probes)
                r = expect_failure(claim_unary(client, true, false, err), err, STATUS_INVALID_ARGUMENT, NULL);
        if (r >= 0)
                r = claim_unary(client, true, true, err);
        return r < 0 ? r : claim_unary(client, false, false, err);
}

static int server_compressed_unary(const Client *client, HutchError *err) {
        for (int wanted = 1; wanted >= 0; wanted--) {
                SimpleRequest request = GRPC__TESTING__SIMPLE_REQUEST__INIT;
                BoolValue compressed = bool_value(wanted);
                bool was_compressed = false;
                int r;

                request.response_compressed = &compressed;
                r = large_call(client, request, false, &was_compressed, err);
                if (r < 0)
                        return r;
                if (was_compressed != wanted)
                        return wrong(err, "the answer is %scompressed", was_compressed ? "" : "not ");
        }

        return 0;
}

/* Sends one message to StreamingInputCall of which it says that it is compressed, or not. */
static int claim_input(BlockingCall *call, int32_t size, bool claim, bool compresses, HutchError *err) {
        BoolValue expected = bool_value(claim);

        blocking_call_set_compression(call, compresses);
        return send_input(call, size, &expected, err);
}

static int false_claim_is_noticed(const Client *client, HutchError *err) {
        const ChannelRequest request = { .path = METHOD("StreamingInputCall"), .compresses = true };
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, request, &call, err);

        if (r >= 0)
                r = claim_input(call, 27182, true, false, err);
        return r < 0 ? r : expect_failure(read_sum(call, 27182, err), err, STATUS_INVALID_ARGUMENT, NULL);
}

static int client_compressed_streaming(const Client *client, HutchError *err) {
        const ChannelRequest request = { .path = METHOD("StreamingInputCall"), .compresses = true };
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = client->probes ? false_claim_is_noticed(client, err) : 0;

        if (r >= 0)
                r = start(client, request, &call, err);
        if (r >= 0)
                r = claim_input(call, 27182, true, true, err);
        if (r >= 0)
                r = claim_input(call, 45904, false, false, err);
        return r < 0 ? r : read_sum(call, 27182 + 45904, err);
}

static int server_compressed_streaming(const Client *client, HutchError *err) {
        static const int32_t sizes[] = { 31415, 92653 };
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        OutputRequest request = GRPC__TESTING__STREAMING_OUTPUT_CALL_REQUEST__INIT;
        BoolValue compressed[] = { bool_value(true), bool_value(false) };
        ResponseParameters parameters[2], *list[2];
        int r;

        for (size_t i = 0; i < 2; i++) {
                parameters[i] = (ResponseParameters) GRPC__TESTING__RESPONSE_PARAMETERS__INIT;
                parameters[i].size = sizes[i];
                parameters[i].compressed = &compressed[i];
                list[i] = &parameters[i];
        }
        request.response_parameters = list;
        request.n_response_parameters = 2;

        r = start(client, (ChannelRequest){ .path = METHOD("StreamingOutputCall") }, &call, err);
        if (r >= 0)
                r = send_message(call, &request.base, err);
        if (r < 0)
                return r;

        blocking_call_end(call);
        for (size_t i = 0; i < 2; i++) {
                _cleanup_(blocking_message_clear) BlockingMessage message = {};

                r = read_message(call, &message, err);
                if (r >= 0)
                        r = check_payload(&message, sizes[i], err);
                if (r < 0)
                        return r;
                if (message.was_compressed != compressed[i].value)
                        return wrong(err, "message %zu is %scompressed", i + 1, message.was_compressed ? "" : "not ");
        }

        return read_end(call, err);
}

static int server_vanishes(const Client *client, HutchError *err) {
        _cleanup_(blocking_call_freep) BlockingCall *call = NULL;
        int r = start(client, (ChannelRequest){ .path = METHOD("FullDuplexCall") }, &call, err);

        if (r >= 0)
                r = send_output_request(call, response_sizes[0], request_sizes[0], 0, err);
        if (r >= 0)
                r = read_payload(call, response_sizes[0], err);
        if (r < 0)
                return r;

        printf("answered\n");
        (void) fflush(stdout);
        return expect_failure(read_end(call, err), err, STATUS_UNAVAILABLE, NULL);
}

static const struct Case {
        const char *name;
        int (*run)(const Client *client, HutchError *err);
} cases[] = {
        { "empty_unary", empty_unary },
        { "large_unary", large_unary },
        { "client_streaming", client_streaming },
        { "server_streaming", server_streaming },
        { "ping_pong", ping_pong },
        { "empty_stream", empty_stream },
        { "custom_metadata", custom_metadata },
        { "status_code_and_message", status_code_and_message },
        { "special_status_message", special_status_message },
        { "unimplemented_method", unimplemented_method },
        { "unimplemented_service", unimplemented_service },
        { "cancel_after_begin", cancel_after_begin },
        { "cancel_after_first_response", cancel_after_first_response },
        { "timeout_on_sleeping_server", timeout_on_sleeping_server },
        { "client_compressed_unary", client_compressed_unary },
        { "server_compressed_unary", server_compressed_unary },
        { "client_compressed_streaming", client_compressed_streaming },
        { "server_compressed_streaming", server_compressed_streaming },
        { "server_vanishes", server_vanishes },
};

static const struct Case *find_case(const char *name) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
                if (strcmp(cases[i].name, name) == 0)
                        return &cases[i];

        return NULL;
}

static int parse_options(int argc, char **argv, Options *options) {
        static const struct option known[] = {
                { "target", required_argument, NULL, 't' }, { "case", required_argument, NULL, 'n' },
                { "ca", required_argument, NULL, 'a' },     { "cert", required_argument, NULL, 'c' },
                { "key", required_argument, NULL, 'k' },    { "server-name", required_argument, NULL, 's' },
                { "no-probe", no_argument, NULL, 'p' },     {},
        };
        int option;

        while ((option = getopt_long(argc, argv, "", known, NULL)) >= 0) {
                switch (option) {
                case 't':
                        options->target = optarg;
                        break;
                case 'n':
                        options->name = optarg;
                        break;
                case 'a':
                        options->tls.ca_file = optarg;
                        break;
                case 'c':
                        options->tls.certificate_file = optarg;
                        break;
                case 'k':
                        options->tls.key_file = optarg;
                        break;
                case 's':
                        options->server_name = optarg;
                        break;
                case 'p':
                        options->no_probe = true;
                        break;
                default:
                        return -EINVAL;
                }
        }

        return optind == argc && options->target && options->name ? 0 : -EINVAL;
}

/* Runs the case. One try must do: servers are there before clients. */
static int run_case(const struct Case *chosen, const Options *options, HutchError *err) {
        _cleanup_(tls_context_unrefp) TlsContext *tls = NULL;
        _cleanup_(blocking_freep) Blocking *blocking = NULL;
        ChannelOptions channel_options = channel_options_default;
        int r;

        if (options->tls.ca_file) {
                r = tls_context_new_client(&options->tls, &tls, err);
                if (r < 0)
                        return r;
        }

        channel_options.target = options->target;
        channel_options.tls = tls;
        channel_options.server_name = options->server_name;
        channel_options.retry = &(RetryPolicy){ .attempts = 1 };
        r = blocking_new(&channel_options, &blocking, err);
        if (r < 0)
                return r;

        return chosen->run(&(Client){ .blocking = blocking, .probes = !options->no_probe }, err);
}

int main(int argc, char **argv) {
        _cleanup_(error_clear) HutchError err = {};
        const struct Case *chosen;
        Options options = {};

        if (parse_options(argc, argv, &options) < 0) {
                fprintf(stderr, "usage: %s --target TARGET --case NAME [--ca FILE …]\n", argv[0]);
                return 2;
        }
        chosen = find_case(options.name);
        if (!chosen) {
                fprintf(stderr, "there is no case %s\n", options.name);
                return 2;
        }

        if (run_case(chosen, &options, &err) < 0) {
                fprintf(stderr, "%s: %s: %s\n", status_code_name(err.code), err.reason, error_message(&err));
                return 1;
        }

        return 0;
}
