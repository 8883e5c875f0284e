/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Who is at the other end of a connection, as far as the transport knows. */

typedef struct Peer {
        /* On a Unix socket: what the kernel says of the process that connected. */
        bool has_credentials;
        pid_t pid;
        uid_t uid;
        gid_t gid;

        bool encrypted;            /* TLS */
        char *certificate_subject; /* of the client's certificate, which was verified; NULL: it gave none */
        int64_t certificate_end;   /* the last second in which that is valid, since 1970 */
        char *address;             /* "unix", "127.0.0.1:4711", "[::1]:4711" */
} Peer;

/* Asks the kernel who is at the other end of the socket @fd. -ENOMEM; -ENOTCONN: nobody. */
int peer_init(Peer *peer, int fd) __attribute__((nonnull));

/* Frees what @peer holds. */
void peer_clear(Peer *peer) __attribute__((nonnull));
