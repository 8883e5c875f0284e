/* SPDX-License-Identifier: Apache-2.0 */

/* Input: a file of tokens, and at the same time a token. */

#include "local/token-file.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(token_file_clear) TokenFile file = {};
        _cleanup_(error_clear) HutchError err = {};
        char name[TOKEN_NAME_MAX + 1];
        int r = token_file_parse(&file, "tokens", (const char *) data, size, &err);

        assert(r == 0 || (r == -EINVAL && file.n == 0 && strstr(error_message(&err), "tokens")));
        for (size_t i = 0; i < file.n; i++) {
                assert(token_name_is_valid(file.tokens[i].name));
                assert(token_file_find(&file, file.tokens[i].name) == &file.tokens[i]);
        }
        if (token_read_name((const char *) data, size, name))
                assert(token_name_is_valid(name) && size == strlen(TOKEN_PREFIX) + strlen(name) + 1 + TOKEN_SECRET_LEN);
        return 0;
}
