/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the functions that the linker puts in the place of the allocators (--wrap). What does not: what must
 * hold when they fail; the tests say. */

#include "fail-alloc.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static bool armed;                 /* an allocation is yet to fail */
static size_t n_before;            /* how many succeed before it */
static size_t size_max = SIZE_MAX; /* larger ones fail */
static bool happened;
static bool happened_elsewhere;
static bool waits_count;
static size_t loop_n;
static bool loop_goes_on;

void fail_alloc_after(size_t n) {
        armed = true;
        n_before = n;
        happened = happened_elsewhere = false;
}

void fail_alloc_above(size_t size) {
        size_max = size;
        happened = happened_elsewhere = false;
}

void fail_alloc_off(void) {
        armed = false;
        size_max = SIZE_MAX;
}

bool fail_alloc_happened(void) {
        return happened || happened_elsewhere;
}

void fail_alloc_happened_elsewhere(void) {
        happened_elsewhere = true;
}

void fail_alloc_set_waits_count(void) {
        waits_count = true;
}

bool fail_alloc_waits_count(void) {
        return waits_count;
}

void fail_alloc_loop_begin(void) {
        loop_n = 0;
        loop_goes_on = true;
        fail_alloc_after(loop_n);
}

bool fail_alloc_loop_goes_on(void) {
        return loop_goes_on;
}

void fail_alloc_loop_next(void) {
        loop_goes_on = happened;
        if (loop_goes_on)
                fail_alloc_after(++loop_n);
        else
                fail_alloc_off();
}

/* Tells whether the allocation that asks, for @n times @size bytes, is to fail. */
static bool fails(size_t n, size_t size) {
        size_t bytes;
        bool fail = __builtin_mul_overflow(n, size, &bytes) || bytes > size_max || (armed && n_before == 0);

        if (armed && n_before-- == 0)
                armed = false;
        if (fail) {
                happened = true;
                errno = ENOMEM;
        }

        return fail;
}

/* By the linker's rules, a reference to NAME goes to __wrap_NAME, and one to __real_NAME to NAME. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *pointer, size_t size);
void *__real_reallocarray(void *pointer, size_t n, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t max_len);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *pointer, size_t size);
void *__wrap_reallocarray(void *pointer, size_t n, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max_len);

void *__wrap_malloc(size_t size) {
        return fails(1, size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
        return fails(n, size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *pointer, size_t size) {
        return fails(1, size) ? NULL : __real_realloc(pointer, size);
}

void *__wrap_reallocarray(void *pointer, size_t n, size_t size) {
        return fails(n, size) ? NULL : __real_reallocarray(pointer, n, size);
}

char *__wrap_strdup(const char *text) {
        return fails(1, strlen(text) + 1) ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t max_len) {
        return fails(1, strnlen(text, max_len) + 1) ? NULL : __real_strndup(text, max_len);
}
