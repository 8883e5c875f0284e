/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: texts of a fixed size in records. */

#include "control/text.h"

#include <stdint.h>
#include <string.h>

void text_copy(char *to, size_t size, const char *text) {
        size_t len = strnlen(text, size - 1);

        while (len > 0 && ((uint8_t) text[len] & 0xc0) == 0x80)
                len--;
        memcpy(to, text, len);
        to[len] = '\0';
}
