/* SPDX-License-Identifier: Apache-2.0 */

#include "api/message.h"

#include <errno.h>
#include <string.h>

#include "api/convert.h"
#include "api/page-token.h"
#include "api/times.h"
#include "api/wire-buffer.h"
#include "base/clock.h"
#include "contract/hutch/v1/event.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"
#include "test.h"

/* Unpacks a CreateExecRequest with this environment, in the order given. */
static ProtobufCMessage *make_request(const char *request_id, const char *const env[], size_t n_env) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        ProtobufCMessage *message;
        size_t spec;

        wire_put_text(&buffer, 1, "sandbox-1");
        spec = wire_begin(&buffer, 3);
        wire_put_text(&buffer, 1, "true");
        for (size_t i = 0; i < n_env; i += 2) {
                size_t entry = wire_begin(&buffer, 3);

                wire_put_text(&buffer, 1, env[i]);
                wire_put_text(&buffer, 2, env[i + 1]);
                wire_end(&buffer, entry);
        }
        wire_end(&buffer, spec);
        wire_put_text(&buffer, 4, request_id);

        message = message_unpack(&hutch__v1__create_exec_request__descriptor, buffer.bytes, buffer.len, &violations);
        assert_non_null(message);
        return message;
}

static void fingerprints_are_of_what_is_asked(void **state) {
        const char *const ab[] = { "A", "1", "B", "2" }, *const ba[] = { "B", "2", "A", "1" };
        const char *const other[] = { "A", "1", "B", "3" };
        _cleanup_(protobuf_freep) ProtobufCMessage *first = make_request("r1", ab, 4);
        _cleanup_(protobuf_freep) ProtobufCMessage *reordered = make_request("r2", ba, 4);
        _cleanup_(protobuf_freep) ProtobufCMessage *changed = make_request("r1", other, 4);
        uint8_t a[FINGERPRINT_SIZE], b[FINGERPRINT_SIZE];

        assert_int_equal(message_fingerprint(first, "CreateExec", a), 0);
        assert_int_equal(message_fingerprint(reordered, "CreateExec", b), 0);
        assert_memory_equal(a, b, sizeof(a));
        assert_string_equal(((Hutch__V1__CreateExecRequest *) first)->request_id, "r1");

        assert_int_equal(message_fingerprint(first, "RunCommand", b), 0);
        assert_memory_not_equal(a, b, sizeof(a));
        assert_int_equal(message_fingerprint(changed, "CreateExec", b), 0);
        assert_memory_not_equal(a, b, sizeof(a));
}

/* Unpacks a CreateExecRequest with @n arguments of @len bytes. 0, or the error that it is refused with. */
static int unpack_arguments(size_t n, size_t len, HutchError *err) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        size_t spec = wire_begin(&buffer, 3);

        for (size_t i = 0; i < n; i++)
                wire_put_bytes(&buffer, 1, "abcdefgh", len);
        wire_end(&buffer, spec);
        assert_false(buffer.failed);
        message = message_unpack(&hutch__v1__create_exec_request__descriptor, buffer.bytes, buffer.len, &violations);
        assert_int_equal(message == NULL, violations_result(&violations, err) < 0);
        return violations_result(&violations, NULL);
}

static void many_small_parts_are_taken_up_to_a_limit(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        const size_t counts[] = { 1, 15, 16, 17, 1000, 20000, 32768, 60000, 70000, 131072, 131073, 250000, 500000 };

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                for (size_t len = 0; len < 3; len++)
                        assert_int_equal(unpack_arguments(counts[i], len, &err), 0);
        for (size_t n = 1000000; n <= 2000000; n += 250000) {
                error_clear(&err);
                assert_true(unpack_arguments(n, 0, &err) < 0);
        }
        assert_string_equal(err.reason, "MESSAGE_TOO_LARGE");
        assert_string_equal(error_message(&err),
                            "the message has too many parts: they take more than 32 MiB of memory");
        assert_int_equal(err.n_pairs, 2);
        assert_string_equal(err.pairs[0].key, "limit");
        assert_string_equal(err.pairs[0].value, "message_memory_bytes");
        assert_string_equal(err.pairs[1].key, "value");
        assert_string_equal(err.pairs[1].value, "33554432");
}

static void page_tokens_come_back_as_they_went(void **state) {
        const uint64_t serials[] = { 1, 77, UINT32_MAX, UINT64_MAX };
        char token[PAGE_TOKEN_SIZE];

        for (size_t i = 0; i < sizeof(serials) / sizeof(serials[0]); i++) {
                uint64_t serial = 0;

                page_token_write(serials[i], 4711, token);
                assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                                 strlen(token));
                assert_int_equal(page_token_read(token, 4711, &serial, NULL), 0);
                assert_true(serial == serials[i]);
        }
}

static void no_token_is_the_first_page(void **state) {
        uint64_t serial = 5;

        assert_int_equal(page_token_read("", 4711, &serial, NULL), 0);
        assert_int_equal(serial, 0);
}

static void assert_bad_token(const char *token, uint64_t filter_hash) {
        _cleanup_(error_clear) HutchError err = {};
        uint64_t serial = 5;

        assert_int_equal(page_token_read(token, filter_hash, &serial, &err), -EINVAL);
        assert_string_equal(err.reason, "PAGE_TOKEN_INVALID");
        assert_int_equal(serial, 5);
}

static void other_tokens_are_refused(void **state) {
        char token[PAGE_TOKEN_SIZE];

        page_token_write(9, 4711, token);
        assert_bad_token(token, 4712);
        assert_bad_token("x", 4711);
        assert_bad_token("////////////////////////////", 4711);
        assert_bad_token("a longer text than any token has ever had", 4711);
        for (size_t i = 0; token[i]; i++) {
                char kept = token[i];

                token[i] = kept == 'A' ? 'B' : 'A';
                assert_bad_token(token, 4711);
                token[i] = kept;
        }
}

static void filters_have_hashes_of_their_own(void **state) {
        assert_true(page_filter_hash("a", 1) == page_filter_hash("a", 1));
        assert_true(page_filter_hash("a", 1) != page_filter_hash("b", 1));
        assert_true(page_filter_hash("a\0b", 3) != page_filter_hash("a\0c", 3));
}

static void nested_messages_have_their_shortest_length(void **state) {
        const size_t lens[] = { 0, 1, 127, 128, 16383, 16384, 300000 };

        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
                _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
                _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
                _cleanup_free_ char *text = new0(char, lens[i] + 1);
                size_t begun = wire_begin(&buffer, 2);

                memset(text, 'x', lens[i]);
                if (lens[i] > 0)
                        wire_put_text(&buffer, 1, text);
                wire_end(&buffer, begun);
                assert_false(buffer.failed);

                assert_int_equal(protobuf_unpack(&hutch__v1__create_sandbox_request__descriptor, buffer.bytes,
                                                 buffer.len, 1 << 20, &message),
                                 0);
                assert_string_equal(((Hutch__V1__CreateSandboxRequest *) message)->spec->image, text);
                assert_int_equal(protobuf_c_message_get_packed_size(message), buffer.len);
        }
}

static void durations_are_read_and_bounded(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
        uint64_t ns;

        duration_read_bounded(NULL, "grace", 100, 7, &violations, &ns);
        assert_int_equal(ns, 7);
        duration.nanos = 100;
        duration_read_bounded(&duration, "grace", 100, 7, &violations, &ns);
        assert_int_equal(ns, 100);
        assert_int_equal(violations.n, 0);

        duration.nanos = 101;
        duration_read_bounded(&duration, "grace", 100, 7, &violations, &ns);
        duration.nanos = -1;
        duration_read_bounded(&duration, "grace", 100, 7, &violations, &ns);
        assert_int_equal(violations.n, 2);
        assert_int_equal(violations.list[0].reason, REASON_FIELD_OUT_OF_RANGE);
        assert_int_equal(violations.list[1].reason, REASON_DURATION_OUT_OF_RANGE);
}

static Hutch__V1__Event *encode_and_unpack(const Event *event) {
        _cleanup_free_ uint8_t *bytes = NULL;
        ProtobufCMessage *message = NULL;
        size_t len = 0;

        assert_int_equal(event_encode(event, &bytes, &len), 0);
        assert_int_equal(protobuf_unpack(&hutch__v1__event__descriptor, bytes, len, 1 << 20, &message), 0);
        return (Hutch__V1__Event *) message;
}

static void events_say_what_changed(void **state) {
        Label labels[] = { { "team", "red" } };
        SandboxSpec spec = { .labels = labels, .n_labels = 1 };
        SandboxRecord sandbox = { .id = "sb-1", .state = SANDBOX_READY, .spec = &spec };
        ExecRecord exec = { .id = "ex-1", .state = EXEC_EXITED };
        const char *const fields[] = { "labels", NULL };
        Event event = {
                .cursor = 12,
                .sequence = 3,
                .time = 5 * NSEC_PER_SEC + 7,
                .type = EVENT_SANDBOX_STATE_CHANGED,
                .sandbox = &sandbox,
                .actor = "uid:1",
                .from_state = SANDBOX_PENDING,
        };
        Hutch__V1__Event *message = encode_and_unpack(&event);

        assert_int_equal(message->cursor, 12);
        assert_int_equal(message->sequence, 3);
        assert_int_equal(message->time->seconds, 5);
        assert_int_equal(message->time->nanos, 7);
        assert_string_equal(message->sandbox_id, "sb-1");
        assert_string_equal(message->actor, "uid:1");
        assert_string_equal(message->traceparent, "");
        assert_int_equal(message->change_case, HUTCH__V1__EVENT__CHANGE_SANDBOX_STATE);
        assert_int_equal(message->sandbox_state->from_state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_PENDING);
        assert_int_equal(message->sandbox_state->to_state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_READY);
        (void) protobuf_free(&message->base);

        event.type = EVENT_SANDBOX_CREATED;
        event.is_new = true;
        message = encode_and_unpack(&event);
        assert_int_equal(message->sandbox_state->from_state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_UNSPECIFIED);
        (void) protobuf_free(&message->base);

        event.type = EVENT_SANDBOX_UPDATED;
        event.fields = fields;
        message = encode_and_unpack(&event);
        assert_int_equal(message->change_case, HUTCH__V1__EVENT__CHANGE_SANDBOX_UPDATE);
        assert_int_equal(message->sandbox_update->n_fields, 1);
        assert_string_equal(message->sandbox_update->fields[0], "labels");
        assert_int_equal(message->sandbox_update->n_labels, 1);
        assert_string_equal(message->sandbox_update->labels[0]->value, "red");
        (void) protobuf_free(&message->base);

        event.type = EVENT_EXEC_STATE_CHANGED;
        event.is_new = false;
        event.exec = &exec;
        event.exec_from = EXEC_RUNNING;
        exec.result = (ExecResult){
                .end_reason = EXEC_END_EXITED,
                .has_exit_code = true,
                .out = { .total = 10, .dropped = 4 },
                .cpu_time = NSEC_PER_MSEC,
        };
        message = encode_and_unpack(&event);
        assert_int_equal(message->change_case, HUTCH__V1__EVENT__CHANGE_EXEC_STATE);
        assert_string_equal(message->exec_state->exec_id, "ex-1");
        assert_int_equal(message->exec_state->from_state, HUTCH__V1__EXEC_STATE__EXEC_STATE_RUNNING);
        assert_int_equal(message->exec_state->result->opt_exit_code_case,
                         HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE);
        assert_int_equal(message->exec_state->result->exit_code, 0);
        assert_true(message->exec_state->result->stdout->truncated);
        assert_false(message->exec_state->result->stderr->truncated);
        (void) protobuf_free(&message->base);

        exec.state = EXEC_RUNNING;
        message = encode_and_unpack(&event);
        assert_null(message->exec_state->result);
        (void) protobuf_free(&message->base);

        event.type = EVENT_LIMIT_HIT;
        event.limit = "memory_bytes";
        event.limit_value = 8;
        event.limit_count = 2;
        message = encode_and_unpack(&event);
        assert_int_equal(message->change_case, HUTCH__V1__EVENT__CHANGE_LIMIT_HIT);
        assert_string_equal(message->limit_hit->limit, "memory_bytes");
        assert_string_equal(message->limit_hit->exec_id, "ex-1");
        (void) protobuf_free(&message->base);
}

static void execs_are_shown_with_the_spec_that_was_given(void **state) {
        uint8_t encoded[] = { 0x0a, 2, 'l', 's' };
        ExecSpec spec = { .encoded = encoded, .encoded_len = sizeof(encoded) };
        ExecRecord record = { .id = "ex-12", .spec = &spec, .state = EXEC_RUNNING, .create_time = 1 };
        ExecView view = { .record = &record, .sandbox_id = "sb-12", .stdout_bytes = 3 };
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        const Hutch__V1__Exec *exec;

        put_exec(&buffer, 1, &view);
        assert_int_equal(
                protobuf_unpack(&hutch__v1__get_exec_response__descriptor, buffer.bytes, buffer.len, 1 << 16, &message),
                0);
        exec = ((Hutch__V1__GetExecResponse *) message)->exec;
        assert_string_equal(exec->id, "ex-12");
        assert_string_equal(exec->sandbox_id, "sb-12");
        assert_string_equal(exec->spec->argv[0], "ls");
        assert_int_equal(exec->state, HUTCH__V1__EXEC_STATE__EXEC_STATE_RUNNING);
        assert_non_null(exec->create_time);
        assert_null(exec->start_time);
        assert_null(exec->result);
        assert_int_equal(exec->stdout_bytes, 3);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(fingerprints_are_of_what_is_asked),
                cmocka_unit_test(many_small_parts_are_taken_up_to_a_limit),
                cmocka_unit_test(page_tokens_come_back_as_they_went),
                cmocka_unit_test(no_token_is_the_first_page),
                cmocka_unit_test(other_tokens_are_refused),
                cmocka_unit_test(filters_have_hashes_of_their_own),
                cmocka_unit_test(nested_messages_have_their_shortest_length),
                cmocka_unit_test(durations_are_read_and_bounded),
                cmocka_unit_test(events_say_what_changed),
                cmocka_unit_test(execs_are_shown_with_the_spec_that_was_given),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
