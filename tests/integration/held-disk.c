/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a disk that does not take what is written until a test lets it, or never. What does not: when, which
 * test_durable.py says. To be loaded into a program (LD_PRELOAD) before libc. HUTCH_DISK names a folder, in which
 *
 *         hold     has whoever waits for the disk wait on, which makes the file `held`
 *         fail     has the disk fail */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAUSE 1000 /* microseconds */

static const char *in_folder(const char *name, char *buffer, size_t size) {
        (void) snprintf(buffer, size, "%s/%s", getenv("HUTCH_DISK"), name);
        return buffer;
}

static bool is_there(const char *name) {
        char path[4096];

        return access(in_folder(name, path, sizeof(path)), F_OK) == 0;
}

static void make(const char *name) {
        char path[4096];

        (void) close(open(in_folder(name, path, sizeof(path)), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

int fdatasync(int fd) {
        if (is_there("hold"))
                make("held");
        while (is_there("hold"))
                (void) usleep(PAUSE);
        if (is_there("fail")) {
                errno = EIO;
                return -1;
        }
        return (int) syscall(SYS_fdatasync, fd);
}
