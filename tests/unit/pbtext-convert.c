/* SPDX-License-Identifier: Apache-2.0 */

/* Converts a message from its standard input to its standard output: `pbtext-convert TYPE FROM TO`, each of the last
 * two one of binary, json and yaml. For tests that compare with other readers and writers. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "contract-types.h"
#include "pbtext/pbtext.h"

static void read_input(StringBuilder *input) {
        char block[4096];
        size_t n;

        while ((n = fread(block, 1, sizeof(block), stdin)) > 0)
                string_builder_append_bytes(input, block, n);
}

static int decode(const ProtobufCMessageDescriptor *type, const char *form, const StringBuilder *input,
                  ProtobufCMessage **ret_message, HutchError *err) {
        const char *text = input->text ? input->text : "";

        if (str_equal(form, "json"))
                return message_from_json(type, text, input->len, ret_message, err);
        if (str_equal(form, "yaml"))
                return message_from_yaml(type, text, input->len, ret_message, err);

        return message_decode(type, text, input->len, ret_message, err);
}

static void write_output(const ProtobufCMessage *message, const char *form) {
        _cleanup_free_ void *output = NULL;
        size_t len;

        if (str_equal(form, "binary"))
                message_encode(message, &output, &len);
        else {
                output = str_equal(form, "json") ? message_to_json(message, true) : message_to_yaml(message);
                len = strlen(output);
        }
        (void) fwrite(output, 1, len, stdout);
}

int main(int argc, char *argv[]) {
        _cleanup_(string_builder_clear) StringBuilder input = {};
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};
        const ProtobufCMessageDescriptor *type = argc == 4 ? contract_type_find(argv[1]) : NULL;

        if (!type) {
                (void) fprintf(stderr, "pbtext-convert: no type '%s'\n", argc > 1 ? argv[1] : "");
                return 2;
        }

        read_input(&input);
        if (decode(type, argv[2], &input, &message, &err) < 0) {
                (void) fprintf(stderr, "pbtext-convert: %s\n", error_message(&err));
                return 1;
        }
        write_output(message, argv[3]);
        return 0;
}
