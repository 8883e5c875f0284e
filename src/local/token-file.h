/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Bearer tokens, and the file that says which ones a daemon accepts.
 *
 *         hutch_ci_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
 *
 * A token is its name and 256 random bits. The file has a line for each: name, SHA-256 of the whole token, when it was
 * created and when it expires ("-": never), separated by single spaces; lines that begin with "#" are comments.
 *
 *         ci 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9 2026-11-15T20:00:00Z -
 *
 * One round of SHA-256 is enough, where a password would need a slow hash: nobody can go through 2^256 tokens to find
 * the one that has a digest. Tokens are found by their names, which are no secret, so that one digest is compared for
 * each call however many there are. */

#define TOKEN_NAME_MAX 63
#define TOKEN_DIGEST_SIZE 32
#define TOKEN_PREFIX "hutch_"
#define TOKEN_SECRET_LEN 64 /* hex digits */
#define TOKEN_TEXT_SIZE (sizeof(TOKEN_PREFIX) + TOKEN_NAME_MAX + 1 + TOKEN_SECRET_LEN)

typedef struct Token {
        char name[TOKEN_NAME_MAX + 1];
        uint8_t digest[TOKEN_DIGEST_SIZE];
        uint64_t created; /* seconds since 1970, as the next */
        uint64_t expires; /* UINT64_MAX: never */
} Token;

typedef struct TokenFile {
        Token *tokens; /* by name */
        size_t n;
} TokenFile;

void token_file_clear(TokenFile *file) __attribute__((nonnull));

/* Whether @name is one: 1 to 63 of a-z, 0-9 and "-", the first and last no "-". */
bool token_name_is_valid(const char *name) __attribute__((nonnull));

/* Makes a token. -EIO: there are no random numbers. */
int token_make(const char *name, char ret_text[static TOKEN_TEXT_SIZE], uint8_t ret_digest[static TOKEN_DIGEST_SIZE])
        __attribute__((nonnull));

/* The name in a token's text. False: it is no token. */
bool token_read_name(const char *text, size_t len, char ret_name[static TOKEN_NAME_MAX + 1]) __attribute__((nonnull));

/* Reads a token out of the file at @path, or out of @fd, which is called @name in messages: one line without spaces,
 * which the caller frees. -EINVAL; -ENOMEM. */
int token_load(const char *path, char **ret_token, HutchError *err) __attribute__((nonnull(1, 2)));
int token_load_fd(int fd, const char *name, char **ret_token, HutchError *err) __attribute__((nonnull(2, 3)));

void token_digest(const char *text, size_t len, uint8_t ret_digest[static TOKEN_DIGEST_SIZE]) __attribute__((nonnull));

/* Reads @len bytes of a file that is called @name in messages. -EINVAL: what is wrong, with the line. */
int token_file_parse(TokenFile *ret_file, const char *name, const char *text, size_t len, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Reads and replaces the file: errors as of private-file.h, which also locks it, and -EINVAL. */
int token_file_read(TokenFile *ret_file, const char *path, HutchError *err) __attribute__((nonnull(1, 2)));
int token_file_write(const TokenFile *file, const char *path, HutchError *err) __attribute__((nonnull(1, 2)));

/* The token of that name, or NULL. */
Token *token_file_find(const TokenFile *file, const char *name) __attribute__((nonnull));

/* Adds a token, whose name is not there yet, and takes one out. */
void token_file_add(TokenFile *file, const Token *token) __attribute__((nonnull));
void token_file_remove(TokenFile *file, Token *token) __attribute__((nonnull));

/* A time as the file has it, "2026-11-15T20:00:00Z". */
#define TOKEN_TIME_SIZE 21
void token_format_time(uint64_t seconds, char ret_text[static TOKEN_TIME_SIZE]) __attribute__((nonnull));
