/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the allocations that abort. What does not: memory with a cap (arena.c). */

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Says why the process ends, without stdio, which may itself allocate. */
static void *not_null(void *pointer) {
        static const char message[] = "out of memory\n";

        if (!pointer) {
                (void) !write(STDERR_FILENO, message, sizeof(message) - 1);
                abort();
        }

        return pointer;
}

void *xcalloc(size_t n, size_t size) {
        return not_null(calloc(n, size));
}

void *xreallocarray(void *pointer, size_t n, size_t size) {
        /* Of a size of zero, reallocarray() may free and return NULL, which is no failure. */
        if (n == 0 || size == 0)
                n = size = 1;

        return not_null(reallocarray(pointer, n, size));
}

char *xstrdup(const char *text) {
        return not_null(strdup(text));
}

char *xstrndup(const char *text, size_t max_len) {
        return not_null(strndup(text, max_len));
}
