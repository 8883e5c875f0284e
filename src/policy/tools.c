/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which tools there are, and where they have their files. What does not: whether these may be had
 * (sources.c). */

#include "policy/tools.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strings.h"
#include "model/reason.h"

/* Caches are not among it: programs want to write to them. */
const Tool tools[] = {
        { "claude", { ".claude", ".claude.json", ".local/bin/claude", ".local/share/claude" } },
        { "codex", { ".codex", ".local/bin/codex" } },
        { "git", { ".gitconfig", ".config/git" } },
        { "npm", { ".npmrc", ".npm-global", ".local/lib/node_modules" } },
        { "uv", { ".local/bin/uv", ".local/bin/uvx", ".local/share/uv", ".config/uv" } },
        {},
};

const Tool *tool_find(const char *name) {
        for (const Tool *tool = tools; tool->name; tool++)
                if (str_equal(tool->name, name))
                        return tool;
        return NULL;
}

int tool_open_part(const SourceRules *rules, const char *part, const char *home, Source *ret_source, HutchError *err) {
        char path[PATH_MAX], real[PATH_MAX];

        if (!home || snprintf(path, sizeof(path), "%s/%s", home, part) >= (int) sizeof(path))
                return reason_set(err, -EINVAL, REASON_SOURCE_INVALID, "the caller has no home on this host");
        return source_open(rules, realpath(path, real) ? real : path, NULL, SOURCE_READ, ret_source, err);
}
