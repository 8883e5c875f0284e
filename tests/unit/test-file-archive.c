/* SPDX-License-Identifier: Apache-2.0 */

/* Packing and unpacking with plain folders. Witnesses: GNU tar, and libarchive, which is what bsdtar is made of. */

#include "keeper/worker/file-methods.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"
#include "base/strings.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "file-call.h"
#include "keeper/archive/tar-head.h"
#include "keeper/root/remove.h"
#include "rpc/core/protobuf.h"
#include "test.h"

#define NONE HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_NONE
#define GZIP HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_GZIP
#define ZSTD HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_ZSTD
#define ANY HUTCH__V1__ARCHIVE_COMPRESSION__ARCHIVE_COMPRESSION_UNSPECIFIED

/* A folder with "box", the root of the method, and place beside it. The test stands in it. */
typedef struct Place {
        char path[64], box[80];
} Place;

static int setup(void **state) {
        Place *place = new0(Place, 1);
        (void) snprintf(place->path, sizeof(place->path), "/tmp/hutch-archive-XXXXXX");
        assert_non_null(mkdtemp(place->path));
        assert_int_equal(chdir(place->path), 0);
        (void) snprintf(place->box, sizeof(place->box), "%s/box", place->path);
        assert_int_equal(mkdir(place->box, 0755), 0);
        (void) umask(022);
        *state = place;
        return 0;
}

static int teardown(void **state) {
        Place *place = *state;
        assert_int_equal(chdir("/"), 0);
        assert_int_equal(folder_remove(place->path, NULL), 0);
        free(place);
        return 0;
}

static void shell(const char *command) {
        char whole[4096];
        (void) snprintf(whole, sizeof(whole), "set -e; export LC_ALL=C.UTF-8; %s", command);
        if (system(whole) != 0)
                fail_msg("failed: %s", command);
}

static char *read_file(const char *path, size_t *ret_len) {
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        struct stat st;
        assert_int_equal(fstat(fileno(file), &st), 0);
        char *bytes = malloc((size_t) st.st_size + 1);
        *ret_len = fread(bytes, 1, (size_t) st.st_size, file);
        (void) fclose(file);
        return bytes;
}

/* ---- Calls ---- */

typedef struct Pack {
        const char *path, *ignore_file;
        Hutch__V1__ArchiveCompression compression;
        const char *include[8], *exclude[8];
        uint64_t max_size;
        const char *to;    /* the file that the archive is put into */
        size_t stop_after; /* bytes, then cancel; 0: never */
} Pack;

/* The reason that it ended with; "" for none. */
static FileEnd pack(const Place *place, const Pack *how) {
        Hutch__V1__DownloadArchiveRequest request = HUTCH__V1__DOWNLOAD_ARCHIVE_REQUEST__INIT;
        request.path = (char *) how->path;
        request.ignore_file = (char *) (how->ignore_file ? how->ignore_file : "");
        request.compression = how->compression;
        request.include = (char **) how->include;
        while (how->include[request.n_include])
                request.n_include++;
        request.exclude = (char **) how->exclude;
        while (how->exclude[request.n_exclude])
                request.n_exclude++;
        request.max_size_bytes = how->max_size > 0 ? how->max_size : 256 << 20;

        FileCall call = file_call_begin(place->box, file_method_download_archive);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        file_call_half_close(&call);
        FILE *file = fopen(how->to ? how->to : "a.tar", "we");
        const uint8_t *bytes, *data;
        size_t len, data_len, total = 0;
        while (file_call_next(&call, &bytes, &len)) {
                assert_true(protobuf_find_bytes(bytes, len, 1, &data, &data_len));
                assert_true(data_len > 0 && data_len <= 1 << 20);
                assert_int_equal(fwrite(data, 1, data_len, file), data_len);
                total += data_len;
                if (how->stop_after > 0 && total >= how->stop_after)
                        file_call_cancel(&call);
        }
        (void) fclose(file);
        FileEnd end = call.end;
        if (*end.reason)
                print_message("%s: %s\n", end.reason, call.sentence);
        file_call_end(&call);
        return end;
}

typedef struct Unpack {
        const char *path, *from;
        Hutch__V1__ArchiveCompression compression;
        bool overwrite, create_parents;
        uint64_t max_size;
        size_t chunk;           /* bytes of a message */
        bool is_canceled;       /* after all bytes were sent but the last */
        uint64_t entries, size; /* what was told */
} Unpack;

static FileEnd unpack(const Place *place, Unpack *how) {
        Hutch__V1__UploadArchiveHeader header = HUTCH__V1__UPLOAD_ARCHIVE_HEADER__INIT;
        header.path = (char *) (how->path ? how->path : "/in");
        header.compression = how->compression;
        header.overwrite = how->overwrite;
        header.create_parents = how->create_parents;
        header.max_size_bytes = how->max_size > 0 ? how->max_size : 256 << 20;
        Hutch__V1__UploadArchiveRequest request = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__INIT;
        request.item_case = HUTCH__V1__UPLOAD_ARCHIVE_REQUEST__ITEM_HEADER;
        request.header = &header;

        FileCall call = file_call_begin(place->box, file_method_upload_archive);
        assert_int_equal(file_call_send(&call, &request.base), 0);
        size_t len, chunk = how->chunk > 0 ? how->chunk : 100000;
        _cleanup_free_ char *bytes = read_file(how->from ? how->from : "a.tar", &len);
        if (how->is_canceled)
                len--;
        for (size_t at = 0, r = 0; at < len && r == 0; at += chunk)
                r = file_call_send_bytes(&call, 2, bytes + at, len - at < chunk ? len - at : chunk) < 0;
        if (how->is_canceled)
                file_call_cancel(&call);
        else
                file_call_half_close(&call);
        const uint8_t *message;
        while (file_call_next(&call, &message, &len)) {
                Hutch__V1__UploadArchiveResponse *response =
                        hutch__v1__upload_archive_response__unpack(NULL, len, message);
                how->entries = response->entries;
                how->size = response->size_bytes;
                hutch__v1__upload_archive_response__free_unpacked(response, NULL);
        }
        FileEnd end = call.end;
        if (*end.reason)
                print_message("%s: %s\n", end.reason, call.sentence);
        file_call_end(&call);
        return end;
}

static void assert_ok(FileEnd end) {
        if (end.error != 0)
                fail_msg("ended with %s", end.reason);
}

static void assert_refused(FileEnd end, const char *reason, const char *entry) {
        assert_string_equal(end.reason, reason);
        assert_int_equal(end.n_pairs, 1);
        assert_string_equal(end.pairs[0].key, "entry");
        assert_string_equal(end.pairs[0].value, entry);
}

/* All that can be told about what is in two folders is the same. */
static void assert_same(const char *a, const char *b) {
        char command[1024];
        (void) snprintf(command, sizeof(command),
                        "for d in %s %s; do (cd $d; find . -mindepth 1 ! -type s ! -type p -printf "
                        "'%%P %%y %%m %%s %%T@ %%l %%n\\n' | sort) > list-$(basename $d); done; "
                        "diff list-$(basename %s) list-$(basename %s); diff -r --no-dereference %s %s",
                        a, b, a, b, a, b);
        shell(command);
}

static const char TREE[] =
        "mkdir -p box/src/a/b/c box/src/empty 'box/src/z z'; cd box/src; echo hello > a/hello; : > a/nothing;"
        "ln a/hello a/b/hello-again; ln -s ../hello a/b/link; ln -s nowhere dangling; head -c 300000 /dev/urandom > "
        "a/b/big;"
        "head -c 512 /dev/urandom > block; printf x > \"$(printf 'caf\\303\\251')\"; printf y > \"$(printf "
        "'raw\\377')\";"
        "L=$(printf 'n%.0s' $(seq 1 200)); mkdir -p a/$L/$L; echo deep > a/$L/$L/$L; ln -s $L/$L/$L a/long-link;"
        "ln a/$L/$L/$L a/b/long-hard; printf z > \"a/$L/$(printf 'caf\\303\\251')\"; printf z > \"a/$L/$(printf "
        "'raw\\377')\";"
        "chmod 750 a; chmod 4755 block; chmod 1777 empty; chmod 444 a/nothing; echo n > \"$(printf 'new\\nline')\";"
        "touch -d '2001-02-03 04:05:06.789012345' a/hello; touch -d '1969-12-31 23:59:58' block; touch -h -d @5 "
        "dangling;"
        "touch -d '2033-01-01 00:00:00.5' a/b a 'z z'";

static size_t n_counted;

static void set_attributes_of(const char *path) {
        assert_int_equal(setxattr(path, "user.plain", "value", 5, 0), 0);
        assert_int_equal(setxattr(path, "user.bytes", "\0\n=\xff", 4, 0), 0);
}

static void assert_attributes_of(const char *path) {
        char value[16];
        assert_int_equal(getxattr(path, "user.plain", value, sizeof(value)), 5);
        assert_int_equal(getxattr(path, "user.bytes", value, sizeof(value)), 4);
        assert_memory_equal(value, "\0\n=\xff", 4);
}

static int count_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
        n_counted += at->level > 0;
        return 0;
}

static size_t count_below(const char *path) {
        n_counted = 0;
        assert_int_equal(nftw(path, count_entry, 16, FTW_PHYS), 0);
        return n_counted;
}

static bool has_attributes(void) {
        shell(": > probe");
        return setxattr("probe", "user.x", "", 0, 0) == 0;
}

/* ---- Tests ---- */

static void what_is_packed_tar_unpacks(void **state) {
        const Place *place = *state;
        shell(TREE);
        shell("mkfifo box/src/fifo");
        assert_ok(pack(place, &(Pack){ .path = "/src/" }));
        shell("mkdir out; tar --warning=no-timestamp -xpf a.tar -C out 2>&1 | (! grep .); rm box/src/fifo; chmod u-s "
              "box/src/block");
        assert_same("box/src", "out");
        shell("test $(stat -c %h out/a/hello) = 2; test out/a/hello -ef out/a/b/hello-again");
}

static void what_is_packed_libarchive_reads(void **state) {
        const Place *place = *state;
        shell(TREE);
        if (has_attributes())
                set_attributes_of("box/src/a/hello");
        assert_ok(pack(place, &(Pack){ .path = "/src" }));
        struct archive *archive = archive_read_new();
        (void) archive_read_support_format_tar(archive);
        assert_int_equal(archive_read_open_filename(archive, "a.tar", 10240), ARCHIVE_OK);
        struct archive_entry *entry;
        char last[1024] = "";
        size_t n = 0, n_attributes = 0;
        while (archive_read_next_header(archive, &entry) != ARCHIVE_EOF) {
                /* Names come in the order of a walk: a folder before what is in it, names in byte order. */
                n++;
                n_attributes += (size_t) archive_entry_xattr_count(entry);
                assert_string_not_equal(archive_entry_pathname(entry), last);
                (void) snprintf(last, sizeof(last), "%s", archive_entry_pathname(entry));
        }
        assert_int_equal(archive_errno(archive), 0);
        (void) archive_read_free(archive);
        assert_int_equal(n, count_below("box/src"));
        assert_int_equal(n_attributes, has_attributes() ? 2 : 0);
        shell("tar -tf a.tar > names; test \"$(head -4 names | tr '\\n' ' ')\" = 'a/ a/b/ a/b/big a/b/c/ '");
}

static void all_comes_back_as_it_was(void **state) {
        const Place *place = *state;
        const Hutch__V1__ArchiveCompression ways[] = { NONE, GZIP, ZSTD };
        shell(TREE);
        shell("chmod u-s box/src/block; mkdir box/in");
        if (has_attributes()) {
                set_attributes_of("box/src/a/hello");
                set_attributes_of("box/src/a/b");
        }
        for (size_t i = 0; i < 3; i++) {
                assert_ok(pack(place, &(Pack){ .path = "/src", .compression = ways[i] }));
                Unpack how = { .compression = i % 2 ? ANY : ways[i], .chunk = i == 0 ? 1000 : 0 };
                assert_ok(unpack(place, &how));
                assert_int_equal(how.entries, count_below("box/src"));
                assert_same("box/src", "box/in");
                if (has_attributes()) {
                        assert_attributes_of("box/in/a/b/hello-again");
                        assert_attributes_of("box/in/a/b");
                }
                shell("chmod -R u+rwx box/in; rm -rf box/in; mkdir box/in");
        }
}

static void what_tar_packs_is_unpacked(void **state) {
        const Place *place = *state;
        static const char *const ways[] = {
                "--format=gnu",          "--format=pax",          "--format=pax -z",
                "--format=gnu --sparse", "--format=pax --sparse", "--format=pax --sparse --sparse-version=0.1",
        };
        shell(TREE);
        shell("chmod u-s box/src/block; truncate -s 5M box/src/holes; echo end >> box/src/holes");
        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
                char command[256];
                (void) snprintf(command, sizeof(command), "tar -C box/src -cf a.tar %s .; mkdir box/in", ways[i]);
                shell(command);
                Unpack how = {};
                assert_ok(unpack(place, &how));
                /* GNU's own format has whole seconds only. */
                if (i == 1 || i == 2 || i == 4 || i == 5)
                        assert_same("box/src", "box/in");
                else
                        shell("diff -r --no-dereference box/src box/in");
                if (strstr(ways[i], "sparse"))
                        shell("test $(stat -c %b box/in/holes) -lt 100");
                shell("chmod -R u+rwx box/in; rm -rf box/in");
        }
}

static void patterns_choose_what_is_packed(void **state) {
        const Place *place = *state;
        shell("mkdir -p box/p/src/deep box/p/build/x box/p/docs; cd box/p; touch src/a.c src/a.o src/deep/b.c "
              "build/x/y "
              "docs/d.txt keep.o top.c; printf '*.o\\n/build/\\n' > .ignore; printf '!a.o\\nb.c\\n' > src/.ignore");
        assert_ok(pack(place, &(Pack){ .path = "/p", .ignore_file = ".ignore" }));
        shell("tar -tf a.tar | tr '\\n' ' ' > names; "
              "test \"$(cat names)\" = '.ignore docs/ docs/d.txt src/ src/.ignore src/a.c src/a.o src/deep/ top.c '");
        assert_ok(pack(place, &(Pack){ .path = "/p", .include = { "*.c" } }));
        shell("tar -tf a.tar | tr '\\n' ' ' > names; "
              "test \"$(cat names)\" = 'src/ src/a.c src/deep/ src/deep/b.c top.c '");
        assert_ok(pack(place, &(Pack){ .path = "/p", .include = { "/src", "/docs" }, .exclude = { "deep/", ".*" } }));
        shell("tar -tf a.tar | tr '\\n' ' ' > names; test \"$(cat names)\" = 'docs/ docs/d.txt src/ src/a.c src/a.o '");
        assert_ok(pack(place, &(Pack){ .path = "/p", .exclude = { "*", "!keep.o" }, .ignore_file = ".ignore" }));
        shell("test \"$(tar -tf a.tar)\" = keep.o");
        assert_string_equal(pack(place, &(Pack){ .path = "/p", .ignore_file = "../x" }).reason, "FIELD_INVALID");
        assert_ok(pack(place, &(Pack){ .path = "/p/keep.o" }));
        shell("test \"$(tar -tf a.tar)\" = keep.o");
}

static void what_cannot_be_packed_is_told(void **state) {
        const Place *place = *state;
        shell("mkdir -p box/q/r; head -c 5000 /dev/zero > box/q/r/five; mkfifo box/fifo");
        FileEnd end = pack(place, &(Pack){ .path = "/q", .max_size = 4999 });
        assert_string_equal(end.reason, "FILE_TOO_LARGE");
        assert_string_equal(end.pairs[0].value, "max_size_bytes");
        assert_string_equal(end.pairs[1].value, "4999");
        assert_ok(pack(place, &(Pack){ .path = "/q", .max_size = 5000 }));
        assert_string_equal(pack(place, &(Pack){ .path = "/nothing" }).reason, "FILE_NOT_FOUND");
        assert_string_equal(pack(place, &(Pack){ .path = "/fifo" }).reason, "NOT_A_REGULAR_FILE");
        assert_string_equal(pack(place, &(Pack){ .path = "/q/r/five/" }).reason, "NOT_A_DIRECTORY");
        shell("ln -s /etc box/out");
        assert_string_equal(pack(place, &(Pack){ .path = "/out" }).reason, "FILE_NOT_FOUND");
        if (geteuid() != 0) {
                shell("chmod 0 box/q/r/five");
                assert_refused(pack(place, &(Pack){ .path = "/q" }), "FILE_PERMISSION", "r/five");
        }
}

static void deep_trees_are_packed_and_unpacked(void **state) {
        const Place *place = *state;
        int fd = open("box", O_PATH | O_CLOEXEC);
        for (int i = 0; i < 2500; i++) {
                assert_int_equal(mkdirat(fd, "d", 0755), 0);
                int next = openat(fd, "d", O_PATH | O_CLOEXEC);
                close(fd);
                fd = next;
        }
        close(openat(fd, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        close(fd);
        assert_ok(pack(place, &(Pack){ .path = "/d" }));
        shell("mkdir box/in");
        Unpack how = {};
        assert_ok(unpack(place, &how));
        assert_int_equal(how.entries, 2500);
        assert_ok(pack(place, &(Pack){ .path = "/in", .to = "b.tar", .compression = GZIP }));
        shell("tar -tf a.tar > names; gunzip < b.tar | tar -tf - | cmp - names");
}

static void wide_folders_are_packed_in_order(void **state) {
        const Place *place = *state;
        shell("mkdir box/wide; cd box/wide; seq 1 20000 | xargs touch");
        assert_ok(pack(place, &(Pack){ .path = "/wide", .compression = ZSTD }));
        shell("mkdir box/in");
        assert_ok(unpack(place, &(Unpack){}));
        assert_ok(pack(place, &(Pack){ .path = "/wide" }));
        shell("tar -tf a.tar > names; LC_ALL=C sort -c names; test $(wc -l < names) = 20000; "
              "test $(ls box/in | wc -l) = 20000");
}

/* ---- Hostile archives ---- */

static void add_entry(FILE *file, const TarEntry *entry, const char *bytes) {
        _cleanup_(tar_head_clear) TarHead head = {};
        assert_int_equal(tar_head_make(&head, entry), 0);
        (void) fwrite(head.bytes, 1, head.len, file);
        size_t len = bytes ? strlen(bytes) : 0;
        if (len > 0)
                (void) fwrite(bytes, 1, len, file);
        for (size_t n = tar_padding(len); n > 0; n--)
                (void) fputc(0, file);
}

static void end_archive(FILE *file) {
        for (int i = 0; i < 2 * TAR_BLOCK; i++)
                (void) fputc(0, file);
        (void) fclose(file);
}

/* An archive with a good file, then @entry. */
static void make_hostile(const TarEntry *entry) {
        FILE *file = fopen("a.tar", "we");
        add_entry(file, &(TarEntry){ .type = TAR_REGULAR, .path = "good", .mode = 0644, .size = 4 }, "good");
        add_entry(file, entry, NULL);
        end_archive(file);
}

static void hostile_entries_are_refused_by_name(void **state) {
        const Place *place = *state;
        const struct {
                TarEntry entry;
                const char *named;
        } cases[] = {
                { { .type = TAR_REGULAR, .path = "../out" }, "../out" },
                { { .type = TAR_REGULAR, .path = "a/../../out" }, "a/../../out" },
                { { .type = TAR_FOLDER, .path = "x/.." }, "x/../" },
                { { .type = TAR_REGULAR, .path = "/out" }, "/out" },
                { { .type = TAR_REGULAR, .path = "." }, "." },
                { { .type = TAR_SYMLINK, .path = "l", .link = "../out" }, "l" },
                { { .type = TAR_SYMLINK, .path = "a/l", .link = "../b/../../out" }, "a/l" },
                { { .type = TAR_HARD_LINK, .path = "l", .link = "../outside" }, "l" },
                { { .type = TAR_HARD_LINK, .path = "l", .link = "/outside" }, "l" },
                { { .type = TAR_HARD_LINK, .path = "l", .link = "nothing" }, "l" },
                { { .type = TAR_HARD_LINK, .path = "l", .link = "lead/secret" }, "l" },
                { { .type = TAR_HARD_LINK, .path = "l", .link = "lead" }, "l" },
                { { .type = TAR_REGULAR, .path = "lead/out" }, "lead/out" },
                { { .type = TAR_FOLDER, .path = "lead/out" }, "lead/out" },
                { { .type = TAR_FOLDER, .path = "lead" }, "lead" },
                { { .type = (TarType) '3', .path = "device" }, "device" },
                { { .type = (TarType) '4', .path = "device" }, "device" },
                { { .type = (TarType) '6', .path = "fifo" }, "fifo" },
        };
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                shell("rm -rf box/in box/outer; mkdir box/in box/outer; echo secret > box/outer/secret; "
                      "echo outside > box/outside; ln -s ../outer box/in/lead");
                make_hostile(&cases[i].entry);
                assert_refused(unpack(place, &(Unpack){ .overwrite = true }), "ARCHIVE_REFUSED", cases[i].named);
                /* What came before stays, and nothing else is there. */
                shell("test \"$(cat box/in/good)\" = good; test \"$(ls -A box/outer)\" = secret; "
                      "test \"$(ls -A box | tr '\\n' ' ')\" = 'in outer outside '; rm box/in/good; rm -rf box/in/a; "
                      "test \"$(ls -A box/in)\" = lead");
        }
}

static void links_within_are_kept(void **state) {
        const Place *place = *state;
        FILE *file = fopen("a.tar", "we");
        add_entry(file, &(TarEntry){ .type = TAR_SYMLINK, .path = "a/b/l", .link = "../../x" }, NULL);
        add_entry(file, &(TarEntry){ .type = TAR_SYMLINK, .path = "abs", .link = "/in/x" }, NULL);
        add_entry(file, &(TarEntry){ .type = TAR_SYMLINK, .path = "venv/python", .link = "/usr/bin/python3" }, NULL);
        add_entry(file, &(TarEntry){ .type = TAR_REGULAR, .path = "./x//y/./z", .mode = 06777, .size = 1 }, "z");
        add_entry(file, &(TarEntry){ .type = TAR_HARD_LINK, .path = "h", .link = "./x/y/z" }, NULL);
        end_archive(file);
        shell("mkdir box/in");
        assert_ok(unpack(place, &(Unpack){}));
        shell("test $(readlink box/in/a/b/l) = ../../x; test box/in/h -ef box/in/x/y/z; "
              "test $(readlink box/in/venv/python) = /usr/bin/python3; test $(stat -c %a box/in/h) = 777; test $(stat "
              "-c %a box/in/x) = 755");
        /* Again, in the place of what is there: also a link to a file for that same file. */
        assert_ok(unpack(place, &(Unpack){ .overwrite = true }));
        shell("test box/in/h -ef box/in/x/y/z; test -z \"$(find box/in -name '.hutch*')\"");
}

static void what_is_there_is_replaced_only_when_asked(void **state) {
        const Place *place = *state;
        make_hostile(&(TarEntry){ .type = TAR_SYMLINK, .path = "link", .link = "good" });
        shell("mkdir box/in; echo old > box/in/good; ln -s good box/target");
        assert_refused(unpack(place, &(Unpack){}), "FILE_EXISTS", "good");
        shell("test $(cat box/in/good) = old; rm box/in/good; ln -s /etc/passwd box/in/good; touch box/in/link");
        assert_ok(unpack(place, &(Unpack){ .overwrite = true }));
        shell("test ! -L box/in/good; test $(cat box/in/good) = good; test -L box/in/link; test -s /etc/passwd");
        shell("rm box/in/good; mkdir box/in/good");
        assert_refused(unpack(place, &(Unpack){ .overwrite = true }), "IS_A_DIRECTORY", "good");
        assert_string_equal(unpack(place, &(Unpack){ .path = "/new/folder" }).reason, "FILE_NOT_FOUND");
        assert_ok(unpack(place, &(Unpack){ .path = "/new/folder", .create_parents = true }));
        shell("test $(cat box/new/folder/good) = good");
}

static void bombs_are_refused(void **state) {
        const Place *place = *state;
        shell("mkdir box/in; head -c 3000 /dev/zero > many; tar -cf a.tar many");
        assert_refused(unpack(place, &(Unpack){ .max_size = 2999 }), "ARCHIVE_REFUSED", "many");
        assert_ok(unpack(place, &(Unpack){ .max_size = 3000 }));
        shell("rm box/in/many; truncate -s 100M many; tar -cf - many | gzip -9 | gzip -9 > a.tar");
        assert_refused(unpack(place, &(Unpack){}), "ARCHIVE_REFUSED", "many");
        shell("truncate -s 9M many; tar -cf - many | gzip -9 | gzip -9 > a.tar");
        assert_ok(unpack(place, &(Unpack){}));
        /* More than there is room for, promised in a head. */
        make_hostile(&(TarEntry){ .type = TAR_REGULAR, .path = "large", .size = UINT64_C(1) << 60 });
        assert_refused(unpack(place, &(Unpack){ .max_size = UINT64_C(1) << 40 }), "ARCHIVE_REFUSED", "large");
        shell("test -z \"$(find box/in -name '.hutch*' -o -name large)\"");
}

static void broken_archives_are_refused(void **state) {
        const Place *place = *state;
        shell("mkdir box/in; head -c 90000 /dev/urandom > file; tar -cf whole.tar file; head -c 50000 whole.tar > "
              "a.tar");
        assert_refused(unpack(place, &(Unpack){}), "ARCHIVE_REFUSED", "file");
        shell("test -z \"$(ls -A box/in)\"; gzip < whole.tar | head -c 50000 > a.tar");
        assert_string_equal(unpack(place, &(Unpack){}).reason, "ARCHIVE_REFUSED");
        shell("test -z \"$(ls -A box/in)\"; head -c 5000 /dev/urandom > a.tar");
        assert_string_equal(unpack(place, &(Unpack){}).reason, "ARCHIVE_REFUSED");
        shell(": > a.tar");
        assert_string_equal(unpack(place, &(Unpack){}).reason, "ARCHIVE_REFUSED");
        shell("cp whole.tar a.tar");
        assert_string_equal(unpack(place, &(Unpack){ .compression = ZSTD }).reason, "");
        shell("rm box/in/file; gzip < whole.tar > a.tar");
        assert_string_equal(unpack(place, &(Unpack){ .compression = NONE }).reason, "ARCHIVE_REFUSED");
        shell("test -z \"$(ls -A box/in)\"");
}

static void a_cancelled_call_leaves_nothing_half(void **state) {
        const Place *place = *state;
        shell("mkdir box/in box/src; head -c 3000000 /dev/urandom > box/src/file; tar -C box/src -cf a.tar file;"
              "head -c 3000000 a.tar > b.tar");
        assert_int_equal(unpack(place, &(Unpack){ .from = "b.tar", .is_canceled = true }).error, ECANCELED);
        shell("test -z \"$(ls -A box/in)\"");
        assert_int_equal(pack(place, &(Pack){ .path = "/src", .stop_after = 1 }).error, ECANCELED);
}

int main(void) {
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        const struct CMUnitTest tests[] = {
                WITH_PLACE(what_is_packed_tar_unpacks),
                WITH_PLACE(what_is_packed_libarchive_reads),
                WITH_PLACE(all_comes_back_as_it_was),
                WITH_PLACE(what_tar_packs_is_unpacked),
                WITH_PLACE(patterns_choose_what_is_packed),
                WITH_PLACE(what_cannot_be_packed_is_told),
                WITH_PLACE(deep_trees_are_packed_and_unpacked),
                WITH_PLACE(wide_folders_are_packed_in_order),
                WITH_PLACE(hostile_entries_are_refused_by_name),
                WITH_PLACE(links_within_are_kept),
                WITH_PLACE(what_is_there_is_replaced_only_when_asked),
                WITH_PLACE(bombs_are_refused),
                WITH_PLACE(broken_archives_are_refused),
                WITH_PLACE(a_cancelled_call_leaves_nothing_half),
        };

        cmocka_set_test_filter(getenv("HUTCH_TESTS"));
        return cmocka_run_group_tests_name("file-archive", tests, NULL, NULL);
}
