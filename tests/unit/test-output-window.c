/* SPDX-License-Identifier: Apache-2.0 */

#include "model/output-window.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "base/strings.h"
#include "test.h"

static void expect_window(uint64_t limit, uint64_t total, uint64_t head, uint64_t tail_start) {
        OutputWindow window = output_window(limit, total);

        assert_int_equal(window.head, head);
        assert_int_equal(window.tail_start, tail_start);
        assert_int_equal(window.total, total);
        assert_int_equal(output_window_dropped(window), tail_start - head);
}

static void all_is_kept_up_to_the_limit(void **state) {
        expect_window(10, 0, 0, 0);
        expect_window(10, 9, 9, 9);
        expect_window(10, 10, 10, 10);
        expect_window(0, 0, 0, 0);
        expect_window(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
}

static void past_the_limit_head_and_tail_are_kept(void **state) {
        expect_window(10, 11, 5, 6);
        expect_window(10, 1000, 5, 995);
        expect_window(11, 12, 6, 7);
        expect_window(1, 2, 1, 2);
        expect_window(0, 7, 0, 7);
        expect_window(UINT64_MAX - 1, UINT64_MAX, UINT64_MAX / 2, UINT64_MAX / 2 + 1);
        expect_window(3, UINT64_MAX, 2, UINT64_MAX - 1);
}

static void expect_seek(OutputWindow window, uint64_t from, uint64_t to, uint64_t available) {
        uint64_t offset, n;

        for (int finished = 0; finished < 2; finished++) {
                assert_int_equal(output_window_seek(window, from, finished, &offset, &n, NULL), 0);
                assert_int_equal(offset, to);
                assert_int_equal(n, available);
        }
}

static void reading_skips_what_was_dropped(void **state) {
        OutputWindow window = output_window(10, 100);

        expect_seek(window, 0, 0, 5);
        expect_seek(window, 4, 4, 1);
        expect_seek(window, 5, 95, 5);
        expect_seek(window, 94, 95, 5);
        expect_seek(window, 95, 95, 5);
        expect_seek(window, 99, 99, 1);
        expect_seek(window, 100, 100, 0);
        expect_seek(output_window(10, 10), 3, 3, 7);
        expect_seek(output_window(0, 10), 0, 10, 0);
        expect_seek(output_window(1, 10), 1, 10, 0);
        expect_seek(output_window(10, 0), 0, 0, 0);
}

static void beyond_the_end_is_nothing_yet_or_an_error(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        uint64_t offset, available;

        assert_int_equal(output_window_seek(output_window(10, 7), 8, false, &offset, &available, &err), 0);
        assert_int_equal(offset, 8);
        assert_int_equal(available, 0);

        assert_int_equal(output_window_seek(output_window(10, 7), 8, true, &offset, &available, &err), -ERANGE);
        assert_string_equal(err.reason, "OFFSET_OUT_OF_RANGE");
        assert_int_equal(err.code, STATUS_OUT_OF_RANGE);
}

static void expect_share(uint64_t limit, uint64_t out, uint64_t err, uint64_t out_limit, uint64_t err_limit) {
        uint64_t ret_out, ret_err;

        output_share(limit, out, err, &ret_out, &ret_err);
        assert_int_equal(ret_out, out_limit);
        assert_int_equal(ret_err, err_limit);
}

static void streams_share_what_the_other_does_not_need(void **state) {
        expect_share(10, 100, 100, 5, 5);
        expect_share(11, 100, 100, 6, 5);
        expect_share(10, 100, 2, 8, 5);
        expect_share(10, 2, 100, 5, 8);
        expect_share(10, 0, 0, 10, 10);
        expect_share(10, 7, 5, 5, 5);
        expect_share(0, 1, 1, 0, 0);
        expect_share(1, 5, 5, 1, 0);
        expect_share(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX / 2 + 1, UINT64_MAX / 2);
        expect_share(UINT64_MAX, 0, UINT64_MAX, UINT64_MAX / 2 + 1, UINT64_MAX);
}

static void stream_case(Vector *v) {
        OutputWindow window = output_window((uint64_t) vector_int(v, "limit"), (uint64_t) vector_int(v, "total"));

        vector_assert_int(v, "head", (int64_t) window.head);
        vector_assert_int(v, "tail_start", (int64_t) window.tail_start);
        vector_assert_int(v, "dropped", (int64_t) output_window_dropped(window));
        vector_assert_bool(v, "truncated", output_window_dropped(window) > 0);
}

static void bytes_case(Vector *v) {
        _cleanup_(string_builder_clear) StringBuilder all = {};
        OutputWindow window;
        json_t *chunk;
        size_t i;

        json_array_foreach(json_object_get(vector_json(v, "in"), "chunks"), i, chunk)
                string_builder_append_bytes(&all, json_string_value(chunk), json_string_length(chunk));

        window = output_window((uint64_t) vector_int(v, "limit"), all.len);
        vector_assert_bytes(v, "head", all.text ? all.text : "", window.head);
        vector_assert_bytes(v, "tail", all.text ? all.text + window.tail_start : "", all.len - window.tail_start);
        vector_assert_int(v, "dropped", (int64_t) output_window_dropped(window));
}

static void shared_case(Vector *v) {
        uint64_t stdout_limit, stderr_limit;

        output_share((uint64_t) vector_int(v, "limit"), (uint64_t) vector_int(v, "stdout"),
                     (uint64_t) vector_int(v, "stderr"), &stdout_limit, &stderr_limit);
        vector_assert_int(v, "stdout_limit", (int64_t) stdout_limit);
        vector_assert_int(v, "stderr_limit", (int64_t) stderr_limit);
}

static void read_case(Vector *v) {
        OutputWindow window = output_window((uint64_t) vector_int(v, "limit"), (uint64_t) vector_int(v, "total"));
        _cleanup_(error_clear) HutchError err = {};
        uint64_t offset, available;
        int r;

        r = output_window_seek(window, (uint64_t) vector_int(v, "offset"), vector_bool(v, "finished"), &offset,
                               &available, &err);
        vector_assert_result(v, r, &err);
        if (r >= 0 && vector_json(v, "out")) {
                vector_assert_int(v, "offset", (int64_t) offset);
                vector_assert_int(v, "available", (int64_t) available);
        }
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "output.json") {
                const char *kind = vector_string(v, "kind");

                if (str_equal(kind, "stream"))
                        stream_case(v);
                else if (str_equal(kind, "bytes"))
                        bytes_case(v);
                else if (str_equal(kind, "shared"))
                        shared_case(v);
                else if (str_equal(kind, "read"))
                        read_case(v);
                else
                        vector_check(v, false, "has an unknown kind");
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_is_kept_up_to_the_limit),
                cmocka_unit_test(past_the_limit_head_and_tail_are_kept),
                cmocka_unit_test(reading_skips_what_was_dropped),
                cmocka_unit_test(beyond_the_end_is_nothing_yet_or_an_error),
                cmocka_unit_test(streams_share_what_the_other_does_not_need),
                cmocka_unit_test(vectors_hold),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
