/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/message-reader.h"

#include <errno.h>
#include <string.h>

#include "fail-alloc.h"
#include "test.h"

#define LEN_MAX 1000

/* Three messages: "abc"; an empty one; one that is compressed, "xyz12". */
static const uint8_t stream_of_three[] = "\0\0\0\0\3abc\0\0\0\0\0\1\0\0\0\5xyz12";
static const struct {
        const char *data;
        bool compressed;
} three[] = { { "abc", false }, { "", false }, { "xyz12", true } };

#define STREAM_LEN (sizeof(stream_of_three) - 1)

static void assert_message(const Message *message, size_t i) {
        assert_non_null(message->data);
        assert_int_equal(message->len, strlen(three[i].data));
        assert_memory_equal(message->data, three[i].data, message->len);
        assert_int_equal(message->compressed, three[i].compressed);
}

/* Feeds @len bytes to the end; returns how many of the three messages there were then, beginning with @n. */
static size_t feed(MessageReader *reader, const uint8_t *bytes, size_t len, size_t n) {
        while (len > 0) {
                _cleanup_(message_clear) Message message = {};
                size_t taken;
                int r = message_reader_feed(reader, bytes, len, &taken, &message);

                assert_true(r == 0 || r == 1);
                assert_true(taken > 0 && taken <= len);
                assert_true(r == 1 || taken == len);
                assert_int_equal(message_reader_is_between(reader), r == 1);
                if (r == 1)
                        assert_message(&message, n++);
                else
                        assert_null(message.data);
                bytes += taken;
                len -= taken;
        }

        return n;
}

static void messages_come_out_one_by_one(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;

        message_reader_init(&reader, LEN_MAX);
        assert_true(message_reader_is_between(&reader));
        assert_int_equal(feed(&reader, stream_of_three, STREAM_LEN, 0), 3);
        assert_true(message_reader_is_between(&reader));
}

static void bytes_may_be_cut_anywhere(void **state) {
        for (size_t a = 0; a <= STREAM_LEN; a++)
                for (size_t b = a; b <= STREAM_LEN; b++) {
                        _cleanup_(message_reader_clear) MessageReader reader;
                        size_t n;

                        message_reader_init(&reader, LEN_MAX);
                        n = feed(&reader, stream_of_three, a, 0);
                        n = feed(&reader, stream_of_three + a, b - a, n);
                        n = feed(&reader, stream_of_three + b, STREAM_LEN - b, n);
                        assert_int_equal(n, 3);
                        assert_true(message_reader_is_between(&reader));
                }
}

static void bytes_may_come_one_by_one(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;
        size_t n = 0;

        message_reader_init(&reader, LEN_MAX);
        for (size_t i = 0; i < STREAM_LEN; i++)
                n = feed(&reader, stream_of_three + i, 1, n);
        assert_int_equal(n, 3);
}

static void no_bytes_change_nothing(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;
        Message message;
        size_t taken = 1;

        message_reader_init(&reader, LEN_MAX);
        assert_int_equal(message_reader_feed(&reader, NULL, 0, &taken, &message), 0);
        assert_int_equal(taken, 0);
        assert_true(message_reader_is_between(&reader));

        assert_int_equal(feed(&reader, stream_of_three, MESSAGE_PREFIX_LEN, 0), 0);
        assert_int_equal(message_reader_feed(&reader, NULL, 0, &taken, &message), 0);
        assert_int_equal(feed(&reader, stream_of_three + MESSAGE_PREFIX_LEN, STREAM_LEN - MESSAGE_PREFIX_LEN, 0), 3);
}

static void flags_other_than_0_and_1_are_refused_at_once(void **state) {
        for (int flag = 0; flag < 256; flag++) {
                _cleanup_(message_reader_clear) MessageReader reader;
                size_t taken;

                message_reader_init(&reader, LEN_MAX);
                assert_int_equal(message_reader_feed(&reader, &(uint8_t){ (uint8_t) flag }, 1, &taken, &(Message){}),
                                 flag <= 1 ? 0 : -EBADMSG);
        }
}

static void the_limit_holds_to_the_byte_and_is_checked_before_memory_is_taken(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;
        _cleanup_(message_clear) Message message = {};
        uint8_t bytes[MESSAGE_PREFIX_LEN + LEN_MAX] = {};
        size_t taken;

        message_reader_init(&reader, LEN_MAX);
        message_prefix_write(bytes, false, LEN_MAX);
        assert_int_equal(message_reader_feed(&reader, bytes, sizeof(bytes), &taken, &message), 1);
        assert_int_equal(taken, sizeof(bytes));
        assert_int_equal(message.len, LEN_MAX);

        message_prefix_write(bytes, false, LEN_MAX + 1);
        fail_alloc_after(0);
        assert_int_equal(message_reader_feed(&reader, bytes, MESSAGE_PREFIX_LEN, &taken, &message), -EMSGSIZE);
        assert_int_equal(message_reader_feed(&reader, bytes, 1, &taken, &message), -EMSGSIZE);
        assert_false(fail_alloc_happened());
        fail_alloc_off();
}

static void the_longest_length_there_is_can_be_refused(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;
        size_t taken;

        message_reader_init(&reader, UINT32_MAX - 1);
        assert_int_equal(message_reader_feed(&reader, (const uint8_t *) "\0\xff\xff\xff\xff", 5, &taken, &(Message){}),
                         -EMSGSIZE);
}

static void memory_follows_what_came_and_not_what_was_announced(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        Message message;
        size_t taken;

        message_reader_init(&reader, UINT32_MAX);
        message_prefix_write(prefix, false, UINT32_MAX);
        assert_int_equal(message_reader_feed(&reader, prefix, sizeof(prefix), &taken, &message), 0);
        assert_null(reader.data);

        for (size_t came = 1; came <= 100000; came++) {
                assert_int_equal(message_reader_feed(&reader, &(uint8_t){ 'x' }, 1, &taken, &message), 0);
                assert_true(reader.size <= 4 * came);
        }
}

static void a_large_message_takes_few_allocations_and_none_too_large(void **state) {
        static uint8_t piece[16384];
        enum { LEN = 1200000 };
        _cleanup_(message_reader_clear) MessageReader reader;
        _cleanup_(message_clear) Message message = {};
        uint8_t prefix[MESSAGE_PREFIX_LEN];
        size_t n_grown = 0, size = 0, taken;
        int r;

        message_reader_init(&reader, LEN);
        message_prefix_write(prefix, true, LEN);
        r = message_reader_feed(&reader, prefix, sizeof(prefix), &taken, &message);
        for (size_t i = 0; r == 0; i++) {
                memset(piece, (int) i, sizeof(piece));
                r = message_reader_feed(&reader, piece, sizeof(piece), &taken, &message);
                n_grown += r == 0 && reader.size != size;
                size = reader.size;
                assert_true(size <= LEN);
        }

        assert_int_equal(r, 1);
        assert_int_equal(message.len, LEN);
        assert_true(message.compressed);
        for (size_t i = 0; i < LEN; i++)
                if (message.data[i] != i / sizeof(piece))
                        fail_msg("byte %zu is another", i);
        assert_true(n_grown <= 8);
}

static void an_end_within_a_message_is_seen(void **state) {
        for (size_t len = 0; len <= 8; len++) {
                _cleanup_(message_reader_clear) MessageReader reader;

                message_reader_init(&reader, LEN_MAX);
                feed(&reader, stream_of_three, len, 0);
                assert_int_equal(message_reader_is_between(&reader), len == 0 || len == 8);
        }
}

static void cleared_reader_begins_anew(void **state) {
        _cleanup_(message_reader_clear) MessageReader reader;

        message_reader_init(&reader, LEN_MAX);
        feed(&reader, stream_of_three, 7, 0);
        message_reader_clear(&reader);
        assert_true(message_reader_is_between(&reader));
        assert_int_equal(reader.len_max, LEN_MAX);
        assert_int_equal(feed(&reader, stream_of_three, STREAM_LEN, 0), 3);
}

static void prefix_is_a_flag_and_a_big_endian_length(void **state) {
        uint8_t prefix[MESSAGE_PREFIX_LEN];

        message_prefix_write(prefix, true, 0x01020304);
        assert_memory_equal(prefix, "\1\1\2\3\4", 5);
        message_prefix_write(prefix, false, UINT32_MAX);
        assert_memory_equal(prefix, "\0\xff\xff\xff\xff", 5);
        message_prefix_write(prefix, false, 0);
        assert_memory_equal(prefix, "\0\0\0\0\0", 5);
}

static void without_memory_reading_fails(void **state) {
        FAIL_ALLOC_LOOP {
                _cleanup_(message_reader_clear) MessageReader reader;
                int r = 0;

                message_reader_init(&reader, LEN_MAX);
                for (size_t i = 0; i < STREAM_LEN && r >= 0; i++) {
                        _cleanup_(message_clear) Message message = {};
                        size_t taken;

                        r = message_reader_feed(&reader, stream_of_three + i, 1, &taken, &message);
                }
                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 1);
        }
}

/* A message of @len zeros, read by @reader. */
static Message read_zeros(MessageReader *reader, size_t len) {
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, MESSAGE_PREFIX_LEN + len);
        Message message = {};
        size_t taken;

        message_prefix_write(bytes, false, (uint32_t) len);
        assert_int_equal(message_reader_feed(reader, bytes, MESSAGE_PREFIX_LEN + len, &taken, &message), 1);
        assert_int_equal(message.len, len);
        return message;
}

static void buffer_of_a_large_message_serves_the_next(void **state) {
        _cleanup_(spare_buffer_clear) SpareBuffer spare = {};
        MessageReader reader;
        Message first, second, small;
        uint8_t *data;

        message_reader_init(&reader, 4 << 20);
        reader.spare = &spare;
        first = read_zeros(&reader, 1 << 20);
        data = first.data;
        message_recycle(&first, &spare);
        assert_ptr_equal(spare.data, data);

        /* Not for one that is small: its memory would be out of proportion. */
        small = read_zeros(&reader, 100);
        assert_ptr_not_equal(small.data, data);
        message_recycle(&small, &spare);
        assert_ptr_equal(spare.data, data);

        second = read_zeros(&reader, 1000000);
        assert_ptr_equal(second.data, data);
        assert_null(spare.data);
        message_recycle(&second, &spare);
        assert_int_equal(spare.size, 1 << 20);
}

static void buffer_beyond_the_limit_is_not_kept(void **state) {
        _cleanup_(spare_buffer_clear) SpareBuffer spare = {};
        MessageReader reader;
        Message message;

        message_reader_init(&reader, 4 << 20);
        message = read_zeros(&reader, SPARE_BUFFER_MAX + 1);
        message_recycle(&message, &spare);
        assert_null(spare.data);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(messages_come_out_one_by_one),
                cmocka_unit_test(bytes_may_be_cut_anywhere),
                cmocka_unit_test(bytes_may_come_one_by_one),
                cmocka_unit_test(no_bytes_change_nothing),
                cmocka_unit_test(flags_other_than_0_and_1_are_refused_at_once),
                cmocka_unit_test(the_limit_holds_to_the_byte_and_is_checked_before_memory_is_taken),
                cmocka_unit_test(the_longest_length_there_is_can_be_refused),
                cmocka_unit_test(memory_follows_what_came_and_not_what_was_announced),
                cmocka_unit_test(a_large_message_takes_few_allocations_and_none_too_large),
                cmocka_unit_test(an_end_within_a_message_is_seen),
                cmocka_unit_test(cleared_reader_begins_anew),
                cmocka_unit_test(prefix_is_a_flag_and_a_big_endian_length),
                cmocka_unit_test(without_memory_reading_fails),
                cmocka_unit_test(buffer_of_a_large_message_serves_the_next),
                cmocka_unit_test(buffer_beyond_the_limit_is_not_kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
