/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/core/metadata.h"

#include <errno.h>
#include <string.h>

#include "fail-alloc.h"
#include "test.h"

#define BYTES_MAX 8192

static int add(Metadata *metadata, const char *name, const char *value) {
        return metadata_add(metadata, name, value, strlen(value));
}

static int add_wire(Metadata *metadata, const char *name, const char *value) {
        return metadata_add_wire(metadata, name, strlen(name), value, strlen(value));
}

static void assert_entry(const Metadata *metadata, size_t i, const char *name, const char *value, size_t len) {
        const MetadataEntry *entry = &metadata->entries[i];

        assert_true(i < metadata->n_entries);
        assert_string_equal(entry->name, name);
        assert_int_equal(entry->name_len, strlen(name));
        assert_int_equal(entry->value_len, len);
        assert_memory_equal(entry->value, value, len);
        assert_int_equal(entry->value[len], '\0');
}

static void assert_wire(const Metadata *metadata, size_t i, const char *expected) {
        const MetadataEntry *entry = &metadata->entries[i];
        char scratch[1024];
        const char *value;
        size_t len;

        assert_true(metadata_wire_scratch(entry) <= sizeof(scratch));
        value = metadata_wire_value(entry, scratch, &len);
        assert_int_equal(len, strlen(expected));
        assert_memory_equal(value, expected, len);
        assert_true(value == scratch ? metadata_wire_scratch(entry) == len : metadata_wire_scratch(entry) == 0);
}

static void entries_keep_their_order_and_repeat(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(add(&metadata, "b", "1"), 0);
        assert_int_equal(add(&metadata, "a", "2"), 0);
        assert_int_equal(add(&metadata, "b", "3"), 0);
        assert_int_equal(metadata.n_entries, 3);
        assert_entry(&metadata, 0, "b", "1", 1);
        assert_entry(&metadata, 1, "a", "2", 1);
        assert_entry(&metadata, 2, "b", "3", 1);
}

static void find_gives_the_first_of_exactly_that_name(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_null(metadata_find(&metadata, "b"));
        assert_int_equal(add(&metadata, "bb", "0"), 0);
        assert_int_equal(add(&metadata, "b", "1"), 0);
        assert_int_equal(add(&metadata, "b", "2"), 0);
        assert_string_equal(metadata_find(&metadata, "b")->value, "1");
        assert_null(metadata_find(&metadata, ""));
        assert_null(metadata_find(&metadata, "B"));
}

static void names_have_these_characters_and_no_others(void **state) {
        for (int c = 0; c < 256; c++) {
                _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
                const char name[] = { 'x', (char) c, 'x', '\0' };
                bool good = c > 0 && strchr("abcdefghijklmnopqrstuvwxyz0123456789_-.", c);

                if (c > 0)
                        assert_int_equal(add(&metadata, name, "v"), good ? 0 : -EINVAL);
                assert_int_equal(metadata.n_entries, good ? 1 : 0);

                /* What came over the wire is passed over instead. */
                metadata_clear(&metadata);
                assert_int_equal(metadata_add_wire(&metadata, name, 3, "v", 1), 0);
                assert_int_equal(metadata.n_entries, good ? 1 : 0);
        }
}

static void names_are_not_empty_and_not_too_long(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
        char name[METADATA_NAME_MAX + 2] = {};

        assert_int_equal(add(&metadata, "", "v"), -EINVAL);
        assert_int_equal(add_wire(&metadata, "", "v"), 0);
        assert_int_equal(metadata_add_wire(&metadata, NULL, 0, NULL, 0), 0);
        assert_int_equal(metadata.n_entries, 0);

        memset(name, 'n', METADATA_NAME_MAX);
        assert_int_equal(add(&metadata, name, "v"), 0);
        assert_int_equal(add_wire(&metadata, name, "v"), 0);
        assert_int_equal(metadata.n_entries, 2);

        name[METADATA_NAME_MAX] = 'n';
        assert_int_equal(add(&metadata, name, "v"), -EINVAL);
        assert_int_equal(add_wire(&metadata, name, "v"), -E2BIG);
        assert_int_equal(metadata.n_entries, 2);
}

static void reserved_names_are_no_metadata(void **state) {
        static const char *const reserved[] = {
                ":path",      ":status",    ":",          "grpc-",     "grpc-timeout",     "grpc-status",
                "grpc-x-bin", "connection", "keep-alive", "host",      "content-length",   "content-type",
                "te",         "upgrade",    "user-agent", "grpc-new1", "proxy-connection", "transfer-encoding",
        };
        static const char *const free[] = {
                "grpc",           "grpcx",         "x-grpc-status", "t",           "tea", "hosts",
                "user-agent-bin", "content-type2", "authorization", "traceparent", "-",   "-bin"
        };
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
                assert_int_equal(add(&metadata, reserved[i], "v"), -EINVAL);
                assert_int_equal(add_wire(&metadata, reserved[i], "!!!"), 0);
                assert_int_equal(metadata.n_entries, 0);
        }
        for (size_t i = 0; i < sizeof(free) / sizeof(free[0]); i++) {
                assert_int_equal(add(&metadata, free[i], "v"), 0);
                assert_int_equal(metadata.n_entries, i + 1);
        }
}

static void text_is_printable(void **state) {
        for (int c = 0; c < 256; c++) {
                _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
                const char value[] = { 'x', (char) c, 'x' };
                bool good = c >= 0x20 && c <= 0x7e;

                assert_int_equal(metadata_add(&metadata, "n", value, 3), good ? 0 : -EINVAL);

                /* gRPC forbids to fail for what HTTP allows. */
                metadata_clear(&metadata);
                assert_int_equal(metadata_add_wire(&metadata, "n", 1, value, 3), 0);
                assert_int_equal(metadata.n_entries, good ? 1 : 0);
        }
}

static void spaces_around_text_are_refused_in_and_stripped_out(void **state) {
        static const char *const values[] = { " v", "v ", "\tv", "v\t", "  v  ", " \t v\t \t" };
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
                assert_int_equal(add(&metadata, "n", values[i]), -EINVAL);
                assert_int_equal(add_wire(&metadata, "n", values[i]), 0);
                assert_entry(&metadata, i, "n", "v", 1);
        }

        metadata_clear(&metadata);
        assert_int_equal(add(&metadata, "n", " "), -EINVAL);
        assert_int_equal(add(&metadata, "n", "a  b"), 0);
        assert_int_equal(add_wire(&metadata, "n", " \t "), 0);
        assert_entry(&metadata, 1, "n", "", 0);
}

static void values_may_be_empty(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(metadata_add(&metadata, "n", NULL, 0), 0);
        assert_int_equal(metadata_add(&metadata, "n-bin", NULL, 0), 0);
        assert_int_equal(metadata_add_wire(&metadata, "n", 1, NULL, 0), 0);
        assert_int_equal(metadata_add_wire(&metadata, "n-bin", 5, NULL, 0), 0);
        assert_int_equal(metadata.n_entries, 4);
        for (size_t i = 0; i < 4; i++) {
                assert_int_equal(metadata.entries[i].value_len, 0);
                assert_wire(&metadata, i, "");
        }
}

static void binary_values_are_any_bytes_and_travel_in_base64(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(metadata_add(&metadata, "x-bin", " \0\xff,", 4), 0);
        assert_entry(&metadata, 0, "x-bin", " \0\xff,", 4);
        assert_wire(&metadata, 0, "IAD/LA");

        assert_int_equal(add_wire(&metadata, "x-bin", "IAD/LA"), 0);
        assert_int_equal(add_wire(&metadata, "x-bin", "IAD/LA=="), 0);
        assert_entry(&metadata, 1, "x-bin", " \0\xff,", 4);
        assert_entry(&metadata, 2, "x-bin", " \0\xff,", 4);
}

static void text_travels_as_it_is(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(add(&metadata, "binary", "a, b%20"), 0);
        assert_wire(&metadata, 0, "a, b%20");
        assert_int_equal(add_wire(&metadata, "x-bin2", "YQ,YQ"), 0);
        assert_entry(&metadata, 1, "x-bin2", "YQ,YQ", 5);
}

static void joined_binary_values_are_split(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(add_wire(&metadata, "x-bin", "YQ==,YmI, YWJj ,,ZA"), 0);
        assert_int_equal(metadata.n_entries, 5);
        assert_entry(&metadata, 0, "x-bin", "a", 1);
        assert_entry(&metadata, 1, "x-bin", "bb", 2);
        assert_entry(&metadata, 2, "x-bin", "abc", 3);
        assert_entry(&metadata, 3, "x-bin", "", 0);
        assert_entry(&metadata, 4, "x-bin", "d", 1);
}

static void one_bad_binary_value_refuses_the_field(void **state) {
        static const char *const bad[] = { "!", "YQ,!", "YQ,YQ,Y", "YQ=", "YQ==YQ==", "Y Q", "YQ;YQ", "-_-_" };
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
        size_t bytes;

        assert_int_equal(add(&metadata, "kept", "v"), 0);
        bytes = metadata.bytes;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                assert_int_equal(add_wire(&metadata, "x-bin", bad[i]), -EINVAL);
                assert_int_equal(metadata.n_entries, 1);
                assert_int_equal(metadata.bytes, bytes);
        }
        assert_entry(&metadata, 0, "kept", "v", 1);
}

static void bytes_are_counted_as_http2_counts_them(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };

        assert_int_equal(add(&metadata, "name", "value"), 0);
        assert_int_equal(metadata.bytes, 4 + 5 + 32);
        assert_int_equal(metadata_add(&metadata, "x-bin", "abcd", 4), 0);
        assert_int_equal(metadata.bytes, 4 + 5 + 32 + 5 + 6 + 32);
        metadata_clear(&metadata);
        assert_int_equal(metadata.bytes, 0);
        assert_int_equal(metadata.bytes_max, BYTES_MAX);
}

static void the_limit_holds_to_the_byte(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 2 * (1 + 3 + 32) };

        assert_int_equal(add(&metadata, "a", "123"), 0);
        assert_int_equal(add(&metadata, "b", "1234"), -E2BIG);
        assert_int_equal(add_wire(&metadata, "b", "1234"), -E2BIG);
        assert_int_equal(metadata.n_entries, 1);
        assert_int_equal(add(&metadata, "b", "123"), 0);
        assert_int_equal(add(&metadata, "c", ""), -E2BIG);
        assert_int_equal(metadata.bytes, metadata.bytes_max);

        metadata_clear(&metadata);
        assert_int_equal(add_wire(&metadata, "-bin", "YQ,YQ,YQ"), -E2BIG);
        assert_int_equal(metadata.n_entries, 0);
        assert_int_equal(metadata.bytes, 0);

        metadata.bytes_max = 0;
        assert_int_equal(add(&metadata, "a", ""), -E2BIG);
}

/* What a program got, it may send back. */
static void all_that_was_received_can_be_sent(void **state) {
        static const char *const fields[][2] = {
                { "a", " v " }, { "x-bin", "/w,AA==" }, { "a.b_c-9", "~" }, { "t", "\xc3\xa9" }, { "te", "gzip" },
                { "A", "v" },   { "x-bin", "" },        { ":path", "/" },   { "a", "in\tner" },
        };
        _cleanup_(metadata_clear) Metadata received = { .bytes_max = BYTES_MAX }, sent = { .bytes_max = BYTES_MAX };

        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                assert_int_equal(add_wire(&received, fields[i][0], fields[i][1]), 0);
        assert_int_equal(received.n_entries, 5);

        for (size_t i = 0; i < received.n_entries; i++) {
                const MetadataEntry *entry = &received.entries[i];

                assert_int_equal(metadata_add(&sent, entry->name, entry->value, entry->value_len), 0);
        }
        assert_int_equal(sent.bytes, received.bytes);
}

static void names_and_values_stay_where_they_are(void **state) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = 1 << 20 };
        const char *name, *value;

        assert_int_equal(add(&metadata, "first", "value"), 0);
        name = metadata.entries[0].name;
        value = metadata.entries[0].value;
        for (int i = 0; i < 1000; i++)
                assert_int_equal(add(&metadata, "more", "values"), 0);
        assert_ptr_equal(metadata.entries[0].name, name);
        assert_ptr_equal(metadata.entries[0].value, value);
        assert_entry(&metadata, 0, "first", "value", 5);
        assert_entry(&metadata, 1000, "more", "values", 6);
}

static void without_memory_nothing_is_added(void **state) {
        FAIL_ALLOC_LOOP {
                _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
                int r = 0;

                for (int i = 0; i < 10 && r == 0; i++) {
                        size_t n = metadata.n_entries, bytes = metadata.bytes;

                        r = add(&metadata, "name", "value");
                        if (r == 0) {
                                n = metadata.n_entries;
                                bytes = metadata.bytes;
                                r = add_wire(&metadata, "x-bin", "YQ,YQ,YQ");
                        }
                        if (r < 0) {
                                assert_int_equal(metadata.n_entries, n);
                                assert_int_equal(metadata.bytes, bytes);
                        }
                }
                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(entries_keep_their_order_and_repeat),
                cmocka_unit_test(find_gives_the_first_of_exactly_that_name),
                cmocka_unit_test(names_have_these_characters_and_no_others),
                cmocka_unit_test(names_are_not_empty_and_not_too_long),
                cmocka_unit_test(reserved_names_are_no_metadata),
                cmocka_unit_test(text_is_printable),
                cmocka_unit_test(spaces_around_text_are_refused_in_and_stripped_out),
                cmocka_unit_test(values_may_be_empty),
                cmocka_unit_test(binary_values_are_any_bytes_and_travel_in_base64),
                cmocka_unit_test(text_travels_as_it_is),
                cmocka_unit_test(joined_binary_values_are_split),
                cmocka_unit_test(one_bad_binary_value_refuses_the_field),
                cmocka_unit_test(bytes_are_counted_as_http2_counts_them),
                cmocka_unit_test(the_limit_holds_to_the_byte),
                cmocka_unit_test(all_that_was_received_can_be_sent),
                cmocka_unit_test(names_and_values_stay_where_they_are),
                cmocka_unit_test(without_memory_nothing_is_added),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
