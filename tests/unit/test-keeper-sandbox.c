/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes with real namespaces: built, entered, frozen, ended. As root, with a range of uids and cgroups; and then
 * again without root, what there is of it. */

#include "keeper/box/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "keeper/root/remove.h"
#include "keeper/root/rootfs.h"
#include "test.h"

#define UID_BASE 0x70000000u
#define NOBODY 65534u
#define PATIENCE (60 * NSEC_PER_SEC)

/* A sandbox to be, or that is. */
typedef struct Fixture {
        KeeperConfig config;
        KeptSandbox *sandbox;
        unsigned n_execs;
        char state_folder[64];
        char cgroup[256];
} Fixture;

/* What became of a process. */
typedef struct Result {
        SpawnFailure failure; /* of stage 0: the program was started */
        int status;
        char output[4096];
} Result;

static char *const no_environment[] = { NULL };
static char image_folder[64]; /* of all tests */

/* ---- Helpers ---- */

static bool find_cgroup_mount(char *ret_path, size_t size) {
        FILE *file = fopen("/proc/self/mountinfo", "re");
        assert_non_null(file);
        bool is_found = false;
        for (char line[4096]; !is_found && fgets(line, sizeof(line), file);)
                if (strstr(line, " - cgroup2 ")) {
                        char path[200];
                        assert_int_equal(sscanf(line, "%*s %*s %*s %*s %199s", path), 1);
                        (void) snprintf(ret_path, size, "%s/hutch-test-%d", path, (int) getpid());
                        is_found = true;
                }
        (void) fclose(file);
        return is_found;
}

static unsigned count_lines(const char *path) {
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        unsigned count = 0;
        for (int c; (c = getc(file)) != EOF;)
                count += c == '\n';
        (void) fclose(file);
        return count;
}

static void fixture_prepare(Fixture *fixture) {
        strcpy(fixture->state_folder, "/tmp/hutch-keeper-XXXXXX");
        assert_non_null(mkdtemp(fixture->state_folder));
        fixture->config = (KeeperConfig){
                .sandbox_id = (char *) "sbx-test",
                .state_folder = fixture->state_folder,
                .image_folder = image_folder,
                .workspace = (char *) "/workspace",
                .uid_base = geteuid() == 0 ? UID_BASE : geteuid(),
                .uid_count = geteuid() == 0 ? 65536 : 1,
                .start_timeout = PATIENCE,
        };
        if (geteuid() == 0 && find_cgroup_mount(fixture->cgroup, sizeof(fixture->cgroup)))
                fixture->config.cgroup = fixture->cgroup;
}

static int set_up_images(void **state) {
        (void) state;
        strcpy(image_folder, "/tmp/hutch-keeper-XXXXXX");
        assert_non_null(mkdtemp(image_folder));
        return 0;
}

static int tear_down_images(void **state) {
        (void) state;
        assert_int_equal(folder_remove(image_folder, NULL), 0);
        return 0;
}

static int set_up(void **state) {
        Fixture *fixture = new0(Fixture, 1);
        fixture_prepare(fixture);
        *state = fixture;
        return 0;
}

static int tear_down(void **state) {
        Fixture *fixture = *state;
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        assert_int_equal(folder_remove(fixture->state_folder, NULL), 0);
        assert_int_equal(access(fixture->cgroup, F_OK), -1);
        /* The keeper's children are all gone. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        free(fixture);
        return 0;
}

static int build_sandbox(const KeeperConfig *config, KeptSandbox **ret_sandbox, HutchError *err) {
        _cleanup_(sandbox_destroyp) KeptSandbox *sandbox = NULL;
        int r = sandbox_begin(config, &sandbox, err);
        if (r < 0)
                return r;
        struct pollfd poll_fd = { .fd = sandbox_report_fd(sandbox), .events = POLLIN };
        assert_int_equal(poll(&poll_fd, 1, 10000), 1);
        r = sandbox_finish(sandbox, err);
        if (r >= 0)
                *ret_sandbox = TAKE_PTR(sandbox);
        return r;
}

static void build(Fixture *fixture) {
        _cleanup_(error_clear) HutchError err = {};
        int r = build_sandbox(&fixture->config, &fixture->sandbox, &err);
        /* Some hosts let only root make user namespaces. */
        if (r < 0 && geteuid() != 0 && (r == -EPERM || r == -ENOSPC || r == -EACCES))
                skip();
        if (r < 0)
                fail_msg("%s", error_message(&err));
}

static ExecGroup *new_group(Fixture *fixture) {
        char id[32];
        (void) snprintf(id, sizeof(id), "%u", fixture->n_execs++);
        ExecGroup *group = NULL;
        assert_int_equal(exec_group_new(fixture->sandbox, id, &group, NULL), 0);
        return group;
}

static SpawnFailure read_failure(int error_fd) {
        SpawnFailure failure = {};
        struct pollfd poll_fd = { .fd = error_fd, .events = POLLIN };
        assert_int_equal(poll(&poll_fd, 1, (int) (PATIENCE / NSEC_PER_MSEC)), 1);
        ssize_t n = read(error_fd, &failure, sizeof(failure));
        assert_true(n == 0 || n == sizeof(failure));
        return failure;
}

/* Starts a process with the pipe's write end as its output, and waits until its program runs. */
static pid_t start(Fixture *fixture, SpawnPlan *plan, int output, SpawnFailure *ret_failure) {
        _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        _cleanup_close_ int pidfd = -1, error_fd = -1;
        if (!plan->environment) {
                plan->environment = no_environment;
                plan->set_home = plan->set_user = true;
        }
        plan->working_directory = plan->working_directory ? plan->working_directory : "/";
        plan->user = plan->user ? plan->user : "agent";
        if (!plan->terminal) {
                plan->stdin_fd = null;
                plan->stdout_fd = plan->stderr_fd = output;
        }
        pid_t pid = sandbox_spawn(fixture->sandbox, plan, &pidfd, &error_fd, NULL);
        assert_true(pid > 0);
        *ret_failure = read_failure(error_fd);
        return pid;
}

static Result run_plan(Fixture *fixture, SpawnPlan plan) {
        Result result = {};
        int pair[2];
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        plan.group = group;
        pid_t pid = start(fixture, &plan, pair[1], &result.failure);
        close(pair[1]);

        size_t len = 0;
        for (ssize_t n; (n = read(pair[0], result.output + len, sizeof(result.output) - 1 - len)) > 0;)
                len += (size_t) n;
        close(pair[0]);
        assert_int_equal(waitpid(pid, &result.status, 0), pid);
        return result;
}

static Result run_shell(Fixture *fixture, const char *script, const char *user) {
        char *argv[] = { (char *) "/bin/sh", (char *) "-c", (char *) script, NULL };
        return run_plan(fixture, (SpawnPlan){ .argv = argv, .user = user });
}

/* What a script prints, which must succeed. */
#define assert_prints(fixture, script, expected)                                                                       \
        do {                                                                                                           \
                Result result_ = run_shell((fixture), (script), NULL);                                                 \
                assert_string_equal(result_.output, (expected));                                                       \
                assert_int_equal(result_.status, 0);                                                                   \
        } while (0)

static void wait_until_empty(ExecGroup *group) {
        uint64_t end = clock_monotonic_ns() + PATIENCE;
        while (exec_group_is_populated(group)) {
                assert_true(clock_monotonic_ns() < end);
                struct pollfd poll_fd = { .fd = exec_group_events_fd(group), .events = POLLPRI };
                (void) poll(&poll_fd, 1, 100);
        }
}

/* ---- The sandbox ---- */

static void build_and_destroy_leave_nothing(void **state) {
        Fixture *fixture = *state;
        unsigned mounts = count_lines("/proc/self/mountinfo");
        for (int i = 0; i < 3; i++) {
                build(fixture);
                assert_int_equal(access(fixture->cgroup, F_OK), fixture->config.cgroup ? 0 : -1);
                assert_int_equal(run_shell(fixture, "true", NULL).status, 0);
                fixture->sandbox = sandbox_destroy(fixture->sandbox);
                assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
                assert_int_equal(access(fixture->cgroup, F_OK), -1);
        }
        assert_int_equal(count_lines("/proc/self/mountinfo"), mounts);
}

static void root_is_kept(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        assert_prints(fixture, "echo kept >/workspace/file; echo mine >~/file; cat ~/file", "mine\n");
        sandbox_destroy(fixture->sandbox);
        build(fixture);
        assert_prints(fixture, "cat /workspace/file ~/file", "kept\nmine\n");
}

static void changes_to_the_image_are_kept_and_nobody_elses(void **state) {
        Fixture *fixture = *state, other = {};
        build(fixture);
        assert_int_equal(run_shell(fixture,
                                   "echo new >/etc/new; echo top >/top; rm /etc/profile; mkdir /root/a && "
                                   "mv /root/a /root/b && echo '127.0.0.1 me' >>/etc/hosts",
                                   "0")
                                 .status,
                         0);
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        build(fixture);
        assert_prints(fixture, "cat /etc/new /top; tail -1 /etc/hosts; ls /etc/profile 2>/dev/null || echo gone",
                      "new\ntop\n127.0.0.1 me\ngone\n");
        fixture->sandbox = sandbox_destroy(fixture->sandbox);

        fixture_prepare(&other);
        build(&other);
        assert_prints(&other, "ls /etc/profile; ls /etc/new /top 2>/dev/null || tail -1 /etc/hosts",
                      "/etc/profile\n::1 localhost\n");
        other.sandbox = sandbox_destroy(other.sandbox);
        assert_int_equal(folder_remove(other.state_folder, NULL), 0);
}

/* Keepers that all are the first on their host. */
static void image_is_made_once(void **state) {
        Fixture *fixture = *state;
        char images[] = "/tmp/hutch-keeper-XXXXXX", unfinished[64];
        assert_non_null(mkdtemp(images));
        (void) snprintf(unfinished, sizeof(unfinished), "%s/new-%d", images, (int) getpid());
        assert_int_equal(mkdir(unfinished, 0700), 0);
        fixture->config.image_folder = images;
        pid_t pids[8];
        for (size_t i = 0; i < 8; i++) {
                pids[i] = fork();
                assert_true(pids[i] >= 0);
                if (pids[i] == 0) {
                        Rootfs *rootfs = NULL;
                        _exit(rootfs_new(&fixture->config, &rootfs, NULL) < 0);
                }
        }
        for (size_t i = 0; i < 8; i++) {
                int status;
                assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                assert_int_equal(status, 0);
        }
        build(fixture);
        assert_prints(fixture, "id -un", "agent\n");
        assert_int_equal(rmdir(unfinished), 0);
        DIR *dir = opendir(images);
        assert_non_null(dir);
        unsigned count = 0;
        while (readdir(dir))
                count++;
        (void) closedir(dir);
        assert_int_equal(count, 3);
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        assert_int_equal(folder_remove(images, NULL), 0);
}

static void workspace_in_the_home_folder(void **state) {
        Fixture *fixture = *state;
        fixture->config.workspace = (char *) "/home/agent/a/b";
        for (int i = 0; i < 2; i++) {
                build(fixture);
                assert_prints(fixture, "echo x >>~/a/b/file; cat ~/a/b/file; stat -c %U ~/a/b",
                              i == 0 ? "x\nagent\n" : "x\nx\nagent\n");
                /* The way to it is made anew. */
                assert_prints(fixture, "mv ~/a $(mktemp -u ~/XXXXXX)", "");
                fixture->sandbox = sandbox_destroy(fixture->sandbox);
        }
}

static void half_made_root_is_made_anew(void **state) {
        Fixture *fixture = *state;
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/fs.new", fixture->state_folder);
        assert_int_equal(mkdir(path, 0700), 0);
        (void) snprintf(path, sizeof(path), "%s/fs.new/etc", fixture->state_folder);
        assert_int_equal(mkdir(path, 0700), 0);
        build(fixture);
        assert_prints(fixture, "id -un", "agent\n");
}

static void view_from_inside(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        assert_prints(fixture, "id -u; id -g; id -Gn", "1000\n1000\nagent\n");
        assert_prints(fixture, "hostname; cat /etc/hostname", "sbx-test\nsbx-test\n");
        assert_prints(fixture, "tail -1 /proc/self/cgroup", "0::/\n");
        assert_prints(fixture, "stat -c '%a %U %F' /tmp /var/tmp /workspace /home/agent /root /",
                      "1777 root directory\n1777 root directory\n755 agent directory\n700 agent directory\n"
                      "700 root directory\n755 root directory\n");
        assert_prints(fixture, "cat /sys/class/net/lo/operstate; ls /sys/class/net", "unknown\nlo\n");
        assert_prints(fixture, "touch /usr/x 2>/dev/null || touch /etc/ssl/certs/x 2>/dev/null || echo no", "no\n");
        assert_prints(fixture, "touch /tmp/a /var/tmp/a /workspace/a /dev/shm/a; echo x >/dev/null; ls /tmp", "a\n");
        assert_prints(fixture, "umask; pwd; kill -9 1 2>/dev/null || echo no", "0022\n/\nno\n");
        /* Nothing but PID 1 and this, and of the keeper nothing can be seen. */
        assert_prints(fixture, "cd /proc; set -- [0-9]*; echo $#; cat /proc/1/environ 2>/dev/null || echo no",
                      "2\nno\n");
        assert_prints(fixture, "ls -A /etc | grep -E 'shadow|ssh$|gitconfig|pip.conf' || echo no", "no\n");
}

static void kernel_files_are_restricted(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        /* Of those that a namespace's root may write to, by their own rights, one each. */
        assert_prints(fixture, "for i in bus fs irq sys; do grep -c \" /proc/$i proc ro,\" /proc/mounts; done",
                      "1\n1\n1\n1\n");
        Result result = run_shell(fixture, "echo x 2>&1 >/proc/sys/net/ipv4/ip_forward", "root");
        assert_non_null(strstr(result.output, "Read-only file system"));
        assert_prints(fixture,
                      "cat /proc/keys /proc/key-users /proc/interrupts; ls -A /proc/acpi /sys/firmware 2>&1 | "
                      "grep -v -e '^/' -e '^$' -e 'No such file'; echo x >/proc/self/comm",
                      "");
        result = run_shell(fixture, "chmod u+w /proc/acpi || touch /proc/acpi/x || rm /proc/keys", "root");
        assert_int_not_equal(result.status, 0);
}

static void what_is_in_memory_is_one_file_system_in_parts(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        assert_prints(fixture, "stat -c %d /dev /dev/shm /proc/sys/kernel/random/boot_id | sort -u | wc -l", "1\n");
        assert_prints(fixture, "grep -E ' /dev(/shm)? ' /proc/mounts | cut -d, -f1-3",
                      "none /dev tmpfs rw,nosuid,noexec\nnone /dev/shm tmpfs rw,nosuid,nodev\n");
        assert_prints(fixture, "touch /dev/shm/mine; cd /dev; ls -d mine shm/* shm/../empty 2>/dev/null || true",
                      "shm/mine\n");
}

static void copy_ids(Fixture *fixture, char ids[static 2][64]) {
        static const char *const files[] = { "/etc/machine-id", "/proc/sys/kernel/random/boot_id" };
        for (int i = 0; i < 2; i++) {
                char script[128];
                (void) snprintf(script, sizeof(script), "cat %s", files[i]);
                (void) snprintf(ids[i], sizeof(ids[i]), "%.60s", run_shell(fixture, script, NULL).output);
        }
        assert_int_equal(strlen(ids[0]), 33);
        assert_int_equal(strlen(ids[1]), 37);
}

static void machine_and_boot_have_ids_of_their_own(void **state) {
        Fixture *fixture = *state, other = {};
        char host[64] = "", first[2][64], again[2][64], others[2][64];
        _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        assert_true(read(fd, host, sizeof(host) - 1) == 37);

        build(fixture);
        copy_ids(fixture, first);
        assert_string_not_equal(first[1], host);
        assert_prints(fixture, "ls /dev | grep boot || echo no", "no\n");
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        build(fixture);
        copy_ids(fixture, again);
        assert_string_equal(again[0], first[0]);
        assert_string_not_equal(again[1], first[1]);
        fixture->sandbox = sandbox_destroy(fixture->sandbox);

        fixture_prepare(&other);
        build(&other);
        copy_ids(&other, others);
        assert_string_not_equal(others[0], first[0]);
        other.sandbox = sandbox_destroy(other.sandbox);
        assert_int_equal(folder_remove(other.state_folder, NULL), 0);
}

static void processes_have_no_privileges(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        const char *expected = "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
                               "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";
        Result result = run_shell(fixture, "grep -E '^(Cap|NoNew)' /proc/self/status", "root");
        assert_string_equal(result.output, expected);
        result = run_shell(fixture, "grep -E '^(Cap|NoNew)' /proc/1/status", NULL);
        assert_string_equal(result.output, expected);
        result = run_shell(fixture, "exec cat /proc/self/status", NULL);
        assert_non_null(strstr(result.output, "\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
                                              "SigCgt:\t0000000000000000\n"));
        result = run_shell(fixture, "ls /proc/self/fd", NULL);
        assert_string_equal(result.output, "0\n1\n2\n3\n");
}

static void read_only_root(void **state) {
        Fixture *fixture = *state;
        fixture->config.read_only_root = true;
        build(fixture);
        assert_prints(fixture, "touch /workspace/a /tmp/a /var/tmp/a /dev/shm/a; touch ~/a 2>/dev/null || echo no",
                      "no\n");
        Result result = run_shell(fixture, "touch /root/a", "root");
        assert_non_null(strstr(result.output, "Read-only file system"));
}

static void limited_tmp(void **state) {
        Fixture *fixture = *state;
        fixture->config.tmp_bytes = 1024 * 1024;
        fixture->config.tmp_noexec = true;
        build(fixture);
        assert_prints(fixture, "head -c 2M /dev/zero >/tmp/big 2>/dev/null || stat -c %s /tmp/big", "1048576\n");
        assert_prints(fixture, "rm /tmp/big; cp /bin/true /tmp/; /tmp/true 2>/dev/null || echo $?", "126\n");
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        fixture->config.tmp_bytes = 0;
        build(fixture);
        assert_prints(fixture, "cp /bin/true /tmp/; /tmp/true 2>/dev/null || echo $?", "126\n");
}

static void links_in_a_kept_root_lead_nowhere(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        fixture->sandbox = sandbox_destroy(fixture->sandbox);
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/fs/upper/tmp", fixture->state_folder);
        assert_int_equal(symlink("/usr", path), 0);
        fixture->config.tmp_bytes = 4096;
        _cleanup_(error_clear) HutchError err = {};
        assert_int_equal(build_sandbox(&fixture->config, &fixture->sandbox, &err), -ELOOP);
        assert_non_null(strstr(error_message(&err), "/tmp"));
}

static void assert_build_fails(Fixture *fixture, int expected) {
        unsigned mounts = count_lines("/proc/self/mountinfo");
        _cleanup_(error_clear) HutchError err = {};
        assert_int_equal(build_sandbox(&fixture->config, &fixture->sandbox, &err), expected);
        assert_null(fixture->sandbox);
        assert_int_not_equal(err.error, 0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(access(fixture->cgroup, F_OK), -1);
        assert_int_equal(count_lines("/proc/self/mountinfo"), mounts);
}

static void failed_build_leaves_nothing(void **state) {
        Fixture *fixture = *state;
        fixture->config.state_folder = (char *) "/tmp/there-is-no-such-folder";
        assert_build_fails(fixture, -ENOENT);
        fixture->config.state_folder = fixture->state_folder;

        char path[128];
        (void) snprintf(path, sizeof(path), "%s/fs", fixture->state_folder);
        assert_int_equal(symlink("/", path), 0);
        assert_build_fails(fixture, -ENOTDIR);
        assert_int_equal(unlink(path), 0);

        /* One without folders to mount, and one that the sandbox cannot read. */
        assert_int_equal(mkdir(path, 0755), 0);
        assert_build_fails(fixture, -ENOENT);
        char work[sizeof(path) + 8];
        (void) snprintf(work, sizeof(work), "%s/work", path);
        assert_int_equal(mkdir(work, 0755), 0);
        assert_build_fails(fixture, -ENOENT);
        assert_int_equal(chmod(path, 0), 0);
        assert_build_fails(fixture, -EACCES);
        assert_int_equal(chmod(path, 0755), 0);
        assert_int_equal(rmdir(work), 0);
        assert_int_equal(rmdir(path), 0);

        if (fixture->config.cgroup) {
                fixture->config.cgroup = (char *) "/proc/no/such/cgroup";
                assert_build_fails(fixture, -ENOENT);
                fixture->config.cgroup = fixture->cgroup;
        }
        build(fixture);
}

static void end_of_init_is_the_end(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        char *argv[] = { (char *) "sleep", (char *) "1000", NULL };
        SpawnPlan plan = { .argv = argv, .group = group };
        SpawnFailure failure;
        pid_t pid = start(fixture, &plan, STDERR_FILENO, &failure);
        int init = sandbox_init_pidfd(fixture->sandbox);
        assert_int_equal(syscall(SYS_pidfd_send_signal, init, SIGKILL, NULL, 0), 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        struct pollfd poll_fd = { .fd = init, .events = POLLIN };
        assert_int_equal(poll(&poll_fd, 1, (int) (PATIENCE / NSEC_PER_MSEC)), 1);

        int pidfd, error_fd;
        _cleanup_(error_clear) HutchError err = {};
        assert_int_equal(sandbox_spawn(fixture->sandbox, &plan, &pidfd, &error_fd, &err), -ESHUTDOWN);
}

/* The keeper is a process of its own here, and is killed. */
static void end_of_the_keeper_is_the_end(void **state) {
        Fixture *fixture = *state;
        int pair[2];
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        pid_t keeper = fork();
        assert_true(keeper >= 0);
        if (keeper == 0) {
                KeptSandbox *sandbox;
                if (build_sandbox(&fixture->config, &sandbox, NULL) < 0)
                        _exit(1);
                ExecGroup *group;
                char *argv[] = { (char *) "sh", (char *) "-c", (char *) "echo; exec sleep 1000 0<&1", NULL };
                if (exec_group_new(sandbox, "x", &group, NULL) < 0)
                        _exit(1);
                SpawnPlan plan = {
                        .group = group,
                        .argv = argv,
                        .environment = no_environment,
                        .working_directory = "/",
                        .user = "agent",
                        .stdin_fd = pair[1],
                        .stdout_fd = pair[1],
                        .stderr_fd = pair[1],
                };
                int pidfd, error_fd;
                if (sandbox_spawn(sandbox, &plan, &pidfd, &error_fd, NULL) < 0)
                        _exit(1);
                for (;;)
                        (void) pause();
        }
        close(pair[1]);
        char bytes[4];
        assert_int_equal(read(pair[0], bytes, sizeof(bytes)), 1);
        assert_int_equal(kill(keeper, SIGKILL), 0);
        assert_int_equal(waitpid(keeper, NULL, 0), keeper);
        /* The last holder of the pipe is gone. */
        struct pollfd poll_fd = { .fd = pair[0], .events = POLLIN };
        assert_int_equal(poll(&poll_fd, 1, (int) (PATIENCE / NSEC_PER_MSEC)), 1);
        assert_int_equal(read(pair[0], bytes, sizeof(bytes)), 0);
        close(pair[0]);
        /* What is left of the cgroups is taken over by the next. */
        build(fixture);
}

static void freezes_and_thaws(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        if (!fixture->config.cgroup)
                skip();
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) "while echo; do sleep 0.01; done", NULL };
        int pair[2];
        assert_int_equal(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
        SpawnPlan plan = { .argv = argv, .group = group };
        SpawnFailure failure;
        pid_t pid = start(fixture, &plan, pair[1], &failure);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(sandbox_set_frozen(fixture->sandbox, true, NULL), 0);
                char bytes[65536];
                (void) !read(pair[0], bytes, sizeof(bytes));
                struct pollfd poll_fd = { .fd = pair[0], .events = POLLIN };
                assert_int_equal(poll(&poll_fd, 1, 50), 0);
                assert_int_equal(sandbox_set_frozen(fixture->sandbox, false, NULL), 0);
                assert_int_equal(poll(&poll_fd, 1, (int) (PATIENCE / NSEC_PER_MSEC)), 1);
        }
        /* What is frozen can be ended. */
        assert_int_equal(sandbox_set_frozen(fixture->sandbox, true, NULL), 0);
        assert_int_equal(exec_group_kill(group), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close(pair[0]);
        close(pair[1]);
}

static void usage(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        if (!fixture->config.cgroup)
                skip();
        assert_prints(fixture, "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done", "");
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) "sleep 1000 & sleep 1000", NULL };
        SpawnPlan plan = { .argv = argv, .group = group };
        SpawnFailure failure;
        (void) start(fixture, &plan, STDERR_FILENO, &failure);
        SandboxUsage usage;
        uint64_t end = clock_monotonic_ns() + PATIENCE;
        do
                sandbox_get_usage(fixture->sandbox, &usage);
        while (usage.processes != 3 && clock_monotonic_ns() < end);
        assert_int_equal(usage.processes, 3);
        assert_true(usage.cpu_time > NSEC_PER_MSEC);
        assert_true(exec_group_cpu_time(group) > 0);
        assert_true(exec_group_cpu_time(group) < usage.cpu_time);
}

/* ---- Processes ---- */

static void exit_codes_and_signals(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        Result result = run_shell(fixture, "exit 42", NULL);
        assert_int_equal(result.failure.stage, 0);
        assert_true(WIFEXITED(result.status));
        assert_int_equal(WEXITSTATUS(result.status), 42);
        result = run_shell(fixture, "kill -TERM $$", NULL);
        assert_true(WIFSIGNALED(result.status));
        assert_int_equal(WTERMSIG(result.status), SIGTERM);
}

static SpawnFailure failure_of(Fixture *fixture, SpawnPlan plan) {
        return run_plan(fixture, plan).failure;
}

#define assert_failure(fixture, plan, expected_stage, expected_error)                                                  \
        do {                                                                                                           \
                SpawnFailure failure_ = failure_of((fixture), (plan));                                                 \
                assert_int_equal(failure_.stage, (expected_stage));                                                    \
                assert_int_equal(failure_.error, (expected_error));                                                    \
        } while (0)

static SpawnPlan plan_of(char *const *argv, char *const *environment) {
        return (SpawnPlan){ .argv = argv, .environment = environment };
}

static void programs_that_cannot_be_executed(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        assert_prints(
                fixture,
                "mkdir /workspace/bin /workspace/bin2; cd /workspace/bin; printf '#!/no/such\\n' >bad; chmod +x bad;"
                "echo >text; chmod +x text; echo >plain; cp /bin/true ../bin2/plain; ln -s loop loop",
                "");
        char *environment[] = { (char *) "PATH=/workspace/bin:/usr/bin", NULL };
        struct {
                const char *program;
                int error;
        } cases[] = {
                { "/no/such/program", ENOENT },
                { "no-such-program", ENOENT },
                { "/etc", EACCES },
                { "/etc/passwd/x", ENOTDIR },
                { "bad", ENOEXEC },
                { "text", ENOEXEC },
                { "plain", EACCES },
                { "loop", ENOENT },
                { "", ENOENT },
        };
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char *argv[] = { (char *) cases[i].program, NULL };
                assert_failure(fixture, plan_of(argv, environment), SPAWN_STAGE_EXEC, cases[i].error);
        }
        /* The second place has one that works. */
        char *both[] = { (char *) "PATH=/workspace/bin:/workspace/bin2", NULL }, *plain[] = { (char *) "plain", NULL };
        Result result = run_plan(fixture, plan_of(plain, both));
        assert_int_equal(result.failure.stage, 0);
        assert_int_equal(result.status, 0);
        /* An empty PATH is the working directory. */
        char *here[] = { (char *) "PATH=", NULL };
        SpawnPlan plan = plan_of(plain, here);
        plan.working_directory = "/workspace/bin2";
        assert_int_equal(failure_of(fixture, plan).stage, 0);

        size_t size = 256 * 1024;
        _cleanup_free_ char *large = new0(char, size + 1);
        memset(large, 'x', size);
        char *too_large[] = { (char *) "true", large, NULL };
        assert_failure(fixture, plan_of(too_large, NULL), SPAWN_STAGE_EXEC, E2BIG);
}

static void working_directory(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        char *argv[] = { (char *) "pwd", NULL };
        SpawnPlan plan = { .argv = argv, .working_directory = "/workspace" };
        assert_string_equal(run_plan(fixture, plan).output, "/workspace\n");
        plan.working_directory = "/no/such";
        assert_failure(fixture, plan, SPAWN_STAGE_CHDIR, ENOENT);
        plan.working_directory = "/etc/passwd";
        assert_failure(fixture, plan, SPAWN_STAGE_CHDIR, ENOTDIR);
        /* As the user sees it, not as root does. */
        plan.working_directory = "/root";
        assert_failure(fixture, plan, SPAWN_STAGE_CHDIR, EACCES);
}

static void users(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        Result result =
                run_shell(fixture,
                          "echo 'dev:x:2000:2001:,,,:/home/dev:/bin/sh' >>/etc/passwd; echo broken >>/etc/passwd;"
                          "echo 'staff:x:50:agent,dev' >>/etc/group; echo 'dev:x:2001:' >>/etc/group",
                          "0");
        assert_int_equal(result.status, 0);
        struct {
                const char *user, *expected;
        } cases[] = {
                { "root", "0 0 0 /root root\n" },
                { "agent", "1000 1000 1000 50 /home/agent agent\n" },
                { "1000", "1000 1000 1000 50 /home/agent agent\n" },
                { "dev", "2000 2001 2001 50 /home/dev dev\n" },
                { "dev:staff", "2000 50 50 /home/dev dev\n" },
                { "1000:1000", "1000 1000 1000 /home/agent agent\n" },
                { "3000", "3000 3000 3000 / 3000\n" },
                { "3000:4000", "3000 4000 4000 / 3000\n" },
                { "65534", "65534 65534 65534 /nonexistent nobody\n" },
        };
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                result = run_shell(fixture, "echo $(id -u) $(id -g) $(id -G) $HOME $USER", cases[i].user);
                assert_string_equal(result.output, cases[i].expected);
        }
        const char *const missing[] = {
                "nobody2", "broken", "", ":", "agent:", ":agent", "agent:nogroup2", "-1", " 0"
        };
        for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
                char *argv[] = { (char *) "true", NULL };
                SpawnPlan plan = { .argv = argv, .user = missing[i] };
                assert_failure(fixture, plan, SPAWN_STAGE_USER, ENOENT);
        }
        /* Outside the range, and no number that an id has. */
        char *argv[] = { (char *) "true", NULL };
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "65536" }), SPAWN_STAGE_USER, EINVAL);
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "4294967295" }), SPAWN_STAGE_USER, ENOENT);
}

static void hostile_user_files(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        char *argv[] = { (char *) "true", NULL };
        assert_int_equal(run_shell(fixture, "rm /etc/passwd && mkfifo /etc/passwd", "0").status, 0);
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "agent" }), SPAWN_STAGE_USER, EBADMSG);
        fixture->sandbox = sandbox_destroy(fixture->sandbox);

        /* For an overlay this stands for what is gone. */
        char path[128];
        (void) snprintf(path, sizeof(path), "%s/fs/upper/etc/passwd", fixture->state_folder);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mknod(path, S_IFCHR, 0), 0);
        build(fixture);
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "agent" }), SPAWN_STAGE_USER, ENOENT);
        assert_int_equal(run_shell(fixture, "truncate -s 1T /etc/passwd", "0").status, 0);
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "agent" }), SPAWN_STAGE_USER, ENOENT);
}

static void environment(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        char *argv[] = { (char *) "/usr/bin/env", NULL };
        char *given[] = { (char *) "A=1", (char *) "B=", (char *) "HOME=/x", NULL };
        SpawnPlan plan = { .argv = argv, .environment = given };
        assert_string_equal(run_plan(fixture, plan).output, "A=1\nB=\nHOME=/x\n");

        /* In the order of names, not of entries: '.' is before '='. */
        char *other[] = { (char *) "A=1", (char *) "HOME.=2", (char *) "USE=3", (char *) "X=4", NULL };
        plan = (SpawnPlan){ .argv = argv, .environment = other, .set_home = true, .set_user = true };
        assert_string_equal(run_plan(fixture, plan).output, "A=1\nHOME=/home/agent\nHOME.=2\nUSE=3\nUSER=agent\nX=4\n");
        plan = (SpawnPlan){ .argv = argv, .environment = no_environment, .set_user = true };
        assert_string_equal(run_plan(fixture, plan).output, "USER=agent\n");
}

static void no_signal_is_ignored_or_blocked(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        /* libc keeps its own from being changed, and who has started the keeper may have ignored them. */
        const struct {
                void (*handler)(int);
                unsigned long rest[3];
        } ignored = { .handler = SIG_IGN };
        for (int i = 32; i < 34; i++)
                assert_int_equal(syscall(SYS_rt_sigaction, i, &ignored, NULL, sizeof(uint64_t)), 0);
        assert_string_equal(run_shell(fixture, "grep -E 'Sig(Ign|Blk)' /proc/self/status", "agent").output,
                            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void open_files_are_limited(void **state) {
        Fixture *fixture = *state;
        fixture->config.max_open_files = 99;
        build(fixture);
        assert_prints(fixture, "ulimit -n; ulimit -Hn", "99\n99\n");
}

static void terminal(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        _cleanup_close_ int master = -1, slave = -1;
        assert_int_equal(sandbox_open_terminal(fixture->sandbox, 24, 80, &master, &slave, NULL), 0);
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        const char *script = "stty size; tty; stat -c '%U %a' $(tty); trap 'stty size; exit 7' WINCH; echo ready;"
                             "while :; do sleep 0.01; done";
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) script, NULL };
        SpawnPlan plan = {
                .group = group,
                .argv = argv,
                .stdin_fd = slave,
                .stdout_fd = slave,
                .stderr_fd = slave,
                .terminal = true,
        };
        SpawnFailure failure;
        pid_t pid = start(fixture, &plan, -1, &failure);
        assert_int_equal(failure.stage, 0);
        slave = fd_close(slave);

        char output[1024] = "";
        size_t len = 0;
        bool is_resized = false;
        for (;;) {
                struct pollfd poll_fd = { .fd = master, .events = POLLIN };
                assert_int_equal(poll(&poll_fd, 1, (int) (PATIENCE / NSEC_PER_MSEC)), 1);
                ssize_t n = read(master, output + len, sizeof(output) - 1 - len);
                if (n <= 0)
                        break;
                len += (size_t) n;
                if (!is_resized && strstr(output, "ready")) {
                        assert_int_equal(ioctl(master, TIOCSWINSZ, &(struct winsize){ .ws_row = 5, .ws_col = 6 }), 0);
                        is_resized = true;
                }
        }
        assert_string_equal(output, "24 80\r\n/dev/pts/0\r\nagent 620\r\nready\r\n5 6\r\n");
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WEXITSTATUS(status), 7);
}

/* A tree that leaves its session, its parent and its senses. */
#define DAEMONS                                                                                                        \
        "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000 & wait' & ) & sleep 0.05; echo "     \
        "ready;"                                                                                                       \
        "sleep 1000"

static void kill_reaches_the_whole_tree(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        _cleanup_(exec_group_freep) ExecGroup *other = new_group(fixture);
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) DAEMONS, NULL };
        char *sleep_argv[] = { (char *) "sleep", (char *) "1000", NULL };
        int pair[2];
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        SpawnPlan plan = { .argv = argv, .group = group }, other_plan = { .argv = sleep_argv, .group = other };
        SpawnFailure failure;
        pid_t other_pid = start(fixture, &other_plan, STDERR_FILENO, &failure);
        pid_t pid = start(fixture, &plan, pair[1], &failure);
        close(pair[1]);
        char bytes[16];
        assert_int_equal(read(pair[0], bytes, sizeof(bytes)), 6);

        assert_true(exec_group_is_populated(group));
        assert_int_equal(exec_group_signal(group, SIGTERM), 0);
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        assert_int_equal(exec_group_kill(group), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        wait_until_empty(group);
        /* Nobody holds the pipe, whatever a shell said before it died. */
        do
                assert_int_equal(
                        poll(&(struct pollfd){ .fd = pair[0], .events = POLLIN }, 1, (int) (PATIENCE / NSEC_PER_MSEC)),
                        1);
        while (read(pair[0], bytes, sizeof(bytes)) > 0);
        close(pair[0]);

        assert_true(exec_group_is_populated(other));
        assert_int_equal(exec_group_signal(other, SIGTERM), 0);
        int status;
        assert_int_equal(waitpid(other_pid, &status, 0), other_pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGTERM);
        wait_until_empty(other);
}

static void left_over_processes_run_on_until_the_end(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) "sleep 1000 &", NULL };
        SpawnPlan plan = { .argv = argv, .group = group };
        SpawnFailure failure;
        pid_t pid = start(fixture, &plan, STDERR_FILENO, &failure);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(exec_group_is_populated(group));
}

static void destroy_ends_what_was_not_waited_for(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        char *argv[] = { (char *) "sh", (char *) "-c", (char *) DAEMONS, NULL };
        for (int i = 0; i < 5; i++) {
                _cleanup_(exec_group_freep) ExecGroup *group = new_group(fixture);
                SpawnPlan plan = { .argv = argv, .group = group };
                SpawnFailure failure;
                (void) start(fixture, &plan, STDERR_FILENO, &failure);
        }
        /* tear_down() sees that nothing is left. */
}

/* ---- Without root ---- */

static void view_without_root(void **state) {
        Fixture *fixture = *state;
        build(fixture);
        assert_prints(fixture, "id -u; id -g; id -un; stat -c %U / ~ /workspace; touch /workspace/a; ls /workspace",
                      "1000\n1000\nagent\nagent\nagent\nagent\na\n");
        char *argv[] = { (char *) "true", NULL };
        assert_failure(fixture, ((SpawnPlan){ .argv = argv, .user = "root" }), SPAWN_STAGE_USER, EINVAL);
        assert_int_equal(sandbox_set_frozen(fixture->sandbox, true, NULL), -EOPNOTSUPP);
        assert_prints(fixture, "cat /proc/keys; grep -c ' /proc/sys proc ro,' /proc/mounts", "1\n");
}

/* ---- How long it takes: told, not asserted ---- */

static void times(void **state) {
        Fixture *fixture = *state;
        enum { N = 50 };
        uint64_t first = clock_monotonic_ns();
        build(fixture);
        first = clock_monotonic_ns() - first;

        char *argv[] = { (char *) "/bin/true", NULL };
        uint64_t spawns = clock_monotonic_ns();
        for (int i = 0; i < N; i++)
                (void) run_plan(fixture, (SpawnPlan){ .argv = argv });
        spawns = clock_monotonic_ns() - spawns;

        uint64_t builds = 0, ends = 0;
        for (int i = 0; i < N; i++) {
                uint64_t start_time = clock_monotonic_ns();
                fixture->sandbox = sandbox_destroy(fixture->sandbox);
                uint64_t end_time = clock_monotonic_ns();
                ends += end_time - start_time;
                build(fixture);
                builds += clock_monotonic_ns() - end_time;
        }
        print_message("first build %u us, later ones %u us, end %u us, spawn and wait %u us\n",
                      (unsigned) (first / NSEC_PER_USEC), (unsigned) (builds / N / NSEC_PER_USEC),
                      (unsigned) (ends / N / NSEC_PER_USEC), (unsigned) (spawns / N / NSEC_PER_USEC));
}

#define unit(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static int run_as_root(void) {
        const struct CMUnitTest tests[] = {
                unit(build_and_destroy_leave_nothing),
                unit(root_is_kept),
                unit(changes_to_the_image_are_kept_and_nobody_elses),
                unit(image_is_made_once),
                unit(workspace_in_the_home_folder),
                unit(half_made_root_is_made_anew),
                unit(view_from_inside),
                unit(kernel_files_are_restricted),
                unit(what_is_in_memory_is_one_file_system_in_parts),
                unit(machine_and_boot_have_ids_of_their_own),
                unit(processes_have_no_privileges),
                unit(read_only_root),
                unit(limited_tmp),
                unit(links_in_a_kept_root_lead_nowhere),
                unit(failed_build_leaves_nothing),
                unit(end_of_init_is_the_end),
                unit(end_of_the_keeper_is_the_end),
                unit(freezes_and_thaws),
                unit(usage),
                unit(exit_codes_and_signals),
                unit(programs_that_cannot_be_executed),
                unit(working_directory),
                unit(users),
                unit(hostile_user_files),
                unit(environment),
                unit(no_signal_is_ignored_or_blocked),
                unit(open_files_are_limited),
                unit(terminal),
                unit(kill_reaches_the_whole_tree),
                unit(left_over_processes_run_on_until_the_end),
                unit(destroy_ends_what_was_not_waited_for),
                unit(times),
        };
        return cmocka_run_group_tests_name("as root", tests, set_up_images, tear_down_images);
}

static int run_without_root(void) {
        const struct CMUnitTest tests[] = {
                unit(view_without_root),
                unit(build_and_destroy_leave_nothing),
                unit(root_is_kept),
                unit(image_is_made_once),
                unit(limited_tmp),
                unit(links_in_a_kept_root_lead_nowhere),
                unit(failed_build_leaves_nothing),
                unit(end_of_init_is_the_end),
                unit(end_of_the_keeper_is_the_end),
                unit(exit_codes_and_signals),
                unit(programs_that_cannot_be_executed),
                unit(environment),
                unit(no_signal_is_ignored_or_blocked),
                unit(open_files_are_limited),
                unit(terminal),
                unit(kill_reaches_the_whole_tree),
                unit(destroy_ends_what_was_not_waited_for),
                unit(times),
        };
        return cmocka_run_group_tests_name("without root", tests, set_up_images, tear_down_images);
}

int main(void) {
        (void) signal(SIGPIPE, SIG_IGN);
        if (geteuid() != 0)
                return run_without_root();

        (void) fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                bool is_nobody = setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0;
                exit(is_nobody ? run_without_root() : 1);
        }
        int status = 1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return 1;
        int failed = run_as_root();
        return failed > 0 || status != 0;
}
