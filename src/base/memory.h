/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdlib.h>

/* Memory: allocation that cannot fail, and variables that free themselves.
 *
 * Small allocations abort the process when memory is out: the daemon recovers by starting again. An allocation whose
 * size a peer chose must fail its call instead, and libhutch must never abort: both use the try_ forms, or an arena.
 * All sizes are given as count and element size, and their product is checked. */

/* Calls @function with the address of the variable when it goes out of scope. */
#define _cleanup_(function) __attribute__((cleanup(function)))

/* Frees what a pointer holds when it goes out of scope. */
#define _cleanup_free_ _cleanup_(freep)

/* Defines @function##p for `_cleanup_(@function##p)`: calls @function with the variable of @type unless it is NULL. */
#define DEFINE_CLEANUP(type, function)                                                                                 \
        __attribute__((unused)) static inline void function##p(type *pointer) {                                        \
                if (*pointer)                                                                                          \
                        (void) function(*pointer);                                                                     \
        }

/* Evaluates to the pointer in the variable @pointer, which is NULL afterwards: ownership moves to the reader. */
#define TAKE_PTR(pointer)                                                                                              \
        ({                                                                                                             \
                __auto_type take_from_ = &(pointer);                                                                   \
                __auto_type taken_ = *take_from_;                                                                      \
                *take_from_ = NULL;                                                                                    \
                taken_;                                                                                                \
        })

/* Allocates @n zeroed elements of @type. new0() aborts on failure, try_new0() evaluates to NULL. */
#define new0(type, n) ((type *) xcalloc((n), sizeof(type)))
#define try_new0(type, n) ((type *) calloc((n), sizeof(type)))

/* As calloc(), reallocarray(), strdup() and strndup(), but abort on failure. Never return NULL. */
void *xcalloc(size_t n, size_t size) __attribute__((malloc, alloc_size(1, 2), returns_nonnull));
void *xreallocarray(void *pointer, size_t n, size_t size)
        __attribute__((alloc_size(2, 3), returns_nonnull, warn_unused_result));
char *xstrdup(const char *text) __attribute__((malloc, nonnull, returns_nonnull));
char *xstrndup(const char *text, size_t max_len) __attribute__((malloc, nonnull, returns_nonnull));

static inline void freep(void *pointer) {
        free(*(void **) pointer);
}
