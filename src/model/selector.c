/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the grammar of selectors and their comparison with labels. What does not: the shape of keys and
 * values (labels.c). */

#include "model/selector.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/strings.h"
#include "model/reason.h"

/* A key or value in the selector's text. */
typedef struct Word {
        const char *text; /* not NUL-terminated */
        size_t len;
} Word;

typedef enum Operator {
        OPERATOR_EXISTS,
        OPERATOR_NOT_EXISTS,
        OPERATOR_IN, /* also "=": one value */
        OPERATOR_NOT_IN,
} Operator;

typedef struct Requirement {
        Word key;
        Operator op;
        size_t first_value;
        size_t n_values;
} Requirement;

struct Selector {
        char *text;
        Word *values; /* of all requirements, in their order */
        size_t n_values;
        Requirement requirements[SELECTOR_REQUIREMENTS_MAX];
        size_t n_requirements;
};

typedef enum Token {
        TOKEN_END,
        TOKEN_WORD,
        TOKEN_COMMA,
        TOKEN_NOT,
        TOKEN_EQUAL,
        TOKEN_NOT_EQUAL,
        TOKEN_OPEN,
        TOKEN_CLOSE,
        TOKEN_UNKNOWN,
} Token;

/* One token is read ahead. */
typedef struct Parser {
        Selector *selector; /* what is being made */
        const char *next;   /* behind the token */
        Token token;
        Word word; /* the text of the token */
        HutchError *err;
} Parser;

static bool is_word_char(char c) {
        return ascii_is_alnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
}

static bool word_is(Word word, const char *text) {
        return strncmp(text, word.text, word.len) == 0 && text[word.len] == '\0';
}

/* The token at @text, which ends with a NUL, and its length. */
static Token token_at(const char *text, size_t *ret_len) {
        size_t len = 0;

        while (is_word_char(text[len]))
                len++;
        if (len > 0) {
                *ret_len = len;
                return TOKEN_WORD;
        }

        *ret_len = 1;
        switch (text[0]) {
        case '\0':
                *ret_len = 0;
                return TOKEN_END;
        case ',':
                return TOKEN_COMMA;
        case '(':
                return TOKEN_OPEN;
        case ')':
                return TOKEN_CLOSE;
        case '=':
                *ret_len = text[1] == '=' ? 2 : 1;
                return TOKEN_EQUAL;
        case '!':
                *ret_len = text[1] == '=' ? 2 : 1;
                return text[1] == '=' ? TOKEN_NOT_EQUAL : TOKEN_NOT;
        default:
                return TOKEN_UNKNOWN;
        }
}

static void parser_advance(Parser *parser) {
        while (*parser->next == ' ')
                parser->next++;

        parser->word.text = parser->next;
        parser->token = token_at(parser->next, &parser->word.len);
        parser->next += parser->word.len;
}

/* Fails at the token, saying what @expected. */
static int parser_fail(const Parser *parser, const char *expected) {
        return reason_set(parser->err, -EINVAL, REASON_SELECTOR_MALFORMED, "the selector has no %s at byte %zu",
                          expected, (size_t) (parser->word.text - parser->selector->text));
}

static int parse_key(Parser *parser, Requirement *requirement) {
        if (parser->token != TOKEN_WORD || label_key_check(parser->word.text, parser->word.len, NULL) < 0)
                return parser_fail(parser, "label's key");

        requirement->key = parser->word;
        parser_advance(parser);
        return 0;
}

/* Adds the token to the values of @requirement. */
static int parse_value(Parser *parser, Requirement *requirement) {
        Selector *selector = parser->selector;

        if (parser->token != TOKEN_WORD || label_value_check(parser->word.text, parser->word.len, NULL) < 0)
                return parser_fail(parser, "label's value");
        if (requirement->n_values == SELECTOR_VALUES_MAX)
                return reason_set(parser->err, -EINVAL, REASON_SELECTOR_MALFORMED,
                                  "a requirement of a selector has at most %d values", SELECTOR_VALUES_MAX);

        selector->values[selector->n_values++] = parser->word;
        requirement->n_values++;
        parser_advance(parser);
        return 0;
}

/* "=value": the value may be empty. */
static int parse_comparison(Parser *parser, Requirement *requirement) {
        Selector *selector = parser->selector;

        parser_advance(parser);
        if (parser->token == TOKEN_WORD)
                return parse_value(parser, requirement);

        selector->values[selector->n_values++] = (Word){ .text = "", .len = 0 };
        requirement->n_values = 1;
        return 0;
}

/* "in (v1,v2)": a list has at least one value, and none is empty. */
static int parse_list(Parser *parser, Requirement *requirement) {
        int r;

        parser_advance(parser);
        if (parser->token != TOKEN_OPEN)
                return parser_fail(parser, "'('");

        do {
                parser_advance(parser);
                r = parse_value(parser, requirement);
                if (r < 0)
                        return r;
        } while (parser->token == TOKEN_COMMA);

        if (parser->token != TOKEN_CLOSE)
                return parser_fail(parser, "')'");

        parser_advance(parser);
        return 0;
}

static int parse_requirement(Parser *parser, Requirement *requirement) {
        int r;

        requirement->first_value = parser->selector->n_values;

        if (parser->token == TOKEN_NOT) {
                requirement->op = OPERATOR_NOT_EXISTS;
                parser_advance(parser);
                return parse_key(parser, requirement);
        }

        r = parse_key(parser, requirement);
        if (r < 0)
                return r;

        switch (parser->token) {
        case TOKEN_EQUAL:
        case TOKEN_NOT_EQUAL:
                requirement->op = parser->token == TOKEN_EQUAL ? OPERATOR_IN : OPERATOR_NOT_IN;
                return parse_comparison(parser, requirement);
        case TOKEN_WORD:
                if (!word_is(parser->word, "in") && !word_is(parser->word, "notin"))
                        return parser_fail(parser, "operator");
                requirement->op = word_is(parser->word, "in") ? OPERATOR_IN : OPERATOR_NOT_IN;
                return parse_list(parser, requirement);
        default:
                requirement->op = OPERATOR_EXISTS;
                return 0;
        }
}

static int parse_selector(Parser *parser) {
        Selector *selector = parser->selector;
        int r;

        parser_advance(parser);
        if (parser->token == TOKEN_END)
                return 0;

        for (;;) {
                if (selector->n_requirements == SELECTOR_REQUIREMENTS_MAX)
                        return reason_set(parser->err, -EINVAL, REASON_SELECTOR_MALFORMED,
                                          "a selector has at most %d requirements", SELECTOR_REQUIREMENTS_MAX);

                r = parse_requirement(parser, &selector->requirements[selector->n_requirements++]);
                if (r < 0)
                        return r;

                if (parser->token == TOKEN_END)
                        return 0;
                if (parser->token != TOKEN_COMMA)
                        return parser_fail(parser, "','");
                parser_advance(parser);
        }
}

/* One that has the text and room for values. NULL when memory is out. */
static Selector *selector_new(const char *text, size_t len, size_t n_values) {
        Selector *selector = try_new0(Selector, 1);

        if (!selector)
                return NULL;

        selector->text = strndup(text, len);
        selector->values = try_new0(Word, n_values);
        return selector->text && selector->values ? selector : selector_free(selector);
}

int selector_parse(const char *text, size_t len, Selector **ret_selector, HutchError *err) {
        Selector *selector;
        size_t n_commas = 0;
        int r;

        if (len > SELECTOR_LEN_MAX)
                return reason_set(err, -EINVAL, REASON_SELECTOR_MALFORMED, "a selector has at most %d bytes, not %zu",
                                  SELECTOR_LEN_MAX, len);
        if (memchr(text, '\0', len))
                return reason_set(err, -EINVAL, REASON_SELECTOR_MALFORMED, "a selector contains no NUL");

        for (size_t i = 0; i < len; i++)
                n_commas += text[i] == ',';

        /* A comma stands between any two values. */
        selector = selector_new(text, len, n_commas + 1);
        if (!selector)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "no memory for a selector");

        r = parse_selector(&(Parser){ .selector = selector, .next = selector->text, .err = err });
        if (r < 0)
                (void) selector_free(selector);
        else
                *ret_selector = selector;
        return r;
}

Selector *selector_free(Selector *selector) {
        if (!selector)
                return NULL;

        free(selector->text);
        free(selector->values);
        free(selector);
        return NULL;
}

/* The value of the label that @key names; NULL when there is none. */
static const char *label_value(Word key, const Label labels[], size_t n_labels) {
        for (size_t i = 0; i < n_labels; i++)
                if (word_is(key, labels[i].key))
                        return labels[i].value;

        return NULL;
}

/* @value may be NULL, which is none of them. */
static bool is_among(const char *value, const Word values[], size_t n_values) {
        for (size_t i = 0; value && i < n_values; i++)
                if (word_is(values[i], value))
                        return true;

        return false;
}

bool selector_matches(const Selector *selector, const Label labels[], size_t n_labels) {
        for (size_t i = 0; i < selector->n_requirements; i++) {
                const Requirement *requirement = &selector->requirements[i];
                const char *value = label_value(requirement->key, labels, n_labels);
                bool among = is_among(value, selector->values + requirement->first_value, requirement->n_values);
                bool holds = false;

                switch (requirement->op) {
                case OPERATOR_EXISTS:
                        holds = value;
                        break;
                case OPERATOR_NOT_EXISTS:
                        holds = !value;
                        break;
                case OPERATOR_IN:
                        holds = among;
                        break;
                case OPERATOR_NOT_IN:
                        holds = !among;
                        break;
                }

                if (!holds)
                        return false;
        }

        return true;
}

bool selector_is_empty(const Selector *selector) {
        return selector->n_requirements == 0;
}

int selector_check_not_empty(const Selector *selector, HutchError *err) {
        if (!selector_is_empty(selector))
                return 0;

        return reason_set(err, -EINVAL, REASON_SELECTOR_EMPTY, "an empty selector would select everything");
}
