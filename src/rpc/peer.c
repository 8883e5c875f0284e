/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: asking the kernel who is connected. What does not: certificates (tls.c). */

#include "rpc/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int ask_credentials(Peer *peer, int fd) {
        struct ucred credentials;
        socklen_t len = sizeof(credentials);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) < 0)
                return -errno;

        peer->has_credentials = true;
        peer->pid = credentials.pid;
        peer->uid = credentials.uid;
        peer->gid = credentials.gid;
        return 0;
}

static char *format_address(const struct sockaddr_storage *address) {
        const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *) address;
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *) address;
        char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + sizeof("[]:65535")];

        switch (address->ss_family) {
        case AF_INET:
                (void) inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof(host));
                snprintf(text, sizeof(text), "%s:%u", host, ntohs(ipv4->sin_port));
                return strdup(text);
        case AF_INET6:
                (void) inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof(host));
                snprintf(text, sizeof(text), "[%s]:%u", host, ntohs(ipv6->sin6_port));
                return strdup(text);
        case AF_UNIX:
                return strdup("unix");
        default:
                return strdup("unknown");
        }
}

int peer_init(Peer *peer, int fd) {
        struct sockaddr_storage address = {};
        socklen_t len = sizeof(address);
        int r;

        *peer = (Peer){};
        if (getpeername(fd, (struct sockaddr *) &address, &len) < 0)
                return -errno;

        if (address.ss_family == AF_UNIX) {
                r = ask_credentials(peer, fd);
                if (r < 0)
                        return r;
        }

        peer->address = format_address(&address);
        return peer->address ? 0 : -ENOMEM;
}

void peer_clear(Peer *peer) {
        free(peer->certificate_subject);
        free(peer->address);
        *peer = (Peer){};
}
