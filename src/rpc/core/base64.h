/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Base64 with the standard alphabet (RFC 4648 §4), as gRPC has it in headers: written without padding, read with and
 * without it. The caller provides the memory. */

/* The exact length of @len bytes once encoded. */
static inline size_t base64_encoded_len(size_t len) {
        return len / 3 * 4 + (len % 3 * 4 + 2) / 3;
}

/* Writes the base64_encoded_len() characters of @bytes to @ret_text, without padding and without a NUL. */
void base64_encode(const void *bytes, size_t len, char *ret_text);

/* The exact number of bytes in the @len characters at @text, if they are well-formed; in any case no more than @len. */
size_t base64_decoded_len(const char *text, size_t len);

/* Writes the base64_decoded_len() bytes of @text to @ret_bytes. Fails with -EINVAL, having written some of them, when
 * there is a character that is not of the alphabet (spaces and newlines are none), a length that no bytes have, or
 * padding that does not fill up the last four characters.
 *
 * The bits of the last character that belong to no byte are ignored: peers differ in whether they clear them. So more
 * than one text may stand for the same bytes: compare bytes, not texts. */
int base64_decode(const char *text, size_t len, void *ret_bytes);
