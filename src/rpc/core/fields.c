/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: gathering header fields. What does not: which ones a call has. */

#include "rpc/core/fields.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/core/base64.h"
#include "rpc/core/grpc-text.h"
#include "rpc/core/metadata.h"

/* Makes room for one more. */
static bool grow(Fields *fields) {
        size_t n_allocated = fields->n_allocated ? 2 * fields->n_allocated : 2 * FIELDS_FEW;
        nghttp2_nv *list;

        if (fields->n < FIELDS_FEW || fields->n < fields->n_allocated) {
                if (!fields->n_allocated)
                        fields->list = fields->few;
                return true;
        }

        list = reallocarray(fields->n_allocated ? fields->list : NULL, n_allocated, sizeof(*list));
        if (!list)
                return false;
        if (!fields->n_allocated)
                memcpy(list, fields->few, sizeof(fields->few));

        fields->list = list;
        fields->n_allocated = n_allocated;
        return true;
}

void fields_add_bytes(Fields *fields, const char *name, size_t name_len, const char *value, size_t value_len) {
        if (!grow(fields)) {
                fields->failed = true;
                return;
        }

        fields->list[fields->n++] = (nghttp2_nv){
                .name = (uint8_t *) (uintptr_t) name,
                .namelen = name_len,
                .value = (uint8_t *) (uintptr_t) value,
                .valuelen = value_len,
        };
}

void fields_add(Fields *fields, const char *name, const char *value) {
        fields_add_bytes(fields, name, strlen(name), value, strlen(value));
}

void fields_add_secret(Fields *fields, const char *name, const char *value) {
        size_t n = fields->n;

        fields_add(fields, name, value);
        if (fields->n > n)
                fields->list[n].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
}

/* Memory that lives as long as the list. NULL, and noted, when memory is out. */
static char *scratch(Fields *fields, size_t len) {
        void **block = malloc(sizeof(void *) + len);

        if (!block) {
                fields->failed = true;
                return NULL;
        }

        *block = fields->scratch;
        fields->scratch = block;
        return (char *) (block + 1);
}

void fields_add_binary(Fields *fields, const char *name, const void *value, size_t len) {
        size_t encoded_len = base64_encoded_len(len);
        char *encoded = scratch(fields, encoded_len);

        if (!encoded)
                return;

        base64_encode(value, len, encoded);
        fields_add_bytes(fields, name, strlen(name), encoded, encoded_len);
}

void fields_add_message(Fields *fields, const char *name, const char *message) {
        size_t len = strlen(message);
        char *encoded = scratch(fields, 3 * len);

        if (encoded)
                fields_add_bytes(fields, name, strlen(name), encoded,
                                 grpc_message_encode(message, len, encoded, 3 * len));
}

void fields_add_metadata(Fields *fields, const Metadata *metadata) {
        for (size_t i = 0; i < metadata->n_entries; i++) {
                const MetadataEntry *entry = &metadata->entries[i];
                size_t scratch_len = metadata_wire_scratch(entry), len;
                char *encoded = NULL;
                const char *value;

                if (scratch_len > 0) {
                        encoded = scratch(fields, scratch_len);
                        if (!encoded)
                                return;
                }

                value = metadata_wire_value(entry, encoded, &len);
                fields_add_bytes(fields, entry->name, entry->name_len, value, len);
        }
}

void fields_clear(Fields *fields) {
        if (fields->n_allocated)
                free(fields->list);

        while (fields->scratch) {
                void *before = *(void **) fields->scratch;

                free(fields->scratch);
                fields->scratch = before;
        }

        *fields = (Fields){};
}
