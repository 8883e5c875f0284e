/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/native/child-process.h"
#include "runtime/native/keeper-nest.h"
#include "runtime/native/sources.h"

/* Keepers as processes: starting one, and finding out whether one is there. @folder is a descriptor of the folder of a
 * sandbox. */

#define KEEPER_SOCKET "keeper.sock"
#define KEEPER_LOG "keeper.log"

/* What a keeper is started with. */
typedef struct KeeperStart {
        const uint8_t *config; /* an encoded KeeperConfig */
        size_t config_len;
        const NativeSources *sources; /* of what it mounts, in the same order */
} KeeperStart;

/* Starts a keeper. It listens from now on; a socket that is there already goes. */
int keeper_process_spawn(KeeperNest *nest, int folder, const KeeperStart *start, ChildEnded ended, void *user,
                         ChildProcess **ret_keeper, HutchError *err) __attribute__((nonnull(1, 3, 4, 6)));

/* The keeper's socket, to be connected to by the path of the descriptor. The folder is the keeper's: a link in the
 * place of the socket would lead to another sandbox's keeper, or to any daemon of the host. -ECONNREFUSED or -ENOENT:
 * there is none. */
int keeper_process_open_socket(int folder);

/* The same when a keeper is there: with a pidfd of it, or -1 when that cannot be had, in @ret_pidfd. Other errors: it
 * cannot be told. */
int keeper_process_find(int folder, int *ret_pidfd) __attribute__((nonnull));

/* The last line of the keeper's log, for the daemon's; empty when there is none. */
void keeper_process_last_words(int folder, char *buffer, size_t size) __attribute__((nonnull));
