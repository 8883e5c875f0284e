/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>
#include <stddef.h>
#include <stdint.h>

#include "contract/hutch/v1/exec.pb-c.h"

/* What a command has printed, in one piece. */

/* Makes the output that a caller gets. Takes over @reply. -EBADMSG: it has no exec. -ENOMEM. */
int output_new(Hutch__V1__RunCommandResponse *reply, HutchOutput **ret_output) __attribute__((nonnull));

/* One stream as it is collected: all of it up to a limit, and beyond that its first and its last half. */
typedef struct Collector {
        uint8_t *data;
        size_t len;
        size_t size;
        size_t limit;
} Collector;

/* Adds what came. -ENOMEM. */
int collector_add(Collector *collector, const void *data, size_t len) __attribute__((nonnull(1)));

/* Drops what is more than the limit. */
void collector_end(Collector *collector) __attribute__((nonnull));
void collector_clear(Collector *collector) __attribute__((nonnull));
