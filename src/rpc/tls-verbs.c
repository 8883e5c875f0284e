/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the functions of tls.h, which go by the table of what they are given. What does not: TLS (tls.c). */

#include "rpc/tls-verbs.h"

static const TlsVerbs *context_verbs(const TlsContext *context) {
        return *(const TlsVerbs *const *) context;
}

static const TlsVerbs *tls_verbs(const Tls *tls) {
        return *(const TlsVerbs *const *) tls;
}

TlsContext *tls_context_ref(TlsContext *context) {
        return context ? context_verbs(context)->context_ref(context) : NULL;
}

TlsContext *tls_context_unref(TlsContext *context) {
        return context ? context_verbs(context)->context_unref(context) : NULL;
}

int tls_new(TlsContext *context, const char *server_name, Tls **ret_tls) {
        return context_verbs(context)->new (context, server_name, ret_tls);
}

Tls *tls_free(Tls *tls) {
        return tls ? tls_verbs(tls)->free(tls) : NULL;
}

void tls_receive(Tls *tls, const void *bytes, size_t len) {
        tls_verbs(tls)->receive(tls, bytes, len);
}

void tls_receive_end(Tls *tls) {
        tls_verbs(tls)->receive_end(tls);
}

int tls_handshake(Tls *tls, HutchError *err) {
        return tls_verbs(tls)->handshake(tls, err);
}

ssize_t tls_read(Tls *tls, void *buffer, size_t size, HutchError *err) {
        return tls_verbs(tls)->read(tls, buffer, size, err);
}

int tls_write(Tls *tls, const void *bytes, size_t len, HutchError *err) {
        return tls_verbs(tls)->write(tls, bytes, len, err);
}

void tls_close(Tls *tls) {
        tls_verbs(tls)->close(tls);
}

ByteQueue *tls_output(Tls *tls) {
        return tls_verbs(tls)->output(tls);
}

int tls_peer_certificate(const Tls *tls, char **ret_subject, int64_t *ret_end) {
        return tls_verbs(tls)->peer_certificate(tls, ret_subject, ret_end);
}
