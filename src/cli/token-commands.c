/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: changing the file of a daemon's tokens, which looks at it by itself. What does not: what is in the
 * file (local/token-file.c), and the tokens of a client (context-commands.c). */

#include "cli/token-commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/program-line.h"
#include "cli/report.h"
#include "local/paths.h"
#include "local/private-file.h"
#include "local/program.h"
#include "local/token-file.h"

static int fail(const HutchError *err) {
        report_note("%s", error_message(err));
        return EXIT_FAILURE;
}

/* The file, which the caller frees: --file, or that of the daemon of this user, as it is configured, whose folder is
 * made. */
static char *find_file(const Arguments *arguments, HutchError *err) {
        const char *given = arguments_get(arguments, "file");
        _cleanup_free_ char *program = given ? NULL : program_find("hutchd", HUTCH_LIBEXECDIR), *folder = NULL;
        char path[PATH_MAX];

        if (given)
                return xstrdup(given);
        if (!program || program_line(program, "--print-tokens-file", path, sizeof(path)) < 0 || path[0] != '/') {
                (void) error_set(err, -ENOENT, "FILE_NOT_FOUND",
                                 "%s does not tell where the daemon's tokens are; name the file by --file",
                                 program ? program : "no hutchd is beside hutch, and it");
                return NULL;
        }
        folder = xstrndup(path, (size_t) (strrchr(path, '/') - path));
        return *folder && make_private_folder(folder, err) < 0 ? NULL : xstrdup(path);
}

/* Reads the file; one that is not there has no tokens. */
static int read_tokens(TokenFile *ret_file, const char *path, HutchError *err) {
        int r = token_file_read(ret_file, path, err);

        if (r != -ENOENT)
                return r;
        error_clear(err);
        return 0;
}

static uint64_t now(void) {
        return clock_realtime_ns() / NSEC_PER_SEC;
}

static int create(const char *path, const char *name, uint64_t expires, HutchError *err) {
        _cleanup_(token_file_clear) TokenFile file = {};
        _cleanup_close_ int lock = private_file_lock(path, err);
        Token token = { .created = now(), .expires = expires > 0 ? now() + expires : UINT64_MAX };
        char text[TOKEN_TEXT_SIZE];
        int r = lock < 0 ? lock : read_tokens(&file, path, err);

        if (r < 0)
                return r;
        if (token_file_find(&file, name))
                return error_set(err, -EEXIST, "NAME_TAKEN", "there is a token '%s' already: revoke it first", name);

        r = token_make(name, text, token.digest);
        if (r < 0)
                return error_set(err, r, "INTERNAL", "there are no random numbers");
        snprintf(token.name, sizeof(token.name), "%s", name);
        token_file_add(&file, &token);
        r = token_file_write(&file, path, err);
        if (r == 0)
                (void) puts(text);
        return r;
}

int command_token_create(const Arguments *arguments) {
        const char *name = arguments->operands[0];
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *path = NULL;
        uint64_t expires;

        if (!token_name_is_valid(name))
                return usage_error(arguments, "'%s' is no name: 1 to 63 of a-z, 0-9 and -, which is not at its ends",
                                   name);
        if (arguments_get_duration(arguments, "expires", &expires, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (arguments_have(arguments, "expires") && expires < NSEC_PER_SEC)
                return usage_error(arguments, "--expires is at least 1s");

        path = find_file(arguments, &err);
        return path && create(path, name, expires / NSEC_PER_SEC, &err) == 0 ? EXIT_SUCCESS : fail(&err);
}

int command_token_list(const Arguments *arguments) {
        _cleanup_(token_file_clear) TokenFile file = {};
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *path = find_file(arguments, &err);
        Printer printer;

        if (!path || read_tokens(&file, path, &err) < 0)
                return fail(&err);

        printer = printer_new(FORMAT_TABLE, "NAME", "CREATED", "EXPIRES");
        for (size_t i = 0; i < file.n; i++) {
                const Token *token = &file.tokens[i];
                char created[TOKEN_TIME_SIZE], expires[TOKEN_TIME_SIZE] = "never";

                token_format_time(token->created, created);
                if (token->expires != UINT64_MAX)
                        token_format_time(token->expires, expires);
                printer_add_cell(&printer, TONE_PLAIN, token->name);
                printer_add_cell(&printer, TONE_PLAIN, created);
                printer_add_cellf(&printer, token->expires <= now() ? TONE_BAD : TONE_PLAIN, "%s%s", expires,
                                  token->expires <= now() ? " (expired)" : "");
        }
        printer_end(&printer);
        return EXIT_SUCCESS;
}

static int revoke(const char *path, const char *name, HutchError *err) {
        _cleanup_(token_file_clear) TokenFile file = {};
        _cleanup_close_ int lock = private_file_lock(path, err);
        int r = lock < 0 ? lock : read_tokens(&file, path, err);
        Token *token = r < 0 ? NULL : token_file_find(&file, name);

        if (r < 0)
                return r;
        if (!token)
                return error_set(err, -ENOENT, "CREDENTIALS_INVALID", "there is no token '%s' in %s", name, path);
        token_file_remove(&file, token);
        return token_file_write(&file, path, err);
}

int command_token_revoke(const Arguments *arguments) {
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *path = find_file(arguments, &err);

        return path && revoke(path, arguments->operands[0], &err) == 0 ? EXIT_SUCCESS : fail(&err);
}
