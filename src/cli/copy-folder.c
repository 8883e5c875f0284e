/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: copying folders, as tar streams. What does not: files (copy.c), and what is in such a stream:
 * hutch-keeper packs and unpacks folders of this machine, as it does in sandboxes. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/memory.h"
#include "cli/copy-parts.h"
#include "cli/report.h"
#include "local/program.h"

#define BUFFER_SIZE ((size_t) 1 << 20)

/* A process of hutch-keeper, and the pipe that it reads from or writes to. */
typedef struct Helper {
        pid_t pid;
        int pipe;
} Helper;

static int helper_start(const char *verb, const char *folder, const char *option, int theirs, Helper *ret_helper) {
        _cleanup_free_ char *program = program_find("hutch-keeper", HUTCH_LIBEXECDIR);
        char *const argv[] = { (char *) "hutch-keeper", (char *) verb, (char *) folder, (char *) option, NULL };
        posix_spawn_file_actions_t actions;
        int pair[2], r;
        pid_t pid;

        if (!program) {
                report_note(
                        "there is no hutch-keeper beside hutch, nor where it was installed: folders are packed by it");
                return -ECHILD;
        }
        if (pipe2(pair, O_CLOEXEC) < 0)
                return -errno;
        (void) fcntl(pair[0], F_SETPIPE_SZ, BUFFER_SIZE);

        /* It has the end of the pipe that is not ours. */
        (void) posix_spawn_file_actions_init(&actions);
        (void) posix_spawn_file_actions_adddup2(&actions, pair[theirs], theirs);
        r = posix_spawn(&pid, program, &actions, NULL, argv, environ);
        (void) posix_spawn_file_actions_destroy(&actions);
        (void) close(pair[theirs]);
        if (r != 0) {
                (void) close(pair[!theirs]);
                return -r;
        }

        *ret_helper = (Helper){ .pid = pid, .pipe = pair[!theirs] };
        return 0;
}

/* Waits for its end. -ECHILD: it has said what went wrong. */
static int helper_end(Helper *helper) {
        int status = 0;

        helper->pipe = fd_close(helper->pipe);
        while (waitpid(helper->pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* Where the folder goes: into the target when that is one, else it becomes the target. */
static char *target_path(const Copy *copy, const Place *target, const char *name) {
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;
        struct stat info;
        bool there = target->sandbox
                             ? hutch_file_stat(copy->client, target->sandbox, target->path, true, &file, NULL) == 0 &&
                                       file->type == HUTCH_FILE_DIRECTORY
                             : stat(target->path, &info) == 0 && S_ISDIR(info.st_mode);

        return there && name ? path_join(target->path, name) : xstrdup(target->path);
}

/* @path without what hutch-keeper refuses: symlinks and "..", as far as there is something to look at. The rest of it
 * is yet to be made. */
static char *absolute_path(const char *path) {
        _cleanup_free_ char *name = path_base_name(path), *folder = NULL, *above = NULL;
        char *absolute = realpath(path, NULL);

        if (absolute || !name)
                return absolute ? absolute : xstrdup(path);

        folder = path_folder(path);
        above = absolute_path(folder);
        return path_join(above, name);
}

static int upload_begin(const Copy *copy, const Place *target, const char *name, HutchUpload **ret_upload,
                        HutchError **ret_error) {
        const HutchArchiveOptions options = {
                .parents = true,
                .overwrite = !copy->no_clobber,
                .max_size = UINT64_MAX,
        };
        _cleanup_free_ char *path = target_path(copy, target, name);

        return hutch_archive_upload(copy->client, target->sandbox, path, &options, ret_upload, ret_error);
}

/* ---- Into a sandbox ---- */

int copy_folder_in(const Copy *copy, const char *folder, const char *name, const Place *target,
                   HutchError **ret_error) {
        _cleanup_(hutch_upload_freep) HutchUpload *upload = NULL;
        _cleanup_free_ char *path = absolute_path(folder);
        Progress progress = progress_start(folder, 0, 0, copy->quiet);
        Helper helper = { .pipe = -1 };
        int r = helper_start("pack", path, NULL, STDOUT_FILENO, &helper), ended;

        if (r < 0)
                return r;

        r = upload_begin(copy, target, name, &upload, ret_error);
        if (r == 0)
                r = copy_send(upload, helper.pipe, &progress, ret_error);
        ended = helper_end(&helper);
        /* What ended too early is not to be taken for all of it; what the daemon has given up, it says why. */
        if (r == 0 && (ended == 0 || hutch_upload_is_over(upload)))
                r = hutch_upload_finish(upload, true, NULL, ret_error);
        else if (r == 0)
                r = ended;
        progress_end(&progress);
        return r;
}

/* ---- Out of one ---- */

static int download_begin(const Copy *copy, const Place *source, HutchDownload **ret_download, HutchError **ret_error) {
        const HutchArchiveOptions options = { .max_size = UINT64_MAX };

        return hutch_archive_download(copy->client, source->sandbox, source->path, &options, ret_download, ret_error);
}

static int receive_all(const Copy *copy, const Place *source, int fd, HutchError **ret_error) {
        _cleanup_(hutch_download_freep) HutchDownload *download = NULL;
        Progress progress = progress_start(source->path, 0, 0, copy->quiet);
        const void *data;
        size_t len;
        int r = download_begin(copy, source, &download, ret_error);

        while (r >= 0 && (r = hutch_download_next(download, true, &data, &len, ret_error)) > 0) {
                r = fd_write_all(fd, data, len);
                progress_add(&progress, len);
        }
        progress_end(&progress);
        return r;
}

static int unpack_here(const Copy *copy, const Place *source, const char *name, const Place *target,
                       HutchError **ret_error) {
        _cleanup_free_ char *path = target_path(copy, target, name), *absolute = absolute_path(path);
        Helper helper = { .pipe = -1 };
        int r = helper_start("unpack", absolute, copy->no_clobber ? NULL : "overwrite", STDIN_FILENO, &helper), ended;

        if (r < 0)
                return r;

        (void) signal(SIGPIPE, SIG_IGN); /* when it ends early it says why */
        r = receive_all(copy, source, helper.pipe, ret_error);
        if (*ret_error)
                (void) kill(helper.pid, SIGTERM); /* what it would say of an archive that breaks off helps nobody */
        ended = helper_end(&helper);
        return ended < 0 && !*ret_error ? ended : r;
}

static int relay(const Copy *copy, const Place *source, const char *name, const Place *target, HutchError **ret_error) {
        _cleanup_(hutch_download_freep) HutchDownload *download = NULL;
        _cleanup_(hutch_upload_freep) HutchUpload *upload = NULL;
        Progress progress = progress_start(source->path, 0, 0, copy->quiet);
        const void *data;
        size_t len;
        int r = download_begin(copy, source, &download, ret_error);

        if (r == 0)
                r = upload_begin(copy, target, name, &upload, ret_error);
        while (r >= 0 && !hutch_upload_is_over(upload) &&
               (r = hutch_download_next(download, true, &data, &len, ret_error)) > 0) {
                r = hutch_upload_write(upload, true, data, len, ret_error);
                progress_add(&progress, len);
        }
        if (r >= 0)
                r = hutch_upload_finish(upload, true, NULL, ret_error);
        progress_end(&progress);
        return r;
}

int copy_folder_out(const Copy *copy, const Place *source, const char *name, const Place *target,
                    HutchError **ret_error) {
        if (target->sandbox)
                return relay(copy, source, name, target, ret_error);
        if (target->standard)
                return receive_all(copy, source, STDOUT_FILENO, ret_error);
        return unpack_here(copy, source, name, target, ret_error);
}
