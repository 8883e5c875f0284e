/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a byte that says of which type, and an encoded message. */

#include "api/text-check.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/message.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"

#define UNPACKED_MAX ((size_t) 1 << 22)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
        &hutch__v1__create_sandbox_request__descriptor, &hutch__v1__attach_exec_request__descriptor,
        &hutch__v1__update_sandbox_request__descriptor, &hutch__v1__watch_events_request__descriptor,
        &hutch__v1__run_command_request__descriptor,
};

static void check_text(const char *text) {
        assert(utf8_valid(text, strlen(text)));
}

/* Every text that the decoder has found is one that was checked. */
static void check_texts(const ProtobufCMessage *message) {
        const ProtobufCMessageDescriptor *type = message->descriptor;

        for (unsigned i = 0; i < type->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &type->fields[i];
                const void *member = (const char *) message + field->offset;
                const void *quantifier = (const char *) message + field->quantifier_offset;
                bool is_text = field->type == PROTOBUF_C_TYPE_STRING;

                if (!is_text && field->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && *(const uint32_t *) quantifier != field->id)
                        continue;

                if (field->label == PROTOBUF_C_LABEL_REPEATED) {
                        for (size_t j = 0; j < *(const size_t *) quantifier; j++)
                                if (is_text)
                                        check_text((*(char *const *const *) member)[j]);
                                else
                                        check_texts((*(ProtobufCMessage *const *const *) member)[j]);
                } else if (is_text) {
                        check_text(*(char *const *) member);
                } else if (*(ProtobufCMessage *const *) member) {
                        check_texts(*(ProtobufCMessage *const *) member);
                }
        }
}

/* What was packed of a message in its one form is the same again after decoding. */
static void check_form(const ProtobufCMessage *message) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *again = NULL;
        _cleanup_free_ uint8_t *bytes = NULL, *bytes_again = NULL;
        size_t len, len_again;

        assert(protobuf_pack(message, &bytes, &len) == 0);
        again = message_unpack(message->descriptor, bytes, len, &violations);
        assert(again || violations.refusal.error != 0);
        if (!again)
                return;
        assert(protobuf_pack(again, &bytes_again, &len_again) == 0);
        assert(len == len_again && memcmp(bytes, bytes_again, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(violations_clear) Violations violations = {}, more = {};
        _cleanup_(protobuf_freep) ProtobufCMessage *unpacked = NULL, *message = NULL;
        const ProtobufCMessageDescriptor *type;
        int r;

        if (size == 0)
                return 0;
        type = types[data[0] % (sizeof(types) / sizeof(types[0]))];

        r = text_check(type, data + 1, size - 1, &violations);
        assert(r == 0 || r == -EBADMSG);
        assert(violations.path_len == 0 || r < 0);
        for (size_t i = 0; i < violations_kept(&violations); i++)
                check_text(violations.list[i].field);
        if (r == 0 && violations.n == 0 && protobuf_unpack(type, data + 1, size - 1, UNPACKED_MAX, &unpacked) == 0)
                check_texts(unpacked);

        message = message_unpack(type, data + 1, size - 1, &more);
        assert(message || violations_result(&more, NULL) < 0);
        assert(violations.n == 0 || violations_result(&more, NULL) < 0);
        if (message)
                check_form(message);
        return 0;
}
