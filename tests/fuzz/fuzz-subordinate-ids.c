/* SPDX-License-Identifier: Apache-2.0 */

/* Input: the text of /etc/subuid. */

#include "host/subordinate-ids.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = new0(char, size + 1), *again = NULL;
        IdRanges ranges, read;

        if (size > 0)
                memcpy(text, data, size);
        subordinate_ids_parse(text, "ann", 1000, 1000, &ranges);
        assert(ranges.n <= ID_RANGES_MAX);
        for (size_t i = 0; i < ranges.n; i++) {
                IdRange one = ranges.list[i];

                assert(one.first > 0 && one.count > 0 && (uint64_t) one.first + one.count <= UINT32_MAX);
                assert(one.first > 1000 || one.first + one.count <= 1000);
        }
        again = id_ranges_format(&ranges);
        assert(ranges.n == 0 || id_ranges_parse(again, &read) == 0);
        (void) id_ranges_parse(text, &read);
        return 0;
}
