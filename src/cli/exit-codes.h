/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Exit codes of the command line itself; a command that is run has its own. */

enum {
        EXIT_USAGE = 2,
        EXIT_HUTCH_FAILED = 125, /* Hutch could not run the command */
};
