/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the use of libcrypto's SHA-256 alone. What does not: its other interface, EVP, which would bring
 * several megabytes of algorithms and their loading into the keeper. */

#define OPENSSL_SUPPRESS_DEPRECATED

#include "keeper/worker/sha256.h"

#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) == sizeof(Sha256), "there is room for the state");
_Static_assert(SHA256_DIGEST_LENGTH == SHA256_SIZE, "a digest is a digest");

void sha256_init(Sha256 *hash) {
        (void) SHA256_Init((SHA256_CTX *) hash->state);
}

void sha256_add(Sha256 *hash, const void *bytes, size_t len) {
        (void) SHA256_Update((SHA256_CTX *) hash->state, bytes, len);
}

void sha256_finish(Sha256 *hash, uint8_t ret_digest[static SHA256_SIZE]) {
        (void) SHA256_Final(ret_digest, (SHA256_CTX *) hash->state);
}
