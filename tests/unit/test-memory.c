/* SPDX-License-Identifier: Apache-2.0 */

#include "base/memory.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* Where malloc() returns NULL, AddressSanitizer would end the process. */
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
        return "allocator_may_return_null=1";
}

static int n_freed;

static int *counting_free(int *pointer) {
        n_freed++;
        free(pointer);
        return NULL;
}

DEFINE_CLEANUP(int *, counting_free);

static void cleanup_frees_once_and_never_null(void **state) {
        n_freed = 0;
        {
                _cleanup_(counting_freep) int *one = new0(int, 1);
                _cleanup_(counting_freep) int *none = NULL;

                assert_non_null(one);
                assert_null(none);
        }
        assert_int_equal(n_freed, 1);
}

static void take_moves_ownership(void **state) {
        _cleanup_free_ char *owner = NULL;
        char *text = xstrdup("text");

        owner = TAKE_PTR(text);
        assert_null(text);
        assert_string_equal(owner, "text");
}

static void take_evaluates_its_argument_once(void **state) {
        _cleanup_free_ char *first = NULL;
        char *slots[] = { xstrdup("a"), NULL }, **slot = slots;

        first = TAKE_PTR(*slot++);
        assert_string_equal(first, "a");
        assert_ptr_equal(slot, slots + 1);
}

static void new0_zeroes(void **state) {
        _cleanup_free_ uint64_t *numbers = new0(uint64_t, 100);

        for (size_t i = 0; i < 100; i++)
                assert_int_equal(numbers[i], 0);
}

static void copies_are_terminated_and_end_at_a_nul(void **state) {
        _cleanup_free_ char *prefix = xstrndup("hutch", 3), *whole = xstrndup("hutch", 30);

        assert_string_equal(prefix, "hut");
        assert_string_equal(whole, "hutch");
}

static void reallocarray_keeps_content_and_survives_zero(void **state) {
        char *bytes = xstrdup("abc");

        bytes = xreallocarray(bytes, 1000, 4);
        assert_string_equal(bytes, "abc");
        bytes = xreallocarray(bytes, 0, 4);
        assert_non_null(bytes);
        free(bytes);
}

/* Opaque to the compiler, which would warn of the one and leave out the other. */
static volatile size_t huge = SIZE_MAX / 2 + 1;
static void *volatile allocated;

static void try_new0_fails_on_overflow(void **state) {
        allocated = try_new0(uint32_t, huge);
        assert_null(allocated);
}

static void allocate_too_much(void) {
        allocated = xreallocarray(NULL, huge, 4);
}

static void allocate_zeroed_too_much(void) {
        allocated = new0(uint16_t, huge);
}

/* Tells whether @function aborts; it runs in a child that leaves no core file and prints nothing. */
static bool aborts(void (*function)(void)) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                setrlimit(RLIMIT_CORE, &(struct rlimit){});
                signal(SIGABRT, SIG_DFL);
                close(STDERR_FILENO);
                function();
                _exit(0);
        }

        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void the_others_abort_on_overflow(void **state) {
        assert_true(aborts(allocate_too_much));
        assert_true(aborts(allocate_zeroed_too_much));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(cleanup_frees_once_and_never_null),
                cmocka_unit_test(take_moves_ownership),
                cmocka_unit_test(take_evaluates_its_argument_once),
                cmocka_unit_test(new0_zeroes),
                cmocka_unit_test(copies_are_terminated_and_end_at_a_nul),
                cmocka_unit_test(reallocarray_keeps_content_and_survives_zero),
                cmocka_unit_test(try_new0_fails_on_overflow),
                cmocka_unit_test(the_others_abort_on_overflow),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
