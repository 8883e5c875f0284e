/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client's session on a socket, and what becomes of it when the connection is lost. What does not:
 * gRPC (client-session.c), which calls are tried on it and when (channel.c). */

#include "rpc/link.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "base/fd.h"
#include "rpc/channel-hub.h"
#include "rpc/socket.h"
#include "rpc/tls.h"

#define DISPATCH_BUDGET 256 /* calls of a link before others have their turn */

static void touch(const Link *link) {
        link->events->touched(link->user);
}

/* Frees @link if nothing of it is left. */
static void release(Link *link) {
        if (link->socket || link->session)
                return;

        link->events->closed(link->user, link);
        free(link);
}

static void lose(Link *link, const char *reason, const char *why) {
        if (link->lost)
                return;

        link->lost = true;
        client_session_lose(link->session, reason, why);
        socket_close(link->socket);
        touch(link);
}

static void on_established(void *user) {
        Link *link = user;

        link->established = true;
        touch(link);
}

static void on_received(void *user, const uint8_t *bytes, size_t len) {
        Link *link = user;

        link->heard = true;
        (void) session_receive(client_session_base(link->session), bytes, len, uv_hrtime());
        touch(link);
}

static void on_drained(void *user) {
        touch(user);
}

/* Why the connection is no more. Not every server tells who is not welcome. */
static const char *why_lost(const Link *link, const HutchError *err) {
        if (!link->established || link->heard || err->error == EPROTO)
                return error_message(err);

        return link->options->tls ? "the server closed the connection without a word: it may require a certificate of "
                                    "ours that it trusts"
                                  : "the server closed the connection without a word: it may expect TLS";
}

static void on_failed(void *user, const HutchError *err) {
        Link *link = user;

        lose(link, err->reason, why_lost(link, err));
        if (!link->established)
                link->events->failed(link->user, err);
}

static void on_closed(void *user) {
        Link *link = user;

        link->socket = NULL;
        release(link);
}

static const SocketEvents socket_events = {
        .established = on_established,
        .received = on_received,
        .drained = on_drained,
        .failed = on_failed,
        .closed = on_closed,
};

int link_new(const LinkOptions *options, int fd, const LinkEvents *events, void *user, Link **ret_link) {
        _cleanup_(client_session_freep) ClientSession *session = NULL;
        _cleanup_(tls_freep) Tls *tls = NULL;
        _cleanup_close_ int owned_fd = fd;
        _cleanup_free_ Link *link = NULL;
        int r;

        session = client_session_new(&options->identity, &options->limits, uv_hrtime());
        if (!session)
                return -ENOMEM;
        r = options->tls ? tls_new(options->tls, options->server_name, &tls) : 0;
        if (r < 0)
                return r;
        link = try_new0(Link, 1);
        if (!link)
                return -ENOMEM;
        r = socket_new(options->hub->loop, TAKE_FD(owned_fd), TAKE_PTR(tls), &options->hub->scratch, &socket_events,
                       link, &link->socket);
        if (r < 0)
                return r;

        link->options = options;
        link->events = events;
        link->user = user;
        link->session = TAKE_PTR(session);
        link->established = !options->tls;
        *ret_link = TAKE_PTR(link);
        return 0;
}

bool link_is_open(const Link *link) {
        return link->established && !link->lost && client_session_is_open(link->session);
}

bool link_is_opening(const Link *link) {
        return !link->established && !link->lost;
}

/* Sends what the session has to say. Returns false when memory is out. */
static bool send_output(Link *link, Session *session) {
        ChannelHub *hub = link->options->hub;

        while (socket_pending(link->socket) == 0) {
                _cleanup_(session_output_clear) SessionOutput output = {
                        .buffer = hub->output,
                        .size = sizeof(hub->output),
                };
                ssize_t n = session_gather(session, &output);
                int r = n > 0 ? socket_write_parts(link->socket, output.parts, output.n_parts) : 0;

                if (n == -ENOMEM || r == -ENOMEM)
                        return false;
                /* What failed, the socket tells later: it may have heard why. */
                if (n <= 0 || r < 0)
                        break;
        }

        return true;
}

/* Finds out whether the connection has served its time. */
static void look_for_end(Link *link, const Session *session) {
        bool finished = session_is_finished(session);

        if (session->dead)
                lose(link, "CONNECTION_LOST", "the server does not answer any more");
        else if (finished && !session->peer_draining)
                lose(link, "CONNECTION_LOST", "the server does not keep to HTTP/2");
        else if (finished || (session->peer_draining && session->n_streams == 0))
                lose(link, "CONNECTION_CLOSED", "the server ended the connection");
}

void link_run(Link *link) {
        Session *session = link->session ? client_session_base(link->session) : NULL;
        uint64_t now = uv_hrtime();

        if (!session || link_is_opening(link))
                return;

        if (session_deadline(session) <= now)
                session_tick(session, now);
        (void) session_dispatch(session, DISPATCH_BUDGET);
        if (!link->lost && !send_output(link, session))
                lose(link, "CONNECTION_LOST", "the connection was lost: no memory to go on with it");
        if (!link->lost)
                look_for_end(link, session);
        if (session->ready_first)
                touch(link);

        if (link->lost && session->n_streams == 0) {
                link->session = client_session_free(link->session);
                release(link);
        }
}

uint64_t link_deadline(const Link *link) {
        return link->session && !link_is_opening(link) ? session_deadline(client_session_base(link->session))
                                                       : DEADLINE_NONE;
}

void link_close(Link *link) {
        link->lost = true;
        link->session = client_session_free(link->session);
        if (link->socket)
                socket_close(link->socket);
        else
                release(link);
}
