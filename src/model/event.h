/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "model/exec.h"
#include "model/sandbox.h"

/* Events: what happened to a sandbox, in order, for those who watch. */

/* With the numbers of hutch.v1.EventType. */
typedef enum EventType {
        EVENT_SANDBOX_CREATED = 1,
        EVENT_SANDBOX_STATE_CHANGED = 2,
        EVENT_SANDBOX_UPDATED = 3,
        EVENT_EXEC_CREATED = 4,
        EVENT_EXEC_STATE_CHANGED = 5,
        EVENT_LIMIT_HIT = 6,
} EventType;

/* As the contract has them without their prefix ("LIMIT_HIT"). The other way round an unknown name is -EINVAL. */
const char *event_type_name(EventType type);
int event_type_from_name(const char *name, EventType *ret_type);

/* Something that happened. Made in passing: it borrows all it points to. */
typedef struct Event {
        uint64_t cursor;   /* its place among all events */
        uint64_t sequence; /* its place among the sandbox's, from 1 without gaps */
        uint64_t time;
        EventType type;
        const SandboxRecord *sandbox; /* as it is afterwards */
        Reason reason;
        const char *message; /* NULL: none */

        /* The request behind it. NULL: none. */
        const char *actor;
        const char *traceparent;
        const char *tracestate;

        /* By type. */
        bool is_new;             /* EVENT_SANDBOX_CREATED, EVENT_EXEC_CREATED: there was no state before */
        SandboxState from_state; /* EVENT_SANDBOX_STATE_CHANGED; the new one is the sandbox's */
        const ExecRecord *exec;  /* EVENT_EXEC_*: as it is afterwards */
        ExecState exec_from;
        const char *const *fields; /* EVENT_SANDBOX_UPDATED: which fields of the spec changed; ends with NULL */
        const char *limit;         /* EVENT_LIMIT_HIT: the limit's field */
        uint64_t limit_value;
        uint64_t limit_count;
} Event;
