/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: waiting for what processes are started with, and forking them. What does not: what they do then
 * (main.c), and reading any of it in the nest, which has the same memory for the next one. */

#include "keeper/keeper/nest.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "base/memory.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/root/shared-sys.h"

#define SOCKET STDOUT_FILENO         /* so that what comes has the numbers that it is to have */
#define FIRST_FD (STDERR_FILENO + 1) /* of that */

static bool tell(pid_t pid) {
        return send(SOCKET, &pid, sizeof(pid), MSG_NOSIGNAL) == sizeof(pid);
}

/* Puts the arguments that @fd holds, each with its NUL, behind the name of the program. */
static void take_arguments(int fd, int *argc, char **argv[]) {
        struct stat st;
        char *text = fstat(fd, &st) < 0 ? MAP_FAILED : mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text == MAP_FAILED)
                _exit(1);

        const char *end = text + st.st_size;
        char **all = new0(char *, (size_t) st.st_size + 2);
        int n = 0;
        all[n++] = (*argv)[0];
        for (; text < end; text += strlen(text) + 1)
                all[n++] = text;
        *argc = n;
        *argv = all;
}

/* Becomes what would have been executed. The last of @n descriptors is for standard error, and the one before it for
 * arguments, if there are any. */
static void settle(bool has_arguments, int n, int *argc, char **argv[]) {
        int log = FIRST_FD + n - 1, arguments = log - 1;
        sigset_t none;

        (void) prctl(PR_SET_NAME, "hutch-keeper", 0, 0, 0);
        memset((*argv)[1], 0, strlen((*argv)[1]));
        *argc = 1;
        /* Nobody waits for it any more when hutchd is gone, or has given up on it. */
        if (!tell(getpid()))
                _exit(1);

        if (has_arguments)
                take_arguments(arguments, argc, argv);
        (void) setsid();
        (void) dup2(log, STDOUT_FILENO);
        (void) dup2(log, STDERR_FILENO);
        (void) close_range((unsigned) (has_arguments ? arguments : log), ~0U, 0);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

bool nest_wait(int *argc, char **argv[]) {
        int fds[PASSED_FDS_MAX], n;
        bool has_arguments;

        (void) prctl(PR_SET_NAME, "hutch-nest", 0, 0, 0);
        (void) dup2(NEST_FD, SOCKET);
        (void) close_range(FIRST_FD, ~0U, 0);
        shared_sys_make();
        while ((n = fds_receive(SOCKET, &has_arguments, sizeof(has_arguments), fds, PASSED_FDS_MAX)) >= 0 ||
               n == -EBADMSG) {
                bool is_whole = n > 0 && fds[0] == FIRST_FD && fds[n - 1] == FIRST_FD + n - 1;
                pid_t pid = is_whole ? process_clone(CLONE_PARENT, -1, NULL) : -EBADMSG;

                if (pid == 0) {
                        settle(has_arguments, n, argc, argv);
                        return true;
                }
                if (pid < 0)
                        (void) tell(pid);
                (void) close_range(FIRST_FD, ~0U, 0);
        }
        return false;
}
