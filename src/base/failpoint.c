/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what happens at failpoints. What does not: where they are. */

#include "base/failpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define SEEN_MAX 256

/* Tells whether @name comes for the first time, as far as that is remembered. */
static bool is_new(const char *name) {
        static const char *seen[SEEN_MAX];
        static size_t n_seen;

        for (size_t i = 0; i < n_seen; i++)
                if (strcmp(seen[i], name) == 0)
                        return false;

        if (n_seen < SEEN_MAX)
                seen[n_seen++] = name;
        return true;
}

static void log_name(const char *file, const char *name) {
        _cleanup_close_ int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (fd >= 0 && fd_write_all(fd, name, strlen(name)) == 0)
                (void) fd_write_all(fd, "\n", 1);
}

void failpoint_reached(const char *name) {
        static unsigned long left;
        const char *wanted = getenv("HUTCH_FAILPOINT"), *log = getenv("HUTCH_FAILPOINT_LOG");
        size_t len = strlen(name);

        if (log && is_new(name))
                log_name(log, name);
        if (!wanted || strncmp(wanted, name, len) != 0 || (wanted[len] != '\0' && wanted[len] != ':'))
                return;

        if (left == 0)
                left = wanted[len] == ':' ? strtoul(wanted + len + 1, NULL, 10) : 1;
        if (--left == 0)
                (void) kill(getpid(), SIGKILL);
}
