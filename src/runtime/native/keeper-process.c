/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what a keeper is started with, its socket and its log. What does not: speaking to it
 * (keeper-client.c), processes as such (child-process.c). */

#include "runtime/native/keeper-process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/fd.h"
#include "model/reason.h"

#define BACKLOG 128
#define LOG_SIZE_MAX ((off_t) 1 << 20) /* a longer one begins anew with the next start */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* What is at @path, "" or with a "/" before it, from @fd on. */
static struct sockaddr_un descriptor_address(int fd, const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        (void) snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d%s", fd, path);
        return address;
}

/* Puts @bytes where nobody can change them any more. */
static int make_sealed(const uint8_t *bytes, size_t len) {
        _cleanup_close_ int fd = memfd_create("hutch-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        int r;

        /* Kernels before 6.3 do not know of files that are never programs. */
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create("hutch-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        r = fd_write_all(fd, bytes, len);
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
                return -errno;

        return TAKE_FD(fd);
}

static int listen_in(int folder) {
        const struct sockaddr_un address = descriptor_address(folder, "/" KEEPER_SOCKET);
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        if (unlinkat(folder, KEEPER_SOCKET, 0) < 0 && errno != ENOENT)
                return -errno;
        /* The name gets the mode that the socket has. */
        if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ||
            listen(fd, BACKLOG) < 0)
                return -errno;

        return TAKE_FD(fd);
}

/* The folder was the user's who the keeper before was: what is there may be anything. */
static int open_log(int folder) {
        _cleanup_close_ int fd =
                openat(folder, KEEPER_LOG, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        struct stat status;

        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
                return -EBADMSG;
        if (status.st_size > LOG_SIZE_MAX && ftruncate(fd, 0) < 0)
                return -errno;

        return TAKE_FD(fd);
}

static int fail(HutchError *err, int r, const char *what) {
        return reason_set(err, r, r == -ENOSPC || r == -EDQUOT ? REASON_DISK_FULL : REASON_RUNTIME_UNAVAILABLE,
                          "cannot make the %s of a keeper: %s", what, strerror(-r));
}

int keeper_process_spawn(KeeperNest *nest, int folder, const KeeperStart *start, ChildEnded ended, void *user,
                         ChildProcess **ret_keeper, HutchError *err) {
        _cleanup_close_ int config_fd = make_sealed(start->config, start->config_len), log_fd = -1, socket_fd = -1;
        _cleanup_free_ int *descriptors = new0(int, 2 + start->sources->n);
        static char name[] = "hutch-keeper";
        int r;

        if (config_fd < 0)
                return fail(err, config_fd, "configuration");
        log_fd = open_log(folder);
        if (log_fd < 0)
                return fail(err, log_fd, "log");
        socket_fd = listen_in(folder);
        if (socket_fd < 0)
                return fail(err, socket_fd, "socket");
        FAILPOINT("native.start.socket");

        descriptors[0] = config_fd;
        descriptors[1] = socket_fd;
        for (size_t i = 0; i < start->sources->n; i++)
                descriptors[2 + i] = start->sources->list[i].source.fd;
        r = keeper_nest_spawn(nest,
                              &(ChildOptions){
                                      .argv = (char *const[]){ name, NULL },
                                      .standard_error = log_fd,
                                      .descriptors = descriptors,
                                      .n_descriptors = 2 + start->sources->n,
                              },
                              ended, user, ret_keeper, err);
        if (r == 0)
                FAILPOINT("native.start.spawned");
        return r;
}

int keeper_process_open_socket(int folder) {
        _cleanup_close_ int fd = openat(folder, KEEPER_SOCKET, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat status;

        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;

        return S_ISSOCK(status.st_mode) ? TAKE_FD(fd) : -ECONNREFUSED;
}

/* Connects to what keeper_process_open_socket() has found. */
static int connect_to(int path) {
        const struct sockaddr_un address = descriptor_address(path, "");
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        /* A full queue is one that somebody has, who does not get to it. */
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 && errno != EAGAIN)
                return -errno;

        return TAKE_FD(fd);
}

/* Who listens at the other end of @fd; 0 when that is nobody that can be named. */
static pid_t listener_of(int fd) {
        struct ucred credentials;
        socklen_t len = sizeof(credentials);

        /* Who listened first is the daemon, which handed the socket on. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) < 0 || credentials.pid == getpid() ||
            credentials.uid != geteuid())
                return 0;

        return credentials.pid;
}

/* A pidfd of who listens at @path, to which @fd is connected; -1 when there is none to be had. */
static int open_listener(int path, int fd) {
        _cleanup_close_ int pidfd = -1, again = -1;
        pid_t pid = listener_of(fd);
        socklen_t len = sizeof(pidfd);

        if (pid <= 0)
                return -1;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
                return TAKE_FD(pidfd);

        /* Kernels before 6.5 have only the number. It is the keeper's as long as its socket takes connections. */
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        again = pidfd < 0 ? -1 : connect_to(path);
        return again >= 0 && listener_of(again) == pid ? TAKE_FD(pidfd) : -1;
}

int keeper_process_find(int folder, int *ret_pidfd) {
        _cleanup_close_ int path = keeper_process_open_socket(folder), fd = path < 0 ? -1 : connect_to(path);

        if (path < 0)
                return path;
        if (fd < 0)
                return fd;

        *ret_pidfd = open_listener(path, fd);
        return TAKE_FD(path);
}

void keeper_process_last_words(int folder, char *buffer, size_t size) {
        _cleanup_close_ int fd = openat(folder, KEEPER_LOG, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        const char *newline;
        struct stat status;
        ssize_t n = 0;

        if (fd >= 0 && fstat(fd, &status) == 0) {
                off_t start = status.st_size >= (off_t) size ? status.st_size - (off_t) size + 1 : 0;

                n = pread(fd, buffer, size - 1, start);
        }
        n = n > 0 ? n : 0;
        if (n > 0 && buffer[n - 1] == '\n')
                n--;
        buffer[n] = '\0';
        newline = memrchr(buffer, '\n', (size_t) n);
        if (newline)
                memmove(buffer, newline + 1, strlen(newline));
}
