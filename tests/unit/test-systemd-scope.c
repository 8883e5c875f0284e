/* SPDX-License-Identifier: Apache-2.0 */

/* With a busctl that does what systemd would: it puts the process into a cgroup of that name. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "host/cgroup-tree.h"
#include "host/systemd-scope.h"
#include "test.h"

typedef struct Fixture {
        char folder[64], scope[64];
        char *path; /* where the old one is */
        CgroupSight sight;
        char *cgroup; /* of the scope */
} Fixture;

/* Writes the program busctl: @body has the pid in $pid, the folder of the scope in $scope, and the method in $method.
 */
static void write_busctl(const Fixture *fixture, const char *body) {
        char path[128];
        FILE *file;

        (void) snprintf(path, sizeof(path), "%s/busctl", fixture->folder);
        file = fopen(path, "we");
        assert_non_null(file);
        (void) fprintf(file, "#!/bin/sh\nscope=%s method=$7 folder=%s\necho \"$NOTIFY_SOCKET$@\" >> %s/calls\n%s\n",
                       fixture->cgroup, fixture->folder, fixture->folder, body);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(chmod(path, 0755), 0);
}

static int set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);
        _cleanup_free_ char *path = NULL;
        const char *before;

        *state = fixture;
        (void) strcpy(fixture->folder, "/tmp/hutch-test-XXXXXX");
        assert_non_null(mkdtemp(fixture->folder));
        before = getenv("PATH");
        assert_non_null(before);
        fixture->path = xstrdup(before ? before : "");
        assert_true(asprintf(&path, "%s:%s", fixture->folder, fixture->path) > 0);
        assert_int_equal(setenv("PATH", path, 1), 0);
        assert_int_equal(setenv("NOTIFY_SOCKET", "/none", 1), 0); /* not for busctl */
        (void) snprintf(fixture->scope, sizeof(fixture->scope), "hutch-test-%d.scope", (int) getpid());
        assert_int_equal(cgroup_sight_read("self", &fixture->sight), 0);
        if (fixture->sight.mount && asprintf(&fixture->cgroup, "%s/%s", fixture->sight.mount, fixture->scope) < 0)
                abort();
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;
        _cleanup_free_ char *leaf = NULL;
        char path[128];

        if (fixture->cgroup) {
                assert_true(asprintf(&leaf, "%s/hutch-processes", fixture->cgroup) > 0);
                (void) rmdir(leaf);
                (void) rmdir(fixture->cgroup);
        }
        for (int i = 0; i < 2; i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", fixture->folder, i == 0 ? "busctl" : "calls");
                (void) unlink(path);
        }
        (void) setenv("PATH", fixture->path, 1);
        (void) unsetenv("NOTIFY_SOCKET");
        assert_int_equal(rmdir(fixture->folder), 0);
        cgroup_sight_clear(&fixture->sight);
        free(fixture->cgroup);
        free(fixture->path);
        free(fixture);
        return 0;
}

static void skip_without_cgroups(const Fixture *fixture) {
        if (geteuid() != 0 || !fixture->cgroup || mkdir(fixture->cgroup, 0755) < 0)
                skip();
}

static char *calls(const Fixture *fixture) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/calls", fixture->folder);
        return cgroup_read_file(AT_FDCWD, path);
}

static bool is_alive(pid_t pid) {
        return kill(pid, 0) == 0;
}

static void a_scope_is_asked_for_with_a_process_that_waits(void **state) {
        const Fixture *fixture = *state;
        _cleanup_free_ char *error = NULL, *told = NULL, *wanted = NULL;
        SystemdScope scope;
        pid_t anchor;

        skip_without_cgroups(fixture);
        /* The answer comes before the process is moved. */
        write_busctl(fixture, "pid=${21}\n(sleep 0.1; echo $pid > $scope/cgroup.procs) > /dev/null 2>&1 &");
        assert_int_equal(systemd_scope_take(fixture->scope, true, &scope, &error), 0);
        anchor = scope.process;
        assert_true(anchor != getpid() && is_alive(anchor));
        told = calls(fixture);
        assert_true(asprintf(&wanted, "StartTransientUnit ssa(sv)a(sa(sv)) %s fail 7 ", fixture->scope) > 0);
        assert_non_null(strstr(told, wanted));
        for (size_t i = 0; i < 4; i++) {
                static const char *const properties[] = { "Delegate b true", "Slice s hutch.slice",
                                                          "TasksMax t 18446744073709551615",
                                                          "CollectMode s inactive-or-failed" };

                assert_non_null(strstr(told, properties[i]));
        }
        assert_true(str_has_prefix(told, "--system "));
        assert_null(strchr(told, '\n')[1] ? "it was called twice" : NULL);

        systemd_scope_release(&scope);
        assert_false(is_alive(anchor));
        assert_int_equal(scope.anchor, -1);
}

static void the_anchor_ends_with_the_daemon(void **state) {
        const Fixture *fixture = *state;
        _cleanup_free_ char *error = NULL;
        SystemdScope scope;

        skip_without_cgroups(fixture);
        write_busctl(fixture, "echo ${21} > $scope/cgroup.procs");
        assert_int_equal(systemd_scope_take(fixture->scope, true, &scope, &error), 0);
        assert_true(is_alive(scope.process));
        /* All that the daemon's end does. */
        scope.anchor = fd_close(scope.anchor);
        for (int i = 0; i < 1000 && waitpid(scope.process, NULL, WNOHANG) == 0; i++)
                (void) usleep(10000);
        assert_false(is_alive(scope.process));
}

static void the_scope_of_an_earlier_daemon_is_joined(void **state) {
        const Fixture *fixture = *state;
        _cleanup_free_ char *error = NULL, *told = NULL;
        SystemdScope scope;

        skip_without_cgroups(fixture);
        /* At first it is about to go. */
        write_busctl(fixture,
                     "if [ $method = StartTransientUnit ]; then\n"
                     "        echo 'Call failed: Unit was already loaded or has a fragment file.' >&2; exit 1\n"
                     "fi\n"
                     "if ! [ -e $scope/hutch-processes ]; then mkdir $scope/hutch-processes; exit 1; fi\n"
                     "[ \"${10} ${11}\" = '/hutch-processes 1' ] && echo ${12} > $scope/hutch-processes/cgroup.procs");
        assert_int_equal(systemd_scope_take(fixture->scope, true, &scope, &error), 0);
        told = calls(fixture);
        assert_non_null(strstr(told, "AttachProcessesToUnit ssau"));
        systemd_scope_release(&scope);
}

static void what_systemd_refuses_is_told(void **state) {
        const Fixture *fixture = *state;
        static const struct {
                const char *body, *error;
        } cases[] = {
                { "echo 'Call failed: Access denied' >&2; exit 1", "Access denied" },
                { "exit 1", "busctl failed" },
                { NULL, "cannot run busctl" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_free_ char *error = NULL;
                SystemdScope scope;

                if (cases[i].body)
                        write_busctl(fixture, cases[i].body);
                else
                        (void) setenv("PATH", "/nonexistent", 1);
                assert_true(systemd_scope_take(fixture->scope, true, &scope, &error) < 0);
                assert_non_null(strstr(error, cases[i].error));
        }
}

static void a_session_is_a_folder_of_the_users_own(void **state) {
        const Fixture *fixture = *state;
        const char *set = getenv("XDG_RUNTIME_DIR");
        _cleanup_free_ char *manager = NULL, *found = NULL, *before = set ? xstrdup(set) : NULL;

        assert_true(asprintf(&manager, "%s/systemd", fixture->folder) > 0);
        (void) setenv("XDG_RUNTIME_DIR", fixture->folder, 1);
        assert_false(systemd_has_session(&found));
        assert_int_equal(mkdir(manager, 0700), 0);
        assert_true(systemd_has_session(&found));
        assert_string_equal(found, fixture->folder);
        (void) rmdir(manager);
        if (before)
                (void) setenv("XDG_RUNTIME_DIR", before, 1);
        else
                (void) unsetenv("XDG_RUNTIME_DIR");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_scope_is_asked_for_with_a_process_that_waits, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_anchor_ends_with_the_daemon, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_scope_of_an_earlier_daemon_is_joined, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_systemd_refuses_is_told, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_session_is_a_folder_of_the_users_own, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
