/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Waiting without memory. A process that does nothing more but wait would hold all that it was forked with: pages that
 * are no longer shared, and the tables for them. */

/* Gives back all memory but the page of the program that it runs on, where that can be done, and exits when something
 * comes over @socket, or its other end is closed. All signals must be at what they do by default, or ignored. */
_Noreturn void bare_wait(int socket);
