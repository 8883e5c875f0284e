/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/status-details.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "contract/google/rpc/error_details.pb-c.h"
#include "contract/google/rpc/status.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/method-table.h"
#include "rpc/core/protobuf.h"

#include "fail-alloc.h"
#include "session-pair.h"
#include "test.h"

static const StatusPair two_pairs[] = { { "sandbox", "sb-1" }, { "état", "prêt" } };
static const StatusViolation two_violations[] = {
        { .field = "spec.mounts[2].target", .reason = "PATH_DOTDOT", .description = "it has \"..\"" },
        { .field = "spec.name", .reason = "NAME_MALFORMED", .description = "it is too long" },
};
static const StatusDetails full = {
        .reason = "PATH_DOTDOT",
        .domain = "hutch",
        .pairs = two_pairs,
        .n_pairs = 2,
        .violations = two_violations,
        .n_violations = 2,
};

static void assert_full(const StatusDetails *details) {
        assert_non_null(details->reason);
        assert_non_null(details->reason);
        assert_string_equal(details->reason, "PATH_DOTDOT");
        assert_string_equal(details->domain, "hutch");
        assert_int_equal(details->n_pairs, 2);
        assert_string_equal(details->pairs[1].key, "état");
        assert_string_equal(details->pairs[1].value, "prêt");
        assert_int_equal(details->n_violations, 2);
        assert_string_equal(details->violations[0].field, "spec.mounts[2].target");
        assert_string_equal(details->violations[0].reason, "PATH_DOTDOT");
        assert_string_equal(details->violations[0].description, "it has \"..\"");
        assert_string_equal(details->violations[1].field, "spec.name");
}

/* Wraps @value, as it is, into a Status. */
static void encode_any(const char *type_url, const void *value, size_t len, uint8_t *buffer, size_t size,
                       size_t *ret_len) {
        Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *anys[] = { &any };
        Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;

        any.type_url = (char *) type_url;
        any.value = (ProtobufCBinaryData){ .data = (uint8_t *) value, .len = len };
        status.details = anys;
        status.n_details = 1;
        assert_true(google__rpc__status__get_packed_size(&status) <= size);
        *ret_len = google__rpc__status__pack(&status, buffer);
}

static void what_is_encoded_is_decoded(void **state) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(status_details_encode(STATUS_INVALID_ARGUMENT, "no", &full, &bytes, &len), 0);
        assert_int_equal(status_details_decode(bytes, len, &details), 0);
        assert_full(details);
}

static void the_status_has_its_code_and_message(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        Google__Rpc__Status *status;
        size_t len;

        assert_int_equal(status_details_encode(STATUS_NOT_FOUND, "gone", &full, &bytes, &len), 0);
        status = google__rpc__status__unpack(NULL, len, bytes);
        assert_non_null(status);
        assert_int_equal(status->code, STATUS_NOT_FOUND);
        assert_string_equal(status->message, "gone");
        assert_int_equal(status->n_details, 2);
        assert_string_equal(status->details[0]->type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        assert_string_equal(status->details[1]->type_url, "type.googleapis.com/google.rpc.BadRequest");
        google__rpc__status__free_unpacked(status, NULL);
}

static void nothing_is_a_status_too(void **state) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL, *none = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(status_details_encode(STATUS_INTERNAL, NULL, &(StatusDetails){}, &bytes, &len), 0);
        assert_int_equal(status_details_decode(bytes, len, &details), 0);
        assert_null(details->reason);
        assert_null(details->domain);
        assert_int_equal(details->n_pairs, 0);
        assert_int_equal(details->n_violations, 0);

        assert_int_equal(status_details_decode(NULL, 0, &none), 0);
        assert_null(none->reason);
}

static void texts_may_be_missing(void **state) {
        const StatusDetails sparse = {
                .reason = "X",
                .pairs = &(StatusPair){ .key = "k" },
                .n_pairs = 1,
                .violations = &(StatusViolation){ .field = "f" },
                .n_violations = 1,
        };
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(status_details_encode(STATUS_INTERNAL, NULL, &sparse, &bytes, &len), 0);
        assert_int_equal(status_details_decode(bytes, len, &details), 0);
        assert_string_equal(details->domain, "");
        assert_string_equal(details->pairs[0].value, "");
        assert_string_equal(details->violations[0].reason, "");
}

static void what_does_not_fit_is_left_out_from_the_end(void **state) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        _cleanup_free_ uint8_t *bytes = NULL;
        StatusViolation violations[200];
        StatusDetails many = full;
        char description[100];
        size_t len;

        memset(description, 'x', sizeof(description) - 1);
        description[sizeof(description) - 1] = '\0';
        for (size_t i = 0; i < 200; i++)
                violations[i] = (StatusViolation){ .field = "f", .description = description };
        many.violations = violations;
        many.n_violations = 200;

        assert_int_equal(status_details_encode(STATUS_INVALID_ARGUMENT, "no", &many, &bytes, &len), 0);
        assert_in_range(len, STATUS_DETAILS_ENCODED_MAX - 250, STATUS_DETAILS_ENCODED_MAX);
        assert_int_equal(status_details_decode(bytes, len, &details), 0);
        assert_string_equal(details->reason, full.reason);
        assert_int_equal(details->n_pairs, 2);
        assert_in_range(details->n_violations, 20, 40);
}

static void what_can_never_fit_is_refused(void **state) {
        char reason[STATUS_DETAILS_ENCODED_MAX];
        StatusDetails large = full;
        uint8_t *bytes = NULL;
        size_t len;

        memset(reason, 'X', sizeof(reason) - 1);
        reason[sizeof(reason) - 1] = '\0';
        large.reason = reason;
        assert_int_equal(status_details_encode(STATUS_INTERNAL, "no", &large, &bytes, &len), -E2BIG);
        assert_null(bytes);
}

static void details_of_other_types_are_passed_over(void **state) {
        static const char *const types[] = { "type.googleapis.com/google.rpc.Help", "google.rpc.ErrorInfo", "", "/",
                                             "type.googleapis.com/google.rpc.ErrorInfoX" };

        for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
                _cleanup_(status_details_freep) StatusDetails *details = NULL;
                uint8_t buffer[128];
                size_t len;

                encode_any(types[i], "\xff\xff", 2, buffer, sizeof(buffer), &len);
                assert_int_equal(status_details_decode(buffer, len, &details), 0);
                assert_null(details->reason);
        }
}

static void a_malformed_detail_is_refused(void **state) {
        static const struct {
                const char *type;
                const char *value;
        } cases[] = {
                { "x/google.rpc.ErrorInfo", "\xff\xff" },                  /* no tag */
                { "x/google.rpc.ErrorInfo", "\x0a\x7fX" },                 /* longer than it is */
                { "x/google.rpc.ErrorInfo", "\x0a\x02\xc3\x28" },          /* a reason that is not UTF-8 */
                { "x/google.rpc.ErrorInfo", "\x1a\x03\x0a\x01\xff" },      /* a key that is not */
                { "x/google.rpc.BadRequest", "\x0a\x03\x0a\x01\xff" },     /* a field that is not */
                { "x/google.rpc.BadRequest", "\x0a\x03\x12\x01\x80" },     /* a description that is not */
                { "x/google.rpc.BadRequest", "\x0a\x05\x0a\x7f\x01\x01" }, /* a violation cut short */
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                StatusDetails *details = NULL;
                uint8_t buffer[128];
                size_t len;

                encode_any(cases[i].type, cases[i].value, strlen(cases[i].value), buffer, sizeof(buffer), &len);
                assert_int_equal(status_details_decode(buffer, len, &details), -EBADMSG);
                assert_null(details);
        }
}

/* Every prefix, and every byte changed in every bit: a result or an error, never more. */
static void damaged_bytes_do_no_harm(void **state) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;

        assert_int_equal(status_details_encode(STATUS_INVALID_ARGUMENT, "no", &full, &bytes, &len), 0);
        for (size_t i = 0; i < len; i++) {
                _cleanup_(status_details_freep) StatusDetails *cut = NULL;

                (void) status_details_decode(bytes, i, &cut);
                for (unsigned bit = 0; bit < 8; bit++) {
                        _cleanup_(status_details_freep) StatusDetails *details = NULL;

                        bytes[i] ^= (uint8_t) (1U << bit);
                        (void) status_details_decode(bytes, len, &details);
                        bytes[i] ^= (uint8_t) (1U << bit);
                }
        }
}

static void small_bytes_that_unfold_into_many_are_refused(void **state) {
        static uint8_t empty_details[65536]; /* details without type and value, two bytes each */
        static uint8_t unknown_fields[65536];
        StatusDetails *details = NULL;

        for (size_t i = 0; i < sizeof(empty_details); i += 2) {
                empty_details[i] = 0x1a;
                unknown_fields[i] = 0x78;
        }

        fail_alloc_above((size_t) 1 << 20);
        assert_int_equal(status_details_decode(empty_details, sizeof(empty_details), &details), -EMSGSIZE);
        assert_int_equal(status_details_decode(unknown_fields, sizeof(unknown_fields), &details), -EMSGSIZE);
        assert_false(fail_alloc_happened());
        fail_alloc_off();
}

static void more_than_the_limits_are_left_out(void **state) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        uint8_t violations[2 * (STATUS_DETAILS_VIOLATIONS_MAX + 10)], buffer[512];
        size_t len;

        for (size_t i = 0; i < sizeof(violations); i += 2) {
                violations[i] = 0x0a;
                violations[i + 1] = 0;
        }
        encode_any("x/google.rpc.BadRequest", violations, sizeof(violations), buffer, sizeof(buffer), &len);
        assert_int_equal(status_details_decode(buffer, len, &details), 0);
        assert_int_equal(details->n_violations, STATUS_DETAILS_VIOLATIONS_MAX);
}

static void memory_may_run_out_anywhere(void **state) {
        FAIL_ALLOC_LOOP {
                _cleanup_(status_details_freep) StatusDetails *details = NULL;
                _cleanup_free_ uint8_t *bytes = NULL;
                size_t len;
                int r = status_details_encode(STATUS_INVALID_ARGUMENT, "no", &full, &bytes, &len);

                if (r == 0)
                        r = status_details_decode(bytes, len, &details);
                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
                if (r == 0)
                        assert_full(details);
        }
}

static void fail_with_details(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(error_clear) HutchError err = {};

        (void) message, (void) len;
        (void) error_set(&err, -EINVAL, "PATH_DOTDOT", "it has \"..\"");
        call_fail_details(call, &err, context);
}

/* Calls a method that fails with @details. */
static void call_that_fails(const StatusDetails *details, PairCall *call) {
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        _cleanup_(session_pair_clear) SessionPair pair = {};
        Method method = { .path = "/t.T/Fail", .handle = fail_with_details, .context = (void *) details };

        assert_non_null(table);
        assert_int_equal(method_table_add(table, &method, 1), 0);
        session_pair_init(&pair, table);
        pair_call_start(&pair, call, "/t.T/Fail");
        pair_call_send_bytes(&pair, call, "", 0);
        pair_call_end(&pair, call);
        assert_null(call->call);
        assert_int_equal(call->code, STATUS_INVALID_ARGUMENT);
        assert_string_equal(call->text, "it has \"..\"");
}

static void a_call_fails_with_details(void **state) {
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        _cleanup_(pair_call_clear) PairCall call = {};
        StatusDetails without_reason = full;

        without_reason.reason = NULL; /* it is that of the error */
        call_that_fails(&without_reason, &call);
        assert_int_equal(status_details_decode(call.details, call.details_len, &details), 0);
        assert_full(details);
}

static void fail_plainly(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(error_clear) HutchError err = {};

        (void) message, (void) len, (void) context;
        (void) error_set(&err, -ENOENT, "FILE_NOT_FOUND", "nothing is at /\xc3\xa9/\xc3/\xff");
        call_fail(call, &err);
}

static void a_call_that_fails_tells_its_reason(void **state) {
        _cleanup_(method_table_freep) MethodTable *table = method_table_new();
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL;
        _cleanup_(session_pair_clear) SessionPair pair = {};
        _cleanup_(pair_call_clear) PairCall call = {};
        Method method = { .path = "/t.T/Fail", .handle = fail_plainly };

        assert_non_null(table);
        assert_int_equal(method_table_add(table, &method, 1), 0);
        session_pair_init(&pair, table);
        pair_call_start(&pair, &call, "/t.T/Fail");
        pair_call_send_bytes(&pair, &call, "", 0);
        pair_call_end(&pair, &call);
        assert_int_equal(call.code, STATUS_NOT_FOUND);
        assert_int_equal(status_details_decode(call.details, call.details_len, &details), 0);
        assert_non_null(details->reason);
        assert_string_equal(details->reason, "FILE_NOT_FOUND");
        assert_string_equal(details->domain, "hutch");

        /* The status says the same twice, in UTF-8. */
        assert_string_equal(call.text, "nothing is at /\xc3\xa9/?/?");
        assert_int_equal(
                protobuf_unpack(&google__rpc__status__descriptor, call.details, call.details_len, SIZE_MAX, &unpacked),
                0);
        assert_string_equal(((Google__Rpc__Status *) unpacked)->message, call.text);
}

static void a_call_fails_without_details_that_do_not_fit(void **state) {
        _cleanup_(pair_call_clear) PairCall call = {};
        char domain[STATUS_DETAILS_ENCODED_MAX];
        StatusDetails large = { .domain = domain };

        memset(domain, 'x', sizeof(domain) - 1);
        domain[sizeof(domain) - 1] = '\0';
        call_that_fails(&large, &call);
        assert_int_equal(call.details_len, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_encoded_is_decoded),
                cmocka_unit_test(the_status_has_its_code_and_message),
                cmocka_unit_test(nothing_is_a_status_too),
                cmocka_unit_test(texts_may_be_missing),
                cmocka_unit_test(what_does_not_fit_is_left_out_from_the_end),
                cmocka_unit_test(what_can_never_fit_is_refused),
                cmocka_unit_test(details_of_other_types_are_passed_over),
                cmocka_unit_test(a_malformed_detail_is_refused),
                cmocka_unit_test(damaged_bytes_do_no_harm),
                cmocka_unit_test(small_bytes_that_unfold_into_many_are_refused),
                cmocka_unit_test(more_than_the_limits_are_left_out),
                cmocka_unit_test(memory_may_run_out_anywhere),
                cmocka_unit_test(a_call_fails_with_details),
                cmocka_unit_test(a_call_that_fails_tells_its_reason),
                cmocka_unit_test(a_call_fails_without_details_that_do_not_fit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
