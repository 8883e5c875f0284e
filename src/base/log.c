/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how a log line looks, and its one write. What does not: rotation and shipping, which are whoever's
 * that owns the descriptor. */

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "base/utf8.h"

/* A line being made. */
typedef struct Line {
        LogFormat format;
        size_t len;
        bool full;               /* something did not fit */
        char text[LOG_LINE_MAX]; /* not NUL-terminated */
} Line;

/* What is kept free for the end of a line, in the longer of its two forms. */
#define LINE_END_MAX (sizeof(",\"truncated\":true}\n") - 1)

Logger log_default = { .fd = STDERR_FILENO, .level = LOG_LEVEL_INFO, .format = LOG_FORMAT_LOGFMT };

static const char *const level_names[] = {
        [LOG_LEVEL_DEBUG] = "debug",
        [LOG_LEVEL_INFO] = "info",
        [LOG_LEVEL_WARNING] = "warning",
        [LOG_LEVEL_ERROR] = "error",
};

static void line_put_bytes(Line *line, const char *bytes, size_t len) {
        if (len > sizeof(line->text) - LINE_END_MAX - line->len) {
                line->full = true;
                return;
        }

        memcpy(line->text + line->len, bytes, len);
        line->len += len;
}

static void line_put(Line *line, const char *text) {
        line_put_bytes(line, text, strlen(text));
}

/* Makes @escaped what stands within quotes for a character, @len bytes at @bytes. Returns its length. */
static size_t escape(char escaped[static 8], const char *bytes, size_t len, uint32_t code_point) {
        switch (code_point) {
        case '"':
        case '\\':
                return (size_t) snprintf(escaped, 8, "\\%c", (char) code_point);
        case '\n':
                return (size_t) snprintf(escaped, 8, "\\n");
        case '\r':
                return (size_t) snprintf(escaped, 8, "\\r");
        case '\t':
                return (size_t) snprintf(escaped, 8, "\\t");
        }

        /* C0, DEL and C1: logs are read in terminals. */
        if (code_point < 0x20 || (code_point >= 0x7f && code_point <= 0x9f))
                return (size_t) snprintf(escaped, 8, "\\u%04x", (unsigned) code_point & 0xff);

        memcpy(escaped, bytes, len);
        return len;
}

static void line_put_quoted(Line *line, const char *text) {
        size_t rest = strlen(text), written = 0;

        line_put(line, "\"");
        while (rest > 0) {
                uint32_t code_point;
                char escaped[8];
                size_t len = utf8_next(text, rest, &code_point), escaped_len;

                if (len > 0) {
                        escaped_len = escape(escaped, text, len, code_point);
                } else {
                        escaped_len = escape(escaped, "\uFFFD", 3, 0xfffd);
                        len = 1;
                }

                if (written + escaped_len > LOG_VALUE_MAX) {
                        line_put(line, "…");
                        break;
                }

                line_put_bytes(line, escaped, escaped_len);
                written += escaped_len;
                text += len;
                rest -= len;
        }
        line_put(line, "\"");
}

/* Tells whether @text reads unambiguously in logfmt without quotes. */
static bool is_plain(const char *text) {
        size_t len = 0;

        while (ascii_is_alnum(text[len]) || (text[len] && strchr("-_.:/+@", text[len])))
                len++;

        return len > 0 && len <= LOG_VALUE_MAX && !text[len];
}

static void line_put_value(Line *line, const LogField *field) {
        char number[32];

        switch (field->type) {
        case LOG_FIELD_STRING:
                if (line->format == LOG_FORMAT_LOGFMT && is_plain(field->string_value))
                        line_put(line, field->string_value);
                else
                        line_put_quoted(line, field->string_value);
                return;
        case LOG_FIELD_INT:
                snprintf(number, sizeof(number), "%" PRId64, field->int_value);
                line_put(line, number);
                return;
        case LOG_FIELD_UINT:
                snprintf(number, sizeof(number), "%" PRIu64, field->uint_value);
                line_put(line, number);
                return;
        case LOG_FIELD_BOOL:
                line_put(line, field->bool_value ? "true" : "false");
                return;
        }
}

/* Puts the whole field, or nothing of it when it does not fit. */
static void line_put_field(Line *line, LogField field) {
        bool was_full = line->full;
        size_t start = line->len;

        if (field.type == LOG_FIELD_STRING && !field.string_value)
                return;

        line->full = false;
        if (line->format == LOG_FORMAT_JSON) {
                line_put(line, start == 0 ? "{\"" : ",\"");
                line_put(line, field.key);
                line_put(line, "\":");
        } else {
                line_put(line, start == 0 ? "" : " ");
                line_put(line, field.key);
                line_put(line, "=");
        }
        line_put_value(line, &field);

        if (line->full)
                line->len = start;
        line->full = line->full || was_full;
}

static void line_put_time(Line *line) {
        uint64_t now = clock_realtime_ns();
        time_t seconds = (time_t) (now / NSEC_PER_SEC);
        char text[64], date[32];
        struct tm utc;

        gmtime_r(&seconds, &utc);
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
        snprintf(text, sizeof(text), "%s.%06" PRIu64 "Z", date, now % NSEC_PER_SEC / NSEC_PER_USEC);
        line_put_field(line, LOG_STR("time", text));
}

/* Ends the line, in the room kept for it. */
static void line_end(Line *line) {
        static const char *const ends[][2] = {
                [LOG_FORMAT_LOGFMT] = { "\n", " truncated=true\n" },
                [LOG_FORMAT_JSON] = { "}\n", ",\"truncated\":true}\n" },
        };
        const char *end = ends[line->format][line->full];

        memcpy(line->text + line->len, end, strlen(end));
        line->len += strlen(end);
}

void log_write(const Logger *logger, LogLevel level, const char *message, const LogField fields[]) {
        Line line = { .format = logger->format };
        int saved_errno = errno;

        line_put_time(&line);
        line_put_field(&line, LOG_STR("level", level_names[level]));
        line_put_field(&line, LOG_STR("msg", message));
        for (; fields->key; fields++)
                line_put_field(&line, *fields);
        line_end(&line);

        while (write(logger->fd, line.text, line.len) < 0 && errno == EINTR)
                ;

        errno = saved_errno;
}
