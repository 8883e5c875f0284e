/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a sandbox that is made for one command, together with it. What does not: its end, which is that of
 * any sandbox. */

#include <errno.h>

#include "base/failpoint.h"
#include "base/memory.h"
#include "control/plane.h"

DEFINE_CLEANUP(Sandbox *, sandbox_free);

int control_repeat_once(Control *control, const Caller *caller, const RequestKey *key, ExecView *ret_view,
                        HutchError *err) {
        RequestRow row;
        Exec *exec;
        int r = request_find(control, caller, key, &row, err);

        if (r <= 0)
                return r;
        r = exec_find(control, caller, row.sandbox_id, row.exec_id, &exec, err);
        if (r < 0)
                return r;
        if (!exec_is_active(exec) || exec->sandbox->record.state == SANDBOX_DELETING)
                return reason_set(
                        err, -EEXIST, REASON_REQUEST_ID_REUSED,
                        "the request id '%s' was used for a command that has ended; give each request its own",
                        key->request_id);
        *ret_view = exec_view(exec);
        return 1;
}

int control_run_once(Control *control, const Caller *caller, const RequestKey *key, SandboxSpec *sandbox,
                     ExecSpec *exec, ExecView *ret_view, HutchError *err) {
        _cleanup_(sandbox_freep) Sandbox *made = NULL;
        _cleanup_(warm_shape_clear) WarmShape shape = {};
        char sandbox_id[ID_LEN_MAX + 1], exec_id[ID_LEN_MAX + 1];
        int r;

        warm_choose_id(control, sandbox, &shape, sandbox_id);
        id_make("ex-", exec_id);
        r = sandbox_check_new(control, caller, sandbox, err);
        if (r < 0)
                return r;
        made = sandbox_make(control, caller, sandbox_id, sandbox);
        r = exec_check_new(made, "", exec, err);
        if (r < 0)
                return r;
        r = request_add(control, caller, key, sandbox_id, exec_id, err);
        if (r < 0)
                return r;

        sandbox_accept(made, caller, &shape);
        *ret_view = exec_view(exec_accept(TAKE_PTR(made), exec_id, exec, true, caller));
        FAILPOINT("control.once.accepted");
        return 0;
}
