/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the memory of exec specs, and names. What does not: how specs are made (the api) and kept (the
 * store). */

#include "model/exec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/strings.h"

ExecSpec *exec_spec_new(void) {
        ExecSpec *spec = new0(ExecSpec, 1);

        spec->n_refs = 1;
        return spec;
}

ExecSpec *exec_spec_ref(ExecSpec *spec) {
        assert(spec->n_refs > 0);

        spec->n_refs++;
        return spec;
}

ExecSpec *exec_spec_unref(ExecSpec *spec) {
        if (!spec || --spec->n_refs > 0)
                return NULL;

        strv_free(spec->argv);
        strv_free(spec->unset_env);
        env_variables_free(spec->env, spec->n_env);
        free(spec->working_directory);
        free(spec->user);
        free(spec->encoded);
        free(spec->input);
        free(spec);
        return NULL;
}

static const char *const end_reason_names[] = {
        [EXEC_END_EXITED] = "EXITED",
        [EXEC_END_CANCELLED] = "CANCELLED",
        [EXEC_END_TIMED_OUT] = "TIMED_OUT",
        [EXEC_END_OUT_OF_MEMORY] = "OUT_OF_MEMORY",
        [EXEC_END_NOT_STARTED] = "NOT_STARTED",
        [EXEC_END_SANDBOX_STOPPED] = "SANDBOX_STOPPED",
        [EXEC_END_SANDBOX_DELETED] = "SANDBOX_DELETED",
        [EXEC_END_SANDBOX_FAILED] = "SANDBOX_FAILED",
        [EXEC_END_MACHINE_DOWN] = "MACHINE_DOWN",
        [EXEC_END_DISK_FULL] = "DISK_FULL",
};

const char *exec_end_reason_name(ExecEndReason reason) {
        return end_reason_names[reason];
}

int exec_end_reason_from_name(const char *name, ExecEndReason *ret_reason) {
        for (ExecEndReason reason = EXEC_END_EXITED; reason <= EXEC_END_DISK_FULL; reason++)
                if (str_equal(name, end_reason_names[reason])) {
                        *ret_reason = reason;
                        return 0;
                }

        return -EINVAL;
}
