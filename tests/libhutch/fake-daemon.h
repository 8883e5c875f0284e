/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A daemon for tests of libhutch that only pretends: another process at a Unix socket, which answers as it is told and
 * keeps what it was asked. When it dies, as it does where a stream is to break, another takes its place.
 *
 *   Ping, GetInfo     answer, after as many times UNAVAILABLE as `failures` says
 *   CreateSandbox     answers with what was asked, PENDING
 *   GetSandbox        answers with `sandbox_state`; "no-such-sandbox" is none
 *   ListSandboxes     has FAKE_SANDBOXES of them, two on a page
 *   DeleteSandbox     does not answer at all
 *   WatchEvents       has events up to the cursor FAKE_EVENTS; each tells that a sandbox is `sandbox_state`
 *   ReadExecOutput    has FAKE_OUTPUT bytes on stdout and as many on stderr, and 10 of either in a chunk
 *   AttachExec        the command prints what it reads, and ends with its input; "vanish" ends without telling how
 *   RunCommand        the command prints its input
 *
 * Streams break after `break_after` messages, if that is not 0; at once, if it is negative. */

#define FAKE_SANDBOXES 5
#define FAKE_EVENTS 20
#define FAKE_OUTPUT 100
#define FAKE_CALLS 32

typedef struct FakeDaemon {
        /* What the test says. */
        int failures;
        int break_after;
        bool lags; /* instead of breaking, a watch ends with WATCHER_LAGGED */
        int sandbox_state;
        uint64_t max_request;

        /* What was asked, the first FAKE_CALLS of it. */
        int n_calls;
        struct {
                char method[40];
                bool has_deadline;
                bool has_cursor, has_sequence;
                uint64_t cursor, sequence;
                uint64_t stdout_offset, stderr_offset;
                bool has_tail;
                char request_id[129];
                char id[201]; /* of the sandbox, or of the exec that is cancelled */
        } calls[FAKE_CALLS];
        uint64_t n_input; /* bytes that commands were fed with */
} FakeDaemon;

/* As "unix:…". */
extern char fake_daemon_address[80];

/* For a test: a daemon, in *state. */
int fake_daemon_set_up(void **state);
int fake_daemon_tear_down(void **state);

/* How often @method was called. */
int fake_daemon_count(const FakeDaemon *daemon, const char *method);
