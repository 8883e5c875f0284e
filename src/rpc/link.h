/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "rpc/core/client-session.h"

/* Links: one connection of a channel's, from its descriptor to the last word that was heard on it.
 *
 * With TLS it is established some time after it was made, else at once. When the connection is lost, calls whose answer
 * is not complete end; those that were answered live on until their messages were read. A link is gone when it has
 * neither connection nor calls any more. */

typedef struct ChannelHub ChannelHub;
typedef struct Link Link;
typedef struct Socket Socket;
typedef struct TlsContext TlsContext;

/* What all links of a channel have in common, and outlives them. */
typedef struct LinkOptions {
        ChannelHub *hub;
        TlsContext *tls; /* NULL: not encrypted */
        const char *server_name;
        ClientIdentity identity;
        SessionLimits limits;
} LinkOptions;

typedef struct LinkEvents {
        /* link_run() has something to do, or link_is_open() may have changed. */
        void (*touched)(void *user);
        /* The connection was lost before it was established. */
        void (*failed)(void *user, const HutchError *err);
        /* The last event: the link is being freed, and is not the owner's any more. */
        void (*closed)(void *user, Link *link);
} LinkEvents;

struct Link {
        Link *prev, *next; /* the owner's */
        const LinkOptions *options;
        const LinkEvents *events;
        void *user;
        Socket *socket;         /* NULL: nothing of it is left */
        ClientSession *session; /* NULL: no call is left, and none can be started */
        bool established;
        bool heard; /* of the server */
        bool lost;  /* the connection is, or was given up */
};

/* Takes over @fd, which is connected; also when it fails. -ENOMEM and other errors of the system. */
int link_new(const LinkOptions *options, int fd, const LinkEvents *events, void *user, Link **ret_link)
        __attribute__((nonnull));

/* Tells whether new calls can be started. */
bool link_is_open(const Link *link) __attribute__((nonnull));

/* Tells whether that is still to come. */
bool link_is_opening(const Link *link) __attribute__((nonnull));

/* Moves what is to be moved. Runs the events of calls. The link may be gone afterwards. */
void link_run(Link *link) __attribute__((nonnull));

/* When link_run() is due; UINT64_MAX: never. */
uint64_t link_deadline(const Link *link) __attribute__((nonnull));

/* Ends all calls and the connection. The link may be gone afterwards. */
void link_close(Link *link) __attribute__((nonnull));
