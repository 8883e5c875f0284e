/* SPDX-License-Identifier: Apache-2.0 */

/* A client and a server, joined by nothing but memory: what one puts out the other receives. */

#include "rpc/tls.h"

#include <errno.h>
#include <ftw.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/strings.h"

#include "certificates.h"
#include "fail-alloc.h"
#include "test.h"

static char dir[] = "/tmp/hutch-test-tls-XXXXXX";

static const char *file(const char *name, const char *suffix) {
        return certificate_file(dir, name, suffix);
}

typedef struct Pair {
        TlsContext *client_context, *server_context;
        Tls *client, *server;
        HutchError client_error, server_error;
        int client_result, server_result; /* of the handshake */
} Pair;

static void pair_clear(Pair *pair) {
        tls_free(pair->client);
        tls_free(pair->server);
        tls_context_unref(pair->client_context);
        tls_context_unref(pair->server_context);
        error_clear(&pair->client_error);
        error_clear(&pair->server_error);
        *pair = (Pair){};
}

/* Certificates that are as they should be, and all options at their defaults. */
static TlsServerOptions server_options(void) {
        return (TlsServerOptions){ .certificate_file = file("server", ".pem"), .key_file = file("server", ".key") };
}

static TlsClientOptions client_options(void) {
        return (TlsClientOptions){ .ca_file = file("ca", ".pem") };
}

static void pair_init(Pair *pair, const TlsServerOptions *server, const TlsClientOptions *client, const char *name) {
        assert_int_equal(tls_context_new_server(server, &pair->server_context, NULL), 0);
        assert_int_equal(tls_context_new_client(client, &pair->client_context, NULL), 0);
        assert_int_equal(tls_new(pair->server_context, NULL, &pair->server), 0);
        assert_int_equal(tls_new(pair->client_context, name, &pair->client), 0);
}

/* Gives all that @from has put out to @to, in pieces of @piece bytes, and goes on with its handshake. */
static int carry(Tls *from, Tls *to, size_t piece, HutchError *err) {
        int r = 0;

        while (tls_output(from)->len > 0) {
                uint8_t bytes[4096];
                size_t len = byte_queue_read(tls_output(from), bytes, piece < sizeof(bytes) ? piece : sizeof(bytes));

                tls_receive(to, bytes, len);
                r = tls_handshake(to, err);
                if (r != 0)
                        return r;
        }

        return r;
}

static void pair_shake_hands(Pair *pair, size_t piece) {
        pair->client_result = tls_handshake(pair->client, &pair->client_error);
        for (int i = 0; i < 10; i++) {
                if (pair->server_result == 0)
                        pair->server_result = carry(pair->client, pair->server, piece, &pair->server_error);
                if (pair->client_result == 0)
                        pair->client_result = carry(pair->server, pair->client, piece, &pair->client_error);
        }
}

/* Reads with @tls all that @from has put out. Returns how many bytes, or the error. */
static ssize_t pair_read(Tls *from, Tls *tls, uint8_t *buffer, size_t size, HutchError *err) {
        uint8_t bytes[20000];
        size_t total = 0;

        while (tls_output(from)->len > 0) {
                ssize_t n;

                tls_receive(tls, bytes, byte_queue_read(tls_output(from), bytes, sizeof(bytes)));
                while ((n = tls_read(tls, buffer + total, size - total, err)) > 0)
                        total += (size_t) n;
                if (n < 0)
                        return n;
        }

        return (ssize_t) total;
}

static void bytes_come_through_both_ways(void **state) {
        static uint8_t sent[100000], received[sizeof(sent)];
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();
        _cleanup_free_ char *subject = NULL;
        int64_t end;

        for (size_t i = 0; i < sizeof(sent); i++)
                sent[i] = (uint8_t) (i % 251);
        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        assert_int_equal(pair.client_result, 1);
        assert_int_equal(pair.server_result, 1);

        assert_int_equal(tls_write(pair.client, sent, sizeof(sent), NULL), 0);
        assert_int_equal(pair_read(pair.client, pair.server, received, sizeof(received), NULL), sizeof(sent));
        assert_memory_equal(received, sent, sizeof(sent));

        memset(received, 0, sizeof(received));
        assert_int_equal(tls_write(pair.server, sent, sizeof(sent), NULL), 0);
        assert_int_equal(pair_read(pair.server, pair.client, received, sizeof(received), NULL), sizeof(sent));
        assert_memory_equal(received, sent, sizeof(sent));

        assert_int_equal(tls_peer_certificate(pair.server, &subject, &end), 0);
        assert_null(subject);
        assert_int_equal(tls_peer_certificate(pair.client, &subject, &end), 0);
        assert_string_equal(subject, "CN=server,O=Hutch Tests");
}

static void handshakes_work_byte_by_byte(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();

        pair_init(&pair, &server, &client, "127.0.0.1");
        pair_shake_hands(&pair, 1);
        assert_int_equal(pair.client_result, 1);
        assert_int_equal(pair.server_result, 1);
}

static void clients_certificates_are_verified(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();
        _cleanup_free_ char *subject = NULL;
        int64_t end;

        server.client_ca_file = file("ca", ".pem");
        server.client_certificates = TLS_CLIENT_CERTIFICATES_REQUIRED;
        client.certificate_file = file("alice", ".pem");
        client.key_file = file("alice", ".key");
        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        assert_int_equal(pair.client_result, 1);
        assert_int_equal(pair.server_result, 1);
        assert_int_equal(tls_peer_certificate(pair.server, &subject, &end), 0);
        assert_string_equal(subject, "CN=alice,O=Hutch Tests");
        assert_in_range(end - time(NULL), 29 * 86400, 30 * 86400);
}

static void wanted_certificates_may_be_missing(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();

        server.client_ca_file = file("ca", ".pem");
        server.client_certificates = TLS_CLIENT_CERTIFICATES_WANTED;
        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        assert_int_equal(pair.client_result, 1);
        assert_int_equal(pair.server_result, 1);
}

/* What the client hears when the server refuses it after its own handshake was done. */
static void pair_read_client_error(Pair *pair) {
        uint8_t byte;

        assert_int_equal(pair->client_result, 1);
        pair->client_result = (int) pair_read(pair->server, pair->client, &byte, 1, &pair->client_error);
}

typedef struct Refusal {
        const char *what;
        const char *name; /* that the client connects to */
        const char *server_certificate;
        const char *client_ca; /* the server's */
        bool wanted_only;
        const char *client_certificate;
        const char *ca;                            /* the client's */
        const char *server_reason, *client_reason; /* NULL: does not matter */
        const char *server_text, *client_text;
} Refusal;

static void bad_certificates_are_refused_and_both_sides_hear_why(void **state) {
        static const Refusal refusals[] = {
                { .what = "the server's has expired",
                  .server_certificate = "expired",
                  .client_reason = "TLS_CERTIFICATE_EXPIRED",
                  .client_text = "the server has a certificate that has expired: renew it",
                  .server_reason = "TLS_CERTIFICATE_EXPIRED",
                  .server_text = "the client says that our certificate has expired" },
                { .what = "the server's is of the future",
                  .server_certificate = "future",
                  .client_reason = "TLS_CERTIFICATE_EXPIRED",
                  .client_text = "check the clocks" },
                { .what = "the server's is of another CA",
                  .ca = "other-ca",
                  .client_reason = "TLS_CERTIFICATE_UNTRUSTED",
                  .client_text = "the server has a certificate of a CA that is not trusted here",
                  .server_reason = "TLS_CERTIFICATE_UNTRUSTED",
                  .server_text = "the client does not trust the CA of our certificate" },
                { .what = "the server's is signed by itself",
                  .server_certificate = "self",
                  .client_reason = "TLS_CERTIFICATE_UNTRUSTED" },
                { .what = "the server's is for another name",
                  .name = "example.com",
                  .client_reason = "TLS_CERTIFICATE_NAME",
                  .client_text = "the server has a certificate for another name",
                  .server_reason = "TLS_CERTIFICATE_INVALID" },
                { .what = "the server's is for another address",
                  .name = "127.0.0.2",
                  .client_reason = "TLS_CERTIFICATE_NAME" },
                { .what = "the name is only in the subject",
                  .name = "alice",
                  .server_certificate = "alice",
                  .client_reason = "TLS_CERTIFICATE_NAME" },
                { .what = "the client gives none",
                  .client_ca = "ca",
                  .server_reason = "TLS_CERTIFICATE_REQUIRED",
                  .server_text = "the client gave no certificate, and one is required here",
                  .client_reason = "TLS_CERTIFICATE_REQUIRED",
                  .client_text = "the server requires a certificate, and none was given" },
                { .what = "the client's is of another CA",
                  .client_ca = "other-ca",
                  .client_certificate = "alice",
                  .server_reason = "TLS_CERTIFICATE_UNTRUSTED",
                  .client_reason = "TLS_CERTIFICATE_UNTRUSTED" },
                { .what = "the client's is of another CA, and only wanted",
                  .client_ca = "other-ca",
                  .wanted_only = true,
                  .client_certificate = "alice",
                  .server_reason = "TLS_CERTIFICATE_UNTRUSTED",
                  .client_reason = "TLS_CERTIFICATE_UNTRUSTED" },
                { .what = "the client's has expired",
                  .client_ca = "ca",
                  .client_certificate = "expired",
                  .server_reason = "TLS_CERTIFICATE_EXPIRED",
                  .client_reason = "TLS_CERTIFICATE_EXPIRED" },
        };

        for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
                const Refusal *refusal = &refusals[i];
                _cleanup_(pair_clear) Pair pair = {};
                TlsServerOptions server = server_options();
                TlsClientOptions client = client_options();

                if (refusal->server_certificate) {
                        server.certificate_file = file(refusal->server_certificate, ".pem");
                        server.key_file = file(refusal->server_certificate, ".key");
                }
                if (refusal->client_ca) {
                        server.client_ca_file = file(refusal->client_ca, ".pem");
                        server.client_certificates = refusal->wanted_only ? TLS_CLIENT_CERTIFICATES_WANTED
                                                                          : TLS_CLIENT_CERTIFICATES_REQUIRED;
                }
                if (refusal->client_certificate) {
                        client.certificate_file = file(refusal->client_certificate, ".pem");
                        client.key_file = file(refusal->client_certificate, ".key");
                }
                if (refusal->ca)
                        client.ca_file = file(refusal->ca, ".pem");

                pair_init(&pair, &server, &client, refusal->name ? refusal->name : "localhost");
                pair_shake_hands(&pair, 4096);
                if (refusal->client_ca)
                        pair_read_client_error(&pair);

                print_message("%s: %s; %s\n", refusal->what, error_message(&pair.server_error),
                              error_message(&pair.client_error));
                assert_int_equal(pair.server_result, -EPROTO);
                assert_int_equal(pair.client_result, -EPROTO);
                if (refusal->server_reason)
                        assert_string_equal(pair.server_error.reason, refusal->server_reason);
                if (refusal->client_reason)
                        assert_string_equal(pair.client_error.reason, refusal->client_reason);
                if (refusal->server_text)
                        assert_non_null(strstr(error_message(&pair.server_error), refusal->server_text));
                if (refusal->client_text)
                        assert_non_null(strstr(error_message(&pair.client_error), refusal->client_text));

                /* Nothing gets through, and asking again does no harm. */
                assert_int_equal(tls_write(pair.server, "x", 1, NULL), -EPROTO);
                assert_int_equal(tls_handshake(pair.client, NULL), -EPROTO);
                assert_int_equal(tls_read(pair.client, (uint8_t[1]){}, 1, NULL), -EPROTO);
        }
}

/* A peer with settings of its own: OpenSSL, as others use it. */
static SSL *foreign_new(bool server, int max_version, const char *alpn, BIO **ret_in, BIO **ret_out) {
        SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
        SSL *ssl;

        if (server) {
                assert_int_equal(SSL_CTX_use_certificate_chain_file(context, file("server", ".pem")), 1);
                assert_int_equal(SSL_CTX_use_PrivateKey_file(context, file("server", ".key"), SSL_FILETYPE_PEM), 1);
        }
        assert_int_equal(SSL_CTX_set_max_proto_version(context, max_version), 1);
        ssl = SSL_new(context);
        assert_non_null(ssl);
        if (alpn)
                assert_int_equal(SSL_set_alpn_protos(ssl, (const uint8_t *) alpn, (unsigned) strlen(alpn)), 0);
        *ret_in = BIO_new(BIO_s_mem());
        *ret_out = BIO_new(BIO_s_mem());
        SSL_set_bio(ssl, *ret_in, *ret_out);
        if (server)
                SSL_set_accept_state(ssl);
        else
                SSL_set_connect_state(ssl);
        SSL_CTX_free(context);
        return ssl;
}

/* Runs a handshake between @tls and a foreign peer. Returns what came of it at our side. */
static int shake_foreign_hands(Tls *tls, SSL *ssl, BIO *in, BIO *out, HutchError *err) {
        int r = tls_handshake(tls, err);

        for (int i = 0; i < 10 && r == 0; i++) {
                uint8_t bytes[20000];
                int len;

                len = (int) byte_queue_read(tls_output(tls), bytes, sizeof(bytes));
                if (len > 0)
                        assert_int_equal(BIO_write(in, bytes, len), len);
                (void) SSL_do_handshake(ssl);
                len = BIO_read(out, bytes, sizeof(bytes));
                if (len <= 0)
                        continue;
                tls_receive(tls, bytes, (size_t) len);
                r = tls_handshake(tls, err);
        }

        return r;
}

static void only_http2_is_spoken(void **state) {
        static const char *const offers[] = { "\x02h2", "\x08grpc-exp\x02h2", "\x08http/1.1", NULL };

        for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
                _cleanup_(tls_context_unrefp) TlsContext *context = NULL;
                _cleanup_(error_clear) HutchError err = {};
                _cleanup_(tls_freep) Tls *tls = NULL;
                TlsServerOptions options = server_options();
                BIO *in, *out;
                SSL *ssl = foreign_new(false, 0, offers[i], &in, &out);

                assert_int_equal(tls_context_new_server(&options, &context, NULL), 0);
                assert_int_equal(tls_new(context, NULL, &tls), 0);
                if (i < 2) {
                        assert_int_equal(shake_foreign_hands(tls, ssl, in, out, &err), 1);
                } else {
                        assert_int_equal(shake_foreign_hands(tls, ssl, in, out, &err), -EPROTO);
                        assert_string_equal(err.reason, "TLS_PROTOCOL");
                        assert_non_null(strstr(error_message(&err), "the client does not speak HTTP/2"));
                        /* The alert no_application_protocol. */
                        assert_int_equal(tls_output(tls)->len, 7);
                        assert_int_equal(byte_queue_peek(tls_output(tls), &(size_t){ 0 })[6],
                                         SSL_AD_NO_APPLICATION_PROTOCOL);
                }
                SSL_free(ssl);
        }
}

static void servers_without_http2_are_refused(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *context = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(tls_freep) Tls *tls = NULL;
        TlsClientOptions options = client_options();
        BIO *in, *out;
        SSL *ssl = foreign_new(true, 0, NULL, &in, &out);

        assert_int_equal(tls_context_new_client(&options, &context, NULL), 0);
        assert_int_equal(tls_new(context, "localhost", &tls), 0);
        assert_int_equal(shake_foreign_hands(tls, ssl, in, out, &err), -EPROTO);
        assert_string_equal(err.reason, "TLS_PROTOCOL");
        assert_non_null(strstr(error_message(&err), "the server does not speak HTTP/2"));
        SSL_free(ssl);
}

static void tls12_is_spoken_on_request_only(void **state) {
        for (int allowed = 0; allowed < 2; allowed++) {
                _cleanup_(tls_context_unrefp) TlsContext *context = NULL;
                _cleanup_(error_clear) HutchError err = {};
                _cleanup_(tls_freep) Tls *tls = NULL;
                TlsServerOptions options = server_options();
                BIO *in, *out;
                SSL *ssl = foreign_new(false, TLS1_2_VERSION, "\x02h2", &in, &out);

                options.allow_tls12 = allowed;
                assert_int_equal(tls_context_new_server(&options, &context, NULL), 0);
                assert_int_equal(tls_new(context, NULL, &tls), 0);
                assert_int_equal(shake_foreign_hands(tls, ssl, in, out, &err), allowed ? 1 : -EPROTO);
                if (!allowed)
                        assert_string_equal(err.reason, "TLS_VERSION");
                SSL_free(ssl);
        }
}

static void plaintext_is_recognized(void **state) {
        static const struct {
                const char *bytes;
                bool from_server;
        } speeches[] = {
                { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false },
                { "GET / HTTP/1.1\r\n\r\n", false },
                { "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b", false },
                { "HTTP/1.1 400 Bad Request\r\n\r\n", true },
        };

        for (size_t i = 0; i < sizeof(speeches) / sizeof(speeches[0]); i++) {
                _cleanup_(pair_clear) Pair pair = {};
                _cleanup_(error_clear) HutchError err = {};
                TlsServerOptions server = server_options();
                TlsClientOptions client = client_options();
                Tls *tls;

                pair_init(&pair, &server, &client, "localhost");
                tls = speeches[i].from_server ? pair.client : pair.server;
                assert_int_equal(tls_handshake(tls, NULL), 0);
                tls_receive(tls, speeches[i].bytes, strlen(speeches[i].bytes));
                assert_int_equal(tls_handshake(tls, &err), -EPROTO);
                assert_string_equal(err.reason, "TLS_PLAINTEXT");
                assert_non_null(strstr(error_message(&err), "use TLS on both sides, or on neither"));
        }
}

static void servers_frames_in_plaintext_are_recognized(void **state) {
        static const uint8_t settings[] = { 0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100 };
        _cleanup_(pair_clear) Pair pair = {};
        _cleanup_(error_clear) HutchError err = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();

        pair_init(&pair, &server, &client, "localhost");
        assert_int_equal(tls_handshake(pair.client, NULL), 0);
        tls_receive(pair.client, settings, sizeof(settings));
        assert_int_equal(tls_handshake(pair.client, &err), -EPROTO);
        assert_string_equal(err.reason, "TLS_PLAINTEXT");
}

static void ends_are_told_apart(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();
        uint8_t byte;

        /* During the handshake. */
        pair_init(&pair, &server, &client, "localhost");
        assert_int_equal(tls_handshake(pair.client, NULL), 0);
        tls_receive_end(pair.client);
        assert_int_equal(tls_handshake(pair.client, &pair.client_error), -ECONNRESET);
        assert_string_equal(pair.client_error.reason, "TLS_CLOSED");
        assert_non_null(strstr(error_message(&pair.client_error), "during the handshake"));
        pair_clear(&pair);

        /* In order. */
        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        tls_close(pair.client);
        assert_int_equal(pair_read(pair.client, pair.server, &byte, 1, NULL), -EPIPE);
        pair_clear(&pair);

        /* Not in order. */
        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        tls_receive_end(pair.server);
        assert_int_equal(tls_read(pair.server, &byte, 1, NULL), -ECONNRESET);
}

static void changed_bytes_are_noticed(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();
        uint8_t bytes[100], byte;
        size_t len;

        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        assert_int_equal(tls_write(pair.client, "secret", 6, NULL), 0);
        len = byte_queue_read(tls_output(pair.client), bytes, sizeof(bytes));
        bytes[len - 1] ^= 1;
        tls_receive(pair.server, bytes, len);
        assert_int_equal(tls_read(pair.server, &byte, 1, &pair.server_error), -EPROTO);
        assert_string_equal(pair.server_error.reason, "TLS_FAILED");
}

static void write_text(const char *path, const char *text) {
        FILE *stream = fopen(path, "we");

        assert_non_null(stream);
        assert_true(fputs(text, stream) >= 0);
        assert_int_equal(fclose(stream), 0);
}

static void write_encrypted_key(const char *path) {
        FILE *stream = fopen(path, "we");
        EVP_PKEY *key = EVP_EC_gen("P-256");

        assert_non_null(stream);
        assert_int_equal(PEM_write_PKCS8PrivateKey(stream, key, EVP_aes_256_cbc(), "secret", 6, NULL, NULL), 1);
        assert_int_equal(fclose(stream), 0);
        EVP_PKEY_free(key);
}

static void bad_files_are_named(void **state) {
        const struct {
                const char *certificate, *key, *client_ca, *named;
                int r;
        } cases[] = {
                { file("missing", ".pem"), file("server", ".key"), NULL, "missing.pem", -ENOENT },
                { file("server", ".pem"), file("missing", ".key"), NULL, "missing.key", -ENOENT },
                { file("garbage", ".pem"), file("server", ".key"), NULL, "garbage.pem", -EINVAL },
                { file("server", ".pem"), file("garbage", ".pem"), NULL, "garbage.pem", -EINVAL },
                { file("server", ".pem"), file("encrypted", ".key"), NULL, "encrypted.key", -EINVAL },
                { file("server", ".pem"), file("alice", ".key"), NULL, "alice.key", -EINVAL },
                { file("server", ".pem"), NULL, NULL, "together", -EINVAL },
                { file("server", ".pem"), file("server", ".key"), file("missing", ".pem"), "missing.pem", -ENOENT },
                { file("server", ".pem"), file("server", ".key"), file("garbage", ".pem"), "garbage.pem", -EINVAL },
                { file("server", ".pem"), file("server", ".key"), "", "", -ENOENT },
        };

        write_text(file("garbage", ".pem"), "this is not a certificate\n");
        write_encrypted_key(file("encrypted", ".key"));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_(error_clear) HutchError err = {};
                TlsServerOptions options = {
                        .certificate_file = cases[i].certificate,
                        .key_file = cases[i].key,
                        .client_ca_file = cases[i].client_ca,
                        .client_certificates =
                                cases[i].client_ca ? TLS_CLIENT_CERTIFICATES_WANTED : TLS_CLIENT_CERTIFICATES_NONE,
                };
                TlsContext *context = NULL;

                assert_int_equal(tls_context_new_server(&options, &context, &err), cases[i].r);
                assert_string_equal(err.reason, "TLS_FILE");
                assert_non_null(strstr(error_message(&err), cases[i].named));
                assert_null(context);
        }
}

static void a_ca_is_needed_to_verify_clients(void **state) {
        _cleanup_(error_clear) HutchError err = {};
        TlsServerOptions options = server_options();
        TlsContext *context;

        options.client_certificates = TLS_CLIENT_CERTIFICATES_REQUIRED;
        assert_int_equal(tls_context_new_server(&options, &context, &err), -EINVAL);
        assert_string_equal(err.reason, "TLS_FILE");
}

static void clients_need_a_name(void **state) {
        _cleanup_(tls_context_unrefp) TlsContext *context = NULL;
        TlsClientOptions options = client_options();
        char long_name[300] = {};
        Tls *tls = NULL;

        memset(long_name, 'a', sizeof(long_name) - 1);
        assert_int_equal(tls_context_new_client(&options, &context, NULL), 0);
        assert_int_equal(tls_new(context, NULL, &tls), -EINVAL);
        assert_int_equal(tls_new(context, "", &tls), -EINVAL);
        assert_int_equal(tls_new(context, long_name, &tls), -EINVAL);
        assert_null(tls);
}

static void the_systems_cas_do_not_know_ours(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = {};

        pair_init(&pair, &server, &client, "localhost");
        pair_shake_hands(&pair, 4096);
        assert_int_equal(pair.client_result, -EPROTO);
        assert_string_equal(pair.client_error.reason, "TLS_CERTIFICATE_UNTRUSTED");
}

static void connections_outlive_their_context(void **state) {
        _cleanup_(pair_clear) Pair pair = {};
        TlsServerOptions server = server_options();
        TlsClientOptions client = client_options();

        pair_init(&pair, &server, &client, "localhost");
        pair.server_context = tls_context_unref(pair.server_context);
        pair.client_context = tls_context_unref(pair.client_context);
        pair_shake_hands(&pair, 4096);
        assert_int_equal(pair.client_result, 1);
        assert_int_equal(pair.server_result, 1);
}

static void failed_allocations_are_told(void **state) {
        FAIL_ALLOC_LOOP {
                _cleanup_(tls_context_unrefp) TlsContext *client_context = NULL, *server_context = NULL;
                TlsServerOptions server = server_options();
                TlsClientOptions client = client_options();
                int r = tls_context_new_server(&server, &server_context, NULL);

                if (r == 0)
                        r = tls_context_new_client(&client, &client_context, NULL);
                if (r == 0) {
                        Pair pair = {};

                        r = tls_new(server_context, NULL, &pair.server);
                        if (r == 0)
                                r = tls_new(client_context, "localhost", &pair.client);
                        if (r == 0) {
                                pair_shake_hands(&pair, 4096);
                                r = pair.client_result < 0 ? pair.client_result : pair.server_result;
                        }
                        if (r == 1)
                                r = tls_write(pair.client, "hello", 5, NULL);
                        pair_clear(&pair);
                }
                assert_int_equal(r, fail_alloc_happened() ? -ENOMEM : 0);
        }
}

static int make_certificates(void **state) {
        static const CertificateSpec specs[] = {
                { .name = "ca", .is_ca = true },
                { .name = "other-ca", .is_ca = true },
                { .name = "server", .issuer = "ca", .is_for = "DNS:localhost,IP:127.0.0.1" },
                { .name = "expired", .issuer = "ca", .is_for = "DNS:localhost", .from_day = -2, .to_day = -1 },
                { .name = "future", .issuer = "ca", .is_for = "DNS:localhost", .from_day = 1, .to_day = 2 },
                { .name = "self", .is_for = "DNS:localhost" },
                { .name = "alice", .issuer = "ca" },
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
                cmocka_unit_test(bytes_come_through_both_ways),
                cmocka_unit_test(handshakes_work_byte_by_byte),
                cmocka_unit_test(clients_certificates_are_verified),
                cmocka_unit_test(wanted_certificates_may_be_missing),
                cmocka_unit_test(bad_certificates_are_refused_and_both_sides_hear_why),
                cmocka_unit_test(only_http2_is_spoken),
                cmocka_unit_test(servers_without_http2_are_refused),
                cmocka_unit_test(tls12_is_spoken_on_request_only),
                cmocka_unit_test(plaintext_is_recognized),
                cmocka_unit_test(servers_frames_in_plaintext_are_recognized),
                cmocka_unit_test(ends_are_told_apart),
                cmocka_unit_test(changed_bytes_are_noticed),
                cmocka_unit_test(bad_files_are_named),
                cmocka_unit_test(a_ca_is_needed_to_verify_clients),
                cmocka_unit_test(clients_need_a_name),
                cmocka_unit_test(the_systems_cas_do_not_know_ours),
                cmocka_unit_test(connections_outlive_their_context),
                cmocka_unit_test(failed_allocations_are_told),
        };

        return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
