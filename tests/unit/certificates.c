/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: making keys and certificates, with OpenSSL. What does not: what is expected of them; the tests
 * say. */

#include "certificates.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "test.h"

#define SECONDS_PER_DAY 86400

const char *certificate_file(const char *dir, const char *name, const char *suffix) {
        static char paths[32][PATH_MAX];
        static unsigned next;
        char *path = paths[next++ % 32];

        assert_true(snprintf(path, PATH_MAX, "%s/%s%s", dir, name, suffix) < PATH_MAX);
        return path;
}

static FILE *open_file(const char *dir, const char *name, const char *suffix, const char *mode) {
        FILE *file = fopen(certificate_file(dir, name, suffix), mode);

        assert_non_null(file);
        return file;
}

static void write_files(const char *dir, const char *name, X509 *certificate, EVP_PKEY *key) {
        FILE *file = open_file(dir, name, ".pem", "we");

        assert_int_equal(PEM_write_X509(file, certificate), 1);
        assert_int_equal(fclose(file), 0);

        file = open_file(dir, name, ".key", "we");
        assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
        assert_int_equal(fclose(file), 0);
}

static void add_extension(X509 *certificate, int kind, const char *value) {
        X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);

        assert_non_null(extension);
        assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
        X509_EXTENSION_free(extension);
}

static void set_subject(X509 *certificate, const char *name) {
        X509_NAME *subject = X509_get_subject_name(certificate);

        assert_int_equal(
                X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, (const uint8_t *) "Hutch Tests", -1, -1, 0), 1);
        assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *) name, -1, -1, 0), 1);
}

static void sign_by_issuer(X509 *certificate, const char *dir, const char *issuer) {
        FILE *file = open_file(dir, issuer, ".pem", "re");
        X509 *issuer_certificate = PEM_read_X509(file, NULL, NULL, NULL);
        EVP_PKEY *key;

        assert_int_equal(fclose(file), 0);
        file = open_file(dir, issuer, ".key", "re");
        key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        assert_int_equal(fclose(file), 0);

        assert_int_equal(X509_set_issuer_name(certificate, X509_get_subject_name(issuer_certificate)), 1);
        assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
        X509_free(issuer_certificate);
        EVP_PKEY_free(key);
}

void certificate_make(const char *dir, const CertificateSpec *spec) {
        static long serial;
        bool now_valid = spec->from_day == 0 && spec->to_day == 0;
        X509 *certificate = X509_new();
        EVP_PKEY *key = EVP_EC_gen("P-256");

        assert_non_null(certificate);
        assert_non_null(key);
        assert_int_equal(X509_set_version(certificate, X509_VERSION_3), 1);
        assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial), 1);
        assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate),
                                        (long) (now_valid ? -1 : spec->from_day) * SECONDS_PER_DAY));
        assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate),
                                        (long) (now_valid ? 30 : spec->to_day) * SECONDS_PER_DAY));
        assert_int_equal(X509_set_pubkey(certificate, key), 1);
        set_subject(certificate, spec->name);
        add_extension(certificate, NID_basic_constraints, spec->is_ca ? "critical,CA:TRUE" : "CA:FALSE");
        if (spec->is_for)
                add_extension(certificate, NID_subject_alt_name, spec->is_for);

        if (spec->issuer) {
                sign_by_issuer(certificate, dir, spec->issuer);
        } else {
                assert_int_equal(X509_set_issuer_name(certificate, X509_get_subject_name(certificate)), 1);
                assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
        }

        write_files(dir, spec->name, certificate, key);
        X509_free(certificate);
        EVP_PKEY_free(key);
}
