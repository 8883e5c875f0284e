/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which names and values are metadata, and a list of them. What does not: the header fields that gRPC
 * itself defines, which the sessions read and write. */

#include "rpc/core/metadata.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "rpc/core/base64.h"

static bool name_is_well_formed(const char *name, size_t len) {
        for (size_t i = 0; i < len; i++) {
                char c = name[i];

                if (!ascii_is_lower(c) && !ascii_is_digit(c) && c != '_' && c != '-' && c != '.')
                        return false;
        }

        return len > 0;
}

static bool name_is_reserved(const char *name, size_t len) {
        static const char *const reserved[] = {
                "connection", "content-length",    "content-type", "host",       "keep-alive", "proxy-connection",
                "te",         "transfer-encoding", "upgrade",      "user-agent",
        };

        if (len > 0 && name[0] == ':')
                return true;
        if (len >= 5 && memcmp(name, "grpc-", 5) == 0)
                return true;

        for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
                if (strlen(reserved[i]) == len && memcmp(name, reserved[i], len) == 0)
                        return true;

        return false;
}

static bool name_is_binary(const char *name, size_t len) {
        return len >= 4 && memcmp(name + len - 4, "-bin", 4) == 0;
}

static bool text_is_printable(const char *text, size_t len) {
        for (size_t i = 0; i < len; i++)
                if (text[i] < 0x20 || text[i] > 0x7e)
                        return false;

        return true;
}

/* Spaces and tabs around a field's value are not part of it. */
static void trim(const char **text, size_t *len) {
        for (; *len > 0 && ((*text)[0] == ' ' || (*text)[0] == '\t'); (*text)++)
                (*len)--;
        while (*len > 0 && ((*text)[*len - 1] == ' ' || (*text)[*len - 1] == '\t'))
                (*len)--;
}

static size_t wire_len(const MetadataEntry *entry) {
        return name_is_binary(entry->name, entry->name_len) ? base64_encoded_len(entry->value_len) : entry->value_len;
}

/* What @entry counts towards the limit. */
static size_t entry_bytes(const MetadataEntry *entry) {
        return entry->name_len + wire_len(entry) + METADATA_ENTRY_OVERHEAD;
}

static int reserve_entry(Metadata *metadata) {
        size_t n = metadata->n_allocated > 0 ? 2 * metadata->n_allocated : 8;
        MetadataEntry *entries;

        if (metadata->n_entries < metadata->n_allocated)
                return 0;

        entries = reallocarray(metadata->entries, n, sizeof(MetadataEntry));
        if (!entries)
                return -ENOMEM;

        metadata->entries = entries;
        metadata->n_allocated = n;
        return 0;
}

/* Adds an entry whose value the caller fills in. */
static int push(Metadata *metadata, const char *name, size_t name_len, size_t value_len, char **ret_value) {
        MetadataEntry entry = { .name = name, .name_len = name_len, .value_len = value_len };
        size_t bytes = entry_bytes(&entry);
        char *block, *value;
        int r;

        if (bytes > metadata->bytes_max - metadata->bytes)
                return -E2BIG;

        r = reserve_entry(metadata);
        if (r < 0)
                return r;

        block = malloc(name_len + 1 + value_len + 1);
        if (!block)
                return -ENOMEM;

        value = block + name_len + 1;
        memcpy(block, name, name_len);
        block[name_len] = '\0';
        value[value_len] = '\0';

        entry.name = block;
        entry.value = value;
        metadata->entries[metadata->n_entries++] = entry;
        metadata->bytes += bytes;
        *ret_value = value;
        return 0;
}

/* Frees the entries behind the first @n. */
static void truncate_to(Metadata *metadata, size_t n) {
        while (metadata->n_entries > n) {
                MetadataEntry *entry = &metadata->entries[--metadata->n_entries];

                metadata->bytes -= entry_bytes(entry);
                free((char *) entry->name);
        }
}

static int push_value(Metadata *metadata, const char *name, size_t name_len, const void *value, size_t len) {
        char *copy;
        int r;

        r = push(metadata, name, name_len, len, &copy);
        if (r < 0)
                return r;

        if (len > 0)
                memcpy(copy, value, len);
        return 0;
}

static int push_base64(Metadata *metadata, const char *name, size_t name_len, const char *text, size_t len) {
        char *value;
        int r;

        trim(&text, &len);
        r = push(metadata, name, name_len, base64_decoded_len(text, len), &value);
        if (r < 0)
                return r;

        return base64_decode(text, len, value);
}

/* Adds the values in @text, which are joined by commas. */
static int push_joined(Metadata *metadata, const char *name, size_t name_len, const char *text, size_t len) {
        size_t n_before = metadata->n_entries;

        for (;;) {
                const char *comma = len > 0 ? memchr(text, ',', len) : NULL;
                size_t part_len = comma ? (size_t) (comma - text) : len;
                int r = push_base64(metadata, name, name_len, text, part_len);

                if (r < 0) {
                        truncate_to(metadata, n_before);
                        return r;
                }
                if (!comma)
                        return 0;

                text += part_len + 1;
                len -= part_len + 1;
        }
}

int metadata_add(Metadata *metadata, const char *name, const void *value, size_t len) {
        const char *text = value;
        size_t name_len = strlen(name), trimmed_len = len;

        if (!name_is_well_formed(name, name_len) || name_len > METADATA_NAME_MAX || name_is_reserved(name, name_len))
                return -EINVAL;

        if (!name_is_binary(name, name_len)) {
                trim(&text, &trimmed_len);
                if (trimmed_len != len || !text_is_printable(text, len))
                        return -EINVAL;
        }

        return push_value(metadata, name, name_len, value, len);
}

int metadata_add_wire(Metadata *metadata, const char *name, size_t name_len, const char *value, size_t value_len) {
        if (name_is_reserved(name, name_len) || !name_is_well_formed(name, name_len))
                return 0;
        if (name_len > METADATA_NAME_MAX)
                return -E2BIG;
        if (name_is_binary(name, name_len))
                return push_joined(metadata, name, name_len, value, value_len);

        trim(&value, &value_len);
        if (!text_is_printable(value, value_len))
                return 0;

        return push_value(metadata, name, name_len, value, value_len);
}

size_t metadata_wire_scratch(const MetadataEntry *entry) {
        return name_is_binary(entry->name, entry->name_len) ? wire_len(entry) : 0;
}

const char *metadata_wire_value(const MetadataEntry *entry, char *scratch, size_t *ret_len) {
        *ret_len = wire_len(entry);
        if (!name_is_binary(entry->name, entry->name_len))
                return entry->value;

        base64_encode(entry->value, entry->value_len, scratch);
        return scratch;
}

const MetadataEntry *metadata_find(const Metadata *metadata, const char *name) {
        for (size_t i = 0; i < metadata->n_entries; i++)
                if (str_equal(metadata->entries[i].name, name))
                        return &metadata->entries[i];

        return NULL;
}

int metadata_copy(Metadata *metadata, const Metadata *source) {
        size_t n_before = metadata->n_entries;

        metadata->bytes_max = source->bytes_max;
        for (size_t i = 0; i < source->n_entries; i++) {
                const MetadataEntry *entry = &source->entries[i];
                int r = metadata_add(metadata, entry->name, entry->value, entry->value_len);

                if (r < 0) {
                        truncate_to(metadata, n_before);
                        return r;
                }
        }

        return 0;
}

void metadata_clear(Metadata *metadata) {
        truncate_to(metadata, 0);
        free(metadata->entries);
        *metadata = (Metadata){ .bytes_max = metadata->bytes_max };
}
