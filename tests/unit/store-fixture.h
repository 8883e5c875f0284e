/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "store/store.h"

/* For units of the store: a folder of its own for each test, and rows to fill stores with. */

/* Make and remove the folder; cmocka calls them. store_path(): a file in it, valid until the fourth call after. */
int store_folder_setup(void **state);
int store_folder_teardown(void **state);
const char *store_path(const char *name);

Store *open_store(const char *name);
Store *reopen_store(Store *store, const char *name);

/* A sandbox with all columns filled, different for each serial. Its spec is shared by all of that size. */
SandboxRecord sample_sandbox(uint64_t serial);
ExecRecord sample_exec(uint64_t sandbox_serial, uint64_t serial);

/* Write them, with an event of that cursor for the sandbox; nothing is committed. */
void put_sandbox(Store *store, uint64_t serial, SandboxState state);
void put_exec(Store *store, uint64_t sandbox_serial, uint64_t serial, ExecState state);
void add_event(Store *store, uint64_t cursor, uint64_t sandbox_serial, uint64_t sequence);
void commit(Store *store);

/* How many there are of each; fails the test unless all can be read, or returns -EBADMSG. */
typedef struct StoreCounts {
        int sandboxes, deleted, execs, events;
} StoreCounts;

int store_count(Store *store, StoreCounts *ret_counts);
void assert_counts(Store *store, int sandboxes, int deleted, int execs, int events);

/* The bytes of a file. The caller frees them. */
char *read_whole(const char *path, size_t *ret_len);
void write_whole(const char *path, const char *bytes, size_t len);
