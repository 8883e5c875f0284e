/* SPDX-License-Identifier: Apache-2.0 */

/* The native runtime with real processes: fake keepers for the odd cases (fake-keeper.h), which this program is itself
 * when it is called hutch-keeper, and the real one, in HUTCH_KEEPER or among what was built, for the rest. */

#include "runtime/native/native.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "host/cgroup-tree.h"
#include "host/disk-weights.h"
#include "local/program.h"
#include "runtime/native/cgroup.h"
#include "runtime/native/limit-hits.h"

#include "fake-keeper.h"
#include "test.h"

#define LIMIT_NS (60 * NSEC_PER_SEC) /* no test waits longer */

typedef struct Fixture {
        uv_loop_t loop;
        ChannelHub *hub;
        Runtime *runtime;
        NativeOptions options;
        char folder[64];
        char instance[32];
        SandboxSpec *spec;
        StringBuilder log; /* what was told: " started exec_started:x …" */
        RuntimeExecEnd end;
        uint64_t start_time;
        char reason[64];
        char message[256];
        RuntimeSandbox *asked; /* for exec-runs-1, as soon as it has started */
} Fixture;

static void start_exec(RuntimeSandbox *sandbox, const char *exec_id, const char *script, bool stdin_stream);

static void note(Fixture *fixture, const char *what, const char *id) {
        string_builder_appendf(&fixture->log, " %s%s%s", what, id ? ":" : "", id ? id : "");
}

static void note_error(Fixture *fixture, const HutchError *err) {
        snprintf(fixture->reason, sizeof(fixture->reason), "%s", err->reason);
        snprintf(fixture->message, sizeof(fixture->message), "%s", error_message(err));
}

static void on_started(void *user) {
        Fixture *fixture = user;

        note(user, "started", NULL);
        if (fixture->asked)
                start_exec(fixture->asked, "exec-runs-1", "", false);
}

static void on_start_failed(void *user, const HutchError *err) {
        note_error(user, err);
        note(user, "start_failed", NULL);
}

static void on_stopped(void *user) {
        note(user, "stopped", NULL);
}

static void on_removed(void *user) {
        note(user, "removed", NULL);
}

static void on_pause_done(void *user, bool paused) {
        note(user, paused ? "paused" : "unpaused", NULL);
}

static void on_pause_failed(void *user, const HutchError *err) {
        note_error(user, err);
        note(user, "pause_failed", NULL);
}

static void on_lost(void *user, const HutchError *err) {
        note_error(user, err);
        note(user, "lost", NULL);
}

static void on_exec_started(void *user, const char *exec_id, uint64_t start_time) {
        Fixture *fixture = user;

        fixture->start_time = start_time;
        note(fixture, "exec_started", exec_id);
}

static void on_exec_ended(void *user, const char *exec_id, const RuntimeExecEnd *end) {
        Fixture *fixture = user;

        fixture->end = *end;
        if (end->failure)
                note_error(fixture, end->failure);
        note(fixture, "exec_ended", exec_id);
}

static void on_exec_unknown(void *user, const char *exec_id) {
        note(user, "exec_unknown", exec_id);
}

static void on_limit_hit(void *user, const char *limit, uint64_t count, const char *exec_id) {
        (void) count;
        (void) exec_id;
        note(user, "limit_hit", limit);
}

static void on_output_grew(void *user, const char *exec_id) {
        note(user, "output_grew", exec_id);
}

static const RuntimeEvents events = {
        .started = on_started,
        .start_failed = on_start_failed,
        .stopped = on_stopped,
        .removed = on_removed,
        .pause_done = on_pause_done,
        .pause_failed = on_pause_failed,
        .lost = on_lost,
        .exec_started = on_exec_started,
        .exec_ended = on_exec_ended,
        .exec_unknown = on_exec_unknown,
        .limit_hit = on_limit_hit,
        .output_grew = on_output_grew,
};

static const char *told(const Fixture *fixture) {
        return fixture->log.text ? fixture->log.text : "";
}

static void on_wake(uv_timer_t *timer) {
        (void) timer;
}

/* Runs the loop until @is_true, or it has taken too long. */
static bool run_until(Fixture *fixture, bool (*is_true)(Fixture *fixture, const void *what), const void *what) {
        uint64_t limit = clock_monotonic_ns() + LIMIT_NS;
        uv_timer_t timer;
        bool result;

        uv_timer_init(&fixture->loop, &timer);
        uv_timer_start(&timer, on_wake, 5, 5);
        while (!(result = is_true(fixture, what)) && clock_monotonic_ns() < limit)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *) &timer, NULL);
        uv_run(&fixture->loop, UV_RUN_NOWAIT);
        return result;
}

static bool has_told(Fixture *fixture, const void *what) {
        return strstr(told(fixture), what) != NULL;
}

static void expect(Fixture *fixture, const char *what) {
        if (!run_until(fixture, has_told, what))
                fail_msg("not told:%s; told:%s; message: %s", what, told(fixture), fixture->message);
}

static bool is_past(Fixture *fixture, const void *what) {
        (void) fixture;
        return clock_monotonic_ns() >= *(const uint64_t *) what;
}

static void run_for(Fixture *fixture, uint64_t time) {
        uint64_t until = clock_monotonic_ns() + time;

        (void) run_until(fixture, is_past, &until);
}

static unsigned count(const Fixture *fixture, const char *what) {
        unsigned n = 0;

        for (const char *at = told(fixture); (at = strstr(at, what)); at++)
                n++;
        return n;
}

static void open_runtime(Fixture *fixture) {
        _cleanup_(error_clear) HutchError err = {};

        if (native_runtime_new(&fixture->loop, fixture->hub, &fixture->options, &fixture->runtime, &err) < 0)
                fail_msg("%s", error_message(&err));
}

static void close_runtime(Fixture *fixture) {
        native_runtime_free(fixture->runtime, NULL, NULL);
        fixture->runtime = NULL;
        run_for(fixture, 20 * NSEC_PER_MSEC);
}

/* A keeper counts as hung soon. */
static void expect_answers_soon(Fixture *fixture) {
        close_runtime(fixture);
        fixture->options.answer_timeout = 2 * NSEC_PER_SEC;
        open_runtime(fixture);
}

static Fixture *fixture_new(const char *keeper) {
        Fixture *fixture = new0(Fixture, 1);

        snprintf(fixture->folder, sizeof(fixture->folder), "/tmp/hutch-native-XXXXXX");
        assert_non_null(mkdtemp(fixture->folder));
        snprintf(fixture->instance, sizeof(fixture->instance), "test-%d", getpid());
        fixture->options = (NativeOptions){
                .state_folder = fixture->folder,
                .keeper_program = keeper,
                .instance_id = fixture->instance,
                .uid_ranges = geteuid() == 0,
        };
        fixture->spec = sandbox_spec_new();
        fixture->spec->image = xstrdup("host");
        fixture->spec->runtime = xstrdup("native");
        fixture->spec->user = xstrdup("agent");
        fixture->spec->working_directory = xstrdup("/workspace");
        fixture->spec->workspace = xstrdup("/workspace");
        assert_int_equal(uv_loop_init(&fixture->loop), 0);
        assert_int_equal(channel_hub_new(&fixture->loop, &fixture->hub), 0);
        open_runtime(fixture);
        return fixture;
}

static int set_up_fake(void **state) {
        static char self[256];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        assert_true(n > 0);
        *state = fixture_new(self);
        return 0;
}

static char *real_keeper;

static int set_up_real(void **state) {
        *state = fixture_new(real_keeper ? real_keeper : "/nonexistent");
        return 0;
}

static void need_real(void) {
        if (!real_keeper || geteuid() != 0)
                skip();
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw) {
        (void) status;
        (void) type;
        (void) ftw;
        return remove(path);
}

static void cgroup_path(const Fixture *fixture, const char *id, char *path, size_t size) {
        _cleanup_(cgroup_sight_clear) CgroupSight sight = {};

        (void) cgroup_sight_read("self", &sight);
        snprintf(path, size, "%s/hutch-%s/%s", sight.own ? sight.own : "/nonexistent", fixture->instance, id);
}

/* Reaps every process, those also that were found again and are nobody's children but the test's. Returns how many had
 * to be killed for that: the nest has been, and needs a moment. */
static unsigned end_children(void) {
        uint64_t limit = clock_monotonic_ns() + LIMIT_NS;
        unsigned n_killed = 0;
        pid_t pid;

        while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
                _cleanup_free_ char *path = NULL;
                FILE *file;

                if (pid > 0)
                        continue;
                if (clock_monotonic_ns() < limit) {
                        usleep(1000);
                        continue;
                }
                assert_true(asprintf(&path, "/proc/self/task/%d/children", getpid()) > 0);
                file = fopen(path, "re");
                assert_non_null(file);
                while (fscanf(file, "%d", &pid) == 1) {
                        n_killed++;
                        (void) kill(pid, SIGKILL);
                        assert_int_equal(waitpid(pid, NULL, 0), pid);
                }
                fclose(file);
        }
        return n_killed;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;
        uint64_t limit = clock_monotonic_ns() + LIMIT_NS;
        unsigned n_killed;
        char path[512];

        if (fixture->runtime)
                native_runtime_free(fixture->runtime, NULL, NULL);
        channel_hub_free(fixture->hub);
        while (uv_run(&fixture->loop, UV_RUN_NOWAIT) != 0 && clock_monotonic_ns() < limit)
                usleep(1000);
        n_killed = end_children();
        assert_int_equal(uv_loop_close(&fixture->loop), 0);
        sandbox_spec_unref(fixture->spec);
        string_builder_clear(&fixture->log);
        (void) nftw(fixture->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        cgroup_path(fixture, "", path, sizeof(path));
        free(fixture);
        assert_int_equal(access(path, F_OK), -1); /* nor is the folder of the daemon's cgroups left */
        assert_int_equal(n_killed, 0);
        return 0;
}

static RuntimeSandbox *attach(Fixture *fixture, const char *id) {
        return fixture->runtime->verbs->attach(fixture->runtime, id, &events, fixture);
}

static void start(Fixture *fixture, RuntimeSandbox *sandbox) {
        sandbox->verbs->start(sandbox, &(RuntimeSpec){ .spec = fixture->spec, .uid_slot = 5 });
}

static RuntimeSandbox *start_fake(Fixture *fixture, const char *id) {
        RuntimeSandbox *sandbox = attach(fixture, id);

        start(fixture, sandbox);
        /* Nothing is told from within. */
        assert_string_equal(told(fixture), "");
        expect(fixture, " started");
        return sandbox;
}

static void start_program(RuntimeSandbox *sandbox, const char *exec_id, const char *program, const char *script,
                          const char *working_directory, bool stdin_stream) {
        static char path[] = "PATH=/usr/bin:/bin";
        ExecSpec *spec = exec_spec_new();

        spec->argv = new0(char *, 4);
        spec->argv[0] = xstrdup(program);
        spec->argv[1] = xstrdup("-c");
        spec->argv[2] = xstrdup(script);
        spec->kill_grace = NSEC_PER_SEC;
        spec->stdin_stream = stdin_stream;
        spec->output_limit = 1 << 20;
        sandbox->verbs->start_exec(sandbox, &(RuntimeExec){
                                                    .exec_id = exec_id,
                                                    .spec = spec,
                                                    .environment = (char *const[]){ path, NULL },
                                                    .working_directory = working_directory,
                                                    .user = "agent",
                                            });
        exec_spec_unref(spec);
}

static void start_exec(RuntimeSandbox *sandbox, const char *exec_id, const char *script, bool stdin_stream) {
        start_program(sandbox, exec_id, "/bin/sh", script, "/", stdin_stream);
}

static void remove_sandbox(Fixture *fixture, RuntimeSandbox *sandbox) {
        sandbox->verbs->remove(sandbox);
        expect(fixture, " removed");
        sandbox->verbs->free(sandbox);
}

/* Nothing of a sandbox runs or is in the way any more; its files may be there. */
static void assert_nothing_runs(const Fixture *fixture, const char *id) {
        char path[512];

        cgroup_path(fixture, id, path, sizeof(path));
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof(path), "%s/sandboxes/%s/keeper.sock", fixture->folder, id);
        assert_int_equal(access(path, F_OK), -1);
}

static void assert_no_files(const Fixture *fixture, const char *id) {
        char path[512];

        snprintf(path, sizeof(path), "%s/sandboxes/%s", fixture->folder, id);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof(path), "%s/trash/%s", fixture->folder, id);
        assert_int_equal(access(path, F_OK), -1);
}

static void a_sandbox_starts_stops_starts_again_and_is_removed(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " stopped");
        assert_nothing_runs(fixture, "fake-plain-1");
        start(fixture, sandbox);
        expect(fixture, " started stopped started");
        remove_sandbox(fixture, sandbox);
        assert_no_files(fixture, "fake-plain-1");
        assert_string_equal(told(fixture), " started stopped started removed");
}

static void a_start_waits_until_the_sandbox_is_built(void **state) {
        Fixture *fixture = *state;

        remove_sandbox(fixture, start_fake(fixture, "fake-slow-1"));
}

/* Starts a sandbox whose start is to fail with @reason and @message, then that it can be removed. */
static void expect_start_failed(Fixture *fixture, const char *id, const char *reason, const char *message) {
        RuntimeSandbox *sandbox = attach(fixture, id);

        start(fixture, sandbox);
        expect(fixture, " start_failed");
        assert_string_equal(fixture->reason, reason);
        if (!strstr(fixture->message, message))
                fail_msg("says: %s", fixture->message);
        assert_nothing_runs(fixture, id);
        remove_sandbox(fixture, sandbox);
        assert_no_files(fixture, id);
        assert_string_equal(told(fixture), " start_failed removed");
}

static void a_start_that_the_keeper_fails_tells_why(void **state) {
        expect_start_failed(*state, "fake-fails-1", "DISK_FULL", "there is no room");
}

static void a_keeper_that_dies_at_its_start_is_told(void **state) {
        expect_start_failed(*state, "fake-dies-1", "KEEPER_UNAVAILABLE", "exited with 3");
}

static void a_keeper_of_another_sandbox_is_refused(void **state) {
        expect_start_failed(*state, "fake-other-1", "KEEPER_UNAVAILABLE", "is not one");
}

static void a_start_that_takes_too_long_is_ended(void **state) {
        Fixture *fixture = *state;

        close_runtime(fixture);
        fixture->options.start_timeout = 200 * NSEC_PER_MSEC;
        open_runtime(fixture);
        expect_start_failed(fixture, "fake-hangs-1", "KEEPER_UNAVAILABLE", "in time");
}

static void a_missing_keeper_is_told(void **state) {
        Fixture *fixture = *state;
        _cleanup_(error_clear) HutchError err = {};
        RuntimeSandbox *sandbox;

        close_runtime(fixture);
        fixture->options.keeper_program = "/nonexistent/hutch-keeper";
        open_runtime(fixture);
        assert_int_equal(fixture->runtime->verbs->check(fixture->runtime, &err), -ENOENT);
        assert_string_equal(err.reason, "RUNTIME_UNAVAILABLE");
        sandbox = attach(fixture, "fake-plain-1");
        start(fixture, sandbox);
        expect(fixture, " start_failed");
        assert_string_equal(fixture->reason, "RUNTIME_UNAVAILABLE");
        sandbox->verbs->free(sandbox);
}

static void an_exec_is_told_once_and_in_order(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-early-1", "", false);
        expect(fixture, " exec_ended:exec-early-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_EXITED);
        assert_int_equal(WEXITSTATUS(fixture->end.wait_status), 7);
        assert_int_equal(fixture->end.out.total, 10);
        assert_int_equal(fixture->end.out.dropped, 4);
        assert_int_equal(fixture->end.cpu_time, 2 * NSEC_PER_SEC);
        assert_int_equal(fixture->start_time, UINT64_C(1600000000) * NSEC_PER_SEC);
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_string_equal(told(fixture), " started exec_started:exec-early-1 exec_ended:exec-early-1");

        start_exec(sandbox, "exec-runs-1", "", false);
        sandbox->verbs->cancel_exec(sandbox, "exec-runs-1", 0);
        expect(fixture, " exec_started:exec-runs-1 exec_ended:exec-runs-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_CANCELLED);
        sandbox->verbs->forget_exec(sandbox, "exec-runs-1");
        remove_sandbox(fixture, sandbox);
        /* Nobody started the one that the keeper speaks of. */
        assert_int_equal(count(fixture, "nobodys"), 0);
}

static void an_exec_that_is_refused_ends_without_a_start(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-refused-1", "", false);
        expect(fixture, " exec_ended:exec-refused-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_NOT_STARTED);
        assert_string_equal(fixture->reason, "INTERNAL");
        assert_string_equal(fixture->message, "not this one");
        assert_int_equal(count(fixture, "exec_started"), 0);
        remove_sandbox(fixture, sandbox);
}

static void what_cannot_be_is_not_believed(void **state) {
        Fixture *fixture = *state;
        uint64_t before = clock_realtime_ns();
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-lies-1", "", false);
        expect(fixture, " exec_ended:exec-lies-1");
        assert_true(fixture->start_time >= before && fixture->start_time <= clock_realtime_ns());
        assert_true(fixture->end.end_time >= fixture->start_time && fixture->end.end_time <= clock_realtime_ns());
        assert_true(fixture->end.out.total <= UINT64_C(1) << 62);
        assert_true(fixture->end.out.dropped <= fixture->end.out.total);
        assert_int_equal(fixture->end.cpu_time, 0);
        assert_true(WIFEXITED(fixture->end.wait_status));
        remove_sandbox(fixture, sandbox);
}

static void a_broken_connection_is_mended_and_nothing_missed(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-drops-1", "", false);
        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_ended:exec-drops-1");
        expect(fixture, " exec_started:exec-runs-1");
        run_for(fixture, 50 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "exec_started:exec-drops-1"), 1);
        assert_int_equal(count(fixture, "exec_ended:exec-drops-1"), 1);
        assert_int_equal(count(fixture, "exec_started:exec-runs-1"), 1);
        assert_int_equal(count(fixture, " started"), 1);
        assert_int_equal(count(fixture, "lost"), 0);
        remove_sandbox(fixture, sandbox);
}

static void an_exec_ends_once_and_does_not_start_after_it(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-turns-1", "", false);
        expect(fixture, " exec_started:exec-turns-1 exec_ended:exec-turns-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_EXITED);
        assert_int_equal(WEXITSTATUS(fixture->end.wait_status), 255);
        start_exec(sandbox, "exec-revives-1", "", false);
        expect(fixture, " exec_ended:exec-revives-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_NOT_STARTED);
        run_for(fixture, 100 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "exec_started:exec-revives-1"), 0);
        remove_sandbox(fixture, sandbox);
}

/* What is told is kept for as long as the sandbox is. */
static void limits_that_are_hit_all_the_time_are_told_some_times(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-hits-1", "", false);
        expect(fixture, " exec_ended:exec-hits-1");
        assert_int_equal(count(fixture, " limit_hit:max_processes"), LIMIT_HITS_AT_ONCE);
        assert_int_equal(count(fixture, " limit_hit:memory_bytes"), 1);
        start_exec(sandbox, "exec-hits-2", "", false);
        expect(fixture, " exec_ended:exec-hits-2");
        assert_int_equal(count(fixture, " limit_hit:max_processes"), LIMIT_HITS_AT_ONCE);
        assert_int_equal(count(fixture, " limit_hit:memory_bytes"), 2);
        remove_sandbox(fixture, sandbox);
}

static void on_input_writable(void *user) {
        (void) user;
}

static void on_input_closed(void *user, const HutchError *err) {
        note(user, "input_closed", err ? err->reason : NULL);
}

static const RuntimeInputEvents input_events = { .writable = on_input_writable, .closed = on_input_closed };

static void input_that_broke_is_told_when_there_is_a_connection_again(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        RuntimeInput *before, *meanwhile, *after;

        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        before = sandbox->verbs->open_input(sandbox, "exec-runs-1", &input_events, fixture);
        assert_int_equal(before->verbs->send_input(before, "x", 1), 0);
        start_exec(sandbox, "exec-drops-1", "", false);
        while (before->verbs->send_input(before, "x", 1) == 0)
                uv_run(&fixture->loop, UV_RUN_ONCE);
        assert_false(before->verbs->input_is_writable(before));
        meanwhile = sandbox->verbs->open_input(sandbox, "exec-runs-1", &input_events, fixture);
        assert_false(meanwhile->verbs->input_is_writable(meanwhile));
        assert_int_equal(meanwhile->verbs->send_input(meanwhile, "x", 1), -EPIPE);
        assert_int_equal(count(fixture, "input_closed"), 0);

        expect(fixture, " input_closed:KEEPER_UNAVAILABLE input_closed:KEEPER_UNAVAILABLE");
        expect(fixture, " exec_ended:exec-drops-1");
        after = sandbox->verbs->open_input(sandbox, "exec-runs-1", &input_events, fixture);
        assert_int_equal(after->verbs->send_input(after, "x", 1), 0);
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "input_closed"), 2);
        before->verbs->free_input(before);
        meanwhile->verbs->free_input(meanwhile);
        after->verbs->free_input(after);
        remove_sandbox(fixture, sandbox);
}

static void input_of_a_lost_sandbox_tells_nothing(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        RuntimeInput *input;

        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        input = sandbox->verbs->open_input(sandbox, "exec-runs-1", &input_events, fixture);
        start_exec(sandbox, "exec-kills-1", "", false);
        expect(fixture, " lost");
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "input_closed"), 0);
        input->verbs->free_input(input);
        remove_sandbox(fixture, sandbox);
}

static void on_call_message(void *user, uint8_t *bytes, size_t len) {
        Fixture *fixture = user;

        string_builder_appendf(&fixture->log, " answer:%.*s", (int) (len < 64 ? len : 64), (const char *) bytes);
        free(bytes);
}

static void on_call_writable(void *user) {
        note(user, "call_writable", NULL);
}

static void on_call_ended(void *user, const HutchError *err) {
        if (err)
                note_error(user, err);
        note(user, "call_ended", err ? err->reason : "OK");
        if (err && err->n_pairs > 0)
                note(user, err->pairs[0].key, err->pairs[0].value);
}

static const RuntimeCallEvents file_events = {
        .message = on_call_message,
        .writable = on_call_writable,
        .ended = on_call_ended,
};

static RuntimeCall *open_call(Fixture *fixture, RuntimeSandbox *sandbox, const char *path) {
        const RuntimeCallRequest request = { .path = path, .user = "1000:7", .key = "k/1", .deadline = UINT64_MAX };
        RuntimeCall *call = sandbox->verbs->open_call(sandbox, &request, &file_events, fixture);

        assert_non_null(call);
        return call;
}

static void calls_are_carried_to_the_keeper(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        const RuntimeVerbs *verbs = sandbox->verbs;
        RuntimeCall *call = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");

        verbs->read_call(call);
        assert_int_equal(verbs->send_call(call, "one", 3), 0);
        expect(fixture, " answer:1000:7 k/1 one");
        assert_int_equal(verbs->send_call_taken(call, (uint8_t *) xstrdup("two"), 3), 0);
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "answer"), 1);
        verbs->read_call(call);
        expect(fixture, " answer:1000:7 k/1 two");
        verbs->read_call(call);
        verbs->end_call(call);
        expect(fixture, " call_ended:OK");
        assert_int_equal(verbs->send_call(call, "x", 1), -EPIPE);
        assert_int_equal(verbs->send_call_taken(call, (uint8_t *) xstrdup("x"), 1), -EPIPE);
        assert_false(verbs->call_is_writable(call));
        verbs->free_call(call);
        remove_sandbox(fixture, sandbox);
}

/* What is inside may say anything: only reasons that there are come through, with the code that is theirs. */
static void failures_of_calls_are_read_with_care(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        const RuntimeVerbs *verbs = sandbox->verbs;
        RuntimeCall *call;

        call = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");
        verbs->read_call(call);
        assert_int_equal(verbs->send_call(call, "fail", 4), 0);
        expect(fixture, " call_ended:FILE_NOT_FOUND path:/a");
        assert_string_equal(fixture->message, "there is no '/a'");
        verbs->free_call(call);

        call = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");
        verbs->read_call(call);
        assert_int_equal(verbs->send_call(call, "lie", 3), 0);
        expect(fixture, " call_ended:INTERNAL");
        verbs->free_call(call);

        /* A keeper of a release that has no such method. */
        call = open_call(fixture, sandbox, "/hutch.v1.FileService/StatFile");
        verbs->read_call(call);
        expect(fixture, " call_ended:METHOD_UNIMPLEMENTED");
        verbs->free_call(call);
        remove_sandbox(fixture, sandbox);
}

static void calls_that_broke_are_unavailable(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        const RuntimeVerbs *verbs = sandbox->verbs;
        RuntimeCall *before = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile"), *meanwhile, *after;

        verbs->read_call(before);
        start_exec(sandbox, "exec-drops-1", "", false);
        expect(fixture, " call_ended:KEEPER_UNAVAILABLE");
        meanwhile = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");
        assert_int_equal(count(fixture, "call_ended"), 1);
        assert_int_equal(verbs->send_call(meanwhile, "x", 1), -EPIPE);
        expect(fixture, " call_ended:KEEPER_UNAVAILABLE call_ended:KEEPER_UNAVAILABLE");
        assert_int_equal(count(fixture, "lost"), 0);
        verbs->free_call(before);
        verbs->free_call(meanwhile);

        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        after = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");
        verbs->read_call(after);
        assert_int_equal(verbs->send_call(after, "again", 5), 0);
        expect(fixture, " answer:1000:7 k/1 again");
        verbs->free_call(after);
        remove_sandbox(fixture, sandbox);
}

/* Whether the log of the keeper of "fake-plain-1" says @what. */
static bool keeper_says(Fixture *fixture, const void *what) {
        _cleanup_close_ int fd = -1;
        char path[512], text[4096] = "";

        snprintf(path, sizeof(path), "%s/sandboxes/fake-plain-1/keeper.log", fixture->folder);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
        return strstr(text, what) != NULL;
}

static void calls_that_are_freed_are_cancelled(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        RuntimeCall *call = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");

        sandbox->verbs->read_call(call);
        assert_int_equal(sandbox->verbs->send_call(call, "one", 3), 0);
        expect(fixture, " answer:1000:7 k/1 one");
        sandbox->verbs->free_call(call);
        assert_true(run_until(fixture, keeper_says, "file work cancelled"));
        assert_int_equal(count(fixture, "call_ended"), 0);

        /* The sandbox is let go of first. */
        call = open_call(fixture, sandbox, "/hutch.v1.FileService/UploadFile");
        remove_sandbox(fixture, sandbox);
        run_for(fixture, 30 * NSEC_PER_MSEC);
        call->verbs->free_call(call);
}

static void expect_keeper_says(Fixture *fixture, const char *what) {
        if (!run_until(fixture, keeper_says, what))
                fail_msg("not said by the keeper: %s; told:%s", what, told(fixture));
}

static void an_exec_that_the_keeper_forgot_is_told_after_a_broken_connection(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-runs-vanishes", "", false);
        start_exec(sandbox, "exec-early-vanishes", "", false);
        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-vanishes");
        expect(fixture, " exec_ended:exec-early-vanishes");
        expect(fixture, " exec_started:exec-runs-1");
        start_exec(sandbox, "exec-drops-1", "", false);
        expect(fixture, " exec_unknown:exec-runs-vanishes");
        expect(fixture, " exec_ended:exec-drops-1");
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "exec_unknown"), 1);
        remove_sandbox(fixture, sandbox);
}

static void an_exec_that_the_keeper_forgot_is_told_when_it_is_cancelled(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-runs-forgotten", "", false);
        expect(fixture, " exec_started:exec-runs-forgotten");
        sandbox->verbs->cancel_exec(sandbox, "exec-runs-forgotten", 0);
        expect(fixture, " exec_unknown:exec-runs-forgotten");
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_int_equal(count(fixture, "exec_unknown"), 1);
        remove_sandbox(fixture, sandbox);
}

static void an_exec_of_nobodys_is_ended_after_a_broken_connection(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *first = start_fake(fixture, "fake-plain-1");
        RuntimeSandbox *second = attach(fixture, "fake-plain-1");

        /* Somebody else's, of whom this one does not know. */
        second->verbs->recover(second, (const char *const[]){ NULL });
        expect(fixture, " started started");
        start_exec(second, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        second->verbs->free(second);

        start_exec(first, "exec-drops-1", "", false);
        expect(fixture, " exec_ended:exec-drops-1");
        expect_keeper_says(fixture, "cancel exec-runs-1 0\nforget exec-runs-1\n");
        assert_int_equal(count(fixture, "exec_ended:exec-runs-1"), 0);
        remove_sandbox(fixture, first);
}

/* How often the keeper has said @what. */
static unsigned count_said(const Fixture *fixture, const char *what) {
        char path[512], line[256];
        unsigned n = 0;
        FILE *file;

        snprintf(path, sizeof(path), "%s/sandboxes/fake-flaps-1/keeper.log", fixture->folder);
        file = fopen(path, "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
                n += str_equal(line, what);
        fclose(file);
        return n;
}

static void a_keeper_that_breaks_connection_after_connection_is_asked_less_and_less(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        expect_answers_soon(fixture);
        sandbox = start_fake(fixture, "fake-flaps-1");
        run_for(fixture, NSEC_PER_SEC);
        assert_true(count_said(fixture, "describe\n") < 20);
        assert_string_equal(told(fixture), " started");
        remove_sandbox(fixture, sandbox);
}

static void a_keeper_that_dies_is_lost(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-kills-1", "", false);
        expect(fixture, " lost");
        assert_string_equal(fixture->reason, "KEEPER_UNAVAILABLE");
        assert_non_null(strstr(fixture->message, "exited with 4"));
        /* What the keeper wrote is for the log alone. */
        assert_null(strstr(fixture->message, "last words"));
        assert_nothing_runs(fixture, "fake-plain-1");
        assert_string_equal(told(fixture), " started lost");

        /* Asked again, the answer is the same. */
        sandbox->verbs->recover(sandbox, (const char *const[]){ "exec-kills-1", NULL });
        expect(fixture, " lost lost");
        remove_sandbox(fixture, sandbox);
}

/* All is told of the execs, once, in any order, and then that it has started. */
static void assert_recovered(Fixture *fixture) {
        static const char *const parts[] = { " exec_started:exec-runs-1",
                                             " exec_started:exec-early-1 exec_ended:exec-early-1",
                                             " exec_unknown:exec-missing", " started" };
        size_t len = 0;

        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
                assert_int_equal(count(fixture, parts[i]), 1);
                len += strlen(parts[i]);
        }
        assert_int_equal(strlen(told(fixture)), len);
        assert_true(str_has_suffix(told(fixture), " started"));
}

static void a_sandbox_is_recovered_with_its_execs(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        static const char *const ids[] = { "exec-runs-1", "exec-early-1", "exec-missing", NULL };

        start_exec(sandbox, "exec-runs-1", "", false);
        start_exec(sandbox, "exec-early-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        expect(fixture, " exec_ended:exec-early-1");
        sandbox->verbs->free(sandbox);
        close_runtime(fixture);

        open_runtime(fixture);
        string_builder_clear(&fixture->log);
        sandbox = attach(fixture, "fake-plain-1");
        sandbox->verbs->recover(sandbox, ids);
        expect(fixture, " started");
        assert_recovered(fixture);

        /* Once more, with a connection that stands. */
        string_builder_clear(&fixture->log);
        sandbox->verbs->recover(sandbox, ids);
        expect(fixture, " started");
        assert_recovered(fixture);
        remove_sandbox(fixture, sandbox);
}

/* Two run and one has ended, and nobody knows of them. */
static RuntimeSandbox *attach_to_three_execs(Fixture *fixture) {
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-runs-1", "", false);
        start_exec(sandbox, "exec-lingers-1", "", false);
        start_exec(sandbox, "exec-early-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        expect(fixture, " exec_started:exec-lingers-1");
        expect(fixture, " exec_ended:exec-early-1");
        sandbox->verbs->free(sandbox);
        string_builder_clear(&fixture->log);
        return attach(fixture, "fake-plain-1");
}

static void execs_that_were_not_listed_are_ended_and_forgotten(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach_to_three_execs(fixture);

        sandbox->verbs->recover(sandbox, (const char *const[]){ "exec-runs-1", NULL });
        expect(fixture, " started");
        expect_keeper_says(fixture, "cancel exec-lingers-1 0\n");
        expect_keeper_says(fixture, "forget exec-lingers-1\n");
        expect_keeper_says(fixture, "forget exec-early-1\n");
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_string_equal(told(fixture), " exec_started:exec-runs-1 started");
        assert_false(keeper_says(fixture, "cancel exec-early-1"));

        /* What is listed later, and is gone, is unknown. */
        string_builder_clear(&fixture->log);
        sandbox->verbs->recover(sandbox, (const char *const[]){ "exec-runs-1", "exec-early-1", NULL });
        expect(fixture, " started");
        assert_int_equal(count(fixture, " exec_started:exec-runs-1"), 1);
        assert_int_equal(count(fixture, " exec_unknown:exec-early-1"), 1);
        assert_false(keeper_says(fixture, "cancel exec-runs-1"));
        remove_sandbox(fixture, sandbox);
}

static void a_start_finds_a_keeper_that_runs_already(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        start_exec(sandbox, "exec-runs-1", "", false);
        expect(fixture, " exec_started:exec-runs-1");
        sandbox->verbs->free(sandbox);
        string_builder_clear(&fixture->log);
        sandbox = start_fake(fixture, "fake-plain-1");
        /* It is the same: it knows the exec, which is nobody's since. */
        expect_keeper_says(fixture, "cancel exec-runs-1 0\nforget exec-runs-1\n");
        remove_sandbox(fixture, sandbox);
}

static void a_start_spares_the_execs_that_are_asked_for(void **state) {
        static const char *const ids[] = { "exec-runs-1", "exec-lingers-1", "exec-early-1", "exec-missing", NULL };
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach_to_three_execs(fixture);

        fixture->asked = sandbox;
        sandbox->verbs->start(sandbox, &(RuntimeSpec){ .spec = fixture->spec, .uid_slot = 5, .exec_ids = ids });
        expect(fixture, " exec_started:exec-runs-1");
        fixture->asked = NULL;
        expect_keeper_says(fixture, "cancel exec-lingers-1 0\n");
        expect_keeper_says(fixture, "forget exec-lingers-1\n");
        expect_keeper_says(fixture, "forget exec-early-1\n");
        run_for(fixture, 30 * NSEC_PER_MSEC);
        assert_string_equal(told(fixture), " started exec_started:exec-runs-1");
        assert_false(keeper_says(fixture, "cancel exec-runs-1"));
        assert_false(keeper_says(fixture, "exec-missing"));
        remove_sandbox(fixture, sandbox);
}

static bool has_shape(Fixture *fixture, const uint8_t *shape, size_t len) {
        _cleanup_free_ uint8_t *own = NULL;
        size_t own_len;

        assert_int_equal(fixture->runtime->verbs->get_shape(fixture->runtime, fixture->spec, &own, &own_len), 0);
        return own_len == len && memcmp(own, shape, len) == 0;
}

static void all_that_a_start_acts_on_is_in_its_shape(void **state) {
        Fixture *fixture = *state;
        SandboxSpec *spec = fixture->spec;
        SandboxLimits *limits = &spec->limits;
        _cleanup_free_ uint8_t *shape = NULL;
        size_t len;

        assert_int_equal(fixture->runtime->verbs->get_shape(fixture->runtime, spec, &shape, &len), 0);
        assert_true(has_shape(fixture, shape, len));

#define assert_tells(field, value)                                                                                     \
        do {                                                                                                           \
                __auto_type before = (field);                                                                          \
                (field) = (value);                                                                                     \
                assert_false(has_shape(fixture, shape, len));                                                          \
                (field) = before;                                                                                      \
        } while (false)
        assert_tells(limits->memory_bytes, 1);
        assert_tells(limits->cpu_millis, 1);
        assert_tells(limits->max_processes, 1);
        assert_tells(limits->max_open_files, 1);
        assert_tells(limits->disk_bytes, 1);
        assert_tells(limits->disk_inodes, 1);
        assert_tells(limits->tmp_bytes, 1);
        assert_tells(limits->cpu_weight, 1);
        assert_tells(limits->io_weight, 1);
        assert_tells(limits->read_only_root, true);
        assert_tells(limits->tmp_noexec, true);
        assert_tells(limits->no_network, true);
        assert_tells(spec->capabilities, 1);
        assert_tells(spec->workspace, (char[]){ "/work" });

        /* What execs and the control plane act on is not. */
        limits->exec_timeout = spec->idle_ttl = spec->max_lifetime = 1;
        spec->env = new0(EnvVariable, 1);
        spec->env[spec->n_env++] = (EnvVariable){ xstrdup("NAME"), xstrdup("value") };
        assert_true(has_shape(fixture, shape, len));
}

static void there_is_nothing_like_one_with_files_of_the_host(void **state) {
        Fixture *fixture = *state;
        SandboxSpec *spec = fixture->spec;
        const RuntimeVerbs *verbs = fixture->runtime->verbs;
        uint8_t *shape;
        size_t len;

        spec->n_mounts = 1;
        assert_int_equal(verbs->get_shape(fixture->runtime, spec, &shape, &len), -EOPNOTSUPP);
        spec->n_mounts = 0;
        spec->n_copies = 1;
        assert_int_equal(verbs->get_shape(fixture->runtime, spec, &shape, &len), -EOPNOTSUPP);
        spec->n_copies = 0;
        spec->tools = new0(char *, 1);
        assert_int_equal(verbs->get_shape(fixture->runtime, spec, &shape, &len), -EOPNOTSUPP);
}

static bool other_was_told(Fixture *fixture, const void *other) {
        return *told(other) != '\0';
}

static void another_is_told_what_comes_after_he_was_bound(void **state) {
        Fixture *fixture = *state, other = {};
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");

        sandbox->verbs->rebind(sandbox, &events, &other);
        start(fixture, sandbox);
        assert_true(run_until(fixture, other_was_told, &other));
        assert_string_equal(told(&other), " started");
        sandbox->verbs->rebind(sandbox, &events, fixture);
        remove_sandbox(fixture, sandbox);
        assert_string_equal(told(fixture), " started removed");
        string_builder_clear(&other.log);
}

static void recovering_what_is_gone_is_lost(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach(fixture, "never-was");

        sandbox->verbs->recover(sandbox, (const char *const[]){ "exec-1", NULL });
        expect(fixture, " lost");
        assert_string_equal(told(fixture), " lost");
        assert_string_equal(fixture->reason, "KEEPER_UNAVAILABLE");
        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " stopped");
        remove_sandbox(fixture, sandbox);
}

/* A keeper that was taken over can put a link in the place of its socket. */
static void a_keeper_cannot_pass_off_another_as_itself(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *liar = start_fake(fixture, "fake-plain-1"), *other;
        char path[512], kept[512];

        liar->verbs->free(liar);
        string_builder_clear(&fixture->log);
        other = start_fake(fixture, "fake-plain-2");
        snprintf(path, sizeof(path), "%s/sandboxes/fake-plain-1/keeper.sock", fixture->folder);
        snprintf(kept, sizeof(kept), "%s/sandboxes/fake-plain-1/kept.sock", fixture->folder);
        assert_int_equal(rename(path, kept), 0);
        assert_int_equal(symlink("../fake-plain-2/keeper.sock", path), 0);

        liar = attach(fixture, "fake-plain-1");
        liar->verbs->recover(liar, (const char *const[]){ NULL });
        expect(fixture, " lost");
        start_exec(other, "exec-early-1", "", false);
        expect(fixture, " exec_ended:exec-early-1");
        assert_int_equal(symlink("../fake-plain-2/keeper.sock", path), 0);
        liar->verbs->stop(liar, 0);
        expect(fixture, " stopped");
        start_exec(other, "exec-early-2", "", false);
        expect(fixture, " exec_ended:exec-early-2");
        assert_int_equal(count(fixture, " lost"), 1);

        remove_sandbox(fixture, other);
        string_builder_clear(&fixture->log);
        assert_int_equal(rename(kept, path), 0);
        remove_sandbox(fixture, liar);
}

static void a_keeper_that_hangs_is_killed_and_lost(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        expect_answers_soon(fixture);
        sandbox = attach(fixture, "fake-hangs-1");
        start(fixture, sandbox);
        run_for(fixture, 100 * NSEC_PER_MSEC);
        sandbox->verbs->free(sandbox);
        sandbox = attach(fixture, "fake-hangs-1");
        sandbox->verbs->recover(sandbox, (const char *const[]){ NULL });
        expect(fixture, " lost");
        assert_string_equal(told(fixture), " lost");
        assert_nothing_runs(fixture, "fake-hangs-1");
        remove_sandbox(fixture, sandbox);
}

static void a_keeper_that_stays_after_its_end_is_killed(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        expect_answers_soon(fixture);
        sandbox = start_fake(fixture, "fake-sticks-1");
        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " stopped");
        assert_nothing_runs(fixture, "fake-sticks-1");
        remove_sandbox(fixture, sandbox);
}

static void stop_and_remove_supersede_a_start(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach(fixture, "fake-slow-1");

        start(fixture, sandbox);
        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " stopped");
        start(fixture, sandbox);
        run_for(fixture, 5 * NSEC_PER_MSEC);
        sandbox->verbs->stop(sandbox, 10 * NSEC_PER_SEC);
        run_for(fixture, 2 * NSEC_PER_MSEC);
        sandbox->verbs->remove(sandbox);
        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " removed");
        sandbox->verbs->free(sandbox);
        assert_string_equal(told(fixture), " stopped removed");
        assert_nothing_runs(fixture, "fake-slow-1");
}

static void nothing_is_told_after_free(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach(fixture, "fake-plain-1");

        start(fixture, sandbox);
        sandbox->verbs->free(sandbox);
        sandbox = attach(fixture, "fake-plain-1");
        start(fixture, sandbox);
        run_for(fixture, 5 * NSEC_PER_MSEC);
        start_exec(sandbox, "exec-early-1", "", false);
        sandbox->verbs->free(sandbox);
        run_for(fixture, 50 * NSEC_PER_MSEC);
        assert_true(count(fixture, " started") <= 1);
        assert_int_equal(count(fixture, "exec_"), 0);

        sandbox = attach(fixture, "fake-plain-1");
        remove_sandbox(fixture, sandbox);
}

static void on_usage(const RuntimeUsage *usage, const HutchError *err, void *user) {
        note(user, usage ? "usage" : err->reason, NULL);
}

static void pause_and_usage_are_answered(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = attach(fixture, "fake-plain-1");

        sandbox->verbs->set_paused(sandbox, true);
        sandbox->verbs->get_usage(sandbox, on_usage, fixture);
        assert_string_equal(told(fixture), "");
        expect(fixture, " pause_failed");
        expect(fixture, " KEEPER_UNAVAILABLE");
        string_builder_clear(&fixture->log);
        start(fixture, sandbox);
        expect(fixture, " started");
        sandbox->verbs->set_paused(sandbox, true);
        expect(fixture, " paused");
        sandbox->verbs->set_paused(sandbox, false);
        expect(fixture, " unpaused");
        sandbox->verbs->get_usage(sandbox, on_usage, fixture);
        expect(fixture, " usage");
        remove_sandbox(fixture, sandbox);
}

static void collect(const char *id, int64_t uid_slot, void *user) {
        note(user, uid_slot < 0 ? "id" : "id with uids", id);
}

static void everything_that_exists_is_listed(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        char path[512];

        snprintf(path, sizeof(path), "%s/sandboxes/lost+found", fixture->folder);
        assert_int_equal(mkdir(path, 0700), 0);
        string_builder_clear(&fixture->log);
        assert_int_equal(fixture->runtime->verbs->list(fixture->runtime, collect, fixture, NULL), 0);
        assert_string_equal(told(fixture), " id:fake-plain-1");

        cgroup_path(fixture, "cgroup-only", path, sizeof(path));
        if (mkdir(path, 0700) == 0) {
                RuntimeSandbox *orphan = attach(fixture, "cgroup-only");

                string_builder_clear(&fixture->log);
                assert_int_equal(fixture->runtime->verbs->list(fixture->runtime, collect, fixture, NULL), 0);
                assert_string_equal(told(fixture), " id:fake-plain-1 id:cgroup-only");
                remove_sandbox(fixture, orphan);
                assert_int_equal(access(path, F_OK), -1);
                string_builder_clear(&fixture->log);
        }
        remove_sandbox(fixture, sandbox);
}

/* A process in a cgroup that is @depth folders below @group. */
static pid_t hide_process(const char *group, size_t depth) {
        size_t size = strlen(group) + 2 * depth + sizeof("/cgroup.procs"), len = 0;
        _cleanup_free_ char *path = xcalloc(size, 1);
        pid_t pid = fork();
        FILE *file;

        if (pid == 0)
                for (;;)
                        (void) pause();
        assert_true(pid > 0);
        for (size_t i = 0; i <= depth; i++) {
                len += (size_t) snprintf(path + len, size - len, "%s", i == 0 ? group : "/d");
                assert_int_equal(mkdir(path, 0755), 0);
        }
        snprintf(path + len, size - len, "/cgroup.procs");
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fprintf(file, "%d", pid) > 0);
        assert_int_equal(fclose(file), 0);
        return pid;
}

/* The user that a keeper is may make cgroups below its own. */
static void what_is_hidden_deep_in_cgroups_ends_with_the_sandbox(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox = start_fake(fixture, "fake-plain-1");
        int status = 0;
        char path[512];
        pid_t hidden;

        cgroup_path(fixture, "hides", path, sizeof(path));
        if (geteuid() != 0 || (mkdir(path, 0755) < 0 && errno == ENOENT)) {
                remove_sandbox(fixture, sandbox);
                skip();
        }
        assert_int_equal(rmdir(path), 0);
        cgroup_path(fixture, "fake-plain-1", path, sizeof(path));
        hidden = hide_process(path, 100);
        remove_sandbox(fixture, sandbox);
        assert_int_equal(waitpid(hidden, &status, WNOHANG), hidden);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(access(path, F_OK), -1);
}

static bool trash_is_empty(Fixture *fixture, const void *what) {
        char path[512];

        snprintf(path, sizeof(path), "%s/trash/%s", fixture->folder, (const char *) what);
        return access(path, F_OK) < 0;
}

static void leftovers_are_removed_at_the_start(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;
        char path[512], name[32];

        close_runtime(fixture);
        for (int i = 0; i < 10; i++) {
                snprintf(path, sizeof(path), "%s/trash/left-%d", fixture->folder, i);
                assert_int_equal(mkdir(path, 0700), 0);
        }
        open_runtime(fixture);
        /* One of them is asked for by its sandbox, too. */
        sandbox = attach(fixture, "left-3");
        remove_sandbox(fixture, sandbox);
        for (int i = 0; i < 10; i++) {
                snprintf(name, sizeof(name), "left-%d", i);
                assert_true(run_until(fixture, trash_is_empty, name));
        }
        run_for(fixture, 50 * NSEC_PER_MSEC);
}

enum { N_QUEUED = 40 };

/* How many of them have files. */
static unsigned count_queued(const Fixture *fixture, int first, int end) {
        char path[512];
        unsigned n = 0;

        for (int i = first; i < end; i++) {
                bool is_there;

                snprintf(path, sizeof(path), "%s/sandboxes/queued-%d", fixture->folder, i);
                is_there = access(path, F_OK) == 0;
                snprintf(path, sizeof(path), "%s/trash/queued-%d", fixture->folder, i);
                n += is_there || access(path, F_OK) == 0;
        }
        return n;
}

static bool few_of_the_first_are_left(Fixture *fixture, const void *what) {
        return count_queued(fixture, 0, N_QUEUED / 2) <= *(const unsigned *) what;
}

static bool all_are_told(Fixture *fixture, const void *what) {
        return count(fixture, what) == N_QUEUED;
}

/* Else a removal would wait for all that are asked for after it. */
static void what_is_removed_first_is_gone_first(void **state) {
        static const unsigned some = N_QUEUED / 4;
        Fixture *fixture = *state;
        RuntimeSandbox *sandboxes[N_QUEUED];
        char path[512], id[32];

        for (int i = 0; i < N_QUEUED; i++) {
                snprintf(id, sizeof(id), "queued-%d", i);
                snprintf(path, sizeof(path), "%s/sandboxes/%s", fixture->folder, id);
                assert_int_equal(mkdir(path, 0700), 0);
                sandboxes[i] = attach(fixture, id);
                sandboxes[i]->verbs->remove(sandboxes[i]);
        }

        assert_true(run_until(fixture, few_of_the_first_are_left, &some));
        assert_int_equal(count_queued(fixture, N_QUEUED / 2, N_QUEUED), N_QUEUED / 2);
        assert_true(run_until(fixture, all_are_told, " removed"));
        assert_int_equal(count_queued(fixture, 0, N_QUEUED), 0);
        for (int i = 0; i < N_QUEUED; i++)
                sandboxes[i]->verbs->free(sandboxes[i]);
}

static void an_idle_sandbox_takes_little_memory(void **state) {
        enum { N = 20 };
        Fixture *fixture = *state;
        RuntimeSandbox *sandboxes[N];
        struct mallinfo2 before, after;
        char id[32];

        remove_sandbox(fixture, start_fake(fixture, "fake-plain-first"));
        before = mallinfo2();
        for (int i = 0; i < N; i++) {
                string_builder_clear(&fixture->log);
                snprintf(id, sizeof(id), "fake-plain-%d", i);
                sandboxes[i] = start_fake(fixture, id);
        }
        after = mallinfo2();
        print_message("%zu bytes for an idle sandbox\n", (after.uordblks - before.uordblks) / N);
        assert_true(after.uordblks - before.uordblks < (size_t) N * 64 * 1024);
        for (int i = 0; i < N; i++) {
                string_builder_clear(&fixture->log);
                remove_sandbox(fixture, sandboxes[i]);
        }
}

/* With the real keeper. */

static RuntimeSandbox *start_real(Fixture *fixture, const char *id) {
        RuntimeSandbox *sandbox = attach(fixture, id);

        start(fixture, sandbox);
        expect(fixture, " started");
        return sandbox;
}

static void assert_output(RuntimeSandbox *sandbox, const char *exec_id, int stream, const char *expected) {
        _cleanup_close_ int fd = sandbox->verbs->open_output(sandbox, exec_id, stream);
        char text[256] = "";

        assert_true(fd >= 0);
        assert_true(pread(fd, text, sizeof(text) - 1, 0) >= 0);
        assert_string_equal(text, expected);
}

/* The folder is the keeper's, who could give a file of the daemon's the name of an output. */
static void assert_output_has_one_name(const Fixture *fixture, RuntimeSandbox *sandbox) {
        char path[512], other[512];

        snprintf(path, sizeof(path), "%s/sandboxes/real-1/exec-1.out", fixture->folder);
        snprintf(other, sizeof(other), "%s/sandboxes/real-1/other", fixture->folder);
        assert_int_equal(link(path, other), 0);
        assert_int_equal(sandbox->verbs->open_output(sandbox, "exec-1", 1), -ENOENT);
        assert_int_equal(unlink(other), 0);
        assert_output(sandbox, "exec-1", 1, "out\n");
}

static void real_commands_run(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        need_real();
        sandbox = start_real(fixture, "real-1");
        start_exec(sandbox, "exec-1", "echo out; echo err >&2; exit 3", false);
        expect(fixture, " exec_started:exec-1 exec_ended:exec-1");
        assert_int_equal(WEXITSTATUS(fixture->end.wait_status), 3);
        assert_int_equal(fixture->end.out.total, 4);
        assert_output(sandbox, "exec-1", 1, "out\n");
        assert_output(sandbox, "exec-1", 2, "err\n");
        assert_int_equal(sandbox->verbs->open_output(sandbox, "exec-none", 1), -ENOENT);
        assert_output_has_one_name(fixture, sandbox);
        sandbox->verbs->forget_exec(sandbox, "exec-1");

        start_exec(sandbox, "exec-2", "sleep 100", false);
        expect(fixture, " exec_started:exec-2");
        sandbox->verbs->cancel_exec(sandbox, "exec-2", NSEC_PER_SEC);
        expect(fixture, " exec_ended:exec-2");
        assert_int_equal(fixture->end.cause, RUNTIME_END_CANCELLED);

        start_exec(sandbox, "exec-3", "sleep 100", false);
        expect(fixture, " exec_started:exec-3");
        sandbox->verbs->stop(sandbox, 0);
        expect(fixture, " stopped");
        assert_nothing_runs(fixture, "real-1");
        start(fixture, sandbox);
        expect(fixture, " stopped started");
        remove_sandbox(fixture, sandbox);
        assert_no_files(fixture, "real-1");
}

static void a_missing_program_is_told_from_a_missing_folder(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        need_real();
        sandbox = start_real(fixture, "real-1");
        start_program(sandbox, "exec-1", "/no/such", "", "/", false);
        expect(fixture, " exec_ended:exec-1");
        assert_int_equal(fixture->end.cause, RUNTIME_END_NOT_STARTED);
        assert_string_equal(fixture->reason, "FILE_NOT_FOUND");
        assert_true(fixture->end.program_not_found);

        start_program(sandbox, "exec-2", "/bin/sh", "", "/no/such", false);
        expect(fixture, " exec_ended:exec-2");
        assert_int_equal(fixture->end.cause, RUNTIME_END_NOT_STARTED);
        assert_string_equal(fixture->reason, "FILE_NOT_FOUND");
        assert_false(fixture->end.program_not_found);
        remove_sandbox(fixture, sandbox);
}

static void real_input_gets_there_and_output_is_followed(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;
        RuntimeInput *input, *none;

        need_real();
        sandbox = start_real(fixture, "real-1");
        sandbox->verbs->follow_output(sandbox, "exec-1", true);
        start_exec(sandbox, "exec-1", "cat; echo done", true);
        expect(fixture, " exec_started:exec-1");
        expect(fixture, " output_grew:exec-1");
        input = sandbox->verbs->open_input(sandbox, "exec-1", &input_events, fixture);
        string_builder_clear(&fixture->log);
        assert_int_equal(input->verbs->send_input(input, "hello\n", 6), 0);
        expect(fixture, " output_grew:exec-1");
        sandbox->verbs->follow_output(sandbox, "exec-1", false);
        assert_int_equal(input->verbs->close_stdin(input), 0);
        expect(fixture, " exec_ended:exec-1");
        assert_output(sandbox, "exec-1", 1, "hello\ndone\n");
        expect(fixture, " input_closed");
        assert_int_equal(input->verbs->send_input(input, "x", 1), -EPIPE);
        input->verbs->free_input(input);

        /* What was sent before it is let go of still gets there. */
        start_exec(sandbox, "exec-2", "read line; echo $line", true);
        expect(fixture, " exec_started:exec-2");
        input = sandbox->verbs->open_input(sandbox, "exec-2", &input_events, fixture);
        assert_int_equal(input->verbs->send_input(input, "late\n", 5), 0);
        input->verbs->free_input(input);
        expect(fixture, " exec_ended:exec-2");
        assert_output(sandbox, "exec-2", 1, "late\n");

        start_exec(sandbox, "exec-3", "sleep 100", false);
        expect(fixture, " exec_started:exec-3");
        none = sandbox->verbs->open_input(sandbox, "exec-3", &input_events, fixture);
        assert_int_equal(none->verbs->send_input(none, "x", 1), 0);
        expect(fixture, " input_closed:NO_SUCH_STREAM");
        none->verbs->free_input(none);
        remove_sandbox(fixture, sandbox);
}

static void note_slot(const char *id, int64_t uid_slot, void *user) {
        assert_string_equal(id, "real-uids");
        assert_int_equal(uid_slot, 5);
        note(user, "slot", NULL);
}

static void real_sandboxes_are_listed_with_their_uids(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        need_real();
        sandbox = start_fake(fixture, "real-uids");
        assert_int_equal(fixture->runtime->verbs->list(fixture->runtime, note_slot, fixture, NULL), 0);
        remove_sandbox(fixture, sandbox);
        assert_string_equal(told(fixture), " started slot removed");
}

static void a_real_sandbox_outlives_its_daemon(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;
        static const char *const ids[] = { "exec-1", "exec-2", NULL };

        need_real();
        sandbox = start_real(fixture, "real-1");
        start_exec(sandbox, "exec-1", "sleep 0.2; echo later; exit 5", false);
        start_exec(sandbox, "exec-2", "sleep 100", false);
        expect(fixture, " exec_started:exec-1");
        expect(fixture, " exec_started:exec-2");
        sandbox->verbs->free(sandbox);
        close_runtime(fixture);
        usleep(300 * 1000);

        open_runtime(fixture);
        string_builder_clear(&fixture->log);
        sandbox = attach(fixture, "real-1");
        sandbox->verbs->recover(sandbox, ids);
        expect(fixture, " started");
        expect(fixture, " exec_ended:exec-1"); /* by now, or soon */
        assert_int_equal(count(fixture, "exec_started"), 2);
        assert_int_equal(count(fixture, "exec_ended:exec-1"), 1);
        assert_int_equal(WEXITSTATUS(fixture->end.wait_status), 5);
        assert_output(sandbox, "exec-1", 1, "later\n");
        sandbox->verbs->cancel_exec(sandbox, "exec-2", 0);
        expect(fixture, " exec_ended:exec-2");
        remove_sandbox(fixture, sandbox);
}

/* The only child that is called @name; 0 when there is none. */
static pid_t find_child(const char *name) {
        char path[64], comm[32];
        pid_t pid, found = 0;
        FILE *children, *file;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
        children = fopen(path, "re");
        assert_non_null(children);
        while (fscanf(children, "%d", &pid) == 1) {
                snprintf(path, sizeof(path), "/proc/%d/comm", pid);
                file = fopen(path, "re");
                assert_non_null(file);
                assert_int_equal(fscanf(file, "%31s", comm), 1);
                fclose(file);
                if (!str_equal(comm, name))
                        continue;
                assert_int_equal(found, 0);
                found = pid;
        }
        fclose(children);
        return found;
}

static void a_real_keeper_that_is_killed_leaves_nothing(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;

        need_real();
        sandbox = start_real(fixture, "real-1");
        start_exec(sandbox, "exec-1", "setsid sleep 100 & sleep 100", false);
        expect(fixture, " exec_started:exec-1");
        assert_int_equal(kill(find_child("hutch-keeper"), SIGKILL), 0);
        expect(fixture, " lost");
        assert_non_null(strstr(fixture->message, "was killed by signal 9"));
        assert_nothing_runs(fixture, "real-1");

        /* It can be started again on its files. */
        start(fixture, sandbox);
        expect(fixture, " lost started");
        remove_sandbox(fixture, sandbox);
        assert_no_files(fixture, "real-1");
}

static void a_real_start_that_fails_leaves_nothing(void **state) {
        Fixture *fixture = *state;
        RuntimeSandbox *sandbox;
        char path[512];
        int fd;

        need_real();
        /* A file where the sandbox's root would be. */
        snprintf(path, sizeof(path), "%s/sandboxes/real-1", fixture->folder);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/sandboxes/real-1/fs", fixture->folder);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);

        sandbox = attach(fixture, "real-1");
        start(fixture, sandbox);
        expect(fixture, " start_failed");
        assert_nothing_runs(fixture, "real-1");
        remove_sandbox(fixture, sandbox);
}

/* The real keeper; NULL: there is none. */
static char *find_real_keeper(void) {
        const char *given = getenv("HUTCH_KEEPER");
        char self[256], folder[300];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        if (given)
                return xstrdup(given);
        if (n <= 0)
                return NULL;

        self[n] = '\0';
        *strrchr(self, '/') = '\0';
        snprintf(folder, sizeof(folder), "%s/../..", self);
        return program_find("hutch-keeper", folder);
}

static void weights_of_disks_are_there_by_bfq_and_by_costs(void **state) {
        static const char costs[] = "8:16 enable=0 ctrl=auto\n254:0 enable=1 ctrl=auto\n";

        (void) state;
        assert_true(disk_has_weights_as("none mq-deadline kyber [bfq]\n", "", "254:0"));
        assert_false(disk_has_weights_as("none [mq-deadline] kyber bfq\n", "", "254:0"));
        assert_true(disk_has_weights_as("[none]\n", costs, "254:0"));
        assert_false(disk_has_weights_as("[none]\n", costs, "8:16"));
        assert_false(disk_has_weights_as("[none]\n", costs, "54:0"));
        assert_false(disk_has_weights_as("", "", "254:0"));
}

int main(int argc, char *argv[]) {
#define FAKE(test) cmocka_unit_test_setup_teardown(test, set_up_fake, tear_down)
#define REAL(test) cmocka_unit_test_setup_teardown(test, set_up_real, tear_down)
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(weights_of_disks_are_there_by_bfq_and_by_costs),
                FAKE(a_sandbox_starts_stops_starts_again_and_is_removed),
                FAKE(a_start_waits_until_the_sandbox_is_built),
                FAKE(a_start_that_the_keeper_fails_tells_why),
                FAKE(a_keeper_that_dies_at_its_start_is_told),
                FAKE(a_keeper_of_another_sandbox_is_refused),
                FAKE(a_start_that_takes_too_long_is_ended),
                FAKE(a_missing_keeper_is_told),
                FAKE(an_exec_is_told_once_and_in_order),
                FAKE(an_exec_that_is_refused_ends_without_a_start),
                FAKE(what_cannot_be_is_not_believed),
                FAKE(a_broken_connection_is_mended_and_nothing_missed),
                FAKE(input_that_broke_is_told_when_there_is_a_connection_again),
                FAKE(input_of_a_lost_sandbox_tells_nothing),
                FAKE(calls_are_carried_to_the_keeper),
                FAKE(failures_of_calls_are_read_with_care),
                FAKE(calls_that_broke_are_unavailable),
                FAKE(calls_that_are_freed_are_cancelled),
                FAKE(an_exec_that_the_keeper_forgot_is_told_after_a_broken_connection),
                FAKE(an_exec_that_the_keeper_forgot_is_told_when_it_is_cancelled),
                FAKE(an_exec_of_nobodys_is_ended_after_a_broken_connection),
                FAKE(an_exec_ends_once_and_does_not_start_after_it),
                FAKE(limits_that_are_hit_all_the_time_are_told_some_times),
                FAKE(a_keeper_that_breaks_connection_after_connection_is_asked_less_and_less),
                FAKE(a_keeper_that_dies_is_lost),
                FAKE(a_sandbox_is_recovered_with_its_execs),
                FAKE(execs_that_were_not_listed_are_ended_and_forgotten),
                FAKE(a_start_finds_a_keeper_that_runs_already),
                FAKE(a_start_spares_the_execs_that_are_asked_for),
                FAKE(all_that_a_start_acts_on_is_in_its_shape),
                FAKE(there_is_nothing_like_one_with_files_of_the_host),
                FAKE(another_is_told_what_comes_after_he_was_bound),
                FAKE(recovering_what_is_gone_is_lost),
                FAKE(a_keeper_cannot_pass_off_another_as_itself),
                FAKE(a_keeper_that_hangs_is_killed_and_lost),
                FAKE(a_keeper_that_stays_after_its_end_is_killed),
                FAKE(stop_and_remove_supersede_a_start),
                FAKE(nothing_is_told_after_free),
                FAKE(pause_and_usage_are_answered),
                FAKE(everything_that_exists_is_listed),
                FAKE(what_is_hidden_deep_in_cgroups_ends_with_the_sandbox),
                FAKE(leftovers_are_removed_at_the_start),
                FAKE(what_is_removed_first_is_gone_first),
                FAKE(an_idle_sandbox_takes_little_memory),
                REAL(real_commands_run),
                REAL(a_missing_program_is_told_from_a_missing_folder),
                REAL(real_input_gets_there_and_output_is_followed),
                REAL(real_sandboxes_are_listed_with_their_uids),
                REAL(a_real_sandbox_outlives_its_daemon),
                REAL(a_real_keeper_that_is_killed_leaves_nothing),
                REAL(a_real_start_that_fails_leaves_nothing),
        };
        int failed;

        if (str_equal(argv[0], "hutch-keeper"))
                return fake_keeper_main(argc, argv);

        log_default.level = LOG_LEVEL_ERROR;
        real_keeper = find_real_keeper();
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        free(real_keeper);
        return failed;
}
