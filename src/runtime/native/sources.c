/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: opening all sources of a sandbox. What does not: the rules (policy/sources.c), handing them to the
 * keeper (keeper-process.c). */

#include "runtime/native/sources.h"

#include <stdlib.h>

#include "base/memory.h"

int native_sources_open(const SourceRules *rules, const RuntimeSpec *spec, bool copies, NativeSources *ret_sources,
                        HutchError *err) {
        static const SourceRules nothing = {};
        const SandboxSpec *sandbox = spec->spec;
        size_t n = sandbox->n_mounts + (copies ? sandbox->n_copies : 0);
        _cleanup_(native_sources_clear) NativeSources sources = { .list = new0(Source, n + 1) };
        _cleanup_free_ char *home = n > 0 && spec->owner ? source_home(spec->owner) : NULL;

        for (; sources.n < n; sources.n++) {
                bool is_mount = sources.n < sandbox->n_mounts;
                const SandboxMount *mount = is_mount ? &sandbox->mounts[sources.n] : NULL;
                const char *source = is_mount ? mount->source : sandbox->copies[sources.n - sandbox->n_mounts].source;
                SourceUse use = is_mount && mount->writable ? SOURCE_WRITE : SOURCE_READ;
                int r = source_open(rules ? rules : &nothing, source, home, use, &sources.list[sources.n], err);

                if (r < 0)
                        return r;
        }
        *ret_sources = (NativeSources){ .n = sources.n, .list = TAKE_PTR(sources.list) };
        return 0;
}

void native_sources_clear(NativeSources *sources) {
        for (size_t i = 0; sources->list && i < sources->n; i++)
                source_close(&sources->list[i]);
        free(sources->list);
        *sources = (NativeSources){};
}
