/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

/* Inputs: what goes to the stdin of a process, from any number of senders, in the order in which they gave it. A
 * process that does not read stalls its senders and nobody else. */

typedef struct Input Input;

/* One thing to be sent; its sender's, which keeps it until it is taken or removed. */
typedef struct InputItem InputItem;
struct InputItem {
        const void *bytes;
        size_t len;
        bool close; /* the end of the input follows */
        /* It was taken: written, or thrown away because nobody will read it. The item is the sender's again. */
        void (*taken)(InputItem *item);

        Input *input; /* where it waits; NULL: it does not */
        InputItem *next;
};

/* An input that writes to @fd, which must not block and is taken over. On a terminal the end of the input is its
 * end-of-file character. NULL when the descriptor cannot be waited for. */
Input *input_new(uv_loop_t *loop, int fd, bool terminal) __attribute__((nonnull));

/* Has every item that waits taken, and closes the descriptor. Takes NULL. Returns NULL. */
Input *input_free(Input *input);

/* Adds @item, which may be taken before this returns. */
void input_send(Input *input, InputItem *item) __attribute__((nonnull));

/* Takes @item back, wherever it is; what is left of it is not written. */
void input_item_remove(InputItem *item) __attribute__((nonnull));
