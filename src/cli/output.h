/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/options.h"

/* What is printed on stdout: tables for people, JSON and YAML for programs.
 *
 * Lists are printed through a printer. In a table each message is a row of cells; in JSON the list is one array, in
 * YAML one sequence:
 *
 *         Printer printer = printer_new(format, "ID", "STATE");
 *         if (!printer_add_message(&printer, message)) {
 *                 printer_add_cell(&printer, TONE_PLAIN, id);
 *                 printer_add_cell(&printer, TONE_GOOD, "READY");
 *         }
 *         printer_end(&printer); */

typedef enum Format {
        FORMAT_TABLE,
        FORMAT_JSON,
        FORMAT_YAML,
} Format;

/* The option --output, for commands that print something. */
extern const Option output_options[];

Format output_format(const Arguments *arguments) __attribute__((nonnull));

/* How a cell looks, where there are colours: on a terminal that has them, unless NO_COLOR is set. */
typedef enum Tone {
        TONE_PLAIN,
        TONE_HEADER,
        TONE_GOOD,
        TONE_WARNING,
        TONE_BAD,
        TONE_FAINT,
} Tone;

#define COLUMNS_MAX 8

typedef struct Printer {
        Format format;
        const char *columns[COLUMNS_MAX + 1]; /* ends with NULL; none: there is no header */
        size_t n_columns;
        size_t width; /* where lines of a table are cut, in characters; 0: nowhere */
        struct Cell {
                Tone tone;
                char *text;
        } * cells;
        size_t n_cells;
        size_t n_messages;
} Printer;

#define printer_new(format, ...) printer_make(format, (const char *const[]){ __VA_ARGS__, NULL })
Printer printer_make(Format format, const char *const columns[]) __attribute__((nonnull));

/* A table without a header, of names and values, for one thing. */
Printer printer_new_details(void);

/* Prints @message, unless it is a table that is printed: then false, and nothing is done. */
bool printer_add_message(Printer *printer, const ProtobufCMessage *message) __attribute__((nonnull));

/* Adds the next cell; its text is copied, and control characters are replaced. */
void printer_add_cell(Printer *printer, Tone tone, const char *text) __attribute__((nonnull));
void printer_add_cellf(Printer *printer, Tone tone, const char *format, ...)
        __attribute__((format(printf, 3, 4), nonnull));

/* A row of printer_new_details(), unless @value is empty. */
void printer_add_detail(Printer *printer, const char *name, const char *value) __attribute__((nonnull));

/* Prints what is left and frees it. */
void printer_end(Printer *printer) __attribute__((nonnull));

/* Frees it without printing anything, where it has not ended. */
void printer_clear(Printer *printer) __attribute__((nonnull));

/* Prints one message; as a table it cannot be printed. */
void print_message(Format format, const ProtobufCMessage *message) __attribute__((nonnull));

/* Texts for tables. */
#define AGE_SIZE 32
void age_format(uint64_t time, uint64_t now, char ret_text[static AGE_SIZE]); /* "3 minutes ago"; "" for time 0 */
#define BYTES_SIZE 16
void bytes_format(uint64_t bytes, char ret_text[static BYTES_SIZE]); /* "1.5 MiB" */

#define SPAN_SIZE 24
void span_format(uint64_t seconds, char ret_text[static SPAN_SIZE]); /* "45s", "3m", "2h", "12d" */

/* How a state of a sandbox or an exec looks. */
Tone state_tone(const char *state) __attribute__((nonnull));

/* How many bytes the first @width characters of @text are. */
size_t text_prefix(const char *text, size_t width) __attribute__((nonnull));

/* @text with what could disturb a terminal replaced by "?". The caller frees it. */
char *text_printable(const char *text) __attribute__((nonnull, returns_nonnull));

/* @text as JSON writes it, with quotes. The caller frees it. */
char *json_quote(const char *text) __attribute__((nonnull, returns_nonnull));
