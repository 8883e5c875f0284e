/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the memory of sandbox specs, and names. What does not: how specs are made (the api) and kept (the
 * store). */

#include "model/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/strings.h"

SandboxSpec *sandbox_spec_new(void) {
        SandboxSpec *spec = new0(SandboxSpec, 1);

        spec->n_refs = 1;
        return spec;
}

SandboxSpec *sandbox_spec_ref(SandboxSpec *spec) {
        assert(spec->n_refs > 0);

        spec->n_refs++;
        return spec;
}

SandboxSpec *sandbox_spec_unref(SandboxSpec *spec) {
        if (!spec || --spec->n_refs > 0)
                return NULL;

        strv_free(spec->command);
        env_variables_free(spec->env, spec->n_env);
        labels_free(spec->labels, spec->n_labels);
        for (size_t i = 0; i < spec->n_mounts; i++) {
                free(spec->mounts[i].source);
                free(spec->mounts[i].target);
        }
        free(spec->mounts);
        for (size_t i = 0; i < spec->n_copies; i++) {
                free(spec->copies[i].source);
                free(spec->copies[i].target);
                strv_free(spec->copies[i].exclude);
        }
        free(spec->copies);
        strv_free(spec->tools);
        free(spec->image);
        free(spec->runtime);
        free(spec->user);
        free(spec->working_directory);
        free(spec->workspace);
        free(spec->encoded);
        free(spec->effective);
        free(spec);
        return NULL;
}

static const char *const pause_wanted_names[] = {
        [PAUSE_WANTED_PAUSE] = "PAUSE",
        [PAUSE_WANTED_UNPAUSE] = "UNPAUSE",
};

const char *pause_wanted_name(PauseWanted wanted) {
        return pause_wanted_names[wanted];
}

int pause_wanted_from_name(const char *name, PauseWanted *ret_wanted) {
        for (PauseWanted wanted = PAUSE_WANTED_PAUSE; wanted <= PAUSE_WANTED_UNPAUSE; wanted++)
                if (str_equal(name, pause_wanted_names[wanted])) {
                        *ret_wanted = wanted;
                        return 0;
                }

        return -EINVAL;
}
