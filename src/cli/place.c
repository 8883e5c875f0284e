/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: places of files, read and put together. What does not: what is done with them. */

#include "cli/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

void place_parse(const char *text, Place *ret_place) {
        size_t id = strcspn(text, ":/");

        if (text[id] == ':' && id > 0 && text[0] != '.')
                *ret_place =
                        (Place){ .sandbox = xstrndup(text, id), .path = xstrdup(text[id + 1] ? text + id + 1 : ".") };
        else
                *ret_place = (Place){ .path = xstrdup(text), .standard = str_equal(text, "-") };
}

int place_parse_inside(const char *text, Place *ret_place, HutchError *err) {
        if (!strchr(text, ':') && !strchr(text, '/') && *text) {
                *ret_place = (Place){ .sandbox = xstrdup(text), .path = xstrdup(".") };
                return 0;
        }

        place_parse(text, ret_place);
        if (ret_place->sandbox)
                return 0;

        place_clear(ret_place);
        return error_set(err, -EINVAL, "USAGE", "'%s' is no path inside a sandbox; write ID:PATH", text);
}

void place_clear(Place *place) {
        free(place->sandbox);
        free(place->path);
        *place = (Place){};
}

char *path_join(const char *folder, const char *name) {
        size_t len = strlen(folder);
        char *path;

        if (asprintf(&path, "%s%s%s", folder, len > 0 && folder[len - 1] == '/' ? "" : "/", name) < 0)
                abort();
        return path;
}

char *path_base_name(const char *path) {
        size_t end = strlen(path), start;

        while (end > 0 && path[end - 1] == '/')
                end--;
        for (start = end; start > 0 && path[start - 1] != '/';)
                start--;
        if (start == end || (end - start == 1 && path[start] == '.') ||
            (end - start == 2 && memcmp(path + start, "..", 2) == 0))
                return NULL;
        return xstrndup(path + start, end - start);
}

char *path_folder(const char *path) {
        size_t end = strlen(path);

        while (end > 0 && path[end - 1] == '/')
                end--;
        while (end > 0 && path[end - 1] != '/')
                end--;
        return end > 0 ? xstrndup(path, end) : xstrdup(".");
}
