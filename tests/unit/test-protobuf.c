/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/protobuf.h"

#include <string.h>

#include "test.h"

static void bytes_are_found_in_a_message_of_nothing_else(void **state) {
        static const uint8_t good[] = { 0x12, 3, 'a', 'b', 'c' }, more[] = { 0x12, 1, 'a', 0x12, 0 },
                             other[] = { 0x0a, 1, 'a' }, cut[] = { 0x12, 3, 'a' },
                             padded[] = { 0x12, 0x83, 0x00, 'a', 'b', 'c' }, endless[] = { 0x12, 0x80, 0x80 };
        const uint8_t *data;
        size_t len;

        (void) state;
        assert_true(protobuf_find_bytes(good, sizeof(good), 2, &data, &len));
        assert_int_equal(len, 3);
        assert_memory_equal(data, "abc", 3);
        assert_true(protobuf_find_bytes(padded, sizeof(padded), 2, &data, &len));
        assert_memory_equal(data, "abc", 3);
        assert_false(protobuf_find_bytes(good, sizeof(good), 1, &data, &len));
        assert_false(protobuf_find_bytes(more, sizeof(more), 2, &data, &len));
        assert_false(protobuf_find_bytes(other, sizeof(other), 2, &data, &len));
        assert_false(protobuf_find_bytes(cut, sizeof(cut), 2, &data, &len));
        assert_false(protobuf_find_bytes(endless, sizeof(endless), 2, &data, &len));
        assert_false(protobuf_find_bytes(good, 0, 2, &data, &len));
}

static void what_stands_before_bytes_says_how_many_they_are(void **state) {
        static const size_t sizes[] = { 0, 1, 127, 128, 16383, 16384, 70000 };
        static uint8_t message[PROTOBUF_BYTES_HEAD_MAX + 70000];
        const uint8_t *data;
        size_t len;

        (void) state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                size_t head_len = protobuf_write_bytes_head(message, 15, sizes[i]);

                assert_true(protobuf_find_bytes(message, head_len + sizes[i], 15, &data, &len));
                assert_int_equal(len, sizes[i]);
                assert_ptr_equal(data, message + head_len);
        }
        assert_int_equal(protobuf_write_bytes_head(message, 1, SIZE_MAX), PROTOBUF_BYTES_HEAD_MAX);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_are_found_in_a_message_of_nothing_else),
                cmocka_unit_test(what_stands_before_bytes_says_how_many_they_are),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
