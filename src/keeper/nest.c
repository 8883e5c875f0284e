/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: waiting for what keepers are started with, and forking them. What does not: what they do then
 * (main.c), and reading any of it: the nest has the same memory for the next one. */

#include "keeper/nest.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "keeper/kept-sandbox.h"

#define SOCKET STDOUT_FILENO         /* so that what comes is numbered as a keeper has it */
#define FIRST_FD (STDERR_FILENO + 1) /* of that; the last is the log */

static bool tell(pid_t pid) {
        return send(SOCKET, &pid, sizeof(pid), MSG_NOSIGNAL) == sizeof(pid);
}

static void become_keeper(int log, char *verb) {
        sigset_t none;

        (void) prctl(PR_SET_NAME, "hutch-keeper", 0, 0, 0);
        memset(verb, 0, strlen(verb));
        /* Nobody waits for a keeper any more when hutchd is gone, or has given up on it. */
        if (!tell(getpid()))
                _exit(1);

        (void) setsid();
        (void) dup2(log, STDOUT_FILENO);
        (void) dup2(log, STDERR_FILENO);
        (void) close_range((unsigned) log, ~0U, 0);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

bool nest_wait(char *verb) {
        int fds[PASSED_FDS_MAX], n;
        char byte;

        (void) prctl(PR_SET_NAME, "hutch-nest", 0, 0, 0);
        (void) dup2(NEST_FD, SOCKET);
        (void) close_range(FIRST_FD, ~0U, 0);
        while ((n = fds_receive(SOCKET, &byte, 1, fds, PASSED_FDS_MAX)) >= 0 || n == -EBADMSG) {
                bool is_whole = n > 0 && fds[0] == FIRST_FD && fds[n - 1] == FIRST_FD + n - 1;
                pid_t pid = is_whole ? process_clone(CLONE_PARENT, -1, NULL) : -EBADMSG;

                if (pid == 0) {
                        become_keeper(fds[n - 1], verb);
                        return true;
                }
                if (pid < 0)
                        (void) tell(pid);
                (void) close_range(FIRST_FD, ~0U, 0);
        }
        return false;
}
