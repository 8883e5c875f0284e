/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a name; its first bytes are also taken for a number. */

#include "model/reason.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A number is that of a reason exactly when its name leads back to it. */
static void check_number(int number) {
        Reason reason = (Reason) number;
        bool known = reason_from_name(reason_name(reason)) == reason && reason != REASON_UNSPECIFIED;

        assert((reason_status_code(reason) != STATUS_UNKNOWN) == known);
        assert(known || str_equal(reason_name(reason), "UNSPECIFIED"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *name = new0(char, size + 1);
        Reason reason;
        int number = 0;

        if (size > 0)
                memcpy(name, data, size);

        reason = reason_from_name(name);
        if (reason != REASON_UNSPECIFIED) {
                assert(str_equal(reason_name(reason), name));
                assert(reason_status_code(reason) != STATUS_OK && reason_status_code(reason) != STATUS_UNKNOWN);
        }

        memcpy(&number, name, size < sizeof(number) ? size : sizeof(number));
        check_number(number);
        check_number((uint16_t) number % 1500);
        assert(reason_status_code(reason_from_errno(number)) != STATUS_UNKNOWN);
        return 0;
}
