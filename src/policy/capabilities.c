/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the names of capabilities. What does not: who has them inside (keeper/execs/spawn.c). */

#include "policy/capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>

#include "base/strings.h"
#include "model/reason.h"

#define PREFIX "CAP_"

/* Not here: KILL, by which PID 1 and those who work on files inside could be ended; NET_ADMIN and NET_RAW, for the
 * network is a wall; and all that asks for calls that the list of system calls does not have. */
static const struct {
        const char *name;
        int number;
} capabilities[CAPABILITIES_MAX] = {
        { "CHOWN", CAP_CHOWN },   { "DAC_OVERRIDE", CAP_DAC_OVERRIDE },         { "FOWNER", CAP_FOWNER },
        { "FSETID", CAP_FSETID }, { "NET_BIND_SERVICE", CAP_NET_BIND_SERVICE }, { "SETGID", CAP_SETGID },
        { "SETUID", CAP_SETUID },
};

int capability_find(const char *name, HutchError *err) {
        const char *plain = str_has_prefix(name, PREFIX) ? name + sizeof(PREFIX) - 1 : name;

        for (size_t i = 0; i < CAPABILITIES_MAX; i++)
                if (str_equal(capabilities[i].name, plain))
                        return capabilities[i].number;
        return reason_set(
                err, -EINVAL, REASON_FIELD_INVALID,
                "sandboxes may have CHOWN, DAC_OVERRIDE, FOWNER, FSETID, NET_BIND_SERVICE, SETGID and SETUID, "
                "and no other capability");
}

bool capabilities_fit_profile(const char *profile) {
        return !str_equal(profile, "strict");
}
