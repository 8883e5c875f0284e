/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: decoding of requests, by descriptors, whatever they mean. What does not: their rules
 * (sandbox-spec.c, exec-spec.c, the services). */

#include "api/message.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/text-check.h"
#include "base/memory.h"
#include "rpc/core/protobuf.h"

/* Bytes of memory. Texts take little more than their size; a part of two bytes can take fifty times its own. */
#define UNPACKED_MAX ((size_t) 32 << 20)

typedef struct Entry {
        ProtobufCMessage *message;
        const char *key;
        size_t order;
} Entry;

static void *member_at(ProtobufCMessage *message, unsigned offset) {
        return (char *) message + offset;
}

static void drop_unknown(ProtobufCMessage *message) {
        for (unsigned i = 0; i < message->n_unknown_fields; i++)
                free(message->unknown_fields[i].data);
        free(message->unknown_fields);
        message->unknown_fields = NULL;
        message->n_unknown_fields = 0;
}

static int entry_compare(const void *a, const void *b) {
        const Entry *x = a, *y = b;
        int by_key = strcmp(x->key, y->key);

        return by_key != 0 ? by_key : (x->order > y->order) - (x->order < y->order);
}

/* Orders a map by its keys; of each the last entry stays. */
static int normalize_map(const ProtobufCFieldDescriptor *field, ProtobufCMessage **list, size_t *n) {
        const ProtobufCMessageDescriptor *type = field->descriptor;
        _cleanup_free_ Entry *entries = NULL;
        size_t n_kept = 0;

        if (*n == 0)
                return 0;
        entries = try_new0(Entry, *n);
        if (!entries)
                return -ENOMEM;

        for (size_t i = 0; i < *n; i++)
                entries[i] = (Entry){ list[i], *(char **) member_at(list[i], type->fields[0].offset), i };
        qsort(entries, *n, sizeof(Entry), entry_compare);

        for (size_t i = 0; i < *n; i++)
                if (i + 1 < *n && strcmp(entries[i].key, entries[i + 1].key) == 0)
                        (void) protobuf_free(entries[i].message);
                else
                        list[n_kept++] = entries[i].message;

        *n = n_kept;
        return 0;
}

static int normalize(ProtobufCMessage *message) {
        const ProtobufCMessageDescriptor *type = message->descriptor;
        int r = 0;

        drop_unknown(message);
        for (unsigned i = 0; i < type->n_fields && r == 0; i++) {
                const ProtobufCFieldDescriptor *field = &type->fields[i];
                void *member = member_at(message, field->offset);

                if (field->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
                    *(uint32_t *) member_at(message, field->quantifier_offset) != field->id)
                        continue;

                if (field->label == PROTOBUF_C_LABEL_REPEATED) {
                        ProtobufCMessage **list = *(ProtobufCMessage ***) member;
                        size_t *n = member_at(message, field->quantifier_offset);

                        for (size_t j = 0; j < *n && r == 0; j++)
                                r = normalize(list[j]);
                        if (r == 0 && field_is_map(field))
                                r = normalize_map(field, list, n);
                } else if (*(ProtobufCMessage **) member) {
                        r = normalize(*(ProtobufCMessage **) member);
                }
        }

        return r;
}

static void refuse_malformed(Violations *violations, const ProtobufCMessageDescriptor *type) {
        violations_clear(violations);
        violations_add(violations, NULL, REASON_FIELD_INVALID, "the bytes are no message %s", type->name);
}

static void refuse_large(Violations *violations) {
        violations_add_limit(violations, NULL, REASON_MESSAGE_TOO_LARGE, "message_memory_bytes", UNPACKED_MAX,
                             "the message has too many parts: they take more than %zu MiB of memory",
                             UNPACKED_MAX >> 20);
}

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                                 Violations *violations) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        int r = text_check(type, bytes, len, violations);

        if (r < 0) {
                refuse_malformed(violations, type);
                return NULL;
        }
        violations->n_texts = violations->n;

        r = protobuf_unpack(type, bytes, len, UNPACKED_MAX, &message);
        if (r == 0)
                r = normalize(message);

        if (r == -EBADMSG)
                refuse_malformed(violations, type);
        else if (r == -EMSGSIZE)
                refuse_large(violations);
        else if (r < 0)
                violations_add(violations, NULL, REASON_HOST_EXHAUSTED, "the daemon is out of memory");
        return r < 0 ? NULL : TAKE_PTR(message);
}

void api_sha256(const void *bytes, size_t len, uint8_t ret_digest[static 32]) {
        /* Fails only without memory for its context. */
        if (EVP_Digest(bytes, len, ret_digest, NULL, EVP_sha256(), NULL) != 1)
                abort();
}

int message_fingerprint(const ProtobufCMessage *message, const char *method,
                        uint8_t ret_fingerprint[static FINGERPRINT_SIZE]) {
        const ProtobufCMessageDescriptor *type = message->descriptor;
        const ProtobufCFieldDescriptor *request_id =
                protobuf_c_message_descriptor_get_field_by_name(type, "request_id");
        _cleanup_free_ ProtobufCMessage *copy = xcalloc(1, type->sizeof_message); /* of the fields alone */
        _cleanup_free_ uint8_t *bytes = NULL;
        uint8_t digests[2 * 32];
        size_t len;
        int r;

        memcpy(copy, message, type->sizeof_message);
        if (request_id)
                *(const char **) member_at(copy, request_id->offset) = protobuf_c_empty_string;

        r = protobuf_pack(copy, &bytes, &len);
        if (r < 0)
                return r;

        api_sha256(method, strlen(method), digests);
        api_sha256(bytes, len, digests + 32);
        api_sha256(digests, sizeof(digests), ret_fingerprint);
        return 0;
}
