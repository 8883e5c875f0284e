/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the allocators of the whole process, and the runner that makes them fail. What does not: failures
 * that a test itself asks for (fail-alloc.c). */

#include "fail-each-alloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/strings.h"

#include "fail-alloc.h"
#include "test.h"

#define RUN_SECONDS 60                /* less than the deadlines of calls in test-rpc-memory.c */
#define PATIENCE (30 * NSEC_PER_MSEC) /* for what a test waits for, after an allocation failed */
#define OUTPUT_MAX 16384              /* bytes that are shown of a run that went wrong */

/* How a run ends that does not crash. Sanitizers exit with 1. */
enum {
        RUN_PASSED = 0,
        RUN_FAILED = 40, /* the test met an error that it did not expect */
        RUN_LEAKED,
        RUN_LIBUV_ABORTED,
};

/* One run of one test. */
typedef struct Run {
        const struct CMUnitTest *test;
        size_t n;  /* allocations before the one that fails */
        bool from; /* all after it fail as well */
} Run;

/* What a run, which is a process of its own, tells. */
typedef struct Told {
        atomic_size_t n_allocations;
        atomic_bool failed_in_fetch;
} Told;

/* All runs of one test. */
typedef struct Series {
        const struct CMUnitTest *test;
        size_t max_runs;
} Series;

static Told *told;
static atomic_bool armed;
static atomic_uint_least64_t failed_at; /* 0: nothing failed yet */
static bool shows_trace;
static Run current;
static _Thread_local bool begun;      /* the sanitizer, which must not fail, has set the thread up */
static _Thread_local unsigned exempt; /* the test allocates for itself */

/* By the linker's rules, a reference to NAME goes to __wrap_NAME, and one to __real_NAME to NAME. The sanitizer's own
 * allocators are weak: these take their place, for shared libraries too. */
void *__interceptor_malloc(size_t size);
void *__interceptor_calloc(size_t n, size_t size);
void *__interceptor_realloc(void *pointer, size_t size);
void *__interceptor_reallocarray(void *pointer, size_t n, size_t size);
int __interceptor_posix_memalign(void **ret_pointer, size_t alignment, size_t size);
char *__interceptor_strdup(const char *text);
char *__interceptor_strndup(const char *text, size_t max_len);
int __interceptor_pthread_create(pthread_t *ret_id, const pthread_attr_t *attributes, void *(*start)(void *user),
                                 void *user);

void *__real_xcalloc(size_t n, size_t size);
void *__real_xreallocarray(void *pointer, size_t n, size_t size);
char *__real_xstrdup(const char *text);
char *__real_xstrndup(const char *text, size_t max_len);
void *__wrap_xcalloc(size_t n, size_t size);
void *__wrap_xreallocarray(void *pointer, size_t n, size_t size);
char *__wrap_xstrdup(const char *text);
char *__wrap_xstrndup(const char *text, size_t max_len);

int __real_uv_run(uv_loop_t *loop, uv_run_mode mode);
int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode);

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

/* cmocka must not catch what a sanitizer is to report. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
        return "handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:handle_abort=2";
}

/* OpenSSL loses a name when memory is out while it looks up an algorithm, by EVP_MAC_fetch() and the like. */
static bool is_in_fetch(const void *caller) {
        void *frames[64];
        Dl_info info;
        int n;

        if (!dladdr(caller, &info) || !strstr(info.dli_fname, "/libcrypto.so"))
                return false;
        n = backtrace(frames, 64);
        for (int i = 0; i < n; i++)
                if (dladdr(frames[i], &info) && info.dli_sname && str_has_prefix(info.dli_sname, "EVP_") &&
                    str_has_suffix(info.dli_sname, "_fetch"))
                        return true;
        return false;
}

/* Tells whether the allocation that @caller asks for is to fail. */
static bool fails(const void *caller) {
        size_t n;

        if (!atomic_load(&armed) || !begun || exempt)
                return false;
        n = atomic_fetch_add(&told->n_allocations, 1);
        if (n != current.n && !(current.from && n > current.n))
                return false;

        exempt++;
        if (shows_trace && atomic_load(&failed_at) == 0)
                __sanitizer_print_stack_trace();
        if (!atomic_load(&told->failed_in_fetch))
                atomic_store(&told->failed_in_fetch, is_in_fetch(caller));
        exempt--;
        if (!current.from)
                fail_alloc_happened_elsewhere();
        if (atomic_load(&failed_at) == 0)
                atomic_store(&failed_at, clock_monotonic_ns());
        errno = ENOMEM;
        return true;
}

void *malloc(size_t size) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_malloc(size);
}

void *calloc(size_t n, size_t size) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_calloc(n, size);
}

void *realloc(void *pointer, size_t size) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_realloc(pointer, size);
}

void *reallocarray(void *pointer, size_t n, size_t size) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_reallocarray(pointer, n, size);
}

int posix_memalign(void **ret_pointer, size_t alignment, size_t size) {
        return fails(__builtin_return_address(0)) ? ENOMEM : __interceptor_posix_memalign(ret_pointer, alignment, size);
}

char *strdup(const char *text) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_strdup(text);
}

char *strndup(const char *text, size_t max_len) {
        return fails(__builtin_return_address(0)) ? NULL : __interceptor_strndup(text, max_len);
}

/* A thread that is yet to begin. */
typedef struct Thread {
        void *(*start)(void *user);
        void *user;
} Thread;

static void *thread_begin(void *made) {
        const Thread thread = *(Thread *) made;

        free(made);
        begun = true;
        return thread.start(thread.user);
}

int pthread_create(pthread_t *ret_id, const pthread_attr_t *attributes, void *(*start)(void *user), void *user) {
        Thread *thread = __interceptor_malloc(sizeof(Thread));
        int r;

        *thread = (Thread){ .start = start, .user = user };
        r = __interceptor_pthread_create(ret_id, attributes, thread_begin, thread);
        if (r != 0)
                free(thread);
        return r;
}

/* Of a unit of rpc, only the test calls those that abort, which tests/house/test_memory.py checks. */
void *__wrap_xcalloc(size_t n, size_t size) {
        void *made;

        exempt++;
        made = __real_xcalloc(n, size);
        exempt--;
        return made;
}

void *__wrap_xreallocarray(void *pointer, size_t n, size_t size) {
        void *made;

        exempt++;
        made = __real_xreallocarray(pointer, n, size);
        exempt--;
        return made;
}

char *__wrap_xstrdup(const char *text) {
        char *made;

        exempt++;
        made = __real_xstrdup(text);
        exempt--;
        return made;
}

char *__wrap_xstrndup(const char *text, size_t max_len) {
        char *made;

        exempt++;
        made = __real_xstrndup(text, max_len);
        exempt--;
        return made;
}

/* libuv aborts when memory is out in some of its functions, which nobody who calls them can change. */
void abort(void) {
        Dl_info caller;

        if (atomic_load(&armed) && dladdr(__builtin_return_address(0), &caller) &&
            strstr(caller.dli_fname, "/libuv.so"))
                _exit(RUN_LIBUV_ABORTED);
        (void) raise(SIGABRT);
        _exit(1);
}

/* A test may wait for what does not come now: that is an error that it did not expect. So libuv does not wait from
 * then on. */
int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode) {
        int r;

        if (!atomic_load(&armed) || fail_alloc_waits_count())
                return __real_uv_run(loop, mode);

        do {
                uint64_t at = atomic_load(&failed_at);

                if (at > 0 && clock_monotonic_ns() > at + PATIENCE)
                        fail_msg("waits for what does not come");
                r = __real_uv_run(loop, at > 0 || mode == UV_RUN_NOWAIT ? UV_RUN_NOWAIT : UV_RUN_ONCE);
                if (at > 0 && mode != UV_RUN_NOWAIT)
                        (void) usleep(100);
        } while (mode == UV_RUN_DEFAULT && r != 0);

        return r;
}

/* The body of the only test of a run: allocations count from the test's setup to its end. */
static void armed_test(void **state) {
        const struct CMUnitTest *test = current.test;
        int r = 0;

        *state = test->initial_state;
        begun = true;
        atomic_store(&armed, true);
        if (test->setup_func)
                r = test->setup_func(state);
        if (r == 0)
                test->test_func(state);
        if (r == 0 && test->teardown_func)
                r = test->teardown_func(state);
        atomic_store(&armed, false);
        assert_int_equal(r, 0);
}

/* Processes that the test starts are not part of it. */
static void disarm(void) {
        atomic_store(&armed, false);
}

/* Returns how the run ended. What a test that failed did not free is no leak of ours. */
static int run_here(Run run, CMFixtureFunction setup, CMFixtureFunction teardown) {
        const struct CMUnitTest only = { .name = run.test->name, .test_func = armed_test };
        int n_failed;

        current = run;
        (void) pthread_atfork(NULL, NULL, disarm);
        n_failed = __real__cmocka_run_group_tests("run", &only, 1, setup, teardown);
        atomic_store(&armed, false);
        (void) fflush(NULL);
        if (n_failed != 0)
                return RUN_FAILED;
        if (atomic_load(&told->failed_in_fetch))
                return RUN_PASSED;
        return __lsan_do_recoverable_leak_check() ? RUN_LEAKED : RUN_PASSED;
}

/* Runs in a process of its own, with its output into @output. Returns its wait status. */
static int run_apart(Run run, int output) {
        int status;
        pid_t pid;

        atomic_store(&told->n_allocations, 0);
        atomic_store(&told->failed_in_fetch, false);
        assert_int_equal(ftruncate(output, 0), 0);
        assert_int_equal(lseek(output, 0, SEEK_SET), 0);
        pid = fork();
        assert_int_not_equal(pid, -1);
        if (pid == 0) {
                (void) setpgid(0, 0);
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void) dup2(output, STDOUT_FILENO);
                (void) dup2(output, STDERR_FILENO);
                (void) unsetenv("CMOCKA_MESSAGE_OUTPUT");
                (void) alarm(RUN_SECONDS);
                _exit(run_here(run, NULL, NULL));
        }

        assert_int_equal(waitpid(pid, &status, 0), pid);
        (void) kill(-pid, SIGKILL); /* what a test that failed left */
        return status;
}

/* Fails the test unless the run ended well. */
static void check_end(Run run, int status, int output) {
        static char text[OUTPUT_MAX + 1];
        const char *problem = NULL;
        ssize_t len;

        if (WIFSIGNALED(status))
                problem = WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status));
        else if (WEXITSTATUS(status) == RUN_LEAKED)
                problem = "leaks";
        else if (WEXITSTATUS(status) != RUN_PASSED && WEXITSTATUS(status) != RUN_FAILED &&
                 WEXITSTATUS(status) != RUN_LIBUV_ABORTED)
                problem = "a sanitizer ended it";
        if (!problem)
                return;

        len = pread(output, text, OUTPUT_MAX, 0);
        text[len > 0 ? len : 0] = '\0';
        fail_msg("HUTCH_FAIL_ALLOC=%s:%zu%s: %s\n%s", run.test->name, run.n, run.from ? "+" : "", problem, text);
}

/* The same numbers each time. */
static size_t random_below(size_t max) {
        static uint64_t seed = 1;

        seed = seed * 6364136223846793005 + 1442695040888963407;
        return (size_t) (seed >> 33) % max;
}

static void each_allocation_may_fail(void **state) {
        const Series *series = *state;
        Run run = { .test = series->test, .n = SIZE_MAX };
        int output = memfd_create("output", MFD_CLOEXEC), status;
        size_t n_allocations, n_runs;

        assert_int_not_equal(output, -1);
        status = run_apart(run, output);
        check_end(run, status, output);
        assert_int_equal(WEXITSTATUS(status), RUN_PASSED);

        n_allocations = atomic_load(&told->n_allocations);
        n_runs = n_allocations < series->max_runs ? n_allocations : series->max_runs;
        for (size_t i = 0; i < n_runs; i++) {
                size_t first = i * n_allocations / n_runs, end = (i + 1) * n_allocations / n_runs;

                run.n = first + random_below(end - first);
                run.from = false;
                check_end(run, run_apart(run, output), output);
                run.from = true;
                check_end(run, run_apart(run, output), output);
        }

        (void) close(output);
}

/* Ends with the run of "NAME:N" or "NAME:N+". */
_Noreturn static void run_named(const char *text, const struct CMUnitTest *tests, size_t n_tests,
                                CMFixtureFunction setup, CMFixtureFunction teardown) {
        for (size_t i = 0; i < n_tests; i++) {
                size_t len = strlen(tests[i].name);
                Run run = { .test = &tests[i] };
                char *end;

                if (strncmp(text, tests[i].name, len) != 0 || text[len] != ':')
                        continue;
                run.n = strtoul(text + len + 1, &end, 10);
                run.from = *end == '+';
                shows_trace = true;
                _exit(run_here(run, setup, teardown));
        }

        fprintf(stderr, "HUTCH_FAIL_ALLOC: there is no such test\n");
        _exit(2);
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
        const char *text = getenv("HUTCH_FAIL_ALLOC");
        _cleanup_free_ struct CMUnitTest *made = NULL;
        _cleanup_free_ Series *series = NULL;

        if (!text)
                return __real__cmocka_run_group_tests(name, tests, n_tests, setup, teardown);

        told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (told == MAP_FAILED)
                return 2;
        if (strchr(text, ':'))
                run_named(text, tests, n_tests, setup, teardown);

        made = new0(struct CMUnitTest, n_tests);
        series = new0(Series, n_tests);
        for (size_t i = 0; i < n_tests; i++) {
                series[i] = (Series){ .test = &tests[i], .max_runs = strtoul(text, NULL, 10) };
                made[i].name = tests[i].name;
                made[i].test_func = each_allocation_may_fail;
                made[i].initial_state = &series[i];
        }
        return __real__cmocka_run_group_tests(name, made, n_tests, setup, teardown);
}
