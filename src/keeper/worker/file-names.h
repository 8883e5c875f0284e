/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "keeper/worker/name-heap.h"

/* The names in a folder, in byte order, in little memory: so many at a time, for which the folder is read again.
 *
 *         FileNames names = {};
 *         while ((r = file_names_next(&names, folder, &name)) > 0)
 *                 …
 *         file_names_clear(&names);
 *
 * A name that comes or goes meanwhile is given or not; none is given twice. */

#define FILE_NAMES_MAX 8192 /* at a time */

typedef struct FileNames {
        NameHeap heap; /* sorted */
        size_t at;     /* the next */
        char *last;    /* the one given last: belongs to us, valid until the next is asked for */
        bool is_all;   /* nothing comes after the list */
} FileNames;

/* The next name, valid until the next call: 1; 0: there is none; -ENOMEM and what reading a folder says. @folder is
 * open for reading. */
int file_names_next(FileNames *names, int folder, const char **ret_name) __attribute__((nonnull));

/* Frees the list, but knows where it was: the folder is read again for the next name. */
void file_names_forget(FileNames *names) __attribute__((nonnull));

/* How many names are held in memory. */
static inline size_t file_names_held(const FileNames *names) {
        return names->heap.n_names - names->at;
}

void file_names_clear(FileNames *names) __attribute__((nonnull));
