/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how far two names are apart. What does not: which names there are (convert.c, value.c). */

#include "pbtext/nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"

#define NAME_MAX_LEN 63 /* longer ones are not compared */

static uint8_t smaller(uint8_t a, uint8_t b) {
        return a < b ? a : b;
}

/* How many letters must be typed, left out, exchanged, or swapped with the next, to make @b of @a. Case is no
 * difference. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len) {
        uint8_t steps[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];

        for (size_t i = 0; i <= a_len; i++)
                for (size_t j = 0; j <= b_len; j++) {
                        bool same, swapped;

                        if (i == 0 || j == 0) {
                                steps[i][j] = (uint8_t) (i + j);
                                continue;
                        }
                        same = ascii_lower(a[i - 1]) == ascii_lower(b[j - 1]);
                        swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];

                        steps[i][j] = smaller(steps[i - 1][j], steps[i][j - 1]) + 1;
                        steps[i][j] = smaller(steps[i][j], steps[i - 1][j - 1] + !same);
                        if (swapped)
                                steps[i][j] = smaller(steps[i][j], steps[i - 2][j - 2] + 1);
                }
        return steps[a_len][b_len];
}

void nearest_offer(Nearest *nearest, const char *name) {
        size_t text_len = strlen(nearest->text), name_len = strlen(name), steps;

        if (text_len > NAME_MAX_LEN || name_len > NAME_MAX_LEN)
                return;

        /* With more than a third of the letters wrong it is another name, not a mistyped one. */
        steps = distance(nearest->text, text_len, name, name_len);
        if (steps * 3 > name_len || (nearest->name && steps >= nearest->distance))
                return;

        nearest->name = name;
        nearest->distance = steps;
}

const char *nearest_question(Nearest *nearest) {
        if (nearest->name)
                snprintf(nearest->question, sizeof(nearest->question), "; did you mean '%s'?", nearest->name);
        return nearest->question;
}
