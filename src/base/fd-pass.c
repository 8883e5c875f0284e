/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sending and receiving messages with descriptors. What does not: what they say. */

#include "base/fd-pass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

typedef union Control {
        char bytes[CMSG_SPACE(sizeof(int) * PASSED_FDS_MAX)];
        struct cmsghdr aligned;
} Control;

int fds_send(int socket, const void *bytes, size_t len, const int *fds, size_t n_fds) {
        Control control = {};
        struct iovec data = { .iov_base = (void *) bytes, .iov_len = len };
        struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
        if (n_fds > 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
        }
        return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The descriptors in @message, of which there are as many as fit into a Control. */
static size_t unpack_fds(struct msghdr *message, int ret_fds[static PASSED_FDS_MAX]) {
        struct cmsghdr *header = CMSG_FIRSTHDR(message);
        if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
                return 0;
        size_t size = header->cmsg_len - CMSG_LEN(0);
        memcpy(ret_fds, CMSG_DATA(header), size);
        return size / sizeof(int);
}

int fds_receive(int socket, void *ret_bytes, size_t len, int *ret_fds, size_t n_fds) {
        Control control;
        struct iovec data = { .iov_base = ret_bytes, .iov_len = len };
        struct msghdr message = {
                .msg_iov = &data,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        /* That the other side ended without having read what it was sent is told before what it has sent itself. */
        if (n < 0 && errno == ECONNRESET)
                n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (n <= 0)
                return n < 0 ? -errno : -EPIPE;

        int fds[PASSED_FDS_MAX];
        size_t n_came = unpack_fds(&message, fds);
        if ((size_t) n == len && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && n_came <= n_fds) {
                if (n_came > 0)
                        memcpy(ret_fds, fds, sizeof(int) * n_came);
                return (int) n_came;
        }
        for (size_t i = 0; i < n_came; i++)
                fd_close(fds[i]);
        return -EBADMSG;
}
