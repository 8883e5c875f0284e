/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which tools there are, and where they have their files. What does not: whether these may be had
 * (sources.c). */

#include "host/tools.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "model/reason.h"
#include "policy/path-rules.h"

#define HOME "/home/agent"

/* Caches are not among it: programs want to write to them. */
static const struct {
        const char *name;
        const char *parts[6]; /* ends with NULL */
} known[] = {
        { "claude", { "~/.claude", "~/.claude.json", "~/.local/bin/claude", "~/.local/share/claude" } },
        { "codex", { "~/.codex", "~/.local/bin/codex" } },
        { "git", { "~/.gitconfig", "~/.config/git" } },
        { "npm", { "~/.npmrc", "~/.npm-global", "~/.local/lib/node_modules" } },
        { "uv", { "~/.local/bin/uv", "~/.local/bin/uvx", "~/.local/share/uv", "~/.config/uv" } },
};

#define N_KNOWN (sizeof(known) / sizeof(known[0]))

/* The path of an entry of the operator's, when it is of that name. */
static const char *path_in(const char *entry, const char *name, size_t name_len) {
        return strncmp(entry, name, name_len) == 0 && entry[name_len] == '=' ? entry + name_len + 1 : NULL;
}

static const char *own_part(const SourceRules *rules, const char *name, size_t name_len, size_t i) {
        for (char **entry = rules->tools; entry && *entry; entry++) {
                const char *path = path_in(*entry, name, name_len);

                if (path && i-- == 0)
                        return path;
        }
        return NULL;
}

const char *tool_part(const SourceRules *rules, const char *name, size_t i) {
        if (own_part(rules, name, strlen(name), 0))
                return own_part(rules, name, strlen(name), i);
        for (size_t j = 0; j < N_KNOWN; j++)
                if (str_equal(known[j].name, name))
                        return known[j].parts[i];
        return NULL;
}

static bool is_among(char *const names[], size_t n, const char *name, size_t len) {
        for (size_t i = 0; i < n; i++)
                if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
                        return true;
        return false;
}

char **tool_names(const SourceRules *rules, size_t *ret_n) {
        size_t n = 0;
        char **names;

        for (char **entry = rules->tools; entry && *entry; entry++)
                n++;
        names = new0(char *, N_KNOWN + n);
        for (n = 0; n < N_KNOWN; n++)
                names[n] = xstrdup(known[n].name);
        for (char **entry = rules->tools; entry && *entry; entry++) {
                size_t len = strcspn(*entry, "=");

                if (!is_among(names, n, *entry, len))
                        names[n++] = xstrndup(*entry, len);
        }
        *ret_n = n;
        return names;
}

int tool_open_part(const SourceRules *rules, const char *part, const char *home, Source *ret_source, HutchError *err) {
        char *everything[] = { (char *) "/", NULL };
        const SourceRules named = { .read = everything, .own = rules->own };
        char path[PATH_MAX], real[PATH_MAX];

        if (part[0] == '/')
                return source_open(&named, part, NULL, SOURCE_READ, ret_source, err);
        if (!home || snprintf(path, sizeof(path), "%s%s", home, part + 1) >= (int) sizeof(path))
                return reason_set(err, -EINVAL, REASON_SOURCE_INVALID, "the caller has no home on this host");
        return source_open(rules, realpath(path, real) ? real : path, NULL, SOURCE_READ, ret_source, err);
}

char *tool_part_target(const char *part) {
        char *target;

        if (asprintf(&target, "%s%s", part[0] == '/' ? "" : HOME, part[0] == '/' ? part : part + 1) < 0)
                abort();
        return target;
}

static bool is_in(const char *path, const char *folder) {
        size_t len = strlen(folder);

        return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

const char *tool_part_problem(const char *part) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        const char *path = str_has_prefix(part, "~/") ? part + 1 : part;
        _cleanup_free_ char *plain = NULL;

        if (path_resolve(path, strlen(path), &context, &plain, NULL, NULL) < 0 || !str_equal(path, plain) ||
            str_equal(path, "/"))
                return "is no plain path that is absolute or begins with ~/";
        if (path == part && (is_in(path, "/dev") || is_in(path, "/proc") || is_in(path, "/sys")))
                return "is of the kernel: sandboxes have their own";
        return NULL;
}
