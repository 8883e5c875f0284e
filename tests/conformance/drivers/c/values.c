/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: arguments and answers between JSON and C. What does not: lines and threads (driver.c). */

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"
#include "driver.h"
#include "pbtext/pbtext.h"

#define BASE64_MAX 65536 /* bytes that an answer shows */

static void set_problem(Command *command, const char *what, const char *name) {
        StringBuilder builder = {};

        string_builder_appendf(&builder, "%s: %s", name, what);
        free(command->problem);
        command->problem = string_builder_take(&builder);
}

/* ---- Arguments ---- */

const char *text_of(const json_t *object, const char *name) {
        return json_string_value(json_object_get(object, name));
}

uint64_t number_of(const json_t *object, const char *name) {
        return (uint64_t) json_integer_value(json_object_get(object, name));
}

bool arg_has(const Command *command, const char *name) {
        return json_object_get(command->args, name) != NULL;
}

const char *arg_text(const Command *command, const char *name) {
        return text_of(command->args, name);
}

bool arg_flag(const Command *command, const char *name) {
        return json_is_true(json_object_get(command->args, name));
}

uint64_t arg_number(const Command *command, const char *name) {
        return number_of(command->args, name);
}

uint64_t duration_of(Command *command, const json_t *object, const char *name) {
        const char *text = text_of(object, name);
        unsigned long long seconds, nanos = 0;
        char unit;
        int n;

        if (!text)
                return 0;

        n = sscanf(text, "%llu.%9llu%c", &seconds, &nanos, &unit); /* the fraction has 3, 6 or 9 digits */
        if (n < 3 && (sscanf(text, "%llu%c", &seconds, &unit) < 2 || unit != 's'))
                set_problem(command, "is no duration", name);
        for (size_t digits = strcspn(text + strcspn(text, "."), "s"); n == 3 && digits < 10; digits++)
                nanos *= 10;
        return seconds * UINT64_C(1000000000) + nanos;
}

const char *const *texts_of(Command *command, const json_t *object, const char *name) {
        const json_t *list = json_object_get(object, name), *value;
        const char **texts;
        size_t i;

        if (!list)
                return NULL;

        texts = command_keep(command, new0(const char *, json_array_size(list) + 1));
        json_array_foreach(list, i, value) texts[i] = json_string_value(value);
        return texts;
}

const char *const *pairs_of(Command *command, const json_t *object, const char *name) {
        json_t *map = json_object_get(object, name), *value;
        const char **pairs;
        const char *key;
        size_t n = 0;

        if (!map)
                return NULL;

        pairs = command_keep(command, new0(const char *, json_object_size(map) + 1));
        json_object_foreach(map, key, value) {
                StringBuilder builder = {};

                string_builder_appendf(&builder, "%s=%s", key, json_string_value(value));
                pairs[n++] = command_keep(command, string_builder_take(&builder));
        }
        return pairs;
}

static Bytes decode(Command *command, const char *text) {
        size_t len = strlen(text);
        Bytes bytes = { .data = command_keep(command, new0(char, len + 1)), .len = len / 4 * 3 };

        if (len % 4 != 0 || EVP_DecodeBlock(bytes.data, (const unsigned char *) text, (int) len) < 0)
                set_problem(command, "is no base64", "bytes");
        else if (len > 0)
                bytes.len -= (size_t) (text[len - 1] == '=') + (size_t) (text[len - 2] == '=');
        return bytes;
}

Bytes bytes_of(Command *command, const json_t *object, const char *name) {
        const json_t *value = json_object_get(object, name);
        size_t times = (size_t) number_of(value, "times");
        Bytes one, all = {};

        if (!value)
                return all;
        if (json_is_string(value))
                return decode(command, json_string_value(value));

        one = decode(command, text_of(value, "repeat"));
        all = (Bytes){ .data = command_keep(command, new0(char, one.len *times + 1)), .len = one.len * times };
        for (size_t i = 0; i < times; i++)
                memcpy((char *) all.data + i * one.len, one.data, one.len);
        return all;
}

Bytes encode_value(Command *command, const json_t *value, const ProtobufCMessageDescriptor *type) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *text = json_dumps(value, 0);
        Bytes bytes = {};

        if (!text || message_from_json(type, text, strlen(text), &message, &err) < 0) {
                set_problem(command, error_message(&err), type->short_name);
                return bytes;
        }

        message_encode(message, &bytes.data, &bytes.len);
        (void) command_keep(command, bytes.data);
        return bytes;
}

/* ---- Answers ---- */

json_t *decode_value(const ProtobufCMessageDescriptor *type, const void *encoded, size_t len) {
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        _cleanup_free_ char *text = NULL;

        if (message_decode(type, encoded, len, &message, NULL) < 0)
                return json_null();

        text = message_to_json(message, false);
        return json_loads(text, 0, NULL);
}

json_t *message_to_value(const char *type, const void *encoded, size_t len) {
        return decode_value(hutch_message_descriptor(type), encoded, len);
}

static json_t *bytes_to_value(const void *data, size_t len) {
        json_t *value = json_object();
        unsigned char digest[EVP_MAX_MD_SIZE];
        char text[2 * EVP_MAX_MD_SIZE + 1];
        unsigned n = 0;

        (void) EVP_Digest(len > 0 ? data : "", len, digest, &n, EVP_sha256(), NULL);
        for (unsigned i = 0; i < n; i++)
                snprintf(text + 2 * i, 3, "%02x", digest[i]);
        json_object_set_new(value, "len", json_integer((json_int_t) len));
        json_object_set_new(value, "sha256", json_string(text));
        if (len <= BASE64_MAX) {
                _cleanup_free_ char *base64 = new0(char, len / 3 * 4 + 5);

                (void) EVP_EncodeBlock((unsigned char *) base64, len > 0 ? data : (const void *) "", (int) len);
                json_object_set_new(value, "base64", json_string(base64));
        }
        return value;
}

void ok_bytes(json_t *ok, const char *name, const void *data, size_t len) {
        json_object_set_new(ok, name, bytes_to_value(data, len));
}

void collected_clear(Collected *collected) {
        free(collected->data);
        json_decref(collected->gaps);
        *collected = (Collected){};
}

void collected_add(Collected *collected, uint64_t offset, const void *data, size_t len) {
        if (collected->len == 0) {
                collected->start = offset;
        } else if (offset != collected->next) {
                if (!collected->gaps)
                        collected->gaps = json_array();
                json_array_append_new(collected->gaps, json_pack("{s:I,s:I}", "offset", (json_int_t) collected->next,
                                                                 "length", (json_int_t) (offset - collected->next)));
        }
        collected->next = offset + len;
        if (collected->len + len > collected->size) {
                collected->size = 2 * (collected->len + len);
                collected->data = xreallocarray(collected->data, collected->size, 1);
        }
        memcpy(collected->data + collected->len, data, len);
        collected->len += len;
}

void ok_output(json_t *ok, const char *name, const Collected *collected) {
        json_t *value = bytes_to_value(collected->data, collected->len);

        json_object_set_new(value, "start", json_integer((json_int_t) collected->start));
        json_object_set_new(value, "gaps", collected->gaps ? json_deep_copy(collected->gaps) : json_array());
        json_object_set_new(ok, name, value);
}
