/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: serving over TCP: what must be configured for it, its files and listeners. What does not: who is who
 * (api/callers.c), and connections (rpc). */

#include "daemon/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/tokens.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/tls.h"

static int refuse(HutchError *err, const char *why) {
        return error_set(err, -EINVAL, "FIELD_INVALID", "%s", why);
}

/* Whether the keys of @config go together. */
static int check_keys(const Config *config, HutchError *err) {
        bool certificates = config->client_certificates != CONFIG_NEED_OFF;

        if (!config->certificate != !config->key)
                return refuse(err, "listen.certificate and listen.key go together");
        if (!config->certificate && !config->insecure)
                return refuse(err, "listen.addresses needs listen.certificate and listen.key: without TLS all that is "
                                   "said can be read; listen.insecure allows it");
        if (certificates && (!config->client_ca || !config->certificate))
                return refuse(err, "listen.client_certificates needs listen.client_ca, and listen.certificate");
        if (!certificates && config->client_ca)
                return refuse(err, "listen.client_ca has no use while listen.client_certificates is off");
        if (!certificates && config->tokens == CONFIG_NEED_OFF && !config->insecure)
                return refuse(err, "listen.tokens and listen.client_certificates are both off: anybody could call; "
                                   "listen.insecure allows it");
        return 0;
}

static int open_tls(const Config *config, TlsContext **ret_context, HutchError *err) {
        static const TlsClientCertificates needs[] = {
                [CONFIG_NEED_OFF] = TLS_CLIENT_CERTIFICATES_NONE,
                [CONFIG_NEED_WANTED] = TLS_CLIENT_CERTIFICATES_WANTED,
                [CONFIG_NEED_REQUIRED] = TLS_CLIENT_CERTIFICATES_REQUIRED,
        };

        if (!config->certificate)
                return 0;
        return tls_context_new_server(
                &(TlsServerOptions){
                        .certificate_file = config->certificate,
                        .key_file = config->key,
                        .client_ca_file = config->client_ca,
                        .client_certificates = needs[config->client_certificates],
                        .allow_tls12 = config->tls12,
                },
                ret_context, err);
}

char *remote_tokens_file(const Config *config, const char *state) {
        char *path;

        if (config->tokens_file)
                return xstrdup(config->tokens_file);
        if (asprintf(&path, "%s/tokens", state) < 0)
                abort();
        return path;
}

static int open_tokens(const Config *config, const char *state, Tokens **ret_tokens, HutchError *err) {
        _cleanup_free_ char *path = remote_tokens_file(config, state);
        _cleanup_(tokens_freep) Tokens *tokens = NULL;
        int r;

        if (config->tokens == CONFIG_NEED_OFF)
                return 0;
        r = tokens_open(path, &tokens, err);
        if (r < 0)
                return r;
        if (!tokens_have_file(tokens) && config->client_certificates == CONFIG_NEED_OFF && !config->insecure)
                return error_set(err, -ENOENT, "FILE_NOT_FOUND",
                                 "nobody could call over TCP: there is no %s; make a token by `hutch token create`",
                                 path);
        *ret_tokens = TAKE_PTR(tokens);
        return 0;
}

int remote_open(Remote *ret_remote, const Config *config, const char *state, HutchError *err) {
        Remote remote = {};
        int r;

        *ret_remote = remote;
        if (!config->listen)
                return 0;

        r = check_keys(config, err);
        if (r == 0)
                r = open_tls(config, &remote.tls, err);
        if (r == 0)
                r = open_tokens(config, state, &remote.tokens, err);
        if (r < 0)
                remote_close(&remote);
        *ret_remote = remote;
        return r;
}

void remote_close(Remote *remote) {
        (void) tls_context_unref(remote->tls);
        (void) tokens_free(remote->tokens);
        *remote = (Remote){};
}

int remote_listen(const Remote *remote, const Config *config, Server *server, HutchError *err) {
        int r = 0;

        for (char **address = config->listen; r == 0 && address && *address; address++) {
                char host[CONFIG_HOST_SIZE];
                uint16_t port = 0;

                (void) config_parse_address(*address, host, &port);
                r = server_listen_tcp(server, host, port, remote->tls, &port, err);
                if (r < 0)
                        return r;

                log_info("serving over TCP", LOG_STR("address", host), LOG_UINT("port", port),
                         LOG_BOOL("tls", remote->tls != NULL));
        }
        if (config->listen && config->insecure)
                log_warning("listen.insecure is set", LOG_BOOL("clear_text", !remote->tls),
                            LOG_BOOL("anonymous", !remote->tokens && config->client_certificates == CONFIG_NEED_OFF));
        return r;
}

bool remote_reload(Remote *remote, const Config *config, Server *server) {
        _cleanup_(tls_context_unrefp) TlsContext *tls = NULL;
        _cleanup_(error_clear) HutchError err = {};
        int r = check_keys(config, &err);

        if (remote->tokens)
                tokens_reload(remote->tokens);
        if (r == 0)
                r = open_tls(config, &tls, &err);
        if (r == 0 && !tls != !remote->tls)
                r = refuse(&err, "TLS cannot be turned on or off while it runs");
        if (r < 0) {
                log_error("certificates not read again", LOG_STR("error", error_message(&err)));
                return false;
        }
        if (tls && remote->tls) {
                server_replace_tls(server, remote->tls, tls);
                (void) tls_context_unref(remote->tls);
                remote->tls = TAKE_PTR(tls);
        }
        return true;
}

ApiRemote remote_rules(const Remote *remote, const Config *config) {
        return (ApiRemote){
                .tokens = remote->tokens,
                .token_required = config->tokens == CONFIG_NEED_REQUIRED,
                .certificates = config->client_certificates != CONFIG_NEED_OFF,
                .certificate_required = config->client_certificates == CONFIG_NEED_REQUIRED,
                .insecure = config->insecure,
                .admins = config->admins,
        };
}
