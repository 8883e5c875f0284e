/* SPDX-License-Identifier: Apache-2.0 */

#include "output/output-file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fd.h"
#include "base/strings.h"
#include "test.h"

/* The byte at @offset of the stream that these tests write: neighbours differ, and so do turns of any ring. */
static uint8_t stream_byte(uint64_t offset) {
        return (uint8_t) ((offset * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static void fill(uint8_t *buffer, uint64_t offset, size_t len) {
        for (size_t i = 0; i < len; i++)
                buffer[i] = stream_byte(offset + i);
}

static bool is_stream(const uint8_t *buffer, uint64_t offset, size_t len) {
        for (size_t i = 0; i < len; i++)
                if (buffer[i] != stream_byte(offset + i))
                        return false;
        return true;
}

static int new_file(void) {
        int fd = memfd_create("output", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static void add_stream(OutputWriter *writer, uint64_t len, size_t chunk) {
        uint8_t buffer[4096];

        assert_true(chunk <= sizeof(buffer));
        while (len > 0) {
                size_t n = len < chunk ? len : chunk;

                fill(buffer, writer->total, n);
                assert_int_equal(output_writer_add(writer, buffer, n), 0);
                len -= n;
        }
}

/* Everything that the file has is what the window of @total says, read in pieces of @piece. */
static void expect_kept(int fd, uint64_t limit, uint64_t total, size_t piece) {
        OutputWindow expected = output_window(limit, total), window;
        uint64_t offset = 0, seen = 0, at;
        uint8_t buffer[4096];
        ssize_t n;

        assert_int_equal(output_file_window(fd, limit, &window), 0);
        assert_int_equal(window.head, expected.head);
        assert_int_equal(window.tail_start, expected.tail_start);
        assert_int_equal(window.total, total);

        while ((n = output_file_read(fd, limit, offset, buffer, piece, &at)) > 0) {
                assert_true(at == offset || (offset == expected.head && at == expected.tail_start));
                assert_true(is_stream(buffer, at, (size_t) n));
                offset = at + (uint64_t) n;
                seen += (uint64_t) n;
        }
        assert_int_equal(n, 0);
        assert_int_equal(at, total);
        assert_int_equal(seen, total - output_window_dropped(expected));
}

static void head_and_tail_are_kept_for_every_small_limit(void **state) {
        static const size_t chunks[] = { 1, 2, 3, 7, 16, 50, 4096 };

        for (uint64_t limit = 1; limit <= 20; limit++)
                for (size_t i = 0; i < sizeof(chunks) / sizeof(*chunks); i++)
                        for (uint64_t total = 0; total <= 70; total++) {
                                _cleanup_close_ int fd = new_file();
                                OutputWriter writer;

                                output_writer_init(&writer, fd, limit);
                                add_stream(&writer, total, chunks[i]);
                                assert_int_equal(writer.total, total);
                                expect_kept(fd, limit, total, 1 + total % 9);
                        }
}

static void larger_streams_are_kept_too(void **state) {
        static const uint64_t limits[] = { 4096, 4097, 65535, 65536, 100003 };

        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
                _cleanup_close_ int fd = new_file();
                OutputWriter writer;

                output_writer_init(&writer, fd, limits[i]);
                for (int step = 0; step < 20; step++) {
                        add_stream(&writer, 12345, 4001);
                        expect_kept(fd, limits[i], writer.total, 4096);
                }
        }
}

static void the_file_is_the_stream_up_to_the_limit(void **state) {
        static const uint64_t limits[] = { 7, UINT64_MAX, INT64_MAX, (uint64_t) INT64_MAX + 1 };

        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
                _cleanup_close_ int fd = new_file();
                OutputWriter writer;
                char buffer[16];

                output_writer_init(&writer, fd, limits[i]);
                assert_int_equal(output_writer_add(&writer, "\0a\n", 3), 0);
                assert_int_equal(output_writer_add(&writer, "", 0), 0);
                assert_int_equal(output_writer_add(&writer, "last", 4), 0);
                assert_int_equal(pread(fd, buffer, sizeof(buffer), 0), 7);
                assert_memory_equal(buffer, "\0a\nlast", 7);
        }
}

static void reading_beyond_the_end_finds_nothing_yet(void **state) {
        _cleanup_close_ int fd = new_file();
        OutputWriter writer;
        char buffer[8];
        uint64_t at;

        output_writer_init(&writer, fd, 10);
        assert_int_equal(output_file_read(fd, 10, 0, buffer, 8, &at), 0);
        assert_int_equal(at, 0);
        assert_int_equal(output_writer_add(&writer, "abc", 3), 0);
        assert_int_equal(output_file_read(fd, 10, 3, buffer, 8, &at), 0);
        assert_int_equal(at, 3);
        assert_int_equal(output_file_read(fd, 10, 99, buffer, 8, &at), 0);
        assert_int_equal(at, 99);
        assert_int_equal(output_file_read(-1, 10, 0, buffer, 8, &at), -EBADF);
}

static void expect_tail(const char *text, uint64_t limit, uint64_t lines, uint64_t offset) {
        _cleanup_close_ int fd = new_file();
        OutputWriter writer;
        uint64_t at;

        output_writer_init(&writer, fd, limit);
        assert_int_equal(output_writer_add(&writer, text, strlen(text)), 0);
        assert_int_equal(output_file_tail(fd, limit, lines, &at), 0);
        assert_int_equal(at, offset);
}

static void the_last_lines_are_found(void **state) {
        expect_tail("", 100, 5, 0);
        expect_tail("", 100, 0, 0);
        expect_tail("a\nb\nc\n", 100, 0, 6);
        expect_tail("a\nb\nc\n", 100, 1, 4);
        expect_tail("a\nb\nc\n", 100, 2, 2);
        expect_tail("a\nb\nc\n", 100, 3, 0);
        expect_tail("a\nb\nc\n", 100, UINT64_MAX, 0);
        expect_tail("a\nb\nc", 100, 1, 4);
        expect_tail("a\nb\nc", 100, 2, 2);
        expect_tail("\n", 100, 1, 0);
        expect_tail("\n\n\n", 100, 1, 2);
        expect_tail("\n\n\n", 100, 2, 1);
        /* Kept: "a\nb\n" and "\ne\n"; bytes 0 to 3 and 7 to 9. */
        expect_tail("a\nb\nc\nd\ne\n", 7, 1, 8);
        expect_tail("a\nb\nc\nd\ne\n", 7, 2, 7);
        expect_tail("a\nb\nc\nd\ne\n", 7, 3, 7);
        expect_tail("a\nb\nc\nd\ne\n", 1, 1, 10);
}

static void the_last_lines_are_found_over_many_blocks(void **state) {
        _cleanup_close_ int fd = new_file();
        OutputWriter writer;
        char line[101];
        uint64_t at;

        memset(line, 'x', sizeof(line));
        line[100] = '\n';
        output_writer_init(&writer, fd, 400001);
        for (int i = 0; i < 10000; i++)
                assert_int_equal(output_writer_add(&writer, line, sizeof(line)), 0);

        assert_int_equal(output_file_tail(fd, 400001, 1900, &at), 0);
        assert_int_equal(at, writer.total - UINT64_C(1900) * sizeof(line));
        assert_int_equal(output_file_tail(fd, 400001, 3000, &at), 0);
        assert_int_equal(at, writer.total - 200000);
}

static void vectors_hold(void **state) {
        VECTOR_FOREACH(v, "output.json") {
                const char *kind = vector_string(v, "kind");
                uint64_t limit = (uint64_t) vector_int(v, "limit");
                _cleanup_close_ int fd = new_file();
                char head[4096], tail[4096];
                OutputWindow window;
                OutputWriter writer;
                json_t *chunk;
                uint64_t at;
                size_t i;

                if (!str_equal(kind, "bytes") || limit == 0) {
                        vector_check(v, true, "is about the arithmetic");
                        continue;
                }

                output_writer_init(&writer, fd, limit);
                json_array_foreach(json_object_get(vector_json(v, "in"), "chunks"), i, chunk) assert_int_equal(
                        output_writer_add(&writer, json_string_value(chunk), json_string_length(chunk)), 0);

                assert_int_equal(output_file_window(fd, limit, &window), 0);
                /* What was not dropped is read in two pieces, the second being the ring or nothing. */
                size_t n_head = 0, n_tail = 0;
                for (uint64_t offset = 0;;) {
                        bool in_tail = output_window_dropped(window) > 0 && offset >= window.head;
                        char *into = in_tail ? tail + n_tail : head + n_head;
                        ssize_t n = output_file_read(fd, limit, offset, into, 1000, &at);

                        assert_true(n >= 0);
                        if (n == 0)
                                break;
                        *(in_tail ? &n_tail : &n_head) += (size_t) n;
                        offset = at + (uint64_t) n;
                }
                vector_assert_bytes(v, "head", head, n_head);
                vector_assert_bytes(v, "tail", tail, n_tail);
                vector_assert_int(v, "dropped", (int64_t) output_window_dropped(window));
        }
}

/* A writer in a process of its own, which writes pieces of all sizes as fast as it can. */
static pid_t start_writer(int fd, uint64_t limit, uint64_t total) {
        static uint8_t buffer[100000];
        pid_t pid = fork();
        unsigned seed = 7;

        assert_true(pid >= 0);
        if (pid > 0)
                return pid;

        OutputWriter writer;
        output_writer_init(&writer, fd, limit);
        while (writer.total < total) {
                size_t n;

                seed = seed * 1103515245 + 12345;
                n = 1 + (seed >> 8) % ((seed >> 4) % 3 == 0 ? sizeof(buffer) : 200);
                if (n > total - writer.total)
                        n = total - writer.total;
                fill(buffer, writer.total, n);
                if (output_writer_add(&writer, buffer, n) < 0)
                        _exit(1);
        }
        _exit(0);
}

static void readers_get_the_streams_bytes_while_it_turns(void **state) {
        static const uint64_t limits[] = { 3, 100, 4097, 65537, 1000000 };
        static uint8_t buffer[50000];

        for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
                uint64_t limit = limits[i], total = 120 * 1000 * 1000, offset = 0, at, seen = 0;
                _cleanup_close_ int fd = new_file();
                pid_t pid = start_writer(fd, limit, total);
                bool ended = false;

                for (;;) {
                        ssize_t n = output_file_read(fd, limit, offset, buffer, 1 + offset % sizeof(buffer), &at);
                        int status;

                        assert_true(n >= 0);
                        assert_true(at >= offset);
                        if (n > 0 && !is_stream(buffer, at, (size_t) n))
                                fail_msg("limit %ju: wrong bytes at %ju", (uintmax_t) limit, (uintmax_t) at);
                        seen += (uint64_t) n;
                        offset = at + (uint64_t) n;
                        if (n > 0)
                                continue;
                        if (ended)
                                break;
                        if (waitpid(pid, &status, WNOHANG) == pid) {
                                assert_int_equal(status, 0);
                                ended = true;
                        }
                }
                assert_int_equal(offset, total);
                assert_true(seen >= limit);
                expect_kept(fd, limit, total, 4096);
        }
}

/* Files may not grow past a size for a while, as on a full disk. */
static void set_file_size_limit(rlim_t bytes) {
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        limit.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_loses_bytes_and_nothing_else(void **state) {
        char path[] = "/tmp/test-output-file-XXXXXX";
        _cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);
        uint8_t buffer[1000];
        OutputWriter writer;
        OutputWindow window;
        uint64_t at;

        assert_true(fd >= 0);
        unlink(path);
        signal(SIGXFSZ, SIG_IGN);
        output_writer_init(&writer, fd, 1000);
        add_stream(&writer, 300, 100);

        /* Before the limit: what is missing is a hole, or the end. */
        set_file_size_limit(350);
        fill(buffer, 300, 100);
        assert_int_equal(output_writer_add(&writer, buffer, 100), -EFBIG);
        assert_int_equal(writer.total, 400);
        set_file_size_limit(RLIM_INFINITY);
        add_stream(&writer, 100, 100);
        assert_int_equal(output_file_read(fd, 1000, 0, buffer, 500, &at), 500);
        assert_true(is_stream(buffer, 0, 350));
        for (size_t i = 350; i < 400; i++)
                assert_int_equal(buffer[i], 0);
        assert_true(is_stream(buffer + 400, 400, 100));

        /* The ring cannot begin: everything stays as it was. */
        add_stream(&writer, 500, 100);
        set_file_size_limit(1000);
        fill(buffer, 1000, 700);
        assert_int_equal(output_writer_add(&writer, buffer, 700), -EFBIG);
        assert_int_equal(writer.total, 1700);
        set_file_size_limit(RLIM_INFINITY);
        assert_int_equal(output_file_window(fd, 1000, &window), 0);
        assert_int_equal(window.total, 1000);
        assert_int_equal(output_file_read(fd, 1000, 500, buffer, 500, &at), 500);
        assert_true(is_stream(buffer, 500, 500));

        /* When it can, nothing of what was lost is ever read. */
        for (int step = 0; step < 8; step++) {
                ssize_t n;

                add_stream(&writer, 90, 90);
                assert_int_equal(output_file_window(fd, 1000, &window), 0);
                assert_int_equal(window.total, writer.total);
                n = output_file_read(fd, 1000, 500, buffer, 1000, &at);
                assert_true(n > 0 && at >= 1700);
                assert_true(is_stream(buffer, at, (size_t) n));
        }
        assert_int_equal(window.tail_start, writer.total - 500);
}

/* A file system of a few pages of its own, as its current folder; skips the test where that cannot be. */
static void enter_small_disk(unsigned pages) {
        char folder[] = "/tmp/test-output-file-XXXXXX", options[32];

        if (unshare(CLONE_NEWNS) < 0)
                skip();
        assert_non_null(mkdtemp(folder));
        (void) snprintf(options, sizeof(options), "size=%u", pages * 4096);
        assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
        assert_int_equal(mount("tmpfs", folder, "tmpfs", 0, options), 0);
        assert_int_equal(chdir(folder), 0);
        assert_int_equal(umount2(folder, MNT_DETACH), 0);
        assert_int_equal(rmdir(folder), 0);
}

static int leave_small_disk(void **state) {
        return chdir("/");
}

static int new_disk_file(const char *name) {
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        return fd;
}

/* Adds pages to the stream, of which some may not fit. */
static int add_pages(OutputWriter *writer, unsigned pages) {
        uint8_t page[4096];
        int r = 0;

        for (unsigned i = 0; i < pages; i++) {
                int q;

                fill(page, writer->total, sizeof(page));
                q = output_writer_add(writer, page, sizeof(page));
                r = r < 0 ? r : q;
        }
        return r;
}

static void what_did_not_fit_reads_as_zero(void **state) {
        uint8_t page[4096], zeros[4096] = {};
        OutputWindow window;
        OutputWriter writer;
        uint64_t at;

        enter_small_disk(3);
        _cleanup_close_ int fd = new_disk_file("output");
        output_writer_init(&writer, fd, 100000);
        assert_int_equal(add_pages(&writer, 5), -ENOSPC);
        assert_int_equal(output_file_window(fd, 100000, &window), 0);
        assert_int_equal(window.total, UINT64_C(5) * 4096);
        assert_int_equal(output_file_read(fd, 100000, UINT64_C(2) * 4096, page, sizeof(page), &at), sizeof(page));
        assert_true(is_stream(page, at, sizeof(page)));
        assert_int_equal(output_file_read(fd, 100000, UINT64_C(3) * 4096, page, sizeof(page), &at), sizeof(page));
        assert_memory_equal(page, zeros, sizeof(page));
}

static void a_ring_with_bytes_missing_is_not_read_until_it_has_turned(void **state) {
        const uint64_t limit = UINT64_C(8) * 4096;
        uint8_t page[4096];
        OutputWindow window;
        OutputWriter writer;
        uint64_t at;
        ssize_t n;

        enter_small_disk(7);
        _cleanup_close_ int filler = new_disk_file("filler"), fd = new_disk_file("output");
        memset(page, 1, sizeof(page));
        assert_int_equal(write(filler, page, sizeof(page)), sizeof(page));
        /* The last two pages of the ring do not fit; then there is room for the numbers behind it, and no more. */
        output_writer_init(&writer, fd, limit);
        assert_int_equal(add_pages(&writer, 8), -ENOSPC);
        assert_int_equal(ftruncate(filler, 0), 0);
        assert_int_equal(add_pages(&writer, 2), 0);
        assert_int_equal(add_pages(&writer, 1), -ENOSPC);

        assert_int_equal(output_file_window(fd, limit, &window), 0);
        assert_int_equal(window.total, writer.total);
        for (uint64_t offset = limit / 2; offset < writer.total; offset += sizeof(page)) {
                n = output_file_read(fd, limit, offset, page, sizeof(page), &at);
                assert_true(n >= 0);
                assert_true(is_stream(page, at, (size_t) n));
        }
}

/* Bytes of the ring that cannot be written, as on file systems that copy on write. */
static void a_ring_that_cannot_be_written_is_not_read(void **state) {
        char path[] = "/tmp/test-output-file-XXXXXX";
        _cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);
        uint8_t buffer[1000];
        OutputWriter writer;
        OutputWindow window;
        uint64_t at;

        assert_true(fd >= 0);
        unlink(path);
        signal(SIGXFSZ, SIG_IGN);
        output_writer_init(&writer, fd, 1000);
        add_stream(&writer, 1200, 100);

        set_file_size_limit(750);
        fill(buffer, 1200, 200);
        assert_true(output_writer_add(&writer, buffer, 200) < 0);
        set_file_size_limit(RLIM_INFINITY);

        for (int step = 0; step < 8; step++) {
                ssize_t n = output_file_read(fd, 1000, 500, buffer, 1000, &at);

                assert_true(n >= 0);
                assert_true(is_stream(buffer, at, (size_t) n));
                add_stream(&writer, 90, 90);
        }
        assert_int_equal(output_file_window(fd, 1000, &window), 0);
        assert_int_equal(window.total, writer.total);
        assert_int_equal(window.tail_start, writer.total - 500);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(head_and_tail_are_kept_for_every_small_limit),
                cmocka_unit_test(larger_streams_are_kept_too),
                cmocka_unit_test(the_file_is_the_stream_up_to_the_limit),
                cmocka_unit_test(reading_beyond_the_end_finds_nothing_yet),
                cmocka_unit_test(the_last_lines_are_found),
                cmocka_unit_test(the_last_lines_are_found_over_many_blocks),
                cmocka_unit_test(vectors_hold),
                cmocka_unit_test(readers_get_the_streams_bytes_while_it_turns),
                cmocka_unit_test(a_full_disk_loses_bytes_and_nothing_else),
                cmocka_unit_test(a_ring_that_cannot_be_written_is_not_read),
                cmocka_unit_test_teardown(what_did_not_fit_reads_as_zero, leave_small_disk),
                cmocka_unit_test_teardown(a_ring_with_bytes_missing_is_not_read_until_it_has_turned, leave_small_disk),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
