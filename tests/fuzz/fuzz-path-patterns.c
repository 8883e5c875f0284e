/* SPDX-License-Identifier: Apache-2.0 */

/* Input: patterns, a newline before each but the first, a NUL, and the path that is asked for. The first pattern is a
 * glob as well, which is compared with a matcher that tries everything. */

#include "policy/path-patterns.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

#define SLOW_MAX 20 /* bytes of what is tried in every way */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_path(const char *path, size_t len) {
        if (len == 0 || path[0] == '/' || path[len - 1] == '/')
                return false;
        return !memmem(path, len, "//", 2);
}

/* How long the character at @path is; a byte that is none is one of its own. */
static size_t character(const char *path, const char *path_end) {
        uint32_t code_point;
        size_t n = utf8_next(path, (size_t) (path_end - path), &code_point);
        return n > 0 ? n : 1;
}

static bool slow_match(const char *glob, const char *glob_end, const char *path, const char *path_end, bool is_start) {
        const char *stars = glob;
        while (is_start && stars < glob_end && *stars == '*')
                stars++;
        if (stars - glob >= 2 && (stars == glob_end || *stars == '/')) {
                if (stars == glob_end)
                        return true;
                for (const char *at = path; at; at = memchr(at, '/', (size_t) (path_end - at)), at = at ? at + 1 : NULL)
                        if (slow_match(stars + 1, glob_end, at, path_end, true))
                                return true;
                return false;
        }
        if (glob == glob_end)
                return path == path_end;
        if (*glob == '*') {
                if (slow_match(glob + 1, glob_end, path, path_end, false))
                        return true;
                return path < path_end && *path != '/' &&
                       slow_match(glob, glob_end, path + character(path, path_end), path_end, false);
        }
        if (path == path_end)
                return false;
        if (*glob == '?')
                return *path != '/' &&
                       slow_match(glob + 1, glob_end, path + character(path, path_end), path_end, false);
        return *glob == *path && slow_match(glob + 1, glob_end, path + 1, path_end, *glob == '/');
}

/* A path whose every byte is escaped is a pattern for itself. */
static void check_escaped(const char *path, size_t len) {
        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        _cleanup_free_ char *escaped = try_new0(char, 2 * len + 1);
        char *to = escaped;
        *to++ = '/';
        for (size_t i = 0; i < len; i++) {
                *to++ = '\\';
                *to++ = path[i];
        }
        assert(pattern_list_add(list, escaped, (size_t) (to - escaped)) == 0);
        assert(pattern_list_match(list, path, len, true) == PATTERN_MATCHED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *) data, *nul = size > 0 ? memchr(text, '\0', size) : NULL;
        if (!nul)
                return 0;
        const char *path = nul + 1, *newline = memchr(text, '\n', (size_t) (nul - text));
        size_t len = size - (size_t) (path - text), glob_len = (size_t) ((newline ? newline : nul) - text);

        _cleanup_(pattern_list_freep) PatternList *list = pattern_list_new();
        int r = pattern_list_add_lines(list, text, (size_t) (nul - text));
        assert(r == 0 || r == -E2BIG);
        PatternVerdict for_folder = pattern_list_match(list, path, len, true);
        assert(!pattern_list_is_empty(list) || for_folder == PATTERN_NONE);
        (void) pattern_list_match(list, path, len, false);

        bool matches = glob_match(text, glob_len, path, len);
        if (!is_path(path, len))
                return 0;
        check_escaped(path, len);
        assert(glob_match("**", 2, path, len));
        /* A glob is a text. */
        if (glob_len <= SLOW_MAX && len <= SLOW_MAX && utf8_valid(text, glob_len))
                assert(matches == slow_match(text, text + glob_len, path, path + len, true));
        return 0;
}
