/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/memory.h"
#include "rpc/core/byte-queue.h"

/* TLS as a machine without sockets: OpenSSL, with bytes in and bytes out.
 *
 *         tls_receive(tls, bytes, len);            ciphertext from the peer …
 *         r = tls_handshake(tls, err);             … until 1: the handshake is done
 *         n = tls_read(tls, buffer, size, err);    … and then plaintext, until 0
 *         tls_write(tls, bytes, len, err);         plaintext for the peer
 *         tls_output(tls)                          ciphertext for the peer, also after failures: it is told why
 *
 * It carries HTTP/2 and nothing else: both sides must agree on "h2" by ALPN. TLS 1.3, and 1.2 where it is asked for.
 * Certificates are always verified by the side that asks for them. Errors are sentences that say what to do; their
 * reasons:
 *
 *   TLS_CERTIFICATE_REQUIRED  TLS_CERTIFICATE_EXPIRED  TLS_CERTIFICATE_UNTRUSTED  TLS_CERTIFICATE_NAME
 *   TLS_CERTIFICATE_INVALID   TLS_PLAINTEXT            TLS_VERSION                TLS_PROTOCOL (ALPN)
 *   TLS_CLOSED                TLS_FAILED               TLS_FILE (contexts)        TLS_MEMORY */

typedef struct TlsContext TlsContext;
typedef struct Tls Tls;

/* What a server does about certificates of its clients. */
typedef enum TlsClientCertificates {
        TLS_CLIENT_CERTIFICATES_NONE,     /* does not ask */
        TLS_CLIENT_CERTIFICATES_WANTED,   /* verifies the one that a client gives */
        TLS_CLIENT_CERTIFICATES_REQUIRED, /* refuses clients without one */
} TlsClientCertificates;

/* Files are PEM. */
typedef struct TlsServerOptions {
        const char *certificate_file; /* the server's certificate, and those above it */
        const char *key_file;
        const char *client_ca_file; /* who signs clients; needed unless these are not asked */
        TlsClientCertificates client_certificates;
        bool allow_tls12;
} TlsServerOptions;

typedef struct TlsClientOptions {
        const char *ca_file;          /* who signs servers; NULL: those that the system trusts */
        const char *certificate_file; /* the client's own certificate, and those above it; NULL: none */
        const char *key_file;
        bool allow_tls12;
} TlsClientOptions;

/* Reads the files, which are not needed afterwards: for certificates that changed make a new context. -ENOENT, -EINVAL
 * and others with the file's name in @err; -ENOMEM. */
int tls_context_new_server(const TlsServerOptions *options, TlsContext **ret_context, HutchError *err)
        __attribute__((nonnull(1, 2)));
int tls_context_new_client(const TlsClientOptions *options, TlsContext **ret_context, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Contexts are counted; connections keep what they need of theirs. */
TlsContext *tls_context_ref(TlsContext *context);
TlsContext *tls_context_unref(TlsContext *context);
DEFINE_CLEANUP(TlsContext *, tls_context_unref);

/* One connection. @server_name, for clients only and needed there: the DNS name or IP address that the certificate must
 * be for. -ENOMEM; -EINVAL: it is no name. */
int tls_new(TlsContext *context, const char *server_name, Tls **ret_tls) __attribute__((nonnull(1, 3)));
Tls *tls_free(Tls *tls);
DEFINE_CLEANUP(Tls *, tls_free);

/* Gives the machine @bytes. They stay where they are until it has taken them, which it has when tls_handshake() or
 * tls_read() returned 0 or failed. */
void tls_receive(Tls *tls, const void *bytes, size_t len) __attribute__((nonnull(1)));

/* No more bytes will come. */
void tls_receive_end(Tls *tls) __attribute__((nonnull));

/* Goes on with the handshake. 1: it is done; 0: it needs more from the peer; -EPROTO, -ECONNRESET, -ENOMEM: it
 * failed. */
int tls_handshake(Tls *tls, HutchError *err) __attribute__((nonnull(1)));

/* Fills @buffer with plaintext. Returns how many bytes; 0: more is needed from the peer. -EPIPE: the peer closed the
 * connection in order; -EPROTO, -ECONNRESET, -ENOMEM. */
ssize_t tls_read(Tls *tls, void *buffer, size_t size, HutchError *err) __attribute__((nonnull(1)));

/* Encrypts all of @bytes into the output, once the handshake is done. -EPROTO, -ENOMEM. */
int tls_write(Tls *tls, const void *bytes, size_t len, HutchError *err) __attribute__((nonnull(1)));

/* Tells the peer that nothing more will be written. */
void tls_close(Tls *tls) __attribute__((nonnull));

/* What is to be sent: the caller drops what was. */
ByteQueue *tls_output(Tls *tls) __attribute__((nonnull, returns_nonnull));

/* The subject of the peer's verified certificate as RFC 2253 writes it ("CN=alice,O=Example"), which the caller frees,
 * and the last second in which it is valid, since 1970. NULL and 0 when the peer gave none. -ENOMEM. */
int tls_peer_certificate(const Tls *tls, char **ret_subject, int64_t *ret_end) __attribute__((nonnull));
