/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: google.rpc.Status to and from plain structs. What does not: which reasons and domains there are, and
 * the header field that carries it (fields.c). */

#include "rpc/core/status-details.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "base/utf8.h"
#include "contract/google/rpc/error_details.pb-c.h"
#include "contract/google/rpc/status.pb-c.h"
#include "rpc/core/call.h"
#include "rpc/core/protobuf.h"

#define TYPE_PREFIX "type.googleapis.com/"
#define DECODED_MAX ((size_t) 128 << 10) /* bytes of each message in memory */

typedef Google__Protobuf__Any Any;
typedef Google__Rpc__BadRequest BadRequest;
typedef Google__Rpc__BadRequest__FieldViolation FieldViolation;
typedef Google__Rpc__ErrorInfo ErrorInfo;
typedef Google__Rpc__ErrorInfo__MetadataEntry InfoEntry;
typedef Google__Rpc__Status Status;

/* What status_details_decode() hands out, and the messages that its texts belong to. */
typedef struct Decoded {
        StatusDetails details;
        StatusPair pairs[STATUS_DETAILS_PAIRS_MAX];
        StatusViolation violations[STATUS_DETAILS_VIOLATIONS_MAX];
        ProtobufCMessage *error_info;
        ProtobufCMessage *bad_request;
} Decoded;

static size_t at_most(size_t n, size_t max) {
        return n < max ? n : max;
}

/* The size of @part within an Any within a Status, to a few bytes. */
static size_t size_in_status(const ProtobufCMessage *part) {
        size_t overhead = sizeof(TYPE_PREFIX) + strlen(part->descriptor->name) + 16;

        return protobuf_c_message_get_packed_size(part) + overhead;
}

static int wrap(const ProtobufCMessage *part, char *type_url, size_t type_url_size, Any *ret_any) {
        int r;

        *ret_any = (Any) GOOGLE__PROTOBUF__ANY__INIT;
        r = protobuf_pack(part, &ret_any->value.data, &ret_any->value.len);
        if (r < 0)
                return r;

        (void) snprintf(type_url, type_url_size, TYPE_PREFIX "%s", part->descriptor->name);
        ret_any->type_url = type_url;
        return 0;
}

/* Encodes a Status with @parts. */
static int encode(StatusCode code, const char *message, const ProtobufCMessage *const parts[], size_t n_parts,
                  uint8_t **ret_bytes, size_t *ret_len) {
        Status status = GOOGLE__RPC__STATUS__INIT;
        Any anys[2], *details[2];
        char type_urls[2][64];
        int r = 0;

        status.code = (int32_t) code;
        status.message = (char *) message;
        status.details = details;
        while (r == 0 && status.n_details < n_parts) {
                size_t i = status.n_details++;

                details[i] = &anys[i];
                r = wrap(parts[i], type_urls[i], sizeof(type_urls[i]), &anys[i]);
        }
        if (r == 0)
                r = protobuf_pack(&status.base, ret_bytes, ret_len);
        while (status.n_details > 0)
                free(anys[--status.n_details].value.data);

        return r;
}

int status_details_encode(StatusCode code, const char *message, const StatusDetails *details, uint8_t **ret_bytes,
                          size_t *ret_len) {
        InfoEntry entries[STATUS_DETAILS_PAIRS_MAX], *entry_list[STATUS_DETAILS_PAIRS_MAX];
        FieldViolation violations[STATUS_DETAILS_VIOLATIONS_MAX], *violation_list[STATUS_DETAILS_VIOLATIONS_MAX];
        ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
        BadRequest request = GOOGLE__RPC__BAD_REQUEST__INIT;
        const ProtobufCMessage *parts[2];
        size_t n_parts = 0, room = STATUS_DETAILS_ENCODED_MAX, fixed = 16 + (message ? strlen(message) : 0);

        info.reason = (char *) details->reason;
        info.domain = (char *) details->domain;
        info.metadata = entry_list;
        info.n_metadata = at_most(details->n_pairs, STATUS_DETAILS_PAIRS_MAX);
        for (size_t i = 0; i < info.n_metadata; i++) {
                entries[i] = (InfoEntry) GOOGLE__RPC__ERROR_INFO__METADATA_ENTRY__INIT;
                entries[i].key = (char *) details->pairs[i].key;
                entries[i].value = (char *) details->pairs[i].value;
                entry_list[i] = &entries[i];
        }

        request.field_violations = violation_list;
        request.n_field_violations = at_most(details->n_violations, STATUS_DETAILS_VIOLATIONS_MAX);
        for (size_t i = 0; i < request.n_field_violations; i++) {
                violations[i] = (FieldViolation) GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
                violations[i].field = (char *) details->violations[i].field;
                violations[i].reason = (char *) details->violations[i].reason;
                violations[i].description = (char *) details->violations[i].description;
                violation_list[i] = &violations[i];
        }

        while (fixed + size_in_status(&info.base) + size_in_status(&request.base) > room) {
                if (request.n_field_violations > 0)
                        request.n_field_violations--;
                else if (info.n_metadata > 0)
                        info.n_metadata--;
                else
                        return -E2BIG;
        }

        if (details->reason || details->domain)
                parts[n_parts++] = &info.base;
        if (request.n_field_violations > 0)
                parts[n_parts++] = &request.base;
        return encode(code, message, parts, n_parts, ret_bytes, ret_len);
}

static bool is_text(const char *text) {
        return utf8_valid(text, strlen(text));
}

/* Decodes the first detail of @type; 0 and NULL when there is none. */
static int unwrap(const Status *status, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_message) {
        for (size_t i = 0; i < status->n_details; i++) {
                const Any *any = status->details[i];
                const char *name = strrchr(any->type_url, '/');

                if (name && str_equal(name + 1, type->name))
                        return protobuf_unpack(type, any->value.data, any->value.len, DECODED_MAX, ret_message);
        }

        *ret_message = NULL;
        return 0;
}

static int take_error_info(Decoded *decoded) {
        const ErrorInfo *info = (const ErrorInfo *) decoded->error_info;
        size_t n = at_most(info->n_metadata, STATUS_DETAILS_PAIRS_MAX);

        if (!is_text(info->reason) || !is_text(info->domain))
                return -EBADMSG;
        for (size_t i = 0; i < n; i++) {
                const InfoEntry *entry = info->metadata[i];

                if (!is_text(entry->key) || !is_text(entry->value))
                        return -EBADMSG;
                decoded->pairs[i] = (StatusPair){ .key = entry->key, .value = entry->value };
        }

        decoded->details.reason = info->reason;
        decoded->details.domain = info->domain;
        decoded->details.pairs = decoded->pairs;
        decoded->details.n_pairs = n;
        return 0;
}

static int take_bad_request(Decoded *decoded) {
        const BadRequest *request = (const BadRequest *) decoded->bad_request;
        size_t n = at_most(request->n_field_violations, STATUS_DETAILS_VIOLATIONS_MAX);

        for (size_t i = 0; i < n; i++) {
                const FieldViolation *violation = request->field_violations[i];

                if (!is_text(violation->field) || !is_text(violation->reason) || !is_text(violation->description))
                        return -EBADMSG;
                decoded->violations[i] = (StatusViolation){
                        .field = violation->field,
                        .reason = violation->reason,
                        .description = violation->description,
                };
        }

        decoded->details.violations = decoded->violations;
        decoded->details.n_violations = n;
        return 0;
}

int status_details_decode(const void *bytes, size_t len, StatusDetails **ret_details) {
        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        _cleanup_(status_details_freep) StatusDetails *details = NULL;
        const Status *status;
        Decoded *decoded;
        int r;

        r = protobuf_unpack(&google__rpc__status__descriptor, bytes, len, DECODED_MAX, &message);
        if (r < 0)
                return r;
        status = (const Status *) message;

        decoded = try_new0(Decoded, 1);
        if (!decoded)
                return -ENOMEM;
        details = &decoded->details;

        r = unwrap(status, &google__rpc__error_info__descriptor, &decoded->error_info);
        if (r == 0 && decoded->error_info)
                r = take_error_info(decoded);
        if (r == 0)
                r = unwrap(status, &google__rpc__bad_request__descriptor, &decoded->bad_request);
        if (r == 0 && decoded->bad_request)
                r = take_bad_request(decoded);
        if (r < 0)
                return r;

        *ret_details = TAKE_PTR(details);
        return 0;
}

StatusDetails *status_details_free(StatusDetails *details) {
        Decoded *decoded = (Decoded *) details; /* its first member */

        if (!decoded)
                return NULL;

        protobuf_free(decoded->error_info);
        protobuf_free(decoded->bad_request);
        free(decoded);
        return NULL;
}

/* The message of @err as UTF-8: it may quote anything, and protobuf takes nothing else. */
static char *copy_message(const HutchError *err) {
        char *copy = strdup(error_message(err));
        size_t len = copy ? strlen(copy) : 0;

        for (size_t at = 0, n; at < len; at += n) {
                uint32_t ignored;

                n = utf8_next(copy + at, len - at, &ignored);
                if (n == 0) {
                        copy[at] = '?';
                        n = 1;
                }
        }

        return copy;
}

void call_fail_details(Call *call, const HutchError *err, const StatusDetails *details) {
        char *message = copy_message(err);
        _cleanup_free_ uint8_t *bytes = NULL;
        StatusPair pairs[ERROR_PAIRS_MAX];
        StatusDetails complete = *details;
        size_t len = 0;

        if (!complete.reason)
                complete.reason = err->reason;
        if (!complete.pairs) {
                complete.pairs = pairs;
                for (complete.n_pairs = 0; complete.n_pairs < err->n_pairs; complete.n_pairs++)
                        pairs[complete.n_pairs] = (StatusPair){ .key = err->pairs[complete.n_pairs].key,
                                                                .value = err->pairs[complete.n_pairs].value };
        }
        /* Without them the status still tells. */
        if (message)
                (void) status_details_encode(err->code, message, &complete, &bytes, &len);
        call_finish_details(call, err->code, message ? message : error_message(err), bytes, len);
        free(message);
}
