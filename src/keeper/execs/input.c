/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: writing to pipes and terminals without waiting. What does not: who sends what. */

#include "keeper/execs/input.h"

#include <errno.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "keeper/loop.h"

struct Input {
        int fd; /* -1: closed, by a sender or by the process */
        bool terminal;
        Watch *watch;
        InputItem *first, **last; /* the first may be written in part */
};

static void input_close(Input *input) {
        input->watch = watch_free(input->watch);
        input->fd = fd_close(input->fd);
}

/* Writes what there is room for. Returns whether all of @item is. */
static bool write_item(Input *input, InputItem *item) {
        while (item->len > 0 && input->fd >= 0) {
                ssize_t n = write(input->fd, item->bytes, item->len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return false;
                if (n < 0) {
                        input_close(input);
                        break;
                }
                item->bytes = (const char *) item->bytes + n;
                item->len -= (size_t) n;
        }
        return true;
}

/* Ends the input. Returns false when there is no room for that. */
static bool write_end(Input *input) {
        struct termios settings;

        if (input->fd < 0)
                return true;
        if (input->terminal && tcgetattr(input->fd, &settings) == 0 && write(input->fd, &settings.c_cc[VEOF], 1) < 0 &&
            errno == EAGAIN)
                return false;

        input_close(input);
        return true;
}

static void input_run(Input *input) {
        while (input->first) {
                InputItem *item = input->first;

                if (!write_item(input, item) || (item->close && !write_end(input))) {
                        watch_set_active(input->watch, true);
                        return;
                }
                input_item_remove(item);
                item->taken(item);
        }
        if (input->watch)
                watch_set_active(input->watch, false);
}

static void on_writable(void *user) {
        input_run(user);
}

Input *input_new(uv_loop_t *loop, int fd, bool terminal) {
        Input *input = new0(Input, 1);

        input->fd = fd;
        input->terminal = terminal;
        input->last = &input->first;
        input->watch = watch_new(loop, fd, UV_WRITABLE, on_writable, input);
        if (!input->watch)
                return input_free(input);

        watch_set_active(input->watch, false);
        return input;
}

Input *input_free(Input *input) {
        if (!input)
                return NULL;

        input_close(input);
        input_run(input);
        free(input);
        return NULL;
}

void input_send(Input *input, InputItem *item) {
        item->input = input;
        item->next = NULL;
        *input->last = item;
        input->last = &item->next;
        if (input->first == item)
                input_run(input);
}

void input_item_remove(InputItem *item) {
        Input *input = item->input;

        if (!input)
                return;

        for (InputItem **at = &input->first; *at; at = &(*at)->next)
                if (*at == item) {
                        *at = item->next;
                        if (input->last == &item->next)
                                input->last = at;
                        break;
                }
        item->input = NULL;
}
