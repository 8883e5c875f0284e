/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the form of page tokens: base64url of version, serial, filter and checksum. What does not: pages
 * (listing.c). */

#include "api/page-token.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "api/message.h"
#include "model/reason.h"
#include "rpc/core/base64.h"

#define VERSION 1

typedef struct __attribute__((packed)) Token {
        uint8_t version;
        uint64_t serial; /* these two little-endian */
        uint64_t filter_hash;
        uint8_t checksum[4];
} Token;

#define TOKEN_TEXT_LEN 28

_Static_assert(TOKEN_TEXT_LEN == sizeof(Token) / 3 * 4 && sizeof(Token) % 3 == 0, "a token has no padding");

uint64_t page_filter_hash(const char *filter, size_t len) {
        uint8_t digest[32];
        uint64_t hash;

        api_sha256(filter, len, digest);
        memcpy(&hash, digest, sizeof(hash));
        return le64toh(hash);
}

static void set_checksum(Token *token) {
        uint8_t digest[32];

        api_sha256(token, offsetof(Token, checksum), digest);
        memcpy(token->checksum, digest, sizeof(token->checksum));
}

static void replace(char *text, char from, char to) {
        for (; *text; text++)
                if (*text == from)
                        *text = to;
}

void page_token_write(uint64_t serial, uint64_t filter_hash, char ret_token[static PAGE_TOKEN_SIZE]) {
        Token token = { .version = VERSION, .serial = htole64(serial), .filter_hash = htole64(filter_hash) };

        set_checksum(&token);
        base64_encode(&token, sizeof(token), ret_token);
        ret_token[TOKEN_TEXT_LEN] = '\0';
        replace(ret_token, '+', '-');
        replace(ret_token, '/', '_');
}

int page_token_read(const char *text, uint64_t filter_hash, uint64_t *ret_serial, HutchError *err) {
        char standard[PAGE_TOKEN_SIZE], again[PAGE_TOKEN_SIZE];
        Token token = {};

        if (!*text) {
                *ret_serial = 0;
                return 0;
        }

        if (strlen(text) == TOKEN_TEXT_LEN) {
                memcpy(standard, text, TOKEN_TEXT_LEN + 1);
                replace(standard, '-', '+');
                replace(standard, '_', '/');
                if (base64_decode(standard, TOKEN_TEXT_LEN, &token) == 0) {
                        /* There is one text for each token. */
                        page_token_write(le64toh(token.serial), filter_hash, again);
                        if (strcmp(text, again) == 0) {
                                *ret_serial = le64toh(token.serial);
                                return 0;
                        }
                }
        }

        return reason_set(err, -EINVAL, REASON_PAGE_TOKEN_INVALID,
                          "the page token is not one that this listing gave out with this filter");
}
