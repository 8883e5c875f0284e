/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the messages that are written as a text. What does not: durations as text (base/duration.c), and
 * messages that are written by their fields (convert.c). */

#include "pbtext/well-known.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/strings.h"
#include "pbtext/field.h"

#define TIMESTAMP_MIN INT64_C(-62135596800) /* 0001-01-01T00:00:00Z */
#define TIMESTAMP_MAX INT64_C(253402300799) /* 9999-12-31T23:59:59Z */

typedef struct WellKnown {
        const char *name;
        int (*read)(const char *text, ProtobufCMessage *message, HutchError *err);
        char *(*write)(const ProtobufCMessage *message);
} WellKnown;

/* Duration and Timestamp have the same two fields. */
static Duration get_time(const ProtobufCMessage *message) {
        const ProtobufCFieldDescriptor *fields = message->descriptor->fields;

        return (Duration){
                .seconds = *(const int64_t *) field_at(message, &fields[0], 0),
                .nanos = *(const int32_t *) field_at(message, &fields[1], 0),
        };
}

static void set_time(ProtobufCMessage *message, Duration time) {
        const ProtobufCFieldDescriptor *fields = message->descriptor->fields;

        field_set(message, &fields[0], (FieldValue){ .int64 = time.seconds });
        field_set(message, &fields[1], (FieldValue){ .int32 = time.nanos });
}

static int duration_from_text(const char *text, ProtobufCMessage *message, HutchError *err) {
        Duration duration;
        int r = duration_parse(text, strlen(text), &duration, err);

        if (r == 0)
                set_time(message, duration);
        return r;
}

static char *duration_to_text(const ProtobufCMessage *message) {
        Duration duration = get_time(message);
        char text[DURATION_TEXT_SIZE];

        if (duration_check(duration, NULL) < 0)
                return NULL;

        duration_format(duration, text);
        return xstrdup(text);
}

/* Takes a number of @n digits and the character @end behind it, unless that is NUL. */
static bool take_number(const char **text, unsigned n, char end, int *ret_number) {
        int number = 0;

        for (; n > 0; n--, (*text)++) {
                if (!ascii_is_digit(**text))
                        return false;
                number = number * 10 + (**text - '0');
        }
        if (end != '\0' && *(*text)++ != end)
                return false;

        *ret_number = number;
        return true;
}

/* Takes "" or ".5": up to nine decimals. */
static bool take_fraction(const char **text, int32_t *ret_nanos) {
        int32_t nanos = 0, unit = (int32_t) NSEC_PER_SEC / 10;

        if (**text == '.') {
                (*text)++;
                if (!ascii_is_digit(**text))
                        return false;
                for (; ascii_is_digit(**text); (*text)++, unit /= 10) {
                        if (unit == 0)
                                return false;
                        nanos += (**text - '0') * unit;
                }
        }

        *ret_nanos = nanos;
        return true;
}

/* Takes "Z" or "+02:00". */
static bool take_zone(const char **text, int *ret_minutes) {
        int sign = **text == '+' ? 1 : -1, hours, minutes;

        if (**text == 'Z') {
                (*text)++;
                *ret_minutes = 0;
                return true;
        }
        if (**text != '+' && **text != '-')
                return false;

        (*text)++;
        if (!take_number(text, 2, ':', &hours) || !take_number(text, 2, '\0', &minutes) || hours > 23 || minutes > 59)
                return false;
        *ret_minutes = sign * (hours * 60 + minutes);
        return true;
}

/* Reads RFC 3339's form. */
static bool timestamp_parse(const char *text, Duration *ret_time) {
        struct tm tm = {}, same;
        int32_t nanos;
        int zone;
        time_t seconds;

        if (!take_number(&text, 4, '-', &tm.tm_year) || !take_number(&text, 2, '-', &tm.tm_mon) ||
            !take_number(&text, 2, 'T', &tm.tm_mday) || !take_number(&text, 2, ':', &tm.tm_hour) ||
            !take_number(&text, 2, ':', &tm.tm_min) || !take_number(&text, 2, '\0', &tm.tm_sec) ||
            !take_fraction(&text, &nanos) || !take_zone(&text, &zone) || *text != '\0')
                return false;

        tm.tm_year -= 1900;
        tm.tm_mon -= 1;
        same = tm;
        seconds = timegm(&same);
        if (same.tm_mon != tm.tm_mon || same.tm_hour != tm.tm_hour || same.tm_min != tm.tm_min ||
            same.tm_sec != tm.tm_sec)
                return false; /* February 30, 24:00 and the like */

        seconds -= (time_t) zone * 60;
        if (seconds < TIMESTAMP_MIN || seconds > TIMESTAMP_MAX)
                return false;

        *ret_time = (Duration){ .seconds = seconds, .nanos = nanos };
        return true;
}

static int timestamp_from_text(const char *text, ProtobufCMessage *message, HutchError *err) {
        Duration time;

        if (!timestamp_parse(text, &time))
                return error_set(err, -EINVAL, "FIELD_INVALID", "expected a time like '2024-12-31T23:59:59Z', not '%s'",
                                 text);

        set_time(message, time);
        return 0;
}

static char *timestamp_to_text(const ProtobufCMessage *message) {
        Duration time = get_time(message), fraction = { .nanos = time.nanos };
        char decimals[DURATION_TEXT_SIZE];
        StringBuilder text = {};
        struct tm tm;

        if (time.seconds < TIMESTAMP_MIN || time.seconds > TIMESTAMP_MAX || duration_check(fraction, NULL) < 0)
                return NULL;

        /* "0.500s" is the fraction as a duration: its digits are those that a time has behind its seconds. */
        duration_format(fraction, decimals);
        gmtime_r(&time.seconds, &tm);
        string_builder_appendf(&text, "%04d-%02d-%02dT%02d:%02d:%02d%.*sZ", tm.tm_year + 1900, tm.tm_mon + 1,
                               tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int) strlen(decimals) - 2, decimals + 1);
        return string_builder_take(&text);
}

/* Paths, separated by commas, in JSON's form: "idleTtl,maxLifetime"; that of the .proto files is read as well. */
static int field_mask_from_text(const char *text, ProtobufCMessage *message, HutchError *err) {
        while (*text != '\0') {
                StringBuilder path = {};
                size_t len = strcspn(text, ",");

                for (size_t i = 0; i < len; i++)
                        string_builder_appendf(&path, ascii_is_upper(text[i]) ? "_%c" : "%c", ascii_lower(text[i]));
                text += len;
                if (len == 0 || (*text == ',' && text[1] == '\0')) {
                        string_builder_clear(&path);
                        return error_set(err, -EINVAL, "FIELD_MASK_INVALID", "expected a field beside each ','");
                }
                field_append(message, &message->descriptor->fields[0],
                             (FieldValue){ .text = string_builder_take(&path) });
                text += *text == ',';
        }
        return 0;
}

static char *field_mask_to_text(const ProtobufCMessage *message) {
        const ProtobufCFieldDescriptor *paths = &message->descriptor->fields[0];
        _cleanup_(string_builder_clear) StringBuilder text = {};

        for (size_t i = 0; i < field_count(message, paths); i++) {
                const char *path = *(char *const *) field_at(message, paths, i);

                if (path[0] == '\0')
                        return NULL;
                string_builder_append(&text, i > 0 ? "," : "");
                for (; *path != '\0'; path++) {
                        if (ascii_is_upper(*path) || *path == ',')
                                return NULL; /* it would read back as another */
                        if (path[0] == '_' && ascii_is_lower(path[1]))
                                string_builder_appendf(&text, "%c", *++path - 'a' + 'A');
                        else
                                string_builder_append_bytes(&text, path, 1);
                }
        }
        return string_builder_take(&text);
}

static const WellKnown *find(const ProtobufCMessageDescriptor *type) {
        static const WellKnown all[] = {
                { "google.protobuf.Duration", duration_from_text, duration_to_text },
                { "google.protobuf.Timestamp", timestamp_from_text, timestamp_to_text },
                { "google.protobuf.FieldMask", field_mask_from_text, field_mask_to_text },
        };

        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                if (str_equal(all[i].name, type->name))
                        return &all[i];
        return NULL;
}

bool type_is_well_known(const ProtobufCMessageDescriptor *type) {
        return find(type) != NULL;
}

int well_known_read(const ProtobufCMessageDescriptor *type, const Node *node, const Place *place,
                    ProtobufCMessage **ret_message, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *message = message_new(type);
        _cleanup_(error_clear) HutchError problem = {};

        /* A number is no text, but the duration 0 is written without a unit. */
        if (!(node->kind & (NODE_TEXT | NODE_PLAIN | NODE_NUMBER)))
                return place_expected(place, node, err, "a text");
        if (find(type)->read(node->text, message, &problem) < 0)
                return place_error(place, node, err, problem.reason, "%s", error_message(&problem));

        *ret_message = TAKE_PTR(message);
        return 0;
}

Node *well_known_write(const ProtobufCMessage *message) {
        char *text = find(message->descriptor)->write(message);

        return text ? node_new_scalar(NODE_TEXT, 0, text) : NULL;
}
