/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sockets until they listen. What does not: accepting (server.c). */

#include "rpc/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/fd.h"

#define BACKLOG 4096 /* the kernel has a limit of its own */

static int new_socket(int family) {
        int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        return fd < 0 ? -errno : fd;
}

/* Removes the socket at @address unless somebody answers on it. */
static int remove_stale(const struct sockaddr_un *address) {
        _cleanup_close_ int fd = -1;
        struct stat info;

        if (lstat(address->sun_path, &info) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(info.st_mode))
                return -EEXIST;

        fd = new_socket(AF_UNIX);
        if (fd < 0)
                return fd;
        /* One whose backlog is full is in use, too: EAGAIN. */
        if (connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 || errno == EAGAIN)
                return -EADDRINUSE;
        if (errno != ECONNREFUSED)
                return -errno;

        return unlink(address->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

int listen_unix(const char *path, mode_t mode, HutchError *err) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = -1;
        int r;

        if (strlen(path) >= sizeof(address.sun_path))
                return error_set(err, -ENAMETOOLONG, "LISTEN_PATH", "the path '%s' is too long for a socket", path);
        memcpy(address.sun_path, path, strlen(path));

        r = remove_stale(&address);
        if (r == -EADDRINUSE)
                return error_set_code(err, STATUS_ALREADY_EXISTS, r, "LISTEN_IN_USE",
                                      "somebody else serves on '%s': stop it, or choose another path", path);
        if (r == -EEXIST)
                return error_set(err, r, "LISTEN_IN_USE", "'%s' is there already, and is not a socket", path);
        if (r < 0)
                return error_set(err, r, "LISTEN_FAILED", "cannot listen on '%s': %s", path, strerror(-r));

        fd = new_socket(AF_UNIX);
        if (fd < 0)
                return error_set(err, fd, "LISTEN_FAILED", "cannot make a socket: %s", strerror(-fd));

        /* Until it listens nobody can connect, so that the permissions are never others than these. */
        if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || chmod(path, mode) < 0 ||
            listen(fd, BACKLOG) < 0) {
                r = -errno;
                return error_set(err, r, "LISTEN_FAILED", "cannot listen on '%s': %s", path, strerror(-r));
        }

        return TAKE_FD(fd);
}

int listen_tcp(const char *address, uint16_t port, HutchError *err) {
        struct sockaddr_storage name = {};
        _cleanup_close_ int fd = -1;
        int r, yes = 1;

        if (uv_ip4_addr(address, port, (struct sockaddr_in *) &name) < 0 &&
            uv_ip6_addr(address, port, (struct sockaddr_in6 *) &name) < 0)
                return error_set(err, -EINVAL, "LISTEN_ADDRESS", "'%s' is not an IPv4 or IPv6 address", address);

        fd = new_socket(name.ss_family);
        if (fd < 0)
                return error_set(err, fd, "LISTEN_FAILED", "cannot make a socket: %s", strerror(-fd));

        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
            bind(fd, (const struct sockaddr *) &name, sizeof(name)) < 0 || listen(fd, BACKLOG) < 0) {
                r = -errno;
                return error_set(err, r, r == -EADDRINUSE ? "LISTEN_IN_USE" : "LISTEN_FAILED",
                                 "cannot listen on %s port %u: %s", address, port, strerror(-r));
        }

        return TAKE_FD(fd);
}

static int socket_option(int fd, int option) {
        socklen_t len = sizeof(int);
        int value;

        return getsockopt(fd, SOL_SOCKET, option, &value, &len) < 0 ? -errno : value;
}

int listen_adopt(int fd, HutchError *err) {
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0 || socket_option(fd, SO_ACCEPTCONN) != 1 || socket_option(fd, SO_TYPE) != SOCK_STREAM)
                return error_set(err, -EINVAL, "LISTEN_FD", "descriptor %d is not a socket that listens for streams",
                                 fd);

        if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
                int r = -errno;

                return error_set(err, r, "LISTEN_FD", "cannot prepare descriptor %d: %s", fd, strerror(-r));
        }

        return 0;
}

uint16_t listen_port(int fd) {
        struct sockaddr_storage name = {};
        socklen_t len = sizeof(name);

        if (getsockname(fd, (struct sockaddr *) &name, &len) < 0)
                return 0;

        switch (name.ss_family) {
        case AF_INET:
                return ntohs(((struct sockaddr_in *) &name)->sin_port);
        case AF_INET6:
                return ntohs(((struct sockaddr_in6 *) &name)->sin6_port);
        default:
                return 0;
        }
}
