/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: opening all sources of a sandbox. What does not: the rules (host/sources.c), handing them to the
 * keeper (keeper-process.c). */

#include "runtime/native/sources.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/strings.h"
#include "host/tools.h"

static size_t depth_of(const char *path) {
        size_t depth = 0;

        for (; *path; path++)
                depth += *path == '/';
        return depth;
}

/* Puts a mount behind those that are as deep or less, and a copy at the end. */
static void add(NativeSources *sources, const NativeSource *source) {
        size_t at = sources->n;

        sources->list = xreallocarray(sources->list, sources->n + 1, sizeof(NativeSource));
        for (; !source->copy && at > 0 && depth_of(sources->list[at - 1].target) > depth_of(source->target); at--)
                sources->list[at] = sources->list[at - 1];
        sources->list[at] = *source;
        sources->n++;
}

static bool has_target(const SandboxSpec *spec, const char *target) {
        for (size_t i = 0; i < spec->n_mounts; i++)
                if (str_equal(spec->mounts[i].target, target))
                        return true;
        return false;
}

/* What of it is not there, or not allowed any more, is left out; and so is where the caller has put something else. */
static void add_tool(NativeSources *sources, const SourceRules *rules, const SandboxSpec *spec, const char *name,
                     const char *home) {
        const char *part;

        for (size_t i = 0; (part = tool_part(rules, name, i)); i++) {
                /* A tool may have a socket there by which it reaches what belongs to it on the host. */
                NativeSource source = { .target = tool_part_target(part), .sockets = true };

                if (has_target(spec, source.target) || tool_open_part(rules, part, home, &source.source, NULL) < 0)
                        free(source.target);
                else
                        add(sources, &source);
        }
}

static int open_all(NativeSources *sources, const SourceRules *rules, const RuntimeSpec *spec, bool copies,
                    HutchError *err) {
        const SandboxSpec *sandbox = spec->spec;
        const SourceRules owners = source_rules_for(rules, spec->owner);
        _cleanup_free_ char *home = spec->owner ? source_home(spec->owner) : NULL;
        int r = 0;

        for (size_t i = 0; i < sandbox->n_mounts && r == 0; i++) {
                const SandboxMount *mount = &sandbox->mounts[i];
                NativeSource source = { .writable = mount->writable, .sockets = mount->sockets };

                r = source_open(&owners, mount->source, home, mount->writable ? SOURCE_WRITE : SOURCE_READ,
                                &source.source, err);
                if (r == 0) {
                        source.target = xstrdup(mount->target);
                        add(sources, &source);
                }
        }
        for (char **tool = sandbox->tools; tool && *tool && r == 0; tool++)
                add_tool(sources, &owners, sandbox, *tool, home);
        for (size_t i = 0; copies && i < sandbox->n_copies && r == 0; i++) {
                NativeSource source = { .copy = &sandbox->copies[i] };

                r = source_open(&owners, source.copy->source, home, SOURCE_READ, &source.source, err);
                if (r == 0) {
                        source.target = xstrdup(source.copy->target);
                        add(sources, &source);
                }
        }
        return r;
}

int native_sources_open(const SourceRules *rules, const RuntimeSpec *spec, bool copies, NativeSources *ret_sources,
                        HutchError *err) {
        static const SourceRules nothing = {};
        NativeSources sources = {};
        int r = 0;

        if (spec->spec->n_mounts > 0 || spec->spec->n_copies > 0 || spec->spec->tools)
                r = open_all(&sources, rules ? rules : &nothing, spec, copies, err);
        if (r < 0) {
                native_sources_clear(&sources);
                return r;
        }
        *ret_sources = sources;
        return 0;
}

void native_sources_clear(NativeSources *sources) {
        for (size_t i = 0; i < sources->n; i++) {
                source_close(&sources->list[i].source);
                free(sources->list[i].target);
        }
        free(sources->list);
        *sources = (NativeSources){};
}
