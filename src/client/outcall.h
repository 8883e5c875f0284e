/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "client/client.h"
#include "client/failure.h"
#include "rpc/core/protobuf.h"

/* Outcalls: calls of a client. A HutchCall is one; hutch.h says how they behave. */

#define OUTCALL_INBOX 4 /* messages that are taken ahead of the reader */

struct HutchCall {
        HutchClient *client;
        ChannelCall *channel_call;                  /* NULL: it is over */
        const ProtobufCFieldDescriptor *request_id; /* that the next message must have; NULL: none */
        void *user;
        bool orphan;  /* nobody has it any more: it goes with its end */
        bool parting; /* counted in the client's n_parting */

        HutchCall *ready_prev, *ready_next;
        bool ready;

        HutchBuffer inbox[OUTCALL_INBOX]; /* a ring */
        size_t inbox_first, n_inbox;
        bool answered; /* a message came */

        /* How it ended. */
        StatusCode code;
        char reason[ERROR_REASON_MAX + 1];
        char *message;
        uint8_t *details;
        size_t details_len;
        bool no_memory; /* for what came */
};

typedef struct OutcallOptions {
        const char *method; /* "Service/Method" */
        uint64_t timeout;   /* 0: the client's, or for methods that stream none */
        bool safe;          /* may be repeated, though the method alone does not tell */
        void *user;
} OutcallOptions;

/* As hutch_call_new(). */
int outcall_new(HutchClient *client, const OutcallOptions *options, HutchCall **ret_call, Failure *failure)
        __attribute__((nonnull));
HutchCall *outcall_free(HutchCall *call);
DEFINE_CLEANUP(HutchCall *, outcall_free);

/* Ends it with CANCELLED, if it is not over; also for who waits for it in another thread. */
void outcall_cancel(HutchCall *call) __attribute__((nonnull));

/* As hutch_call_send(), with an error for what has one: the message is too large. */
int outcall_send(HutchCall *call, bool wait, const void *message, size_t len, Failure *failure)
        __attribute__((nonnull(1, 5)));

/* Queues a message, whether there is room or not. -EPIPE: the call is over. */
int outcall_queue(HutchCall *call, const ProtobufCMessage *message, Failure *failure) __attribute__((nonnull));

/* The same with a message that comes from malloc() and is taken over, also when it fails; not for the first of a call
 * that has a request id. A large one is not copied, once so much was sent that the call is not tried again. */
int outcall_queue_taken(HutchCall *call, uint8_t *message, size_t len, Failure *failure) __attribute__((nonnull));

/* The limit on a file's size that a caller means by @max_size: UINT64_MAX is what the daemon allows at most, which is
 * asked for once. */
uint64_t outcall_size_limit(HutchClient *client, uint64_t max_size) __attribute__((nonnull));

/* Waits until there is room for a message, or the call is over. */
void outcall_wait_for_room(HutchCall *call) __attribute__((nonnull));

/* Whether the server has answered and there is room for a message; waiting for that, until the call is over. */
bool outcall_takes_input(const HutchCall *call) __attribute__((nonnull));
bool outcall_wait_for_input(HutchCall *call) __attribute__((nonnull));

/* Waits for the server's first message, until the call is over. */
void outcall_wait_for_answer(HutchCall *call) __attribute__((nonnull));

bool outcall_is_over(const HutchCall *call) __attribute__((nonnull));

/* As hutch_call_receive(). */
int outcall_receive(HutchCall *call, bool wait, HutchBuffer *ret_message, Failure *failure) __attribute__((nonnull));

/* Decodes what came as @type. */
int outcall_decode(const ProtobufCMessageDescriptor *type, const HutchBuffer *buffer, ProtobufCMessage **ret_message,
                   Failure *failure) __attribute__((nonnull));

/* outcall_receive() and outcall_decode(). */
int outcall_receive_message(HutchCall *call, bool wait, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **ret_message, Failure *failure) __attribute__((nonnull));

/* Sends one message, waits for one. */
int outcall_unary(HutchClient *client, const char *method, const void *request, size_t len, uint64_t timeout,
                  HutchBuffer *ret_reply, Failure *failure) __attribute__((nonnull(1, 2, 6, 7)));

/* The same with messages. The caller frees the reply, of the type that the method has. */
int outcall_unary_message(HutchClient *client, const char *method, const ProtobufCMessage *request, uint64_t timeout,
                          ProtobufCMessage **ret_reply, Failure *failure) __attribute__((nonnull));

/* Sends one message and does not wait, but hutch_client_free() does, for as long as @timeout says. */
void outcall_part(HutchClient *client, const char *method, const ProtobufCMessage *request, uint64_t timeout)
        __attribute__((nonnull));
