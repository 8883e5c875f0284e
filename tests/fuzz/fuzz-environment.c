/* SPDX-License-Identifier: Apache-2.0 */

/* Input: lines. NAME=VALUE sets a variable in the layer, NAME alone unsets it, an empty line begins the next layer. */

#include "model/environment.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LAYERS_MAX 8
#define NAMES_MAX 64

typedef struct Input {
        EnvVariable variables[NAMES_MAX]; /* of all layers */
        size_t n_variables;
        EnvLayer layers[LAYERS_MAX];
        size_t n_layers;
        const char *unset[NAMES_MAX];
        size_t n_unset;
} Input;

static void input_add(Input *input, char *line) {
        EnvLayer *layer = &input->layers[input->n_layers - 1];
        char *value = strchr(line, '=');

        if (value)
                *value++ = '\0';
        if (env_name_check(line, strlen(line), NULL) < 0)
                return;

        if (!value && input->n_unset < NAMES_MAX)
                input->unset[input->n_unset++] = line;
        if (value && input->n_variables < NAMES_MAX) {
                input->variables[input->n_variables++] = (EnvVariable){ line, value };
                layer->n_variables++;
        }
}

/* Cuts @text into layers. */
static void input_read(Input *input, char *text) {
        char *line;

        input->layers[0].variables = input->variables;
        input->n_layers = 1;

        while ((line = strsep(&text, "\n"))) {
                if (*line)
                        input_add(input, line);
                else if (input->n_layers < LAYERS_MAX)
                        input->layers[input->n_layers++].variables = input->variables + input->n_variables;
        }
}

/* The value that @name must have; NULL when it is unset. */
static const char *expected_value(const Input *input, const char *name) {
        for (size_t i = 0; i < input->n_unset; i++)
                if (str_equal(input->unset[i], name))
                        return NULL;

        for (size_t i = input->n_variables; i > 0; i--)
                if (str_equal(input->variables[i - 1].name, name))
                        return input->variables[i - 1].value;

        return NULL;
}

/* What is there is what must be, each name once and in order. Leaves the variables as one layer. */
static void check_variables(const Input *input, char **environment, EnvLayer *ret_layer) {
        static EnvVariable variables[NAMES_MAX];
        size_t n = 0;

        for (; environment[n]; n++) {
                char *value = strchr(environment[n], '=');

                assert(n < NAMES_MAX && value);
                *value++ = '\0';
                variables[n] = (EnvVariable){ environment[n], value };

                assert(env_name_check(environment[n], strlen(environment[n]), NULL) == 0);
                assert(str_equal(value, expected_value(input, environment[n])));
                assert(n == 0 || strcmp(environment[n - 1], environment[n]) < 0);
        }

        *ret_layer = (EnvLayer){ variables, n };
}

/* What is missing must be. */
static void check_complete(const Input *input, const EnvLayer *layer) {
        for (size_t i = 0; i < input->n_variables; i++) {
                bool found = false;

                for (size_t j = 0; j < layer->n_variables; j++)
                        found |= str_equal(layer->variables[j].name, input->variables[i].name);
                assert(found == (expected_value(input, input->variables[i].name) != NULL));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = new0(char, size + 1);
        _cleanup_free_ char **environment = NULL, **again = NULL;
        char *none[] = { NULL };
        Input input = {};
        EnvLayer merged;

        if (size > 0)
                memcpy(text, data, size);

        assert((env_value_check(text, size, NULL) == 0) == (strlen(text) == size));
        if (env_name_check(text, size, NULL) == 0)
                assert(size > 0 && size <= 255 && strcspn(text, "=\n\t\x7f") == size);

        input_read(&input, text);
        if (environment_merge(input.layers, input.n_layers, input.unset, input.n_unset, &environment, NULL) < 0) {
                assert(size > ARGUMENT_LEN_MAX);
                return 0;
        }

        assert(arguments_check_size(none, environment, NULL) == 0);
        check_variables(&input, environment, &merged);
        check_complete(&input, &merged);

        assert(environment_merge(&merged, 1, NULL, 0, &again, NULL) == 0);
        for (size_t i = 0; i < merged.n_variables; i++)
                assert(again[i] && str_has_prefix(again[i], merged.variables[i].name) &&
                       str_has_suffix(again[i], merged.variables[i].value));
        assert(!again[merged.n_variables]);
        return 0;
}
