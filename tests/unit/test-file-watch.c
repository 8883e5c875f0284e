/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/worker/file-methods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "file-call.h"
#include "keeper/root/remove.h"
#include "test.h"

/* A root "box" with the watched folder "top", beside "side"; the test stands in the box. */
static char root[64];

static int setup(void **state) {
        (void) snprintf(root, sizeof(root), "/tmp/hutch-watch-XXXXXX");
        assert_non_null(mkdtemp(root));
        assert_int_equal(chdir(root), 0);
        assert_int_equal(mkdir("top", 0755) | mkdir("side", 0755), 0);
        return 0;
}

static int teardown(void **state) {
        assert_int_equal(chdir("/"), 0);
        return folder_remove(root, NULL);
}

static void shell(const char *command) {
        if (system(command) != 0)
                fail_msg("failed: %s", command);
}

static Hutch__V1__WatchFilesResponse *next(FileCall *call) {
        const uint8_t *bytes;
        size_t len;
        if (!file_call_next(call, &bytes, &len))
                return NULL;
        Hutch__V1__WatchFilesResponse *response = hutch__v1__watch_files_response__unpack(NULL, len, bytes);
        assert_non_null(response);
        return response;
}

/* Begins to watch /top, which has so many folders. */
static FileCall begin(bool is_recursive, uint64_t folders) {
        Hutch__V1__WatchFilesRequest request = HUTCH__V1__WATCH_FILES_REQUEST__INIT;
        request.path = (char *) "/top/";
        request.recursive = is_recursive;
        FileCall call = file_call_begin(root, file_method_watch);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        file_call_half_close(&call);
        Hutch__V1__WatchFilesResponse *first = next(&call);
        assert_string_equal(call.end.reason, "");
        assert_true(first && first->item_case == HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_STARTED);
        assert_int_equal(first->started->folders, folders);
        hutch__v1__watch_files_response__free_unpacked(first, NULL);
        return call;
}

static void end(FileCall *call) {
        file_call_cancel(call);
        for (Hutch__V1__WatchFilesResponse *item; (item = next(call));)
                hutch__v1__watch_files_response__free_unpacked(item, NULL);
        assert_int_equal(call->end.error, ECANCELED);
        file_call_end(call);
}

/* Adds what was told: "+path" created, "=path" written, "-path" deleted, "old>path" moved; folders end in
 * '/'. Returns false once /top/end was told. */
static bool add_told(StringBuilder *told, const Hutch__V1__WatchFilesResponse *item) {
        assert_int_equal(item->item_case, HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_CHANGE);
        const Hutch__V1__FileChange *change = item->change;
        if (str_equal(change->path, "/top/end"))
                return false;
        assert_true(str_has_prefix(change->path, "/top/"));
        const char *old = change->old_path;
        string_builder_appendf(told, "%s%c%s%s ", *old ? old + strlen("/top/") : "", " +=>-"[change->type],
                               change -> path + strlen("/top/"),
                               change -> file_type == HUTCH__V1__FILE_TYPE__FILE_TYPE_DIRECTORY ? "/" : "");
        return true;
}

/* Does @command, and returns what is told of it. */
static char *told_of(FileCall *call, const char *command) {
        StringBuilder told = {};
        shell(command);
        shell("mkdir top/end; rmdir top/end");
        for (bool more = true; more;) {
                Hutch__V1__WatchFilesResponse *item = next(call);
                assert_non_null(item);
                more = add_told(&told, item);
                hutch__v1__watch_files_response__free_unpacked(item, NULL);
        }
        /* That it is gone again. */
        Hutch__V1__WatchFilesResponse *item = next(call);
        while (item->item_case != HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_CHANGE ||
               item->change->type != HUTCH__V1__FILE_CHANGE_TYPE__FILE_CHANGE_TYPE_DELETED) {
                hutch__v1__watch_files_response__free_unpacked(item, NULL);
                item = next(call);
        }
        hutch__v1__watch_files_response__free_unpacked(item, NULL);
        return string_builder_take(&told);
}

static void assert_told(FileCall *call, const char *command, const char *expected) {
        _cleanup_free_ char *told = told_of(call, command);
        if (!str_equal(told, expected))
                fail_msg("'%s' told '%s' instead of '%s'", command, told, expected);
}

static void changes_of_a_folder_are_told(void **state) {
        shell("mkdir top/old; echo x > top/there");
        FileCall call = begin(false, 1);
        assert_told(&call, "echo hello > top/a", "+a =a ");
        assert_told(&call, "echo more >> top/a", "=a ");
        assert_told(&call, "mv top/a top/b", "a>b ");
        assert_told(&call, "mv top/b side/b", "-b ");
        assert_told(&call, "mv side/b top/c", ">c ");
        assert_told(&call, "rm top/c", "-c ");
        assert_told(&call, "mkdir top/d; rmdir top/d", "+d/ -d/ ");
        assert_told(&call, "ln -s a top/l; mkfifo top/f; ln top/there top/h", "+l +f +h ");
        assert_told(&call, "cat top/there > /dev/null; ls top > /dev/null", "");
        /* Not what is below. */
        assert_told(&call, "echo x > top/old/x; mkdir -p top/new/newer; echo x > top/new/x", "+new/ ");
        end(&call);
}

static size_t count(const char *told, const char *wanted) {
        size_t n = 0;
        for (const char *at = told; (at = strstr(at, wanted)); at += strlen(wanted))
                n += at == told || at[-1] == ' ';
        return n;
}

/* Each of @wanted was told once, or a second time where the kernel leaves no way to know. */
static void assert_each(const char *told, const char *const *wanted) {
        for (; *wanted; wanted++)
                if (count(told, *wanted) < 1 || count(told, *wanted) > 2)
                        fail_msg("'%s' was told %zu times in '%s'", *wanted, count(told, *wanted), told);
}

static void folders_below_are_watched_too(void **state) {
        shell("mkdir -p top/a/b/c; ln -s ../side top/lead");
        FileCall call = begin(true, 4);
        assert_told(&call, "echo x > top/a/b/c/x", "+a/b/c/x =a/b/c/x ");
        assert_told(&call, "mv top/a/b top/b; echo y > top/b/c/y", "a/b>b/ +b/c/y =b/c/y ");
        /* Out and in again: with all that is in it. */
        assert_told(&call, "mv top/b side/b; echo z > side/b/c/z", "-b/ ");
        _cleanup_free_ char *told = told_of(&call, "mv side/b top/a/b");
        assert_each(told, (const char *const[]){ ">a/b/ ", "+a/b/c/ ", "+a/b/c/x ", "+a/b/c/y ", "+a/b/c/z ",
                                                 "=a/b/c/z ", NULL });
        assert_told(
                &call,
                "rm top/a/b/c/x top/a/b/c/y top/a/b/c/z; rmdir top/a/b/c; mkdir top/a/b/c; sleep 0.1; rmdir top/a/b/c",
                "-a/b/c/x -a/b/c/y -a/b/c/z -a/b/c/ +a/b/c/ -a/b/c/ ");
        assert_told(&call, "echo x > side/x; echo x > top/lead/y", "");
        /* A folder in the place of an empty one. */
        assert_told(&call, "mkdir top/e1 top/e2; sleep 0.1; mv -T top/e1 top/e2; echo x > top/e2/x",
                    "+e1/ +e2/ e1>e2/ +e2/x =e2/x ");
        end(&call);
}

static void new_folders_are_watched_before_anything_is_lost(void **state) {
        FileCall call = begin(true, 1);
        _cleanup_free_ char *told =
                told_of(&call, "for i in $(seq 1 300); do mkdir -p top/n$i/1/2; echo x > top/n$i/1/2/f; done");
        for (int i = 1; i <= 300; i++) {
                char names[5][64];
                (void) snprintf(names[0], 64, "+n%d/ ", i);
                (void) snprintf(names[1], 64, "+n%d/1/ ", i);
                (void) snprintf(names[2], 64, "+n%d/1/2/ ", i);
                (void) snprintf(names[3], 64, "+n%d/1/2/f ", i);
                (void) snprintf(names[4], 64, "=n%d/1/2/f ", i);
                assert_each(told, (const char *const[]){ names[0], names[1], names[2], names[3], names[4], NULL });
        }
        end(&call);
}

static void a_full_queue_is_told_and_the_watch_goes_on(void **state) {
        FileCall call = begin(true, 1);
        /* Nobody reads meanwhile. */
        shell("cd top; seq 1 30000 | xargs touch; mkdir -p late/later; seq 1 30000 | xargs rm");
        for (bool is_told = false; !is_told;) {
                Hutch__V1__WatchFilesResponse *item = next(&call);
                assert_non_null(item);
                is_told = item->item_case == HUTCH__V1__WATCH_FILES_RESPONSE__ITEM_OVERFLOW;
                hutch__v1__watch_files_response__free_unpacked(item, NULL);
        }
        assert_told(&call, "echo x > top/late/later/x", "+late/later/x =late/later/x ");
        end(&call);
}

static void folders_are_bounded(void **state) {
        shell("cd top; seq 1 8192 | xargs mkdir");
        Hutch__V1__WatchFilesRequest request = HUTCH__V1__WATCH_FILES_REQUEST__INIT;
        request.path = (char *) "/top";
        request.recursive = true;
        FileCall call = file_call_begin(root, file_method_watch);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        assert_null(next(&call));
        assert_string_equal(call.end.reason, "QUOTA_EXCEEDED");
        assert_string_equal(call.end.pairs[0].value, "watched_folders");
        assert_string_equal(call.end.pairs[1].value, "8192");
        file_call_end(&call);

        shell("rmdir top/1");
        call = begin(true, 8192);
        shell("mkdir top/1");
        for (Hutch__V1__WatchFilesResponse *item; (item = next(&call));)
                hutch__v1__watch_files_response__free_unpacked(item, NULL);
        assert_string_equal(call.end.reason, "QUOTA_EXCEEDED");
        file_call_end(&call);
}

static void a_watch_ends_with_its_folder(void **state) {
        static const char *const ways[] = { "rm -r top", "mv top gone" };
        for (size_t i = 0; i < 2; i++) {
                shell("mkdir -p top/x");
                FileCall call = begin(true, 2);
                shell(ways[i]);
                for (Hutch__V1__WatchFilesResponse *item; (item = next(&call));)
                        hutch__v1__watch_files_response__free_unpacked(item, NULL);
                assert_string_equal(call.end.reason, "FILE_NOT_FOUND");
                file_call_end(&call);
        }
}

static void what_follows_the_request_ends_the_call(void **state) {
        Hutch__V1__WatchFilesRequest request = HUTCH__V1__WATCH_FILES_REQUEST__INIT;
        request.path = (char *) "/top";
        FileCall call = file_call_begin(root, file_method_watch);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        hutch__v1__watch_files_response__free_unpacked(next(&call), NULL);
        assert_null(next(&call));
        assert_string_equal(call.end.reason, "STREAM_ORDER");
        file_call_end(&call);
}

int main(void) {
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        const struct CMUnitTest tests[] = {
                WITH_ROOT(changes_of_a_folder_are_told),
                WITH_ROOT(folders_below_are_watched_too),
                WITH_ROOT(new_folders_are_watched_before_anything_is_lost),
                WITH_ROOT(a_full_queue_is_told_and_the_watch_goes_on),
                WITH_ROOT(folders_are_bounded),
                WITH_ROOT(a_watch_ends_with_its_folder),
                WITH_ROOT(what_follows_the_request_ends_the_call),
        };

        return cmocka_run_group_tests_name("file-watch", tests, NULL, NULL);
}
