/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A daemon for tests of libhutch that only pretends: another process at a Unix socket, which answers as it is told and
 * keeps what it was asked. When it dies, as it does where a stream is to break, another takes its place.
 *
 *   Ping              answers, after as many times UNAVAILABLE as `failures` says
 *   GetInfo           answers with `max_request`
 *   CreateSandbox     answers with what was asked, PENDING, after as many times UNAVAILABLE
 *   GetSandbox        answers with `sandbox_state`; "no-such-sandbox" is none
 *   ListSandboxes     has FAKE_SANDBOXES of them, two on a page
 *   DeleteSandbox     does not answer at all
 *   WatchEvents       has events up to the cursor FAKE_EVENTS; each tells that a sandbox is `sandbox_state`
 *   ReadExecOutput    has FAKE_OUTPUT bytes on stdout and as many on stderr, and 10 of either in a chunk
 *   AttachExec        the command prints what it reads, and ends with its input; "vanish" ends without telling how
 *   RunCommand        the command prints its input, or, when it is "pour", FAKE_POUR bytes
 *   Exec              the command prints its input and ends with 7; "refuse", "vanish" and "break" as with AttachExec,
 *                     "hang" does not end, "babble" goes on after its end, "pour" prints FAKE_POUR bytes
 *   DownloadFile      has FAKE_OUTPUT bytes, 10 in a message, which now and then has a field that nobody knows
 *
 * Streams break after `break_after` messages, if that is not 0; at once, if it is negative. */

#define FAKE_SANDBOXES 5
#define FAKE_EVENTS 20
#define FAKE_OUTPUT 100
#define FAKE_POUR (((size_t) 17 << 20) - 1000)
#define FAKE_CALLS 32

typedef struct FakeDaemon {
        /* What the test says. */
        int failures;
        int break_after;
        bool lags; /* instead of breaking, a watch ends with WATCHER_LAGGED */
        int sandbox_state;
        bool changes_state; /* to the next one, when it is watched */
        uint64_t max_request;

        /* What was asked, the first FAKE_CALLS of it. */
        int n_calls;
        struct {
                char method[40];
                bool has_deadline;
                uint64_t timeout_ms;   /* until the deadline */
                uint64_t exec_timeout; /* of the command, in seconds */
                bool has_cursor, has_sequence;
                uint64_t cursor, sequence;
                uint64_t stdout_offset, stderr_offset; /* or the first is that of a file */
                bool has_tail;
                char request_id[129];
                char id[201]; /* of the sandbox, or of the exec that is cancelled */
                char authorization[40];
        } calls[FAKE_CALLS];
        uint64_t n_input; /* bytes that commands were fed with */
} FakeDaemon;

/* "unix:…" or "127.0.0.1:…". */
extern char fake_daemon_address[80];

/* For a test: a daemon, in *state; and one at a TCP port, with TLS, which takes clients with a certificate only. */
int fake_daemon_set_up(void **state);
int fake_daemon_set_up_tls(void **state);
int fake_daemon_tear_down(void **state);

/* Of the daemon with TLS: the file of "ca" or "client" that ends with ".pem" or ".key". */
const char *fake_daemon_file(const char *name, const char *suffix);

/* How often @method was called. */
int fake_daemon_count(const FakeDaemon *daemon, const char *method);

/* Notes for spec/CONFORMANCE.md that @test has found a rule to hold: at its end. */
void rule_holds(const char *test, const char *rule);
