/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: asking another program of Hutch's for a line. What does not: where programs are
 * (local/program.c). */

#include "cli/program-line.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

int program_line(const char *program, const char *flag, char *ret_line, size_t size) {
        char *const argv[] = { (char *) program, (char *) flag, NULL };
        posix_spawn_file_actions_t actions;
        int fds[2], status, r;
        ssize_t n;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;

        (void) posix_spawn_file_actions_init(&actions);
        (void) posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        r = posix_spawn(&pid, program, &actions, NULL, argv, environ);
        (void) posix_spawn_file_actions_destroy(&actions);
        (void) fd_close(fds[1]);
        n = r == 0 ? read(fds[0], ret_line, size - 1) : 0;
        (void) fd_close(fds[0]);
        if (r != 0)
                return -r;

        ret_line[n > 0 ? n : 0] = '\0';
        ret_line[strcspn(ret_line, "\n")] = '\0';
        return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EIO;
}
