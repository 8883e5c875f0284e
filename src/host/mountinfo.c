/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the lines of mountinfo. What does not: reading the file. */

#include "host/mountinfo.h"

#include <string.h>

#include "base/strings.h"

#define FIELDS_BEFORE 6 /* number, parent, device, root, path, options; then any number of tags, and "-" */

static bool is_octal(char c) {
        return c >= '0' && c <= '7';
}

/* Spaces, tabs, newlines and backslashes are three octal digits behind a backslash. */
static void unescape(char *text) {
        char *to = text;

        for (const char *from = text; *from; from++) {
                if (from[0] == '\\' && from[1] <= '3' && is_octal(from[1]) && is_octal(from[2]) && is_octal(from[3])) {
                        *to++ = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
                        from += 3;
                } else
                        *to++ = *from;
        }
        *to = '\0';
}

bool mountinfo_parse(char *line, MountInfo *ret_mount) {
        char *fields[FIELDS_BEFORE], *tag, *type;
        const char *options;

        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < FIELDS_BEFORE; i++) {
                fields[i] = strsep(&line, " ");
                if (!fields[i])
                        return false;
        }
        do
                tag = strsep(&line, " ");
        while (tag && !str_equal(tag, "-"));
        type = strsep(&line, " ");
        if (!type || !*type)
                return false;
        (void) strsep(&line, " "); /* what is mounted */
        options = strsep(&line, " ");

        unescape(fields[3]);
        unescape(fields[4]);
        unescape(type);
        *ret_mount = (MountInfo){
                .root = fields[3],
                .path = fields[4],
                .type = type,
                .options = options ? options : "",
        };
        return true;
}
