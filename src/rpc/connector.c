/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: names to addresses, addresses to connected descriptors. What does not: when to connect (channel.c).
 */

#include "rpc/connector.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/strings.h"

/* A Unix socket whose queue is full takes no connection for now: how long to wait before asking again. */
#define QUEUE_FULL_PAUSE_MS 2

void target_clear(Target *target) {
        free(target->path);
        free(target->host);
        free(target->port);
        *target = (Target){};
}

static int target_invalid(const char *text, HutchError *err) {
        return error_set(err, -EINVAL, "ADDRESS_MALFORMED",
                         "'%s' is no address: write unix:/path, host:port or [address]:port", text);
}

static bool is_port(const char *text) {
        size_t len = strspn(text, "0123456789");

        return len > 0 && len <= 5 && text[len] == '\0' && atoi(text) > 0 && atoi(text) <= 65535;
}

static int parse_tcp(const char *text, Target *target, HutchError *err) {
        const char *colon = strrchr(text, ':'), *host = text;
        size_t host_len = colon ? (size_t) (colon - text) : 0;

        if (!colon || host_len == 0 || !is_port(colon + 1))
                return target_invalid(text, err);
        if (host[0] == '[' && host[host_len - 1] == ']') {
                host++;
                host_len -= 2;
        } else if (memchr(host, ':', host_len)) {
                return target_invalid(text, err);
        }

        target->host = strndup(host, host_len);
        target->port = strdup(colon + 1);
        return target->host && target->port ? 0 : -ENOMEM;
}

static int parse_unix(const char *path, Target *target, HutchError *err) {
        const size_t path_max = sizeof(((struct sockaddr_un *) NULL)->sun_path) - 1;

        if (path[0] != '/' || strlen(path) > path_max)
                return error_set(err, -EINVAL, "ADDRESS_MALFORMED",
                                 "the path of a Unix socket is absolute and has at most %zu bytes", path_max);

        target->path = strdup(path);
        return target->path ? 0 : -ENOMEM;
}

int target_parse(const char *text, Target *ret_target, HutchError *err) {
        Target target = {};
        int r;

        if (str_has_prefix(text, "unix:"))
                r = parse_unix(text + strlen("unix:"), &target, err);
        else
                r = parse_tcp(text, &target, err);
        if (r == 0) {
                *ret_target = target;
                return 0;
        }

        target_clear(&target);
        return r == -ENOMEM ? error_set(err, r, "HOST_EXHAUSTED", "no memory") : r;
}

struct Connector {
        uv_loop_t *loop;
        const Target *target;
        void (*done)(void *user, ConnectorResult result);
        void *user;

        uv_timer_t timer; /* the time limit, and pauses */
        uv_poll_t poll;
        uv_getaddrinfo_t resolve;
        uint64_t deadline;
        struct addrinfo *addresses, *next; /* of the name; those not tried yet */
        int fd;
        bool polling;   /* on @fd */
        bool resolving; /* the resolver holds @resolve */
        bool finished;  /* @done was called, or is not wanted */
        bool poll_open, timer_open;
};

static void connector_release(Connector *connector) {
        if (connector->poll_open || connector->timer_open || connector->resolving)
                return;

        fd_close(connector->fd);
        uv_freeaddrinfo(connector->addresses);
        free(connector);
}

static void on_timer_closed(uv_handle_t *handle) {
        Connector *connector = handle->data;

        connector->timer_open = false;
        connector_release(connector);
}

static void on_poll_closed(uv_handle_t *handle) {
        Connector *connector = handle->data;

        connector->poll_open = false;
        connector_release(connector);
}

void connector_cancel(Connector *connector) {
        connector->finished = true;
        connector->done = NULL;
        if (connector->timer_open && !uv_is_closing((uv_handle_t *) &connector->timer))
                uv_close((uv_handle_t *) &connector->timer, on_timer_closed);
        if (connector->poll_open && !uv_is_closing((uv_handle_t *) &connector->poll))
                uv_close((uv_handle_t *) &connector->poll, on_poll_closed);
        if (connector->resolving)
                (void) uv_cancel((uv_req_t *) &connector->resolve);
}

static void finish(Connector *connector, int fd, const HutchError *err) {
        void (*done)(void *user, ConnectorResult result) = connector->done;
        void *user = connector->user;

        connector_cancel(connector);
        done(user, (ConnectorResult){ .fd = fd, .err = err });
}

static void fail(Connector *connector, int r, const char *what) {
        _cleanup_(error_clear) HutchError err = {};
        const Target *target = connector->target;

        if (target->path)
                (void) error_set_code(&err, STATUS_UNAVAILABLE, r, "DAEMON_UNREACHABLE",
                                      "cannot connect to unix:%s: %s", target->path, what);
        else
                (void) error_set_code(&err, STATUS_UNAVAILABLE, r, "DAEMON_UNREACHABLE", "cannot connect to %s:%s: %s",
                                      target->host, target->port, what);
        finish(connector, -1, &err);
}

static void succeed(Connector *connector) {
        if (!connector->target->path)
                (void) setsockopt(connector->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        finish(connector, TAKE_FD(connector->fd), NULL);
}

static void try_next(Connector *connector);

/* The address at hand is of no use. */
static void give_up_address(Connector *connector, int r) {
        if (connector->next) {
                try_next(connector);
                return;
        }

        fail(connector, r, strerror(-r));
}

static void on_connected(uv_poll_t *poll, int status, int events) {
        Connector *connector = poll->data;
        socklen_t len = sizeof(int);
        int error = 0;

        (void) events;
        if (connector->finished)
                return;

        uv_poll_stop(poll);
        /* libuv says EBADF for whatever is wrong with a descriptor; the socket knows better. */
        if (getsockopt(connector->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                error = errno;
        else if (error == 0 && status < 0)
                error = -status;

        if (error == 0) {
                succeed(connector);
                return;
        }

        /* The handle is tied to the descriptor: the next address gets another. */
        connector->polling = false;
        give_up_address(connector, -error);
}

static void on_timer(uv_timer_t *timer);

static void arm_timer(Connector *connector, uint64_t pause_ms) {
        uint64_t now = uv_hrtime();
        uint64_t left_ms = connector->deadline > now ? (connector->deadline - now) / NSEC_PER_MSEC + 1 : 0;

        (void) uv_timer_start(&connector->timer, on_timer, pause_ms < left_ms ? pause_ms : left_ms, 0);
}

static void on_reopen(uv_handle_t *handle) {
        Connector *connector = handle->data;

        connector->poll_open = false;
        if (connector->finished)
                connector_release(connector);
        else
                try_next(connector);
}

/* Connects to the Unix socket, or to the next address. */
static void try_next(Connector *connector) {
        struct sockaddr_un local = { .sun_family = AF_UNIX };
        const struct sockaddr *address = (struct sockaddr *) &local;
        socklen_t len = sizeof(local);
        int r = 0;

        if (connector->poll_open) {
                uv_close((uv_handle_t *) &connector->poll, on_reopen);
                return;
        }

        connector->fd = fd_close(connector->fd);
        if (connector->target->path) {
                memcpy(local.sun_path, connector->target->path, strlen(connector->target->path));
        } else {
                address = connector->next->ai_addr;
                len = connector->next->ai_addrlen;
                connector->next = connector->next->ai_next;
        }

        connector->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connector->fd < 0 || connect(connector->fd, address, len) < 0)
                r = -errno;
        if (r == 0) {
                succeed(connector);
                return;
        }
        if (r == -EAGAIN && connector->target->path) {
                arm_timer(connector, QUEUE_FULL_PAUSE_MS);
                return;
        }
        if (r == -EINPROGRESS)
                r = uv_poll_init(connector->loop, &connector->poll, connector->fd);
        if (r < 0) {
                give_up_address(connector, r);
                return;
        }

        connector->poll.data = connector;
        connector->poll_open = true;
        connector->polling = true;
        r = uv_poll_start(&connector->poll, UV_WRITABLE, on_connected);
        if (r < 0)
                fail(connector, r, uv_strerror(r));
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *addresses) {
        Connector *connector = resolve->data;

        connector->resolving = false;
        connector->addresses = connector->next = addresses;
        if (connector->finished)
                connector_release(connector);
        else if (status < 0)
                fail(connector, -EHOSTUNREACH, uv_strerror(status));
        else
                try_next(connector);
}

static int resolve(Connector *connector) {
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV };
        int r;

        connector->resolve.data = connector;
        r = uv_getaddrinfo(connector->loop, &connector->resolve, on_resolved, connector->target->host,
                           connector->target->port, &hints);
        connector->resolving = r == 0;
        return r;
}

/* It begins here, so that nobody is called back by who asked; it ends here when it takes too long. */
static void on_timer(uv_timer_t *timer) {
        Connector *connector = timer->data;
        bool begun = connector->resolving || connector->polling || connector->addresses;
        int r;

        if (connector->finished)
                return;
        if (uv_hrtime() >= connector->deadline) {
                fail(connector, -ETIMEDOUT, "nobody answers in time");
                return;
        }
        if (begun)
                return;

        if (connector->target->path) {
                arm_timer(connector, UINT64_MAX);
                try_next(connector);
                return;
        }
        arm_timer(connector, UINT64_MAX);
        r = resolve(connector);
        if (r < 0)
                fail(connector, r, uv_strerror(r));
}

int connector_new(uv_loop_t *loop, const Target *target, uint64_t timeout,
                  void (*done)(void *user, ConnectorResult result), void *user, Connector **ret_connector) {
        Connector *connector = try_new0(Connector, 1);

        if (!connector)
                return -ENOMEM;

        *connector = (Connector){
                .loop = loop,
                .target = target,
                .done = done,
                .user = user,
                .deadline = uv_hrtime() + timeout,
                .fd = -1,
        };
        connector->timer.data = connector;
        (void) uv_timer_init(loop, &connector->timer);
        connector->timer_open = true;
        (void) uv_timer_start(&connector->timer, on_timer, 0, 0);

        *ret_connector = connector;
        return 0;
}
