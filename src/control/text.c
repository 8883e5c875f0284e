/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: texts of a fixed size in records. */

#include "control/text.h"

#include <string.h>

#include "base/utf8.h"

void text_copy(char *to, size_t size, const char *text) {
        size_t len = utf8_prefix(text, size - 1);

        memcpy(to, text, len);
        to[len] = '\0';
}
