/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a word can be completed to. What does not: the table of commands (commands.c). */

#include "cli/complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/context-commands.h"
#include "cli/exit-codes.h"
#include "cli/report.h"
#include "pbtext/pbtext.h"

#define DAEMON_TIMEOUT (200 * NSEC_PER_MSEC)

/* ---- The scripts ---- */

/* Each asks for answers, one in a line with a tab before what is said about it. ":files" and ":programs", as the first
 * one, stand for those of this machine. For "--option=value" they are those for the value alone. */

static const char bash_script[] =
        "_hutch() {\n"
        "        local answers word words=() each glue=\n"
        "        # Bash takes = and : for words of their own.\n"
        "        for each in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
        "                if [[ $each == : && ${#words[@]} -gt 0 ]]; then words[-1]+=:; glue=1\n"
        "                elif [[ $glue ]]; then words[-1]+=$each; glue=\n"
        "                elif [[ $each != = ]]; then words+=(\"$each\")\n"
        "                fi\n"
        "        done\n"
        "        [[ ${COMP_WORDS[COMP_CWORD]} == = ]] && words+=('')\n"
        "        word=${words[-1]}\n"
        "        answers=$(hutch __complete -- \"${words[@]}\" 2>/dev/null)\n"
        "        COMPREPLY=()\n"
        "        case $answers in\n"
        "        '') ;;\n"
        "        :files) mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); compopt -o filenames ;;\n"
        "        :files*)\n"
        "                mapfile -t COMPREPLY < <(compgen -f -- \"$word\"; tail -n +2 <<<\"$answers\" | cut -f1)\n"
        "                compopt -o filenames -o nospace ;;\n"
        "        :programs) mapfile -t COMPREPLY < <(compgen -c -- \"$word\") ;;\n"
        "        *) mapfile -t COMPREPLY < <(cut -f1 <<<\"$answers\") ;;\n"
        "        esac\n"
        "}\n"
        "complete -F _hutch hutch\n";

static const char zsh_script[] =
        "#compdef hutch\n"
        "_hutch() {\n"
        "        local -a answers=(\"${(@f)$(hutch __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
        "        local first=$answers[1]\n"
        "        [[ $words[CURRENT] == --*=* ]] && compset -P 1 '*='\n"
        "        case $first in\n"
        "        :files) _files; shift answers ;;\n"
        "        :programs) _command_names; return ;;\n"
        "        esac\n"
        "        [[ -n $answers[1] ]] || return\n"
        "        answers=(\"${(@)answers//:/\\\\:}\"); answers=(\"${(@)answers/$'\\t'/:}\")\n"
        "        if [[ $first == :files ]]; then _describe hutch answers -S ''; else _describe hutch answers; fi\n"
        "}\n"
        "compdef _hutch hutch\n";

static const char fish_script[] =
        "function __hutch_complete\n"
        "    set -l words (commandline -opc) (commandline -ct)\n"
        "    set -l option (string match -r -- '^--[^=]*=' (commandline -ct))\n"
        "    set -l answers (hutch __complete -- $words[2..-1] 2>/dev/null)\n"
        "    switch \"$answers[1]\"\n"
        "        case :files\n"
        "            set -e answers[1]\n"
        "            set -a answers (__fish_complete_path (string replace -- \"$option\" '' (commandline -ct)))\n"
        "        case :programs\n"
        "            __fish_complete_command\n"
        "            return\n"
        "    end\n"
        "    printf '%s\\n' \"$option\"$answers\n"
        "end\n"
        "complete -c hutch -f -a '(__hutch_complete)'\n";

int command_completion(const Arguments *arguments) {
        static const struct {
                const char *shell, *script;
        } scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };

        for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
                if (str_equal(arguments->operands[0], scripts[i].shell)) {
                        (void) fputs(scripts[i].script, stdout);
                        return EXIT_SUCCESS;
                }
        return usage_error(arguments, "there is no completion for '%s'; there are bash, zsh and fish",
                           arguments->operands[0]);
}

/* ---- What a word can be ---- */

static void offer(const char *word, const char *typed, const char *about) {
        if (str_has_prefix(word, typed))
                (void) printf("%s\t%s\n", word, about);
}

static int offer_sandbox(const HutchSandbox *sandbox, void *user) {
        offer(sandbox->id, user, hutch_sandbox_state_name(sandbox->state));
        return 0;
}

/* Where its files begin, as `hutch cp` is told. */
static int offer_place(const HutchSandbox *sandbox, void *user) {
        _cleanup_(string_builder_clear) StringBuilder place = {};

        string_builder_appendf(&place, "%s:", sandbox->id);
        offer(place.text, user, hutch_sandbox_state_name(sandbox->state));
        return 0;
}

static int offer_exec(const HutchExec *exec, void *user) {
        offer(exec->id, user, hutch_exec_state_name(exec->state));
        return 0;
}

static void offer_profiles(HutchClient *client, const char *typed) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetInfoRequest"), *info = NULL;

        if (connection_call(client, "SystemService/GetInfo", request, &info, NULL) < 0)
                return;
        for (size_t i = 0; i < message_count(info, "profiles"); i++) {
                _cleanup_free_ char *name = message_get(message_at(info, "profiles", i), "name");

                offer(name, typed, "profile");
        }
}

static void offer_live(Completes kind, const Arguments *arguments, const char *typed) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;

        if (connection_open_running(arguments, DAEMON_TIMEOUT, &client, NULL) < 0)
                return;
        if (kind == COMPLETES_SANDBOXES || kind == COMPLETES_PLACES)
                (void) hutch_sandbox_list(client, NULL, 0, kind == COMPLETES_PLACES ? offer_place : offer_sandbox,
                                          (void *) typed, NULL);
        else if (kind == COMPLETES_EXECS && arguments->n_operands > 0)
                (void) hutch_exec_list(client, arguments->operands[0], 0, offer_exec, (void *) typed, NULL);
        else if (kind == COMPLETES_PROFILES)
                offer_profiles(client, typed);
}

/* Commands whose words before the last are @above ("" or "exec"). */
static void offer_commands(const char *above, const char *typed) {
        for (const Command *command = commands; command->name; command++)
                if (str_has_prefix(command->name, "__"))
                        continue;
                else if (*above && command_is_below(command, above))
                        offer(command->name + strlen(above) + 1, typed, command->summary);
                else if (!*above && !strchr(command->name, ' '))
                        offer(command->name, typed, command->summary);
}

static void offer_choices(const char *choices, const char *typed) {
        _cleanup_free_ char *copy = xstrdup(choices);
        char *rest = copy, *choice;

        while ((choice = strsep(&rest, "|")))
                offer(choice, typed, "");
}

static void offer_kind(Completes kind, const Arguments *arguments, const char *typed) {
        switch (kind) {
        case COMPLETES_NOTHING:
                break;
        case COMPLETES_FILES:
                (void) puts(":files");
                break;
        case COMPLETES_PROGRAMS:
                (void) puts(":programs");
                break;
        case COMPLETES_COMMANDS:
                offer_commands("", typed);
                break;
        case COMPLETES_STATES:
                for (unsigned state = HUTCH_SANDBOX_PENDING; state <= HUTCH_SANDBOX_DELETED; state++)
                        offer(hutch_sandbox_state_name(state), typed, "");
                break;
        case COMPLETES_SHELLS:
                offer_choices("bash|zsh|fish", typed);
                break;
        case COMPLETES_CONTEXTS:
                contexts_offer(offer, typed);
                break;
        case COMPLETES_PLACES:
                /* What is inside a sandbox is not looked at. */
                if (strcspn(typed, ":") < strcspn(typed, "/"))
                        break;
                (void) puts(":files");
                offer_live(kind, arguments, typed);
                break;
        case COMPLETES_SANDBOXES:
        case COMPLETES_EXECS:
        case COMPLETES_PROFILES:
                offer_live(kind, arguments, typed);
                break;
        }
}

static void offer_options(const OptionGroups groups, const char *typed) {
        for (size_t i = 0; i < OPTION_GROUPS_MAX && groups[i]; i++)
                for (const Option *option = groups[i]; option->name; option++) {
                        _cleanup_(string_builder_clear) StringBuilder name = {};

                        string_builder_appendf(&name, "--%s", option->name);
                        offer(name.text, typed, option->help);
                }
}

/* The option of which @word is the value, when @before stands before it: a long one, or a letter. */
static const Option *awaits_value(const OptionGroups groups, const char *before) {
        size_t len = strlen(before);

        for (size_t i = 0; i < OPTION_GROUPS_MAX && groups[i]; i++)
                for (const Option *option = groups[i]; option->name; option++)
                        if (option->value &&
                            ((str_has_prefix(before, "--") && str_equal(before + 2, option->name)) ||
                             (len >= 2 && before[0] == '-' && before[1] != '-' && before[len - 1] == option->letter)))
                                return option;
        return NULL;
}

static void offer_values(const Option *option, const Arguments *arguments, const char *typed) {
        if (strchr(option->value, '|'))
                offer_choices(option->value, typed);
        else
                offer_kind(option->completes, arguments, typed);
}

/* What @typed can be that begins with "-": an option, or the value of one, as in "--option=value". */
static void offer_options_or_values(const OptionGroups groups, const Arguments *arguments, const char *typed) {
        _cleanup_free_ char *name = xstrndup(typed, strcspn(typed, "="));
        const Option *option = typed[strlen(name)] ? awaits_value(groups, name) : NULL;

        if (option)
                offer_values(option, arguments, typed + strlen(name) + 1);
        else
                offer_options(groups, typed);
}

/* @words are those of @command after its name, the last one being typed; @arguments has the options before it. */
static void complete_in(const Command *command, char *words[], size_t n, Arguments *arguments) {
        const char *typed = words[n - 1];
        const Option *option = n > 1 ? awaits_value(command->options, words[n - 2]) : NULL;
        size_t leading = command->runs_program ? command->leading : EVERYWHERE;
        bool past_options = false;

        /* The last word, and an option that waits for it, are not read. */
        words[n - 1 - (option != NULL)] = NULL;
        if (options_parse(command->options, words, leading, arguments, NULL) < 0)
                return;
        for (size_t i = 0; words[i]; i++)
                past_options = past_options || str_equal(words[i], "--");
        past_options = past_options || (command->runs_program && arguments->n_operands > command->leading);

        if (option)
                offer_values(option, arguments, typed);
        else if (typed[0] == '-' && !past_options)
                offer_options_or_values(command->options, arguments, typed);
        else if (arguments->n_operands < command->max_operands) {
                if (arguments->n_operands == 0)
                        offer_commands(command->name, typed);
                offer_kind(command->completes[arguments->n_operands > 0], arguments, typed);
        }
}

/* Reads the options before the command. Returns how many words they are; @n when the last one is the value of one. */
static size_t take_global_options(char *words[], size_t n, Arguments *arguments) {
        const OptionGroups groups = { global_options };
        size_t taken = 0;

        while (taken + 1 < n && words[taken][0] == '-') {
                const Option *option = awaits_value(groups, words[taken]);

                if (option && taken + 2 == n) {
                        offer_values(option, arguments, words[n - 1]);
                        return n;
                }
                if (options_parse(groups, (char *[]){ words[taken], option ? words[taken + 1] : NULL, NULL }, 0,
                                  arguments, NULL) < 0)
                        return n;
                taken += option ? 2 : 1;
        }
        return taken;
}

int command_complete(const Arguments *arguments) {
        _cleanup_(arguments_clear) Arguments given = { .command = "" };
        size_t taken = take_global_options(arguments->operands, arguments->n_operands, &given), named;
        char **words = arguments->operands + taken;
        size_t n = arguments->n_operands - taken;
        const Command *command;
        char *typed;

        if (n == 0)
                return arguments->n_operands > 0 ? EXIT_SUCCESS : EXIT_USAGE;

        /* The word under the cursor names no command yet. */
        typed = TAKE_PTR(words[n - 1]);
        command = command_find(words, &named);
        words[n - 1] = typed;
        if (command)
                complete_in(command, words + named, n - named, &given);
        else if (n == 1 && typed[0] == '-')
                offer_options_or_values((OptionGroups){ global_options }, &given, typed);
        else if (n == 1)
                offer_commands("", typed);
        return EXIT_SUCCESS;
}
