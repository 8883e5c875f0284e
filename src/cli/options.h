/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Options of the command line, by tables: the parser, the help texts, the completion and the man page read the same.
 *
 *         static const Option options[] = {
 *                 { "memory", 'm', "SIZE", "the most memory that it may have" },
 *                 { "keep", .help = "do not delete it" },
 *                 {},
 *         };
 *
 * Taken are --memory SIZE, --memory=SIZE, -m SIZE, -mSIZE, bundles of letters (-it) and "--", after which nothing is an
 * option. */

/* What a value or an operand may be, for completion. */
typedef enum Completes {
        COMPLETES_NOTHING,
        COMPLETES_FILES,
        COMPLETES_PLACES, /* files, and sandboxes as ID: */
        COMPLETES_PROGRAMS,
        COMPLETES_COMMANDS, /* of hutch */
        COMPLETES_SANDBOXES,
        COMPLETES_EXECS, /* of the sandbox before it */
        COMPLETES_STATES,
        COMPLETES_PROFILES,
        COMPLETES_SHELLS, /* that completion is for */
        COMPLETES_CONTEXTS,
} Completes;

typedef struct Option {
        const char *name;  /* without the dashes; NULL ends a table */
        char letter;       /* 0: none */
        const char *value; /* how help calls its value; "a|b": it is one of these; NULL: it takes none */
        const char *help;
        Completes completes;
        const struct SpecField *field; /* of a sandbox's spec that it sets (spec-options.h); NULL: none */
} Option;

#define OPTION_GROUPS_MAX 6

/* Tables one after the other; a NULL ends them. */
typedef const Option *OptionGroups[OPTION_GROUPS_MAX];

/* What was given. The texts are those of the argument list. */
typedef struct Arguments {
        const char *command; /* as in "exec list"; "": before any */
        struct GivenOption {
                const Option *option;
                const char *value; /* NULL: it takes none */
        } * options;
        size_t n_options;
        char **operands; /* ends with NULL */
        size_t n_operands;
} Arguments;

#define EVERYWHERE SIZE_MAX

/* Adds what @argv, which ends with NULL, has to @arguments. Options are taken until there are @leading operands and
 * another one comes: from there on all is operands (a command to run, with options of its own). -EINVAL. */
int options_parse(const OptionGroups groups, char *const argv[], size_t leading, Arguments *arguments, HutchError *err)
        __attribute__((nonnull(1, 2, 4)));

void arguments_clear(Arguments *arguments) __attribute__((nonnull));

bool arguments_have(const Arguments *arguments, const char *option) __attribute__((nonnull));

/* The value that was given last, or NULL. */
const char *arguments_get(const Arguments *arguments, const char *option) __attribute__((nonnull));

/* All its values, as an array that ends with NULL; the caller frees the array. */
const char **arguments_get_all(const Arguments *arguments, const char *option)
        __attribute__((nonnull, returns_nonnull));

/* Reads the value of a duration's option, in nanoseconds; 0 when it was not given. -EINVAL. */
int arguments_get_duration(const Arguments *arguments, const char *option, uint64_t *ret_duration, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* The same for --timeout, which takes no 0: nobody could tell whether that is no time or no end. */
int arguments_get_timeout(const Arguments *arguments, uint64_t *ret_timeout, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Says on stderr what is wrong with the arguments and where to read more. Returns EXIT_USAGE. */
int usage_error(const Arguments *arguments, const char *format, ...) __attribute__((format(printf, 2, 3), nonnull));

/* Whether @value is one of the choices "a|b|c". */
bool choice_has(const char *choices, const char *value) __attribute__((nonnull));
