/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "contract/hutch/v1/file.pb-c.h"

typedef struct FileStream FileStream;

/* Where a packed archive goes: compressed as was asked, in messages of hutch.v1.DownloadArchiveResponse. */

typedef struct ArchiveOutput ArchiveOutput;

/* NULL when memory is out. */
ArchiveOutput *archive_output_new(FileStream *stream, Hutch__V1__ArchiveCompression compression)
        __attribute__((nonnull));
ArchiveOutput *archive_output_free(ArchiveOutput *output);
DEFINE_CLEANUP(ArchiveOutput *, archive_output_free);

/* -ECANCELED: nobody wants it any more; -EIO: the compressor failed. */
int archive_output_write(ArchiveOutput *output, const void *bytes, size_t len) __attribute__((nonnull));

/* Sends what is left, and the end of the compressed stream. */
int archive_output_finish(ArchiveOutput *output) __attribute__((nonnull));
