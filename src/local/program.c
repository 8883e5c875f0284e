/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: finding the other programs. What does not: starting them. */

#include "local/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* The program in @folder, when it can be run. */
static char *find_in(const char *folder, const char *name) {
        char *path;

        if (asprintf(&path, "%s/%s", folder, name) < 0)
                return NULL;
        if (access(path, X_OK) == 0)
                return path;

        free(path);
        return NULL;
}

char *program_find(const char *name, const char *installed) {
        char self[PATH_MAX];
        ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *path;

        if (len < 0)
                return NULL;

        self[len] = '\0';
        *strrchr(self, '/') = '\0';
        path = find_in(self, name);
        return path ? path : find_in(installed, name);
}
