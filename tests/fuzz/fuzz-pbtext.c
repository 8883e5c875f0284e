/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a text, read as JSON and as YAML. */

#include "pbtext/pbtext.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "contract/hutch/v1/sandbox.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int (*Reader)(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
                      ProtobufCMessage **ret_message, HutchError *err);

static void check_refusal(int r, const HutchError *err) {
        assert(r == -EINVAL && err->error == EINVAL);
        assert(utf8_valid(error_message(err), strlen(error_message(err))));
}

/* The same message comes back from @text. */
static void check_reads(Reader reader, const char *text, const void *bytes, size_t len) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_free_ void *read_bytes = NULL;
        size_t read_len;

        assert(reader(&hutch__v1__sandbox_spec__descriptor, text, strlen(text), &message, NULL) == 0);
        message_encode(message, &read_bytes, &read_len);
        assert(read_len == len && memcmp(read_bytes, bytes, len) == 0);
}

static void check_message(const ProtobufCMessage *message) {
        _cleanup_free_ char *json = message_to_json(message, false), *yaml = message_to_yaml(message);
        _cleanup_(message_freep) ProtobufCMessage *decoded = NULL;
        _cleanup_free_ void *bytes = NULL;
        size_t len;

        message_encode(message, &bytes, &len);
        assert(message_decode(message->descriptor, bytes, len, &decoded, NULL) == 0);
        check_reads(message_from_json, json, bytes, len);
        check_reads(message_from_yaml, yaml, bytes, len);
}

static void check_reader(Reader reader, const char *text, size_t len) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};
        int r = reader(&hutch__v1__sandbox_spec__descriptor, text, len, &message, &err);

        if (r < 0)
                check_refusal(r, &err);
        else
                check_message(message);

        /* What is JSON for us is JSON for others. */
        if (r == 0 && reader == message_from_json) {
                json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);

                assert(json);
                json_decref(json);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        check_reader(message_from_json, (const char *) data, size);
        check_reader(message_from_yaml, (const char *) data, size);
        return 0;
}
