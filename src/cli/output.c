/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how things are printed. What does not: which things and columns (the commands), and JSON and YAML
 * themselves (pbtext/). */

#include "cli/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "pbtext/pbtext.h"

const Option output_options[] = {
        { "output", 'o', "table|json|yaml", .help = "how to print it (table)" },
        {},
};

Format output_format(const Arguments *arguments) {
        const char *name = arguments_get(arguments, "output");

        if (str_equal(name, "json"))
                return FORMAT_JSON;
        return str_equal(name, "yaml") ? FORMAT_YAML : FORMAT_TABLE;
}

static bool has_colours(void) {
        const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");

        return isatty(STDOUT_FILENO) && !(none && *none) && terminal && !str_equal(terminal, "dumb");
}

static const char *tone_start(Tone tone) {
        static const char *const starts[] = {
                [TONE_PLAIN] = "",           [TONE_HEADER] = "\033[1m", [TONE_GOOD] = "\033[32m",
                [TONE_WARNING] = "\033[33m", [TONE_BAD] = "\033[31m",   [TONE_FAINT] = "\033[2m",
        };

        return starts[tone];
}

/* How many columns of a terminal @text takes, near enough: its characters. */
static size_t width_of(const char *text) {
        size_t width = 0;

        for (; *text; text++)
                width += ((unsigned char) *text & 0xc0) != 0x80;
        return width;
}

size_t text_prefix(const char *text, size_t width) {
        size_t len = 0;

        while (text[len] && (width > 0 || ((unsigned char) text[len] & 0xc0) == 0x80)) {
                width -= ((unsigned char) text[len] & 0xc0) != 0x80;
                len++;
        }
        return len;
}

Printer printer_make(Format format, const char *const columns[]) {
        Printer printer = { .format = format };

        while (printer.n_columns < COLUMNS_MAX && columns[printer.n_columns]) {
                printer.columns[printer.n_columns] = columns[printer.n_columns];
                printer.n_columns++;
        }
        for (size_t i = 0; i < printer.n_columns && format == FORMAT_TABLE; i++)
                printer_add_cell(&printer, TONE_HEADER, printer.columns[i]);
        return printer;
}

Printer printer_new_details(void) {
        return (Printer){ .format = FORMAT_TABLE, .n_columns = 2 };
}

/* YAML's element of a sequence: the text of a message, moved to the right. */
static void print_yaml_element(const char *yaml) {
        const char *start = "- ";

        while (*yaml) {
                size_t len = strcspn(yaml, "\n");

                (void) printf("%s%.*s\n", len > 0 ? start : "", (int) len, yaml);
                start = "  ";
                yaml += len + (yaml[len] == '\n');
        }
}

bool printer_add_message(Printer *printer, const ProtobufCMessage *message) {
        _cleanup_free_ char *text = NULL;

        switch (printer->format) {
        case FORMAT_TABLE:
                return false;
        case FORMAT_JSON:
                text = message_to_json(message, false);
                text[strcspn(text, "\n")] = '\0';
                (void) printf("%s\n%s", printer->n_messages > 0 ? "," : "[", text);
                break;
        case FORMAT_YAML:
                text = message_to_yaml(message);
                print_yaml_element(text);
                break;
        }
        printer->n_messages++;
        return true;
}

void printer_add_cell(Printer *printer, Tone tone, const char *text) {
        printer->cells = xreallocarray(printer->cells, printer->n_cells + 1, sizeof(printer->cells[0]));
        printer->cells[printer->n_cells++] = (struct Cell){ .tone = tone, .text = text_printable(text) };
}

void printer_add_cellf(Printer *printer, Tone tone, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list list;
        int n;

        va_start(list, format);
        n = vasprintf(&text, format, list);
        va_end(list);
        if (n < 0)
                abort();
        printer_add_cell(printer, tone, text);
}

void printer_add_detail(Printer *printer, const char *name, const char *value) {
        if (*value == '\0')
                return;
        printer_add_cellf(printer, TONE_HEADER, "%s:", name);
        printer_add_cell(printer, str_equal(name, "State") ? state_tone(value) : TONE_PLAIN, value);
}

static void print_table(const Printer *printer) {
        bool coloured = has_colours();
        size_t widths[COLUMNS_MAX] = {};

        for (size_t i = 0; i < printer->n_cells; i++) {
                size_t column = i % printer->n_columns, width = width_of(printer->cells[i].text);

                if (width > widths[column])
                        widths[column] = width;
        }

        for (size_t i = 0, left = SIZE_MAX; i < printer->n_cells; i++) {
                const struct Cell *cell = &printer->cells[i];
                size_t column = i % printer->n_columns, cell_width = width_of(cell->text);
                bool last = column + 1 == printer->n_columns, in_colour;

                if (column == 0)
                        left = printer->width > 0 ? printer->width : SIZE_MAX;
                in_colour = coloured && cell->tone != TONE_PLAIN && *cell->text && left > 0;
                (void) printf("%s%.*s%s", in_colour ? tone_start(cell->tone) : "", (int) text_prefix(cell->text, left),
                              cell->text, in_colour ? "\033[0m" : "");
                left -= cell_width < left ? cell_width : left;
                if (last) {
                        (void) putchar('\n');
                } else {
                        size_t gap = widths[column] - cell_width + 2;

                        gap = gap < left ? gap : left;
                        (void) printf("%*s", (int) gap, "");
                        left -= gap;
                }
        }
}

void printer_end(Printer *printer) {
        if (printer->format == FORMAT_TABLE)
                print_table(printer);
        else if (printer->format == FORMAT_JSON)
                (void) puts(printer->n_messages > 0 ? "\n]" : "[]");
        else if (printer->n_messages == 0)
                (void) puts("[]");
        printer_clear(printer);
}

void printer_clear(Printer *printer) {
        for (size_t i = 0; i < printer->n_cells; i++)
                free(printer->cells[i].text);
        free(printer->cells);
        *printer = (Printer){};
}

void print_message(Format format, const ProtobufCMessage *message) {
        _cleanup_free_ char *text = format == FORMAT_YAML ? message_to_yaml(message) : message_to_json(message, true);

        (void) fputs(text, stdout);
}

void age_format(uint64_t time, uint64_t now, char ret_text[static AGE_SIZE]) {
        static const struct {
                const char *name;
                uint64_t seconds;
        } units[] = {
                { "year", 31557600 }, { "month", 2629800 }, { "week", 604800 },
                { "day", 86400 },     { "hour", 3600 },     { "minute", 60 },
        };
        uint64_t seconds = now > time ? (now - time) / NSEC_PER_SEC : 0;

        ret_text[0] = '\0';
        if (time == 0)
                return;

        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
                uint64_t n = seconds / units[i].seconds;

                if (n > 0) {
                        (void) snprintf(ret_text, AGE_SIZE, "%llu %s%s ago", (unsigned long long) n, units[i].name,
                                        n > 1 ? "s" : "");
                        return;
                }
        }
        (void) snprintf(ret_text, AGE_SIZE, seconds < 2 ? "now" : "%llu seconds ago", (unsigned long long) seconds);
}

void span_format(uint64_t seconds, char ret_text[static SPAN_SIZE]) {
        static const struct {
                char letter;
                uint64_t seconds;
        } units[] = { { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 } };
        size_t unit = 0;

        while (unit + 1 < sizeof(units) / sizeof(units[0]) && seconds < units[unit].seconds)
                unit++;
        (void) snprintf(ret_text, SPAN_SIZE, "%llu%c", (unsigned long long) (seconds / units[unit].seconds),
                        units[unit].letter);
}

void bytes_format(uint64_t bytes, char ret_text[static BYTES_SIZE]) {
        static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        double value = (double) bytes;
        size_t unit = 0;

        while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
                value /= 1024;
                unit++;
        }
        (void) snprintf(ret_text, BYTES_SIZE, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

Tone state_tone(const char *state) {
        static const struct {
                const char *state;
                Tone tone;
        } tones[] = {
                { "READY", TONE_GOOD },      { "RUNNING", TONE_GOOD },     { "PENDING", TONE_WARNING },
                { "PAUSED", TONE_WARNING },  { "STOPPING", TONE_WARNING }, { "DELETING", TONE_WARNING },
                { "FAILED", TONE_BAD },      { "LOST", TONE_BAD },         { "TIMED_OUT", TONE_BAD },
                { "CANCELLED", TONE_FAINT }, { "STOPPED", TONE_FAINT },    { "DELETED", TONE_FAINT },
        };

        for (size_t i = 0; i < sizeof(tones) / sizeof(tones[0]); i++)
                if (str_equal(tones[i].state, state))
                        return tones[i].tone;
        return TONE_PLAIN;
}

char *text_printable(const char *text) {
        char *copy = xstrdup(text);

        str_make_printable(copy);
        return copy;
}

char *json_quote(const char *text) {
        StringBuilder builder = {};

        string_builder_append(&builder, "\"");
        for (; *text; text++)
                if (*text == '"' || *text == '\\')
                        string_builder_appendf(&builder, "\\%c", *text);
                else if (ascii_is_control(*text))
                        string_builder_appendf(&builder, "\\u%04x", (unsigned char) *text);
                else
                        string_builder_append_bytes(&builder, text, 1);
        string_builder_append(&builder, "\"");
        return string_builder_take(&builder);
}
