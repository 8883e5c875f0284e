/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Allocations that fail when a test says so.
 *
 *         FAIL_ALLOC_LOOP {
 *                 _cleanup_(byte_queue_clear) ByteQueue queue = {};
 *                 int r = byte_queue_append(&queue, "abc", 3);
 *
 *                 assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
 *         }
 *
 * Only the allocations of objects linked with these arguments fail, which are the test and our own libraries, but not
 * shared ones such as cmocka:
 *
 *         -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray,--wrap=strdup,--wrap=strndup
 *
 * Not for tests with threads. */

/* Lets @n allocations succeed, fails the one after them, and no other. */
void fail_alloc_after(size_t n);

/* Fails every allocation of more than @size bytes: memory that a peer asks for is bounded. */
void fail_alloc_above(size_t size);

/* Fails no more. */
void fail_alloc_off(void);

/* Tells whether an allocation was failed since fail_alloc_after() or fail_alloc_above(). */
bool fail_alloc_happened(void);

/* Notes that one was failed by others (fail-each-alloc.h), which does not prolong a FAIL_ALLOC_LOOP. */
void fail_alloc_happened_elsewhere(void);

/* Tells that whatever the tests wait for comes without memory too, be it an error: who waits in vain, hangs. Otherwise
 * fail-each-alloc.h ends a test that waits for long after a failure. */
void fail_alloc_set_waits_count(void);
bool fail_alloc_waits_count(void);

/* Runs the block that follows with its first allocation failing, then with its second, and so on, until it ran to its
 * end without one that failed. Not to be left early. What the block itself allocates may fail too: xcalloc() and the
 * like would abort. */
#define FAIL_ALLOC_LOOP for (fail_alloc_loop_begin(); fail_alloc_loop_goes_on(); fail_alloc_loop_next())

void fail_alloc_loop_begin(void);
bool fail_alloc_loop_goes_on(void);
void fail_alloc_loop_next(void);
