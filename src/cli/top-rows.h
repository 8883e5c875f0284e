/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sandboxes and what they use, as `hutch top` shows them.
 *
 * The contract measures one sandbox with one call (GetSandbox). Calls are made side by side over the client's one
 * connection, so many at most, and the caller waits for all of them at one place, where it hears keys and signals, too:
 *
 *         TopAsker asker = { .client = client, .wait = wait };
 *         top_rows_list(&asker, &rows, &error);              // all sandboxes, without their usage
 *         top_rows_measure(&asker, rows.items, n, &error);   // those that are to be shown
 *         top_rows_compare(&rows, &before);                  // their CPU time since then */

typedef struct TopRow {
        char *id;
        char *state;
        uint64_t create_time; /* nanoseconds since 1970 */
        uint64_t execs;
        uint64_t memory_limit, process_limit, disk_limit; /* 0: none */

        bool is_measured; /* the rest is known */
        uint64_t memory, processes, disk;
        uint64_t cpu_time, measure_time;
        double cpu; /* percent of a core since the time before; negative: not known */

        ProtobufCMessage *message; /* the hutch.v1.Sandbox, if it was asked for alone; else NULL */
        HutchCall *call;           /* that asks for it */
} TopRow;

typedef struct TopRows {
        TopRow *items;
        size_t n;
} TopRows;

typedef struct TopAsker {
        HutchClient *client;
        /* Waits until the client has something to do, and has it do that. Returns 0, or what the caller is to give up
         * with. */
        int (*wait)(void *user);
        void *user;
} TopAsker;

/* Lists the caller's sandboxes. */
int top_rows_list(const TopAsker *asker, TopRows *ret_rows, HutchError **ret_error) __attribute__((nonnull));

/* Rows for sandboxes that are named, of which nothing is known yet. */
TopRows top_rows_of(char *const ids[], size_t n) __attribute__((nonnull));

/* Asks for what each of @rows uses now. Those that run nothing are not measured, nor those that were listed and are
 * gone since; one that was named and is not there is an error. */
int top_rows_measure(const TopAsker *asker, TopRow *rows, size_t n, HutchError **ret_error) __attribute__((nonnull));

/* Finds out the use of the CPU by what was measured @before, which is sorted anew. */
void top_rows_compare(const TopRows *rows, TopRows *before) __attribute__((nonnull));

void top_rows_clear(TopRows *rows) __attribute__((nonnull));
