/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which tokens are accepted now. What does not: their form and that of their file
 * (local/token-file.c), and who is who (callers.c). */

#include "api/tokens.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "local/token-file.h"
#include "model/reason.h"

struct Tokens {
        char *path;
        struct stat seen; /* of the file when it was read last, well or not; zero: there was none */
        TokenFile file;
};

static struct stat look(const Tokens *tokens) {
        struct stat info = {};

        if (stat(tokens->path, &info) < 0)
                return (struct stat){};
        return info;
}

static bool is_same(const struct stat *a, const struct stat *b) {
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
               a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int read_file(Tokens *tokens, HutchError *err) {
        TokenFile file = {};
        int r;

        /* Before it is read: if it changes meanwhile it is read once more. */
        tokens->seen = look(tokens);
        r = token_file_read(&file, tokens->path, err);
        if (r < 0 && r != -ENOENT)
                return r;
        if (r < 0 && err)
                error_clear(err);

        token_file_clear(&tokens->file);
        tokens->file = file;
        return 0;
}

int tokens_open(const char *path, Tokens **ret_tokens, HutchError *err) {
        _cleanup_(tokens_freep) Tokens *tokens = new0(Tokens, 1);
        int r;

        tokens->path = xstrdup(path);
        r = read_file(tokens, err);
        if (r < 0)
                return r;

        *ret_tokens = TAKE_PTR(tokens);
        return 0;
}

Tokens *tokens_free(Tokens *tokens) {
        if (!tokens)
                return NULL;

        token_file_clear(&tokens->file);
        free(tokens->path);
        free(tokens);
        return NULL;
}

bool tokens_have_file(const Tokens *tokens) {
        return tokens->seen.st_ino != 0;
}

void tokens_reload(Tokens *tokens) {
        _cleanup_(error_clear) HutchError err = {};

        if (read_file(tokens, &err) < 0)
                log_error("tokens not read again", LOG_STR("error", error_message(&err)));
        else
                log_info("tokens read", LOG_UINT("tokens", tokens->file.n));
}

int tokens_check(Tokens *tokens, const char *text, size_t len, HutchError *err) {
        static const Token nobody;
        uint8_t digest[TOKEN_DIGEST_SIZE];
        char name[TOKEN_NAME_MAX + 1];
        struct stat now = look(tokens);
        const Token *token;

        if (!is_same(&now, &tokens->seen))
                tokens_reload(tokens);
        if (!token_read_name(text, len, name))
                return reason_set(err, -EACCES, REASON_CREDENTIALS_INVALID, "the token is none of this daemon's");

        /* The same work whether the name is known or not. */
        token = token_file_find(&tokens->file, name);
        token_digest(text, len, digest);
        if (CRYPTO_memcmp(digest, token ? token->digest : nobody.digest, sizeof(digest)) != 0 || !token)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_INVALID, "the token is none of this daemon's");
        if (clock_realtime_ns() / NSEC_PER_SEC >= token->expires)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_EXPIRED, "the token '%s' has expired", name);
        return 0;
}
