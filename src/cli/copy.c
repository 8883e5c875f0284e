/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: copying files between this machine and sandboxes. What does not: streams of bytes (libhutch),
 * folders (copy-folder.c). */

#include "cli/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <hutch/hutch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/copy-parts.h"
#include "cli/report.h"

#define BUFFER_SIZE ((size_t) 256 << 10) /* as much as goes into a message: it stays in a cache */
#define RESUMES_MAX 6                    /* in a row that brought nothing */
#define UPLOAD_ID_SIZE 32
#define PART_NAME_MAX 128 /* bytes of a file's name in that of a part of it */

/* ---- Into a sandbox ---- */

/* Names an upload by what is uploaded to where: when all of that is the same another time, it can go on. */
static void upload_id_make(const struct stat *info, const Place *target, char ret_id[static UPLOAD_ID_SIZE]) {
        const uint64_t facts[] = {
                (uint64_t) info->st_dev,         (uint64_t) info->st_ino,          (uint64_t) info->st_size,
                (uint64_t) info->st_mtim.tv_sec, (uint64_t) info->st_mtim.tv_nsec,
        };
        uint64_t hash = UINT64_C(0xcbf29ce484222325); /* as FNV-1a has it */

        for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
                hash = (hash ^ facts[i]) * UINT64_C(0x100000001b3);
        for (const char *c = target->path; *c; c++)
                hash = (hash ^ (uint8_t) *c) * UINT64_C(0x100000001b3);
        (void) snprintf(ret_id, UPLOAD_ID_SIZE, "cp-%016" PRIx64, hash);
}

int copy_send(HutchUpload *upload, int fd, Progress *progress, HutchError **ret_error) {
        _cleanup_free_ uint8_t *buffer = new0(uint8_t, BUFFER_SIZE);

        while (!hutch_upload_is_over(upload)) {
                ssize_t n = read(fd, buffer, BUFFER_SIZE);
                int r;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                r = hutch_upload_write(upload, true, buffer, (size_t) n, ret_error);
                if (r < 0)
                        return r;
                progress_add(progress, (uint64_t) n);
        }
        return 0;
}

static int upload_once(const Copy *copy, int fd, const Place *target, const HutchWriteOptions *options,
                       const char *name, HutchError **ret_error) {
        Progress progress = progress_start(name, options->has_size ? options->size : 0, options->offset, copy->quiet);
        _cleanup_(hutch_upload_freep) HutchUpload *upload = NULL;
        int r = hutch_upload_new(copy->client, target->sandbox, target->path, options, NULL, &upload, ret_error);

        if (r == 0)
                r = copy_send(upload, fd, &progress, ret_error);
        if (r == 0)
                r = hutch_upload_finish(upload, true, NULL, ret_error);
        progress_end(&progress);
        return r;
}

/* How much of a broken upload is there: 0, too, when nothing is. */
static uint64_t find_offset(const Copy *copy, const Place *target, const char *upload_id) {
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;

        return hutch_upload_stat(copy->client, target->sandbox, upload_id, &file, NULL) == 0 ? file->size : 0;
}

static bool is_lost(const HutchError *error) {
        return error && hutch_error_code(error) == HUTCH_UNAVAILABLE;
}

/* Uploads what @fd has. A regular file goes on where a lost connection had come to. */
static int upload(const Copy *copy, int fd, const struct stat *info, const char *name, const Place *target,
                  HutchError **ret_error) {
        HutchWriteOptions options = {
                .overwrite = !copy->no_clobber,
                .parents = copy->parents,
                .max_size = UINT64_MAX,
        };
        char upload_id[UPLOAD_ID_SIZE];
        int r;

        if (!S_ISREG(info->st_mode))
                return upload_once(copy, fd, target, &options, name, ret_error);

        upload_id_make(info, target, upload_id);
        options.mode = info->st_mode & 0777;
        options.has_size = true;
        options.size = (uint64_t) info->st_size;
        options.upload_id = upload_id;
        if (copy->resume)
                options.offset = find_offset(copy, target, upload_id);
        for (unsigned n = 0;; n++) {
                uint64_t reached;

                if (lseek(fd, (off_t) options.offset, SEEK_SET) < 0)
                        return -errno;
                r = upload_once(copy, fd, target, &options, name, ret_error);
                if (r >= 0 || !is_lost(*ret_error) || n == RESUMES_MAX)
                        return r;

                reached = find_offset(copy, target, upload_id);
                n = reached > options.offset ? 0 : n;
                options.offset = reached;
                hutch_error_free(*ret_error);
                *ret_error = NULL;
        }
}

/* ---- Out of a sandbox ---- */

static int receive_all(HutchDownload *download, int fd, Progress *progress, HutchError **ret_error) {
        const void *data;
        size_t len;
        int r;

        while ((r = hutch_download_next(download, true, &data, &len, ret_error)) > 0) {
                const HutchFile *file = hutch_download_file(download);

                if (file && progress->total == 0)
                        progress->total = file->size;
                r = fd_write_all(fd, data, len);
                if (r < 0)
                        return r;
                progress_add(progress, len);
        }
        return r;
}

static int download_to(const Copy *copy, const Place *source, uint64_t offset, const char *version, int fd,
                       HutchError **ret_error) {
        const HutchDownloadOptions options = {
                .offset = offset,
                .expected_version = version,
                .max_size = UINT64_MAX,
        };
        Progress progress = progress_start(source->path, 0, offset, copy->quiet);
        _cleanup_(hutch_download_freep) HutchDownload *download = NULL;
        int r = hutch_download_new(copy->client, source->sandbox, source->path, &options, &download, ret_error);

        if (r == 0)
                r = receive_all(download, fd, &progress, ret_error);
        progress_end(&progress);
        return r;
}

/* The name under which the bytes of a version are collected beside @path, until there are all. Of a long name it has
 * the beginning, so that it is not too long itself: the version tells apart. */
static char *part_name(const char *path, const char *version) {
        const char *slash = strrchr(path, '/');
        int folder = slash ? (int) (slash + 1 - path) : 0;
        char *name;

        if (asprintf(&name, "%.*s.%.*s.%s.part", folder, path, PART_NAME_MAX, path + folder, version) < 0)
                abort();
        return name;
}

/* Opens it for this process alone. -EBUSY: another one collects there. */
static int open_part(const char *part, bool resume) {
        for (;;) {
                _cleanup_close_ int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
                struct stat opened, there;

                if (fd < 0)
                        return -errno;
                if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                        return errno == EWOULDBLOCK ? -EBUSY : -errno;
                /* Whoever had it before may have renamed it meanwhile: then it is whole, and not a part any more. */
                if (fstat(fd, &opened) < 0)
                        return -errno;
                if (lstat(part, &there) < 0 || there.st_ino != opened.st_ino || there.st_dev != opened.st_dev)
                        continue;
                if (!resume && ftruncate(fd, 0) < 0)
                        return -errno;
                return TAKE_FD(fd);
        }
}

static bool is_there(const char *path) {
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Gives @part its name. -EEXIST: there is something of that name, and it is not to be replaced. */
static int publish(const char *part, const char *path, bool replace) {
        if (renameat2(AT_FDCWD, part, AT_FDCWD, path, replace ? 0 : RENAME_NOREPLACE) == 0)
                return 0;
        if (replace || errno != EINVAL)
                return -errno;

        /* A file system that cannot do both at once. */
        if (is_there(path))
                return -EEXIST;
        return rename(part, path) < 0 ? -errno : 0;
}

/* Makes the folders above @path that are missing. */
static int make_parents(const char *path) {
        _cleanup_free_ char *folder = xstrdup(path);

        for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                if (mkdir(folder, 0777) < 0 && errno != EEXIST)
                        return -errno;
                *slash = '/';
        }
        return 0;
}

/* Downloads to @path by another name, so that the file is there whole or not at all. What has come stays when the
 * connection is lost, for --resume. */
static int download_file(const Copy *copy, const Place *source, const HutchFile *file, const char *path,
                         HutchError **ret_error) {
        _cleanup_free_ char *part = part_name(path, file->version);
        _cleanup_close_ int fd = open_part(part, copy->resume);
        mode_t mask = umask(0);
        struct stat info;
        int r;

        (void) umask(mask);
        if (fd < 0)
                return fd;
        if (fstat(fd, &info) < 0)
                return -errno;
        if ((uint64_t) info.st_size > file->size && (ftruncate(fd, 0) < 0 || fstat(fd, &info) < 0))
                return -errno;
        if (lseek(fd, 0, SEEK_END) < 0)
                return -errno;

        r = download_to(copy, source, (uint64_t) info.st_size, file->version, fd, ret_error);
        if (r >= 0 && fchmod(fd, file->mode & 0777 & ~mask) < 0)
                r = -errno;
        if (r >= 0)
                r = publish(part, path, !copy->no_clobber);
        if (r < 0 && !is_lost(*ret_error))
                (void) unlink(part);
        return r;
}

/* Downloads into what is there already and is no regular file: a pipe, a device. */
static int download_into(const Copy *copy, const Place *source, const char *path, HutchError **ret_error) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd < 0 ? -errno : download_to(copy, source, 0, NULL, fd, ret_error);
}

/* ---- From one sandbox to another ---- */

static int relay(const Copy *copy, const Place *source, const HutchFile *file, const Place *target,
                 HutchError **ret_error) {
        const HutchDownloadOptions from = { .expected_version = file->version, .max_size = UINT64_MAX };
        const HutchWriteOptions to = {
                .overwrite = !copy->no_clobber,
                .parents = copy->parents,
                .mode = file->mode & 0777,
                .max_size = UINT64_MAX,
        };
        Progress progress = progress_start(source->path, file->size, 0, copy->quiet);
        _cleanup_(hutch_download_freep) HutchDownload *download = NULL;
        _cleanup_(hutch_upload_freep) HutchUpload *upload = NULL;
        const void *data;
        size_t len;
        int r = hutch_download_new(copy->client, source->sandbox, source->path, &from, &download, ret_error);

        if (r == 0)
                r = hutch_upload_new(copy->client, target->sandbox, target->path, &to, NULL, &upload, ret_error);
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

/* ---- Sources and targets ---- */

/* Where a source called @name goes: into the target when that is a folder. */
static int find_target(const Copy *copy, const Place *target, const char *name, Place *ret_place) {
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;
        struct stat info;
        bool folder = false;

        if (target->sandbox)
                folder = hutch_file_stat(copy->client, target->sandbox, target->path, true, &file, NULL) == 0 &&
                         file->type == HUTCH_FILE_DIRECTORY;
        else if (!target->standard)
                folder = stat(target->path, &info) == 0 && S_ISDIR(info.st_mode);
        if (!folder && str_has_suffix(target->path, "/") && copy->parents)
                folder = true;
        if (folder && !name)
                return -EISDIR;

        *ret_place = (Place){
                .sandbox = target->sandbox ? xstrdup(target->sandbox) : NULL,
                .path = folder ? path_join(target->path, name) : xstrdup(target->path),
                .standard = target->standard,
        };
        return 0;
}

static int copy_from_here(const Copy *copy, const Place *source, const Place *wanted, HutchError **ret_error) {
        _cleanup_free_ char *name = source->standard ? NULL : path_base_name(source->path);
        _cleanup_(place_clear) Place target = {};
        _cleanup_close_ int opened = source->standard ? -1 : open(source->path, O_RDONLY | O_CLOEXEC);
        int fd = source->standard ? STDIN_FILENO : opened;
        struct stat info;
        int r;

        if (fd < 0 || fstat(fd, &info) < 0)
                return -errno;
        if (S_ISDIR(info.st_mode) && source->standard)
                return -EISDIR;
        if (S_ISDIR(info.st_mode))
                return copy_folder_in(copy, source->path, name, wanted, ret_error);

        r = find_target(copy, wanted, name, &target);
        return r < 0 ? r : upload(copy, fd, &info, source->path, &target, ret_error);
}

static int copy_from_sandbox(const Copy *copy, const Place *source, const Place *wanted, HutchError **ret_error) {
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;
        _cleanup_free_ char *name = NULL;
        _cleanup_(place_clear) Place target = {};
        struct stat info;
        int r = hutch_file_stat(copy->client, source->sandbox, source->path, true, &file, ret_error);

        if (r < 0)
                return r;
        name = path_base_name(file->path);
        if (file->type == HUTCH_FILE_DIRECTORY)
                return copy_folder_out(copy, source, name, wanted, ret_error);
        r = find_target(copy, wanted, name, &target);
        if (r < 0)
                return r;

        if (target.sandbox)
                return relay(copy, source, file, &target, ret_error);
        if (target.standard)
                return download_to(copy, source, 0, NULL, STDOUT_FILENO, ret_error);
        if (stat(target.path, &info) == 0 && !S_ISREG(info.st_mode))
                return download_into(copy, source, target.path, ret_error);
        if (copy->no_clobber && is_there(target.path))
                return -EEXIST;
        r = copy->parents ? make_parents(target.path) : 0;
        return r < 0 ? r : download_file(copy, source, file, target.path, ret_error);
}

int command_copy(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *failed = NULL;
        _cleanup_(place_clear) Place target = {};
        Copy copy = {
                .quiet = arguments_have(arguments, "quiet"),
                .parents = arguments_have(arguments, "parents"),
                .no_clobber = arguments_have(arguments, "no-clobber"),
                .resume = arguments_have(arguments, "resume"),
        };
        int exit_code = EXIT_SUCCESS;

        place_parse(arguments->operands[arguments->n_operands - 1], &target);
        for (size_t i = 0; i + 1 < arguments->n_operands; i++) {
                _cleanup_(place_clear) Place source = {};

                place_parse(arguments->operands[i], &source);
                if (!source.sandbox && !target.sandbox)
                        return usage_error(arguments, "one of the two is in a sandbox: write it as ID:PATH");
        }
        if (connection_open(arguments, &client, &failed) < 0)
                return report_error(failed, NULL, EXIT_FAILURE);

        copy.client = client;
        for (size_t i = 0; i + 1 < arguments->n_operands; i++) {
                _cleanup_(hutch_error_freep) HutchError *error = NULL;
                _cleanup_(place_clear) Place source = {};
                int r;

                place_parse(arguments->operands[i], &source);
                r = (source.sandbox ? copy_from_sandbox : copy_from_here)(&copy, &source, &target, &error);
                /* What fails without the daemon is about what is on this side. */
                if (r < 0 && r != -ECHILD && !error && source.sandbox)
                        report_note("cannot write %s: %s", arguments->operands[arguments->n_operands - 1],
                                    strerror(-r));
                else if (r < 0 && r != -ECHILD && !error)
                        report_note("%s: %s", arguments->operands[i], strerror(-r));
                if (r < 0)
                        exit_code = error ? report_error(error, arguments->operands[i], EXIT_FAILURE) : EXIT_FAILURE;
        }
        return exit_code;
}
