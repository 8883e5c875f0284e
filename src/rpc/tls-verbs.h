/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "rpc/tls.h"

/* What contexts and machines of TLS do, as a table that each of them begins with. The functions of tls.h go by it, so
 * that a program that makes no context, as the keeper, does not have OpenSSL linked into it. */

typedef struct TlsVerbs {
        TlsContext *(*context_ref)(TlsContext *context);
        TlsContext *(*context_unref)(TlsContext *context);
        int (*new)(TlsContext *context, const char *server_name, Tls **ret_tls);
        Tls *(*free)(Tls *tls);
        void (*receive)(Tls *tls, const void *bytes, size_t len);
        void (*receive_end)(Tls *tls);
        int (*handshake)(Tls *tls, HutchError *err);
        ssize_t (*read)(Tls *tls, void *buffer, size_t size, HutchError *err);
        int (*write)(Tls *tls, const void *bytes, size_t len, HutchError *err);
        void (*close)(Tls *tls);
        ByteQueue *(*output)(Tls *tls);
        int (*peer_certificate)(const Tls *tls, char **ret_subject, int64_t *ret_end);
} TlsVerbs;
