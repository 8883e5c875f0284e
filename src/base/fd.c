/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: closing descriptors, and writing to those that block. What does not: sockets of the event loop. */

#include "base/fd.h"

#include <errno.h>
#include <unistd.h>

int fd_close(int fd) {
        int saved_errno = errno;

        /* Linux has closed the descriptor also when close() says EINTR. */
        if (fd >= 0)
                (void) close(fd);

        errno = saved_errno;
        return -1;
}

int fd_write_all(int fd, const void *bytes, size_t len) {
        const char *rest = bytes;

        while (len > 0) {
                ssize_t n = write(fd, rest, len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;

                rest += n;
                len -= (size_t) n;
        }

        return 0;
}
