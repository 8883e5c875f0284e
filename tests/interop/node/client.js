// SPDX-License-Identifier: Apache-2.0

// Runs one case of the interoperability tests with gRPC's own library for Node. Exits with 0 when the case passed.
'use strict';

const assert = require('node:assert/strict');
const { readFileSync } = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const LIMIT = 60_000; // milliseconds
const GZIP = { 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip };
const NO_COMPRESS = 2; // gRPC's flag for a message that is not to be compressed
const REQUEST_SIZES = [27182, 8, 1828, 45904];
const RESPONSE_SIZES = [31415, 9, 2653, 58979];
const SPECIAL_STATUS_MESSAGE = '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n';

const definition = protoLoader.loadSync(path.join(__dirname, '..', 'proto', 'test.proto'), { keepCase: true });
const { TestService, UnimplementedService } = grpc.loadPackageDefinition(definition).grpc.testing;

const { values: options } = parseArgs({
        options: {
                target: { type: 'string' }, // what to connect to, as gRPC names it
                case: { type: 'string' },
                ca: { type: 'string' }, // file with the certificates to trust; without it nothing is encrypted
                cert: { type: 'string' }, // file with a client certificate
                key: { type: 'string' }, // file with its key
        },
});

function connect(Service, channelOptions = {}) {
        const read = (file) => (file === undefined ? null : readFileSync(file));
        const credentials = options.ca
                ? grpc.credentials.createSsl(read(options.ca), read(options.key), read(options.cert))
                : grpc.credentials.createInsecure();
        return new Service(options.target, credentials, channelOptions);
}

const inTime = () => ({ deadline: Date.now() + LIMIT });

const payload = (size) => ({ body: Buffer.alloc(size) });

function expectZeros(got, size) {
        assert.equal(got.body.length, size);
        assert.ok(got.body.equals(Buffer.alloc(size)), 'the payload is not all zeros');
}

// Calls a method that answers with one message.
function unary(client, method, request, metadata = new grpc.Metadata()) {
        return new Promise((resolve, reject) => {
                const answer = {};
                const call = client[method](request, metadata, inTime(), (error, reply) => {
                        answer.reply = reply;
                        answer.error = error;
                });
                call.on('metadata', (initial) => (answer.initial = initial));
                call.on('status', (status) => {
                        answer.trailing = status.metadata;
                        // The answer comes before or after the status.
                        setImmediate(() => (answer.error ? reject(answer.error) : resolve(answer)));
                });
        });
}

// Calls a method whose requests are a stream and whose answer is one message.
function upload(client, send, callOptions = inTime()) {
        return new Promise((resolve, reject) => {
                const call = client.StreamingInputCall(callOptions, (error, reply) =>
                        error ? reject(error) : resolve(reply),
                );
                send(call);
        });
}

// The rest of what a call answers.
async function collect(call) {
        const replies = [];
        for await (const reply of call) {
                replies.push(reply);
        }
        return replies;
}

const hasCode = (code, details) => (error) => {
        assert.equal(error.code, code, error.message);
        if (details !== undefined) {
                assert.equal(error.details, details);
        }
        return true;
};

async function pingPong(client, call, pairs) {
        const replies = call[Symbol.asyncIterator]();
        for (const [responseSize, requestSize] of pairs) {
                call.write({ response_parameters: [{ size: responseSize }], payload: payload(requestSize) });
                const { value, done } = await replies.next();
                assert.equal(done, false);
                expectZeros(value.payload, responseSize);
        }
        return replies;
}

const cases = {
        async empty_unary(client) {
                const { reply } = await unary(client, 'EmptyCall', {});
                assert.deepEqual(reply, {});
        },

        async large_unary(client) {
                const { reply } = await unary(client, 'UnaryCall', { response_size: 314159, payload: payload(271828) });
                expectZeros(reply.payload, 314159);
        },

        async client_streaming(client) {
                const reply = await upload(client, (call) => {
                        for (const size of REQUEST_SIZES) {
                                call.write({ payload: payload(size) });
                        }
                        call.end();
                });
                assert.equal(reply.aggregated_payload_size, 74922);
        },

        async server_streaming(client) {
                const parameters = RESPONSE_SIZES.map((size) => ({ size }));
                const call = client.StreamingOutputCall({ response_parameters: parameters }, inTime());
                const replies = await collect(call);
                assert.deepEqual(
                        replies.map((reply) => reply.payload.body.length),
                        RESPONSE_SIZES,
                );
        },

        async ping_pong(client) {
                const call = client.FullDuplexCall(inTime());
                const replies = await pingPong(
                        client,
                        call,
                        RESPONSE_SIZES.map((size, i) => [size, REQUEST_SIZES[i]]),
                );
                call.end();
                assert.equal((await replies.next()).done, true);
        },

        async empty_stream(client) {
                const call = client.FullDuplexCall(inTime());
                call.end();
                assert.deepEqual(await collect(call), []);
        },

        async custom_metadata(client) {
                const metadata = new grpc.Metadata();
                metadata.set('x-grpc-test-echo-initial', 'test_initial_metadata_value');
                metadata.set('x-grpc-test-echo-trailing-bin', Buffer.from('ababab', 'hex'));
                const check = ({ initial, trailing }) => {
                        assert.deepEqual(initial.get('x-grpc-test-echo-initial'), ['test_initial_metadata_value']);
                        assert.deepEqual(trailing.get('x-grpc-test-echo-trailing-bin'), [Buffer.from('ababab', 'hex')]);
                };

                const request = { response_size: 314159, payload: payload(271828) };
                check(await unary(client, 'UnaryCall', request, metadata));

                const call = client.FullDuplexCall(metadata, inTime());
                const told = {};
                call.on('metadata', (initial) => (told.initial = initial));
                const status = new Promise((resolve) => call.on('status', resolve));
                call.write({ response_parameters: [{ size: 314159 }], payload: payload(271828) });
                call.end();
                const replies = await collect(call);
                assert.equal(replies.length, 1);
                told.trailing = (await status).metadata;
                check(told);
        },

        async status_code_and_message(client) {
                const request = { response_status: { code: 2, message: 'test status message' } };
                const isTheStatus = hasCode(grpc.status.UNKNOWN, 'test status message');
                await assert.rejects(unary(client, 'UnaryCall', request), isTheStatus);

                const call = client.FullDuplexCall(inTime());
                call.write(request);
                call.end();
                await assert.rejects(collect(call), isTheStatus);
        },

        async special_status_message(client) {
                const request = { response_status: { code: 2, message: SPECIAL_STATUS_MESSAGE } };
                await assert.rejects(
                        unary(client, 'UnaryCall', request),
                        hasCode(grpc.status.UNKNOWN, SPECIAL_STATUS_MESSAGE),
                );
        },

        async unimplemented_method(client) {
                await assert.rejects(unary(client, 'UnimplementedCall', {}), hasCode(grpc.status.UNIMPLEMENTED));
        },

        async unimplemented_service() {
                const client = connect(UnimplementedService);
                await assert.rejects(unary(client, 'UnimplementedCall', {}), hasCode(grpc.status.UNIMPLEMENTED));
                client.close();
        },

        async cancel_after_begin(client) {
                const cancelled = upload(client, (call) => setImmediate(() => call.cancel()));
                await assert.rejects(cancelled, hasCode(grpc.status.CANCELLED));
        },

        async cancel_after_first_response(client) {
                const call = client.FullDuplexCall(inTime());
                const replies = await pingPong(client, call, [[31415, 27182]]);
                call.cancel();
                await assert.rejects(replies.next(), hasCode(grpc.status.CANCELLED));
        },

        async timeout_on_sleeping_server(client) {
                const call = client.FullDuplexCall({ deadline: Date.now() + 1 });
                call.write({ response_parameters: [{ size: 31415, interval_us: 5_000_000 }], payload: payload(27182) });
                await assert.rejects(collect(call), hasCode(grpc.status.DEADLINE_EXCEEDED));
        },

        async client_compressed_unary(client) {
                const request = (expected) => ({
                        expect_compressed: { value: expected },
                        response_size: 314159,
                        payload: payload(271828),
                });
                await assert.rejects(
                        unary(client, 'UnaryCall', request(true)),
                        hasCode(grpc.status.INVALID_ARGUMENT),
                );

                const compressing = connect(TestService, GZIP);
                const compressed = await unary(compressing, 'UnaryCall', request(true));
                expectZeros(compressed.reply.payload, 314159);
                compressing.close();

                const uncompressed = await unary(client, 'UnaryCall', request(false));
                expectZeros(uncompressed.reply.payload, 314159);
        },

        async server_compressed_unary(client) {
                for (const wanted of [true, false]) {
                        const { reply } = await unary(client, 'UnaryCall', {
                                response_compressed: { value: wanted },
                                response_size: 314159,
                                payload: payload(271828),
                        });
                        expectZeros(reply.payload, 314159);
                }
        },

        async client_compressed_streaming(client) {
                const request = (expected, size) => ({
                        expect_compressed: { value: expected },
                        payload: payload(size),
                });
                const probe = upload(client, (call) => {
                        call.write(request(true, 27182));
                        call.end();
                });
                await assert.rejects(probe, hasCode(grpc.status.INVALID_ARGUMENT));

                // The flag of a message is not to be had otherwise.
                class Uncompressed extends grpc.InterceptingCall {
                        sent = 0;
                        sendMessageWithContext(context, message) {
                                const flags = this.sent++ === 0 ? 0 : NO_COMPRESS;
                                super.sendMessageWithContext({ ...context, flags }, message);
                        }
                }
                const interceptors = [(callOptions, next) => new Uncompressed(next(callOptions))];
                const compressing = connect(TestService, GZIP);
                const send = (call) => {
                        call.write(request(true, 27182));
                        call.write(request(false, 45904));
                        call.end();
                };
                const reply = await upload(compressing, send, { ...inTime(), interceptors });
                assert.equal(reply.aggregated_payload_size, 73086);
                compressing.close();
        },

        async server_compressed_streaming(client) {
                const parameters = [
                        { size: 31415, compressed: { value: true } },
                        { size: 92653, compressed: { value: false } },
                ];
                const call = client.StreamingOutputCall({ response_parameters: parameters }, inTime());
                const replies = await collect(call);
                assert.equal(replies.length, 2);
                expectZeros(replies[0].payload, 31415);
                expectZeros(replies[1].payload, 92653);
        },
};

async function main() {
        const client = connect(TestService);
        await cases[options.case](client);
        client.close();
}

main().catch((error) => {
        console.error(error.message);
        process.exit(1);
});
