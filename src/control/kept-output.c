/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how much output is kept of a sandbox's execs that have ended. What does not: how much is kept of one
 * (model/output-window.h).
 *
 * Files go first, then that they are gone is written down. A daemon that ends in between does it again, and whoever
 * reads meanwhile finds nothing, as afterwards. */

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "control/plane.h"

#define BATCH 16

/* Returns 1 when there is no more of it, 0 when it stays, or a negative errno. */
static int drop(Sandbox *sandbox, const KeptOutput *output, HutchError *err) {
        uint64_t kept = sandbox->record.output_kept;
        int r;

        /* Somebody reads it. */
        if (table_get(&sandbox->execs_by_id, output->exec_id))
                return 0;
        r = sandbox->remote->verbs->drop_output(sandbox->remote, output->exec_id);
        if (r < 0)
                return reason_set(err, r, REASON_IO_ERROR, "output cannot be removed: %s", strerror(-r));
        r = store_drop_output(sandbox->control->options.store, sandbox->record.serial, output->exec_serial, err);
        if (r < 0)
                return r;

        sandbox_change(sandbox);
        sandbox->record.output_kept = kept > output->bytes ? kept - output->bytes : 0;
        return 1;
}

void sandbox_bound_output(Sandbox *sandbox) {
        const uint64_t limit = sandbox->control->options.limits.output_per_sandbox;
        _cleanup_(error_clear) HutchError err = {};
        KeptOutput outputs[BATCH];
        uint64_t after = 0;
        int n = BATCH, r = 0;

        if (limit == 0 || sandbox->record.output_kept <= limit || sandbox->record.state == SANDBOX_DELETING ||
            !sandbox_remote(sandbox))
                return;

        while (r >= 0 && n == BATCH && sandbox->record.output_kept > limit) {
                n = r = store_kept_outputs(sandbox->control->options.store, sandbox->record.serial, after, outputs,
                                           BATCH, &err);
                for (int i = 0; i < n && r >= 0 && sandbox->record.output_kept > limit; i++) {
                        after = outputs[i].exec_serial;
                        r = drop(sandbox, &outputs[i], &err);
                }
        }
        if (r < 0)
                log_warning("more output than allowed is kept", LOG_STR("sandbox", sandbox->record.id),
                            LOG_STR("error", error_message(&err)));
}
