/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: sandbox_spawn(): how a process comes into a sandbox and what it gives up before it executes its
 * program. What does not: the sandbox (sandbox.c), groups of processes (exec-group.c), users (user.c).
 *
 * The child is a copy of the keeper, made without sharing memory: it may do as it likes with it, and nobody inside can
 * look at it, for it is not dumpable until it has executed the program. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/limit-groups.h"
#include "keeper/box/memory-filter.h"
#include "keeper/box/privileges.h"
#include "keeper/box/user.h"
#include "keeper/execs/starter.h"
#include "model/environment.h"

#define ERROR_FD 3      /* in the child, once it has its own descriptors */
#define FD_SAFE_FROM 16 /* above the numbers that the child gives out */
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static const int namespace_flags[N_NAMESPACES] = {
        [NAMESPACE_USER] = CLONE_NEWUSER, [NAMESPACE_MOUNT] = CLONE_NEWNS, [NAMESPACE_NET] = CLONE_NEWNET,
        [NAMESPACE_IPC] = CLONE_NEWIPC,   [NAMESPACE_UTS] = CLONE_NEWUTS,  [NAMESPACE_PID] = CLONE_NEWPID,
};

/* ---- In the child ---- */

static _Noreturn void child_fail(int error_fd, SpawnStage stage, int r) {
        SpawnFailure failure = { .stage = stage, .error = -r };
        (void) !write(error_fd, &failure, sizeof(failure));
        _exit(127);
}

/* Enters all namespaces but for that of pids, which is for children only. */
static int enter(const KeptSandbox *sandbox) {
        for (int i = 0; i < N_NAMESPACES; i++)
                if (i != NAMESPACE_PID && setns(sandbox->namespaces[i], namespace_flags[i]) < 0)
                        return -errno;
        return 0;
}

/* The exec's own cgroup, which it is in by now, becomes the root of what it sees. */
static int hide_cgroups(void) {
        return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

/* Gives the child the plan's three descriptors and @error_fd, and no others. */
static int arrange_fds(const SpawnPlan *plan, int error_fd) {
        const int wanted[] = { plan->stdin_fd, plan->stdout_fd, plan->stderr_fd, error_fd };
        int safe[4];
        for (int i = 0; i < 4; i++) {
                safe[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, FD_SAFE_FROM);
                if (safe[i] < 0)
                        return -errno;
        }
        for (int i = 0; i < 4; i++)
                if (dup3(safe[i], i, i == ERROR_FD ? O_CLOEXEC : 0) < 0)
                        return -errno;
        return close_range(ERROR_FD + 1, UINT_MAX, 0) < 0 ? -errno : 0;
}

static int take_terminal(const SpawnPlan *plan, const User *user) {
        if (!plan->terminal)
                return 0;
        if (ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
                return -errno;
        return fchown(STDIN_FILENO, user->uid, (gid_t) -1) < 0 ? -errno : 0;
}

static int become(const KeeperConfig *config, const User *user) {
        /* Without root nobody may set groups, and there is one user only. */
        if (config->uid_count > 1 && setgroups(user->n_groups, user->groups) < 0)
                return -errno;
        if (setresgid(user->gid, user->gid, user->gid) < 0 || setresuid(user->uid, user->uid, user->uid) < 0)
                return -errno;
        return 0;
}

static int limit_files(const KeeperConfig *config) {
        struct rlimit limit;
        if (config->max_open_files == 0)
                return 0;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return -errno;
        if (config->max_open_files < limit.rlim_max)
                limit.rlim_max = config->max_open_files;
        limit.rlim_cur = limit.rlim_max;
        return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? -errno : 0;
}

/* Where no controller counts processes, the kernel does: those of one user in one user namespace. PID 1 is not
 * meant. */
static int limit_processes(const KeeperConfig *config, const User *user) {
        struct rlimit limit;
        if (config->max_processes == 0 || config->controllers[CONTROLLER_PIDS])
                return 0;
        if (getrlimit(RLIMIT_NPROC, &limit) < 0)
                return -errno;
        rlim_t wanted = (rlim_t) config->max_processes + (user->uid == (config->uid_count > 1 ? 0 : AGENT_UID));
        if (wanted < limit.rlim_max)
                limit.rlim_max = wanted;
        limit.rlim_cur = limit.rlim_max;
        return setrlimit(RLIMIT_NPROC, &limit) < 0 ? -errno : 0;
}

/* Leaves to others what the user who made the sandbox may have: the kernel counts signals that wait, timers, message
 * queues and locked memory inside as that user's, too. With root that user has nothing else. Nobody inside gets ahead
 * of the host's processes, whatever the daemon's user may. */
static int limit_numbers(const KeeperConfig *config) {
        static const struct {
                int limit;
                rlim_t share, share_rootless; /* 0: of which there is none inside */
        } limits[] = {
                { RLIMIT_SIGPENDING, 2, 8 }, { RLIMIT_MSGQUEUE, 2, 4 }, { RLIMIT_MEMLOCK, 1, 4 },
                { RLIMIT_RTPRIO, 0, 0 },     { RLIMIT_NICE, 0, 0 },
        };
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
                rlim_t share = keeper_config_is_rootless(config) ? limits[i].share_rootless : limits[i].share;
                struct rlimit limit;
                if (share == 1)
                        continue;
                if (getrlimit(limits[i].limit, &limit) < 0)
                        return -errno;
                if (limit.rlim_max == 0 || (share > 0 && limit.rlim_cur == RLIM_INFINITY))
                        continue;
                limit.rlim_cur = limit.rlim_max = share > 0 ? limit.rlim_cur / share : 0;
                if (setrlimit(limits[i].limit, &limit) < 0)
                        return -errno;
        }
        return 0;
}

/* Has all writing to files fail with EFBIG, for good: the limit cannot be raised again without privileges. */
static int forbid_growth(void) {
        const struct rlimit nothing = {};
        if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
                return -errno;
        return setrlimit(RLIMIT_FSIZE, &nothing) < 0 ? -errno : 0;
}

static const char *environment_get(char *const *environment, const char *name) {
        size_t len = strlen(name);
        for (; *environment; environment++)
                if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
                        return *environment + len + 1;
        return NULL;
}

/* Whether the name of the variable @entry is before @name, byte by byte. */
static bool name_is_before(const char *entry, const char *name) {
        size_t len = strcspn(entry, "="), name_len = strlen(name);
        int order = memcmp(entry, name, len < name_len ? len : name_len);
        return order != 0 ? order < 0 : len < name_len;
}

/* Adds a variable in its place to @environment, which has room for it. */
static void environment_add(char **environment, const char *name, const char *value) {
        while (*environment && name_is_before(*environment, name))
                environment++;
        char *entry;
        if (asprintf(&entry, "%s=%s", name, value) < 0)
                abort();
        while (entry) {
                char *next = *environment;
                *environment++ = entry;
                entry = next;
        }
}

/* The plan's environment with the HOME and USER that only the inside knows. Freed by the end of the process. */
static char *const *complete_environment(const SpawnPlan *plan, const User *user) {
        size_t n = 0;
        while (plan->environment[n])
                n++;
        char **environment = new0(char *, n + 3);
        memcpy(environment, plan->environment, n * sizeof(char *));
        if (plan->set_home)
                environment_add(environment, "HOME", user->home);
        if (plan->set_user)
                environment_add(environment, "USER", user->name);
        return environment;
}

/* Executes @path; returns only with an error. A program that is there, but whose interpreter is not, is not missing. */
static int execute_file(const char *path, char *const *argv, char *const *environment) {
        (void) execve(path, argv, environment);
        if (errno == ENOENT && faccessat(AT_FDCWD, path, F_OK, 0) == 0)
                return -ENOEXEC;
        return -errno;
}

/* Searches PATH as execvp() does, but for running scripts without a first line. That a program was found and may not be
 * executed is told rather than that the next place has none. */
static int execute(char *const *argv, char *const *environment) {
        if (strchr(argv[0], '/'))
                return execute_file(argv[0], argv, environment);
        if (!*argv[0])
                return -ENOENT;

        const char *at = environment_get(environment, "PATH");
        int result = -ENOENT;
        for (at = at ? at : DEFAULT_PATH;;) {
                size_t len = strcspn(at, ":");
                char path[PATH_MAX];
                if ((size_t) snprintf(path, sizeof(path), "%.*s%s%s", (int) len, at, len > 0 ? "/" : "", argv[0]) <
                    sizeof(path)) {
                        int r = execute_file(path, argv, environment);
                        if (r == -EACCES)
                                result = r;
                        else if (r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -ENAMETOOLONG && r != -ESTALE)
                                return r;
                }
                if (at[len] == '\0')
                        return result;
                at += len + 1;
        }
}

/* Where the keeper has a filter, so has its child. */
static const Filter *filter_of(const KeeperConfig *config) {
        bool has_keepers = config->keeper_filter.instructions && config->entered_filter.instructions;
        return has_keepers ? &config->entered_filter : &config->filter;
}

User *spawned_give_up(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd) {
        (void) umask(022);
        int r = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setsid() < 0 ? -errno : 0;
        /* Without cgroups those that it leaves behind are found as its children. */
        if (r >= 0 && plan->group->cgroup < 0 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
                r = -errno;
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);

        User *user;
        r = user_find(plan->user, &user);
        if (r >= 0)
                r = take_terminal(plan, user);
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_USER, r);
        uint64_t kept = user->uid == 0 ? sandbox->config->capabilities : 0;
        r = privileges_bound(kept);
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        r = become(sandbox->config, user);
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_USER, r);
        r = limit_files(sandbox->config);
        if (r >= 0)
                r = limit_processes(sandbox->config, user);
        if (r >= 0)
                r = limit_numbers(sandbox->config);
        if (r >= 0)
                r = privileges_drop(kept);
        /* Becoming another user has made it what fs.suid_dumpable says. */
        if (r >= 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                r = -errno;
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        signals_reset();
        r = keeper_config_limits_memory(sandbox->config) ? memory_filter_install() : 0;
        if (r >= 0)
                r = filter_install(filter_of(sandbox->config));
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        return user;
}

_Noreturn void spawned_execute(const SpawnPlan *plan, const User *user, int error_fd) {
        if (chdir(plan->working_directory) < 0)
                child_fail(error_fd, SPAWN_STAGE_CHDIR, -errno);
        char *const *environment = complete_environment(plan, user);
        if (arguments_check_size(plan->argv, environment, NULL) < 0) /* HOME and USER count, too */
                child_fail(error_fd, SPAWN_STAGE_EXEC, -E2BIG);
        int r = plan->files_must_not_grow ? forbid_growth() : 0;
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        sigset_t none;
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        child_fail(error_fd, SPAWN_STAGE_EXEC, execute(plan->argv, environment));
}

/* The end of every child. */
static _Noreturn void child_run(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd) {
        if (plan->run) {
                plan->run(sandbox, plan, error_fd);
                _exit(0);
        }
        int r = arrange_fds(plan, error_fd);
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        const User *user = spawned_give_up(sandbox, plan, ERROR_FD);
        spawned_execute(plan, user, ERROR_FD);
}

static _Noreturn void second_child_run(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd) {
        int r = limit_groups_enter(sandbox, plan->group);
        if (r >= 0)
                r = hide_cgroups();
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        child_run(sandbox, plan, error_fd);
}

/* Where the keeper's children are not born in the sandbox: the first child enters it and makes the second, which is the
 * keeper's child as well, and tells its pid through @pid_fd. The first is in no cgroup of the sandbox: there it would
 * count as a process. */
static _Noreturn void first_child_run(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd, int pid_fd) {
        (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        int r = enter(sandbox);
        if (r >= 0 && setns(sandbox->namespaces[NAMESPACE_PID], CLONE_NEWPID) < 0)
                r = -errno;
        if (r >= 0)
                r = process_clone(CLONE_PARENT, plan->group->cgroup, NULL);
        if (r == 0)
                second_child_run(sandbox, plan, error_fd);
        (void) !write(pid_fd, &r, sizeof(r));
        _exit(0);
}

/* ---- In the keeper ---- */

static pid_t spawn_direct(KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd, int *ret_pidfd) {
        pid_t pid = process_clone(0, plan->group->cgroup, ret_pidfd);
        if (pid != 0)
                return pid;
        (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        int r = limit_groups_enter(sandbox, plan->group);
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_OTHER, r);
        r = enter(sandbox);
        if (r >= 0)
                r = hide_cgroups();
        if (r < 0)
                child_fail(error_fd, SPAWN_STAGE_ENTER, r);
        child_run(sandbox, plan, error_fd);
}

static pid_t spawn_by_two(KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd, int *ret_pidfd) {
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
                return -errno;
        _cleanup_close_ int read_fd = pair[0], write_fd = pair[1];
        pid_t first = process_clone(0, -1, NULL);
        if (first < 0)
                return first;
        if (first == 0)
                first_child_run(sandbox, plan, error_fd, write_fd);

        fd_closep(&write_fd);
        pid_t pid = -ECHILD;
        ssize_t n = read(read_fd, &pid, sizeof(pid));
        while (waitpid(first, NULL, 0) < 0 && errno == EINTR)
                ;
        if (n != (ssize_t) sizeof(pid))
                return -ECHILD;
        if (pid < 0)
                return pid;
        int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0) {
                int r = -errno;
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                return r;
        }
        *ret_pidfd = pidfd;
        return pid;
}

pid_t sandbox_spawn(KeptSandbox *sandbox, const SpawnPlan *plan, int *ret_pidfd, int *ret_error_fd, HutchError *err) {
        int pair[2], pidfd = -1;
        if (plan->group->starter) {
                pid_t waiting = starter_start(plan->group->starter, plan, ret_pidfd, ret_error_fd);
                if (waiting >= 0) {
                        plan->group->starter = NULL;
                        return waiting;
                }
                plan->group->starter = starter_free(plan->group->starter);
        }
        if (pipe2(pair, O_CLOEXEC) < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a pipe: %s", strerror(errno));
        _cleanup_close_ int read_fd = pair[0], write_fd = pair[1];
        if (fcntl(read_fd, F_SETFL, O_NONBLOCK) < 0)
                return error_set(err, -errno, "INTERNAL", "cannot set up a pipe: %s", strerror(errno));

        pid_t pid = sandbox->children_are_here ? spawn_direct(sandbox, plan, write_fd, &pidfd)
                                               : spawn_by_two(sandbox, plan, write_fd, &pidfd);
        if (pid < 0) {
                /* A pid namespace without its PID 1 says ENOMEM. */
                struct pollfd init = { .fd = sandbox->init_pidfd, .events = POLLIN };
                if (poll(&init, 1, 0) > 0)
                        return error_set(err, -ESHUTDOWN, "KEEPER_UNAVAILABLE", "the sandbox has ended");
                bool is_exhausted = pid == -ENOMEM || pid == -EAGAIN || pid == -EMFILE || pid == -ENFILE;
                return error_set(err, pid, is_exhausted ? "HOST_EXHAUSTED" : "INTERNAL",
                                 "cannot start a process in the sandbox: %s", strerror(-pid));
        }
        plan->group->main_pid = pid;
        *ret_pidfd = pidfd;
        *ret_error_fd = TAKE_FD(read_fd);
        return pid;
}
