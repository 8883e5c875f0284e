/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <uv.h>

#include "control/control.h"
#include "runtime/runtime.h"

/* The warm pool: sandboxes that run before anybody asks for them. */

typedef struct Sandbox Sandbox;
typedef struct WarmSandbox WarmSandbox;

/* What sandboxes of the warm pool have in common with those that they can be taken for. */
typedef struct WarmShape {
        Runtime *runtime;
        uint8_t *bytes; /* as RuntimeVerbs.get_shape() gave them; NULL: there is nothing like it in the pool, ever */
        size_t len;
} WarmShape;

/* Sandboxes that run already and belong to nobody: warm.c. Times are by the clock that does not jump. */
typedef struct WarmPool {
        uv_timer_t timer;
        RuntimeEvents events; /* of those in it */
        WarmSandbox *oldest;  /* the others follow in the order of their age */
        size_t n;
        SandboxSpec *spec; /* of the latest create that could be served by the pool, NULL: there was none; */
        WarmShape shape;   /* and its shape */
        bool missed;       /* there was none for it */
        uint64_t last_create;
        uint64_t not_before; /* the next is made */
        uint64_t pause;      /* that followed the latest failure */
        uint64_t end_latest; /* when @end_done is called at the latest */
        bool is_ended;
        void (*end_done)(void *user); /* of control_end_warm(), until it was called */
        void *end_user;
} WarmPool;

void warm_init(Control *control) __attribute__((nonnull));
void warm_shape_clear(WarmShape *shape) __attribute__((nonnull));

/* An id for a new sandbox of @spec: that of a warm one if one will do, which sandbox_accept() then takes. */
void warm_choose_id(Control *control, const SandboxSpec *spec, WarmShape *ret_shape, char ret_id[static ID_LEN_MAX + 1])
        __attribute__((nonnull));
bool warm_is_there(const Control *control, const char *id) __attribute__((nonnull));

/* A create was accepted: true, and the sandbox has what was the pool's, if that has its id. @shape is taken over. */
bool warm_take(Sandbox *sandbox, WarmShape *shape) __attribute__((nonnull));

/* Tells of starts of what was taken, so that they are durable together with the creates. */
void warm_tell_started(Control *control) __attribute__((nonnull));

void warm_update(Control *control) __attribute__((nonnull)); /* the limits have changed, or the last orphan is gone */
void warm_free(Control *control) __attribute__((nonnull));   /* all but the timer */
