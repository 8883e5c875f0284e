/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the terminal's modes and size. What does not: what is typed and shown (session.c). */

#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_is_interactive(void) {
        return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void terminal_make_raw(Terminal *terminal) {
        struct termios raw;

        if (!terminal->raw && tcgetattr(STDIN_FILENO, &terminal->before) < 0)
                return;

        raw = terminal->before;
        cfmakeraw(&raw);
        terminal->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void terminal_take_keys(Terminal *terminal) {
        struct termios keys;

        if (!terminal->raw && tcgetattr(STDIN_FILENO, &terminal->before) < 0)
                return;

        keys = terminal->before;
        keys.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
        keys.c_cc[VMIN] = 1;
        keys.c_cc[VTIME] = 0;
        keys.c_cc[VSUSP] = _POSIX_VDISABLE;
        terminal->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
}

void terminal_restore(Terminal *terminal) {
        if (terminal->raw)
                (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal->before);
        terminal->raw = false;
}

void terminal_size(uint32_t *ret_rows, uint32_t *ret_columns) {
        struct winsize size = {};

        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (ioctl(fd, TIOCGWINSZ, &size) == 0)
                        break;
        *ret_rows = size.ws_row;
        *ret_columns = size.ws_col;
}
