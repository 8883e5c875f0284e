/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which signals are read and what they mean for what is under way. What does not: passing them on
 * (session.c). */

#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/exit-codes.h"

#define PATIENCE (10 * NSEC_PER_SEC)

/* Whether who started us wants it ignored, as nohup(1) does, and shells for what they start in the background. */
static bool is_ignored(int number) {
        struct sigaction action;

        return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int signals_open(Signals *ret_signals) {
        static const int read_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT };
        sigset_t set;
        int fd;

        (void) sigemptyset(&set);
        for (size_t i = 0; i < sizeof(read_signals) / sizeof(read_signals[0]); i++)
                if (!is_ignored(read_signals[i]))
                        (void) sigaddset(&set, read_signals[i]);
        fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd < 0)
                return -errno;

        (void) sigaddset(&set, SIGPIPE);
        (void) pthread_sigmask(SIG_BLOCK, &set, NULL);
        *ret_signals = (Signals){ .fd = fd, .given_up = UINT64_MAX };
        return 0;
}

int signals_take(Signals *signals) {
        struct signalfd_siginfo info;

        return read(signals->fd, &info, sizeof(info)) == sizeof(info) ? (int) info.ssi_signo : 0;
}

int signals_note_end(Signals *signals, int number) {
        if (number == 0 || number == SIGWINCH || number == SIGCONT)
                return 0;

        signals->given_up = signals->end ? 0 : clock_monotonic_ns() + PATIENCE;
        signals->end = signals->end ? signals->end : number;
        return 1;
}

int signals_timeout(const Signals *signals) {
        uint64_t now = clock_monotonic_ns();

        if (signals->given_up == UINT64_MAX)
                return -1;
        return signals->given_up <= now ? 0 : (int) ((signals->given_up - now) / NSEC_PER_MSEC) + 1;
}

typedef struct Task {
        int (*function)(void *user);
        void *user;
        int result;
        int done; /* an eventfd */
} Task;

static void *run_task(void *user) {
        Task *task = user;

        task->result = task->function(task->user);
        (void) eventfd_write(task->done, 1);
        return NULL;
}

int signals_call(Signals *signals, int (*function)(void *user), void *user) {
        _cleanup_close_ int done = eventfd(0, EFD_CLOEXEC);
        Task *task = new0(Task, 1);
        pthread_t thread;
        int r;

        *task = (Task){ .function = function, .user = user, .done = done };
        /* Who was asked to end before this began has as long as anybody. */
        signals->given_up = signals->end ? clock_monotonic_ns() + PATIENCE : UINT64_MAX;
        if (done < 0 || pthread_create(&thread, NULL, run_task, task) != 0) {
                free(task);
                return function(user);
        }

        for (;;) {
                struct pollfd fds[] = { { .fd = done, .events = POLLIN }, { .fd = signals->fd, .events = POLLIN } };

                (void) poll(fds, 2, signals_timeout(signals));
                if (fds[0].revents)
                        break;
                (void) signals_note_end(signals, signals_take(signals));
                if (signals_timeout(signals) == 0) {
                        (void) TAKE_FD(done); /* the task still has both */
                        return -EINTR;
                }
        }

        (void) pthread_join(thread, NULL);
        r = task->result;
        free(task);
        return r;
}

void signals_end_by_pipe(void) {
        sigset_t set;

        (void) sigemptyset(&set);
        (void) sigaddset(&set, SIGPIPE);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) raise(SIGPIPE);
        (void) pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        _exit(EXIT_SIGNAL + SIGPIPE); /* where it is ignored */
}
