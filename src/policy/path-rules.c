/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules that turn the text of a path into an absolute path, without looking at any file system.
 * What does not: resolving that path inside a sandbox's root (keeper), and paths on the host. Pure, and never
 * aborts. */

#include "policy/path-rules.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "model/reason.h"

typedef struct Span {
        const char *text;
        size_t len;
} Span;

static Span span_or(const char *text, const char *otherwise) {
        if (!text || !*text)
                text = otherwise;

        return (Span){ text, strlen(text) };
}

static bool span_equal(Span span, Span other) {
        return span.len == other.len && memcmp(span.text, other.text, span.len) == 0;
}

static bool span_is(Span span, const char *text) {
        return span_equal(span, (Span){ text, strlen(text) });
}

/* Cuts the first component off @rest, which must not be empty. */
static Span take_component(Span *rest) {
        const char *slash = memchr(rest->text, '/', rest->len);
        Span component = { rest->text, slash ? (size_t) (slash - rest->text) : rest->len };
        size_t taken = slash ? component.len + 1 : component.len;

        rest->text += taken;
        rest->len -= taken;
        return component;
}

/* The same for the first component that names something: neither empty nor ".". */
static bool take_name(Span *rest, Span *ret_name) {
        while (rest->len > 0) {
                Span component = take_component(rest);

                if (component.len > 0 && !span_is(component, ".")) {
                        *ret_name = component;
                        return true;
                }
        }

        return false;
}

/* The bytes that the names in @path take once resolved, each with the slash before it. */
static size_t names_len(Span path) {
        size_t len = 0;
        Span name;

        while (take_name(&path, &name))
                len += 1 + name.len;

        return len;
}

/* Writes what names_len() counted to @target, and returns where it ends. */
static char *write_names(char *target, Span path) {
        Span name;

        while (take_name(&path, &name)) {
                *target++ = '/';
                target = mempcpy(target, name.text, name.len);
        }

        return target;
}

/* @path must not be empty. */
static bool is_absolute(Span path) {
        return path.text[0] == '/';
}

static bool begins_with_tilde(Span path) {
        return span_is(take_component(&path), "~");
}

static bool is_control(uint32_t code_point) {
        return code_point <= 0x1f || (code_point >= 0x7f && code_point <= 0x9f);
}

/* Checks characters and encoding. @what names the path in messages; the path itself stays out of them, since it may be
 * anything. */
static int check_characters(const char *what, Span path, HutchError *err) {
        bool control = false;

        for (size_t at = 0, n; at < path.len; at += n) {
                uint32_t code_point;

                n = utf8_next(path.text + at, path.len - at, &code_point);
                if (n == 0)
                        return reason_set(err, -EINVAL, REASON_PATH_NOT_UTF8, "the %s is not valid UTF-8 at byte %zu",
                                          what, at);

                control |= is_control(code_point);
        }

        if (control)
                return reason_set(err, -EINVAL, REASON_PATH_CONTROL_CHARACTER, "the %s contains a control character",
                                  what);

        return 0;
}

static int check_components(const char *what, Span path, HutchError *err) {
        bool dotdot = false, too_long = false;

        while (path.len > 0) {
                Span component = take_component(&path);

                dotdot |= span_is(component, "..");
                too_long |= component.len > PATH_COMPONENT_BYTES_MAX;
        }

        if (dotdot)
                return reason_set(err, -EINVAL, REASON_PATH_DOTDOT, "the %s must not have \"..\" as a component", what);
        if (too_long)
                return reason_add_limit(err, "path_component_bytes", PATH_COMPONENT_BYTES_MAX,
                                        reason_set(err, -EINVAL, REASON_PATH_COMPONENT_TOO_LONG,
                                                   "the %s has a component of more than %d bytes", what,
                                                   PATH_COMPONENT_BYTES_MAX));

        return 0;
}

/* Checks @path as it was given, by all rules that need nothing else. */
static int check_given(const char *what, Span path, PathUse use, HutchError *err) {
        int r;

        if (path.len == 0)
                return reason_set(err, -EINVAL, REASON_PATH_EMPTY, "the %s is empty", what);
        if (path.len > PATH_BYTES_MAX)
                return reason_add_limit(err, "path_bytes", PATH_BYTES_MAX,
                                        reason_set(err, -EINVAL, REASON_PATH_TOO_LONG, "the %s is longer than %d bytes",
                                                   what, PATH_BYTES_MAX));

        r = check_characters(what, path, err);
        if (r < 0)
                return r;

        if (use == PATH_USE_ABSOLUTE && !is_absolute(path))
                return reason_set(err, -EINVAL, REASON_PATH_NOT_ABSOLUTE, "the %s must begin with '/'", what);

        if (begins_with_tilde(path))
                return reason_set(err, -EINVAL, REASON_PATH_TILDE,
                                  "the %s begins with \"~\", which nothing here expands: write \"./~\" for such a name",
                                  what);

        return check_components(what, path, err);
}

/* Tells whether the resolved @path is @workspace or contains it; the root contains everything. */
static bool is_protected(Span path, Span workspace) {
        Span name, workspace_name;

        while (take_name(&path, &name))
                if (!take_name(&workspace, &workspace_name) || !span_equal(name, workspace_name))
                        return false;

        return true;
}

/* Tells whether @path is written as that of a directory: its last component is empty or ".". */
static bool names_directory(Span path) {
        const char *slash = memrchr(path.text, '/', path.len);
        const char *last = slash ? slash + 1 : path.text;
        Span component = { last, (size_t) (path.text + path.len - last) };

        return component.len == 0 || span_is(component, ".");
}

int path_resolve(const char *text, size_t len, const PathContext *context, char **ret_path, bool *ret_directory,
                 HutchError *err) {
        Span given = { text, len }, below = {};
        _cleanup_free_ char *path = NULL;
        size_t path_len;
        int r;

        r = check_given("path", given, context->use, err);
        if (r < 0)
                return r;

        if (!is_absolute(given)) {
                below = span_or(context->working_directory, PATH_WORKSPACE);
                r = check_given("working directory", below, PATH_USE_ABSOLUTE, err);
                if (r < 0)
                        return r;
        }

        path_len = names_len(below) + names_len(given);
        if (path_len > PATH_BYTES_MAX)
                return reason_add_limit(err, "path_bytes", PATH_BYTES_MAX,
                                        reason_set(err, -EINVAL, REASON_PATH_TOO_LONG,
                                                   "the path is longer than %d bytes below its working directory",
                                                   PATH_BYTES_MAX));
        if (path_len == 0)
                path_len = 1; /* the root has no names, only its slash */

        path = try_new0(char, path_len + 1);
        if (!path)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for a path of %zu bytes", path_len);

        *path = '/';
        write_names(write_names(path, below), given);

        if (context->use == PATH_USE_REMOVE &&
            is_protected((Span){ path, path_len }, span_or(context->workspace, PATH_WORKSPACE)))
                return reason_set(err, -EINVAL, REASON_PATH_PROTECTED,
                                  "the root, the workspace and the folders that contain it cannot be removed or moved");

        *ret_path = TAKE_PTR(path);
        if (ret_directory)
                *ret_directory = names_directory(given);
        return 0;
}
