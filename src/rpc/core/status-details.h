/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"

/* What a failed call tells beside its code and message: a google.rpc.Status with google.rpc.ErrorInfo and, when fields
 * of the request are to blame, google.rpc.BadRequest. call_fail() tells the reason; for more:
 *
 *         call_fail_details(call, &err, &(StatusDetails){
 *                 .domain = "hutch",
 *                 .violations = &(StatusViolation){ .field = "spec.name", .reason = "NAME_MALFORMED", … },
 *                 .n_violations = 1,
 *         });
 *
 * Texts are UTF-8; NULL is an empty one. */

/* More than these are left out, by encoder and decoder. */
#define STATUS_DETAILS_PAIRS_MAX 32
#define STATUS_DETAILS_VIOLATIONS_MAX 64

/* Bytes of an encoded google.rpc.Status. Clients take 8 KiB of trailers by default, in which it stands as base64 beside
 * the message, whose every byte may take three. */
#define STATUS_DETAILS_ENCODED_MAX 3584

typedef struct Call Call;

typedef struct StatusPair {
        const char *key;
        const char *value;
} StatusPair;

typedef struct StatusViolation {
        const char *field; /* its path in the request: "spec.mounts[2].target" */
        const char *reason;
        const char *description; /* a sentence */
} StatusViolation;

typedef struct StatusDetails {
        /* ErrorInfo; without reason and domain there is none. */
        const char *reason;
        const char *domain;
        const StatusPair *pairs;
        size_t n_pairs;
        /* BadRequest; without violations there is none. */
        const StatusViolation *violations;
        size_t n_violations;
} StatusDetails;

/* Encodes a google.rpc.Status, which the caller frees. When it would be too large, violations are left out from the
 * last on, then pairs; -E2BIG when that does not suffice. -ENOMEM. */
int status_details_encode(StatusCode code, const char *message, const StatusDetails *details, uint8_t **ret_bytes,
                          size_t *ret_len) __attribute__((nonnull(3, 4, 5)));

/* Reads the first ErrorInfo and the first BadRequest of an encoded google.rpc.Status; no text is NULL then, but reason
 * and domain without an ErrorInfo. -EBADMSG: it is none, or has texts that are not UTF-8; -EMSGSIZE: it is too large;
 * -ENOMEM. */
int status_details_decode(const void *bytes, size_t len, StatusDetails **ret_details) __attribute__((nonnull(3)));

/* Frees @details, which status_details_decode() made or are NULL. Returns NULL. */
StatusDetails *status_details_free(StatusDetails *details);
DEFINE_CLEANUP(StatusDetails *, status_details_free);

/* As call_fail(), with @details, or without any when they do not fit. Their reason and pairs are those of @err when
 * they have none. Bytes of the message that are not UTF-8 become '?'. */
void call_fail_details(Call *call, const HutchError *err, const StatusDetails *details) __attribute__((nonnull));
