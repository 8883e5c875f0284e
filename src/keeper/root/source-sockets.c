/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the search for sockets in what is to be mounted. What does not: what is done about them
 * (mounts.c). */

#include "keeper/root/source-sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"

/* A folder that is yet to be looked through. */
typedef struct Folder {
        struct Folder *next;
        char path[]; /* below the top */
} Folder;

typedef struct Search {
        int top;
        size_t n_entries;
        Folder *first, **end;
} Search;

static void search_clear(Search *search) {
        for (Folder *folder = search->first, *next; folder; folder = next) {
                next = folder->next;
                free(folder);
        }
}

static void close_folder(DIR **folder) {
        if (*folder)
                (void) closedir(*folder);
}

static DIR *open_folder(const Search *search, const char *path) {
        const struct open_how how = {
                .flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        int fd = (int) syscall(SYS_openat2, search->top, *path ? path : ".", &how, sizeof(how));
        DIR *folder = fd < 0 ? NULL : fdopendir(fd);
        if (fd >= 0 && !folder)
                (void) close(fd);
        return folder;
}

static void add_folder(Search *search, const char *path) {
        size_t size = sizeof(Folder) + strlen(path) + 1;
        Folder *folder = xcalloc(1, size);
        memcpy(folder->path, path, size - sizeof(Folder));
        *search->end = folder;
        search->end = &folder->next;
}

static unsigned char type_of(DIR *folder, const struct dirent *entry) {
        struct stat st;
        if (entry->d_type != DT_UNKNOWN)
                return entry->d_type;
        return fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : IFTODT(st.st_mode);
}

/* Looks through one folder. Returns 1 with a socket's path. */
static int look_through(Search *search, const char *above, char *ret_path, size_t size) {
        _cleanup_(close_folder) DIR *folder = open_folder(search, above);
        const struct dirent *entry;
        while (folder && search->n_entries < SOURCE_ENTRIES_MAX &&
               (entry = readdir(folder))) { /* NOLINT(concurrency-mt-unsafe) */
                if (str_equal(entry->d_name, ".") || str_equal(entry->d_name, ".."))
                        continue;
                search->n_entries++;
                unsigned char type = type_of(folder, entry);
                if (type != DT_SOCK && type != DT_DIR)
                        continue;
                char path[PATH_MAX];
                int len = snprintf(path, sizeof(path), "%s%s%s", above, *above ? "/" : "", entry->d_name);
                if (type == DT_SOCK) {
                        (void) snprintf(ret_path, size, "%s", path);
                        return 1;
                }
                if (len < (int) sizeof(path))
                        add_folder(search, path);
        }
        return 0;
}

int source_find_socket(int folder, char *ret_path, size_t size) {
        _cleanup_(search_clear) Search search = { .top = folder };
        search.end = &search.first;
        int found = look_through(&search, "", ret_path, size);
        for (const Folder *next = search.first; next && found == 0 && search.n_entries < SOURCE_ENTRIES_MAX;
             next = next->next)
                found = look_through(&search, next->path, ret_path, size);
        return found;
}
