/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading arguments by tables. What does not: the tables (commands.c) and what the options do. */

#include "cli/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/suggest.h"

static const Option *find_long(const OptionGroups groups, const char *name, size_t len) {
        for (size_t i = 0; i < OPTION_GROUPS_MAX && groups[i]; i++)
                for (const Option *option = groups[i]; option->name; option++)
                        if (strlen(option->name) == len && memcmp(option->name, name, len) == 0)
                                return option;
        return NULL;
}

static const Option *find_letter(const OptionGroups groups, char letter) {
        for (size_t i = 0; i < OPTION_GROUPS_MAX && groups[i]; i++)
                for (const Option *option = groups[i]; option->name; option++)
                        if (option->letter == letter)
                                return option;
        return NULL;
}

static int refuse_unknown(const OptionGroups groups, const char *name, size_t len, HutchError *err) {
        _cleanup_free_ char *typed = xstrndup(name, len);
        Suggestion suggestion = { .typed = typed };

        for (size_t i = 0; i < OPTION_GROUPS_MAX && groups[i]; i++)
                for (const Option *option = groups[i]; option->name; option++)
                        suggestion_consider(&suggestion, option->name);
        if (suggestion.best)
                return error_set(err, -EINVAL, "USAGE", "unknown option '--%s' (did you mean '--%s'?)", typed,
                                 suggestion.best);
        return error_set(err, -EINVAL, "USAGE", "unknown option '--%s'", typed);
}

bool choice_has(const char *choices, const char *value) {
        size_t len = strlen(value);

        for (const char *choice = choices; choice; choice = strchr(choice, '|')) {
                choice += *choice == '|';
                if (strncmp(choice, value, len) == 0 && (choice[len] == '|' || choice[len] == '\0'))
                        return len > 0;
        }
        return false;
}

static int add(Arguments *arguments, const Option *option, const char *value, HutchError *err) {
        /* A variable of a script that is not set, most likely. */
        if (value && !*value)
                return error_set(err, -EINVAL, "USAGE", "--%s cannot be empty; it is %s", option->name, option->value);
        if (value && strchr(option->value, '|') && !choice_has(option->value, value))
                return error_set(err, -EINVAL, "USAGE", "--%s cannot be '%s'; it is one of %s", option->name, value,
                                 option->value);

        arguments->options = xreallocarray(arguments->options, arguments->n_options + 1, sizeof(arguments->options[0]));
        arguments->options[arguments->n_options++] = (struct GivenOption){ .option = option, .value = value };
        return 0;
}

/* Takes "--name" or "--name=value", and the argument that follows where that is its value: then 1. */
static int parse_long(const OptionGroups groups, const char *word, const char *next, Arguments *arguments,
                      HutchError *err) {
        const char *equals = strchr(word, '=');
        size_t len = equals ? (size_t) (equals - word) : strlen(word);
        const Option *option = find_long(groups, word, len);
        int r;

        if (!option)
                return refuse_unknown(groups, word, len, err);
        if (!option->value && equals)
                return error_set(err, -EINVAL, "USAGE", "--%s takes no value", option->name);
        if (!option->value || equals)
                return add(arguments, option, equals ? equals + 1 : NULL, err);
        if (!next)
                return error_set(err, -EINVAL, "USAGE", "--%s needs a value: %s", option->name, option->value);

        r = add(arguments, option, next, err);
        return r < 0 ? r : 1;
}

/* The same for the letters after a "-". */
static int parse_letters(const OptionGroups groups, const char *letters, const char *next, Arguments *arguments,
                         HutchError *err) {
        int r;

        for (; *letters; letters++) {
                const Option *option = find_letter(groups, *letters);

                if (!option)
                        return error_set(err, -EINVAL, "USAGE", "unknown option '-%c'", *letters);
                if (!option->value) {
                        r = add(arguments, option, NULL, err);
                        if (r < 0)
                                return r;
                        continue;
                }

                if (letters[1])
                        return add(arguments, option, letters + 1 + (letters[1] == '='), err);
                if (!next)
                        return error_set(err, -EINVAL, "USAGE", "-%c needs a value: %s", *letters, option->value);
                r = add(arguments, option, next, err);
                return r < 0 ? r : 1;
        }
        return 0;
}

static void add_operand(Arguments *arguments, char *operand) {
        arguments->operands = xreallocarray(arguments->operands, arguments->n_operands + 2, sizeof(char *));
        arguments->operands[arguments->n_operands++] = operand;
        arguments->operands[arguments->n_operands] = NULL;
}

int options_parse(const OptionGroups groups, char *const argv[], size_t leading, Arguments *arguments,
                  HutchError *err) {
        bool taking = true;

        for (; *argv; argv++) {
                const char *word = *argv;
                int r;

                if (taking && str_equal(word, "--")) {
                        taking = false;
                        continue;
                }
                if (!taking || word[0] != '-' || word[1] == '\0') {
                        taking = taking && (leading == EVERYWHERE || arguments->n_operands < leading);
                        add_operand(arguments, *argv);
                        continue;
                }

                r = word[1] == '-' ? parse_long(groups, word + 2, argv[1], arguments, err)
                                   : parse_letters(groups, word + 1, argv[1], arguments, err);
                if (r < 0)
                        return r;
                argv += r;
        }
        return 0;
}

void arguments_clear(Arguments *arguments) {
        free(arguments->options);
        free(arguments->operands);
        *arguments = (Arguments){};
}

static const struct GivenOption *find_given(const Arguments *arguments, const char *option) {
        for (size_t i = arguments->n_options; i-- > 0;)
                if (str_equal(arguments->options[i].option->name, option))
                        return &arguments->options[i];
        return NULL;
}

bool arguments_have(const Arguments *arguments, const char *option) {
        return find_given(arguments, option);
}

const char *arguments_get(const Arguments *arguments, const char *option) {
        const struct GivenOption *given = find_given(arguments, option);

        return given ? given->value : NULL;
}

const char **arguments_get_all(const Arguments *arguments, const char *option) {
        const char **values = new0(const char *, arguments->n_options + 1);
        size_t n = 0;

        for (size_t i = 0; i < arguments->n_options; i++)
                if (str_equal(arguments->options[i].option->name, option))
                        values[n++] = arguments->options[i].value;
        return values;
}

int arguments_get_duration(const Arguments *arguments, const char *option, uint64_t *ret_duration, HutchError *err) {
        _cleanup_(error_clear) HutchError why = {};
        const char *text = arguments_get(arguments, option);
        Duration duration = {};

        if (text && duration_parse(text, strlen(text), &duration, &why) < 0)
                return error_set(err, -EINVAL, "USAGE", "--%s: %s", option, error_message(&why));

        *ret_duration = (uint64_t) duration.seconds * NSEC_PER_SEC + (uint64_t) duration.nanos;
        return 0;
}

int arguments_get_timeout(const Arguments *arguments, uint64_t *ret_timeout, HutchError *err) {
        int r = arguments_get_duration(arguments, "timeout", ret_timeout, err);

        if (r == 0 && *ret_timeout == 0 && arguments_have(arguments, "timeout"))
                return error_set(err, -EINVAL, "USAGE", "--timeout must be more than 0");
        return r;
}

int usage_error(const Arguments *arguments, const char *format, ...) {
        _cleanup_free_ char *text = NULL, *printable = NULL;
        va_list list;
        int n;

        va_start(list, format);
        n = vasprintf(&text, format, list);
        va_end(list);
        if (n < 0)
                abort();
        printable = text_printable(text);
        (void) fprintf(stderr, "hutch: %s; see 'hutch %s%s--help'\n", printable, arguments->command,
                       *arguments->command ? " " : "");
        return EXIT_USAGE;
}
