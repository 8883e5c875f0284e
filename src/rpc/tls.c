/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: OpenSSL, its settings and its errors. What does not: descriptors (socket.c). */

#include "rpc/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "rpc/tls-verbs.h"

/* What HTTP/2 allows of TLS 1.2. */
#define TLS12_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

static const TlsVerbs openssl_verbs;

static const uint8_t alpn_h2[] = { 2, 'h', '2' };

struct TlsContext {
        const TlsVerbs *verbs; /* first */
        size_t n_refs;
        SSL_CTX *ssl;
        BIO_METHOD *bio;
        bool server;
};

struct Tls {
        const TlsVerbs *verbs; /* first */
        TlsContext *context;
        SSL *ssl;
        const uint8_t *in; /* the caller's, not taken yet */
        size_t in_len;
        ByteQueue out;
        bool in_ended;
        bool no_memory; /* OpenSSL could not write, for want of it */
        bool failed;    /* OpenSSL must not be asked again */
};

/* Gives OpenSSL what was received. */
static int bio_read(BIO *bio, char *buffer, size_t size, size_t *ret_len) {
        Tls *tls = BIO_get_data(bio);
        size_t len = tls->in_len < size ? tls->in_len : size;

        BIO_clear_retry_flags(bio);
        if (len == 0) {
                BIO_set_retry_read(bio);
                return 0;
        }

        memcpy(buffer, tls->in, len);
        tls->in += len;
        tls->in_len -= len;
        *ret_len = len;
        return 1;
}

static int bio_write(BIO *bio, const char *bytes, size_t len, size_t *ret_len) {
        Tls *tls = BIO_get_data(bio);

        BIO_clear_retry_flags(bio);
        if (byte_queue_append(&tls->out, bytes, len) < 0) {
                tls->no_memory = true;
                return 0;
        }

        *ret_len = len;
        return 1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
        (void) bio, (void) number, (void) pointer;
        return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_bio_method(void) {
        BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "hutch");

        if (!method)
                return NULL;

        (void) BIO_meth_set_read_ex(method, bio_read);
        (void) BIO_meth_set_write_ex(method, bio_write);
        (void) BIO_meth_set_ctrl(method, bio_control);
        return method;
}

/* A key that needs a passphrase is refused: nobody is there to be asked. */
static int no_passphrase(char *buffer, int size, int writing, void *user) {
        (void) size, (void) writing, (void) user;
        *buffer = '\0';
        return -1;
}

/* A client that does not speak of ALPN at all is refused here, by an alert that says so. */
static int on_client_hello(SSL *ssl, int *alert, void *user) {
        const unsigned char *extension;
        size_t len;

        (void) user;
        if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &extension, &len))
                return SSL_CLIENT_HELLO_SUCCESS;

        ERR_raise(ERR_LIB_SSL, SSL_R_NO_APPLICATION_PROTOCOL);
        *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
        return SSL_CLIENT_HELLO_ERROR;
}

static int on_alpn(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_len, const unsigned char *offered,
                   unsigned offered_len, void *user) {
        unsigned char *chosen;

        (void) ssl, (void) user;
        if (SSL_select_next_proto(&chosen, ret_len, alpn_h2, sizeof(alpn_h2), offered, offered_len) !=
            OPENSSL_NPN_NEGOTIATED)
                return SSL_TLSEXT_ERR_ALERT_FATAL;

        *ret_chosen = chosen;
        return SSL_TLSEXT_ERR_OK;
}

static int out_of_memory(HutchError *err) {
        ERR_clear_error();
        return error_set(err, -ENOMEM, "TLS_MEMORY", "memory is out");
}

static bool prepare_server(SSL_CTX *ssl) {
        static const unsigned char session_id_context[] = "hutch";

        SSL_CTX_set_client_hello_cb(ssl, on_client_hello, NULL);
        SSL_CTX_set_alpn_select_cb(ssl, on_alpn, NULL);
        /* Without it no session with a client's certificate could be resumed. */
        return SSL_CTX_set_session_id_context(ssl, session_id_context, sizeof(session_id_context)) == 1;
}

static bool prepare_client(SSL_CTX *ssl) {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
        return SSL_CTX_set_alpn_protos(ssl, alpn_h2, sizeof(alpn_h2)) == 0;
}

/* All settings that need no files. */
static bool prepare(SSL_CTX *ssl, bool server, bool allow_tls12) {
        (void) SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        (void) SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
        (void) SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);

        return SSL_CTX_set_min_proto_version(ssl, allow_tls12 ? TLS1_2_VERSION : TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_max_proto_version(ssl, 0) == 1 && SSL_CTX_set_cipher_list(ssl, TLS12_CIPHERS) == 1 &&
               (server ? prepare_server(ssl) : prepare_client(ssl));
}

/* NULL when memory is out. */
static TlsContext *context_new(bool server, bool allow_tls12) {
        TlsContext *context = try_new0(TlsContext, 1);

        if (!context)
                return NULL;

        context->verbs = &openssl_verbs;
        ERR_clear_error();
        context->n_refs = 1;
        context->server = server;
        context->bio = make_bio_method();
        context->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
        if (!context->bio || !context->ssl || !prepare(context->ssl, server, allow_tls12))
                return tls_context_unref(context);

        return context;
}

/* Finds out why OpenSSL could not use @file, which is said to hold @what. */
static int file_error(const char *file, const char *what, HutchError *err) {
        _cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);

        if (fd < 0) {
                int r = -errno;

                ERR_clear_error();
                return error_set(err, r, "TLS_FILE", "cannot read the %s in '%s': %s", what, file, strerror(-r));
        }
        if (ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE)
                return out_of_memory(err);

        ERR_clear_error();
        return error_set(err, -EINVAL, "TLS_FILE",
                         "'%s' has no %s that can be used: it must be PEM, and without a passphrase", file, what);
}

static int use_certificate(TlsContext *context, const char *certificate_file, const char *key_file, HutchError *err) {
        if (!certificate_file || !key_file)
                return error_set(err, -EINVAL, "TLS_FILE", "a certificate and its key must be given together");

        if (SSL_CTX_use_certificate_chain_file(context->ssl, certificate_file) != 1)
                return file_error(certificate_file, "certificate", err);
        if (SSL_CTX_use_PrivateKey_file(context->ssl, key_file, SSL_FILETYPE_PEM) == 1)
                return 0;

        if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH &&
            ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_TYPE_MISMATCH)
                return file_error(key_file, "key", err);

        ERR_clear_error();
        return error_set(err, -EINVAL, "TLS_FILE", "the key in '%s' is not the one of the certificate in '%s'",
                         key_file, certificate_file);
}

static int use_ca(TlsContext *context, const char *ca_file, HutchError *err) {
        if (SSL_CTX_load_verify_locations(context->ssl, ca_file, NULL) != 1)
                return file_error(ca_file, "CA certificate", err);

        return 0;
}

static int use_client_ca(TlsContext *context, const TlsServerOptions *options, HutchError *err) {
        bool required = options->client_certificates == TLS_CLIENT_CERTIFICATES_REQUIRED;
        STACK_OF(X509_NAME) * names;
        int r;

        if (options->client_certificates == TLS_CLIENT_CERTIFICATES_NONE)
                return 0;
        if (!options->client_ca_file)
                return error_set(err, -EINVAL, "TLS_FILE",
                                 "clients' certificates need the CA file that they are verified by");

        r = use_ca(context, options->client_ca_file, err);
        if (r < 0)
                return r;

        /* Clients choose their certificate by these names. */
        names = SSL_load_client_CA_file(options->client_ca_file);
        if (!names)
                return file_error(options->client_ca_file, "CA certificate", err);
        SSL_CTX_set_client_CA_list(context->ssl, names);

        SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
        return 0;
}

static int use_server_files(TlsContext *context, const TlsServerOptions *options, HutchError *err) {
        int r = use_certificate(context, options->certificate_file, options->key_file, err);

        return r < 0 ? r : use_client_ca(context, options, err);
}

static int use_client_files(TlsContext *context, const TlsClientOptions *options, HutchError *err) {
        int r = 0;

        if (options->ca_file)
                r = use_ca(context, options->ca_file, err);
        else if (SSL_CTX_set_default_verify_paths(context->ssl) != 1)
                r = out_of_memory(err);
        if (r < 0 || (!options->certificate_file && !options->key_file))
                return r;

        return use_certificate(context, options->certificate_file, options->key_file, err);
}

int tls_context_new_server(const TlsServerOptions *options, TlsContext **ret_context, HutchError *err) {
        TlsContext *context = context_new(true, options->allow_tls12);
        int r = context ? use_server_files(context, options, err) : out_of_memory(err);

        if (r < 0) {
                tls_context_unref(context);
                return r;
        }

        *ret_context = context;
        return 0;
}

int tls_context_new_client(const TlsClientOptions *options, TlsContext **ret_context, HutchError *err) {
        TlsContext *context = context_new(false, options->allow_tls12);
        int r = context ? use_client_files(context, options, err) : out_of_memory(err);

        if (r < 0) {
                tls_context_unref(context);
                return r;
        }

        *ret_context = context;
        return 0;
}

static TlsContext *context_ref(TlsContext *context) {
        if (context)
                context->n_refs++;
        return context;
}

static TlsContext *context_unref(TlsContext *context) {
        if (!context || --context->n_refs > 0)
                return NULL;

        SSL_CTX_free(context->ssl);
        BIO_meth_free(context->bio);
        free(context);
        return NULL;
}

static bool is_address(const char *name) {
        struct in6_addr address;

        return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

/* The certificate must be for @name, by its alternative names: its subject is for people. */
static int expect_name(Tls *tls, const char *name) {
        if (!name || strlen(name) == 0 || strlen(name) > TLSEXT_MAXLEN_host_name)
                return -EINVAL;

        SSL_set_hostflags(tls->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
        if (SSL_set1_host(tls->ssl, name) != 1)
                return -ENOMEM;
        if (!is_address(name) && SSL_set_tlsext_host_name(tls->ssl, name) != 1)
                return -ENOMEM;
        return 0;
}

/* Puts OpenSSL between the queues of @tls. */
static int make_ssl(Tls *tls, const char *server_name) {
        BIO *bio = BIO_new(tls->context->bio);

        tls->ssl = SSL_new(tls->context->ssl);
        if (!tls->ssl || !bio) {
                BIO_free(bio);
                return -ENOMEM;
        }

        BIO_set_data(bio, tls);
        BIO_set_init(bio, 1);
        SSL_set_bio(tls->ssl, bio, bio);

        if (tls->context->server) {
                SSL_set_accept_state(tls->ssl);
                return 0;
        }

        SSL_set_connect_state(tls->ssl);
        return expect_name(tls, server_name);
}

static int machine_new(TlsContext *context, const char *server_name, Tls **ret_tls) {
        Tls *tls = try_new0(Tls, 1);
        int r;

        if (!tls)
                return -ENOMEM;

        tls->verbs = &openssl_verbs;
        ERR_clear_error();
        tls->context = tls_context_ref(context);
        r = make_ssl(tls, server_name);
        if (r < 0) {
                tls_free(tls);
                return r;
        }

        *ret_tls = tls;
        return 0;
}

static Tls *machine_free(Tls *tls) {
        if (!tls)
                return NULL;

        SSL_free(tls->ssl);
        byte_queue_clear(&tls->out);
        tls_context_unref(tls->context);
        free(tls);
        return NULL;
}

static void machine_receive(Tls *tls, const void *bytes, size_t len) {
        tls->in = bytes;
        tls->in_len = len;
}

static void machine_receive_end(Tls *tls) {
        tls->in_ended = true;
}

typedef struct Cause {
        const char *reason;
        const char *text; /* what "the client" or "the server" … */
} Cause;

static Cause cause_of_certificate(long verify_result) {
        switch (verify_result) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
                return (Cause){ "TLS_CERTIFICATE_EXPIRED", "has a certificate that has expired: renew it" };
        case X509_V_ERR_CERT_NOT_YET_VALID:
                return (Cause){ "TLS_CERTIFICATE_EXPIRED",
                                "has a certificate that is not valid yet: check the clocks of both machines" };
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_CERT_SIGNATURE_FAILURE:
                return (Cause){ "TLS_CERTIFICATE_UNTRUSTED",
                                "has a certificate of a CA that is not trusted here: check the CA file" };
        case X509_V_ERR_HOSTNAME_MISMATCH:
        case X509_V_ERR_IP_ADDRESS_MISMATCH:
                return (Cause){ "TLS_CERTIFICATE_NAME",
                                "has a certificate for another name: connect by a name that it is for" };
        default:
                return (Cause){ "TLS_CERTIFICATE_INVALID", "has a certificate that cannot be accepted" };
        }
}

/* What the peer says is wrong with us. */
static Cause cause_of_alert(int alert) {
        switch (alert) {
        case SSL_AD_CERTIFICATE_REQUIRED:
                return (Cause){ "TLS_CERTIFICATE_REQUIRED", "requires a certificate, and none was given" };
        case SSL_AD_CERTIFICATE_EXPIRED:
                return (Cause){ "TLS_CERTIFICATE_EXPIRED", "says that our certificate has expired: renew it" };
        case SSL_AD_UNKNOWN_CA:
                return (Cause){ "TLS_CERTIFICATE_UNTRUSTED",
                                "does not trust the CA of our certificate: give it that CA, or use another" };
        case SSL_AD_BAD_CERTIFICATE:
        case SSL_AD_UNSUPPORTED_CERTIFICATE:
        case SSL_AD_CERTIFICATE_REVOKED:
        case SSL_AD_CERTIFICATE_UNKNOWN:
                return (Cause){ "TLS_CERTIFICATE_INVALID", "refuses our certificate" };
        case SSL_AD_PROTOCOL_VERSION:
                return (Cause){ "TLS_VERSION", "speaks no version of TLS that is allowed here" };
        case SSL_AD_NO_APPLICATION_PROTOCOL:
                return (Cause){ "TLS_PROTOCOL", "does not speak HTTP/2 over TLS (ALPN h2)" };
        default:
                return (Cause){ "TLS_FAILED", "ended the connection" };
        }
}

static Cause cause_of(const Tls *tls, int reason) {
        switch (reason) {
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
                return cause_of_certificate(SSL_get_verify_result(tls->ssl));
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
                return (Cause){ "TLS_CERTIFICATE_REQUIRED", "gave no certificate, and one is required here" };
        case SSL_R_HTTP_REQUEST:
        case SSL_R_HTTPS_PROXY_REQUEST:
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_PACKET_LENGTH_TOO_LONG:
                return (Cause){ "TLS_PLAINTEXT", "does not speak TLS: use TLS on both sides, or on neither" };
        case SSL_R_UNSUPPORTED_PROTOCOL:
        case SSL_R_VERSION_TOO_LOW:
        case SSL_R_VERSION_TOO_HIGH:
        case SSL_R_NO_PROTOCOLS_AVAILABLE:
                return (Cause){ "TLS_VERSION", "speaks no version of TLS that is allowed here" };
        case SSL_R_NO_APPLICATION_PROTOCOL:
                return (Cause){ "TLS_PROTOCOL", "does not speak HTTP/2 over TLS (ALPN h2)" };
        default:
                return reason >= SSL_AD_REASON_OFFSET ? cause_of_alert(reason - SSL_AD_REASON_OFFSET)
                                                      : (Cause){ "TLS_FAILED", "broke the rules of TLS" };
        }
}

static const char *peer_role(const Tls *tls) {
        return tls->context->server ? "the client" : "the server";
}

/* Turns the latest failure of OpenSSL's into an error. */
static int fail(Tls *tls, HutchError *err) {
        unsigned long first = ERR_peek_error(), last = ERR_peek_last_error();
        const char *detail = ERR_reason_error_string(last);
        Cause cause;

        tls->failed = true;
        if (tls->no_memory || ERR_GET_REASON(first) == ERR_R_MALLOC_FAILURE ||
            ERR_GET_REASON(last) == ERR_R_MALLOC_FAILURE)
                return out_of_memory(err);

        cause = cause_of(tls, ERR_GET_REASON(first));
        if (ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED)
                detail = X509_verify_cert_error_string(SSL_get_verify_result(tls->ssl));
        ERR_clear_error();
        return error_set_code(err, STATUS_UNAVAILABLE, -EPROTO, cause.reason, "%s %s (%s)", peer_role(tls), cause.text,
                              detail ? detail : "no details");
}

static int fail_closed(Tls *tls, int r, const char *when, HutchError *err) {
        tls->failed = true;
        ERR_clear_error();
        return error_set_code(err, STATUS_UNAVAILABLE, r, "TLS_CLOSED", "%s closed the connection%s", peer_role(tls),
                              when);
}

static int fail_again(HutchError *err) {
        return error_set_code(err, STATUS_UNAVAILABLE, -EPROTO, "TLS_FAILED", "the connection has failed before");
}

/* Tells what @result of an OpenSSL function means: 0 to go on when more was received, or a negative errno. */
static int check(Tls *tls, int result, const char *when, HutchError *err) {
        switch (SSL_get_error(tls->ssl, result)) {
        case SSL_ERROR_WANT_READ:
                return tls->in_ended ? fail_closed(tls, -ECONNRESET, when, err) : 0;
        case SSL_ERROR_ZERO_RETURN:
                return fail_closed(tls, -EPIPE, when, err);
        default:
                return fail(tls, err);
        }
}

/* A server that chose no protocol at all did not refuse ours. */
static int check_alpn(Tls *tls, HutchError *err) {
        const unsigned char *chosen;
        unsigned len;

        SSL_get0_alpn_selected(tls->ssl, &chosen, &len);
        if (len == sizeof(alpn_h2) - 1 && memcmp(chosen, alpn_h2 + 1, len) == 0)
                return 1;

        tls->failed = true;
        return error_set_code(err, STATUS_UNAVAILABLE, -EPROTO, "TLS_PROTOCOL",
                              "%s does not speak HTTP/2 over TLS (ALPN h2)", peer_role(tls));
}

static int machine_handshake(Tls *tls, HutchError *err) {
        int result;

        if (tls->failed)
                return fail_again(err);

        ERR_clear_error();
        result = SSL_do_handshake(tls->ssl);
        return result == 1 ? check_alpn(tls, err) : check(tls, result, " during the handshake of TLS", err);
}

static ssize_t machine_read(Tls *tls, void *buffer, size_t size, HutchError *err) {
        size_t len;
        int result;

        if (tls->failed)
                return fail_again(err);

        ERR_clear_error();
        result = SSL_read_ex(tls->ssl, buffer, size, &len);
        return result == 1 ? (ssize_t) len : check(tls, result, "", err);
}

static int machine_write(Tls *tls, const void *bytes, size_t len, HutchError *err) {
        size_t written;

        if (tls->failed)
                return fail_again(err);
        if (len == 0)
                return 0;

        ERR_clear_error();
        return SSL_write_ex(tls->ssl, bytes, len, &written) == 1 ? 0 : fail(tls, err);
}

static void machine_close(Tls *tls) {
        if (tls->failed || !SSL_is_init_finished(tls->ssl))
                return;

        ERR_clear_error();
        (void) SSL_shutdown(tls->ssl);
        ERR_clear_error();
}

static ByteQueue *machine_output(Tls *tls) {
        return &tls->out;
}

static int machine_peer_certificate(const Tls *tls, char **ret_subject, int64_t *ret_end) {
        X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
        struct tm end;
        BIO *text;
        char *bytes;
        long len;

        *ret_subject = NULL;
        *ret_end = 0;
        if (!certificate)
                return 0;
        if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1)
                *ret_end = timegm(&end);

        text = BIO_new(BIO_s_mem());
        if (!text)
                return -ENOMEM;

        if (X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) >= 0) {
                len = BIO_get_mem_data(text, &bytes);
                *ret_subject = strndup(len > 0 ? bytes : "", (size_t) len);
        }

        BIO_free(text);
        return *ret_subject ? 0 : -ENOMEM;
}

static const TlsVerbs openssl_verbs = {
        .context_ref = context_ref,
        .context_unref = context_unref,
        .new = machine_new,
        .free = machine_free,
        .receive = machine_receive,
        .receive_end = machine_receive_end,
        .handshake = machine_handshake,
        .read = machine_read,
        .write = machine_write,
        .close = machine_close,
        .output = machine_output,
        .peer_certificate = machine_peer_certificate,
};
