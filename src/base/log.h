/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Structured logging: one line per fact, a fixed message and typed fields.
 *
 *         log_info("sandbox ready", LOG_STR("sandbox", id), LOG_INT("pid", pid));
 *
 *         time=2026-01-31T08:05:01.000123Z level=info msg="sandbox ready" sandbox=sbx-1 pid=4711
 *         {"time":"2026-01-31T08:05:01.000123Z","level":"info","msg":"sandbox ready","sandbox":"sbx-1","pid":4711}
 *
 * Messages and keys are literals; what varies is a value. Values are escaped: control characters and quotes by a
 * backslash, bytes that are not UTF-8 as U+FFFD. Never a secret, never an argument list. */

#define LOG_LINE_MAX 4096  /* bytes with the newline, so that a line into a pipe is whole */
#define LOG_VALUE_MAX 1024 /* bytes of a string once escaped; a longer one is cut between characters and ends in "…" */

typedef enum LogLevel {
        LOG_LEVEL_DEBUG,
        LOG_LEVEL_INFO,
        LOG_LEVEL_WARNING,
        LOG_LEVEL_ERROR,
} LogLevel;

typedef enum LogFormat {
        LOG_FORMAT_LOGFMT,
        LOG_FORMAT_JSON,
} LogFormat;

typedef struct Logger {
        int fd;
        LogLevel level; /* what is below is not written */
        LogFormat format;
} Logger;

/* Where log_info() and its kind write: standard error, as logfmt, from info upward, until main() sets it otherwise. */
extern Logger log_default;

typedef struct LogField {
        const char *key; /* NULL ends a list of fields */
        enum { LOG_FIELD_STRING, LOG_FIELD_INT, LOG_FIELD_UINT, LOG_FIELD_BOOL } type;
        union {
                const char *string_value;
                int64_t int_value;
                uint64_t uint_value;
                bool bool_value;
        };
} LogField;

/* Fields. A string that is NULL leaves its field out. */
#define LOG_STR(name, value) ((LogField){ .key = (name), .type = LOG_FIELD_STRING, .string_value = (value) })
#define LOG_INT(name, value) ((LogField){ .key = (name), .type = LOG_FIELD_INT, .int_value = (value) })
#define LOG_UINT(name, value) ((LogField){ .key = (name), .type = LOG_FIELD_UINT, .uint_value = (value) })
#define LOG_BOOL(name, value) ((LogField){ .key = (name), .type = LOG_FIELD_BOOL, .bool_value = (value) })

/* Writes @message and the fields behind it to @logger. Fields are not evaluated when @log_level is below its level. */
#define log_to(logger, log_level, message, ...)                                                                        \
        do {                                                                                                           \
                const Logger *log_to_ = (logger);                                                                      \
                if ((log_level) >= log_to_->level)                                                                     \
                        log_write(log_to_, (log_level), "" message,                                                    \
                                  (const LogField[]){ __VA_ARGS__ __VA_OPT__(, ){} });                                 \
        } while (0)

#define log_debug(...) log_to(&log_default, LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...) log_to(&log_default, LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warning(...) log_to(&log_default, LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_error(...) log_to(&log_default, LOG_LEVEL_ERROR, __VA_ARGS__)

/* What log_to() calls: makes one line, without allocating, and writes it with one write(2), whose failure is nobody's
 * error. Fields that would make the line longer than LOG_LINE_MAX are left out, and the line says truncated=true. Keeps
 * errno. */
void log_write(const Logger *logger, LogLevel level, const char *message, const LogField fields[])
        __attribute__((nonnull));
