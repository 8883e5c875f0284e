/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "api/violations.h"
#include "contract/google/protobuf/duration.pb-c.h"
#include "contract/google/protobuf/timestamp.pb-c.h"

/* Times and durations as messages, and as the nanoseconds that the daemon counts in. */

Google__Protobuf__Timestamp timestamp_message(uint64_t ns);
Google__Protobuf__Duration duration_message(uint64_t ns);

/* Of a duration that was checked. */
uint64_t duration_ns(const Google__Protobuf__Duration *message) __attribute__((nonnull));

/* Checks a duration, and adds what is wrong with it as a violation of @field. */
int duration_read(const Google__Protobuf__Duration *message, const char *field, Violations *violations,
                  uint64_t *ret_ns) __attribute__((nonnull));

/* The same with an upper bound of its own (FIELD_OUT_OF_RANGE), and @unset for one that is NULL. */
void duration_read_bounded(const Google__Protobuf__Duration *message, const char *field, uint64_t max, uint64_t unset,
                           Violations *violations, uint64_t *ret_ns) __attribute__((nonnull(2, 5, 6)));
