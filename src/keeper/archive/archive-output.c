/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: compressing an archive on its way out. What does not: what is in it (file-pack.c). */

#include "keeper/archive/archive-output.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "keeper/worker/file-worker.h"

#define DATA_FIELD 1        /* of DownloadArchiveResponse */
#define GZIP_BITS (15 + 16) /* the largest window, with gzip's head */
#define GZIP_MEMORY_LEVEL 8 /* what zlib takes unasked */

struct ArchiveOutput {
        FileStream *stream;
        uint8_t *buffer; /* FILE_HEAD bytes for the message's head, and FILE_CHUNK */
        size_t len;      /* of what is in the chunk */
        z_stream gzip;
        bool is_gzip; /* @gzip was begun */
        ZSTD_CCtx *zstd;
};

static int begin_gzip(ArchiveOutput *output) {
        output->is_gzip = deflateInit2(&output->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_BITS, GZIP_MEMORY_LEVEL,
                                       Z_DEFAULT_STRATEGY) == Z_OK;
        return output->is_gzip ? 0 : -ENOMEM;
}

ArchiveOutput *archive_output_new(FileStream *stream, Hutch__V1__ArchiveCompression compression) {
        _cleanup_(archive_output_freep) ArchiveOutput *output = new0(ArchiveOutput, 1);
        output->stream = stream;
        output->buffer = new0(uint8_t, FILE_HEAD + FILE_CHUNK);
        if (compression == HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_GZIP && begin_gzip(output) < 0)
                return NULL;
        if (compression == HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_ZSTD) {
                output->zstd = ZSTD_createCCtx();
                if (!output->zstd)
                        return NULL;
        }
        return TAKE_PTR(output);
}

ArchiveOutput *archive_output_free(ArchiveOutput *output) {
        if (!output)
                return NULL;
        if (output->is_gzip)
                (void) deflateEnd(&output->gzip);
        (void) ZSTD_freeCCtx(output->zstd);
        free(output->buffer);
        free(output);
        return NULL;
}

static uint8_t *chunk(ArchiveOutput *output) {
        return output->buffer + FILE_HEAD;
}

static int flush(ArchiveOutput *output) {
        int r = output->len > 0 ? file_stream_send_data(output->stream, DATA_FIELD, chunk(output), output->len) : 0;
        output->len = 0;
        return r;
}

static int write_plain(ArchiveOutput *output, const uint8_t *bytes, size_t len) {
        while (len > 0) {
                size_t n = FILE_CHUNK - output->len < len ? FILE_CHUNK - output->len : len;
                memcpy(chunk(output) + output->len, bytes, n);
                output->len += n;
                bytes += n;
                len -= n;
                int r = output->len == FILE_CHUNK ? flush(output) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

static int write_gzip(ArchiveOutput *output, const uint8_t *bytes, size_t len, bool is_last) {
        z_stream *gzip = &output->gzip;
        gzip->next_in = (Bytef *) bytes;
        gzip->avail_in = (uInt) len;
        for (;;) {
                gzip->next_out = chunk(output) + output->len;
                gzip->avail_out = (uInt) (FILE_CHUNK - output->len);
                int z = deflate(gzip, is_last ? Z_FINISH : Z_NO_FLUSH);
                if (z == Z_STREAM_ERROR)
                        return -EIO;
                output->len = FILE_CHUNK - gzip->avail_out;
                if (gzip->avail_out > 0)
                        return 0;
                int r = flush(output);
                if (r < 0)
                        return r;
                if (z == Z_STREAM_END)
                        return 0;
        }
}

static int write_zstd(ArchiveOutput *output, const uint8_t *bytes, size_t len, bool is_last) {
        ZSTD_inBuffer in = { .src = bytes, .size = len };
        for (;;) {
                ZSTD_outBuffer out = { .dst = chunk(output), .size = FILE_CHUNK, .pos = output->len };
                size_t left = ZSTD_compressStream2(output->zstd, &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
                if (ZSTD_isError(left))
                        return -EIO;
                output->len = out.pos;
                if (is_last ? left == 0 : in.pos == in.size)
                        return 0;
                int r = output->len == FILE_CHUNK ? flush(output) : 0;
                if (r < 0)
                        return r;
        }
}

static int write_any(ArchiveOutput *output, const void *bytes, size_t len, bool is_last) {
        if (output->is_gzip)
                return write_gzip(output, bytes, len, is_last);
        if (output->zstd)
                return write_zstd(output, bytes, len, is_last);
        return write_plain(output, bytes, len);
}

int archive_output_write(ArchiveOutput *output, const void *bytes, size_t len) {
        return write_any(output, bytes, len, false);
}

int archive_output_finish(ArchiveOutput *output) {
        int r = write_any(output, "", 0, true);
        return r < 0 ? r : flush(output);
}
