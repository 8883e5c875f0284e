/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The small texts that gRPC puts into header fields: timeouts, status messages, content types, paths. No memory is
 * allocated. Texts that came from a peer are given with their length, and may contain anything. */

#define GRPC_TIMEOUT_SIZE 10 /* eight digits, the unit, a NUL */

/* Parses the value of grpc-timeout: 1 to 8 digits and one of the units H M S m u n. -EINVAL: anything else. A time
 * that does not fit is UINT64_MAX, so a caller that adds the result to a clock takes care not to overflow. */
int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ns) __attribute__((nonnull(3)));

/* Writes @ns in the finest unit in which it has at most 8 digits, rounded up, and a NUL. Returns the length. There is
 * no text for a deadline that has passed: who has one does not send the call. 0 is written as the least, "1n". */
size_t grpc_timeout_format(uint64_t ns, char ret_text[static GRPC_TIMEOUT_SIZE]);

/* Writes @message as the value of grpc-message: percent-encoded where it is not printable ASCII, and where a space
 * would begin or end the value, which HTTP/2 forbids. Returns the length, at most @size; there is no NUL. 3 * @len
 * bytes are always enough; a message that does not fit is cut between its characters. */
size_t grpc_message_encode(const char *message, size_t len, char *ret_text, size_t size);

/* Writes the message that the value of grpc-message stands for, and a NUL. Never fails, as the protocol demands: what
 * is no escape stays as it is, and each byte that is not part of UTF-8 becomes U+FFFD. Returns the length, without the
 * NUL, less than @size, which is not 0. 3 * @len + 1 bytes are always enough; a message that does not fit is cut
 * between its characters. It may contain a NUL of its own. */
size_t grpc_message_decode(const char *text, size_t len, char *ret_message, size_t size) __attribute__((nonnull(3)));

/* Checks a content-type: "application/grpc" or "application/grpc+proto", also with parameters behind a ';'.
 * -EOPNOTSUPP: gRPC with messages in another format. -EINVAL: not gRPC. */
int grpc_content_type_check(const char *value, size_t len);

/* The two parts of a path, within its text; neither is empty nor contains a '/'. */
typedef struct GrpcPath {
        const char *service; /* with its package: "grpc.health.v1.Health" */
        size_t service_len;
        const char *method;
        size_t method_len;
} GrpcPath;

/* Splits "/package.Service/Method". -EINVAL: it has another form. */
int grpc_path_split(const char *path, size_t len, GrpcPath *ret_path) __attribute__((nonnull(3)));
