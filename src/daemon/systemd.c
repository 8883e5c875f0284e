/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the service manager's three small protocols, as sd_notify(3), sd_watchdog_enabled(3) and
 * sd_listen_fds(3) document them. What does not: when they are spoken (daemon.c). */

#include "daemon/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define LISTEN_FDS_MAX 64

int systemd_notify(const char *state) {
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        size_t len = path ? strlen(path) : 0;
        _cleanup_close_ int fd = -1;

        if (len == 0)
                return 0;
        if ((path[0] != '/' && path[0] != '@') || len >= sizeof(address.sun_path))
                return -EINVAL;

        memcpy(address.sun_path, path, len);
        if (path[0] == '@')
                address.sun_path[0] = '\0'; /* an abstract name */

        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *) &address,
                   (socklen_t) (offsetof(struct sockaddr_un, sun_path) + len)) < 0)
                return -errno;
        return 0;
}

/* A variable that holds a number; 0: it does not. */
static unsigned long long number_in(const char *variable) {
        const char *text = getenv(variable);
        char *end;
        unsigned long long number;

        if (!text || text[0] < '0' || text[0] > '9')
                return 0;

        errno = 0;
        number = strtoull(text, &end, 10);
        return errno == 0 && *end == '\0' ? number : 0;
}

/* Tells whether @variable is not set, or names this process. */
static int is_for_us(const char *variable, int otherwise) {
        return getenv(variable) ? number_in(variable) == (unsigned long long) getpid() : otherwise;
}

uint64_t systemd_watchdog_interval(void) {
        unsigned long long usec = number_in("WATCHDOG_USEC");

        return usec > 0 && usec < UINT64_MAX / NSEC_PER_USEC && is_for_us("WATCHDOG_PID", 1) ? usec * NSEC_PER_USEC / 2
                                                                                             : 0;
}

size_t systemd_listen_fds(void) {
        size_t n = is_for_us("LISTEN_PID", 0) ? number_in("LISTEN_FDS") : 0;

        (void) unsetenv("LISTEN_PID");
        (void) unsetenv("LISTEN_FDS");
        (void) unsetenv("LISTEN_FDNAMES");
        if (n > LISTEN_FDS_MAX)
                return 0;

        for (size_t i = 0; i < n; i++)
                if (fcntl(SYSTEMD_FIRST_FD + (int) i, F_SETFD, FD_CLOEXEC) < 0)
                        return i;
        return n;
}
