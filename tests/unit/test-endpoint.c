/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/memory.h"
#include "client/endpoint.h"
#include "fake-daemon.h"

#define CONTEXTS                                                                                                       \
        "{\"current\": \"prod\", \"contexts\": {"                                                                      \
        "\"prod\": {\"address\": \"prod.test:1\", \"token\": \"of-prod\", \"ca_file\": \"/prod-ca\"},"                 \
        "\"full\": {\"address\": \"dns:///full.test:1\", \"token\": \"t\", \"ca_file\": \"/ca\","                      \
        " \"certificate_file\": \"/c\", \"key_file\": \"/k\", \"server_name\": \"s\"},"                                \
        "\"local\": {\"address\": \"unix:/local.sock\"}}}"

static char folder[] = "/tmp/test-endpoint-XXXXXX";
static char path[96];

static void write_contexts(const char *text, mode_t mode) {
        FILE *file = fopen(path, "w");

        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(chmod(path, mode), 0);
}

static int set_up(void **state) {
        static const char *const names[] = { "HUTCH_ADDRESS", "HUTCH_SOCKET",           "HUTCH_CONTEXT", "HUTCH_TOKEN",
                                             "HUTCH_CA_FILE", "HUTCH_CERTIFICATE_FILE", "HUTCH_KEY_FILE" };

        (void) state;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                (void) unsetenv(names[i]);
        (void) setenv("XDG_CONFIG_HOME", folder, 1);
        (void) setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
        write_contexts(CONTEXTS, 0600);
        return 0;
}

static const char *reason_of(HutchClientOptions options) {
        static char reason[64];
        _cleanup_(endpoint_clear) Endpoint endpoint = {};
        _cleanup_(error_clear) HutchError err = {};

        assert_true(endpoint_find(&options, &endpoint, &err) < 0);
        assert_null(endpoint.address);
        snprintf(reason, sizeof(reason), "%s", err.reason);
        return reason;
}

static void expect(HutchClientOptions options, const char *address, const char *token) {
        _cleanup_(endpoint_clear) Endpoint endpoint = {};
        _cleanup_(error_clear) HutchError err = {};

        if (endpoint_find(&options, &endpoint, &err) < 0)
                fail_msg("%s: %s", err.reason, error_message(&err));
        assert_string_equal(endpoint.address, address);
        if (token)
                assert_string_equal(endpoint.token, token);
        else
                assert_null(endpoint.token);
}

static void the_first_that_is_there_is_meant(void **state) {
        const char *standard = geteuid() == 0 ? "unix:/run/hutch/hutchd.sock" : "unix:/nonexistent/hutch/hutchd.sock";

        (void) state;
        assert_int_equal(unlink(path), 0);
        expect((HutchClientOptions){}, standard, NULL);
        write_contexts("{\"contexts\": {}}", 0600);
        expect((HutchClientOptions){}, standard, NULL);
        write_contexts(CONTEXTS, 0600);
        expect((HutchClientOptions){}, "prod.test:1", "of-prod");
        (void) setenv("HUTCH_CONTEXT", "local", 1);
        expect((HutchClientOptions){}, "unix:/local.sock", NULL);
        (void) setenv("HUTCH_SOCKET", "/env.sock", 1);
        expect((HutchClientOptions){}, "unix:/env.sock", NULL);
        (void) setenv("HUTCH_ADDRESS", "env.test:1", 1);
        expect((HutchClientOptions){}, "env.test:1", NULL);
        expect((HutchClientOptions){ .context = "prod" }, "prod.test:1", "of-prod");
        expect((HutchClientOptions){ .address = "dns:given.test:1" }, "given.test:1", NULL);
        assert_string_equal(reason_of((HutchClientOptions){ .address = "a:1", .context = "prod" }), "FIELD_CONFLICT");

        (void) setenv("HUTCH_ADDRESS", "", 1);
        (void) setenv("HUTCH_SOCKET", "", 1);
        (void) setenv("HUTCH_CONTEXT", "", 1);
        expect((HutchClientOptions){}, "prod.test:1", "of-prod");
        rule_holds(__func__, "CONN-001");
}

/* Who makes a user's folder in /tmp before him would get what is meant for the daemon. */
static void a_daemon_in_a_folder_of_somebody_elses_is_not_connected_to(void **state) {
        uid_t user = 57400 + (uid_t) getpid() % 1000; /* nobody's, and not that of a test that runs at the same time */
        char own[32];

        (void) state;
        if (geteuid() != 0)
                skip();
        snprintf(own, sizeof(own), "/tmp/hutch-%u", user);
        (void) setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
        (void) unsetenv("XDG_RUNTIME_DIR");
        assert_int_equal(mkdir(own, 0700), 0);
        assert_int_equal(seteuid(user), 0);
        assert_string_equal(reason_of((HutchClientOptions){}), "FILE_PERMISSION");
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(rmdir(own), 0);
        rule_holds(__func__, "CONN-010");
}

static void the_environment_is_for_addresses(void **state) {
        _cleanup_(endpoint_clear) Endpoint endpoint = {};

        (void) state;
        (void) setenv("HUTCH_TOKEN", "of-env", 1);
        (void) setenv("HUTCH_CA_FILE", "/env-ca", 1);
        (void) setenv("HUTCH_CERTIFICATE_FILE", "/env-c", 1);
        (void) setenv("HUTCH_KEY_FILE", "/env-k", 1);
        expect((HutchClientOptions){ .address = "a:1" }, "a:1", "of-env");
        expect((HutchClientOptions){ .address = "a:1", .token = "given" }, "a:1", "given");
        expect((HutchClientOptions){ .context = "prod" }, "prod.test:1", "of-prod");
        expect((HutchClientOptions){ .context = "local" }, "unix:/local.sock", NULL);
        expect((HutchClientOptions){}, "prod.test:1", "of-prod");

        assert_int_equal(endpoint_find(&(HutchClientOptions){ .context = "prod" }, &endpoint, NULL), 0);
        assert_string_equal(endpoint.ca_file, "/prod-ca");
        assert_null(endpoint.certificate_file);
        endpoint_clear(&endpoint);
        (void) setenv("HUTCH_ADDRESS", "a:1", 1);
        assert_int_equal(endpoint_find(&(HutchClientOptions){ .ca_file = "/own" }, &endpoint, NULL), 0);
        assert_string_equal(endpoint.ca_file, "/own");
        assert_string_equal(endpoint.certificate_file, "/env-c");
        assert_string_equal(endpoint.key_file, "/env-k");
        endpoint_clear(&endpoint);

        /* A certificate of the caller's does not go with somebody else's key. */
        assert_int_equal(endpoint_find(&(HutchClientOptions){ .certificate_file = "/own" }, &endpoint, NULL), 0);
        assert_string_equal(endpoint.certificate_file, "/own");
        assert_null(endpoint.key_file);
        rule_holds(__func__, "CONN-004");
}

static void a_context_has_all_that_is_needed(void **state) {
        _cleanup_(endpoint_clear) Endpoint endpoint = {};

        (void) state;
        assert_int_equal(endpoint_find(&(HutchClientOptions){ .context = "full" }, &endpoint, NULL), 0);
        assert_string_equal(endpoint.address, "full.test:1");
        assert_string_equal(endpoint.ca_file, "/ca");
        assert_string_equal(endpoint.certificate_file, "/c");
        assert_string_equal(endpoint.key_file, "/k");
        assert_string_equal(endpoint.server_name, "s");
        assert_string_equal(endpoint.token, "t");
        endpoint_clear(&endpoint);
        assert_int_equal(endpoint_find(&(HutchClientOptions){ .context = "full", .token = "own", .server_name = "o" },
                                       &endpoint, NULL),
                         0);
        assert_string_equal(endpoint.token, "own");
        assert_string_equal(endpoint.server_name, "o");

        /* Without the variable it is in the home; and nobody reads it who has no use for it. */
        (void) setenv("HOME", "/nonexistent", 1);
        (void) unsetenv("XDG_CONFIG_HOME");
        assert_string_equal(reason_of((HutchClientOptions){ .context = "full" }), "CONTEXT_NOT_FOUND");
        (void) setenv("XDG_CONFIG_HOME", folder, 1);
        write_contexts("nonsense", 0666);
        expect((HutchClientOptions){ .address = "a:1" }, "a:1", NULL);
        rule_holds(__func__, "CONN-005");
}

static void a_contexts_file_that_is_not_right_is_refused(void **state) {
        static const char *const texts[] = {
                "",
                "nonsense",
                "[]",
                "{\"contexts\": []}",
                "{\"current\": 1}",
                "{\"others\": {}}",
                "{\"contexts\": {}, \"contexts\": {}}",
                "{\"contexts\": {\"a\": 1}}",
                "{\"contexts\": {\"A\": {\"address\": \"a:1\"}}}",
                "{\"contexts\": {\"a\": {}}}",
                "{\"contexts\": {\"a\": {\"address\": 1}}}",
                "{\"contexts\": {\"a\": {\"address\": \"a:1\", \"insecure\": \"true\"}}}",
                "{\"contexts\": {\"a\": {\"address\": \"a:1\", \"address\": \"b:1\"}}}",
                "{\"contexts\": {\"a\": {\"address\": \"a:1\", \"key_file\": \"/k\"}}}",
                "{\"contexts\": {\"a\": {\"address\": \"a:1\", \"certificate_file\": \"/c\"}}}",
        };
        static const mode_t modes[] = { 0640, 0604, 0620, 0602, 0601 };

        (void) state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                write_contexts(texts[i], 0600);
                assert_string_equal(reason_of((HutchClientOptions){}), "CONTEXTS_FILE_INVALID");
        }
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
                write_contexts(CONTEXTS, modes[i]);
                assert_string_equal(reason_of((HutchClientOptions){}), "CONTEXTS_FILE_EXPOSED");
        }
        write_contexts("{\"current\": \"gone\", \"contexts\": {}}", 0600);
        assert_string_equal(reason_of((HutchClientOptions){}), "CONTEXT_NOT_FOUND");
        assert_string_equal(reason_of((HutchClientOptions){ .context = "other" }), "CONTEXT_NOT_FOUND");
        (void) setenv("HUTCH_CONTEXT", "another", 1);
        assert_string_equal(reason_of((HutchClientOptions){}), "CONTEXT_NOT_FOUND");
        rule_holds(__func__, "CONN-006");
}

/* ---- The name by which a client is known ---- */

/* A server that only reads the headers of a request. */
typedef struct Listener {
        int fd;
        char user_agent[64]; /* "" so far */
} Listener;

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user) {
        Listener *listener = user;

        (void) session, (void) frame, (void) flags;
        if (name_len == strlen("user-agent") && memcmp(name, "user-agent", name_len) == 0)
                snprintf(listener->user_agent, sizeof(listener->user_agent), "%.*s", (int) value_len,
                         (const char *) value);
        return 0;
}

static ssize_t send_to_client(nghttp2_session *session, const uint8_t *data, size_t len, int flags, void *user) {
        const Listener *listener = user;

        (void) session, (void) flags;
        return write(listener->fd, data, len);
}

/* Takes the connection that @client makes to @server, and reads until the name was told. */
static void hear_user_agent(int server, HutchClient *client, Listener *listener) {
        nghttp2_session_callbacks *callbacks;
        nghttp2_session *session;
        uint8_t data[4096];

        assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_send_callback(callbacks, send_to_client);
        assert_int_equal(nghttp2_session_server_new(&session, callbacks, listener), 0);
        assert_int_equal(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
        for (int i = 0; i < 10000 && !*listener->user_agent; i++) {
                ssize_t n;

                hutch_client_dispatch(client);
                if (listener->fd < 0)
                        listener->fd = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                n = read(listener->fd, data, sizeof(data));
                if (n > 0)
                        assert_int_equal(nghttp2_session_mem_recv(session, data, (size_t) n), n);
                if (listener->fd >= 0)
                        assert_int_equal(nghttp2_session_send(session), 0);
                if (n <= 0)
                        (void) usleep(1000);
        }
        nghttp2_session_del(session);
        nghttp2_session_callbacks_del(callbacks);
}

static void expect_user_agent(const char *given, const char *expected) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        Listener listener = { .fd = -1 };
        HutchClient *client = NULL;
        HutchCall *call = NULL;
        char text[96];

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
        snprintf(text, sizeof(text), "unix:%s", address.sun_path);
        assert_int_equal(bind(server, (const struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(server, 8), 0);
        assert_int_equal(hutch_client_new(&(HutchClientOptions){ .address = text, .user_agent = given }, &client, NULL),
                         0);
        assert_int_equal(hutch_call_new(client, "SystemService/Ping", 0, NULL, &call, NULL), 0);
        assert_int_equal(hutch_call_send(call, false, "", 0, NULL), 0);
        hear_user_agent(server, client, &listener);
        assert_string_equal(listener.user_agent, expected);
        hutch_call_free(call);
        hutch_client_free(client);
        (void) fd_close(listener.fd);
        assert_int_equal(unlink(address.sun_path), 0);
}

static void the_user_agent_is_the_librarys_or_the_callers(void **state) {
        char expected[64];

        (void) state;
        snprintf(expected, sizeof(expected), "hutch-c/%s", hutch_version());
        expect_user_agent(NULL, expected);
        expect_user_agent("mine/1", "mine/1");
        rule_holds(__func__, "CONN-009");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(the_first_that_is_there_is_meant, set_up),
                cmocka_unit_test_setup(a_daemon_in_a_folder_of_somebody_elses_is_not_connected_to, set_up),
                cmocka_unit_test_setup(the_environment_is_for_addresses, set_up),
                cmocka_unit_test_setup(a_context_has_all_that_is_needed, set_up),
                cmocka_unit_test_setup(a_contexts_file_that_is_not_right_is_refused, set_up),
                cmocka_unit_test_setup(the_user_agent_is_the_librarys_or_the_callers, set_up),
        };
        char hutch[64];
        int failed;

        if (!mkdtemp(folder))
                return 1;
        snprintf(hutch, sizeof(hutch), "%s/hutch", folder);
        snprintf(path, sizeof(path), "%s/contexts.json", hutch);
        if (mkdir(hutch, 0700) < 0)
                return 1;
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        (void) unlink(path);
        (void) rmdir(hutch);
        (void) rmdir(folder);
        return failed;
}
