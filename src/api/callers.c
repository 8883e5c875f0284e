/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: who calls, and who may. What does not: what callers may do (control), and tokens (tokens.c). */

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/service.h"
#include "api/tokens.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "local/token-file.h"
#include "rpc/core/metadata.h"
#include "rpc/peer.h"

#define TRACEPARENT_LEN 55
#define TRACESTATE_MAX 512
#define GROUPS_MAX 1024
#define MEMBER_FOR (10 * NSEC_PER_SEC) /* how long the answer of the system's user database is used */
#define REFUSAL_PAUSE NSEC_PER_SEC     /* from one line in the log to the next */
#define SCHEME "Bearer "
#define CERTIFICATE_PREFIX "cert:"

/* ---- On the Unix socket ---- */

/* Asks the system's user database, which knows more groups than the socket tells. */
static bool is_member(uid_t uid, gid_t group) {
        _cleanup_free_ gid_t *groups = NULL;
        struct passwd entry, *found = NULL;
        int n = GROUPS_MAX;
        char buffer[4096];

        if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
                return false;

        groups = new0(gid_t, GROUPS_MAX);
        if (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) < 0)
                n = GROUPS_MAX;
        for (int i = 0; i < n; i++)
                if (groups[i] == group)
                        return true;

        return false;
}

static bool may_call(Api *api, const Peer *peer) {
        uint64_t now;

        if (peer->uid == 0 || peer->uid == api->options.uid)
                return true;
        if (!api->options.has_group)
                return false;
        if (peer->gid == api->options.group)
                return true;

        now = clock_monotonic_ns();
        if (now >= api->member_until || peer->uid != api->member_uid) {
                api->member_uid = peer->uid;
                api->member_allowed = is_member(peer->uid, api->options.group);
                api->member_until = now + MEMBER_FOR;
        }
        return api->member_allowed;
}

static int admit_user(Api *api, const Peer *peer, HutchError *err) {
        if (may_call(api, peer))
                return 0;

        return reason_set(err, -EACCES, REASON_CALLER_NOT_ALLOWED,
                          "uid %u may not call this daemon: ask its operator for membership in its group", peer->uid);
}

/* ---- Over TCP ---- */

/* The header that carries a token; NULL: there is none, or tokens are not for this daemon. */
static const MetadataEntry *find_header(const ApiRemote *remote, Call *call) {
        return remote->tokens ? metadata_find(call_metadata(call), "authorization") : NULL;
}

/* The token in @header. NULL: it has none. */
static const char *bearer_token(const MetadataEntry *header, size_t *ret_len) {
        size_t scheme_len = strlen(SCHEME);

        if (header->value_len < scheme_len || strncasecmp(header->value, SCHEME, scheme_len) != 0)
                return NULL;
        *ret_len = header->value_len - scheme_len;
        return header->value + scheme_len;
}

static int admit_token(const ApiRemote *remote, const MetadataEntry *header, HutchError *err) {
        size_t len;
        const char *token = bearer_token(header, &len);

        if (!token)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_INVALID, "authorization must be Bearer and a token");
        return tokens_check(remote->tokens, token, len, err);
}

static bool has_expired(const Peer *peer) {
        return (int64_t) (clock_realtime_ns() / NSEC_PER_SEC) > peer->certificate_end;
}

static int admit_certificate(const char *subject, HutchError *err) {
        if (subject[0] == '\0' || strlen(subject) > CALLER_NAME_SIZE - sizeof(CERTIFICATE_PREFIX))
                return reason_set(err, -EACCES, REASON_CREDENTIALS_INVALID,
                                  "the subject of the certificate is empty, or has more than %zu bytes",
                                  CALLER_NAME_SIZE - sizeof(CERTIFICATE_PREFIX));
        return 0;
}

static int admit_remote(const Api *api, Call *call, const Peer *peer, HutchError *err) {
        const ApiRemote *remote = &api->remote;
        const MetadataEntry *header = find_header(remote, call);
        const char *subject = remote->certificates ? peer->certificate_subject : NULL;

        if (!peer->encrypted && !remote->insecure)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_MISSING, "callers over TCP are served by TLS only");
        if (remote->certificate_required && !subject)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_MISSING, "a client certificate is required");
        /* It was not when the connection was made. */
        if (subject && has_expired(peer))
                return reason_set(err, -EACCES, REASON_CREDENTIALS_EXPIRED, "the client certificate has expired");
        if (header)
                return admit_token(remote, header, err);
        if (remote->token_required)
                return reason_set(err, -EACCES, REASON_CREDENTIALS_MISSING, "a bearer token is required");
        if (subject)
                return admit_certificate(subject, err);
        if (remote->insecure && !remote->tokens && !remote->certificates)
                return 0;

        return reason_set(err, -EACCES, REASON_CREDENTIALS_MISSING, "say who you are: %s%s%s",
                          remote->tokens ? "give a bearer token" : "",
                          remote->tokens && remote->certificates ? " or " : "",
                          remote->certificates ? "a client certificate" : "");
}

/* ---- Both ---- */

/* One line in a second at most: what it counts tells how many there were. */
static void note_refusal(Api *api, const Call *call, const HutchError *err) {
        uint64_t now = clock_monotonic_ns();

        api->refusals++;
        if (api->refusals > 1 && now < api->refusal_noted + REFUSAL_PAUSE)
                return;

        api->refusal_noted = now;
        log_warning("caller refused", LOG_STR("address", call_peer(call)->address), LOG_STR("reason", err->reason),
                    LOG_STR("error", error_message(err)), LOG_UINT("refused", api->refusals));
}

/* Writes who it is that is let in. */
static void write_name(const Api *api, Call *call, char ret_name[static CALLER_NAME_SIZE]) {
        const MetadataEntry *header = find_header(&api->remote, call);
        const Peer *peer = call_peer(call);
        char name[TOKEN_NAME_MAX + 1];
        const char *token;
        size_t len;

        if (peer->has_credentials)
                (void) snprintf(ret_name, CALLER_NAME_SIZE, "uid:%u", peer->uid);
        else if (header && (token = bearer_token(header, &len)) && token_read_name(token, len, name))
                (void) snprintf(ret_name, CALLER_NAME_SIZE, "token:%s", name);
        else if (peer->certificate_subject)
                (void) snprintf(ret_name, CALLER_NAME_SIZE, CERTIFICATE_PREFIX "%s", peer->certificate_subject);
        else
                (void) snprintf(ret_name, CALLER_NAME_SIZE, "anonymous");
}

static bool is_admin(const Api *api, const Peer *peer, const char *name) {
        if (peer->has_credentials && (peer->uid == 0 || peer->uid == api->options.uid))
                return true;
        for (char *const *admin = api->remote.admins; admin && *admin; admin++)
                if (str_equal(*admin, name))
                        return true;
        return false;
}

static bool is_hex(const char *text, size_t len) {
        bool zero = true;

        for (size_t i = 0; i < len; i++) {
                if (!ascii_is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
                        return false;
                zero &= text[i] == '0';
        }

        return !zero || len == 2;
}

/* W3C Trace Context, version 00: "00-<trace>-<parent>-<flags>". */
static bool is_traceparent(const MetadataEntry *entry) {
        const char *text = entry->value;

        return entry->value_len == TRACEPARENT_LEN && memcmp(text, "00-", 3) == 0 && is_hex(text + 3, 32) &&
               text[35] == '-' && is_hex(text + 36, 16) && text[52] == '-' && is_hex(text + 53, 2);
}

/* A caller, and its name. */
typedef struct Identity {
        Caller caller;
        char name[CALLER_NAME_SIZE];
} Identity;

static Identity *identity_new(const Api *api, Call *call) {
        const MetadataEntry *parent = metadata_find(call_metadata(call), "traceparent");
        const MetadataEntry *state = metadata_find(call_metadata(call), "tracestate");
        Identity *identity = new0(Identity, 1);

        write_name(api, call, identity->name);
        identity->caller = (Caller){
                .name = identity->name,
                .admin = is_admin(api, call_peer(call), identity->name),
        };
        if (!parent || !is_traceparent(parent))
                return identity;

        identity->caller.traceparent = parent->value;
        if (state && state->value_len <= TRACESTATE_MAX)
                identity->caller.tracestate = state->value;
        return identity;
}

int api_admit(Call *call, void *context, HutchError *err) {
        _cleanup_(error_clear) HutchError why = {};
        const Peer *peer = call_peer(call);
        Api *api = context;
        int r = peer->has_credentials ? admit_user(api, peer, &why) : admit_remote(api, call, peer, &why);

        if (r == 0) {
                call_set_identity(call, identity_new(api, call), free);
                return 0;
        }

        note_refusal(api, call, &why);
        return error_set_code(err, why.code, r, why.reason, "%s", error_message(&why));
}

const Caller *api_caller(const Call *call) {
        const Identity *identity = call_identity(call);

        return &identity->caller;
}
