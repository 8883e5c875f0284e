/* SPDX-License-Identifier: Apache-2.0 */

/* Input: bytes, which are compressed, and which are decompressed. */

#include "rpc/core/gzip.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define LEN_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_decompresses(const uint8_t *packed, size_t packed_len, const uint8_t *bytes, size_t len) {
        _cleanup_free_ uint8_t *back = NULL, *more = NULL;
        size_t back_len;

        assert(gzip_decompress(packed, packed_len, len, &back, &back_len) == 0);
        assert(back_len == len && (len == 0 || memcmp(back, bytes, len) == 0));
        if (len > 0)
                assert(gzip_decompress(packed, packed_len, len - 1, &more, &back_len) == -EMSGSIZE);

        /* Neither less than it, nor more. */
        assert(gzip_decompress(packed, packed_len - 1, len, &more, &back_len) == -EBADMSG);
        more = new0(uint8_t, packed_len + 1);
        memcpy(more, packed, packed_len);
        free(back);
        back = NULL;
        assert(gzip_decompress(more, packed_len + 1, len, &back, &back_len) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ uint8_t *packed = NULL, *bytes = NULL;
        size_t packed_len, len;
        int r;

        assert(gzip_compress(data, size, &packed, &packed_len) == 0);
        check_decompresses(packed, packed_len, data, size);

        r = gzip_decompress(data, size, LEN_MAX, &bytes, &len);
        assert(r == 0 || (!bytes && (r == -EBADMSG || r == -EMSGSIZE)));
        if (r == 0) {
                assert(len <= LEN_MAX);
                check_decompresses(data, size, bytes, len);
        }

        return 0;
}
