/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the sealed copy of hutch-keeper. What does not: how processes are started (child-process.c). */

#include "runtime/native/keeper-program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/reason.h"

#define COPY_SIZE ((size_t) 16 << 20) /* at once */

#ifndef MFD_EXEC
#define MFD_EXEC 16u
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 32
#endif

struct KeeperProgram {
        char *path;
        int copy; /* -1: there is none */
        char copy_path[32];
};

KeeperProgram *keeper_program_new(const char *path) {
        KeeperProgram *program = new0(KeeperProgram, 1);

        program->path = xstrdup(path);
        program->copy = -1;
        return program;
}

KeeperProgram *keeper_program_free(KeeperProgram *program) {
        if (!program)
                return NULL;

        fd_close(program->copy);
        free(program->path);
        free(program);
        return NULL;
}

static int make_executable_memfd(void) {
        int fd = memfd_create("hutch-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

        /* Kernels before 6.3 have no other files there than those that may be executed. */
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create("hutch-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd < 0 ? -errno : fd;
}

/* Makes a copy of @from, where nobody can change it any more, the one that is executed. */
static int copy_sealed(KeeperProgram *program, int from) {
        _cleanup_close_ int fd = make_executable_memfd();
        off_t offset = 0;
        ssize_t n;
        int copy;

        if (fd < 0)
                return fd;
        while ((n = sendfile(fd, from, &offset, COPY_SIZE)) > 0)
                ;
        if (n < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;
        /* Neither can anybody make it what cannot be executed. Kernels before 6.3 do not know of that: see
         * keeper_program_spawn(). */
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_EXEC | F_SEAL_SEAL) < 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) < 0)
                return -errno;
        copy = fcntl(fd, F_DUPFD_CLOEXEC, CHILD_FREE_DESCRIPTOR);
        if (copy < 0)
                return -errno;

        fd_close(program->copy);
        program->copy = copy;
        (void) snprintf(program->copy_path, sizeof(program->copy_path), "/proc/self/fd/%d", copy);
        return 0;
}

static int load(KeeperProgram *program) {
        _cleanup_close_ int from = open(program->path, O_RDONLY | O_CLOEXEC);
        char head[4] = "";

        if (from < 0 || access(program->path, X_OK) < 0)
                return -errno;
        if (pread(from, head, sizeof(head), 0) < 0)
                return -errno;
        if (memcmp(head, "#!", 2) == 0)
                return 0;
        /* It may be about to be written: the next start looks again. */
        return memcmp(head, "\177ELF", sizeof(head)) == 0 ? copy_sealed(program, from) : -ENOEXEC;
}

int keeper_program_load(KeeperProgram *program, HutchError *err) {
        int r = program->copy >= 0 ? 0 : load(program);

        if (r < 0)
                return reason_set(err, r, REASON_RUNTIME_UNAVAILABLE,
                                  "'%s' cannot be run (%s): install it there, or set native.keeper", program->path,
                                  strerror(-r));
        return 0;
}

bool keeper_program_is_copied(const KeeperProgram *program) {
        return program->copy >= 0;
}

static int spawn(const KeeperProgram *program, uv_loop_t *loop, ChildOptions options, ChildEnded ended, void *user,
                 ChildProcess **ret_child, HutchError *err) {
        options.program = program->copy >= 0 ? program->copy_path : program->path;
        return child_process_spawn(loop, &options, ended, user, ret_child, err);
}

int keeper_program_spawn(KeeperProgram *program, uv_loop_t *loop, const ChildOptions *options, ChildEnded ended,
                         void *user, ChildProcess **ret_child, HutchError *err) {
        int r = keeper_program_load(program, err);

        if (r < 0)
                return r;
        r = spawn(program, loop, *options, ended, user, ret_child, err);
        if (r != -EACCES || program->copy < 0 || copy_sealed(program, program->copy) < 0)
                return r;

        /* Somebody inside, who is the daemon's user to the host, had made the copy what cannot be executed. Nobody has
         * got hold of the new one yet. */
        log_warning("a sandbox has spoiled the copy of hutch-keeper: another takes its place");
        if (err)
                error_clear(err);
        return spawn(program, loop, *options, ended, user, ret_child, err);
}
