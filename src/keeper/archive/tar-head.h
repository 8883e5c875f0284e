/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Heads of tar entries, in the pax format: a plain ustar head, and before it what that has no room for: long names,
 * nanoseconds, large numbers, attributes.
 *
 *         _cleanup_(tar_head_clear) TarHead head = {};
 *         r = tar_head_make(&head, &(TarEntry){ .type = TAR_REGULAR, .path = "a", .mode = 0644, .size = 5 });
 *
 * The head's bytes, the file's, zeros up to a multiple of TAR_BLOCK: that is an entry. Two blocks of zeros are the
 * end. */

#define TAR_BLOCK 512
#define TAR_EXTENDED_MAX (1 << 20) /* bytes of what a plain head has no room for: readers refuse more */

typedef enum TarType {
        TAR_REGULAR = '0',
        TAR_HARD_LINK = '1',
        TAR_SYMLINK = '2',
        TAR_FOLDER = '5',
} TarType;

typedef struct TarEntry {
        TarType type;
        const char *path; /* relative; without '/' at its end, also of a folder */
        const char *link; /* where a link points, as it stands; a hard link's is the path of another entry */
        mode_t mode;
        uid_t uid;
        gid_t gid;
        uint64_t size; /* of a regular file */
        struct timespec mtime;
        const char *attributes; /* names and values: each name ends with NUL, a uint32_t follows, and so many bytes */
        size_t attributes_len;
} TarEntry;

typedef struct TarHead {
        uint8_t *bytes;
        size_t len, size;
} TarHead;

/* Fills @head, which may have been filled before. -E2BIG: the names and attributes are too long. */
int tar_head_make(TarHead *head, const TarEntry *entry) __attribute__((nonnull));

void tar_head_clear(TarHead *head) __attribute__((nonnull));

/* The zeros that follow @size bytes. */
static inline size_t tar_padding(uint64_t size) {
        return (size_t) (-size % TAR_BLOCK);
}
