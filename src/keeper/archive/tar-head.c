/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the layout of tar entries. What does not: which there are, and their bytes. Pure.
 *
 * By hand, though there is libarchive: its writer translates every name from the locale's characters, of which a static
 * program without a locale's files knows ASCII only. */

#include "keeper/archive/tar-head.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define ATTRIBUTE_PREFIX "SCHILY.xattr." /* what GNU tar, bsdtar and star write */
#define TYPE_EXTENDED 'x'
#define OCTAL_MAX_11 077777777777
#define OCTAL_MAX_7 07777777

typedef struct Ustar {
        char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6],
                version[2], uname[32], gname[32], major[8], minor[8], prefix[155], padding[12];
} Ustar;
_Static_assert(sizeof(Ustar) == TAR_BLOCK, "a head is one block");

static void add(TarHead *head, const void *bytes, size_t len) {
        if (len > head->size - head->len) {
                size_t size = head->len + len > 2 * head->size ? head->len + len : 2 * head->size;
                head->bytes = xreallocarray(head->bytes, size, 1);
                head->size = size;
        }
        if (len > 0)
                memcpy(head->bytes + head->len, bytes, len);
        head->len += len;
}

static void add_zeros(TarHead *head, size_t len) {
        static const uint8_t zeros[TAR_BLOCK];
        add(head, zeros, len);
}

/* Adds "LENGTH KEY=VALUE\n", where the length counts itself. */
static int add_record(TarHead *head, const char *prefix, const char *key, const void *value, size_t len) {
        size_t rest = strlen(" =\n") + strlen(prefix) + strlen(key) + len, total = rest + 1, before;
        char text[32];
        if (len > TAR_EXTENDED_MAX || head->len + rest > TAR_EXTENDED_MAX)
                return -E2BIG;
        do {
                before = total;
                total = rest + (size_t) snprintf(text, sizeof(text), "%zu", before);
        } while (total != before);

        (void) snprintf(text, sizeof(text), "%zu ", total);
        add(head, text, strlen(text));
        add(head, prefix, strlen(prefix));
        add(head, key, strlen(key));
        add(head, "=", 1);
        add(head, value, len);
        add(head, "\n", 1);
        return 0;
}

static int add_text_record(TarHead *head, const char *key, const char *text) {
        return add_record(head, "", key, text, strlen(text));
}

static int add_number_record(TarHead *head, const char *key, uint64_t number) {
        char text[24];
        (void) snprintf(text, sizeof(text), "%" PRIu64, number);
        return add_text_record(head, key, text);
}

/* A time before 1970 with nanoseconds is a negative number that these make smaller, not larger. */
static int add_time_record(TarHead *head, const struct timespec *time) {
        char text[48];
        long long seconds = time->tv_sec;
        long nanoseconds = time->tv_nsec;
        bool is_negative = seconds < 0;
        if (is_negative && nanoseconds > 0) {
                seconds++;
                nanoseconds = 1000000000 - nanoseconds;
        }
        unsigned long long size = is_negative ? 0 - (unsigned long long) seconds : (unsigned long long) seconds;
        int len = snprintf(text, sizeof(text), "%s%llu", is_negative ? "-" : "", size);
        if (nanoseconds > 0)
                (void) snprintf(text + len, sizeof(text) - (size_t) len, ".%09ld", nanoseconds);
        return add_text_record(head, "mtime", text);
}

/* A '=' in a name would be read as its end: such an attribute is left out. */
static int add_attributes(TarHead *head, const TarEntry *entry) {
        for (const char *at = entry->attributes, *end = at + entry->attributes_len; at < end;) {
                const char *name = at, *value = name + strlen(name) + 1;
                uint32_t len;
                memcpy(&len, value, sizeof(len));
                value += sizeof(len);
                int r = strchr(name, '=') ? 0 : add_record(head, ATTRIBUTE_PREFIX, name, value, len);
                if (r < 0)
                        return r;
                at = value + len;
        }
        return 0;
}

/* Adds what a plain head has no room for. */
static int add_records(TarHead *head, const TarEntry *entry, const char *path) {
        int r = 0;
        if (strlen(path) > sizeof(((Ustar *) 0)->name))
                r = add_text_record(head, "path", path);
        if (r >= 0 && entry->link && strlen(entry->link) > sizeof(((Ustar *) 0)->link))
                r = add_text_record(head, "linkpath", entry->link);
        if (r >= 0 && entry->size > OCTAL_MAX_11)
                r = add_number_record(head, "size", entry->size);
        if (r >= 0 && entry->uid > OCTAL_MAX_7)
                r = add_number_record(head, "uid", entry->uid);
        if (r >= 0 && entry->gid > OCTAL_MAX_7)
                r = add_number_record(head, "gid", entry->gid);
        if (r >= 0 && (entry->mtime.tv_nsec > 0 || entry->mtime.tv_sec < 0 || entry->mtime.tv_sec > OCTAL_MAX_11))
                r = add_time_record(head, &entry->mtime);
        return r < 0 || entry->attributes_len == 0 ? r : add_attributes(head, entry);
}

static void put_octal(char *field, size_t size, uint64_t number, uint64_t max) {
        (void) snprintf(field, size, "%0*" PRIo64, (int) size - 1, number < max ? number : max);
}

static void put_text(char *field, size_t size, const char *text) {
        size_t len = strnlen(text, size);
        memcpy(field, text, len);
}

static void add_ustar(TarHead *head, char type, const TarEntry *entry, const char *path, uint64_t size) {
        Ustar ustar = { .type = type, .magic = "ustar", .version = { '0', '0' } };
        put_text(ustar.name, sizeof(ustar.name), path);
        put_text(ustar.link, sizeof(ustar.link), entry->link ? entry->link : "");
        put_octal(ustar.mode, sizeof(ustar.mode), entry->mode, OCTAL_MAX_7);
        put_octal(ustar.uid, sizeof(ustar.uid), entry->uid, OCTAL_MAX_7);
        put_octal(ustar.gid, sizeof(ustar.gid), entry->gid, OCTAL_MAX_7);
        put_octal(ustar.size, sizeof(ustar.size), size, OCTAL_MAX_11);
        put_octal(ustar.mtime, sizeof(ustar.mtime), entry->mtime.tv_sec > 0 ? (uint64_t) entry->mtime.tv_sec : 0,
                  OCTAL_MAX_11);
        put_octal(ustar.major, sizeof(ustar.major), 0, 0);
        put_octal(ustar.minor, sizeof(ustar.minor), 0, 0);

        unsigned sum = 0;
        memset(ustar.checksum, ' ', sizeof(ustar.checksum));
        for (size_t i = 0; i < sizeof(ustar); i++)
                sum += ((const uint8_t *) &ustar)[i];
        (void) snprintf(ustar.checksum, sizeof(ustar.checksum) - 1, "%06o", sum);
        add(head, &ustar, sizeof(ustar));
}

int tar_head_make(TarHead *head, const TarEntry *entry) {
        _cleanup_(tar_head_clear) TarHead records = {};
        size_t len = strlen(entry->path);
        if (len > TAR_EXTENDED_MAX)
                return -E2BIG;
        _cleanup_free_ char *path = xcalloc(len + sizeof("/"), 1);
        memcpy(path, entry->path, len);
        if (entry->type == TAR_FOLDER)
                path[len] = '/';
        int r = add_records(&records, entry, path);
        if (r < 0)
                return r;

        head->len = 0;
        if (records.len > 0) {
                TarEntry extended = { .mode = 0644, .mtime = { .tv_sec = entry->mtime.tv_sec } };
                const char *slash = strrchr(entry->path, '/');
                char name[100];
                (void) snprintf(name, sizeof(name), "PaxHeaders/%.80s", slash ? slash + 1 : entry->path);
                add_ustar(head, TYPE_EXTENDED, &extended, name, records.len);
                add(head, records.bytes, records.len);
                add_zeros(head, tar_padding(records.len));
        }
        add_ustar(head, (char) entry->type, entry, path, entry->size);
        return 0;
}

void tar_head_clear(TarHead *head) {
        free(head->bytes);
        *head = (TarHead){};
}
