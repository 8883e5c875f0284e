/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/event.h"
#include "model/exec.h"
#include "model/sandbox.h"

/* The store: the durable shadow of what the daemon has in memory, in one SQLite file. One process, one writer.
 *
 * Writes happen at once, in a transaction that the first of them opens; store_commit() has all of them be there for
 * whoever opens the store next, whatever becomes of this process; store_sync() makes them durable:
 *
 *         r = store_put_sandbox(store, &record, err);
 *         r = store_add_event(store, &row, err);
 *         r = store_commit(store, err);          now it may be acted on: that ends with the machine, too
 *         r = store_sync(store, err);            nobody outside is told of any of it before
 *
 * Reads see what was written before them, committed or not. After a write that failed nothing can be committed:
 * store_commit() fails too, and takes everything back since the last commit.
 *
 * Errors: STORE_UNAVAILABLE (-ENOSPC, -EIO, …) when the file cannot be written: nothing was changed, and it may work
 * later. -EBADMSG: the file is damaged, found when it was read.
 *
 * Texts and bytes that a callback is given are its to read until it returns; it may use the store. */

typedef struct Store Store;

/* Opens the store at @path, which is absolute, or makes one. Brings an older schema up to date; checks the file's
 * integrity. Refuses, with a sentence that says what to do, and never changes: a file that is corrupt or no store
 * (-EBADMSG), one of a later version (-EPROTONOSUPPORT). */
int store_open(const char *path, Store **ret_store, HutchError *err) __attribute__((nonnull(1, 2)));

/* Takes back what was not committed, closes and frees @store, which may be NULL. Returns NULL. */
Store *store_close(Store *store);
DEFINE_CLEANUP(Store *, store_close);

/* Copies the store at @path, which may be in use by a daemon, to the new file @target. -EEXIST when that is there. */
int store_backup(const char *path, const char *target, HutchError *err) __attribute__((nonnull(1, 2)));

/* Commits everything since the last time. Fails when any of it failed; then all of it is taken back. (When it was the
 * last write that failed, and the process ends before the next commit, it may be there after all: then whole.) */
int store_commit(Store *store, HutchError *err) __attribute__((nonnull(1)));

/* Waits until everything that was committed is on the disk; nothing to do is quick. After it failed nobody knows how
 * much of it is, and the kernel does not try again: end the process, and open the store anew. */
int store_sync(Store *store, HutchError *err) __attribute__((nonnull(1)));
bool store_is_synced(const Store *store) __attribute__((nonnull));

/* Tells whether there is anything to commit. */
bool store_is_dirty(const Store *store) __attribute__((nonnull));

/* Small facts by name: "instance_id", "boot_id". -ENOENT: never set. The caller frees the value. */
int store_get_fact(Store *store, const char *name, char **ret_value, HutchError *err) __attribute__((nonnull(1, 2, 3)));
int store_set_fact(Store *store, const char *name, const char *value, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* Sandboxes. put: adds it, or changes what can change of it. An id stays reserved for ever. */
int store_put_sandbox(Store *store, const SandboxRecord *record, HutchError *err) __attribute__((nonnull(1, 2)));

/* Bytes that a record's spec is made of. */
typedef struct StoredSpec {
        const uint8_t *encoded;
        size_t encoded_len;
        const uint8_t *effective; /* sandboxes only */
        size_t effective_len;
        const uint8_t *input; /* execs only */
        size_t input_len;
} StoredSpec;

/* The record's `spec` is NULL: @spec is what to make it of. A negative return value ends the reading with it. */
typedef int (*StoreSandboxCallback)(const SandboxRecord *record, const StoredSpec *spec, void *user);
typedef int (*StoreExecCallback)(const ExecRecord *record, const StoredSpec *spec, void *user);

/* Every sandbox that is not DELETED, in the order of creation. */
int store_each_sandbox(Store *store, StoreSandboxCallback callback, void *user, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* The sandbox of that id, also a DELETED one whose history was not purged. -ENOENT. */
int store_find_sandbox(Store *store, const char *id, StoreSandboxCallback callback, void *user, HutchError *err)
        __attribute__((nonnull(1, 2, 3)));

/* DELETED sandboxes in the order of creation, at most @max of those after @after_serial; @owner NULL: everybody's. */
int store_each_deleted(Store *store, const char *owner, uint64_t after_serial, size_t max,
                       StoreSandboxCallback callback, void *user, HutchError *err) __attribute__((nonnull(1, 5)));

/* Tells whether @id is or ever was in use: 1 or 0, or a negative errno. */
int store_id_is_used(Store *store, const char *id, HutchError *err) __attribute__((nonnull(1, 2)));

/* The largest serial and cursor ever given out, also to what was purged. 0: none. */
int store_last_serial(Store *store, uint64_t *ret_serial, HutchError *err) __attribute__((nonnull(1, 2)));
int store_last_cursor(Store *store, uint64_t *ret_cursor, HutchError *err) __attribute__((nonnull(1, 2)));

/* Execs. put: adds it, or changes what can change of it; the input is kept while its state is PENDING. each: those of
 * one sandbox, in the order of creation, at most @max of those after @after_serial. each_active: everybody's that are
 * PENDING or RUNNING, in the order of their sandboxes and then of creation. */
int store_put_exec(Store *store, const ExecRecord *record, HutchError *err) __attribute__((nonnull(1, 2)));
int store_each_exec(Store *store, uint64_t sandbox_serial, uint64_t after_serial, size_t max,
                    StoreExecCallback callback, void *user, HutchError *err) __attribute__((nonnull(1, 5)));
int store_each_active_exec(Store *store, StoreExecCallback callback, void *user, HutchError *err)
        __attribute__((nonnull(1, 2)));
int store_find_exec(Store *store, uint64_t sandbox_serial, const char *id, StoreExecCallback callback, void *user,
                    HutchError *err) __attribute__((nonnull(1, 3, 4)));

/* Output that is kept of an exec that has ended. */
typedef struct KeptOutput {
        uint64_t exec_serial;
        char exec_id[ID_LEN_MAX + 1];
        uint64_t bytes;
} KeptOutput;

/* What is kept of the sandbox's execs after @after_serial, in the order of creation, but for that of the newest: at
 * most @max. Returns how many. */
int store_kept_outputs(Store *store, uint64_t sandbox_serial, uint64_t after_serial, KeptOutput *ret_outputs,
                       size_t max, HutchError *err) __attribute__((nonnull(1, 4)));
/* Notes that nothing is kept any more. */
int store_drop_output(Store *store, uint64_t sandbox_serial, uint64_t exec_serial, HutchError *err)
        __attribute__((nonnull(1)));

/* An event: what is needed to find it, and what watchers get, which is opaque here. */
typedef struct EventRow {
        uint64_t cursor;
        uint64_t sandbox_serial;
        uint64_t sequence;
        uint64_t time;
        EventType type;
        const char *sandbox_id;
        const char *owner;
        const char *labels; /* the sandbox's as they were then, as "key=value,key=value" in the order of the keys */
        const uint8_t *encoded;
        size_t encoded_len;
} EventRow;

typedef int (*StoreEventCallback)(const EventRow *row, void *user);

int store_add_event(Store *store, const EventRow *row, HutchError *err) __attribute__((nonnull(1, 2)));

/* Events after @after_cursor in their order, at most @max. */
int store_each_event(Store *store, uint64_t after_cursor, size_t max, StoreEventCallback callback, void *user,
                     HutchError *err) __attribute__((nonnull(1, 4)));

/* The cursor of the sandbox's event of that sequence. -ENOENT. */
int store_event_cursor(Store *store, uint64_t sandbox_serial, uint64_t sequence, uint64_t *ret_cursor, HutchError *err)
        __attribute__((nonnull(1, 4)));

/* Up to which cursor events may have been purged: reading on from an earlier one would miss some. */
int store_purged_cursor(Store *store, uint64_t *ret_cursor, HutchError *err) __attribute__((nonnull(1, 2)));

#define FINGERPRINT_SIZE 32

/* A request that must not be done twice. */
typedef struct RequestRow {
        const char *caller;
        const char *method;
        const char *request_id;
        uint8_t fingerprint[FINGERPRINT_SIZE]; /* of what was asked */
        uint64_t time;
        char sandbox_id[ID_LEN_MAX + 1]; /* what came of it */
        char exec_id[ID_LEN_MAX + 1];    /* empty: none */
} RequestRow;

/* Takes the place of an older one with the same key. */
int store_add_request(Store *store, const RequestRow *row, HutchError *err) __attribute__((nonnull(1, 2)));

/* Fills in what is not the key of @row. -ENOENT: there was no such request. */
int store_find_request(Store *store, RequestRow *row, HutchError *err) __attribute__((nonnull(1, 2)));

/* Forgets requests before @before; removes DELETED sandboxes whose state_time is before @before with their execs and
 * events, their ids aside. At most @max; returns how many. */
int store_purge_requests(Store *store, uint64_t before, size_t max, HutchError *err) __attribute__((nonnull(1)));
int store_purge_sandboxes(Store *store, uint64_t before, size_t max, HutchError *err) __attribute__((nonnull(1)));
