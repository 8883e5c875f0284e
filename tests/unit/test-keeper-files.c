/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/worker/file-worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/files/file-requests.h"
#include "keeper/worker/file-draft.h"
#include "keeper/worker/file-info.h"
#include "keeper/worker/file-methods.h"
#include "keeper/worker/file-path.h"
#include "keeper/worker/file-process.h"
#include "keeper/worker/file-uploads.h"
#include "keeper/worker/name-heap.h"
#include "keeper/worker/page-token.h"
#include "rpc/core/protobuf.h"
#include "test.h"

#define NOW (UINT64_C(1000) * FILE_UPLOAD_TIME)

/* A folder of its own, which is the root of paths. */
typedef struct Root {
        char path[32];
        int fd;
} Root;

static int root_set_up(void **state) {
        Root *root = new0(Root, 1);

        (void) snprintf(root->path, sizeof(root->path), "/tmp/hutch-files-XXXXXX");
        if (!mkdtemp(root->path))
                return -1;
        root->fd = open(root->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        file_root_set(root->fd, "/workspace");
        *state = root;
        return root->fd < 0;
}

static int root_tear_down(void **state) {
        Root *root = *state;
        char command[64];

        (void) snprintf(command, sizeof(command), "rm -rf %s", root->path);
        fd_close(root->fd);
        free(root);
        return system(command); /* NOLINT(cert-env33-c) */
}

/* ---- The smallest names ---- */

static void the_smallest_names_are_kept(void **state) {
        NameHeap heap = { .max = 3 };
        static const char *const names[] = { "m", "b", "z", "\xff", "a/", "a", "b", "c" };

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
                assert_int_equal(name_heap_add(&heap, names[i]), 0);
        name_heap_sort(&heap);
        assert_int_equal(heap.n_names, 3);
        assert_true(heap.is_incomplete);
        assert_string_equal(heap.names[0], "a");
        assert_string_equal(heap.names[1], "a/");
        assert_string_equal(heap.names[2], "b");
        name_heap_clear(&heap);
}

static void as_many_names_as_there_is_room_for_are_all(void **state) {
        for (size_t n = 1; n < 200; n++) {
                NameHeap heap = { .max = n };

                for (size_t i = 0; i < n; i++) {
                        char name[16];

                        (void) snprintf(name, sizeof(name), "%05zu", i * 7919 % 1009);
                        assert_int_equal(name_heap_add(&heap, name), 0);
                }
                name_heap_sort(&heap);
                assert_false(heap.is_incomplete);
                assert_int_equal(heap.n_names, n);
                for (size_t i = 1; i < n; i++)
                        assert_true(strcmp(heap.names[i - 1], heap.names[i]) < 0);
                name_heap_clear(&heap);
        }
}

/* ---- Page tokens ---- */

static void tokens_come_back_as_they_were(void **state) {
        PageToken token = { .question = 0x1234567890abcdef, .began = NOW, .last = (char *) "a/\xff\xfe?>~" }, back;
        _cleanup_free_ char *text = NULL;

        memset(token.version, 'v', sizeof(token.version));
        text = page_token_write(&token);
        assert_null(strpbrk(text, "+/="));
        assert_int_equal(page_token_read(text, &back), 0);
        assert_int_equal(back.question, token.question);
        assert_int_equal(back.began, token.began);
        assert_memory_equal(back.version, token.version, sizeof(token.version));
        assert_string_equal(back.last, token.last);
        free(back.last);
}

static void what_is_no_token_is_refused(void **state) {
        PageToken token = { .last = (char *) "name" }, back;
        _cleanup_free_ char *text = page_token_write(&token), *large = new0(char, 4 * PAGE_TOKEN_LAST_MAX);

        for (size_t len = 0; len < strlen(text); len++) {
                _cleanup_free_ char *cut = xstrndup(text, len);
                int r = page_token_read(cut, &back);

                /* A path that is cut is another path. */
                if (r == 0)
                        free(back.last);
                else
                        assert_int_equal(r, -EINVAL);
        }
        assert_int_equal(page_token_read("", &back), -EINVAL);
        memset(large, 'A', 4 * PAGE_TOKEN_LAST_MAX - 1);
        assert_int_equal(page_token_read(large, &back), -EINVAL);
        text[0]++;
        assert_int_equal(page_token_read(text, &back), -EINVAL);
}

/* ---- Requests that are repeated ---- */

static const char fingerprint[FILE_REQUEST_FINGERPRINT_SIZE + 1] =
        "0123456789012345678901234567890123456789012345678901234567890123";

static void requests_are_forgotten_after_ten_minutes(void **state) {
        _cleanup_(file_requests_freep) FileRequests *requests = file_requests_new();
        FileRequest *request = file_requests_add(requests, "a", fingerprint, requests);

        assert_ptr_equal(file_requests_find(requests, "a", UINT64_MAX / 2), request);
        assert_null(file_requests_find(requests, "b", 0));
        file_request_finish(request, (uint8_t *) xstrdup("x"), 1, 100);
        assert_ptr_equal(file_requests_find(requests, "a", 100 + FILE_REQUEST_TIME - 1), request);
        assert_null(file_requests_find(requests, "a", 100 + FILE_REQUEST_TIME));
}

static void the_oldest_request_makes_room_but_none_under_way(void **state) {
        _cleanup_(file_requests_freep) FileRequests *requests = file_requests_new();

        for (int i = 0; i < FILE_REQUESTS_MAX; i++) {
                char name[16];
                FileRequest *request;

                (void) snprintf(name, sizeof(name), "%d", i);
                request = file_requests_add(requests, name, fingerprint, requests);
                assert_non_null(request);
                if (i == 5 || i == 7)
                        file_request_finish(request, (uint8_t *) xstrdup(""), 0, 0);
        }
        assert_non_null(file_requests_add(requests, "x", fingerprint, requests));
        assert_null(file_requests_find(requests, "5", 0));
        assert_non_null(file_requests_find(requests, "7", 0));
        assert_non_null(file_requests_add(requests, "y", fingerprint, requests));
        assert_null(file_requests_add(requests, "z", fingerprint, requests));
        file_requests_remove(requests, file_requests_find(requests, "0", 0));
        assert_non_null(file_requests_add(requests, "z", fingerprint, requests));
}

/* ---- Uploads ---- */

static void uploads_are_read_as_they_were_written(void **state) {
        const Root *root = *state;
        FileUploads *uploads = file_uploads_open(root->fd, NOW);
        FileUpload *one = file_uploads_add(uploads, "one", "1000:1000", "/a path/with spaces");
        FileUpload *two = file_uploads_add(uploads, "two", "agent", "/b");

        assert_null(file_uploads_find(uploads, "three"));
        one->expires = NOW + 5;
        two->expires = NOW + 2 * FILE_UPLOAD_TIME;
        file_uploads_save(uploads);
        assert_ptr_equal(file_uploads_first(uploads), one);
        one->runner = uploads;
        assert_ptr_equal(file_uploads_first(uploads), two);
        file_uploads_close(uploads);

        uploads = file_uploads_open(root->fd, NOW);
        one = file_uploads_find(uploads, "one");
        two = file_uploads_find(uploads, "two");
        assert_string_equal(one->path, "/a path/with spaces");
        assert_string_equal(one->user_name, "1000:1000");
        assert_int_equal(one->expires, NOW + 5);
        /* The clock was set back. */
        assert_int_equal(two->expires, NOW + FILE_UPLOAD_TIME);
        file_uploads_remove(uploads, one);
        assert_null(file_uploads_find(uploads, "one"));
        file_uploads_close(uploads);
}

static void a_list_of_uploads_that_is_none_is_empty(void **state) {
        const Root *root = *state;
        static const char text[] =
                "x\n\n1 2 3\n1 u i relative\n1 u  /path\n5 user id /path\n5 user id /other\n1 2 3 /cut";
        _cleanup_close_ int fd = openat(root->fd, "uploads", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        _cleanup_(file_uploads_closep) FileUploads *uploads = NULL;

        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
        uploads = file_uploads_open(root->fd, NOW);
        assert_string_equal(file_uploads_find(uploads, "id")->path, "/path");
        assert_non_null(file_uploads_find(uploads, "3"));
        assert_null(file_uploads_find(uploads, "i"));
        for (int i = 0; i < FILE_UPLOADS_MAX - 2; i++) {
                char id[16];

                (void) snprintf(id, sizeof(id), "many-%d", i);
                assert_non_null(file_uploads_add(uploads, id, "u", "/x"));
        }
        assert_null(file_uploads_add(uploads, "last", "u", "/x"));
}

static void uploads_have_names_of_their_own(void **state) {
        char a[FILE_UPLOAD_NAME_SIZE], b[FILE_UPLOAD_NAME_SIZE];

        file_upload_name("../../etc", a);
        file_upload_name("../../etd", b);
        assert_string_not_equal(a, b);
        assert_null(strchr(a, '/'));
        assert_int_equal(strlen(a), strlen(b));
}

/* ---- What is told ---- */

static void bytes_become_text(void **state) {
        static const struct {
                const char *bytes, *text;
        } cases[] = {
                { "", "" },
                { "name", "name" },
                { "\xc3\xa9", "\xc3\xa9" },
                { "a\xff", "a\xef\xbf\xbd" },
                { "\xc3", "\xef\xbf\xbd" },
                { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                _cleanup_free_ char *text = file_text(cases[i].bytes, strlen(cases[i].bytes));

                assert_string_equal(text, cases[i].text);
        }
}

static void every_change_is_another_version(void **state) {
        struct stat st = { .st_dev = 1, .st_ino = 2, .st_size = 3 };
        char first[FILE_VERSION_SIZE], other[FILE_VERSION_SIZE];

        file_version(&st, first);
        assert_int_equal(strlen(first), FILE_VERSION_SIZE - 1);
        file_version(&st, other);
        assert_string_equal(first, other);
        st.st_ctim.tv_nsec++;
        file_version(&st, other);
        assert_string_not_equal(first, other);
}

/* ---- Drafts ---- */

static void put(int folder, const char *name, const char *text, bool replace, int expected) {
        _cleanup_(file_draft_clear) FileDraft draft = FILE_DRAFT_NONE;

        assert_int_equal(file_draft_open(&draft, folder), 0);
        assert_int_equal(fd_write_all(draft.fd, text, strlen(text)), 0);
        assert_int_equal(file_draft_commit(&draft, name, 0640, replace), expected);
}

static void drafts_come_whole_or_not_at_all(void **state) {
        const Root *root = *state;
        struct stat st;

        put(root->fd, "file", "one", false, 0);
        put(root->fd, "file", "other", false, -EEXIST);
        assert_int_equal(fstatat(root->fd, "file", &st, 0), 0);
        assert_int_equal(st.st_size, 3);
        assert_int_equal(st.st_mode & 07777, 0640);
        put(root->fd, "file", "other", true, 0);
        assert_int_equal(fstatat(root->fd, "file", &st, 0), 0);
        assert_int_equal(st.st_size, 5);
        assert_int_equal(mkdirat(root->fd, "folder", 0700), 0);
        put(root->fd, "folder", "other", true, -EISDIR);
        /* Two names and nothing else. */
        assert_int_equal(unlinkat(root->fd, "file", 0), 0);
        assert_int_equal(unlinkat(root->fd, "folder", AT_REMOVEDIR), 0);
        assert_int_equal(rmdir(root->path), 0);
        assert_int_equal(mkdir(root->path, 0700), 0);
}

static void make_leftover(const Root *root, const char *name, mode_t mode) {
        int fd = openat(root->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(fchmod(fd, mode), 0);
        fd_close(fd);
}

static void drafts_that_nobody_works_on_are_collected(void **state) {
        const Root *root = *state;
        make_leftover(root, FILE_DRAFT_PREFIX "left", 0600);
        make_leftover(root, FILE_DRAFT_PREFIX "locked", 0600);
        make_leftover(root, FILE_DRAFT_PREFIX "somebody-elses", 0644);
        make_leftover(root, "other", 0600);
        assert_int_equal(symlinkat("other", root->fd, FILE_DRAFT_PREFIX "link"), 0);
        _cleanup_close_ int locked = openat(root->fd, FILE_DRAFT_PREFIX "locked", O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(locked, LOCK_EX | LOCK_NB), 0);

        file_draft_collect(root->fd);
        assert_int_equal(faccessat(root->fd, FILE_DRAFT_PREFIX "left", F_OK, AT_SYMLINK_NOFOLLOW), -1);
        assert_int_equal(faccessat(root->fd, FILE_DRAFT_PREFIX "locked", F_OK, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(faccessat(root->fd, FILE_DRAFT_PREFIX "somebody-elses", F_OK, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(faccessat(root->fd, FILE_DRAFT_PREFIX "link", F_OK, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(faccessat(root->fd, "other", F_OK, AT_SYMLINK_NOFOLLOW), 0);
}

static void a_named_draft_is_nobody_elses(void **state) {
        const Root *root = *state;
        FileDraft draft = FILE_DRAFT_NONE;

        assert_int_equal(file_draft_open_named(&draft, root->fd, "draft", false), -ENOENT);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "draft", true), 0);
        assert_int_equal(fd_write_all(draft.fd, "x", 1), 0);
        file_draft_keep(&draft);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "draft", false), 0);
        file_draft_keep(&draft);
        /* Another name for it, another mode, a link, a FIFO. */
        assert_int_equal(linkat(root->fd, "draft", root->fd, "other", 0), 0);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "draft", false), -EPERM);
        assert_int_equal(unlinkat(root->fd, "other", 0), 0);
        assert_int_equal(fchmodat(root->fd, "draft", 0644, 0), 0);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "draft", false), -EPERM);
        assert_int_equal(symlinkat("draft", root->fd, "link"), 0);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "link", false), -EPERM);
        assert_int_equal(mkfifoat(root->fd, "fifo", 0600), 0);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "fifo", false), -EPERM);
        assert_int_equal(file_draft_open_named(&draft, root->fd, "link", true), 0);
        file_draft_clear(&draft);
        assert_int_equal(faccessat(root->fd, "link", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

/* ---- Paths ---- */

static void links_do_not_lead_out_of_the_root(void **state) {
        const Root *root = *state;
        _cleanup_close_ int fd = -1;
        _cleanup_(file_place_clear) FilePlace place = {};
        struct stat st;
        HutchError err = {};

        assert_int_equal(mkdirat(root->fd, "etc", 0755), 0);
        assert_int_equal(symlinkat("/etc", root->fd, "absolute"), 0);
        assert_int_equal(symlinkat("../../../../etc", root->fd, "climbing"), 0);
        assert_int_equal(symlinkat("/proc/self/root/etc", root->fd, "magic"), 0);
        assert_int_equal(file_open_regular("/absolute/passwd", &fd, &st, &err), -ENOENT);
        assert_int_equal(file_open_regular("/climbing/passwd", &fd, &st, &err), -ENOENT);
        assert_int_equal(file_open_regular("/magic/passwd", &fd, &st, &err), -ENOENT);
        assert_string_equal(err.reason, "FILE_NOT_FOUND");
        assert_int_equal(file_place_open("/absolute/new/file", true, &place, &err), 0);
        assert_int_equal(fstatat(root->fd, "etc/new", &st, 0), 0);
        assert_int_equal(file_open_below(root->fd, "absolute", O_RDONLY | O_DIRECTORY, 0, 0), -ELOOP);
        assert_int_equal(file_open_below(root->fd, "../x", O_RDONLY, 0, 0), -EXDEV);
        error_clear(&err);
}

static void the_workspace_and_what_is_above_it_are_protected(void **state) {
        const Root *root = *state;
        static const struct {
                const char *path;
                int expected;
        } cases[] = { { "/", -EINVAL },
                      { "/top", -EINVAL },
                      { "/top/space", -EINVAL },
                      { "/link/space", -EINVAL },
                      { "/top/space/x", 0 },
                      { "/top/other", 0 },
                      { "/link", 0 },
                      { "/none", 0 } };

        file_root_set(root->fd, "/top/space");
        assert_int_equal(mkdirat(root->fd, "top", 0755), 0);
        assert_int_equal(mkdirat(root->fd, "top/space", 0755), 0);
        assert_int_equal(mkdirat(root->fd, "top/space/x", 0755), 0);
        assert_int_equal(mkdirat(root->fd, "top/other", 0755), 0);
        assert_int_equal(symlinkat("top", root->fd, "link"), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                _cleanup_(file_place_clear) FilePlace place = {};

                assert_int_equal(file_place_open(cases[i].path, false, &place, NULL), 0);
                assert_int_equal(file_place_check_protected(&place, NULL), cases[i].expected);
        }
}

/* ---- The stream ---- */

static void send_frame(int socket, FileFrameKind kind, const void *bytes, size_t len) {
        FileFrameHead head = { .len = (uint32_t) len, .kind = (uint8_t) kind };

        assert_int_equal(fd_write_all(socket, &head, sizeof(head)), 0);
        assert_int_equal(fd_write_all(socket, bytes, len), 0);
}

static FileFrameHead receive_frame(int socket, uint8_t *bytes, size_t size) {
        FileFrameHead head;

        assert_int_equal(recv(socket, &head, sizeof(head), MSG_WAITALL), sizeof(head));
        assert_true(head.len <= size);
        if (head.len > 0)
                assert_int_equal(recv(socket, bytes, head.len, MSG_WAITALL), head.len);
        return head;
}

static FileBegin begin_of(FileMethod run) {
        FileBegin begin = {};

        while (file_methods[begin.method].run != run)
                begin.method++;
        return begin;
}

static void a_worker_skips_what_was_on_its_way(void **state) {
        int pair[2];
        const FileBegin make = begin_of(file_method_make_directory), stat = begin_of(file_method_stat),
                        none = { .method = 1000 };
        Hutch__V1__StatFileRequest request = HUTCH__V1__STAT_FILE_REQUEST__INIT;
        _cleanup_free_ uint8_t *message = NULL;
        size_t len;
        uint8_t bytes[8192];
        FileEnd end;
        pid_t pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        request.path = (char *) "/";
        assert_int_equal(protobuf_pack(&request.base, &message, &len), 0);
        send_frame(pair[0], FILE_FRAME_CANCEL, "", 0);
        send_frame(pair[0], FILE_FRAME_BEGIN, &make, sizeof(make));
        send_frame(pair[0], FILE_FRAME_MESSAGE, "\xff", 1); /* which ends it */
        send_frame(pair[0], FILE_FRAME_MESSAGE, "left over", 9);
        send_frame(pair[0], FILE_FRAME_HALF_CLOSE, "", 0);
        send_frame(pair[0], FILE_FRAME_CANCEL, "", 0);
        send_frame(pair[0], FILE_FRAME_BEGIN, &none, sizeof(none));
        send_frame(pair[0], FILE_FRAME_BEGIN, &stat, sizeof(stat));
        send_frame(pair[0], FILE_FRAME_MESSAGE, message, len);
        send_frame(pair[0], FILE_FRAME_HALF_CLOSE, "", 0);
        pid = fork();
        if (pid == 0) {
                fd_close(pair[0]);
                file_worker_serve(pair[1]);
                _exit(0);
        }

        assert_int_equal(receive_frame(pair[0], bytes, sizeof(bytes)).kind, FILE_FRAME_END);
        memcpy(&end, bytes, sizeof(end));
        assert_string_equal(end.reason, "FIELD_INVALID");
        assert_int_equal(receive_frame(pair[0], bytes, sizeof(bytes)).kind, FILE_FRAME_END);
        memcpy(&end, bytes, sizeof(end));
        assert_string_equal(end.reason, "INTERNAL");
        assert_int_equal(receive_frame(pair[0], bytes, sizeof(bytes)).kind, FILE_FRAME_MESSAGE);
        assert_int_equal(receive_frame(pair[0], bytes, sizeof(bytes)).kind, FILE_FRAME_END);
        memcpy(&end, bytes, sizeof(end));
        assert_int_equal(end.code, STATUS_OK);
        fd_close(pair[0]);
        fd_close(pair[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_cancelled_stream_says_so(void **state) {
        _cleanup_(file_stream_freep) FileStream *stream = NULL;
        const uint8_t *bytes;
        uint8_t buffer[FILE_HEAD + 300], received[512];
        size_t len;
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        stream = file_stream_new(pair[1]);
        assert_false(file_stream_is_cancelled(stream));
        send_frame(pair[0], FILE_FRAME_MESSAGE, "one", 3);
        assert_false(file_stream_is_cancelled(stream));
        assert_int_equal(file_stream_receive(stream, &bytes, &len), 1);
        assert_memory_equal(bytes, "one", 3);
        send_frame(pair[0], FILE_FRAME_HALF_CLOSE, "", 0);
        assert_false(file_stream_is_cancelled(stream));
        assert_int_equal(file_stream_receive(stream, &bytes, &len), 0);

        memset(buffer, 'x', sizeof(buffer));
        assert_int_equal(file_stream_send_data(stream, 2, buffer + FILE_HEAD, 300), 0);
        assert_int_equal(receive_frame(pair[0], received, sizeof(received)).len, 303);
        assert_true(protobuf_find_bytes(received, 303, 2, &bytes, &len));
        assert_int_equal(len, 300);
        assert_memory_equal(bytes, buffer + FILE_HEAD, 300);

        send_frame(pair[0], FILE_FRAME_CANCEL, "", 0);
        assert_int_equal(file_stream_send_data(stream, 2, buffer + FILE_HEAD, 300), -ECANCELED);
        assert_int_equal(file_stream_receive(stream, &bytes, &len), -ECANCELED);
        fd_close(pair[0]);
        fd_close(pair[1]);
}

static void large_data_is_aligned(void **state) {
        _cleanup_(file_stream_freep) FileStream *stream = NULL;
        static uint8_t message[PROTOBUF_BYTES_HEAD_MAX + (64 << 10)];
        const uint8_t *bytes, *data;
        size_t head = protobuf_write_bytes_head(message, 2, 64 << 10), len;
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        stream = file_stream_new(pair[1]);
        send_frame(pair[0], FILE_FRAME_MESSAGE, "small", 5);
        assert_int_equal(file_stream_receive(stream, &bytes, &len), 1);
        memset(message + head, 'x', 64 << 10);
        send_frame(pair[0], FILE_FRAME_MESSAGE, message, head + (64 << 10));
        assert_int_equal(file_stream_receive(stream, &bytes, &len), 1);
        assert_int_equal(len, head + (64 << 10));
        assert_memory_equal(bytes, message, len);
        assert_true(protobuf_find_bytes(bytes, len, 2, &data, &len));
        assert_int_equal((uintptr_t) data % 64, 0);
        fd_close(pair[0]);
        fd_close(pair[1]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_smallest_names_are_kept),
                cmocka_unit_test(as_many_names_as_there_is_room_for_are_all),
                cmocka_unit_test(tokens_come_back_as_they_were),
                cmocka_unit_test(what_is_no_token_is_refused),
                cmocka_unit_test(requests_are_forgotten_after_ten_minutes),
                cmocka_unit_test(the_oldest_request_makes_room_but_none_under_way),
                cmocka_unit_test_setup_teardown(uploads_are_read_as_they_were_written, root_set_up, root_tear_down),
                cmocka_unit_test_setup_teardown(a_list_of_uploads_that_is_none_is_empty, root_set_up, root_tear_down),
                cmocka_unit_test(uploads_have_names_of_their_own),
                cmocka_unit_test(bytes_become_text),
                cmocka_unit_test(every_change_is_another_version),
                cmocka_unit_test_setup_teardown(drafts_come_whole_or_not_at_all, root_set_up, root_tear_down),
                cmocka_unit_test_setup_teardown(drafts_that_nobody_works_on_are_collected, root_set_up, root_tear_down),
                cmocka_unit_test_setup_teardown(a_named_draft_is_nobody_elses, root_set_up, root_tear_down),
                cmocka_unit_test_setup_teardown(links_do_not_lead_out_of_the_root, root_set_up, root_tear_down),
                cmocka_unit_test_setup_teardown(the_workspace_and_what_is_above_it_are_protected, root_set_up,
                                                root_tear_down),
                cmocka_unit_test_setup_teardown(a_worker_skips_what_was_on_its_way, root_set_up, root_tear_down),
                cmocka_unit_test(a_cancelled_stream_says_so),
                cmocka_unit_test(large_data_is_aligned),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
