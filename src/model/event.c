/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the names of the types of events. What does not: how events are made (control) and encoded (the
 * api). */

#include "model/event.h"

#include <errno.h>

#include "base/strings.h"

static const char *const type_names[] = {
        [EVENT_SANDBOX_CREATED] = "SANDBOX_CREATED",       [EVENT_SANDBOX_STATE_CHANGED] = "SANDBOX_STATE_CHANGED",
        [EVENT_SANDBOX_UPDATED] = "SANDBOX_UPDATED",       [EVENT_EXEC_CREATED] = "EXEC_CREATED",
        [EVENT_EXEC_STATE_CHANGED] = "EXEC_STATE_CHANGED", [EVENT_LIMIT_HIT] = "LIMIT_HIT",
};

const char *event_type_name(EventType type) {
        return type_names[type];
}

int event_type_from_name(const char *name, EventType *ret_type) {
        for (EventType type = EVENT_SANDBOX_CREATED; type <= EVENT_LIMIT_HIT; type++)
                if (str_equal(name, type_names[type])) {
                        *ret_type = type;
                        return 0;
                }

        return -EINVAL;
}
