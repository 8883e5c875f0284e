/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a digit for the use (0 any, 1 absolute, 2 remove), then the working directory and the workspace, each ended
 * by a newline, then the path. */

#include "policy/path-rules.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts the bytes up to the next newline off @rest, and gives them a NUL. */
static char *take_line(const char **rest, size_t *len) {
        const char *newline = *len > 0 ? memchr(*rest, '\n', *len) : NULL;
        size_t line_len = newline ? (size_t) (newline - *rest) : *len, taken = line_len + (newline ? 1 : 0);
        char *line = xstrndup(line_len > 0 ? *rest : "", line_len);

        *rest += taken;
        *len -= taken;
        return line;
}

static void check_is_normal(const char *path) {
        size_t len = strlen(path);

        assert(path[0] == '/');
        assert(len <= PATH_BYTES_MAX);
        assert(len == 1 || path[len - 1] != '/');
        assert(!strstr(path, "//"));
        assert(!strstr(path, "/./") && !str_has_suffix(path, "/."));
        assert(!strstr(path, "/../") && !str_has_suffix(path, "/.."));

        for (const char *name = path; *name; name += strcspn(name, "/")) {
                name++;
                assert(strcspn(name, "/") <= PATH_COMPONENT_BYTES_MAX);
        }

        for (size_t at = 0, n; at < len; at += n) {
                uint32_t code_point;

                n = utf8_next(path + at, len - at, &code_point);
                assert(n > 0);
                assert(code_point >= 0x20 && (code_point < 0x7f || code_point > 0x9f));
        }
}

/* What was resolved stands for itself, wherever one is. */
static void check_is_its_own_result(const char *path) {
        const PathContext elsewhere = { .working_directory = "not/even/absolute", .use = PATH_USE_ABSOLUTE };
        _cleanup_free_ char *again = NULL;
        bool directory;

        assert(path_resolve(path, strlen(path), &elsewhere, &again, &directory, NULL) == 0);
        assert(str_equal(again, path));
        assert(directory == str_equal(path, "/"));
}

/* A relative path is the same as the absolute one that begins with its working directory. */
static void check_joins(const char *text, size_t len, const char *working_directory, const char *path, bool directory) {
        _cleanup_(string_builder_clear) StringBuilder joined = {};
        _cleanup_free_ char *resolved = NULL;
        bool joined_directory;

        string_builder_append(&joined, *working_directory ? working_directory : PATH_WORKSPACE);
        string_builder_append(&joined, "/");
        string_builder_append_bytes(&joined, text, len);
        if (joined.len > PATH_BYTES_MAX)
                return;

        assert(path_resolve(joined.text, joined.len, &(PathContext){}, &resolved, &joined_directory, NULL) == 0);
        assert(str_equal(resolved, path));
        assert(joined_directory == directory);
}

/* The workspace is still there when @path is gone. */
static void check_leaves(const char *path, const char *workspace) {
        const PathContext absolute = { .use = PATH_USE_ABSOLUTE };
        _cleanup_free_ char *kept = NULL;

        assert(!str_equal(path, "/"));
        if (!*workspace)
                workspace = PATH_WORKSPACE;
        if (path_resolve(workspace, strlen(workspace), &absolute, &kept, NULL, NULL) == 0)
                assert(!str_has_prefix(kept, path) || (kept[strlen(path)] != '\0' && kept[strlen(path)] != '/'));
}

static void check_refusal(const char *text, size_t len, const char *working_directory, int r, const HutchError *err) {
        assert(r == -EINVAL);
        assert(err->code == STATUS_INVALID_ARGUMENT);
        assert(str_has_prefix(err->reason, "PATH_"));
        assert(utf8_valid(error_message(err), strlen(error_message(err))));

        if (len == 0)
                assert(str_equal(err->reason, "PATH_EMPTY"));
        else if (len > PATH_BYTES_MAX)
                assert(str_equal(err->reason, "PATH_TOO_LONG"));
        else if (!utf8_valid(text, len))
                assert(str_equal(err->reason, "PATH_NOT_UTF8"));
        else if (str_equal(err->reason, "PATH_DOTDOT"))
                assert(memmem(text, len, "..", 2) || strstr(working_directory, ".."));
        else if (str_equal(err->reason, "PATH_TILDE"))
                assert(text[0] == '~' && (len == 1 || text[1] == '/'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *) data + 1;
        _cleanup_free_ char *working_directory = NULL, *workspace = NULL, *path = NULL;
        _cleanup_(error_clear) HutchError err = {};
        PathContext context;
        bool directory;
        size_t len;
        int r;

        if (size < 1 || data[0] < '0' || data[0] > '2')
                return -1;

        len = size - 1;
        working_directory = take_line(&text, &len);
        workspace = take_line(&text, &len);
        context = (PathContext){ working_directory, workspace, (PathUse) (data[0] - '0') };

        r = path_resolve(text, len, &context, &path, &directory, &err);
        if (r < 0) {
                assert(!path);
                check_refusal(text, len, working_directory, r, &err);
                return 0;
        }

        assert(directory == (text[len - 1] == '/' || (len == 1 && text[0] == '.') ||
                             (len > 1 && memcmp(text + len - 2, "/.", 2) == 0)));
        check_is_normal(path);
        check_is_its_own_result(path);
        if (text[0] != '/') {
                assert(context.use != PATH_USE_ABSOLUTE);
                check_joins(text, len, working_directory, path, directory);
        }
        if (context.use == PATH_USE_REMOVE)
                check_leaves(path, workspace);

        return 0;
}
