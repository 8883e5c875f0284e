/* SPDX-License-Identifier: Apache-2.0 */

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
#include "host/cgroup-place.h"
#include "host/cgroup-reasons.h"
#include "host/cgroup-tree.h"
#include "host/cgroups.h"
#include "test.h"

/* ---- Trees ---- */

static void cgroups_are_found_where_they_are_mounted(void **state) {
        static const char mounts[] = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                     "31 24 0:27 /outer /mnt/a\\040b rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        char *path = NULL;

        (void) state;
        assert_int_equal(cgroup_parse_own((char[sizeof(mounts)]){ 0 }, (char[]){ "0::/x\n" }, NULL, NULL, &path),
                         -ENOENT);
        for (int i = 0; i < 3; i++) {
                _cleanup_free_ char *copy = xstrdup(mounts);
                char *const own[] = { xstrdup("4:memory:/m\n0::/outer/in\n"), xstrdup("0::/outer\n"),
                                      xstrdup("0::/outermost\n") };
                static const char *const expected[] = { "/mnt/a b/in", "/mnt/a b", NULL };
                int r = cgroup_parse_own(copy, own[i], NULL, NULL, &path);

                assert_int_equal(r, expected[i] ? 0 : -ENOENT);
                if (expected[i]) {
                        assert_string_equal(path, expected[i]);
                        free(path);
                }
                for (int j = 0; j < 3; j++)
                        free(own[j]);
        }
}

static void controllers_are_found_where_they_are_mounted(void **state) {
        static const struct {
                const char *controller, *expected;
        } cases[] = {
                { "memory", "/sys/fs/cgroup/memory/m" },
                { "cpu", "/sys/fs/cgroup/cpu,cpuacct" },
                { "cpuacct", "/sys/fs/cgroup/cpu,cpuacct" },
                { "acct", NULL },
                { "pids", NULL }, /* is not mounted */
                { "rw", NULL },
                { NULL, "/mnt/in" },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                char mounts[] = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                "32 24 0:28 /own /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "31 24 0:27 /outer /mnt rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
                char own[] = "6:pids:/p\n5:name=systemd:/s\n4:memory:/m\n3:cpu,cpuacct:/own\n0::/outer/in\n";
                _cleanup_free_ char *path = NULL;
                int r = cgroup_parse_own(mounts, own, cases[i].controller, NULL, &path);

                assert_int_equal(r, cases[i].expected ? 0 : -ENOENT);
                if (cases[i].expected)
                        assert_string_equal(path, cases[i].expected);
        }
}

static void what_is_seen_of_trees(void **state) {
        static const struct {
                const char *mounts, *cgroups, *mount, *own;
                bool has_v1;
        } cases[] = {
                /* Version 2 alone, from a login. */
                { "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/user.slice/session-1.scope\n",
                  "/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/session-1.scope", false },
                /* Its root. */
                { "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n", "/sys/fs/cgroup", "/sys/fs/cgroup",
                  false },
                /* Both, in a container that was given a part. */
                { "29 24 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                  "30 24 0:26 /docker/1 /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                  "4:memory:/docker/1\n0::/docker/1/in\n", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/in",
                  true },
                /* A part that the process is not in, as after joining a container's cgroup namespace. */
                { "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../other\n", NULL, NULL, false },
                /* None. */
                { "30 24 0:26 / /proc rw - proc proc rw\n", "", NULL, NULL, false },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_free_ char *mounts = xstrdup(cases[i].mounts), *cgroups = xstrdup(cases[i].cgroups);
                _cleanup_(cgroup_sight_clear) CgroupSight sight = {};

                cgroup_sight_parse(mounts, cgroups, &sight);
                assert_true(str_equal(sight.mount, cases[i].mount));
                assert_true(str_equal(sight.own, cases[i].own));
                assert_int_equal(sight.has_v1, cases[i].has_v1);
        }
}

/* ---- Places ---- */

static void places_are_tried_from_the_top(void **state) {
        static const PlaceRules root = { .is_root = true, .has_controllers = true },
                                root_of_systemd = { .is_root = true, .has_systemd = true, .has_controllers = true },
                                user = { .has_controllers = true },
                                user_of_systemd = { .has_systemd = true, .has_controllers = true }, hybrid = {};
        static const struct {
                const PlaceRules *rules;
                const char *own, *expected[6];
        } cases[] = {
                { &root, "/c", { "/c" } },
                { &root, "/c/a/b", { "/c", "/c/a", "/c/a/b" } },
                { &root_of_systemd,
                  "/c/system.slice/x.service",
                  { "/c", "/c/system.slice", "/c/system.slice/x.service" } },
                { &user, "/c/a/hutchd", { "/c", "/c/a", "/c/a/hutchd" } },
                /* What is above a unit is systemd's. */
                { &user_of_systemd,
                  "/c/user.slice/user@1.service/app.slice/r.scope",
                  { "/c/user.slice/user@1.service/app.slice/r.scope" } },
                { &user_of_systemd,
                  "/c/user.slice/x.service/hutchd",
                  { "/c/user.slice/x.service", "/c/user.slice/x.service/hutchd" } },
                { &user_of_systemd, "/c/mine/in", { "/c", "/c/mine", "/c/mine/in" } },
                /* Without controllers nothing is gained by another place than the own one. */
                { &hybrid, "/c/a/b", { "/c/a/b" } },
                { &hybrid, "/c/a/hutchd", { "/c/a" } },
                { &hybrid, "/c", { "/c" } },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const CgroupSight sight = { .mount = (char[]){ "/c" }, .own = (char *) cases[i].own };
                char **places = cgroup_places(&sight, cases[i].rules);
                size_t n = 0;

                for (; places[n]; n++)
                        assert_string_equal(places[n], cases[i].expected[n]);
                assert_null(cases[i].expected[n]);
                (void) strv_free(places);
        }
}

/* A cgroup of this host's own tree, with a process in it. */
typedef struct Group {
        char *path;
        int fd;
        pid_t pid;
} Group;

static int make_group(void **state) {
        static Group group;
        CgroupSight sight = {};

        group = (Group){ .fd = -1 };
        *state = &group;
        if (geteuid() != 0 || cgroup_sight_read("self", &sight) < 0 || !sight.mount)
                return 0;
        if (asprintf(&group.path, "%s/hutch-test-place-%d", sight.mount, (int) getpid()) < 0)
                abort();
        cgroup_sight_clear(&sight);
        if (mkdir(group.path, 0755) < 0)
                return 0; /* it is read-only */
        group.fd = open(group.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        group.pid = fork();
        if (group.pid == 0) {
                (void) cgroup_write_file(group.fd, "cgroup.procs", "0");
                (void) raise(SIGSTOP);
                (void) execlp("sleep", "sleep", "600", NULL);
                _exit(1);
        }
        (void) waitpid(group.pid, NULL, WUNTRACED);
        return 0;
}

static int remove_group(void **state) {
        Group *group = *state;
        _cleanup_free_ char *leaf = NULL;

        if (group->pid > 0) {
                (void) kill(group->pid, SIGKILL);
                (void) waitpid(group->pid, NULL, 0);
                if (asprintf(&leaf, "%s/" CGROUP_LEAF, group->path) < 0)
                        abort();
                (void) rmdir(leaf);
                (void) rmdir(group->path);
        }
        fd_close(group->fd);
        free(group->path);
        return 0;
}

static bool has_process(int folder, const char *file, pid_t pid) {
        _cleanup_free_ char *text = cgroup_read_file(folder, file);
        char line[16];

        (void) snprintf(line, sizeof(line), "%d\n", (int) pid);
        return text && strstr(text, line);
}

static void processes_of_our_own_are_moved_out_of_the_way_and_back(void **state) {
        const Group *group = *state;
        MovedProcesses moved = {};
        Bystander bystander = {};

        if (group->fd < 0)
                skip();
        /* It is a child of this process. */
        assert_int_equal(cgroup_place_clear(group->fd, &moved, &bystander), 0);
        assert_int_equal(moved.n, 1);
        assert_true(has_process(group->fd, CGROUP_LEAF "/cgroup.procs", group->pid));
        assert_false(has_process(group->fd, "cgroup.procs", group->pid));

        cgroup_place_restore(group->fd, &moved);
        assert_true(has_process(group->fd, "cgroup.procs", group->pid));
        assert_int_equal(faccessat(group->fd, CGROUP_LEAF, F_OK, 0), -1);
}

static void processes_of_others_are_named_and_stay(void **state) {
        const Group *group = *state;
        int status;
        pid_t pid;

        if (group->fd < 0)
                skip();
        /* Seen from a process that is not its parent. */
        pid = fork();
        if (pid == 0) {
                MovedProcesses moved = {};
                Bystander bystander = {};
                int r;

                (void) cgroup_write_file(group->fd, "cgroup.procs", "0");
                r = cgroup_place_clear(group->fd, &moved, &bystander);
                if (r != -EBUSY || bystander.pid != group->pid || moved.n != 0)
                        _exit(1);
                _exit(has_process(group->fd, "cgroup.procs", group->pid) &&
                                      has_process(group->fd, "cgroup.procs", getpid())
                              ? 0
                              : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

/* ---- Reasons ---- */

static void assert_reason(CgroupReason reason, const char *why, const char *fix) {
        assert_non_null(strstr(reason.why, why));
        assert_non_null(strstr(reason.fix, fix));
        assert_null(strchr(reason.why, '\n'));
        assert_null(strchr(reason.fix, '\n'));
        free(reason.why);
        free(reason.fix);
}

static char here[] = "/sys/fs/cgroup", nobody[] = "ann";
static CgroupHost host_of(bool is_root, bool has_systemd, bool has_controllers) {
        return (CgroupHost){ .sight = { .mount = here, .own = here },
                             .rules = { is_root, has_systemd, has_controllers },
                             .user = nobody };
}

static void reasons_fit_the_host(void **state) {
        static char error[] = "no busctl", v1_mounts[] = " /sys/fs/cgroup/memory";
        CgroupHost root = host_of(true, false, true), user = host_of(false, false, true),
                   login = host_of(false, true, true), hybrid = host_of(false, false, false);

        (void) state;
        assert_reason(cgroup_reason_no_place(&root, here, -EROFS), "read-only", "--privileged");
        assert_reason(cgroup_reason_no_place(&root, NULL, -ENOENT), "no cgroup v2 tree", "mount -t cgroup2");
        assert_reason(cgroup_reason_no_place(&user, here, -EACCES), "ann may not write to /sys/fs/cgroup", "chown");
        assert_reason(cgroup_reason_no_place(&login, here, -EACCES), "no systemd user session",
                      "loginctl enable-linger ann");
        login.has_session = true;
        login.scope_error = error;
        assert_reason(cgroup_reason_no_place(&login, here, -EACCES), "no busctl",
                      "systemd-run --user --scope -p Delegate=yes hutchd");
        hybrid.v1_mounts = v1_mounts;
        assert_reason(cgroup_reason_no_place(&hybrid, here, -EACCES), "may not write",
                      "for t in /sys/fs/cgroup /sys/fs/cgroup/memory;");
        assert_reason(cgroup_reason_bystander("/c", &(Bystander){ 7, "sh" }), "process 7 (sh) is in /c",
                      "mkdir -p /c/others; echo 7 > /c/others/cgroup.procs");
        assert_reason(cgroup_reason_bystander("/c", &(Bystander){}), "another pid namespace", "--cgroupns=private");
}

static void that_a_controller_is_not_given_is_told_with_who_has_it(void **state) {
        static const char known[] = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
                                    "cpu\t0\t9\t1\nmemory\t4\t9\t1\nblkio\t0\t1\t0\n";
        char mount[] = "/tmp/hutch-test-XXXXXX";
        _cleanup_free_ char *below = NULL;
        CgroupHost root, user;

        (void) state;
        assert_non_null(mkdtemp(mount));
        assert_true(asprintf(&below, "%s/below", mount) > 0);
        assert_int_equal(mkdir(below, 0755), 0);
        root = host_of(true, false, true);
        user = host_of(false, true, true);
        root.sight.mount = user.sight.mount = mount;
        assert_reason(cgroup_reason_not_given(&root, below, "memory", "memory", known), "version 1",
                      "cgroup_no_v1=memory");
        assert_reason(cgroup_reason_not_given(&root, below, "io", "blkio", known), "booted without",
                      "cgroup_enable=blkio");
        assert_reason(cgroup_reason_not_given(&root, below, "pids", "pids", known), "has no controller pids",
                      "boot a kernel");
        /* Version 2 has it: nothing is said of version 1. */
        assert_reason(cgroup_reason_not_given(&root, below, "cpu", "cpu", known), "not given the controller cpu",
                      "docker run");

        {
                _cleanup_close_ int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                _cleanup_close_ int list = openat(fd, "cgroup.controllers", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

                assert_int_equal(fd_write_all(list, "cpuset cpu\n", 11), 0);
                assert_true(cgroup_lists(fd, "cgroup.controllers", "cpu"));
                assert_false(cgroup_lists(fd, "cgroup.controllers", "cpus"));
                assert_false(cgroup_lists(fd, "no.such.file", "cpu"));
                assert_reason(cgroup_reason_not_given(&root, below, "cpu", "cpu", known), "does not pass",
                              "/cgroup.subtree_control");
                assert_reason(cgroup_reason_not_given(&user, below, "cpu", "cpu", known), "systemd does not give",
                              "Delegate=cpu cpuset io memory pids");
                assert_int_equal(unlinkat(fd, "cgroup.controllers", 0), 0);
        }
        assert_int_equal(rmdir(below), 0);
        assert_int_equal(rmdir(mount), 0);
}

/* ---- All of it ---- */

static void what_is_tried_is_undone(void **state) {
        char instance[32];
        HostCgroups cgroups;
        CgroupSight before = {}, after = {};
        _cleanup_free_ char *parent = NULL;

        (void) state;
        (void) snprintf(instance, sizeof(instance), "test-%d", (int) getpid());
        assert_int_equal(cgroup_sight_read("self", &before), 0);
        host_cgroups_find(&(HostCgroupOptions){ .instance_id = instance, .state_folder = -1, .probes = true },
                          &cgroups);
        assert_int_equal(!cgroups.parent, cgroups.fd < 0);
        assert_int_equal(!cgroups.parent, cgroups.why != NULL);
        /* Without a disk nobody knows of weights. */
        assert_null(cgroups.controllers[HOST_IO].parent);
        for (int i = 0; i < N_HOST_CONTROLLERS; i++)
                assert_true(!cgroups.controllers[i].parent ==
                            (cgroups.controllers[i].why && cgroups.controllers[i].fix));
        for (const UnenforcedLimit *one = cgroups.unenforced; one->limit; one++)
                assert_true(*one->why);
        if (cgroups.parent)
                parent = xstrdup(cgroups.parent);
        host_cgroups_release(&cgroups);
        assert_int_equal(cgroups.fd, -1);
        if (parent)
                assert_int_equal(access(parent, F_OK), -1);
        assert_int_equal(cgroup_sight_read("self", &after), 0);
        assert_true(str_equal(before.own, after.own));
        cgroup_sight_clear(&before);
        cgroup_sight_clear(&after);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(cgroups_are_found_where_they_are_mounted),
                cmocka_unit_test(controllers_are_found_where_they_are_mounted),
                cmocka_unit_test(what_is_seen_of_trees),
                cmocka_unit_test(places_are_tried_from_the_top),
                cmocka_unit_test_setup_teardown(processes_of_our_own_are_moved_out_of_the_way_and_back, make_group,
                                                remove_group),
                cmocka_unit_test_setup_teardown(processes_of_others_are_named_and_stay, make_group, remove_group),
                cmocka_unit_test(reasons_fit_the_host),
                cmocka_unit_test(that_a_controller_is_not_given_is_told_with_who_has_it),
                cmocka_unit_test(what_is_tried_is_undone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
