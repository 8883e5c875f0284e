/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading from pipes and terminals. What does not: how bytes are kept (output/output-file.h). */

#include "keeper/execs/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "keeper/loop.h"
#include "output/output-file.h"

#define PIECE 65536        /* bytes that are read at once: what a pipe holds */
#define LAST_PIECES_MAX 64 /* that are read of a source that does not end */

struct Pump {
        int source;
        int folder;
        char *name;          /* NULL: what comes is thrown away */
        OutputWriter writer; /* its fd is the pump's; -1: there is no file yet */
        Watch *watch;        /* NULL: the source has ended */
        PumpBudget *budget;
        PumpWaiter waiter;
        bool write_failed;
        void (*ended)(void *user);
        void *user;
};

static void pump_write(Pump *pump, const void *bytes, size_t len) {
        int r;

        if (!pump->name)
                return;

        if (pump->writer.fd < 0)
                pump->writer.fd =
                        openat(pump->folder, pump->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        r = output_writer_add(&pump->writer, bytes, len);
        if (r < 0 && !pump->write_failed)
                log_warning("output is lost", LOG_INT("error", -r));
        pump->write_failed = r < 0;
}

/* Carries a piece. Returns 1, or 0 when there is nothing now, or -EPIPE when the source has ended. */
static int pump_carry(Pump *pump) {
        static char buffer[PIECE]; /* shared: it is empty between two calls */
        ssize_t n;

        do
                n = read(pump->source, buffer, sizeof(buffer));
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return 0;
        /* A terminal that nobody has open any more says EIO. */
        if (n <= 0)
                return -EPIPE;

        pump_write(pump, buffer, (size_t) n);
        return 1;
}

static void pump_discard(Pump *pump) {
        pump_waiter_leave(&pump->waiter);
        watch_free(pump->watch);
        fd_close(pump->source);
        fd_close(pump->writer.fd);
        free(pump->name);
        free(pump);
}

static void go_on(void *user) {
        Pump *pump = user;

        watch_set_active(pump->watch, true);
}

static void on_readable(void *user) {
        Pump *pump = user;

        if (pump_carry(pump) >= 0) {
                bool spent = pump_budget_is_spent(pump->budget);

                /* After an error that was none for the reader it is not active. */
                watch_set_active(pump->watch, !spent);
                if (spent)
                        pump_budget_wait(pump->budget, &pump->waiter);
                return;
        }

        pump->watch = watch_free(pump->watch);
        if (pump->ended)
                pump->ended(pump->user);
        else
                pump_discard(pump);
}

Pump *pump_new(uv_loop_t *loop, PumpBudget *budget, int source, int folder, const char *name, uint64_t limit,
               void (*ended)(void *user), void *user) {
        Pump *pump = new0(Pump, 1);

        pump->budget = budget;
        pump->waiter = (PumpWaiter){ .go_on = go_on, .user = pump };
        pump->source = source;
        pump->folder = folder;
        pump->name = xstrdup(name);
        pump->ended = ended;
        pump->user = user;
        output_writer_init(&pump->writer, -1, limit);
        pump->watch = watch_new(loop, source, UV_READABLE, on_readable, pump);
        if (!pump->watch) {
                pump_discard(pump);
                return NULL;
        }
        return pump;
}

uint64_t pump_total(const Pump *pump) {
        return pump->writer.total;
}

uint64_t pump_dropped(const Pump *pump) {
        return output_window_dropped(output_window(pump->writer.limit, pump->writer.total));
}

void pump_catch_up(Pump *pump) {
        for (int i = 0; i < LAST_PIECES_MAX && pump->watch && pump_carry(pump) > 0; i++)
                ;
}

Pump *pump_free(Pump *pump) {
        if (!pump)
                return NULL;

        if (!pump->watch) {
                pump_discard(pump);
                return NULL;
        }

        pump->ended = NULL;
        pump->name = (free(pump->name), NULL);
        pump->writer.fd = fd_close(pump->writer.fd);
        return NULL;
}
