/* SPDX-License-Identifier: Apache-2.0 */

#include "channel-server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "rpc/core/metadata.h"

#include "test.h"

static char folder[] = "/tmp/hutch-channel-XXXXXX";
char channel_socket[64], channel_target[80];

static void echo(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) context;
        call_reply(call, message, len);
}

static void hang(Call *call, const uint8_t *message, size_t len, void *context) {
        (void) call, (void) message, (void) len, (void) context;
}

/* Fails as often as its context says, and then answers. */
static void flaky(Call *call, const uint8_t *message, size_t len, void *context) {
        int *failures = context;

        if ((*failures)-- > 0)
                call_finish(call, STATUS_UNAVAILABLE, "not now");
        else
                call_reply(call, message, len);
}

static void whoami(Call *call, const uint8_t *message, size_t len, void *context) {
        const MetadataEntry *entry = metadata_find(call_metadata(call), "authorization");

        (void) message, (void) len, (void) context;
        call_reply(call, entry ? entry->value : "", entry ? entry->value_len : 0);
}

static void converse_message(Call *call, const uint8_t *message, size_t len) {
        uint8_t *taken = call_take_message(call);

        assert_ptr_equal(taken, message);
        (void) call_send_taken(call, taken, len);
        call_read(call);
}

static void converse_end(Call *call) {
        call_finish(call, STATUS_OK, NULL);
}

static void converse(Call *call, void *context) {
        static const CallEvents events = { .message = converse_message, .half_closed = converse_end };

        call_set_events(call, &events, context);
        call_read(call);
}

static void inspect_message(Call *call, const uint8_t *message, size_t len) {
        const char *answer = call_message_was_compressed(call) ? "compressed" : "plain";

        (void) message, (void) len;
        call_set_compression(call, call_message_was_compressed(call));
        (void) call_send(call, answer, strlen(answer));
        call_read(call);
}

/* Answers each message with whether it was compressed, in kind, and sends metadata before and after. Fails at first as
 * often as its context says. */
static void inspect(Call *call, void *context) {
        static const CallEvents events = { .message = inspect_message, .half_closed = converse_end };
        int *failures = context;

        if ((*failures)-- > 0) {
                call_finish(call, STATUS_UNAVAILABLE, "not now");
                return;
        }
        assert_int_equal(metadata_add(call_initial_metadata(call), "x-first", "1", 1), 0);
        assert_int_equal(metadata_add(call_trailing_metadata(call), "x-last-bin", "\0", 1), 0);
        call_set_events(call, &events, NULL);
        call_read(call);
}

/* Answers with many messages. */
static void pour(Call *call, const uint8_t *message, size_t len, void *context) {
        static const uint8_t block[1000] = "drop";

        (void) message, (void) len, (void) context;
        for (size_t i = 0; i < CHANNEL_SERVER_POURS; i++)
                assert_int_equal(call_send(call, block, sizeof(block)), 0);
        call_finish(call, STATUS_OK, NULL);
}

static void die(uv_timer_t *timer) {
        (void) timer;
        _exit(0);
}

static void die_soon(Call *call, CallEnd how) {
        static uv_timer_t timer;

        (void) how;
        uv_timer_init(call_user(call), &timer);
        uv_timer_start(&timer, die, 20, 0); /* when the answer has left */
}

/* The same, and then ends the process. */
static void pour_and_die(Call *call, const uint8_t *message, size_t len, void *context) {
        static const CallEvents events = { .ended = die_soon };

        call_set_events(call, &events, context);
        pour(call, message, len, NULL);
}

static void fail_for_a_reason(Call *call, const uint8_t *message, size_t len, void *context) {
        _cleanup_(error_clear) HutchError err = {};

        (void) message, (void) len, (void) context;
        (void) error_set(&err, -ENOENT, "SANDBOX_NOT_FOUND", "there is no such sandbox");
        call_fail(call, &err);
}

void channel_server_start(ChannelServer *server, uv_loop_t *loop) {
        const Method list[] = {
                { .path = "/t.T/Echo", .handle = echo },
                { .path = "/t.T/Hang", .handle = hang },
                { .path = "/t.T/Flaky", .handle = flaky, .context = &server->failures },
                { .path = "/t.T/Whoami", .handle = whoami },
                { .path = "/t.T/Converse", .start = converse },
                { .path = "/t.T/Inspect", .start = inspect, .context = &server->failures },
                { .path = "/t.T/Pour", .handle = pour },
                { .path = "/t.T/PourAndDie", .handle = pour_and_die, .context = loop },
                { .path = "/t.T/Fail", .handle = fail_for_a_reason },
        };

        memcpy(server->list, list, sizeof(list));
        server->methods = method_table_new();
        assert_non_null(server->methods);
        assert_int_equal(method_table_add(server->methods, server->list, sizeof(list) / sizeof(list[0])), 0);
        assert_int_equal(server_new(loop, server->methods, &server_options_default, &server->server), 0);
        assert_int_equal(server_listen_unix(server->server, channel_socket, 0600, NULL), 0);
}

pid_t channel_server_fork(void) {
        pid_t parent = getpid(), pid;

        (void) unlink(channel_socket); /* of one that may not be dead yet */
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                ChannelServer *server = new0(ChannelServer, 1);
                uv_loop_t loop;

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent) /* it has died already */
                        _exit(1);
                uv_loop_init(&loop);
                server->failures = 2;
                channel_server_start(server, &loop);
                uv_run(&loop, UV_RUN_DEFAULT);
                _exit(1);
        }
        return pid;
}

int channel_server_set_up(void **state) {
        (void) state;
        if (!mkdtemp(folder))
                return -1;

        snprintf(channel_socket, sizeof(channel_socket), "%s/s", folder);
        snprintf(channel_target, sizeof(channel_target), "unix:%s", channel_socket);
        return 0;
}

int channel_server_tear_down(void **state) {
        (void) state;
        (void) unlink(channel_socket);
        return rmdir(folder);
}
