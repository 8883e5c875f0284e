/* SPDX-License-Identifier: Apache-2.0 */

/* Workers that say what none would: what the keeper makes of one that was taken over. */

#include "keeper/files/file-pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/limit-groups.h"
#include "keeper/worker/file-process.h"

#include "test.h"

/* What the worker says when it is told to begin. */
typedef struct Lie {
        FileFrameKind kind;
        uint32_t len; /* as it says */
        const void *bytes;
        size_t size; /* as many as there are */
} Lie;

typedef struct Fixture {
        uv_loop_t loop;
        KeptSandbox sandbox;
        FilePool *pool;
        Lie lie;
        bool has_ended;
        size_t n_messages;
        HutchError err;
} Fixture;

static Fixture *current;

static void lie_and_stay(int socket, const Lie *lie) {
        FileFrameHead head = { .len = lie->len, .kind = (uint8_t) lie->kind };
        char begin[sizeof(FileFrameHead) + sizeof(FileBegin)];

        if (recv(socket, begin, sizeof(begin), MSG_WAITALL) < 0 || fd_write_all(socket, &head, sizeof(head)) < 0 ||
            fd_write_all(socket, lie->bytes, lie->size) < 0)
                _exit(1);
        for (;;)
                (void) pause();
}

/* In the place of the keeper's own. */
int file_process_start(KeptSandbox *sandbox, ExecGroup *group, const char *user, bool sees_layers,
                       FileProcess *ret_process, HutchError *err) {
        int pair[2];
        pid_t pid;

        (void) sandbox, (void) group, (void) user, (void) sees_layers, (void) err;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        pid = fork();
        if (pid == 0)
                lie_and_stay(pair[1], &current->lie);
        assert_true(pid > 0);
        fd_close(pair[1]);
        assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
        *ret_process = (FileProcess){ .pid = pid, .pidfd = (int) syscall(SYS_pidfd_open, pid, 0), .socket = pair[0] };
        assert_true(ret_process->pidfd >= 0);
        return 0;
}

static void on_message(void *user, uint8_t *message, size_t len) {
        (void) len;
        ((Fixture *) user)->n_messages++;
        free(message);
}

static uint8_t *on_take(void *user) {
        (void) user;
        return NULL;
}

static void on_taken(void *user) {
        (void) user;
}

static void on_ended(void *user, const HutchError *err, bool is_kept) {
        Fixture *fixture = user;

        (void) is_kept;
        assert_false(fixture->has_ended);
        fixture->has_ended = true;
        if (err) {
                fixture->err = *err;
                fixture->err.message = strdup(error_message(err));
        }
}

static int set_up(void **state) {
        static const FilePoolEvents events = { on_message, on_take, on_taken, on_ended };
        Fixture *fixture = new0(Fixture, 1);

        *state = current = fixture;
        fixture->sandbox.cgroup = -1;
        limit_groups_init(&fixture->sandbox);
        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        fixture->pool = file_pool_new(&fixture->loop, &fixture->sandbox, &events);
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;
        const HutchError over = { .error = ESHUTDOWN };

        file_pool_end(fixture->pool, &over);
        uv_run(&fixture->loop, UV_RUN_DEFAULT); /* until its process is reaped */
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        free(fixture->pool);
        error_clear(&fixture->err);
        free(fixture);
        return 0;
}

static void call(Fixture *fixture, Lie lie) {
        FileWorker *worker;

        fixture->lie = lie;
        assert_int_equal(file_pool_take(fixture->pool, "1000", 0, fixture, &worker, &fixture->err), 0);
        while (!fixture->has_ended)
                uv_run(&fixture->loop, UV_RUN_ONCE);
}

static void an_end_without_an_end_of_its_texts_is_read_as_far_as_they_can_be(void **state) {
        Fixture *fixture = *state;
        char bytes[sizeof(FileEnd) + 3];

        memset(bytes, 'x', sizeof(bytes));
        call(fixture, (Lie){ FILE_FRAME_END, sizeof(bytes), bytes, sizeof(bytes) });
        assert_string_equal(fixture->err.message, "xxx");
        assert_int_equal(fixture->err.n_pairs, ERROR_PAIRS_MAX);
        for (size_t i = 0; i < ERROR_PAIRS_MAX; i++) {
                assert_int_equal(strlen(fixture->err.pairs[i].key), sizeof(fixture->err.pairs[i].key) - 1);
                assert_int_equal(strlen(fixture->err.pairs[i].value), sizeof(fixture->err.pairs[i].value) - 1);
        }
}

static void what_is_no_frame_of_a_worker_ends_it(void **state) {
        static const char bytes[8];
        const Lie lies[] = {
                { FILE_FRAME_BEGIN, sizeof(bytes), bytes, sizeof(bytes) },
                { (FileFrameKind) 200, sizeof(bytes), bytes, sizeof(bytes) },
                { FILE_FRAME_MESSAGE, UINT32_MAX, bytes, sizeof(bytes) },
                { FILE_FRAME_END, sizeof(bytes), bytes, sizeof(bytes) },
        };
        Fixture *fixture = *state;

        for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
                fixture->has_ended = false;
                call(fixture, lies[i]);
                assert_string_equal(fixture->err.reason, "KEEPER_UNAVAILABLE");
                assert_int_equal(fixture->n_messages, 0);
                error_clear(&fixture->err);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(an_end_without_an_end_of_its_texts_is_read_as_far_as_they_can_be,
                                                set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_is_no_frame_of_a_worker_ends_it, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
