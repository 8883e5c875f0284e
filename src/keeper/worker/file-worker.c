/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the process that does file work: how it comes to be in the sandbox, what it gives up, and its loop.
 * What does not: its stream (file-stream.c), its methods (file-methods.h), and the keeper's side of it (file-pool.c).
 *
 * Its uid stays the keeper's, which nobody inside has and so nobody inside can signal; files know it by the uid of the
 * sandbox's user. Without root there is one uid only: then it can be killed from inside, and its call fails. */

#include "keeper/worker/file-worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/box/kept-sandbox.h"
#include "keeper/box/privileges.h"
#include "keeper/box/user.h"
#include "keeper/worker/file-layers.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/file-process.h"
#include "model/reason.h"

#define ROOT_FD 0
#define SOCKET_FD 3
#define KEPT_FD 4
#define IMAGE_FD 5
#define UPPER_FD 6
#define FD_SAFE_FROM 16
#define SOCKET_BUFFER (4 * FILE_CHUNK) /* bytes; the kernel takes twice that */

/* ---- In the worker ---- */

/* Its plan has the socket and the layers, in the place of the standard descriptors. */
static bool sees_layers(const SpawnPlan *plan) {
        return plan->stdout_fd >= 0 && plan->stderr_fd >= 0;
}

void file_worker_serve(int socket) {
        _cleanup_(file_stream_freep) FileStream *stream = file_stream_new(socket);
        FileBegin begin;
        while (file_stream_begin(stream, &begin) >= 0) {
                _cleanup_(error_clear) HutchError err = {};
                int r = begin.method < n_file_methods ? file_methods[begin.method].run(stream, &err) : -ENOSYS;
                if (file_stream_end(stream, r, &err, false) < 0)
                        return;
        }
}

/* Leaves the socket, the layers of a worker that sees them, and, in the place of the standard descriptors, the root,
 * which nothing can be read from or written to: what libc has to say when it aborts must not get into somebody's
 * file. */
static int arrange_fds(const KeptSandbox *sandbox, const SpawnPlan *plan) {
        const int wanted[] = { plan->stdin_fd, plan->stdout_fd, plan->stderr_fd, sandbox->upper };
        int n = !sees_layers(plan) ? 1 : sandbox->upper >= 0 ? 4 : 3, safe[4];
        for (int i = 0; i < n; i++) {
                safe[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, FD_SAFE_FROM);
                if (safe[i] < 0)
                        return -errno;
        }
        for (int i = 0; i < n; i++)
                if (dup3(safe[i], SOCKET_FD + i, O_CLOEXEC) < 0)
                        return -errno;
        if (close_range((unsigned) (SOCKET_FD + n), UINT_MAX, 0) < 0)
                return -errno;
        _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        for (int i = 0; i < SOCKET_FD; i++)
                if (dup3(root, i, O_CLOEXEC) < 0)
                        return -errno;
        return 0;
}

/* Has files know the process as @user. */
static int become(const KeeperConfig *config, const User *user) {
        if (config->uid_count > 1 && setgroups(user->n_groups, user->groups) < 0)
                return -errno;
        /* They tell of nothing but what was before. */
        (void) setfsgid(user->gid);
        (void) setfsuid(user->uid);
        if (setfsgid((gid_t) -1) != (int) user->gid || setfsuid((uid_t) -1) != (int) user->uid)
                return -EPERM;
        return 0;
}

static int fail(HutchError *err, int r) {
        return reason_set(err, r, reason_from_errno(r), "cannot prepare a file worker: %s", strerror(-r));
}

static int prepare(const KeptSandbox *sandbox, const SpawnPlan *plan, HutchError *err) {
        _cleanup_(user_freep) User *user = NULL;
        int r = arrange_fds(sandbox, plan);
        if (r < 0)
                return fail(err, r);
        r = user_find(plan->user, &user);
        if (r == -ENOENT)
                return reason_set(err, r, REASON_USER_NOT_FOUND, "the sandbox has no user or group “%s”", plan->user);
        if (r < 0)
                return fail(err, r);
        r = privileges_bound(0);
        if (r < 0)
                return fail(err, r);
        r = become(sandbox->config, user);
        if (r < 0)
                return reason_set(err, r, reason_from_errno(r), "cannot become user “%s”: %s", plan->user,
                                  strerror(-r));
        r = privileges_drop(0);
        /* The kernel may have set it anew with the uid. */
        if (r >= 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                r = -errno;
        if (r >= 0)
                r = filter_install(&sandbox->config->filter);
        return r < 0 ? fail(err, r) : 0;
}

static void worker_run(const KeptSandbox *sandbox, const SpawnPlan *plan, int error_fd) {
        (void) error_fd;
        _cleanup_(error_clear) HutchError err = {};
        (void) umask(0);
        (void) prctl(PR_SET_NAME, "hutch-files", 0, 0, 0);
        int r = prepare(sandbox, plan, &err);
        if (r < 0) {
                _cleanup_(file_stream_freep) FileStream *stream = file_stream_new(SOCKET_FD);
                (void) file_stream_end(stream, r, &err, true);
                return;
        }
        file_root_set(ROOT_FD, sandbox->config->workspace);
        if (sees_layers(plan))
                file_layers_set((FileLayers){
                        .kept = KEPT_FD,
                        .image = IMAGE_FD,
                        .upper = sandbox->upper >= 0 ? UPPER_FD : -1,
                });
        file_worker_serve(SOCKET_FD);
}

/* ---- In the keeper ---- */

int file_process_start(KeptSandbox *sandbox, ExecGroup *group, const char *user, bool sees_layers,
                       FileProcess *ret_process, HutchError *err) {
        int pair[2], pidfd, error_fd;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return reason_set(err, -errno, REASON_HOST_EXHAUSTED, "cannot make a socket: %s", strerror(errno));
        _cleanup_close_ int ours = pair[0], its = pair[1];
        /* Each end takes several messages at once, so that the other is woken the less often. */
        int size = SOCKET_BUFFER;
        (void) setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        (void) setsockopt(its, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
                return reason_set(err, -errno, REASON_INTERNAL, "cannot set up a socket: %s", strerror(errno));

        const SpawnPlan plan = {
                .group = group,
                .user = user,
                .stdin_fd = its,
                .stdout_fd = sees_layers ? sandbox->kept : -1,
                .stderr_fd = sees_layers ? sandbox->image : -1,
                .run = worker_run,
        };
        pid_t pid = sandbox_spawn(sandbox, &plan, &pidfd, &error_fd, err);
        if (pid < 0)
                return pid;
        fd_close(error_fd);
        *ret_process = (FileProcess){ .pid = pid, .pidfd = pidfd, .socket = TAKE_FD(ours) };
        return 0;
}
