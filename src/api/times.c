/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: google.protobuf.Timestamp and Duration. What does not: durations as text (base/duration.c). */

#include "api/times.h"

#include "base/clock.h"
#include "base/duration.h"

Google__Protobuf__Timestamp timestamp_message(uint64_t ns) {
        Google__Protobuf__Timestamp message = GOOGLE__PROTOBUF__TIMESTAMP__INIT;

        message.seconds = (int64_t) (ns / NSEC_PER_SEC);
        message.nanos = (int32_t) (ns % NSEC_PER_SEC);
        return message;
}

Google__Protobuf__Duration duration_message(uint64_t ns) {
        Google__Protobuf__Duration message = GOOGLE__PROTOBUF__DURATION__INIT;

        message.seconds = (int64_t) (ns / NSEC_PER_SEC);
        message.nanos = (int32_t) (ns % NSEC_PER_SEC);
        return message;
}

uint64_t duration_ns(const Google__Protobuf__Duration *message) {
        return (uint64_t) message->seconds * NSEC_PER_SEC + (uint64_t) message->nanos;
}

int duration_read(const Google__Protobuf__Duration *message, const char *field, Violations *violations,
                  uint64_t *ret_ns) {
        Duration duration = { .seconds = message->seconds, .nanos = message->nanos };
        int r = violations_note(violations, field, duration_check(duration, &violations->err));

        if (r < 0)
                return r;

        *ret_ns = duration_ns(message);
        return 0;
}

void duration_read_bounded(const Google__Protobuf__Duration *message, const char *field, uint64_t max, uint64_t unset,
                           Violations *violations, uint64_t *ret_ns) {
        uint64_t ns = unset;

        if (message && duration_read(message, field, violations, &ns) == 0 && ns > max)
                violations_add(violations, field, REASON_FIELD_OUT_OF_RANGE, "at most %llu seconds",
                               (unsigned long long) (max / NSEC_PER_SEC));
        *ret_ns = ns;
}
