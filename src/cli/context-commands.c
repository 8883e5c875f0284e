/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: changing and showing the contexts file. What does not: what is in it (local/contexts.c), and its use
 * (libhutch). */

#include "cli/context-commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "local/contexts.h"
#include "local/paths.h"
#include "local/private-file.h"
#include "local/token-file.h"

static int fail(const HutchError *err) {
        report_note("%s", error_message(err));
        return EXIT_FAILURE;
}

static int not_found(const char *name, HutchError *err) {
        return error_set(err, -ENOENT, "CONTEXT_NOT_FOUND", "there is no context '%s': 'hutch context list' shows them",
                         name);
}

/* Changes the file while nobody else does: @change is given what is in it. */
static int edit(int (*change)(Contexts *contexts, const void *user, HutchError *err), const void *user,
                HutchError *err) {
        _cleanup_free_ char *path = path_of_contexts(err), *folder = NULL;
        _cleanup_(contexts_clear) Contexts contexts = {};
        _cleanup_close_ int lock = -1;
        int r;

        if (!path)
                return -ENOENT;
        folder = xstrndup(path, (size_t) (strrchr(path, '/') - path));
        r = make_private_folder(folder, err);
        if (r < 0)
                return r;
        lock = private_file_lock(path, err);
        r = lock < 0 ? lock : contexts_read(&contexts, path, err);
        if (r == 0)
                r = change(&contexts, user, err);
        return r < 0 ? r : contexts_write(&contexts, path, err);
}

/* Reads it for showing. */
static int look(Contexts *ret_contexts, HutchError *err) {
        _cleanup_free_ char *path = path_of_contexts(err);

        return path ? contexts_read(ret_contexts, path, err) : -ENOENT;
}

/* ---- add ---- */

static int add(Contexts *contexts, const void *user, HutchError *err) {
        const Context *context = user;

        if (contexts_find(contexts, context->name))
                return error_set(err, -EEXIST, "NAME_TAKEN", "there is a context '%s' already: remove it first",
                                 context->name);
        return contexts_put(contexts, context);
}

/* The absolute path of a file that is named by an option, which the caller frees; NULL: it was not given. */
static int find_path(const Arguments *arguments, const char *option, char **ret_path, HutchError *err) {
        const char *given = arguments_get(arguments, option);

        if (!given)
                return 0;
        *ret_path = realpath(given, NULL);
        return *ret_path ? 0 : error_set(err, -errno, "FILE_NOT_FOUND", "--%s %s: %s", option, given, strerror(errno));
}

/* Whether a client can be made of it: its address and files are read, and nobody is called. */
static int try_context(const Context *context) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        const HutchClientOptions options = {
                .address = context->address,
                .ca_file = context->ca_file,
                .certificate_file = context->certificate_file,
                .key_file = context->key_file,
                .server_name = context->server_name,
                .token = context->token,
        };

        return hutch_client_new(&options, &client, &error) < 0 ? report_error(error, NULL, EXIT_FAILURE) : EXIT_SUCCESS;
}

static int add_from(const Arguments *arguments, Context *context, HutchError *err) {
        const char *token_file = arguments_get(arguments, "token-file");
        int exit_code;
        int r = find_path(arguments, "ca", &context->ca_file, err);

        if (r == 0)
                r = find_path(arguments, "cert", &context->certificate_file, err);
        if (r == 0)
                r = find_path(arguments, "key", &context->key_file, err);
        if (r == 0 && arguments_have(arguments, "token-stdin"))
                r = token_load_fd(STDIN_FILENO, "stdin", &context->token, err);
        else if (r == 0 && token_file)
                r = token_load(token_file, &context->token, err);
        if (r < 0)
                return fail(err);

        exit_code = try_context(context);
        if (exit_code != EXIT_SUCCESS)
                return exit_code;
        return edit(add, context, err) < 0 ? fail(err) : EXIT_SUCCESS;
}

int command_context_add(const Arguments *arguments) {
        const char *name = arguments->operands[0], *address = arguments_get(arguments, "address");
        Context context = {
                .name = (char *) name,
                .address = (char *) address,
                .server_name = (char *) arguments_get(arguments, "server-name"),
        };
        _cleanup_(error_clear) HutchError err = {};
        int exit_code;

        if (!token_name_is_valid(name))
                return usage_error(arguments, "'%s' is no name: 1 to 63 of a-z, 0-9 and -, which is not at its ends",
                                   name);
        if (!address)
                return usage_error(arguments, "--address is needed");
        if (arguments_have(arguments, "token-stdin") && arguments_have(arguments, "token-file"))
                return usage_error(arguments, "--token-stdin and --token-file exclude each other");

        exit_code = add_from(arguments, &context, &err);
        free(context.ca_file);
        free(context.certificate_file);
        free(context.key_file);
        free(context.token);
        return exit_code;
}

/* ---- The others ---- */

/* The name that was given, or NULL. */
static const char *given_name(const Arguments *arguments) {
        return arguments->n_operands > 0 ? arguments->operands[0] : NULL;
}

static int set_current(Contexts *contexts, const void *user, HutchError *err) {
        const char *name = user;

        if (name && !contexts_find(contexts, name))
                return not_found(name, err);
        free(contexts->current);
        contexts->current = name ? xstrdup(name) : NULL;
        return 0;
}

int command_context_use(const Arguments *arguments) {
        _cleanup_(error_clear) HutchError err = {};

        return edit(set_current, given_name(arguments), &err) < 0 ? fail(&err) : EXIT_SUCCESS;
}

static int take_out(Contexts *contexts, const void *user, HutchError *err) {
        Context *context = contexts_find(contexts, user);

        if (!context)
                return not_found(user, err);
        contexts_remove(contexts, context);
        return 0;
}

int command_context_remove(const Arguments *arguments) {
        _cleanup_(error_clear) HutchError err = {};

        return edit(take_out, arguments->operands[0], &err) < 0 ? fail(&err) : EXIT_SUCCESS;
}

int command_context_list(const Arguments *arguments) {
        _cleanup_(contexts_clear) Contexts contexts = {};
        _cleanup_(error_clear) HutchError err = {};
        Printer printer;

        (void) arguments;
        if (look(&contexts, &err) < 0)
                return fail(&err);

        printer = printer_new(FORMAT_TABLE, "CURRENT", "NAME", "ADDRESS");
        for (size_t i = 0; i < contexts.n; i++) {
                bool current = str_equal(contexts.list[i].name, contexts.current);

                printer_add_cell(&printer, TONE_GOOD, current ? "*" : "");
                printer_add_cell(&printer, TONE_PLAIN, contexts.list[i].name);
                printer_add_cell(&printer, TONE_PLAIN, contexts.list[i].address);
        }
        printer_end(&printer);
        return EXIT_SUCCESS;
}

static void show(const Context *context) {
        Printer printer = printer_new_details();

        printer_add_detail(&printer, "Name", context->name);
        printer_add_detail(&printer, "Address", context->address);
        printer_add_detail(&printer, "CA", context->ca_file ? context->ca_file : "");
        printer_add_detail(&printer, "Certificate", context->certificate_file ? context->certificate_file : "");
        printer_add_detail(&printer, "Key", context->key_file ? context->key_file : "");
        printer_add_detail(&printer, "Server name", context->server_name ? context->server_name : "");
        printer_add_detail(&printer, "Token", context->token ? "there is one" : "");
        printer_end(&printer);
}

int command_context_show(const Arguments *arguments) {
        const char *name = given_name(arguments);
        _cleanup_(contexts_clear) Contexts contexts = {};
        _cleanup_(error_clear) HutchError err = {};
        const Context *context;

        if (look(&contexts, &err) < 0)
                return fail(&err);
        if (!name)
                name = contexts.current;
        if (!name) {
                (void) puts("no context is used: commands go to the daemon of this user");
                return EXIT_SUCCESS;
        }

        context = contexts_find(&contexts, name);
        if (!context) {
                (void) not_found(name, &err);
                return fail(&err);
        }
        show(context);
        return EXIT_SUCCESS;
}

void contexts_offer(void (*offer)(const char *name, const char *typed, const char *about), const char *typed) {
        _cleanup_(contexts_clear) Contexts contexts = {};

        if (look(&contexts, NULL) < 0)
                return;
        for (size_t i = 0; i < contexts.n; i++)
                offer(contexts.list[i].name, typed, contexts.list[i].address);
}
