/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the lock on the state folder. What does not: what is locked by it. */

#include "daemon/instance-lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define LOCK_TRIES 50
#define LOCK_PAUSE_NS 10000000

static int write_pid(int fd) {
        char text[32];
        int len = snprintf(text, sizeof(text), "%d\n", (int) getpid());

        if (ftruncate(fd, 0) < 0)
                return -errno;
        return pwrite(fd, text, (size_t) len, 0) == len ? 0 : -EIO;
}

/* A program that a killed daemon was about to start has its descriptors, and the lock, until it is executed. */
static int lock_patiently(int fd) {
        const struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };
        int r;

        for (int tries = 1; (r = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && tries < LOCK_TRIES;
             tries++)
                (void) nanosleep(&pause, NULL);
        return r;
}

int instance_lock(const char *folder, HutchError *err) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -1;
        char pid[32] = "";
        int r;

        if (asprintf(&path, "%s/lock", folder) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");

        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return error_set(err, -errno, "FILE_PERMISSION", "cannot open %s: %s", path, strerror(errno));

        if (lock_patiently(fd) < 0) {
                if (errno != EWOULDBLOCK)
                        return error_set(err, -errno, "IO_ERROR", "cannot lock %s: %s", path, strerror(errno));

                if (pread(fd, pid, sizeof(pid) - 1, 0) > 0)
                        pid[strcspn(pid, "\n")] = '\0';
                return error_set(err, -EBUSY, "FILE_BUSY", "another hutchd (pid %s) uses %s", pid[0] ? pid : "unknown",
                                 folder);
        }

        r = write_pid(fd);
        if (r < 0)
                return error_set(err, r, "IO_ERROR", "cannot write %s: %s", path, strerror(-r));
        return TAKE_FD(fd);
}
