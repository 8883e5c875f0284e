/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Custom metadata of a call: names and values that gRPC carries in HTTP/2 header fields and leaves to its users.
 *
 *         _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 8192 };
 *         r = metadata_add(&metadata, "x-request-id", id, strlen(id));
 *
 *         for (size_t i = 0; i < metadata.n_entries; i++)
 *                 use(&metadata.entries[i]);
 *
 * A name has 1 to METADATA_NAME_MAX of the characters 0-9 a-z _ - . and may stand more than once; the order is kept.
 * The value of a name that ends in "-bin" is any bytes, which travel in base64; every other value is text of the
 * characters 0x20 to 0x7e that neither begins nor ends with a space.
 *
 * Reserved names are not custom metadata: those that begin with "grpc-" or ':', and what HTTP and gRPC use themselves:
 * connection, content-length, content-type, host, keep-alive, proxy-connection, te, transfer-encoding, upgrade,
 * user-agent. */

#define METADATA_NAME_MAX 256      /* bytes */
#define METADATA_ENTRY_OVERHEAD 32 /* bytes that each entry counts beside its name and value, as HTTP/2 counts them */

typedef struct MetadataEntry {
        const char *name; /* @name_len bytes and a NUL */
        size_t name_len;
        const char *value; /* @value_len bytes and a NUL; those of "-bin" decoded */
        size_t value_len;
} MetadataEntry;

typedef struct Metadata {
        MetadataEntry *entries;
        size_t n_entries;
        size_t n_allocated;
        size_t bytes;     /* of names and values as they are sent, and the overhead of each entry */
        size_t bytes_max; /* set by who makes it: 0 lets nothing in */
} Metadata;

/* Every function that adds leaves @metadata as it was when it fails, and fails with -ENOMEM when memory is out and
 * with -E2BIG when @bytes_max would be exceeded. Adding may move the entries, but not the names and values they point
 * to. */

/* Adds an entry to be sent. -EINVAL: the name or the value is malformed, or the name is reserved. */
int metadata_add(Metadata *metadata, const char *name, const void *value, size_t len) __attribute__((nonnull(1, 2)));

/* Adds a header field as it came: one entry, or for a "-bin" name one for each of its values, which may have been
 * joined by commas. Spaces around a value are no part of it.
 *
 * Adds nothing and returns 0 for a reserved name, which the caller handles before or ignores, and for a name or a text
 * value with characters that HTTP allows and gRPC does not: gRPC forbids to fail for such a value, and one that was
 * added could not be sent back. -EINVAL: a "-bin" value is not base64. -E2BIG also: the name is too long. */
int metadata_add_wire(Metadata *metadata, const char *name, size_t name_len, const char *value, size_t value_len)
        __attribute__((nonnull(1)));

/* Adds the entries of @source, and takes over its @bytes_max. */
int metadata_copy(Metadata *metadata, const Metadata *source) __attribute__((nonnull));

/* The value of @entry as it is sent. Text is sent as it is; base64 is written to @scratch, which has room for
 * metadata_wire_scratch() bytes (0 for text). There is no NUL behind it. */
size_t metadata_wire_scratch(const MetadataEntry *entry) __attribute__((nonnull));
const char *metadata_wire_value(const MetadataEntry *entry, char *scratch, size_t *ret_len)
        __attribute__((nonnull(1, 3)));

/* The first entry called @name, valid until something is added; NULL when there is none. */
const MetadataEntry *metadata_find(const Metadata *metadata, const char *name) __attribute__((nonnull));

/* Frees all entries; @bytes_max stays. */
void metadata_clear(Metadata *metadata) __attribute__((nonnull));
