/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: both ends of the socket through which a process that waits is told what to execute. What does not:
 * when it is worth having one (keeper.c), and how the program is executed (spawn.c). */

#include "keeper/execs/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/strings.h"
#include "keeper/box/kept-sandbox.h"

#define ORDER_MAX 65536 /* bytes */
#define FD_SAFE_FROM 16

/* What it has while it waits. Those before are closed, and so they are the first that it is sent. */
enum { ERROR_FD = STDERR_FILENO + 1, SOCKET_FD };

/* The files that tell who a user is, inside. */
static const char *const user_files[] = { "etc/passwd", "etc/group" };

#define N_USER_FILES (sizeof(user_files) / sizeof(user_files[0]))

/* What changes whenever a file does. */
typedef struct Stamp {
        dev_t device;
        ino_t inode;
        struct timespec time;
} Stamp;

struct Starter {
        const KeptSandbox *sandbox;
        char *user;
        Stamp stamps[N_USER_FILES];
        pid_t pid;
        int pidfd, error_fd, socket;
};

/* What it is told, with its stdin, stdout and stderr. The texts follow, each with its NUL: the working directory, the
 * arguments and the environment. */
typedef struct Order {
        uint32_t n_arguments, n_variables;
        bool set_home, set_user, files_must_not_grow;
} Order;

#define N_STREAMS 3

typedef union Control {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(N_STREAMS * sizeof(int))];
} Control;

/* ---- In the process ---- */

static char order_bytes[ORDER_MAX];

static int arrange_fds(int error_fd, int socket) {
        int safe_error = fcntl(error_fd, F_DUPFD_CLOEXEC, FD_SAFE_FROM);
        int safe_socket = fcntl(socket, F_DUPFD_CLOEXEC, FD_SAFE_FROM);
        if (safe_error < 0 || safe_socket < 0)
                return -errno;
        if (dup3(safe_error, ERROR_FD, O_CLOEXEC) < 0 || dup3(safe_socket, SOCKET_FD, O_CLOEXEC) < 0)
                return -errno;
        if (close_range(0, ERROR_FD - 1, 0) < 0 || close_range(SOCKET_FD + 1, UINT_MAX, 0) < 0)
                return -errno;
        return 0;
}

/* Waits for an order, and has the streams that come with it. Returns false if there will be none. */
static bool receive(void) {
        Control control;
        struct iovec part = { .iov_base = order_bytes, .iov_len = sizeof(order_bytes) };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        static const int streams[N_STREAMS] = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO };
        ssize_t n = recvmsg(SOCKET_FD, &message, 0);
        const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        return n > (ssize_t) sizeof(Order) && head && head->cmsg_len == CMSG_LEN(sizeof(streams)) &&
               memcmp(CMSG_DATA(head), streams, sizeof(streams)) == 0;
}

/* The @n texts from @at on, ended with NULL. */
static char **take_texts(char **at, uint32_t n) {
        char **texts = new0(char *, n + 1);
        for (uint32_t i = 0; i < n; i++) {
                texts[i] = *at;
                *at += strlen(*at) + 1;
        }
        return texts;
}

static void run(const KeptSandbox *sandbox, const SpawnPlan *own, int error_fd) {
        Order order;
        if (arrange_fds(error_fd, own->stdin_fd) < 0)
                return;
        const User *user = spawned_give_up(sandbox, own, ERROR_FD);
        if (!receive())
                return;

        memcpy(&order, order_bytes, sizeof(order));
        char *at = order_bytes + sizeof(order);
        SpawnPlan plan = {
                .set_home = order.set_home,
                .set_user = order.set_user,
                .working_directory = at,
                .files_must_not_grow = order.files_must_not_grow,
        };
        at += strlen(at) + 1;
        plan.argv = take_texts(&at, order.n_arguments);
        plan.environment = take_texts(&at, order.n_variables);
        spawned_execute(&plan, user, ERROR_FD);
}

/* ---- In the keeper ---- */

/* All zero for a file that is not there. */
static int stamp_files(const KeptSandbox *sandbox, Stamp ret_stamps[static N_USER_FILES]) {
        struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        for (size_t i = 0; i < N_USER_FILES; i++) {
                _cleanup_close_ int fd = (int) syscall(SYS_openat2, sandbox->root, user_files[i], &how, sizeof(how));
                struct stat status = {};
                if (fd < 0 ? errno != ENOENT : fstat(fd, &status) < 0)
                        return -errno;
                ret_stamps[i] = (Stamp){ status.st_dev, status.st_ino, status.st_ctim };
        }
        return 0;
}

int starter_new(KeptSandbox *sandbox, ExecGroup *group, const char *user, Starter **ret_starter, HutchError *err) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set(err, -errno, "HOST_EXHAUSTED", "cannot make a socket: %s", strerror(errno));
        _cleanup_close_ int ours = pair[0], its = pair[1];
        const SpawnPlan plan = { .group = group, .user = user, .stdin_fd = its, .run = run };
        _cleanup_free_ Starter *starter = new0(Starter, 1);
        starter->sandbox = sandbox;
        int r = stamp_files(sandbox, starter->stamps);
        if (r < 0)
                return error_set(err, r, "INTERNAL", "cannot look at the sandbox's users: %s", strerror(-r));
        starter->pid = sandbox_spawn(sandbox, &plan, &starter->pidfd, &starter->error_fd, err);
        if (starter->pid < 0)
                return (int) starter->pid;
        starter->socket = TAKE_FD(ours);
        starter->user = xstrdup(user);
        *ret_starter = TAKE_PTR(starter);
        return 0;
}

Starter *starter_free(Starter *starter) {
        if (!starter)
                return NULL;
        (void) pidfd_send_signal(starter->pidfd, SIGKILL, NULL, 0);
        while (waitpid(starter->pid, NULL, __WALL) < 0 && errno == EINTR)
                ;
        fd_close(starter->socket);
        fd_close(starter->pidfd);
        fd_close(starter->error_fd);
        free(starter->user);
        free(starter);
        return NULL;
}

bool starter_fits(const Starter *starter, const char *user) {
        if (!str_equal(starter->user, user))
                return false;
        Stamp stamps[N_USER_FILES] = {};
        if (stamp_files(starter->sandbox, stamps) < 0)
                return false;
        for (size_t i = 0; i < N_USER_FILES; i++) {
                const Stamp *known = &starter->stamps[i], *now = &stamps[i];
                if (now->device != known->device || now->inode != known->inode ||
                    now->time.tv_sec != known->time.tv_sec || now->time.tv_nsec != known->time.tv_nsec)
                        return false;
        }
        return true;
}

int starter_pidfd(const Starter *starter) {
        return starter->pidfd;
}

/* An order as it is written. */
typedef struct Writer {
        uint8_t bytes[ORDER_MAX];
        size_t len;
        bool is_full;
} Writer;

static void put(Writer *writer, const void *bytes, size_t len) {
        writer->is_full = writer->is_full || len > sizeof(writer->bytes) - writer->len;
        if (writer->is_full)
                return;
        memcpy(writer->bytes + writer->len, bytes, len);
        writer->len += len;
}

static void put_text(Writer *writer, const char *text) {
        put(writer, text, strlen(text) + 1);
}

static uint32_t count(char *const *texts) {
        uint32_t n = 0;
        while (texts[n])
                n++;
        return n;
}

static int write_order(Writer *writer, const SpawnPlan *plan) {
        const Order order = {
                .n_arguments = count(plan->argv),
                .n_variables = count(plan->environment),
                .set_home = plan->set_home,
                .set_user = plan->set_user,
                .files_must_not_grow = plan->files_must_not_grow,
        };
        writer->len = 0;
        writer->is_full = false;
        put(writer, &order, sizeof(order));
        put_text(writer, plan->working_directory);
        for (uint32_t i = 0; i < order.n_arguments; i++)
                put_text(writer, plan->argv[i]);
        for (uint32_t i = 0; i < order.n_variables; i++)
                put_text(writer, plan->environment[i]);
        return writer->is_full ? -EMSGSIZE : 0;
}

pid_t starter_start(Starter *starter, const SpawnPlan *plan, int *ret_pidfd, int *ret_error_fd) {
        static Writer writer;
        const int streams[N_STREAMS] = { plan->stdin_fd, plan->stdout_fd, plan->stderr_fd };
        int r = write_order(&writer, plan);
        if (r >= 0)
                r = fds_send(starter->socket, writer.bytes, writer.len, streams, N_STREAMS);
        if (r < 0)
                return r;
        pid_t pid = starter->pid;
        *ret_pidfd = starter->pidfd;
        *ret_error_fd = starter->error_fd;
        fd_close(starter->socket);
        free(starter->user);
        free(starter);
        return pid;
}
