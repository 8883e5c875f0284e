/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: bearer tokens and the file with their digests, read and written. What does not: when it is read, and
 * what becomes of a token (api/tokens.c). */

#include "local/token-file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "local/private-file.h"

#define FILE_MAX_BYTES ((size_t) 4 << 20)
#define LOADED_MAX 4096 /* bytes of a token that may be anybody's */
#define TIME_FORMAT "%Y-%m-%dT%H:%M:%SZ"
#define HEAD "# The tokens that hutchd accepts: name, SHA-256, created, expires. Change it by `hutch token`.\n"

_Static_assert(TOKEN_DIGEST_SIZE == SHA256_DIGEST_LENGTH, "a digest is a digest");

void token_file_clear(TokenFile *file) {
        free(file->tokens);
        *file = (TokenFile){};
}

static bool is_name(const char *text, size_t len) {
        if (len == 0 || len > TOKEN_NAME_MAX || text[0] == '-' || text[len - 1] == '-')
                return false;
        for (size_t i = 0; i < len; i++)
                if (!ascii_is_lower(text[i]) && !ascii_is_digit(text[i]) && text[i] != '-')
                        return false;
        return true;
}

bool token_name_is_valid(const char *name) {
        return is_name(name, strlen(name));
}

static void write_hex(const uint8_t *bytes, size_t n, char *ret_text) {
        for (size_t i = 0; i < n; i++)
                snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
}

/* -1: it is no digit. */
static int hex_digit(char c) {
        if (ascii_is_digit(c))
                return c - '0';
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, size_t len, uint8_t *ret_bytes, size_t n) {
        if (len != 2 * n)
                return false;
        for (size_t i = 0; i < n; i++) {
                int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

                if (high < 0 || low < 0)
                        return false;
                ret_bytes[i] = (uint8_t) (high << 4 | low);
        }
        return true;
}

void token_digest(const char *text, size_t len, uint8_t ret_digest[static TOKEN_DIGEST_SIZE]) {
        (void) SHA256((const unsigned char *) text, len, ret_digest);
}

int token_make(const char *name, char ret_text[static TOKEN_TEXT_SIZE], uint8_t ret_digest[static TOKEN_DIGEST_SIZE]) {
        uint8_t secret[TOKEN_SECRET_LEN / 2];
        char hex[TOKEN_SECRET_LEN + 1];

        if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
                return -EIO;

        write_hex(secret, sizeof(secret), hex);
        snprintf(ret_text, TOKEN_TEXT_SIZE, TOKEN_PREFIX "%s_%s", name, hex);
        token_digest(ret_text, strlen(ret_text), ret_digest);
        return 0;
}

bool token_read_name(const char *text, size_t len, char ret_name[static TOKEN_NAME_MAX + 1]) {
        size_t prefix_len = strlen(TOKEN_PREFIX), name_len;
        uint8_t secret[TOKEN_SECRET_LEN / 2];

        if (len < prefix_len + 1 + TOKEN_SECRET_LEN || memcmp(text, TOKEN_PREFIX, prefix_len) != 0)
                return false;

        text += prefix_len;
        name_len = len - prefix_len - 1 - TOKEN_SECRET_LEN;
        if (!is_name(text, name_len) || text[name_len] != '_' ||
            !read_hex(text + name_len + 1, TOKEN_SECRET_LEN, secret, sizeof(secret)))
                return false;

        memcpy(ret_name, text, name_len);
        ret_name[name_len] = '\0';
        return true;
}

int token_load_fd(int fd, const char *name, char **ret_token, HutchError *err) {
        char text[LOADED_MAX + 1];
        size_t len = 0;
        ssize_t n = 1;

        while (n > 0 && len < sizeof(text)) {
                n = read(fd, text + len, sizeof(text) - len);
                if (n < 0)
                        return error_set(err, -errno, "FILE_NOT_FOUND", "cannot read %s: %s", name, strerror(errno));
                len += (size_t) n;
        }
        while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
                len--;
        for (size_t i = 0; i < len; i++)
                if (text[i] <= ' ' || text[i] > '~')
                        len = 0;
        if (len == 0 || len > LOADED_MAX)
                return error_set(err, -EINVAL, "FIELD_INVALID", "%s has no token, which is one line without spaces",
                                 name);

        *ret_token = strndup(text, len);
        return *ret_token ? 0 : -ENOMEM;
}

int token_load(const char *path, char **ret_token, HutchError *err) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return error_set(err, -errno, "FILE_NOT_FOUND", "cannot read %s: %s", path, strerror(errno));
        return token_load_fd(fd, path, ret_token, err);
}

void token_format_time(uint64_t seconds, char ret_text[static TOKEN_TIME_SIZE]) {
        time_t when = (time_t) seconds;
        struct tm parts = {};

        (void) gmtime_r(&when, &parts);
        (void) strftime(ret_text, TOKEN_TIME_SIZE, TIME_FORMAT, &parts);
}

static bool parse_time(const char *text, uint64_t *ret_seconds) {
        struct tm parts = {};
        char again[TOKEN_TIME_SIZE];
        const char *end = strptime(text, TIME_FORMAT, &parts);
        time_t when = end && *end == '\0' ? timegm(&parts) : -1;

        if (when < 0)
                return false;

        /* strptime() is lenient: 31 February, spaces. */
        *ret_seconds = (uint64_t) when;
        token_format_time(*ret_seconds, again);
        return str_equal(text, again);
}

/* What is wrong with @line, which is changed; NULL: nothing. */
static const char *parse_line(char *line, Token *ret_token) {
        char *digest = strchr(line, ' '), *created = digest ? strchr(digest + 1, ' ') : NULL;
        char *expires = created ? strchr(created + 1, ' ') : NULL;

        if (!expires)
                return "is not NAME SHA256 CREATED EXPIRES";
        *digest++ = *created++ = *expires++ = '\0';
        if (!token_name_is_valid(line))
                return "has no name of a token: 1 to 63 of a-z, 0-9 and -";
        if (!read_hex(digest, strlen(digest), ret_token->digest, sizeof(ret_token->digest)))
                return "has no SHA-256, which are 64 hex digits";
        if (!parse_time(created, &ret_token->created))
                return "has no time of creation, as in 2026-11-15T20:00:00Z";
        if (!str_equal(expires, "-") && !parse_time(expires, &ret_token->expires))
                return "has no time of expiry, as in 2026-11-15T20:00:00Z, nor -";

        if (str_equal(expires, "-"))
                ret_token->expires = UINT64_MAX;
        memcpy(ret_token->name, line, strlen(line) + 1);
        return NULL;
}

static int compare(const void *a, const void *b) {
        return strcmp(((const Token *) a)->name, ((const Token *) b)->name);
}

Token *token_file_find(const TokenFile *file, const char *name) {
        Token key = {};

        if (file->n == 0 || strlen(name) > TOKEN_NAME_MAX)
                return NULL;
        memcpy(key.name, name, strlen(name) + 1);
        return bsearch(&key, file->tokens, file->n, sizeof(Token), compare);
}

/* Behind the others, whatever its name. */
static void append(TokenFile *file, const Token *token) {
        file->tokens = xreallocarray(file->tokens, file->n + 1, sizeof(Token));
        file->tokens[file->n++] = *token;
}

static void sort(TokenFile *file) {
        if (file->n > 0)
                qsort(file->tokens, file->n, sizeof(Token), compare);
}

void token_file_add(TokenFile *file, const Token *token) {
        append(file, token);
        sort(file);
}

void token_file_remove(TokenFile *file, Token *token) {
        size_t i = (size_t) (token - file->tokens);

        memmove(token, token + 1, (file->n - i - 1) * sizeof(Token));
        file->n--;
}

int token_file_parse(TokenFile *ret_file, const char *name, const char *text, size_t len, HutchError *err) {
        _cleanup_(token_file_clear) TokenFile file = {};
        const char *line = text, *end = text + len;

        for (size_t number = 1; line < end; number++) {
                const char *newline = memchr(line, '\n', (size_t) (end - line));
                size_t line_len = (size_t) ((newline ? newline : end) - line);
                _cleanup_free_ char *copy = xstrndup(line, line_len);
                const char *wrong;
                Token token = {};

                line += line_len + 1;
                if (line_len == 0 || copy[0] == '#')
                        continue;
                wrong = strlen(copy) != line_len ? "contains NUL" : parse_line(copy, &token);
                if (wrong)
                        return error_set(err, -EINVAL, "FIELD_INVALID", "%s:%zu: the line %s", name, number, wrong);
                append(&file, &token);
        }

        sort(&file);
        for (size_t i = 1; i < file.n; i++)
                if (str_equal(file.tokens[i].name, file.tokens[i - 1].name))
                        return error_set(err, -EINVAL, "FIELD_INVALID", "%s: the token %s is there twice", name,
                                         file.tokens[i].name);
        *ret_file = file;
        file = (TokenFile){};
        return 0;
}

int token_file_read(TokenFile *ret_file, const char *path, HutchError *err) {
        _cleanup_free_ char *text = NULL;
        size_t len;
        int r = private_file_read(path, FILE_MAX_BYTES, &text, &len, err);

        return r < 0 ? r : token_file_parse(ret_file, path, text, len, err);
}

static char *format(const TokenFile *file) {
        StringBuilder text = {};

        string_builder_append(&text, HEAD);
        for (size_t i = 0; i < file->n; i++) {
                const Token *token = &file->tokens[i];
                char digest[2 * TOKEN_DIGEST_SIZE + 1], created[TOKEN_TIME_SIZE], expires[TOKEN_TIME_SIZE] = "-";

                write_hex(token->digest, sizeof(token->digest), digest);
                token_format_time(token->created, created);
                if (token->expires != UINT64_MAX)
                        token_format_time(token->expires, expires);
                string_builder_appendf(&text, "%s %s %s %s\n", token->name, digest, created, expires);
        }
        return string_builder_take(&text);
}

int token_file_write(const TokenFile *file, const char *path, HutchError *err) {
        _cleanup_free_ char *text = format(file);

        return private_file_write(path, text, strlen(text), err);
}
