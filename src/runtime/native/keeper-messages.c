/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading what keepers say with suspicion. What does not: acting on it. */

#include "runtime/native/keeper-messages.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "model/reason.h"

#define EARLIEST_SECOND 946684800                /* 2000-01-01 */
#define SECONDS_MAX (INT64_C(100) * 366 * 86400) /* no duration is longer */
#define BYTES_MAX (UINT64_C(1) << 62)
#define ERRNO_MAX 4095

uint64_t keeper_time(const Google__Protobuf__Timestamp *time, uint64_t now) {
        uint64_t at;

        if (!time || time->seconds < EARLIEST_SECOND || (uint64_t) time->seconds > now / NSEC_PER_SEC ||
            time->nanos < 0 || time->nanos >= (int32_t) NSEC_PER_SEC)
                return now;

        at = (uint64_t) time->seconds * NSEC_PER_SEC + (uint64_t) time->nanos;
        return at < now ? at : now;
}

uint64_t keeper_duration(const Google__Protobuf__Duration *duration) {
        if (!duration || duration->seconds < 0 || duration->seconds > SECONDS_MAX || duration->nanos < 0 ||
            duration->nanos >= (int32_t) NSEC_PER_SEC)
                return 0;

        return (uint64_t) duration->seconds * NSEC_PER_SEC + (uint64_t) duration->nanos;
}

Google__Protobuf__Duration keeper_duration_of(uint64_t nanoseconds) {
        Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;

        duration.seconds = (int64_t) (nanoseconds / NSEC_PER_SEC);
        duration.nanos = (int32_t) (nanoseconds % NSEC_PER_SEC);
        return duration;
}

void keeper_failure(const KeeperFailure *failure, HutchError *err) {
        Reason reason = failure ? reason_from_name(failure->reason) : REASON_UNSPECIFIED;
        int error = failure && failure->error > 0 && failure->error <= ERRNO_MAX ? (int) failure->error : EIO;
        const char *message = failure ? failure->message : "";

        if (reason == REASON_UNSPECIFIED)
                reason = REASON_INTERNAL;
        if (*message == '\0' || !utf8_valid(message, strlen(message)))
                message = "the keeper does not say why";
        (void) reason_set(err, -error, reason, "%s", message);
}

static uint64_t at_most(uint64_t value, uint64_t max) {
        return value < max ? value : max;
}

static StreamSummary summary(uint64_t total, uint64_t dropped) {
        total = at_most(total, BYTES_MAX);
        return (StreamSummary){ .total = total, .dropped = at_most(dropped, total) };
}

static RuntimeEndCause end_cause(Hutch__Keeper__V1__KeeperEndCause cause) {
        switch (cause) {
        case HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_CANCELLED:
                return RUNTIME_END_CANCELLED;
        case HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_TIMED_OUT:
                return RUNTIME_END_TIMED_OUT;
        case HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_SHUTDOWN:
                return RUNTIME_END_SHUTDOWN;
        case HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_NOT_STARTED:
                return RUNTIME_END_NOT_STARTED;
        case HUTCH__KEEPER__V1__KEEPER_END_CAUSE__KEEPER_END_CAUSE_DISK_LIMIT:
                return RUNTIME_END_DISK_LIMIT;
        default:
                return RUNTIME_END_EXITED;
        }
}

static const char *disk_limit(const char *name) {
        static const char *const names[] = { "disk_bytes", "disk_inodes" };

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
                if (str_equal(name, names[i]))
                        return names[i];
        return NULL;
}

RuntimeExecEnd keeper_exec_end(const KeeperExec *exec, uint64_t now, HutchError *failure) {
        const Hutch__Keeper__V1__KeeperExecEnd *told = exec->end;
        uint64_t started = exec->start_time ? keeper_time(exec->start_time, now) : 0;
        RuntimeExecEnd end = {
                .cause = end_cause(told->cause),
                .wait_status = told->wait_status,
                .end_time = keeper_time(told->end_time, now),
                .out_of_memory = told->out_of_memory,
                .process_limit_hits = told->process_limit_hits,
                .disk_limit = disk_limit(told->disk_limit),
                .out = summary(exec->stdout_bytes, told->stdout_dropped_bytes),
                .err = summary(exec->stderr_bytes, told->stderr_dropped_bytes),
                .cpu_time = keeper_duration(told->cpu_time),
                .peak_memory = at_most(told->peak_memory_bytes, BYTES_MAX),
        };

        if (!WIFEXITED(end.wait_status) && !WIFSIGNALED(end.wait_status))
                end.wait_status = KEEPER_EXIT_UNKNOWN;
        if (end.end_time < started)
                end.end_time = started;
        if (end.cause == RUNTIME_END_NOT_STARTED) {
                keeper_failure(told->failure, failure);
                end.failure = failure;
                end.program_not_found = told->program_not_found;
        }
        return end;
}
