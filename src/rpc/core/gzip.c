/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: zlib, with its memory bounded. What does not: whether a message is compressed (the sessions). */

#include "rpc/core/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/memory.h"

#define GZIP_WINDOW_BITS (MAX_WBITS + 16) /* of the largest window, in the gzip format and no other */
#define GZIP_MEM_LEVEL 8                  /* what zlib takes by default */

/* zlib's own allocator cannot be made to fail by a test. */
static void *stream_alloc(void *opaque, unsigned n, unsigned size) {
        (void) opaque;
        return reallocarray(NULL, n, size);
}

static void stream_free(void *opaque, void *pointer) {
        (void) opaque;
        free(pointer);
}

#define STREAM_NEW ((z_stream){ .zalloc = stream_alloc, .zfree = stream_free })

static void deflate_done(z_stream *stream) {
        (void) deflateEnd(stream);
}

static void inflate_done(z_stream *stream) {
        (void) inflateEnd(stream);
}

int gzip_compress(const uint8_t *bytes, size_t len, uint8_t **ret_bytes, size_t *ret_len) {
        _cleanup_(deflate_done) z_stream stream = STREAM_NEW;
        _cleanup_free_ uint8_t *out = NULL;
        uint8_t *fitted;
        size_t size;

        if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEM_LEVEL,
                         Z_DEFAULT_STRATEGY) != Z_OK)
                return -ENOMEM;

        size = deflateBound(&stream, len);
        if (len > UINT_MAX || size > UINT_MAX)
                return -EMSGSIZE;

        out = malloc(size);
        if (!out)
                return -ENOMEM;

        stream.next_in = (z_const Bytef *) bytes;
        stream.avail_in = (uInt) len;
        stream.next_out = out;
        stream.avail_out = (uInt) size;
        if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
                return -EIO; /* not with so much room */

        /* It may wait to be sent for long: give back what it does not need. */
        fitted = realloc(out, stream.total_out);
        if (fitted)
                out = fitted;

        *ret_len = stream.total_out;
        *ret_bytes = TAKE_PTR(out);
        return 0;
}

/* Gives @stream more room for its output in @out: at first four times its input, then twice what there was, and never
 * more than @size_max. */
static int grow(z_stream *stream, uint8_t **out, size_t *size, size_t size_max) {
        size_t wanted = *size > 0 ? 2 * *size : 4 * (size_t) stream->avail_in, used = stream->total_out;
        uint8_t *grown;

        if (*size == size_max)
                return -EMSGSIZE;

        if (wanted > size_max)
                wanted = size_max;
        grown = realloc(*out, wanted);
        if (!grown)
                return -ENOMEM;

        stream->next_out = grown + used;
        stream->avail_out = (uInt) (wanted - used);
        *out = grown;
        *size = wanted;
        return 0;
}

int gzip_decompress(const uint8_t *bytes, size_t len, size_t len_max, uint8_t **ret_bytes, size_t *ret_len) {
        /* One byte more tells a result that is too long from one that just fits. */
        size_t size = 0, size_max = len_max < UINT_MAX ? len_max + 1 : UINT_MAX;
        _cleanup_(inflate_done) z_stream stream = STREAM_NEW;
        _cleanup_free_ uint8_t *out = NULL;
        int r = Z_OK;

        if (len > UINT_MAX)
                return -EMSGSIZE;
        if (len == 0)
                return -EBADMSG;

        if (inflateInit2(&stream, GZIP_WINDOW_BITS) != Z_OK)
                return -ENOMEM;

        stream.next_in = (z_const Bytef *) bytes;
        stream.avail_in = (uInt) len;
        while (r == Z_OK) {
                if (stream.avail_out == 0) {
                        r = grow(&stream, &out, &size, size_max);
                        if (r < 0)
                                return r;
                }
                r = inflate(&stream, Z_NO_FLUSH);
        }

        if (r == Z_MEM_ERROR)
                return -ENOMEM;
        if (stream.total_out > len_max)
                return -EMSGSIZE;
        if (r != Z_STREAM_END || stream.avail_in > 0)
                return -EBADMSG;

        *ret_len = stream.total_out;
        *ret_bytes = TAKE_PTR(out);
        return 0;
}
