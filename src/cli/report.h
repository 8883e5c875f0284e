/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <hutch/hutch.h>

#include "base/memory.h"

/* What went wrong, on stderr: one line with what to do about it, and a line for every field that is to blame. */

DEFINE_CLEANUP(HutchError *, hutch_error_free);

/* Says what @error of libhutch says, about @what (an id) unless that is NULL. NULL: an answer cannot be read. Returns
 * @exit_code. */
int report_error(const HutchError *error, const char *what, int exit_code);

/* A line for people. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2), nonnull));
