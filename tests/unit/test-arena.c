/* SPDX-License-Identifier: Apache-2.0 */

#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "test.h"

/* Where malloc() returns NULL, AddressSanitizer would end the process. */
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
        return "allocator_may_return_null=1";
}

#define ALIGNMENT alignof(max_align_t)

static void pieces_are_zeroed_aligned_and_apart(void **state) {
        static const size_t sizes[] = { 0, 1, 15, 16, 17, 1000, 1007, 1009, 4000, 4096, 100000 };
        enum { N = sizeof(sizes) / sizeof(sizes[0]) };
        _cleanup_(arena_freep) Arena *arena = arena_new(10 << 20);
        unsigned char *pieces[20 * N];

        for (size_t i = 0; i < 20 * N; i++) {
                size_t size = sizes[i % N];

                pieces[i] = arena_alloc(arena, size);
                assert_non_null(pieces[i]);
                assert_int_equal((uintptr_t) pieces[i] % ALIGNMENT, 0);
                for (size_t j = 0; j < size; j++)
                        assert_int_equal(pieces[i][j], 0);
                memset(pieces[i], (int) (i % 255) + 1, size);
        }

        for (size_t i = 0; i < 20 * N; i++)
                for (size_t j = 0; j < sizes[i % N]; j++)
                        assert_int_equal(pieces[i][j], i % 255 + 1);
}

static void the_cap_holds_and_a_smaller_piece_still_fits(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(10 * ALIGNMENT);

        assert_non_null(arena_alloc(arena, 8 * ALIGNMENT));
        assert_null(arena_alloc(arena, 2 * ALIGNMENT + 1));
        assert_int_equal(arena_used(arena), 8 * ALIGNMENT);

        assert_non_null(arena_alloc(arena, 2 * ALIGNMENT));
        assert_null(arena_alloc(arena, 1));
        assert_null(arena_alloc(arena, 0));
}

static void the_cap_holds_over_many_chunks(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(1 << 20);
        size_t n = 0;

        while (arena_alloc(arena, 100))
                n++;

        assert_int_equal(n, (1 << 20) / 112);
}

static void sizes_that_overflow_fail(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(SIZE_MAX);
        volatile size_t huge = SIZE_MAX;

        for (size_t less = 0; less < 100; less++) {
                assert_null(arena_alloc(arena, huge - less));
                assert_null(arena_strndup(arena, "", huge - less));
        }
        assert_int_equal(arena_used(arena), 0);
}

static void used_counts_rounded_pieces(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(1 << 20);

        assert_int_equal(arena_used(arena), 0);
        arena_alloc(arena, 1);
        assert_int_equal(arena_used(arena), ALIGNMENT);
        arena_alloc(arena, 0);
        assert_int_equal(arena_used(arena), 2 * ALIGNMENT);
        arena_alloc(arena, 5000);
        assert_int_equal(arena_used(arena), 2 * ALIGNMENT + (5000 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void reset_takes_all_back_and_zeroes_again(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(20000);

        arena_reset(arena); /* of an unused one too */
        for (int round = 0; round < 3; round++) {
                unsigned char *small = arena_alloc(arena, 500), *large = arena_alloc(arena, 15000);

                assert_non_null(small);
                assert_non_null(large);
                assert_null(arena_alloc(arena, 15000));
                for (size_t i = 0; i < 500; i++)
                        assert_int_equal(small[i], 0);
                memset(small, 0xff, 500);
                memset(large, 0xff, 15000);
                while (arena_alloc(arena, 500))
                        ;

                arena_reset(arena);
                assert_int_equal(arena_used(arena), 0);
        }
}

static void strndup_copies_bytes_and_terminates(void **state) {
        _cleanup_(arena_freep) Arena *arena = arena_new(2 * ALIGNMENT);

        assert_memory_equal(arena_strndup(arena, "a\0bc", 3), "a\0b", 4);
        assert_string_equal(arena_strndup(arena, NULL, 0), "");
        assert_null(arena_strndup(arena, "", 0));
}

static void free_accepts_null(void **state) {
        assert_null(arena_free(NULL));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
                cmocka_unit_test(the_cap_holds_and_a_smaller_piece_still_fits),
                cmocka_unit_test(the_cap_holds_over_many_chunks),
                cmocka_unit_test(sizes_that_overflow_fail),
                cmocka_unit_test(used_counts_rounded_pieces),
                cmocka_unit_test(reset_takes_all_back_and_zeroes_again),
                cmocka_unit_test(strndup_copies_bytes_and_terminates),
                cmocka_unit_test(free_accepts_null),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
