/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "rpc/core/call.h"

/* Calls, as those see them who make them: a table of verbs, and the part that all calls have. Whoever makes calls
 * embeds a Call, and does for each, in this order: call_run_interceptors(); the method's start() or handle(); the
 * events; call_tell_end(). call.h says what each verb means to handlers. */

typedef struct ServerHandlers ServerHandlers;

typedef struct CallVerbs {
        uint64_t (*deadline)(const Call *call);
        void (*read)(Call *call);
        uint8_t *(*take_message)(Call *call);
        bool (*message_was_compressed)(const Call *call);
        Metadata *(*initial_metadata)(Call *call);
        Metadata *(*trailing_metadata)(Call *call);
        void (*set_compression)(Call *call, bool compress);
        int (*send)(Call *call, const void *message, size_t len);
        int (*send_taken)(Call *call, uint8_t *message, size_t len);
        bool (*is_writable)(const Call *call);
        /* Does nothing when the call is finished. */
        void (*finish)(Call *call, StatusCode status, const char *message, const void *details, size_t details_len);
        /* All interceptors let it pass, after one of them had it wait. */
        void (*passed)(Call *call);
} CallVerbs;

struct Call {
        const CallVerbs *verbs;
        const ServerHandlers *handlers;
        const char *path;
        const Metadata *metadata;
        const Peer *peer;

        const CallEvents *events;
        void *user;
        void *identity;
        void (*free_identity)(void *identity);
        size_t n_begun; /* interceptors that let it pass */
        bool waits;     /* for call_go_on() */
        bool told;      /* everybody has heard of its end */
};

/* Asks the interceptors. 0: all let it pass; CALL_WAITS: not now, and if they do, `passed` comes; negative: it is to
 * end with what @err says. */
int call_run_interceptors(Call *call, HutchError *err) __attribute__((nonnull));

/* Tells everybody that the call is over, once: the handler, then the interceptors that let it pass. */
void call_tell_end(Call *call, StatusCode status, CallEnd how) __attribute__((nonnull));
