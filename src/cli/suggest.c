/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how far words are from each other. What does not: which words there are. */

#include "cli/suggest.h"

#include <string.h>

#include "base/strings.h"

#define WORD_MAX 32

static size_t least(size_t a, size_t b) {
        return a < b ? a : b;
}

/* How many letters are wrong. */
static size_t distance(const char *a, const char *b) {
        size_t a_len = strlen(a), b_len = strlen(b);
        size_t rows[WORD_MAX + 1][WORD_MAX + 1];

        if (a_len > WORD_MAX || b_len > WORD_MAX)
                return WORD_MAX;

        for (size_t i = 0; i <= a_len; i++)
                for (size_t j = 0; j <= b_len; j++) {
                        if (i == 0 || j == 0) {
                                rows[i][j] = i + j;
                                continue;
                        }

                        rows[i][j] = least(rows[i - 1][j] + 1, rows[i][j - 1] + 1);
                        rows[i][j] = least(rows[i][j], rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
                }
        return rows[a_len][b_len];
}

void suggestion_consider(Suggestion *suggestion, const char *word) {
        size_t len = strlen(suggestion->typed), far = distance(suggestion->typed, word);

        if (len >= 2 && str_has_prefix(word, suggestion->typed))
                far = 0;
        if (len < 2 || far > (len + 2) / 3 || (suggestion->best && far >= suggestion->distance))
                return;

        suggestion->best = word;
        suggestion->distance = far;
}
