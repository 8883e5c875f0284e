/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: questions for what a sandbox uses, until they are answered. What does not: how it is measured (the
 * runtimes). */

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "control/plane.h"

struct UsageQuestion {
        Sandbox *sandbox;
        UsageQuestion *next;
        void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user);
        void *user;
};

static void answer(const RuntimeUsage *usage, const HutchError *err, void *user) {
        UsageQuestion *question = user, **place = &question->sandbox->usage_questions;

        while (*place != question)
                place = &(*place)->next;
        *place = question->next;
        question->callback(usage, err, question->user);
        free(question);
}

void sandbox_detach(Sandbox *sandbox) {
        RuntimeSandbox *remote = TAKE_PTR(sandbox->remote);

        if (remote)
                remote->verbs->free(remote);

        /* The runtime says nothing from here on. */
        for (UsageQuestion *question = TAKE_PTR(sandbox->usage_questions), *next; question; question = next) {
                _cleanup_(error_clear) HutchError err = {};

                next = question->next;
                (void) reason_set(&err, -ENOENT, REASON_SANDBOX_NOT_FOUND, "the sandbox was deleted");
                question->callback(NULL, &err, question->user);
                free(question);
        }
}

int control_get_usage(Control *control, const Caller *caller, const char *id,
                      void (*callback)(const RuntimeUsage *usage, const HutchError *err, void *user), void *user,
                      HutchError *err) {
        RuntimeSandbox *remote;
        UsageQuestion *question;
        Sandbox *sandbox;
        int r = sandbox_find(control, caller, id, &sandbox, err);

        if (r < 0)
                return r;
        remote = sandbox->record.state == SANDBOX_READY || sandbox->record.state == SANDBOX_PAUSED
                         ? sandbox_remote(sandbox)
                         : NULL;
        if (!remote) {
                (void) reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE, "a sandbox that is %s uses nothing",
                                  sandbox_state_name(sandbox->record.state));
                error_add_pair(err, "state", "%s", sandbox_state_name(sandbox->record.state));
                return -EBUSY;
        }

        question = new0(UsageQuestion, 1);
        *question = (UsageQuestion){
                .sandbox = sandbox,
                .next = sandbox->usage_questions,
                .callback = callback,
                .user = user,
        };
        sandbox->usage_questions = question;
        remote->verbs->get_usage(remote, answer, question);
        return 0;
}
