/* SPDX-License-Identifier: Apache-2.0 */

/* The rules of requests for file work, and the form that they bring requests into. */

#include "api/file-checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/wire-buffer.h"
#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"

#include "test.h"

/* What is wrong with @message: "field REASON; …", and of a refusal "REASON limit value". */
static const char *check(FileCheck rule, ProtobufCMessage *message) {
        static char text[1024];
        _cleanup_(violations_clear) Violations violations = {};
        const FileRules rules = { "/workspace/src", "/workspace", &api_limits_default };
        size_t len = 0;

        *text = '\0';
        rule(message, &rules, &violations);
        for (size_t i = 0; i < violations_kept(&violations); i++)
                len += (size_t) snprintf(text + len, sizeof(text) - len, "%s%s %s", i > 0 ? "; " : "",
                                         violations.list[i].field, reason_name(violations.list[i].reason));
        if (violations.n == 0 && violations.refusal.error)
                (void) snprintf(text, sizeof(text), "%s %s %s", violations.refusal.reason,
                                violations.refusal.pairs[0].value, violations.refusal.pairs[1].value);
        return text;
}

/* The path that a request for @path has at the end; empty: it is refused. The caller frees it. */
static char *checked_path(const char *path) {
        Hutch__V1__StatFileRequest request = HUTCH__V1__STAT_FILE_REQUEST__INIT;

        request.path = xstrdup(path);
        if (*check(check_stat_file, &request.base))
                *request.path = '\0';
        return request.path;
}

static void paths_are_completed(void **state) {
        static const struct {
                const char *path, *checked;
        } cases[] = {
                { "/a//b/./c", "/a/b/c" },
                { "a", "/workspace/src/a" },
                { "a/", "/workspace/src/a/" },
                { ".", "/workspace/src/" },
                { "/", "/" },
                { "//.", "/" },
                { "/a/.", "/a/" },
                { "../a", "" },
                { "~", "" },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_free_ char *checked = checked_path(cases[i].path);

                assert_string_equal(checked, cases[i].checked);
        }
}

static void root_and_workspace_are_protected(void **state) {
        static const char *const refused[] = { "/", "/workspace", "/workspace/.", "//workspace/", "/." };
        Hutch__V1__RemoveFileRequest remove = HUTCH__V1__REMOVE_FILE_REQUEST__INIT;
        Hutch__V1__MoveFileRequest move = HUTCH__V1__MOVE_FILE_REQUEST__INIT;

        (void) state;
        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
                remove.path = move.source = (char *) refused[i];
                move.target = (char *) "";
                assert_string_equal(check(check_remove_file, &remove.base), "path PATH_PROTECTED");
                assert_string_equal(check(check_move_file, &move.base), "source PATH_PROTECTED; target PATH_EMPTY");
        }
}

static void limits_in_force_are_filled_in(void **state) {
        const ApiLimits none = {};
        _cleanup_(violations_clear) Violations violations = {};
        Hutch__V1__DownloadFileRequest download = HUTCH__V1__DOWNLOAD_FILE_REQUEST__INIT;
        Hutch__V1__ListFilesRequest list = HUTCH__V1__LIST_FILES_REQUEST__INIT;
        Hutch__V1__MakeDirectoryRequest make = HUTCH__V1__MAKE_DIRECTORY_REQUEST__INIT;

        (void) state;
        download.path = xstrdup("/a");
        assert_string_equal(check(check_download_file, &download.base), "");
        assert_int_equal(download.max_size_bytes, 256 << 20);
        download.max_size_bytes = UINT64_C(64) << 30;
        assert_string_equal(check(check_download_file, &download.base), "");
        assert_int_equal(download.max_size_bytes, UINT64_C(64) << 30);
        download.max_size_bytes++;
        assert_string_equal(check(check_download_file, &download.base), "FILE_TOO_LARGE max_file_bytes 68719476736");
        download.max_size_bytes = 0;
        check_download_file(&download.base, &(FileRules){ .limits = &none }, &violations);
        assert_int_equal(violations.n, 0);
        assert_int_equal(download.max_size_bytes, INT64_MAX);
        free(download.path);

        list.path = xstrdup("/a");
        assert_string_equal(check(check_list_files, &list.base), "");
        assert_int_equal(list.page_size, 100);
        assert_int_equal(list.depth, 1);
        list.page_size = 4000000000;
        list.depth = 64;
        assert_string_equal(check(check_list_files, &list.base), "");
        assert_int_equal(list.page_size, 1000);
        assert_int_equal(list.depth, 64);
        free(list.path);

        make.path = xstrdup("/a");
        assert_string_equal(check(check_make_directory, &make.base), "");
        assert_int_equal(make.opt_mode_case, HUTCH__V1__MAKE_DIRECTORY_REQUEST__OPT_MODE_MODE);
        assert_int_equal(make.mode, 0755);
        make.mode = 0;
        assert_string_equal(check(check_make_directory, &make.base), "");
        assert_int_equal(make.mode, 0);
        free(make.path);
}

static void everything_wrong_is_told_at_once(void **state) {
        char long_text[5000], *patterns[257], *few[2] = { (char *) "", long_text };
        Hutch__V1__UploadFileHeader upload = HUTCH__V1__UPLOAD_FILE_HEADER__INIT;
        Hutch__V1__DownloadArchiveRequest pack = HUTCH__V1__DOWNLOAD_ARCHIVE_REQUEST__INIT;
        Hutch__V1__ListFilesRequest list = HUTCH__V1__LIST_FILES_REQUEST__INIT;
        Hutch__V1__UploadArchiveHeader unpack = HUTCH__V1__UPLOAD_ARCHIVE_HEADER__INIT;
        Hutch__V1__WriteFileRequest write = HUTCH__V1__WRITE_FILE_REQUEST__INIT;
        Hutch__V1__ReadFileRequest read = HUTCH__V1__READ_FILE_REQUEST__INIT;

        (void) state;
        memset(long_text, 'x', sizeof(long_text) - 1);
        long_text[sizeof(long_text) - 1] = '\0';
        for (size_t i = 0; i < 257; i++)
                patterns[i] = (char *) "*";

        upload.opt_mode_case = HUTCH__V1__UPLOAD_FILE_HEADER__OPT_MODE_MODE;
        upload.mode = 04755;
        upload.sha256 = (ProtobufCBinaryData){ .len = 31, .data = (uint8_t *) long_text };
        upload.upload_id = (char *) "a/b";
        assert_string_equal(check(check_upload_file, &upload.base),
                            "path PATH_EMPTY; mode FIELD_INVALID; sha256 FIELD_INVALID; upload_id FIELD_INVALID");
        upload.upload_id = (char *) "";
        upload.resume_offset = 1;
        upload.sha256.len = 32;
        upload.mode = 0777;
        assert_string_equal(check(check_upload_file, &upload.base), "path PATH_EMPTY; resume_offset FIELD_INVALID");

        pack.compression = 4;
        pack.include = patterns;
        pack.n_include = 257;
        pack.exclude = few;
        pack.n_exclude = 2;
        pack.ignore_file = (char *) "a/b";
        assert_string_equal(check(check_download_archive, &pack.base),
                            "path PATH_EMPTY; compression FIELD_INVALID; include FIELD_TOO_LONG; "
                            "exclude[0] FIELD_INVALID; exclude[1] FIELD_TOO_LONG; ignore_file FIELD_INVALID");
        pack.n_include = 256;
        pack.n_exclude = 0;
        pack.ignore_file = (char *) "..";
        pack.compression = 3;
        assert_string_equal(check(check_download_archive, &pack.base), "path PATH_EMPTY; ignore_file FIELD_INVALID");

        list.depth = 65;
        list.glob = long_text;
        assert_string_equal(check(check_list_files, &list.base),
                            "path PATH_EMPTY; depth FIELD_OUT_OF_RANGE; glob FIELD_TOO_LONG");

        unpack.compression = -1;
        assert_string_equal(check(check_upload_archive, &unpack.base), "path PATH_EMPTY; compression FIELD_INVALID");

        write.opt_mode_case = HUTCH__V1__WRITE_FILE_REQUEST__OPT_MODE_MODE;
        write.mode = 01000;
        write.expected_version = long_text;
        assert_string_equal(check(check_write_file, &write.base),
                            "path PATH_EMPTY; mode FIELD_INVALID; expected_version FIELD_TOO_LONG");

        read.path = xstrdup("/a");
        read.opt_length_case = HUTCH__V1__READ_FILE_REQUEST__OPT_LENGTH_LENGTH;
        read.length = (3 << 20) + 1;
        assert_string_equal(check(check_read_file, &read.base), "FILE_TOO_LARGE small_file_bytes 3145728");
        read.length--;
        assert_string_equal(check(check_read_file, &read.base), "");
        free(read.path);
}

static void announced_sizes_are_compared_with_the_limit(void **state) {
        Hutch__V1__UploadFileHeader upload = HUTCH__V1__UPLOAD_FILE_HEADER__INIT;

        (void) state;
        upload.path = xstrdup("/a");
        upload.opt_size_bytes_case = HUTCH__V1__UPLOAD_FILE_HEADER__OPT_SIZE_BYTES_SIZE_BYTES;
        upload.size_bytes = (256 << 20) + 1;
        assert_string_equal(check(check_upload_file, &upload.base), "FILE_TOO_LARGE file_bytes 268435456");
        upload.max_size_bytes = upload.size_bytes;
        assert_string_equal(check(check_upload_file, &upload.base), "");
        upload.size_bytes++;
        assert_string_equal(check(check_upload_file, &upload.base), "FILE_TOO_LARGE max_size_bytes 268435457");
        free(upload.path);
}

static void uploads_are_told_about_without_a_path(void **state) {
        Hutch__V1__StatFileRequest stat = HUTCH__V1__STAT_FILE_REQUEST__INIT;

        (void) state;
        assert_string_equal(check(check_stat_file, &stat.base), "path PATH_EMPTY");
        stat.upload_id = (char *) "a-b_c.d:e9";
        assert_string_equal(check(check_stat_file, &stat.base), "");
        assert_string_equal(stat.path, "");
        stat.path = (char *) "..";
        assert_string_equal(check(check_stat_file, &stat.base), "path PATH_DOTDOT");
}

static void plain_data_is_exactly_one_field(void **state) {
        static const size_t sizes[] = { 0, 1, 127, 128, 16383, 16384, FILE_DATA_MAX, FILE_DATA_MAX + 1 };
        _cleanup_free_ uint8_t *zeros = xcalloc(1, FILE_DATA_MAX + 1);

        (void) state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                _cleanup_(wire_buffer_clear) WireBuffer buffer = {};

                wire_put_bytes(&buffer, 2, zeros, sizes[i]);
                assert_int_equal(is_plain_data(buffer.bytes, buffer.len, 2), sizes[i] <= FILE_DATA_MAX);
                assert_false(is_plain_data(buffer.bytes, buffer.len, 1));
                assert_false(is_plain_data(buffer.bytes, buffer.len - 1, 2));
                wire_put_bytes(&buffer, 2, "", 0);
                assert_false(is_plain_data(buffer.bytes, buffer.len, 2));
        }
        assert_false(is_plain_data((const uint8_t *) "", 0, 2));
        assert_false(is_plain_data((const uint8_t *) "\x12", 1, 2));
        assert_false(is_plain_data((const uint8_t *) "\x12\x80\x00", 3, 2));     /* not the shortest form */
        assert_false(is_plain_data((const uint8_t *) "\x12\x81\x00x", 4, 2));    /* the same */
        assert_false(is_plain_data((const uint8_t *) "\x12\xff\xff\xff", 4, 2)); /* cut */
        assert_false(is_plain_data((const uint8_t *) "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, 2));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(paths_are_completed),
                cmocka_unit_test(root_and_workspace_are_protected),
                cmocka_unit_test(limits_in_force_are_filled_in),
                cmocka_unit_test(everything_wrong_is_told_at_once),
                cmocka_unit_test(announced_sizes_are_compared_with_the_limit),
                cmocka_unit_test(uploads_are_told_about_without_a_path),
                cmocka_unit_test(plain_data_is_exactly_one_field),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
