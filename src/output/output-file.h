/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "model/output-window.h"

/* Output files: one stream of an exec's output, of which head and tail are kept (model/output-window.h). One process
 * writes, any number read at the same time, without locks and without talking to each other; neither waits.
 *
 * Up to the limit L the file is the stream: byte n stands at n, and the file's size is the total. Past it the last
 * ⌊L/2⌋ of these bytes are a ring: byte n stands at ⌈L/2⌉ + (n − ⌈L/2⌉) mod ⌊L/2⌋. Behind them, at the next multiple of
 * 16, stand two numbers of 64 bits, little endian: up to where bytes may be being written, and up to where they are.
 * The first is written before the bytes, the second after, so that a reader who looks at the first after it has read
 * knows which of its bytes are good. A reader that follows watches the file for changes (inotify): every addition is
 * one that it can see. */

typedef struct OutputWriter {
        int fd;
        uint64_t limit;
        uint64_t total;
        uint64_t lost; /* up to where the ring has bytes that could not be written; 0: none */
} OutputWriter;

/* Begins a stream in the empty file @fd, which is borrowed, with at least one byte of limit. */
void output_writer_init(OutputWriter *writer, int fd, uint64_t limit) __attribute__((nonnull));

/* Adds bytes. When the disk is full (-ENOSPC …) the bytes count as written and are lost: the writer goes on, and what
 * could not be written reads as zero bytes or is dropped; the process that wrote them never waits. Who limits the size
 * of files (RLIMIT_FSIZE) ignores SIGXFSZ. */
int output_writer_add(OutputWriter *writer, const void *bytes, size_t len) __attribute__((nonnull(1)));

/* What is in the file now. @limit as the writer's. */
int output_file_window(int fd, uint64_t limit, OutputWindow *ret_window) __attribute__((nonnull));

/* Reads up to @size bytes at @offset, or at the first kept byte after it. Returns how many, 0 when there is nothing
 * (yet), or a negative errno, and in @ret_offset where they begin. Never gives bytes that were not the stream's. */
ssize_t output_file_read(int fd, uint64_t limit, uint64_t offset, void *buffer, size_t size, uint64_t *ret_offset)
        __attribute__((nonnull(4, 6)));

/* The offset at which the last @lines lines begin, as far as they are kept. An unfinished last line counts as one. */
int output_file_tail(int fd, uint64_t limit, uint64_t lines, uint64_t *ret_offset) __attribute__((nonnull));
