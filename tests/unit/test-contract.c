/* SPDX-License-Identifier: Apache-2.0 */

#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* The generated code means what the contract says, also where protobuf-c needs help, and writes the bytes that others
 * write: all hex here was made by Python's protobuf. */

/* A sandbox whose `memory_bytes` and `read_only_root` are set, to 0 and false, and the same with both unset. */
static const char zeros_set[] = "0a0773622d30303031122c0a04686f7374220b0a047465616d120372656422090a0474696572120131"
                                "6207080010f4035800720308d80418023a080880e2cfaa0610055807";
static const char zeros_unset[] = "0a0773622d3030303112280a04686f7374220b0a047465616d120372656422090a0474696572120131"
                                  "620310f403720308d80418023a080880e2cfaa0610055807";

typedef struct Bytes {
        uint8_t data[256];
        size_t len;
} Bytes;

static void message_freep(void *pointer) {
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **) pointer, NULL);
}

static Bytes from_hex(const char *hex) {
        Bytes bytes = {};

        for (; *hex; hex += 2) {
                const char digits[] = { hex[0], hex[1], '\0' };

                assert_true(bytes.len < sizeof(bytes.data));
                bytes.data[bytes.len++] = (uint8_t) strtoul(digits, NULL, 16);
        }
        return bytes;
}

static void *unpack(const ProtobufCMessageDescriptor *descriptor, const char *hex) {
        Bytes bytes = from_hex(hex);

        return protobuf_c_message_unpack(descriptor, NULL, bytes.len, bytes.data);
}

static void assert_packs_to(const void *message, const char *hex) {
        Bytes expected = from_hex(hex);
        uint8_t packed[sizeof(expected.data)];

        assert_int_equal(protobuf_c_message_get_packed_size(message), expected.len);
        assert_int_equal(protobuf_c_message_pack(message, packed), expected.len);
        assert_memory_equal(packed, expected.data, expected.len);
}

static void a_message_made_in_c_has_the_bytes_that_python_writes(void **state) {
        Hutch__V1__SandboxSpec__LabelsEntry team = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry tier = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry *labels[] = { &team, &tier };
        Google__Protobuf__Timestamp create_time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
        Google__Protobuf__Duration idle_ttl = GOOGLE__PROTOBUF__DURATION__INIT;
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        Hutch__V1__SandboxSpec spec = HUTCH__V1__SANDBOX_SPEC__INIT;
        Hutch__V1__Sandbox sandbox = HUTCH__V1__SANDBOX__INIT;
        char text[][8] = { "sb-0001", "host", "team", "red", "tier", "1" };

        team.key = text[2];
        team.value = text[3];
        tier.key = text[4];
        tier.value = text[5];
        idle_ttl.seconds = 600;
        limits.opt_cpu_millis_case = HUTCH__V1__RESOURCE_LIMITS__OPT_CPU_MILLIS_CPU_MILLIS;
        limits.cpu_millis = 500;
        spec.image = text[1];
        spec.labels = labels;
        spec.n_labels = 2;
        spec.idle_ttl = &idle_ttl;
        spec.limits = &limits;
        create_time.seconds = 1700000000;
        create_time.nanos = 5;
        sandbox.id = text[0];
        sandbox.spec = &spec;
        sandbox.state = HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_READY;
        sandbox.create_time = &create_time;
        sandbox.sequence = 7;
        assert_packs_to(&sandbox, zeros_unset);

        limits.opt_memory_bytes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_MEMORY_BYTES_MEMORY_BYTES;
        limits.opt_read_only_root_case = HUTCH__V1__RESOURCE_LIMITS__OPT_READ_ONLY_ROOT_READ_ONLY_ROOT;
        assert_packs_to(&sandbox, zeros_set);
}

static void a_message_of_python_is_read_in_c(void **state) {
        _cleanup_(message_freep) Hutch__V1__Sandbox *sandbox = unpack(&hutch__v1__sandbox__descriptor, zeros_set);

        assert_non_null(sandbox);
        assert_string_equal(sandbox->id, "sb-0001");
        assert_int_equal(sandbox->state, HUTCH__V1__SANDBOX_STATE__SANDBOX_STATE_READY);
        assert_int_equal(sandbox->create_time->seconds, 1700000000);
        assert_int_equal(sandbox->create_time->nanos, 5);
        assert_int_equal(sandbox->sequence, 7);
        assert_string_equal(sandbox->owner, "");
        assert_null(sandbox->usage);

        assert_string_equal(sandbox->spec->image, "host");
        assert_int_equal(sandbox->spec->idle_ttl->seconds, 600);
        assert_int_equal(sandbox->spec->n_env, 0);
        assert_int_equal(sandbox->spec->n_labels, 2);
        assert_string_equal(sandbox->spec->labels[0]->key, "team");
        assert_string_equal(sandbox->spec->labels[0]->value, "red");
        assert_string_equal(sandbox->spec->labels[1]->key, "tier");
        assert_string_equal(sandbox->spec->labels[1]->value, "1");
        assert_packs_to(sandbox, zeros_set);
}

static void an_optional_zero_is_not_an_unset_field(void **state) {
        _cleanup_(message_freep) Hutch__V1__Sandbox *set = unpack(&hutch__v1__sandbox__descriptor, zeros_set);
        _cleanup_(message_freep) Hutch__V1__Sandbox *unset = unpack(&hutch__v1__sandbox__descriptor, zeros_unset);
        const Hutch__V1__ResourceLimits *limits;

        assert_non_null(set);
        limits = set->spec->limits;
        assert_int_equal(limits->opt_memory_bytes_case, HUTCH__V1__RESOURCE_LIMITS__OPT_MEMORY_BYTES_MEMORY_BYTES);
        assert_int_equal(limits->memory_bytes, 0);
        assert_int_equal(limits->opt_read_only_root_case,
                         HUTCH__V1__RESOURCE_LIMITS__OPT_READ_ONLY_ROOT_READ_ONLY_ROOT);
        assert_false(limits->read_only_root);
        assert_int_equal(limits->cpu_millis, 500);

        assert_non_null(unset);
        limits = unset->spec->limits;
        assert_int_equal(limits->opt_memory_bytes_case, HUTCH__V1__RESOURCE_LIMITS__OPT_MEMORY_BYTES__NOT_SET);
        assert_int_equal(limits->opt_read_only_root_case, HUTCH__V1__RESOURCE_LIMITS__OPT_READ_ONLY_ROOT__NOT_SET);
        assert_int_equal(limits->cpu_millis, 500);
        assert_packs_to(unset, zeros_unset);
}

static void an_optional_number_may_be_negative(void **state) {
        static const char minus_one[] = "08ffffffffffffffffff01";
        _cleanup_(message_freep) Hutch__V1__ExecResult *result = unpack(&hutch__v1__exec_result__descriptor, minus_one);

        assert_non_null(result);
        assert_int_equal(result->opt_exit_code_case, HUTCH__V1__EXEC_RESULT__OPT_EXIT_CODE_EXIT_CODE);
        assert_int_equal(result->exit_code, -1);
        assert_packs_to(result, minus_one);
}

/* Python writes an empty value of a map as a field of no bytes, C leaves it out; both read both. */
static void a_map_may_hold_an_empty_value(void **state) {
        static const char *const forms[] = { "22080a04746965721200", "22060a0474696572" };

        for (size_t i = 0; i < 2; i++) {
                _cleanup_(message_freep) Hutch__V1__SandboxSpec *spec =
                        unpack(&hutch__v1__sandbox_spec__descriptor, forms[i]);

                assert_non_null(spec);
                assert_int_equal(spec->n_labels, 1);
                assert_string_equal(spec->labels[0]->key, "tier");
                assert_string_equal(spec->labels[0]->value, "");
                assert_packs_to(spec, forms[1]);
        }
}

static void a_oneof_tells_which_member_it_holds(void **state) {
        static const char no_bytes[] = "1a00", resize[] = "2a0408181050", both[] = "1a01782a0408181050";
        const ProtobufCMessageDescriptor *descriptor = &hutch__v1__attach_exec_request__descriptor;
        _cleanup_(message_freep) Hutch__V1__AttachExecRequest *none = unpack(descriptor, "");
        _cleanup_(message_freep) Hutch__V1__AttachExecRequest *input = unpack(descriptor, no_bytes);
        _cleanup_(message_freep) Hutch__V1__AttachExecRequest *last = unpack(descriptor, both);

        assert_non_null(none);
        assert_int_equal(none->item_case, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM__NOT_SET);

        assert_non_null(input);
        assert_int_equal(input->item_case, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_STDIN);
        assert_int_equal(input->stdin.len, 0);
        assert_packs_to(input, no_bytes);

        assert_non_null(last);
        assert_int_equal(last->item_case, HUTCH__V1__ATTACH_EXEC_REQUEST__ITEM_RESIZE);
        assert_int_equal(last->resize->rows, 24);
        assert_int_equal(last->resize->columns, 80);
        assert_packs_to(last, resize);
}

/* Field 1000: what a newer peer may send. */
static void unknown_fields_survive(void **state) {
        static const char newer[] = "0a0773622d30303031c23e056c61746572";
        _cleanup_(message_freep) Hutch__V1__GetSandboxRequest *request =
                unpack(&hutch__v1__get_sandbox_request__descriptor, newer);

        assert_non_null(request);
        assert_string_equal(request->sandbox_id, "sb-0001");
        assert_int_equal(request->base.n_unknown_fields, 1);
        assert_int_equal(request->base.unknown_fields[0].tag, 1000);
        assert_packs_to(request, newer);
}

/* A message cut short is refused, or ends between two fields; it never makes the decoder read on. */
static void what_is_cut_short_is_never_read_beyond(void **state) {
        Bytes bytes = from_hex(zeros_set);

        for (size_t len = 0; len < bytes.len; len++) {
                _cleanup_free_ uint8_t *copy = new0(uint8_t, len);
                _cleanup_(message_freep) Hutch__V1__Sandbox *sandbox = NULL;

                memcpy(copy, bytes.data, len);
                sandbox = hutch__v1__sandbox__unpack(NULL, len, copy);
                if (sandbox)
                        assert_true(hutch__v1__sandbox__get_packed_size(sandbox) <= len);
        }
        assert_null(unpack(&hutch__v1__sandbox__descriptor, "0a0773622d3030"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_message_made_in_c_has_the_bytes_that_python_writes),
                cmocka_unit_test(a_message_of_python_is_read_in_c),
                cmocka_unit_test(an_optional_zero_is_not_an_unset_field),
                cmocka_unit_test(an_optional_number_may_be_negative),
                cmocka_unit_test(a_map_may_hold_an_empty_value),
                cmocka_unit_test(a_oneof_tells_which_member_it_holds),
                cmocka_unit_test(unknown_fields_survive),
                cmocka_unit_test(what_is_cut_short_is_never_read_beyond),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
