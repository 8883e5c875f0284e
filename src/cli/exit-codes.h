/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Exit codes of the command line itself; a command that is run has its own. docs/cli.md tells them to people. */

enum {
        EXIT_USAGE = 2,
        EXIT_TIMED_OUT = 124,    /* as timeout(1) */
        EXIT_HUTCH_FAILED = 125, /* Hutch could not run the command; as `docker run` */
        EXIT_SIGNAL = 128,       /* and the signal's number */
};
