/* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "fake-daemon.h"
#include "hutch/hutch.h"

/* A daemon is looked for beside the program that wants one. So a copy of this one is run in a folder of its own, beside
 * a hutchd that only notes how it was called, and says why it ends. */
#define HUTCHD "#!/bin/sh\ncd \"${0%/*}\" && echo \"$*\" >>calls && echo it is broken && exit 1\n"

static char folder[] = "/tmp/test-user-daemon-XXXXXX";
static char line[512]; /* that the copy has told */

static char *in_folder(const char *name) {
        static char path[4][96];
        static size_t n;

        snprintf(path[++n % 4], sizeof(path[0]), "%s/%s", folder, name);
        return path[n % 4];
}

static void copy_self(const char *path) {
        _cleanup_close_ int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);

        assert_true(from >= 0 && to >= 0);
        while (sendfile(to, from, NULL, (size_t) 1 << 30) > 0)
                ;
}

static void write_file(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);

        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

/* Has a client made for @address. Returns what became of it: "" or the reason and the message. */
static const char *connect_to(const char *address, bool start, const char *state) {
        char command[512];
        FILE *copy;

        snprintf(command, sizeof(command), "HUTCH_STATE='%s' '%s' '%s' %d", state, in_folder("program"), address,
                 start);
        copy = popen(command, "re");
        assert_non_null(copy);
        line[0] = '\0';
        (void) !fgets(line, sizeof(line), copy);
        assert_int_equal(pclose(copy), 0);
        return line;
}

/* The copy: makes a client, and tells why that fails. */
static int run_copy(char *argv[]) {
        const HutchClientOptions options = {
                .address = argv[1],
                .start_daemon = argv[2][0] == '1',
                .clear_text = true,
        };
        HutchClient *client = NULL;
        HutchError *error = NULL;

        if (hutch_client_new(&options, &client, &error) < 0)
                printf("%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        hutch_error_free(error);
        hutch_client_free(client);
        return 0;
}

static bool was_started(void) {
        return access(in_folder("calls"), F_OK) == 0;
}

static int set_up(void **state) {
        (void) state;
        if (!mkdtemp(strcpy(folder, "/tmp/test-user-daemon-XXXXXX")))
                return -1;
        copy_self(in_folder("program"));
        write_file(in_folder("hutchd"), HUTCHD);
        return 0;
}

static int tear_down(void **state) {
        static const char *const names[] = { "program", "hutchd",           "calls",
                                             "socket",  "state/hutchd.log", "state/start.lock" };

        (void) state;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                (void) unlink(in_folder(names[i]));
        (void) rmdir(in_folder("state"));
        return rmdir(folder);
}

static void a_daemon_is_started_where_nobody_listens_and_only_when_allowed(void **state) {
        struct sockaddr_un listening = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char address[128], told[256] = "", expected[256];
        FILE *calls;

        (void) state;
        snprintf(address, sizeof(address), "unix:%s", in_folder("socket"));
        assert_string_equal(connect_to(address, false, in_folder("state")), "");
        assert_string_equal(connect_to("localhost:1", true, in_folder("state")), "");

        snprintf(listening.sun_path, sizeof(listening.sun_path), "%s", in_folder("socket"));
        assert_int_equal(bind(fd, (const struct sockaddr *) &listening, sizeof(listening)), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_string_equal(connect_to(address, true, in_folder("state")), "");
        assert_false(was_started());

        (void) fd_close(TAKE_FD(fd)); /* what is left of a daemon that was killed */
        assert_string_equal(connect_to(address, true, in_folder("state")),
                            "DAEMON_UNREACHABLE: the daemon could not be started: it is broken\n");
        calls = fopen(in_folder("calls"), "re");
        assert_non_null(calls);
        assert_non_null(fgets(told, sizeof(told), calls));
        snprintf(expected, sizeof(expected), "--socket %s --idle-exit ", in_folder("socket"));
        assert_true(str_has_prefix(told, expected));
        assert_null(fgets(told, sizeof(told), calls));
        assert_int_equal(fclose(calls), 0);
        rule_holds(__func__, "CONN-008");
}

static void whatever_keeps_it_from_being_started_is_told(void **state) {
        char address[128];

        (void) state;
        snprintf(address, sizeof(address), "unix:%s", in_folder("socket"));
        /* A file is where the state folder should be. */
        assert_true(str_has_prefix(connect_to(address, true, in_folder("hutchd")), "DAEMON_UNREACHABLE: "));
        assert_non_null(strstr(line, "hutchd"));
        /* Others may write to it. */
        assert_int_equal(mkdir(in_folder("state"), 0700), 0);
        assert_int_equal(chmod(in_folder("state"), 0777), 0);
        assert_true(str_has_prefix(connect_to(address, true, in_folder("state")), "DAEMON_UNREACHABLE: "));
        assert_non_null(strstr(line, "others may write there"));
        assert_false(was_started());
        rule_holds(__func__, "CONN-008");
}

int main(int argc, char *argv[]) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_daemon_is_started_where_nobody_listens_and_only_when_allowed, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(whatever_keeps_it_from_being_started_is_told, set_up, tear_down),
        };

        return argc == 3 ? run_copy(argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
