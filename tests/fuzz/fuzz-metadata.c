/* SPDX-License-Identifier: Apache-2.0 */

/* Input: header fields, each a name and a value, each of them ended by a newline. */

#include "rpc/core/metadata.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "rpc/core/base64.h"

#define BYTES_MAX 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts the bytes up to the next newline off @rest, into memory of their exact size. */
static char *take_line(const char **rest, size_t *len, size_t *ret_len) {
        const char *newline = *len > 0 ? memchr(*rest, '\n', *len) : NULL;
        size_t line_len = newline ? (size_t) (newline - *rest) : *len, taken = line_len + (newline ? 1 : 0);
        char *line = new0(char, line_len);

        if (line_len > 0)
                memcpy(line, *rest, line_len);
        *rest += taken;
        *len -= taken;
        *ret_len = line_len;
        return line;
}

static bool is_same(const MetadataEntry *a, const MetadataEntry *b) {
        return str_equal(a->name, b->name) && a->value_len == b->value_len &&
               memcmp(a->value, b->value, a->value_len) == 0;
}

static void check_is_sane(const MetadataEntry *entry) {
        assert(entry->name_len >= 1 && entry->name_len <= METADATA_NAME_MAX);
        assert(strlen(entry->name) == entry->name_len);
        assert(strspn(entry->name, "abcdefghijklmnopqrstuvwxyz0123456789_-.") == entry->name_len);
        assert(!str_has_prefix(entry->name, "grpc-"));
        assert(entry->value[entry->value_len] == '\0');

        if (str_has_suffix(entry->name, "-bin"))
                return;
        for (size_t i = 0; i < entry->value_len; i++)
                assert(entry->value[i] >= 0x20 && entry->value[i] <= 0x7e);
        assert(entry->value[0] != ' ' && (entry->value_len == 0 || entry->value[entry->value_len - 1] != ' '));
}

/* What came can be sent, and comes as the same. */
static void check_goes_and_comes_back(const MetadataEntry *entry) {
        _cleanup_(metadata_clear) Metadata sent = { .bytes_max = BYTES_MAX }, back = { .bytes_max = BYTES_MAX };
        _cleanup_free_ char *scratch = new0(char, metadata_wire_scratch(entry));
        const char *wire;
        size_t len;

        assert(metadata_add(&sent, entry->name, entry->value, entry->value_len) == 0);
        assert(sent.n_entries == 1 && is_same(&sent.entries[0], entry));

        wire = metadata_wire_value(entry, scratch, &len);
        assert(sent.bytes == entry->name_len + len + METADATA_ENTRY_OVERHEAD);
        assert(metadata_add_wire(&back, entry->name, entry->name_len, wire, len) == 0);
        assert(back.n_entries == 1 && is_same(&back.entries[0], entry));
}

static void check_all(const Metadata *metadata) {
        size_t bytes = 0;

        for (size_t i = 0; i < metadata->n_entries; i++) {
                const MetadataEntry *entry = &metadata->entries[i], *found = metadata_find(metadata, entry->name);

                check_is_sane(entry);
                check_goes_and_comes_back(entry);
                assert(found && found <= entry && str_equal(found->name, entry->name));

                bytes += entry->name_len + METADATA_ENTRY_OVERHEAD;
                bytes += str_has_suffix(entry->name, "-bin") ? base64_encoded_len(entry->value_len) : entry->value_len;
        }

        assert(bytes == metadata->bytes && bytes <= metadata->bytes_max);
}

/* A text that can be read differs from what its bytes are written as in its padding and in its last character only. */
static void check_base64(const char *text, size_t len) {
        _cleanup_free_ char *bytes = new0(char, base64_decoded_len(text, len)), *again = NULL;
        size_t bytes_len = base64_decoded_len(text, len), again_len = base64_encoded_len(bytes_len);

        if (base64_decode(text, len, bytes) < 0)
                return;

        again = new0(char, again_len);
        base64_encode(bytes, bytes_len, again);
        assert(len == again_len || (len % 4 == 0 && len > again_len && len - again_len <= 2));
        if (again_len > 0)
                assert(memcmp(text, again, again_len - 1) == 0);
        for (size_t i = again_len; i < len; i++)
                assert(text[i] == '=');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(metadata_clear) Metadata metadata = { .bytes_max = BYTES_MAX };
        const char *rest = (const char *) data;

        while (size > 0) {
                size_t n = metadata.n_entries, bytes = metadata.bytes, name_len, value_len;
                _cleanup_free_ char *name = take_line(&rest, &size, &name_len);
                _cleanup_free_ char *value = take_line(&rest, &size, &value_len);
                int r = metadata_add_wire(&metadata, name, name_len, value, value_len);

                assert(r == 0 || r == -EINVAL || r == -E2BIG);
                if (r < 0)
                        assert(metadata.n_entries == n && metadata.bytes == bytes);
                check_base64(value, value_len);
        }

        check_all(&metadata);
        return 0;
}
