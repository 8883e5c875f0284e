/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Certificates for tests of TLS: DIR/NAME.pem and DIR/NAME.key. */

typedef struct CertificateSpec {
        const char *name;     /* of its files, and in its subject: "CN=NAME,O=Hutch Tests" */
        const char *issuer;   /* the name of a CA made before; NULL: signed by itself */
        bool is_ca;           /* may sign others */
        const char *is_for;   /* "DNS:localhost,IP:127.0.0.1"; NULL: a client */
        int from_day, to_day; /* from today; both 0: now valid */
} CertificateSpec;

/* Makes it, or fails the test. */
void certificate_make(const char *dir, const CertificateSpec *spec);

/* "DIR/NAMESUFFIX", good for the next 31 calls. */
const char *certificate_file(const char *dir, const char *name, const char *suffix);
