/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "rpc/channel-hub.h"
#include "runtime/runtime.h"

typedef struct SourceRules SourceRules;

/* The runtime "native": sandboxes of this machine's own namespaces, each kept by a process of its own, hutch-keeper,
 * which outlives the daemon.
 *
 *         r = native_runtime_new(loop, hub, &options, &runtime, &err);
 *         sandbox = runtime->verbs->attach(runtime, id, &events, user);
 *         runtime->verbs->start(sandbox, &spec);
 *         …
 *         runtime->verbs->free(sandbox);
 *         native_runtime_free(runtime, NULL, NULL);      the loop must run on until it is gone
 *
 * What there is of a sandbox on disk:
 *
 *   STATE/sandboxes/ID/keeper.sock    the keeper listens here
 *   STATE/sandboxes/ID/keeper.log     what it had to say
 *   STATE/sandboxes/ID/EXEC.{out,err} output of execs, written by the keeper, read by the daemon
 *   STATE/sandboxes/ID/fs/            the sandbox's root, made by the keeper
 *   STATE/images/                     what of this machine all sandboxes see, made by keepers
 *   STATE/trash/ID/                   what is being removed, by a process of its own
 *   STATE/trash/+NUMBER/              the same: output that is not kept any more
 *   CGROUPS/hutch-INSTANCE/ID/        its processes, and its keeper
 *
 * A keeper is alive as long as somebody listens on its socket. When nobody does, what it left is removed: everything in
 * the cgroup is killed, the cgroup and the socket go; the files stay until remove(). The socket itself is reached by a
 * descriptor of its folder, since its path may be longer than socket addresses can be. */

typedef struct NativeOptions {
        const char *state_folder;   /* absolute; there, and nobody else's */
        const char *keeper_program; /* the path of hutch-keeper */
        const char *instance_id;    /* tells the daemons of one machine apart */
        bool uid_ranges; /* each sandbox has a range of uids, which takes root; else it has the daemon's own */
        const SourceRules *sources; /* what of the host may be mounted; as long as the runtime; NULL: nothing */
        uint64_t start_timeout;     /* nanoseconds; 0: 30 s */
        uint64_t answer_timeout;    /* after which a keeper counts as hung; nanoseconds; 0: 10 s */
} NativeOptions;

/* Makes the runtime, and begins to remove what an earlier daemon had not finished removing. @options are copied. */
int native_runtime_new(uv_loop_t *loop, ChannelHub *hub, const NativeOptions *options, Runtime **ret_runtime,
                       HutchError *err) __attribute__((nonnull(1, 2, 3, 4)));

/* Frees @runtime, whose sandboxes have been freed, while the loop runs on; sandboxes go on. Then calls @done, which may
 * be NULL. */
void native_runtime_free(Runtime *runtime, void (*done)(void *user), void *user) __attribute__((nonnull(1)));
