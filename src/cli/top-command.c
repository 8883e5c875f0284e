/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the table of `hutch top`, when it is shown anew, and the terminal meanwhile. What does not: where
 * the numbers come from (top-rows.c). */

#include "cli/top-command.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/exit-codes.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/top-rows.h"
#include "pbtext/pbtext.h"

#define DEFAULT_INTERVAL (2 * NSEC_PER_SEC)
#define FIRST_INTERVAL (500 * NSEC_PER_MSEC) /* between the two measurements that the first table needs */
#define LINES_ABOVE 2                        /* of the screen: the title, and that of the columns */

/* A screen of its own without a cursor; leaving it shows what was there before. */
#define SCREEN_ENTER "\033[?1049h\033[?25l"
#define SCREEN_LEAVE "\033[?25h\033[?1049l"
#define SCREEN_CLEAR "\033[H\033[J"

typedef struct SortKey {
        const char *name;
        int (*compare)(const void *a, const void *b);
        bool is_measured; /* it is known only when all were measured */
} SortKey;

typedef struct Top {
        const Arguments *arguments;
        Format format;
        const SortKey *sort;
        uint64_t interval;
        uint64_t iterations;
        bool is_screen; /* a terminal's, which is ours meanwhile */
        HutchClient *client;
        Signals signals; /* its fd is -1 where there is no screen */
        Terminal terminal;
        bool is_stale; /* the screen is, because its size is another */
        TopRows rows;  /* as last measured */
        char *problem; /* why they are old; NULL: they are not */
} Top;

/* ---- The order ---- */

static int compare_ids(const TopRow *a, const TopRow *b) {
        return strcmp(a->id, b->id);
}

static int compare_states(const void *a, const void *b) {
        int order = strcmp(((const TopRow *) a)->state, ((const TopRow *) b)->state);

        return order != 0 ? order : compare_ids(a, b);
}

static int compare_names(const void *a, const void *b) {
        return compare_ids(a, b);
}

/* What is more comes first. */
#define DEFINE_COMPARE(name, first, second)                                                                            \
        static int compare_##name(const void *a, const void *b) {                                                      \
                const TopRow *x = a, *y = b;                                                                           \
                                                                                                                       \
                if ((first) != (second))                                                                               \
                        return (first) > (second) ? -1 : 1;                                                            \
                return compare_ids(x, y);                                                                              \
        }

DEFINE_COMPARE(cpu, x->cpu, y->cpu)
DEFINE_COMPARE(memory, x->memory, y->memory)
DEFINE_COMPARE(processes, x->processes, y->processes)
DEFINE_COMPARE(disk, x->disk, y->disk)
DEFINE_COMPARE(execs, x->execs, y->execs)
DEFINE_COMPARE(ages, y->create_time, x->create_time)

static const SortKey sort_keys[] = {
        { "cpu", compare_cpu, true },
        { "memory", compare_memory, true },
        { "processes", compare_processes, true },
        { "disk", compare_disk, true },
        { "execs", compare_execs, false },
        { "age", compare_ages, false },
        { "state", compare_states, false },
        { "id", compare_names, false },
};

static const SortKey *find_sort_key(const char *name) {
        size_t i = 0;

        while (name && !str_equal(sort_keys[i].name, name))
                i++;
        return &sort_keys[i];
}

static void sort(const Top *top, TopRows *rows) {
        if (rows->n > 0)
                qsort(rows->items, rows->n, sizeof(rows->items[0]), top->sort->compare);
}

/* ---- The table ---- */

static void add_bytes(Printer *printer, bool is_known, uint64_t used, uint64_t limit) {
        char used_text[BYTES_SIZE] = "-", limit_text[BYTES_SIZE] = "-";

        if (is_known)
                bytes_format(used, used_text);
        if (limit > 0)
                bytes_format(limit, limit_text);
        printer_add_cellf(printer, TONE_PLAIN, "%s / %s", used_text, limit_text);
}

static void add_row(Printer *printer, const TopRow *row, uint64_t now) {
        char processes[SPAN_SIZE] = "-", limit[SPAN_SIZE] = "-", age[SPAN_SIZE];

        printer_add_cell(printer, TONE_PLAIN, row->id);
        printer_add_cell(printer, state_tone(row->state), row->state);
        if (row->is_measured && row->cpu >= 0)
                printer_add_cellf(printer, TONE_PLAIN, "%.1f%%", row->cpu);
        else
                printer_add_cell(printer, TONE_PLAIN, "-");
        add_bytes(printer, row->is_measured, row->memory, row->memory_limit);
        if (row->is_measured)
                (void) snprintf(processes, sizeof(processes), "%" PRIu64, row->processes);
        if (row->process_limit > 0)
                (void) snprintf(limit, sizeof(limit), "%" PRIu64, row->process_limit);
        printer_add_cellf(printer, TONE_PLAIN, "%s / %s", processes, limit);
        /* There is always something on the disk of one that is measured: 0 is what nobody measured. */
        add_bytes(printer, row->disk > 0, row->disk, row->disk_limit);
        printer_add_cellf(printer, TONE_PLAIN, "%" PRIu64, row->execs);
        span_format(now > row->create_time ? (now - row->create_time) / NSEC_PER_SEC : 0, age);
        printer_add_cell(printer, TONE_PLAIN, age);
}

/* How many rows are shown, and how wide: 0: as wide as they are. */
static size_t visible(const Top *top, uint32_t *ret_columns) {
        uint32_t lines = 0;

        *ret_columns = 0;
        if (isatty(STDOUT_FILENO))
                terminal_size(&lines, ret_columns);
        if (!top->is_screen || lines == 0)
                return SIZE_MAX;
        return lines > LINES_ABOVE ? lines - LINES_ABOVE : 0;
}

static void print_title(const Top *top, size_t shown, uint32_t columns) {
        char title[256];
        int width = columns > 0 ? (int) columns : (int) sizeof(title);

        if (top->problem)
                (void) snprintf(title, sizeof(title), "%s", top->problem);
        else
                (void) snprintf(title, sizeof(title), "%zu sandboxes, %zu shown, by %s, every %g s; q: end",
                                top->rows.n, shown, top->sort->name, (double) top->interval / NSEC_PER_SEC);
        (void) printf(SCREEN_CLEAR "%.*s\n", width, title);
}

static void print_rows(const Top *top) {
        Printer printer = printer_new(top->format, "SANDBOX", "STATE", "CPU", "MEMORY / LIMIT", "PROCS / LIMIT",
                                      "DISK / LIMIT", "EXECS", "AGE");
        uint64_t now = clock_realtime_ns();
        uint32_t columns;
        size_t n = visible(top, &columns);

        n = n < top->rows.n ? n : top->rows.n;
        printer.width = columns;
        for (size_t i = 0; i < n; i++) {
                const TopRow *row = &top->rows.items[i];

                if (!row->message || !printer_add_message(&printer, row->message))
                        add_row(&printer, row, now);
        }
        if (top->is_screen)
                print_title(top, n, columns);
        printer_end(&printer);
        (void) fflush(stdout);
}

/* ---- The terminal ---- */

static void screen_enter(Top *top) {
        terminal_take_keys(&top->terminal);
        (void) fputs(SCREEN_ENTER, stdout);
        (void) fflush(stdout);
}

static void screen_leave(Top *top) {
        if (!top->is_screen)
                return;
        (void) fputs(SCREEN_LEAVE, stdout);
        (void) fflush(stdout);
        terminal_restore(&top->terminal);
}

/* -EINTR: the key, or the end of the terminal, asks to end. */
static int take_key(void) {
        char key = 0;
        ssize_t n = read(STDIN_FILENO, &key, 1);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        return n <= 0 || key == 'q' || key == 'Q' ? -EINTR : 0;
}

static int take_signal(Top *top) {
        int number = signals_take(&top->signals);

        if (signals_note_end(&top->signals, number))
                return -EINTR;
        /* Whoever had the terminal meanwhile may have left it in any mode. */
        if (number == SIGCONT)
                screen_enter(top);
        top->is_stale = true;
        return 0;
}

/* Waits for whatever comes first, for @timeout milliseconds at most. -EINTR when it is to end. */
static int hear(Top *top, int timeout) {
        int client_timeout = hutch_client_timeout(top->client);
        struct pollfd fds[] = {
                { .fd = hutch_client_fd(top->client), .events = POLLIN },
                { .fd = top->signals.fd, .events = POLLIN },
                { .fd = top->is_screen ? STDIN_FILENO : -1, .events = POLLIN },
        };
        int r = 0;

        if (timeout < 0 || (client_timeout >= 0 && client_timeout < timeout))
                timeout = client_timeout;
        (void) poll(fds, sizeof(fds) / sizeof(fds[0]), timeout);
        hutch_client_dispatch(top->client);
        if (fds[1].revents)
                r = take_signal(top);
        if (r == 0 && fds[2].revents)
                r = take_key();
        return r;
}

static int wait_for_answers(void *user) {
        return hear(user, -1);
}

static int rest(Top *top, uint64_t duration) {
        uint64_t end = clock_monotonic_ns() + duration, now;

        while ((now = clock_monotonic_ns()) < end) {
                uint64_t left = (end - now) / NSEC_PER_MSEC + 1;
                int r = hear(top, left < INT32_MAX ? (int) left : INT32_MAX);

                if (r < 0)
                        return r;
                if (top->is_stale)
                        print_rows(top);
                top->is_stale = false;
        }
        return 0;
}

/* ---- Measuring ---- */

static int measure(Top *top, HutchError **ret_error) {
        const TopAsker asker = { .client = top->client, .wait = wait_for_answers, .user = top };
        const Arguments *arguments = top->arguments;
        _cleanup_(top_rows_clear) TopRows rows = {};
        uint32_t columns;
        size_t n = visible(top, &columns);
        int r = 0;

        if (arguments->n_operands > 0)
                rows = top_rows_of(arguments->operands, arguments->n_operands);
        else
                r = top_rows_list(&asker, &rows, ret_error);
        if (r < 0)
                return r;

        /* Only those that are seen are measured, where the order is known before. */
        if (arguments->n_operands > 0 || top->sort->is_measured)
                n = rows.n;
        else
                sort(top, &rows);
        r = top_rows_measure(&asker, rows.items, n < rows.n ? n : rows.n, ret_error);
        if (r < 0)
                return r;

        top_rows_compare(&rows, &top->rows);
        sort(top, &rows);
        top_rows_clear(&top->rows);
        top->rows = rows;
        rows = (TopRows){};
        return 0;
}

/* Measures anew. A daemon that cannot be reached now is waited for while there is a screen to say so. */
static int refresh(Top *top, HutchError **ret_error) {
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        int r = measure(top, &error);

        top->problem = (free(top->problem), NULL);
        if (r >= 0 || r == -EINTR)
                return r;
        if (!top->is_screen || !error || hutch_error_code(error) != HUTCH_UNAVAILABLE) {
                *ret_error = TAKE_PTR(error);
                return r;
        }

        top->problem = text_printable(hutch_error_message(error));
        return 0;
}

static int show(Top *top, HutchError **ret_error) {
        uint64_t first = top->interval < FIRST_INTERVAL ? top->interval : FIRST_INTERVAL;
        int r = 0;

        /* How much of the CPU is used takes two looks. Programs have the time that was used, and when. */
        if (top->format == FORMAT_TABLE) {
                r = refresh(top, ret_error);
                if (r >= 0)
                        r = rest(top, first);
        }
        for (uint64_t i = 0; i < top->iterations && r >= 0; i++) {
                r = i > 0 ? rest(top, top->interval) : 0;
                if (r >= 0)
                        r = refresh(top, ret_error);
                if (r >= 0 && top->format == FORMAT_YAML && i > 0)
                        (void) puts("---");
                if (r >= 0)
                        print_rows(top);
        }
        return r;
}

/* ---- The command ---- */

static int read_iterations(Top *top, HutchError *err) {
        const char *text = arguments_get(top->arguments, "iterations");
        char *end;

        top->iterations = top->is_screen ? UINT64_MAX : 1;
        if (!text)
                return 0;
        if (arguments_have(top->arguments, "once"))
                return error_set(err, -EINVAL, "USAGE", "--once and --iterations exclude each other");

        errno = 0;
        top->iterations = strtoull(text, &end, 10);
        if (!ascii_is_digit(text[0]) || *end || errno || top->iterations == 0)
                return error_set(err, -EINVAL, "USAGE", "--iterations cannot be '%s'; it is a number from 1", text);
        return 0;
}

static int read_options(Top *top, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *request = contract_message("GetSandboxRequest");
        const Arguments *arguments = top->arguments;
        const char *term = getenv("TERM");
        int r = arguments_get_duration(arguments, "interval", &top->interval, err);

        for (size_t i = 0; i < arguments->n_operands && r >= 0; i++)
                r = message_set(request, "sandbox_id", arguments->operands[i], err);
        if (r < 0)
                return r;

        top->interval = top->interval > 0 ? top->interval : DEFAULT_INTERVAL;
        top->is_screen = top->format == FORMAT_TABLE && !arguments_have(arguments, "once") &&
                         terminal_is_interactive() && term && !str_equal(term, "dumb");
        return read_iterations(top, err);
}

int command_top(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        Top top = {
                .arguments = arguments,
                .format = output_format(arguments),
                .sort = find_sort_key(arguments_get(arguments, "sort")),
                .signals.fd = -1,
        };
        int r;

        if (read_options(&top, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        top.client = client;
        if (top.is_screen) {
                r = signals_open(&top.signals);
                if (r < 0)
                        top.is_screen = false;
                else
                        screen_enter(&top);
        }
        r = show(&top, &error);
        screen_leave(&top);
        top_rows_clear(&top.rows);
        free(top.problem);
        if (r < 0 && r != -EINTR)
                return report_error(error, NULL, EXIT_FAILURE);
        /* Ctrl-C is how people end it. */
        return top.signals.end && top.signals.end != SIGINT ? EXIT_SIGNAL + top.signals.end : EXIT_SUCCESS;
}
