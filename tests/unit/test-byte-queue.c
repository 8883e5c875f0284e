/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/byte-queue.h"

#include <errno.h>
#include <string.h>

#include "fail-alloc.h"
#include "test.h"

#define CHUNK 16384 /* about what the queue gathers small pieces in */

/* The byte at @position of a stream whose bytes tell where they stand. */
static uint8_t byte_at(size_t position) {
        return (uint8_t) (position * 31 + (position >> 8));
}

static void fill(uint8_t *bytes, size_t len, size_t position) {
        for (size_t i = 0; i < len; i++)
                bytes[i] = byte_at(position + i);
}

static void assert_filled(const uint8_t *bytes, size_t len, size_t position) {
        for (size_t i = 0; i < len; i++)
                if (bytes[i] != byte_at(position + i))
                        fail_msg("byte %zu of the stream is another", position + i);
}

/* A buffer to be taken. */
static uint8_t *made(size_t len, size_t position) {
        uint8_t *buffer = malloc(len);

        assert_non_null(buffer);
        fill(buffer, len, position);
        return buffer;
}

static void assert_reads(ByteQueue *queue, const char *expected) {
        char bytes[64];

        assert_int_equal(byte_queue_read(queue, bytes, sizeof(bytes)), strlen(expected));
        assert_memory_equal(bytes, expected, strlen(expected));
}

static void empty_queue_has_nothing(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        size_t len = 1;

        assert_null(byte_queue_peek(&queue, &len));
        assert_int_equal(len, 0);
        assert_int_equal(byte_queue_read(&queue, NULL, 10), 0);
        byte_queue_drop(&queue, 10);
        assert_int_equal(byte_queue_append(&queue, NULL, 0), 0);
        assert_int_equal(queue.len, 0);
}

static void small_pieces_lie_together(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        size_t len;

        assert_int_equal(byte_queue_append(&queue, "first ", 6), 0);
        assert_int_equal(byte_queue_append(&queue, "second", 6), 0);
        assert_int_equal(queue.len, 12);
        assert_memory_equal(byte_queue_peek(&queue, &len), "first second", 12);
        assert_int_equal(len, 12);
        assert_int_equal(queue.len, 12);
        assert_reads(&queue, "first second");
        assert_int_equal(queue.len, 0);
}

static void drop_removes_from_the_front(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};

        assert_int_equal(byte_queue_append(&queue, "abcdef", 6), 0);
        byte_queue_drop(&queue, 0);
        byte_queue_drop(&queue, 2);
        assert_int_equal(queue.len, 4);
        assert_reads(&queue, "cdef");

        assert_int_equal(byte_queue_append(&queue, "gh", 2), 0);
        byte_queue_drop(&queue, 3);
        assert_int_equal(queue.len, 0);
}

static void taken_buffer_is_not_copied_and_keeps_its_place(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        char *buffer = xstrdup("taken");
        size_t len;

        assert_int_equal(byte_queue_append_taken(&queue, "before ", 7, buffer, 5), 0);
        assert_int_equal(byte_queue_append(&queue, " behind", 7), 0);
        assert_int_equal(queue.len, 19);

        byte_queue_drop(&queue, 7);
        assert_ptr_equal(byte_queue_peek(&queue, &len), buffer);
        assert_int_equal(len, 5);
        assert_reads(&queue, "taken behind");
}

static void what_is_lent_stays_where_it_is(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        uint8_t *buffer = made(BYTE_QUEUE_LEND_MIN + 3, 0);
        ByteChunk *spent = NULL;
        size_t len;

        assert_int_equal(byte_queue_append_taken(&queue, "ab", 2, buffer, BYTE_QUEUE_LEND_MIN + 3), 0);
        assert_int_equal(byte_queue_append(&queue, "cd", 2), 0);
        byte_queue_lend(&queue, 2, &spent);
        assert_null(spent);
        assert_non_null(queue.spare); /* the small ones are used again */
        assert_ptr_equal(byte_queue_peek(&queue, &len), buffer);
        byte_queue_lend(&queue, BYTE_QUEUE_LEND_MIN, &spent);
        assert_null(spent);
        byte_queue_lend(&queue, 3, &spent);
        assert_non_null(spent);
        assert_filled(buffer, BYTE_QUEUE_LEND_MIN + 3, 0);
        assert_reads(&queue, "cd");
        assert_null(byte_chunks_free(spent));
}

static void clear_frees_all_and_the_queue_can_be_used_again(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};

        for (int round = 0; round < 3; round++) {
                assert_int_equal(byte_queue_append(&queue, "abc", 3), 0);
                assert_int_equal(byte_queue_append_taken(&queue, NULL, 0, made(100, 0), 100), 0);
                assert_int_equal(byte_queue_append_taken(&queue, NULL, 0, made(2 * CHUNK, 0), 2 * CHUNK), 0);
                byte_queue_clear(&queue);
                assert_int_equal(queue.len, 0);
                assert_null(queue.first);
                assert_null(queue.spare);
        }
}

/* Pieces of awkward sizes go in and out at different paces; what comes out is what went in. */
static void bytes_keep_their_order_across_chunks(void **state) {
        static const size_t sizes[] = { 1,         5, 100, CHUNK - 100, CHUNK,     CHUNK + 1, 0,
                                        3 * CHUNK, 7, 1,   16000,       CHUNK - 1, 2,         50000 };
        enum { N = sizeof(sizes) / sizeof(sizes[0]) };
        static uint8_t bytes[3 * CHUNK + 50000];
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        size_t in = 0, out = 0;

        for (size_t i = 0; i < 20 * N; i++) {
                size_t size = sizes[i % N], want = sizes[i * 5 % N];

                if (i % 3 == 0 && size > 0)
                        assert_int_equal(byte_queue_append_taken(&queue, NULL, 0, made(size, in), size), 0);
                else {
                        fill(bytes, size, in);
                        assert_int_equal(byte_queue_append(&queue, bytes, size), 0);
                }
                in += size;
                assert_int_equal(queue.len, in - out);

                if (want > in - out)
                        want = in - out;
                if (i % 4 == 0)
                        byte_queue_drop(&queue, want);
                else {
                        assert_int_equal(byte_queue_read(&queue, bytes, want), want);
                        assert_filled(bytes, want, out);
                }
                out += want;
                assert_int_equal(queue.len, in - out);
        }

        while (queue.len > 0) {
                size_t len;
                const uint8_t *first = byte_queue_peek(&queue, &len);

                assert_true(len > 0 && len <= queue.len);
                assert_filled(first, len, out);
                byte_queue_drop(&queue, len);
                out += len;
        }
        assert_int_equal(out, in);
}

static void an_empty_chunk_is_kept_and_used_again(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};

        assert_int_equal(byte_queue_append(&queue, "a", 1), 0);
        byte_queue_drop(&queue, 1);

        fail_alloc_after(0);
        for (int i = 0; i < 10000; i++) {
                assert_int_equal(byte_queue_append(&queue, "abc", 3), 0);
                assert_reads(&queue, "abc");
        }
        assert_false(fail_alloc_happened());
        fail_alloc_off();
}

static void a_large_chunk_is_not_kept(void **state) {
        static const uint8_t zeros[100 * CHUNK];
        _cleanup_(byte_queue_clear) ByteQueue queue = {};

        assert_int_equal(byte_queue_append(&queue, zeros, sizeof(zeros)), 0);
        byte_queue_drop(&queue, sizeof(zeros));
        assert_null(queue.first);
        assert_null(queue.spare);
}

static void what_was_reserved_is_there(void **state) {
        static const uint8_t zeros[3 * CHUNK];
        static const size_t before[] = { 0, 1, 5, CHUNK - 200, CHUNK - 70, CHUNK };
        static const size_t reserved[] = { 1, 5, 200, CHUNK, 3 * CHUNK };

        for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
                for (size_t j = 0; j < sizeof(reserved) / sizeof(reserved[0]); j++) {
                        _cleanup_(byte_queue_clear) ByteQueue queue = {};
                        size_t first = reserved[j] < 5 ? 0 : 5;

                        assert_int_equal(byte_queue_append(&queue, zeros, before[i]), 0);
                        assert_int_equal(byte_queue_reserve(&queue, 1), 0);
                        assert_int_equal(byte_queue_reserve(&queue, reserved[j]), 0);
                        assert_int_equal(queue.len, before[i]);

                        fail_alloc_after(0);
                        assert_int_equal(byte_queue_append(&queue, zeros, first), 0);
                        assert_int_equal(byte_queue_append(&queue, zeros, reserved[j] - first), 0);
                        assert_false(fail_alloc_happened());
                        fail_alloc_off();
                        assert_int_equal(queue.len, before[i] + reserved[j]);
                }
}

static void without_memory_the_queue_stays_as_it_was(void **state) {
        static const uint8_t zeros[2 * CHUNK];

        FAIL_ALLOC_LOOP {
                _cleanup_(byte_queue_clear) ByteQueue queue = {};
                int r = 0;

                for (size_t i = 0; i < 3 && r == 0; i++) {
                        assert_int_equal(queue.len, i * (2 * CHUNK - 10));
                        r = byte_queue_append(&queue, zeros, 2 * CHUNK - 10);
                        assert_int_equal(queue.len, (i + (r == 0)) * (2 * CHUNK - 10));
                }
                if (r == 0)
                        r = byte_queue_reserve(&queue, 5 * CHUNK);
                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);

                for (size_t left = queue.len, len; left > 0; left -= len) {
                        assert_non_null(byte_queue_peek(&queue, &len));
                        byte_queue_drop(&queue, len);
                        assert_int_equal(queue.len, left - len);
                }
        }
}

static void without_memory_a_buffer_stays_with_the_caller(void **state) {
        _cleanup_(byte_queue_clear) ByteQueue queue = {};
        char *buffer = xstrdup("taken");

        for (int i = 0; i < 2; i++) {
                fail_alloc_after(i);
                assert_int_equal(byte_queue_append_taken(&queue, "head ", 5, buffer, 5), -ENOMEM);
                fail_alloc_off();
                assert_int_equal(queue.len, 0);
        }

        assert_int_equal(byte_queue_append_taken(&queue, "head ", 5, buffer, 5), 0);
        assert_reads(&queue, "head taken");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(empty_queue_has_nothing),
                cmocka_unit_test(small_pieces_lie_together),
                cmocka_unit_test(drop_removes_from_the_front),
                cmocka_unit_test(taken_buffer_is_not_copied_and_keeps_its_place),
                cmocka_unit_test(what_is_lent_stays_where_it_is),
                cmocka_unit_test(clear_frees_all_and_the_queue_can_be_used_again),
                cmocka_unit_test(bytes_keep_their_order_across_chunks),
                cmocka_unit_test(an_empty_chunk_is_kept_and_used_again),
                cmocka_unit_test(a_large_chunk_is_not_kept),
                cmocka_unit_test(what_was_reserved_is_there),
                cmocka_unit_test(without_memory_the_queue_stays_as_it_was),
                cmocka_unit_test(without_memory_a_buffer_stays_with_the_caller),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
