/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: opening all sources of a sandbox. What does not: the rules (policy/sources.c), handing them to the
 * keeper (keeper-process.c). */

#include "runtime/native/sources.h"

#include <stdlib.h>

#include "base/memory.h"

int native_sources_open(const SourceRules *rules, const RuntimeSpec *spec, NativeSources *ret_sources,
                        HutchError *err) {
        static const SourceRules nothing = {};
        const SandboxSpec *sandbox = spec->spec;
        _cleanup_(native_sources_clear) NativeSources sources = { .list = new0(Source, sandbox->n_mounts + 1) };
        _cleanup_free_ char *home = sandbox->n_mounts > 0 && spec->owner ? source_home(spec->owner) : NULL;

        for (; sources.n < sandbox->n_mounts; sources.n++) {
                const SandboxMount *mount = &sandbox->mounts[sources.n];
                int r = source_open(rules ? rules : &nothing, mount->source, home,
                                    mount->writable ? SOURCE_WRITE : SOURCE_READ, &sources.list[sources.n], err);

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
