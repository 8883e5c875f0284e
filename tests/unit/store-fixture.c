/* SPDX-License-Identifier: Apache-2.0 */

#include "store-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#include "test.h"

static char folder[64];

int store_folder_setup(void **state) {
        snprintf(folder, sizeof(folder), "/tmp/hutch-test-store-XXXXXX");
        return mkdtemp(folder) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

int store_folder_teardown(void **state) {
        return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *store_path(const char *name) {
        static char paths[4][128];
        static unsigned next;
        char *path = paths[next++ % 4];

        snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
        return path;
}

Store *open_store(const char *name) {
        _cleanup_(error_clear) HutchError err = {};
        Store *store = NULL;

        if (store_open(store_path(name), &store, &err) < 0)
                fail_msg("%s", error_message(&err));
        return store;
}

Store *reopen_store(Store *store, const char *name) {
        store_close(store);
        return open_store(name);
}

static uint8_t bytes[] = { 0, 1, 2, 0xff, 0, 'x' };
static Label labels[] = { { "zone", "b" }, { "app", "web" } };

static SandboxSpec sandbox_spec = {
        .n_refs = 1,
        .encoded = bytes,
        .encoded_len = sizeof(bytes),
        .effective = bytes + 1,
        .effective_len = 3,
        .labels = labels,
        .n_labels = 2,
};

static ExecSpec exec_spec = {
        .n_refs = 1,
        .encoded = bytes,
        .encoded_len = sizeof(bytes),
        .input = bytes + 2,
        .input_len = 4,
};

SandboxRecord sample_sandbox(uint64_t serial) {
        SandboxRecord record = {
                .serial = serial,
                .owner = "uid:1000",
                .spec = &sandbox_spec,
                .state = SANDBOX_READY,
                .state_message = "all is \"well\" – 好",
                .create_time = 1700000000000000000 + serial,
                .state_time = 1000 + serial,
                .sequence = 7 * serial,
                .pause_wanted = (PauseWanted) (serial % 3),
                .uid_slot = UINT32_MAX - (uint32_t) serial,
                .stop_grace = UINT64_MAX,
                .expired = serial % 2 == 1,
                .idle_since = 3 * serial,
                .lifetime_left = UINT64_MAX - serial,
                .lifetime_as_of = 5 * serial,
                .next_exec_serial = 4 + serial,
                .output_kept = 6 * serial,
        };

        snprintf(record.id, sizeof(record.id), "sandbox-%llu", (unsigned long long) serial);
        return record;
}

ExecRecord sample_exec(uint64_t sandbox_serial, uint64_t serial) {
        ExecRecord record = {
                .sandbox_serial = sandbox_serial,
                .serial = serial,
                .spec = &exec_spec,
                .state = EXEC_EXITED,
                .create_time = 100 + serial,
                .start_time = 200 + serial,
                .end_time = 300 + serial,
                .cancel_time = 400 + serial,
                .cancel_grace = UINT64_MAX,
                .bound = serial % 2 == 1,
                .result = {
                        .end_reason = EXEC_END_CANCELLED,
                        .has_exit_code = true,
                        .exit_code = -1,
                        .signal = 9,
                        .failure = REASON_FILE_NOT_FOUND,
                        .message = "the command's end",
                        .out = { UINT64_MAX, 1 },
                        .err = { 2, 3 },
                        .cpu_time = 4,
                        .peak_memory = 5,
                },
        };

        snprintf(record.id, sizeof(record.id), "exec-%llu", (unsigned long long) serial);
        return record;
}

void put_sandbox(Store *store, uint64_t serial, SandboxState state) {
        SandboxRecord record = sample_sandbox(serial);

        record.state = state;
        assert_int_equal(store_put_sandbox(store, &record, NULL), 0);
}

void put_exec(Store *store, uint64_t sandbox_serial, uint64_t serial, ExecState state) {
        ExecRecord record = sample_exec(sandbox_serial, serial);

        record.state = state;
        assert_int_equal(store_put_exec(store, &record, NULL), 0);
}

void add_event(Store *store, uint64_t cursor, uint64_t sandbox_serial, uint64_t sequence) {
        SandboxRecord sandbox = sample_sandbox(sandbox_serial);
        EventRow row = {
                .cursor = cursor,
                .sandbox_serial = sandbox_serial,
                .sequence = sequence,
                .time = 10 * cursor,
                .type = EVENT_SANDBOX_STATE_CHANGED,
                .sandbox_id = sandbox.id,
                .owner = sandbox.owner,
                .labels = "app=web,zone=b",
                .encoded = bytes,
                .encoded_len = sizeof(bytes),
        };

        assert_int_equal(store_add_event(store, &row, NULL), 0);
}

void commit(Store *store) {
        _cleanup_(error_clear) HutchError err = {};

        if (store_commit(store, &err) < 0)
                fail_msg("%s", error_message(&err));
}

typedef struct Counting {
        Store *store;
        StoreCounts counts;
} Counting;

static int count_exec(const ExecRecord *record, const StoredSpec *spec, void *user) {
        ((Counting *) user)->counts.execs++;
        return 0;
}

static int count_sandbox(const SandboxRecord *record, const StoredSpec *spec, void *user) {
        Counting *counting = user;

        if (record->state == SANDBOX_DELETED)
                counting->counts.deleted++;
        else
                counting->counts.sandboxes++;
        return store_each_exec(counting->store, record->serial, 0, SIZE_MAX, count_exec, counting, NULL);
}

static int count_event(const EventRow *row, void *user) {
        ((Counting *) user)->counts.events++;
        return 0;
}

int store_count(Store *store, StoreCounts *ret_counts) {
        Counting counting = { .store = store };
        int r = store_each_sandbox(store, count_sandbox, &counting, NULL);

        if (r >= 0)
                r = store_each_deleted(store, NULL, 0, SIZE_MAX, count_sandbox, &counting, NULL);
        if (r >= 0)
                r = store_each_event(store, 0, SIZE_MAX, count_event, &counting, NULL);
        if (r != -EBADMSG)
                assert_int_equal(r, 0);

        *ret_counts = counting.counts;
        return r;
}

void assert_counts(Store *store, int sandboxes, int deleted, int execs, int events) {
        StoreCounts counts;

        assert_int_equal(store_count(store, &counts), 0);
        assert_int_equal(counts.sandboxes, sandboxes);
        assert_int_equal(counts.deleted, deleted);
        assert_int_equal(counts.execs, execs);
        assert_int_equal(counts.events, events);
}

char *read_whole(const char *path, size_t *ret_len) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        char *content;

        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        content = new0(char, (size_t) st.st_size + 1);
        assert_int_equal(read(fd, content, (size_t) st.st_size), st.st_size);
        *ret_len = (size_t) st.st_size;
        return content;
}

void write_whole(const char *path, const char *content, size_t len) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, content, len), 0);
}
