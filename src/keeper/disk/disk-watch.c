/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the two ways to keep a sandbox within its disk limits, and the process that measures. What does not:
 * counting (disk-usage.c), when to (disk-rule.c), and the killing (keeper.c). */

#include "keeper/disk/disk-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "host/project-quota.h"
#include "keeper/box/cgroup.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/disk/disk-rule.h"
#include "keeper/loop.h"

#define LOOK_INTERVAL NSEC_PER_SEC     /* with a quota, and after measuring failed */
#define FREEZE_MAX (10 * NSEC_PER_SEC) /* of what runs, while it is measured */
#define MEASURE_TIMEOUT (30 * NSEC_PER_SEC)
#define BLOCK 4096 /* with less than that left, everything is used up */
#define NICE 10
#define FD_SAFE_FROM 16

enum { FOLDER_FD = 3, REPORT_FD = 4 }; /* of the process that measures */

/* What it tells: once when a limit is hit, and at its end. */
typedef struct Report {
        DiskUsage usage;
        bool is_last;
        bool is_whole;
} Report;

struct DiskWatch {
        uv_loop_t *loop;
        const KeptSandbox *sandbox;
        const DiskWatchEvents *events;
        int folder;
        uint32_t project; /* 0: there is no quota */
        bool is_active;
        Alarm *alarm;
        DiskRule rule;
        const char *full; /* the limit that was told to be used up; with a quota */

        int cgroup;      /* of the process that measures, in the sandbox's; -1: none */
        bool has_failed; /* when it was last measured */
        bool is_frozen;  /* what runs, while it is measured */
        pid_t measurer;  /* 0: none */
        int reports;
        Watch *reports_watch;
        DiskUsage host; /* as it began */
        uint64_t began;
        bool hit_is_told;  /* of what it measures */
        bool is_measured;  /* it has told all */
        bool miss_is_told; /* that some could not be counted, once */
};

/* ---- With a quota ---- */

/* The limit of which everything is used up. */
static const char *find_full(const DiskRule *rule) {
        if (rule->limit.bytes > 0 && rule->measured.bytes + BLOCK > rule->limit.bytes)
                return "disk_bytes";
        return rule->limit.inodes > 0 && rule->measured.inodes >= rule->limit.inodes ? "disk_inodes" : NULL;
}

static void read_quota(DiskWatch *watch) {
        ProjectUsage usage;
        int r = project_quota_read(watch->folder, &usage);

        if (r < 0)
                log_warning("the quota cannot be read", LOG_STR("sandbox", watch->sandbox->config->sandbox_id),
                            LOG_STR("error", strerror(-r)));
        else
                watch->rule.measured = (DiskUsage){ .bytes = usage.bytes, .inodes = usage.inodes };
}

static void look_at_quota(DiskWatch *watch) {
        const char *before = watch->full;

        read_quota(watch);
        watch->full = find_full(&watch->rule);
        if (watch->full && watch->full != before)
                watch->events->hit(watch->full, false, watch->events->user);
}

/* ---- The process that measures ---- */

static void send_report(const DiskCount *count, bool is_last) {
        Report report = { .usage = disk_count_sum(count), .is_last = is_last, .is_whole = count->is_whole };

        (void) !write(REPORT_FD, &report, sizeof(report));
}

static void on_reached(const DiskCount *count, void *user) {
        (void) user;
        send_report(count, false);
}

/* Gives the process two descriptors beside its standard ones, and no others: the keeper's socket is not its own. */
static int arrange_fds(int folder, int reports) {
        int safe_folder = fcntl(folder, F_DUPFD_CLOEXEC, FD_SAFE_FROM);
        int safe_reports = fcntl(reports, F_DUPFD_CLOEXEC, FD_SAFE_FROM);

        if (safe_folder < 0 || safe_reports < 0 || dup3(safe_folder, FOLDER_FD, O_CLOEXEC) < 0 ||
            dup3(safe_reports, REPORT_FD, O_CLOEXEC) < 0 || close_range(REPORT_FD + 1, UINT_MAX, 0) < 0)
                return -errno;
        return 0;
}

/* Gets all capabilities over the sandbox's users, and so may read all of its files, and none on the host. It stays the
 * keeper's user, whom nobody inside can signal. The sandbox's /proc has its processes, and no others. */
static int enter(const KeptSandbox *sandbox) {
        return setns(sandbox->namespaces[NAMESPACE_USER], CLONE_NEWUSER) < 0 ||
                               setns(sandbox->namespaces[NAMESPACE_MOUNT], CLONE_NEWNS) < 0
                       ? -errno
                       : 0;
}

/* Has the time that this takes be the sandbox's own. It moves itself, since nobody can be born where there are as many
 * processes as allowed. */
static int charge(const DiskWatch *watch) {
        const LimitGroup *cpu = &watch->sandbox->limits[CONTROLLER_CPU];
        int r = watch->cgroup < 0 ? -ENOENT : cgroup_write(watch->cgroup, "cgroup.procs", "0");

        return r >= 0 && cpu->folder >= 0 && !cpu->is_v2 ? cgroup_write(cpu->folder, "cgroup.procs", "0") : r;
}

static _Noreturn void measure(const DiskWatch *watch, int reports) {
        DiskCount count = {
                .is_whole = true,
                .deadline = clock_monotonic_ns() + MEASURE_TIMEOUT,
                .enough = disk_rule_enough(&watch->rule),
                .reached = on_reached,
        };

        /* A sandbox without memory to spare has it killed. Then it is measured from outside. */
        if (watch->has_failed || charge(watch) < 0)
                (void) setpriority(PRIO_PROCESS, 0, NICE);
        /* Having other capabilities than before resets these two. */
        if (enter(watch->sandbox) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || arrange_fds(watch->folder, reports) < 0)
                _exit(1);
        disk_count_folder(&count, FOLDER_FD);
        disk_count_unnamed(&count, "/proc");
        send_report(&count, true);
        _exit(0);
}

/* ---- Without a quota ---- */

static DiskUsage host_usage(const DiskWatch *watch) {
        struct statfs info;

        if (fstatfs(watch->folder, &info) < 0)
                return watch->rule.host;
        return (DiskUsage){
                .bytes = (uint64_t) (info.f_blocks - info.f_bfree) * (uint64_t) info.f_bsize,
                .inodes = info.f_files - info.f_ffree,
        };
}

static void set_frozen(DiskWatch *watch, bool frozen) {
        if (watch->is_frozen == frozen)
                return;
        watch->is_frozen = frozen;
        sandbox_set_execs_frozen(watch->sandbox, frozen);
}

/* Looks again when that may be worth it. While it is measured, the end of that is waited for. */
static void set_alarm(DiskWatch *watch) {
        uint64_t wait = LOOK_INTERVAL;

        if (watch->measurer > 0)
                wait = watch->is_frozen ? FREEZE_MAX : UINT64_MAX;
        else if (watch->project == 0 && !watch->has_failed)
                wait = disk_rule_wait(&watch->rule, host_usage(watch), clock_monotonic_ns());
        alarm_set(watch->alarm, wait);
}

static void end_measuring(DiskWatch *watch) {
        set_frozen(watch, false);
        watch->reports_watch = watch_free(watch->reports_watch);
        watch->reports = fd_close(watch->reports);
        watch->measurer = 0;
}

static void tell_hit(DiskWatch *watch, DiskUsage usage) {
        const char *limit = disk_rule_find_limit(&watch->rule, usage);

        if (!limit || watch->hit_is_told)
                return;
        watch->hit_is_told = true;
        log_info("more on disk than allowed", LOG_STR("sandbox", watch->sandbox->config->sandbox_id),
                 LOG_STR("limit", limit));
        watch->events->hit(limit, true, watch->events->user);
}

static void take_report(DiskWatch *watch, const Report *report) {
        DiskUsage usage = report->usage;

        if (!report->is_last) {
                if (disk_rule_is_stale(&watch->rule, watch->began))
                        return;
                disk_rule_take_hit(&watch->rule, usage);
                tell_hit(watch, usage);
                return;
        }

        watch->is_measured = true;
        /* What could not be counted has not become less. */
        if (!report->is_whole) {
                const DiskUsage *before = &watch->rule.measured;

                if (!watch->miss_is_told)
                        log_warning("not all files were counted",
                                    LOG_STR("sandbox", watch->sandbox->config->sandbox_id));
                watch->miss_is_told = true;
                usage.bytes = usage.bytes > before->bytes ? usage.bytes : before->bytes;
                usage.inodes = usage.inodes > before->inodes ? usage.inodes : before->inodes;
        }
        if (disk_rule_take(&watch->rule, usage, watch->host, watch->began, clock_monotonic_ns()))
                tell_hit(watch, usage);
}

static void on_report(void *user) {
        DiskWatch *watch = user;
        Report report;
        ssize_t n = read(watch->reports, &report, sizeof(report));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n == sizeof(report)) {
                take_report(watch, &report);
                return;
        }

        while (waitpid(watch->measurer, NULL, __WALL) < 0 && errno == EINTR)
                ;
        watch->has_failed = !watch->is_measured;
        if (watch->has_failed) {
                log_warning("the sandbox's files were not measured",
                            LOG_STR("sandbox", watch->sandbox->config->sandbox_id));
                disk_rule_forget_hit(&watch->rule);
        }
        end_measuring(watch);
        if (watch->is_active)
                set_alarm(watch);
}

static int begin_measuring(DiskWatch *watch, DiskUsage host) {
        int pair[2], r;

        if (watch->cgroup < 0 && watch->sandbox->cgroup >= 0) {
                r = cgroup_add(watch->sandbox->cgroup, MEASURE_NAME, &watch->cgroup);
                if (r < 0)
                        log_warning("measuring the sandbox is not counted as its own time",
                                    LOG_STR("sandbox", watch->sandbox->config->sandbox_id),
                                    LOG_STR("error", strerror(-r)));
        }
        if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;

        _cleanup_close_ int read_fd = pair[0], write_fd = pair[1];
        pid_t pid = process_clone(0, -1, NULL);
        if (pid == 0)
                measure(watch, write_fd);
        if (pid < 0)
                return pid;

        watch->measurer = pid;
        watch->host = host;
        watch->began = clock_monotonic_ns();
        watch->hit_is_told = watch->is_measured = false;
        watch->reports = TAKE_FD(read_fd);
        watch->reports_watch = watch_new(watch->loop, watch->reports, UV_READABLE, on_report, watch);
        return 0;
}

static void measure_if(DiskWatch *watch, bool (*is_wanted)(DiskRule *rule, DiskUsage host, uint64_t now)) {
        DiskUsage host = host_usage(watch);
        int r;

        if (watch->measurer > 0 || !is_wanted(&watch->rule, host, clock_monotonic_ns()))
                return;
        r = begin_measuring(watch, host);
        if (r < 0) {
                watch->has_failed = true;
                log_warning("the sandbox's files cannot be measured",
                            LOG_STR("sandbox", watch->sandbox->config->sandbox_id), LOG_STR("error", strerror(-r)));
        } else if (watch->is_active) {
                /* Nothing is written meanwhile, and who writes cannot take the time that measuring needs. */
                set_frozen(watch, disk_rule_may_be_over(&watch->rule, host));
                set_alarm(watch);
        }
}

static bool is_worth_it(DiskRule *rule, DiskUsage host, uint64_t now) {
        return disk_rule_is_worth_it(rule, host, now);
}

/* ---- Both ---- */

static bool has_limits(const DiskWatch *watch) {
        return watch->rule.limit.bytes > 0 || watch->rule.limit.inodes > 0;
}

static void look(DiskWatch *watch) {
        if (!has_limits(watch))
                return;
        if (watch->project > 0)
                look_at_quota(watch);
        else
                measure_if(watch, disk_rule_is_due);
}

static void on_alarm(void *user) {
        DiskWatch *watch = user;

        set_frozen(watch, false);
        look(watch);
        if (watch->is_active)
                set_alarm(watch);
}

void disk_watch_set_active(DiskWatch *watch, bool active) {
        if (watch->is_active == active || !has_limits(watch))
                return;

        watch->is_active = active;
        /* Room that was made is known only when it is measured, where the file system does not tell. */
        if (!active && !(watch->rule.is_over && watch->rule.is_late))
                alarm_set(watch->alarm, UINT64_MAX);
        else if (!active || (watch->rule.is_known && !watch->rule.is_settling))
                set_alarm(watch);
        else
                on_alarm(watch);
}

const char *disk_watch_check(DiskWatch *watch) {
        look(watch);
        return watch->project > 0 ? watch->full : disk_rule_limit_exceeded(&watch->rule, host_usage(watch));
}

const char *disk_watch_begin_writing(DiskWatch *watch) {
        const char *limit = disk_rule_limit_exceeded(&watch->rule, host_usage(watch));

        if (!limit)
                disk_rule_let_write(&watch->rule, clock_monotonic_ns());
        return limit;
}

DiskUsage disk_watch_usage(DiskWatch *watch) {
        if (watch->project > 0)
                read_quota(watch);
        else
                measure_if(watch, is_worth_it);
        return watch->rule.measured;
}

/* Has the quota limit the sandbox, when its files are those of the project that they should be: all are when the first
 * was. */
static void use_quota(DiskWatch *watch, const KeeperConfig *config) {
        uint32_t project = 0;
        int r;

        if (config->disk_project == 0)
                return;
        r = project_quota_find(watch->folder, &project);
        if (r >= 0)
                r = project == config->disk_project
                            ? project_quota_limit(watch->folder, project, config->disk_bytes, config->disk_inodes)
                            : -EXDEV;
        if (r >= 0)
                watch->project = project;
        else
                log_warning("no quota for the sandbox's files; they are measured",
                            LOG_STR("sandbox", config->sandbox_id), LOG_STR("error", strerror(-r)));
}

int disk_watch_new(uv_loop_t *loop, const KeptSandbox *sandbox, bool is_new, const DiskWatchEvents *events,
                   DiskWatch **ret_watch) {
        const KeeperConfig *config = sandbox->config;
        _cleanup_close_ int state = open(config->state_folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int folder = state < 0 ? -1 : openat(state, "fs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct statfs info;
        DiskWatch *watch;

        if (folder < 0)
                return -errno;

        watch = new0(DiskWatch, 1);
        *watch = (DiskWatch){
                .loop = loop,
                .sandbox = sandbox,
                .events = events,
                .folder = folder,
                .cgroup = -1,
                .reports = -1,
                .alarm = alarm_new(loop, on_alarm, watch),
        };
        disk_rule_init(&watch->rule, (DiskUsage){ .bytes = config->disk_bytes, .inodes = config->disk_inodes },
                       host_usage(watch), clock_monotonic_ns());
        watch->rule.is_known = is_new;
        watch->rule.is_late = fstatfs(folder, &info) < 0 || !disk_tells_growth(&info);
        use_quota(watch, config);
        *ret_watch = watch;
        return 0;
}

DiskWatch *disk_watch_free(DiskWatch *watch) {
        if (!watch)
                return NULL;

        /* Its end is seen with that of the sandbox's processes. */
        if (watch->measurer > 0)
                (void) kill(watch->measurer, SIGKILL);
        end_measuring(watch);
        alarm_free(watch->alarm);
        fd_close(watch->cgroup);
        fd_close(watch->folder);
        free(watch);
        return NULL;
}
