/* SPDX-License-Identifier: Apache-2.0 */

/* One end of a pair is a socket on a loop; the other is a plain descriptor, or a second socket with TLS. */

#include "rpc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "rpc/tls.h"

#include "certificates.h"
#include "fail-alloc.h"
#include "test.h"

#define PATIENCE (60 * NSEC_PER_SEC)
#define MUCH ((size_t) 4 << 20) /* bytes; more than sockets hold */

static char dir[] = "/tmp/hutch-test-socket-XXXXXX";

static SocketScratch scratch;

/* A socket, and what was told of it. */
typedef struct End {
        Socket *socket;
        size_t n_established;
        size_t n_drained;
        size_t n_failed;
        size_t n_closed;
        int error; /* the latest, negative */
        char reason[ERROR_REASON_MAX + 1];
        uint8_t *received; /* of MUCH bytes */
        size_t len;
        size_t n_received;
        size_t stop_after; /* bytes, then stops reading; 0: never */
        bool closes;       /* at the first bytes */
        bool shuts_down;   /* when it failed */
        int refill_fd;     /* the other end, to which more is written when something came */
        size_t refill;     /* bytes left to write */
} End;

static void refill(End *end) {
        static const uint8_t bytes[10000];
        ssize_t n;

        while (end->refill > 0 &&
               (n = write(end->refill_fd, bytes, end->refill < sizeof(bytes) ? end->refill : sizeof(bytes))) > 0)
                end->refill -= (size_t) n;
}

static void on_established(void *user) {
        End *end = user;

        end->n_established++;
}

static void on_received(void *user, const uint8_t *bytes, size_t len) {
        End *end = user;

        end->n_received++;
        if (end->received) {
                assert_true(end->len + len <= MUCH);
                memcpy(end->received + end->len, bytes, len);
        }
        end->len += len;
        refill(end);
        if (end->stop_after > 0 && end->len >= end->stop_after)
                socket_set_reading(end->socket, false);
        if (end->closes)
                socket_close(end->socket);
}

static void on_drained(void *user) {
        End *end = user;

        end->n_drained++;
}

static void on_failed(void *user, const HutchError *err) {
        End *end = user;

        end->n_failed++;
        end->error = -err->error;
        memcpy(end->reason, err->reason, sizeof(end->reason));
        if (end->shuts_down)
                socket_shutdown(end->socket);
}

static void on_closed(void *user) {
        End *end = user;

        end->n_closed++;
        end->socket = NULL;
}

static const SocketEvents events = {
        .established = on_established,
        .received = on_received,
        .drained = on_drained,
        .failed = on_failed,
        .closed = on_closed,
};

typedef struct Fixture {
        uv_loop_t loop;
        End end;
        int fd; /* the other end */
} Fixture;

static void make_pair(int fds[2]) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static int set_up(void **state) {
        Fixture *f = new0(Fixture, 1);
        int fds[2];

        make_pair(fds);
        assert_int_equal(uv_loop_init(&f->loop), 0);
        f->fd = fds[1];
        assert_int_equal(socket_new(&f->loop, fds[0], NULL, &scratch, &events, &f->end, &f->end.socket), 0);
        *state = f;
        return 0;
}

/* Runs the loop until @condition holds. */
#define RUN_UNTIL(loop, condition)                                                                                     \
        do {                                                                                                           \
                uint64_t give_up_at = clock_monotonic_ns() + PATIENCE;                                                 \
                while (!(condition)) {                                                                                 \
                        assert_true(clock_monotonic_ns() < give_up_at);                                                \
                        (void) uv_run((loop), UV_RUN_NOWAIT);                                                          \
                }                                                                                                      \
        } while (0)

static void close_end(uv_loop_t *loop, End *end) {
        if (end->socket)
                socket_close(end->socket);
        RUN_UNTIL(loop, !end->socket);
        assert_int_equal(end->n_closed, 1);
        free(end->received);
}

static int tear_down(void **state) {
        Fixture *f = *state;

        close_end(&f->loop, &f->end);
        assert_int_equal(uv_loop_close(&f->loop), 0);
        fd_close(f->fd);
        free(f);
        return 0;
}

static uint8_t *make_bytes(size_t len) {
        uint8_t *bytes = new0(uint8_t, len);

        for (size_t i = 0; i < len; i++)
                bytes[i] = (uint8_t) (i % 251);
        return bytes;
}

/* Reads what is there. */
static size_t read_into(int fd, uint8_t *bytes, size_t size) {
        size_t len = 0;
        ssize_t n;

        while (len < size && (n = read(fd, bytes + len, size - len)) > 0)
                len += (size_t) n;
        return len;
}

static void bytes_are_told_as_they_come(void **state) {
        Fixture *f = *state;

        f->end.received = new0(uint8_t, MUCH);
        assert_int_equal(write(f->fd, "hello", 5), 5);
        RUN_UNTIL(&f->loop, f->end.len == 5);
        assert_memory_equal(f->end.received, "hello", 5);
        assert_int_equal(f->end.n_received, 1);
        assert_int_equal(f->end.n_failed, 0);
}

static void writes_go_to_the_kernel_at_once(void **state) {
        Fixture *f = *state;
        uint8_t bytes[16];

        assert_int_equal(socket_write(f->end.socket, "hello", 5), 0);
        assert_int_equal(socket_pending(f->end.socket), 0);
        assert_int_equal(read(f->fd, bytes, sizeof(bytes)), 5); /* without a run of the loop */
        assert_memory_equal(bytes, "hello", 5);
}

static void parts_are_written_in_their_order(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH), *received = new0(uint8_t, MUCH);
        Fixture *f = *state;
        struct iovec parts[] = {
                { .iov_base = sent, .iov_len = 10 },
                { .iov_base = sent + 10, .iov_len = 0 },
                { .iov_base = sent + 10, .iov_len = MUCH / 2 },
                { .iov_base = sent + 10 + MUCH / 2, .iov_len = MUCH - MUCH / 2 - 10 },
        };
        size_t len = 0;

        assert_int_equal(socket_write_parts(f->end.socket, parts, 4), 1);
        RUN_UNTIL(&f->loop, (len += read_into(f->fd, received + len, MUCH - len)) == MUCH);
        assert_memory_equal(received, sent, MUCH);
}

static void what_the_kernel_does_not_take_waits(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH), *received = new0(uint8_t, MUCH);
        Fixture *f = *state;
        size_t len = 0;

        assert_int_equal(socket_write(f->end.socket, sent, MUCH / 2), 1);
        assert_true(socket_pending(f->end.socket) > 0);
        assert_true(socket_pending(f->end.socket) < MUCH / 2);
        len = read_into(f->fd, received, 50000); /* there is room again, but not for what comes later */
        assert_int_equal(socket_write(f->end.socket, sent + MUCH / 2, MUCH / 2), 1);
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->end.n_drained, 0);

        RUN_UNTIL(&f->loop, (len += read_into(f->fd, received + len, MUCH - len)) == MUCH);
        assert_memory_equal(received, sent, MUCH);
        RUN_UNTIL(&f->loop, f->end.n_drained == 1);
        assert_int_equal(socket_pending(f->end.socket), 0);
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->end.n_drained, 1);
}

static void one_turn_reads_a_share(void **state) {
        Fixture *f = *state;

        f->end.refill_fd = f->fd;
        f->end.refill = MUCH;
        refill(&f->end);
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(f->end.len > 0);
        assert_true(f->end.len <= (256 << 10));
        RUN_UNTIL(&f->loop, f->end.len == MUCH);
}

static void reading_can_be_stopped(void **state) {
        Fixture *f = *state;

        socket_set_reading(f->end.socket, false);
        assert_int_equal(write(f->fd, "hello", 5), 5);
        for (int i = 0; i < 10; i++)
                (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->end.len, 0);

        socket_set_reading(f->end.socket, true);
        RUN_UNTIL(&f->loop, f->end.len == 5);
}

static void reading_can_be_stopped_by_what_was_read(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(150000);
        Fixture *f = *state;

        f->end.stop_after = 1;
        assert_int_equal(write(f->fd, sent, 150000), 150000);
        for (int i = 0; i < 10; i++)
                (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->end.n_received, 1);
        assert_true(f->end.len < 150000);
}

static void the_peers_end_is_told_after_its_bytes(void **state) {
        Fixture *f = *state;

        assert_int_equal(write(f->fd, "bye", 3), 3);
        f->fd = fd_close(f->fd);
        RUN_UNTIL(&f->loop, f->end.n_failed == 1);
        assert_int_equal(f->end.len, 3);
        assert_int_equal(f->end.error, -EPIPE);
        assert_string_equal(f->end.reason, "CONNECTION_CLOSED");

        assert_int_equal(socket_write(f->end.socket, "x", 1), -EPIPE);
        for (int i = 0; i < 10; i++)
                (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->end.n_failed, 1);
}

/* The peer closes with bytes unread, which resets the connection. */
static void a_reset_is_told_after_the_peers_bytes(void **state) {
        Fixture *f = *state;

        assert_int_equal(socket_write(f->end.socket, "unread", 6), 0);
        assert_int_equal(write(f->fd, "bye", 3), 3);
        f->fd = fd_close(f->fd);
        RUN_UNTIL(&f->loop, f->end.n_failed == 1);
        assert_int_equal(f->end.len, 3);
        assert_true(f->end.error == -ECONNRESET || f->end.error == -EPIPE);
}

static void a_failed_write_is_told_while_nothing_is_read(void **state) {
        Fixture *f = *state;

        socket_set_reading(f->end.socket, false);
        f->fd = fd_close(f->fd);
        assert_int_equal(socket_write(f->end.socket, "x", 1), -EPIPE);
        assert_int_equal(f->end.n_failed, 0); /* not inside of socket_write() */
        RUN_UNTIL(&f->loop, f->end.n_failed == 1);
}

static void a_reset_while_bytes_wait_is_told(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH);
        Fixture *f = *state;

        socket_set_reading(f->end.socket, false);
        assert_int_equal(socket_write(f->end.socket, sent, MUCH), 1);
        (void) uv_run(&f->loop, UV_RUN_NOWAIT);
        f->fd = fd_close(f->fd);
        RUN_UNTIL(&f->loop, f->end.n_failed == 1);
        assert_int_equal(f->end.n_drained, 0);
}

static void a_socket_may_be_closed_by_what_it_tells(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(150000);
        Fixture *f = *state;
        uint8_t byte;

        f->end.closes = true;
        assert_int_equal(write(f->fd, sent, 150000), 150000);
        RUN_UNTIL(&f->loop, f->end.n_closed == 1);
        assert_int_equal(f->end.n_received, 1);
        assert_int_equal(f->end.n_failed, 0);
        assert_true(read(f->fd, &byte, 1) <= 0);
}

static void shutdown_sends_what_waits_and_then_the_end(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH), *received = new0(uint8_t, MUCH + 1);
        Fixture *f = *state;
        size_t len = 0;

        assert_int_equal(socket_write(f->end.socket, sent, MUCH), 1);
        socket_shutdown(f->end.socket);
        assert_int_equal(socket_write(f->end.socket, "x", 1), -EPIPE);
        assert_int_equal(write(f->fd, "too late", 8), 8);

        RUN_UNTIL(&f->loop, (len += read_into(f->fd, received + len, MUCH + 1 - len)) == MUCH);
        RUN_UNTIL(&f->loop, read(f->fd, received, 1) == 0);
        assert_int_equal(f->end.len, 0);
        assert_int_equal(f->end.n_failed, 0);

        f->fd = fd_close(f->fd);
        RUN_UNTIL(&f->loop, f->end.n_failed == 1);
        assert_int_equal(f->end.error, -EPIPE);
}

/* Two sockets with TLS, one of them a server. */
typedef struct TlsPair {
        uv_loop_t loop;
        TlsContext *server_context, *client_context;
        End server, client;
} TlsPair;

static void tls_pair_init(TlsPair *pair, const char *ca, TlsClientCertificates certificates) {
        TlsServerOptions server_options = {
                .certificate_file = certificate_file(dir, "server", ".pem"),
                .key_file = certificate_file(dir, "server", ".key"),
                .client_ca_file = certificate_file(dir, "ca", ".pem"),
                .client_certificates = certificates,
        };
        TlsClientOptions client_options = { .ca_file = certificate_file(dir, ca, ".pem") };
        Tls *server, *client;
        int fds[2];

        make_pair(fds);
        assert_int_equal(uv_loop_init(&pair->loop), 0);
        assert_int_equal(tls_context_new_server(&server_options, &pair->server_context, NULL), 0);
        assert_int_equal(tls_context_new_client(&client_options, &pair->client_context, NULL), 0);
        assert_int_equal(tls_new(pair->server_context, NULL, &server), 0);
        assert_int_equal(tls_new(pair->client_context, "localhost", &client), 0);
        assert_int_equal(
                socket_new(&pair->loop, fds[0], server, &scratch, &events, &pair->server, &pair->server.socket), 0);
        assert_int_equal(
                socket_new(&pair->loop, fds[1], client, &scratch, &events, &pair->client, &pair->client.socket), 0);
}

static void tls_pair_done(TlsPair *pair) {
        close_end(&pair->loop, &pair->server);
        close_end(&pair->loop, &pair->client);
        assert_int_equal(uv_loop_close(&pair->loop), 0);
        tls_context_unref(pair->server_context);
        tls_context_unref(pair->client_context);
}

static void bytes_come_through_tls_both_ways(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH);
        TlsPair pair = {};

        pair.client.received = new0(uint8_t, MUCH);
        pair.server.received = new0(uint8_t, MUCH);
        tls_pair_init(&pair, "ca", TLS_CLIENT_CERTIFICATES_NONE);
        RUN_UNTIL(&pair.loop, pair.client.n_established == 1 && pair.server.n_established == 1);

        assert_int_equal(socket_write(pair.client.socket, sent, MUCH), 1);
        assert_int_equal(socket_write(pair.server.socket, sent, MUCH), 1);
        RUN_UNTIL(&pair.loop, pair.client.len == MUCH && pair.server.len == MUCH);
        assert_memory_equal(pair.client.received, sent, MUCH);
        assert_memory_equal(pair.server.received, sent, MUCH);
        assert_int_equal(pair.client.n_drained, 1);
        assert_int_equal(pair.server.n_drained, 1);

        socket_shutdown(pair.client.socket);
        RUN_UNTIL(&pair.loop, pair.server.n_failed == 1);
        assert_int_equal(pair.server.error, -EPIPE);
        tls_pair_done(&pair);
}

static void a_failed_handshake_is_told_at_both_ends(void **state) {
        TlsPair pair = {};

        pair.client.shuts_down = true;
        tls_pair_init(&pair, "other-ca", TLS_CLIENT_CERTIFICATES_NONE);
        RUN_UNTIL(&pair.loop, pair.client.n_failed == 1 && pair.server.n_failed == 1);
        assert_int_equal(pair.client.error, -EPROTO);
        assert_string_equal(pair.client.reason, "TLS_CERTIFICATE_UNTRUSTED");
        assert_string_equal(pair.server.reason, "TLS_CERTIFICATE_UNTRUSTED");
        assert_int_equal(pair.client.n_established + pair.server.n_established, 0);
        tls_pair_done(&pair);
}

/* The client's handshake is done, and it has begun to speak, when the server finds that the certificate is missing. */
static void a_client_that_spoke_on_hears_why_it_was_refused(void **state) {
        TlsPair pair = {};

        pair.server.shuts_down = true;
        tls_pair_init(&pair, "ca", TLS_CLIENT_CERTIFICATES_REQUIRED);
        RUN_UNTIL(&pair.loop, pair.client.n_established == 1);
        (void) socket_write(pair.client.socket, "hello", 5);
        RUN_UNTIL(&pair.loop, pair.client.n_failed == 1 && pair.server.n_failed >= 1);
        assert_string_equal(pair.client.reason, "TLS_CERTIFICATE_REQUIRED");
        assert_int_equal(pair.server.len, 0);
        assert_int_equal(pair.server.n_established, 0);
        tls_pair_done(&pair);
}

static void an_end_during_the_handshake_is_told(void **state) {
        TlsPair pair = {};

        tls_pair_init(&pair, "ca", TLS_CLIENT_CERTIFICATES_NONE);
        socket_close(pair.client.socket);
        RUN_UNTIL(&pair.loop, pair.server.n_failed == 1);
        assert_int_equal(pair.server.error, -ECONNRESET);
        assert_string_equal(pair.server.reason, "TLS_CLOSED");
        tls_pair_done(&pair);
}

static bool is_open(int fd) {
        return fcntl(fd, F_GETFD) >= 0;
}

static void what_was_given_is_taken_also_when_memory_is_out(void **state) {
        uv_loop_t loop;
        End end = {};
        int fds[2];

        assert_int_equal(uv_loop_init(&loop), 0);
        make_pair(fds);
        fail_alloc_after(0);
        assert_int_equal(socket_new(&loop, fds[0], NULL, &scratch, &events, &end, &end.socket), -ENOMEM);
        fail_alloc_off();
        assert_false(is_open(fds[0]));
        fd_close(fds[1]);
        assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_write_fails_when_memory_is_out(void **state) {
        _cleanup_free_ uint8_t *sent = make_bytes(MUCH);
        Fixture *f = *state;

        fail_alloc_after(0);
        assert_int_equal(socket_write(f->end.socket, sent, MUCH), -ENOMEM);
        fail_alloc_off();
}

static int make_certificates(void **state) {
        static const CertificateSpec specs[] = {
                { .name = "ca", .is_ca = true },
                { .name = "other-ca", .is_ca = true },
                { .name = "server", .issuer = "ca", .is_for = "DNS:localhost" },
        };

        assert_non_null(mkdtemp(dir));
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
                certificate_make(dir, &specs[i]);
        return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
        return remove(path);
}

static int remove_certificates(void **state) {
        return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(bytes_are_told_as_they_come, set_up, tear_down),
                cmocka_unit_test_setup_teardown(writes_go_to_the_kernel_at_once, set_up, tear_down),
                cmocka_unit_test_setup_teardown(parts_are_written_in_their_order, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_the_kernel_does_not_take_waits, set_up, tear_down),
                cmocka_unit_test_setup_teardown(one_turn_reads_a_share, set_up, tear_down),
                cmocka_unit_test_setup_teardown(reading_can_be_stopped, set_up, tear_down),
                cmocka_unit_test_setup_teardown(reading_can_be_stopped_by_what_was_read, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_peers_end_is_told_after_its_bytes, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_reset_is_told_after_the_peers_bytes, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_failed_write_is_told_while_nothing_is_read, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_reset_while_bytes_wait_is_told, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_socket_may_be_closed_by_what_it_tells, set_up, tear_down),
                cmocka_unit_test_setup_teardown(shutdown_sends_what_waits_and_then_the_end, set_up, tear_down),
                cmocka_unit_test(bytes_come_through_tls_both_ways),
                cmocka_unit_test(a_failed_handshake_is_told_at_both_ends),
                cmocka_unit_test(a_client_that_spoke_on_hears_why_it_was_refused),
                cmocka_unit_test(an_end_during_the_handshake_is_told),
                cmocka_unit_test(what_was_given_is_taken_also_when_memory_is_out),
                cmocka_unit_test_setup_teardown(a_write_fails_when_memory_is_out, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
