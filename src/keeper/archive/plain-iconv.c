/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: iconv(), in the place of libc's, for libarchive: bytes stay what they are. What does not: any
 * character set.
 *
 * Names of files are bytes, and so they are unpacked. libc's own iconv() would look for its modules in the sandbox, and
 * load what it finds there as code into the worker. */

#include <errno.h>
#include <iconv.h>
#include <stddef.h>
#include <string.h>

iconv_t iconv_open(const char *to, const char *from) {
        (void) from;
        return (iconv_t) to;
}

size_t iconv(iconv_t conversion, char **in, size_t *in_len, char **out, size_t *out_len) {
        (void) conversion;
        if (!in || !*in)
                return 0;
        size_t n = *in_len < *out_len ? *in_len : *out_len;
        memcpy(*out, *in, n);
        *in += n;
        *in_len -= n;
        *out += n;
        *out_len -= n;
        if (*in_len == 0)
                return 0;
        errno = E2BIG;
        return (size_t) -1;
}

int iconv_close(iconv_t conversion) {
        (void) conversion;
        return 0;
}
