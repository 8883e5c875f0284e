/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Failpoints: places at which a test may end the process as a crash would.
 *
 *         FAILPOINT("control.create.accepted");
 *
 * HUTCH_FAILPOINT=control.create.accepted:3 in the environment kills the process (SIGKILL) when it comes there for the
 * third time. HUTCH_FAILPOINT_LOG=FILE has each name appended to FILE when the process comes there for the first time,
 * so that a test knows which there are. Without the build option `failpoints` they are nothing. */

#ifdef HUTCH_FAILPOINTS
#define FAILPOINT(name) failpoint_reached(name)
#else
#define FAILPOINT(name) ((void) 0)
#endif

void failpoint_reached(const char *name) __attribute__((nonnull));
