/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the life of one exec, from its files to its end. What does not: how processes get into the sandbox
 * (sandbox.h), who asks for execs and is told of them (keeper.c). */

#include "keeper/execs/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/utf8.h"
#include "keeper/execs/input.h"
#include "keeper/execs/pump.h"
#include "keeper/loop.h"
#include "model/ids.h"

#define POLL_INTERVAL (20 * NSEC_PER_MSEC) /* between questions whether a group is empty that cannot be waited for */
#define QUIET_TIME (2 * NSEC_PER_MSEC)     /* that the start of an exec is not told, where nobody is in a hurry */

typedef enum Stage {
        STAGE_STARTING,   /* until the error pipe tells */
        STAGE_RUNNING,    /* until the main process ends */
        STAGE_EMPTYING,   /* until nothing is left of an exec that is killed */
        STAGE_COLLECTING, /* until its output ended */
        STAGE_ENDED,
} Stage;

struct KeptExec {
        const ExecOwner *owner;
        ExecLink link;
        char *id;
        Stage stage;

        pid_t pid;
        int pidfd, error_fd;
        ExecGroup *group;
        Watch *pidfd_watch, *error_watch, *group_watch;
        Alarm *alarm;       /* what the stage waits for at most */
        Alarm *group_alarm; /* where there is no descriptor for it */
        bool quietly;       /* see ExecPlan */
        Alarm *tell_alarm;  /* it has started, which is told then */
        Pump *out, *err;
        int n_flowing; /* pumps that have not ended */
        Input *input;  /* NULL: stdin is empty */
        int terminal;  /* -1: none */

        bool takes_input, has_terminal;

        /* What was given with it for stdin. */
        InputItem first_input;
        void *first_bytes;

        /* Of the plan, for people; NULL once it was started. */
        char *program, *directory, *user;

        uint64_t timeout, kill_grace;
        ExecEndCause kill_cause; /* NONE: nobody wants it to end */
        uint64_t kill_at;        /* monotonic; UINT64_MAX: the KILL was sent */

        /* ExecStatus. */
        uint64_t start_time, start_monotonic, end_time;
        ExecEndCause cause;
        int wait_status;
        Failure failure; /* reason UNSPECIFIED: none */
        bool program_not_found;
        uint64_t cpu_time, peak_memory, memory_kills;
        uint64_t process_hits; /* of the sandbox: before it, and at its end since then */
        const char *disk_limit;
        uint64_t out_bytes, err_bytes, out_dropped, err_dropped;
};

/* As much of a text for people as fits into @max bytes. */
static char *copy_text(const char *text, size_t max) {
        return xstrndup(text, utf8_prefix(text, max));
}

void failure_set(Failure *failure, const HutchError *err) {
        Reason reason = reason_from_name(err->reason);

        *failure = (Failure){
                .error = err->error,
                .reason = reason != REASON_UNSPECIFIED ? reason : REASON_INTERNAL,
                .message = copy_text(error_message(err), FAILURE_MESSAGE_MAX),
        };
}

void failure_clear(Failure *failure) {
        free(failure->message);
        *failure = (Failure){};
}

/* The reason of a failure to start that has nothing to do with files. */
static Reason start_reason(int error) {
        return error == EAGAIN || error == ENOSPC ? REASON_HOST_EXHAUSTED : reason_from_errno(-error);
}

static void first_input_taken(InputItem *item) {
        (void) item; /* it is part of the exec */
}

/* ---- Its end ---- */

/* Whether the main process has ended, though that was not looked at yet. */
static bool main_has_ended(const KeptExec *exec) {
        struct pollfd poll_fd = { .fd = exec->pidfd, .events = POLLIN };

        return exec->pidfd >= 0 && poll(&poll_fd, 1, 0) > 0;
}

/* What did it. One that was still there to be told to end was ended, also when it took the time to exit in order. */
static ExecEndCause end_cause(const KeptExec *exec) {
        if (exec->failure.reason != REASON_UNSPECIFIED)
                return EXEC_END_CAUSE_NOT_STARTED;

        return exec->kill_cause != EXEC_END_CAUSE_NONE ? exec->kill_cause : EXEC_END_CAUSE_EXITED;
}

static void forget_plan(KeptExec *exec) {
        exec->program = (free(exec->program), NULL);
        exec->directory = (free(exec->directory), NULL);
        exec->user = (free(exec->user), NULL);
}

static void release_processes(KeptExec *exec) {
        exec->pidfd_watch = watch_free(exec->pidfd_watch);
        exec->pidfd = fd_close(exec->pidfd);
        exec->error_watch = watch_free(exec->error_watch);
        exec->error_fd = fd_close(exec->error_fd);
        exec->group_watch = watch_free(exec->group_watch);
        exec->group_alarm = alarm_free(exec->group_alarm);
        exec->tell_alarm = alarm_free(exec->tell_alarm);
        exec->alarm = alarm_free(exec->alarm);
}

static void take_totals(KeptExec *exec) {
        if (exec->out) {
                exec->out_bytes = pump_total(exec->out);
                exec->out_dropped = pump_dropped(exec->out);
        }
        if (exec->err) {
                exec->err_bytes = pump_total(exec->err);
                exec->err_dropped = pump_dropped(exec->err);
        }
}

static void exec_finish(KeptExec *exec) {
        ExecGroup *group = TAKE_PTR(exec->group);

        exec->stage = STAGE_ENDED;
        release_processes(exec);
        if (exec->out)
                pump_catch_up(exec->out);
        if (exec->err)
                pump_catch_up(exec->err);
        take_totals(exec);
        exec->out = pump_free(exec->out);
        exec->err = pump_free(exec->err);
        exec->input = input_free(exec->input);
        exec->terminal = -1;
        exec->first_bytes = (free(exec->first_bytes), NULL);
        forget_plan(exec);

        if (group) {
                uint64_t cpu = exec_group_cpu_time(group), peak = exec_group_peak_memory(group);

                exec->cpu_time = cpu > 0 ? cpu : exec->cpu_time;
                exec->peak_memory = peak > 0 ? peak : exec->peak_memory;
                exec->memory_kills += exec_group_memory_kills(group);
                exec->process_hits = sandbox_process_limit_hits(exec->owner->sandbox) - exec->process_hits;
                exec->owner->left_over(group, exec->owner->user);
        }
        exec->owner->changed(exec, exec->owner->user);
}

static void on_source_ended(void *user) {
        KeptExec *exec = user;

        exec->n_flowing--;
        if (exec->stage == STAGE_COLLECTING && exec->n_flowing == 0)
                exec_finish(exec);
}

static void exec_collect(KeptExec *exec) {
        exec->stage = STAGE_COLLECTING;
        if (exec->n_flowing == 0)
                exec_finish(exec);
        else
                alarm_set(exec->alarm, EXEC_COLLECT_TIMEOUT);
}

static void on_group_changed(void *user) {
        KeptExec *exec = user;

        if (!exec_group_is_populated(exec->group))
                exec_collect(exec);
        else if (exec->group_alarm)
                alarm_set(exec->group_alarm, POLL_INTERVAL);
}

/* Waits until nothing of the exec is left; its KILL is under way or will come. */
static void exec_empty(KeptExec *exec) {
        int fd = exec_group_events_fd(exec->group);

        exec->stage = STAGE_EMPTYING;
        if (fd >= 0)
                exec->group_watch = watch_new(exec->owner->loop, fd, UV_PRIORITIZED, on_group_changed, exec);
        if (!exec->group_watch)
                exec->group_alarm = alarm_new(exec->owner->loop, on_group_changed, exec);
        on_group_changed(exec);
}

static void main_ended(KeptExec *exec, int status, const struct rusage *usage) {
        exec->wait_status = status;
        exec->end_time = clock_realtime_ns();
        exec->cpu_time = (uint64_t) (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * NSEC_PER_SEC +
                         (uint64_t) (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * NSEC_PER_USEC;
        exec->peak_memory = (uint64_t) usage->ru_maxrss * 1024;
        exec->cause = end_cause(exec);
        exec->pidfd_watch = watch_free(exec->pidfd_watch);
        exec->pidfd = fd_close(exec->pidfd);

        if (exec->kill_cause != EXEC_END_CAUSE_NONE || exec->failure.reason != REASON_UNSPECIFIED)
                exec_empty(exec);
        else
                exec_collect(exec);
}

/* ---- Its start ---- */

/* What went wrong inside, in words and as a reason. */
static void explain(const KeptExec *exec, const SpawnFailure *failure, HutchError *err) {
        int error = failure->error;

        switch (failure->stage) {
        case SPAWN_STAGE_ENTER:
                reason_set(err, -error, REASON_SANDBOX_WRONG_STATE, "the sandbox is ending: %s", strerror(error));
                return;
        case SPAWN_STAGE_USER:
                if (error == ENOENT)
                        reason_set(err, -error, REASON_USER_NOT_FOUND, "the sandbox has no user or group “%s”",
                                   exec->user);
                else if (error == EINVAL)
                        reason_set(err, -error, start_reason(error),
                                   "the sandbox has no uid or gid for user “%s”: where hutchd is an ordinary user's, "
                                   "'hutch doctor' tells how it gets more than one",
                                   exec->user);
                else
                        reason_set(err, -error, start_reason(error), "cannot become user “%s”: %s", exec->user,
                                   strerror(error));
                return;
        case SPAWN_STAGE_CHDIR:
                reason_set(err, -error, start_reason(error), "cannot enter the working directory %s: %s",
                           exec->directory, strerror(error));
                return;
        case SPAWN_STAGE_EXEC:
                /* No program of this machine's: found, and not to be executed. */
                reason_set(err, -error,
                           error == ENOEXEC || error == EINVAL || error == ELIBBAD ? REASON_FILE_PERMISSION
                                                                                   : start_reason(error),
                           "cannot execute %s: %s", exec->program, strerror(error));
                return;
        default:
                reason_set(err, -error, start_reason(error), "cannot prepare the process: %s", strerror(error));
        }
}

static void exec_fail(KeptExec *exec, const HutchError *err) {
        if (exec->failure.reason == REASON_UNSPECIFIED)
                failure_set(&exec->failure, err);
        exec->error_watch = watch_free(exec->error_watch);
        exec->error_fd = fd_close(exec->error_fd);
}

static uint64_t elapsed(const KeptExec *exec) {
        return clock_monotonic_ns() - exec->start_monotonic;
}

/* What of the timeout is left. */
static uint64_t time_left(const KeptExec *exec) {
        uint64_t gone = elapsed(exec);

        if (exec->timeout == UINT64_MAX)
                return UINT64_MAX;
        return exec->timeout > gone ? exec->timeout - gone : 0;
}

static void on_tell_alarm(void *user) {
        KeptExec *exec = user;

        exec->tell_alarm = alarm_free(exec->tell_alarm);
        exec->owner->changed(exec, exec->owner->user);
}

static void exec_started(KeptExec *exec) {
        exec->error_watch = watch_free(exec->error_watch);
        exec->error_fd = fd_close(exec->error_fd);
        forget_plan(exec);
        exec->stage = STAGE_RUNNING;
        if (exec->kill_cause == EXEC_END_CAUSE_NONE)
                alarm_set(exec->alarm, time_left(exec));
        if (exec->quietly) {
                exec->tell_alarm = alarm_new(exec->owner->loop, on_tell_alarm, exec);
                alarm_set(exec->tell_alarm, QUIET_TIME);
        } else {
                exec->owner->changed(exec, exec->owner->user);
        }
}

/* Looks whether the program was started. */
static void on_error_pipe(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        KeptExec *exec = user;
        SpawnFailure failure;
        ssize_t n;

        do
                n = read(exec->error_fd, &failure, sizeof(failure));
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return;
        if (n == 0) {
                exec_started(exec);
                return;
        }

        if (n != sizeof(failure) || failure.error <= 0)
                failure = (SpawnFailure){ .stage = SPAWN_STAGE_OTHER, .error = EIO };
        explain(exec, &failure, &err);
        exec->program_not_found = failure.stage == SPAWN_STAGE_EXEC && failure.error == ENOENT;
        exec_fail(exec, &err);
}

static void on_main_ended(void *user) {
        KeptExec *exec = user;
        struct rusage usage = {};
        int status = SIGKILL; /* when somebody else has waited for it */
        pid_t pid = wait4(exec->pid, &status, WNOHANG | __WALL, &usage);

        if (pid == 0 || (pid < 0 && errno == EINTR))
                return;

        if (exec->error_watch)
                on_error_pipe(exec);
        if (exec->error_watch)
                exec_started(exec);
        main_ended(exec, status, &usage);
}

static void on_alarm(void *user) {
        _cleanup_(error_clear) HutchError err = {};
        KeptExec *exec = user;

        if (exec->stage == STAGE_COLLECTING) {
                exec_finish(exec);
        } else if (exec->kill_cause != EXEC_END_CAUSE_NONE) {
                if (!main_has_ended(exec))
                        exec->kill_at = UINT64_MAX;
                (void) exec_group_kill(exec->group);
        } else if (exec->stage == STAGE_STARTING && time_left(exec) > 0) {
                reason_set(&err, -ETIMEDOUT, REASON_DEADLINE_EXCEEDED, "the program was not started in time");
                exec_fail(exec, &err);
                (void) exec_group_kill(exec->group);
        } else {
                kept_exec_kill(exec, EXEC_END_CAUSE_TIMED_OUT, exec->kill_grace);
        }
}

/* What a process has and what the keeper has of its stdin, stdout and stderr. -1: none. */
typedef struct Streams {
        int child[3];
        int in, out, err;
} Streams;

static void streams_clear(Streams *streams) {
        for (int i = 0; i < 3; i++)
                if (i == 0 || streams->child[i] != streams->child[0])
                        fd_close(streams->child[i]);
        fd_close(streams->in);
        fd_close(streams->out);
        fd_close(streams->err);
}

/* A pipe whose end for the keeper, @ours (0 or 1), does not block. */
static int make_pipe(int ours, int *ret_ours, int *ret_child) {
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;

        *ret_ours = fds[ours];
        *ret_child = fds[!ours];
        /* So that /dev/stdout and its kind can be opened by the user that the process becomes. */
        if (fchmod(fds[0], 0666) < 0 || fcntl(fds[ours], F_SETFL, O_NONBLOCK) < 0)
                return -errno;
        return 0;
}

static int streams_open_terminal(Streams *streams, KeptSandbox *sandbox, const ExecPlan *plan, HutchError *err) {
        int r = sandbox_open_terminal(sandbox, plan->rows, plan->columns, &streams->out, &streams->child[0], err);

        if (r < 0)
                return r;

        streams->child[1] = streams->child[2] = streams->child[0];
        streams->in = fcntl(streams->out, F_DUPFD_CLOEXEC, 0);
        return streams->in < 0 ? -errno : 0;
}

static int streams_open_pipes(Streams *streams, const ExecPlan *plan, int null) {
        int r;

        if (plan->stdin_stream || plan->input_len > 0) {
                r = make_pipe(1, &streams->in, &streams->child[0]);
                if (r < 0)
                        return r;
        } else {
                streams->child[0] = fcntl(null, F_DUPFD_CLOEXEC, 0);
                if (streams->child[0] < 0)
                        return -errno;
        }

        r = make_pipe(0, &streams->out, &streams->child[1]);
        if (r < 0)
                return r;

        return make_pipe(0, &streams->err, &streams->child[2]);
}

#define OUTPUT_NAME_SIZE (ID_LEN_MAX + sizeof(".out"))

static void output_name(const char *id, const char *suffix, char ret_name[static OUTPUT_NAME_SIZE]) {
        (void) snprintf(ret_name, OUTPUT_NAME_SIZE, "%s%s", id, suffix);
}

/* Sees to it that no exec of this id has printed anything before. */
static int check_id_is_new(int folder, const char *id, HutchError *err) {
        static const char *const suffixes[] = { ".out", ".err" };
        char name[OUTPUT_NAME_SIZE];

        for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
                output_name(id, suffixes[i], name);
                if (faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                        return reason_set(err, -EEXIST, REASON_ID_TAKEN, "an exec of this id was started before");
        }
        return 0;
}

static Pump *exec_pump(KeptExec *exec, const ExecPlan *plan, int source, const char *suffix) {
        char name[OUTPUT_NAME_SIZE];
        Pump *pump;

        output_name(plan->id, suffix, name);
        pump = pump_new(exec->owner->loop, exec->owner->budget, source, exec->owner->output_folder, name,
                        plan->output_limit, on_source_ended, exec);
        exec->n_flowing += pump != NULL;
        return pump;
}

static int exec_take_input(KeptExec *exec, const ExecPlan *plan, Streams *streams) {
        exec->takes_input = plan->stdin_stream;
        if (streams->in < 0)
                return 0;

        exec->input = input_new(exec->owner->loop, TAKE_FD(streams->in), plan->terminal);
        if (!exec->input)
                return -ENOSPC;
        if (plan->input_len == 0)
                return 0;

        exec->first_bytes = malloc(plan->input_len);
        if (!exec->first_bytes)
                return -ENOMEM;

        memcpy(exec->first_bytes, plan->input, plan->input_len);
        exec->first_input = (InputItem){
                .bytes = exec->first_bytes, .len = plan->input_len, .close = true, .taken = first_input_taken
        };
        input_send(exec->input, &exec->first_input);
        return 0;
}

static int exec_connect(KeptExec *exec, const ExecPlan *plan, Streams *streams) {
        exec->terminal = plan->terminal ? streams->out : -1;
        exec->out = exec_pump(exec, plan, TAKE_FD(streams->out), ".out");
        if (!exec->out)
                return -ENOSPC;
        if (!plan->terminal) {
                exec->err = exec_pump(exec, plan, TAKE_FD(streams->err), ".err");
                if (!exec->err)
                        return -ENOSPC;
        }
        return exec_take_input(exec, plan, streams);
}

static int exec_spawn(KeptExec *exec, const ExecPlan *plan, const Streams *streams, HutchError *err) {
        SpawnPlan spawn = {
                .group = exec->group,
                .argv = plan->argv,
                .environment = plan->environment,
                .set_home = plan->set_home,
                .set_user = plan->set_user,
                .working_directory = plan->working_directory,
                .user = plan->user,
                .stdin_fd = streams->child[0],
                .stdout_fd = streams->child[1],
                .stderr_fd = streams->child[2],
                .terminal = plan->terminal,
                .files_must_not_grow = exec->owner->files_must_not_grow,
        };
        pid_t pid;

        exec->process_hits = sandbox_process_limit_hits(exec->owner->sandbox);
        exec->start_time = clock_realtime_ns();
        exec->start_monotonic = clock_monotonic_ns();
        pid = sandbox_spawn(exec->owner->sandbox, &spawn, &exec->pidfd, &exec->error_fd, err);
        if (pid < 0)
                return (int) pid;

        exec->pid = pid;
        exec->pidfd_watch = watch_new(exec->owner->loop, exec->pidfd, UV_READABLE, on_main_ended, exec);
        exec->error_watch = watch_new(exec->owner->loop, exec->error_fd, UV_READABLE, on_error_pipe, exec);
        if (exec->pidfd_watch && exec->error_watch)
                return 0;

        (void) exec_group_kill(exec->group);
        (void) waitpid(pid, NULL, __WALL);
        return -ENOSPC;
}

/* Everything from the streams on. */
static int exec_launch(KeptExec *exec, const ExecPlan *plan, HutchError *err) {
        _cleanup_(streams_clear) Streams streams = { .child = { -1, -1, -1 }, .in = -1, .out = -1, .err = -1 };
        int r;

        r = check_id_is_new(exec->owner->output_folder, plan->id, err);
        if (r < 0)
                return r;
        r = plan->terminal ? streams_open_terminal(&streams, exec->owner->sandbox, plan, err)
                           : streams_open_pipes(&streams, plan, exec->owner->null);
        if (r < 0)
                return r;
        r = sandbox_take_group(exec->owner->sandbox, plan->id, plan->terminal ? NULL : plan->user, &exec->group, err);
        if (r < 0)
                return r;
        r = exec_connect(exec, plan, &streams);
        if (r < 0)
                return r;

        return exec_spawn(exec, plan, &streams, err);
}

/* It was not even tried inside. */
static void exec_end_unstarted(KeptExec *exec, int r, HutchError *err) {
        if (err->error == 0)
                reason_set(err, r, start_reason(-r), "cannot prepare the exec: %s", strerror(-r));
        exec_fail(exec, err);
        release_processes(exec);
        exec->n_flowing = 0;
        exec->out = pump_free(exec->out);
        exec->err = pump_free(exec->err);
        exec->input = input_free(exec->input);
        exec->terminal = -1;
        exec->first_bytes = (free(exec->first_bytes), NULL);
        exec->group = exec_group_free(exec->group);
        exec->process_hits = 0;
        exec->start_time = 0;
        exec->end_time = clock_realtime_ns();
        exec->cause = EXEC_END_CAUSE_NOT_STARTED;
        exec->stage = STAGE_ENDED;
        forget_plan(exec);
}

int kept_exec_start(const ExecOwner *owner, const ExecPlan *plan, KeptExec **ret_exec, HutchError *err) {
        _cleanup_(error_clear) HutchError failure = {};
        KeptExec *exec = new0(KeptExec, 1);
        int r;

        *exec = (KeptExec){
                .owner = owner,
                .id = xstrdup(plan->id),
                .pidfd = -1,
                .error_fd = -1,
                .terminal = -1,
                .has_terminal = plan->terminal,
                .program = copy_text(plan->argv[0], 128),
                .directory = copy_text(plan->working_directory, 128),
                .user = copy_text(plan->user, 64),
                .timeout = plan->timeout,
                .kill_grace = plan->kill_grace,
                .alarm = alarm_new(owner->loop, on_alarm, exec),
                .quietly = plan->quietly,
        };
        r = exec_launch(exec, plan, &failure);
        if (r < 0) {
                exec_end_unstarted(exec, r, &failure);
                if (r == -EEXIST && reason_from_name(failure.reason) == REASON_ID_TAKEN) {
                        kept_exec_free(exec);
                        return reason_set(err, r, REASON_ID_TAKEN, "%s", error_message(&failure));
                }
        } else {
                alarm_set(exec->alarm, exec->timeout < EXEC_START_TIMEOUT ? exec->timeout : EXEC_START_TIMEOUT);
        }

        *ret_exec = exec;
        return 0;
}

KeptExec *kept_exec_free(KeptExec *exec) {
        if (!exec)
                return NULL;

        failure_clear(&exec->failure);
        free(exec->id);
        free(exec);
        return NULL;
}

/* ---- What others ask ---- */

bool kept_exec_is_starting(const KeptExec *exec) {
        return exec->stage == STAGE_STARTING || (exec->stage != STAGE_ENDED && exec->failure.reason != 0);
}

bool kept_exec_has_ended(const KeptExec *exec) {
        return exec->stage == STAGE_ENDED;
}

const char *kept_exec_id(const KeptExec *exec) {
        return exec->id;
}

ExecLink *kept_exec_link(KeptExec *exec) {
        return &exec->link;
}

void kept_exec_status(const KeptExec *exec, ExecStatus *ret_status) {
        bool failed = exec->failure.reason != REASON_UNSPECIFIED;

        *ret_status = (ExecStatus){
                .id = exec->id,
                .start_time = failed || exec->stage == STAGE_STARTING ? 0 : exec->start_time,
                .out_bytes = exec->out ? pump_total(exec->out) : exec->out_bytes,
                .err_bytes = exec->err ? pump_total(exec->err) : exec->err_bytes,
                .ended = exec->stage == STAGE_ENDED,
                .end_time = exec->end_time,
                .cause = exec->cause,
                .wait_status = exec->wait_status,
                .failure = failed ? &exec->failure : NULL,
                .program_not_found = exec->program_not_found,
                .cpu_time = exec->cpu_time,
                .peak_memory = exec->peak_memory,
                .memory_kills = exec->memory_kills,
                .process_limit_hits = exec->process_hits,
                .disk_limit = exec->disk_limit,
                .out_dropped = exec->out_dropped,
                .err_dropped = exec->err_dropped,
        };
}

void kept_exec_kill(KeptExec *exec, ExecEndCause cause, uint64_t grace) {
        uint64_t now = clock_monotonic_ns(), kill_at;

        if (exec->stage >= STAGE_COLLECTING || (exec->kill_cause == EXEC_END_CAUSE_NONE && main_has_ended(exec)))
                return;

        if (grace == UINT64_MAX)
                grace = exec->kill_grace;
        kill_at = grace < UINT64_MAX - now ? now + grace : UINT64_MAX - 1;
        if (exec->kill_cause == EXEC_END_CAUSE_NONE) {
                exec->kill_cause = cause;
                exec->kill_at = kill_at;
                if (grace > 0)
                        (void) exec_group_signal(exec->group, SIGTERM);
        } else if (exec->kill_at == UINT64_MAX || kill_at >= exec->kill_at) {
                return;
        }

        exec->kill_at = kill_at;
        if (grace > 0)
                alarm_set(exec->alarm, grace);
        else
                on_alarm(exec);
}

void kept_exec_kill_for_memory(KeptExec *exec) {
        if (exec->stage >= STAGE_EMPTYING || main_has_ended(exec))
                return;
        exec->memory_kills = 1;
        (void) exec_group_kill(exec->group);
}

pid_t kept_exec_pid(const KeptExec *exec) {
        return exec->stage < STAGE_EMPTYING && exec->pidfd >= 0 ? exec->pid : 0;
}

void kept_exec_note_disk_limit(KeptExec *exec, const char *limit) {
        exec->disk_limit = limit;
}

void kept_exec_give_up(KeptExec *exec) {
        struct rusage usage = {};

        if (exec->stage < STAGE_EMPTYING)
                main_ended(exec, SIGKILL, &usage);
        if (exec->stage != STAGE_ENDED)
                exec_finish(exec);
}

static int no_stream(const KeptExec *exec, const char *what, HutchError *err) {
        return reason_set(err, -ENXIO, REASON_NO_SUCH_STREAM, "exec %s has no %s", exec->id, what);
}

int kept_exec_send(KeptExec *exec, InputItem *item, HutchError *err) {
        if (!exec->takes_input && exec->failure.reason == REASON_UNSPECIFIED)
                return no_stream(exec, "stdin that takes input", err);

        if (exec->input)
                input_send(exec->input, item);
        else
                item->taken(item);
        return 0;
}

int kept_exec_resize(KeptExec *exec, uint32_t rows, uint32_t columns, HutchError *err) {
        struct winsize size = {
                .ws_row = (unsigned short) (rows < UINT16_MAX ? rows : UINT16_MAX),
                .ws_col = (unsigned short) (columns < UINT16_MAX ? columns : UINT16_MAX),
        };

        if (!exec->has_terminal)
                return no_stream(exec, "terminal", err);

        if (exec->terminal >= 0)
                (void) ioctl(exec->terminal, TIOCSWINSZ, &size);
        return 0;
}

int kept_exec_signal(KeptExec *exec, uint32_t number, HutchError *err) {
        if (number < 1 || number > (uint32_t) SIGRTMAX)
                return reason_set(err, -EINVAL, REASON_FIELD_OUT_OF_RANGE, "there is no signal %u", number);

        if (exec->pidfd >= 0 && pidfd_send_signal(exec->pidfd, (int) number, NULL, 0) < 0 && errno != ESRCH)
                log_warning("a signal was not sent", LOG_STR("exec", exec->id), LOG_INT("error", errno));
        return 0;
}
