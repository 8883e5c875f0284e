/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading a folder of any size in order. What does not: what its names are for. */

#include "keeper/worker/file-names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/memory.h"

typedef struct Dir {
        DIR *dir;
} Dir;

static void dir_clear(Dir *dir) {
        if (dir->dir)
                (void) closedir(dir->dir);
}

static bool is_dots(const char *name) {
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Reads the folder for the names that come after the last one given. */
static int fill(FileNames *names, int folder) {
        int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        _cleanup_(dir_clear) Dir dir = { .dir = fdopendir(fd) };
        if (!dir.dir) {
                int r = -errno;
                fd_close(fd);
                return r;
        }

        name_heap_clear(&names->heap);
        names->heap.max = FILE_NAMES_MAX;
        names->at = 0;
        for (;;) {
                errno = 0;
                const struct dirent *entry = readdir(dir.dir);
                if (!entry && errno != 0)
                        return -errno;
                if (!entry)
                        break;
                if (is_dots(entry->d_name) || (names->last && strcmp(entry->d_name, names->last) <= 0))
                        continue;
                int r = name_heap_add(&names->heap, entry->d_name);
                if (r < 0)
                        return r;
        }
        name_heap_sort(&names->heap);
        names->is_all = !names->heap.is_incomplete;
        return 0;
}

int file_names_next(FileNames *names, int folder, const char **ret_name) {
        if (file_names_held(names) == 0 && !names->is_all) {
                int r = fill(names, folder);
                if (r < 0)
                        return r;
        }
        if (file_names_held(names) == 0)
                return 0;
        free(names->last);
        names->last = TAKE_PTR(names->heap.names[names->at]);
        names->at++;
        *ret_name = names->last;
        return 1;
}

void file_names_forget(FileNames *names) {
        if (file_names_held(names) > 0)
                names->is_all = false;
        name_heap_clear(&names->heap);
        names->at = 0;
}

void file_names_clear(FileNames *names) {
        file_names_forget(names);
        free(names->last);
        *names = (FileNames){};
}
