/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>

/* Header fields to be sent, gathered for nghttp2, which copies them when they are submitted.
 *
 *         _cleanup_(fields_clear) Fields fields = {};
 *
 *         fields_add(&fields, "content-type", "application/grpc");
 *         fields_add_metadata(&fields, &call->trailing);
 *         if (fields.failed)
 *                 return -ENOMEM;
 *         nghttp2_submit_trailer(http2, id, fields.list, fields.n);
 *
 * Names and values given as text are not copied: they outlive the list. */

typedef struct Metadata Metadata;

#define FIELDS_FEW 10

typedef struct Fields {
        nghttp2_nv *list; /* @few, or from malloc() */
        size_t n, n_allocated;
        nghttp2_nv few[FIELDS_FEW]; /* as many as most calls have */
        void *scratch;              /* encoded values; each begins with a pointer to the one before */
        bool failed;                /* memory was out, and something is missing */
} Fields;

void fields_add(Fields *fields, const char *name, const char *value) __attribute__((nonnull));
void fields_add_bytes(Fields *fields, const char *name, size_t name_len, const char *value, size_t value_len)
        __attribute__((nonnull(1, 2)));

/* The same for a value that no table of header compression shall remember. */
void fields_add_secret(Fields *fields, const char *name, const char *value) __attribute__((nonnull));

/* Adds @value in base64. @name ends in "-bin". */
void fields_add_binary(Fields *fields, const char *name, const void *value, size_t len) __attribute__((nonnull(1, 2)));

/* Adds @message, percent-encoded. */
void fields_add_message(Fields *fields, const char *name, const char *message) __attribute__((nonnull));

void fields_add_metadata(Fields *fields, const Metadata *metadata) __attribute__((nonnull));

void fields_clear(Fields *fields) __attribute__((nonnull));
