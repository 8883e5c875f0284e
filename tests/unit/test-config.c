/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/config.h"

static int parse(Config *config, const char *text, HutchError *err) {
        return config_parse(config, "hutchd.yaml", text, strlen(text), err);
}

static void defaults_are_those_of_the_contract(void **state) {
        _cleanup_(config_clear) Config config = {};

        (void) state;
        config_init(&config);
        assert_int_equal(config.sandboxes, 10000);
        assert_int_equal(config.sandboxes_per_caller, 1000);
        assert_int_equal(config.execs_per_caller, 5000);
        assert_int_equal(config.execs_per_sandbox, 256);
        assert_int_equal(config.streams_per_caller, 1000);
        assert_int_equal(config.run_output, 16 << 20);
        assert_int_equal(config.exec_output, 64 << 20);
        assert_int_equal(config.history_retention, 15 * 86400 * NSEC_PER_SEC);
        assert_int_equal(config.idle_ttl, 600 * NSEC_PER_SEC);
        assert_int_equal(config.max_lifetime, 0);
        assert_int_equal(config.log_level, LOG_LEVEL_INFO);
        assert_null(config.socket);
}

static void values_of_every_type_are_read(void **state) {
        _cleanup_(config_clear) Config config = {};
        _cleanup_(error_clear) HutchError err = {};

        (void) state;
        config_init(&config);
        assert_int_equal(parse(&config,
                               "# a comment\n"
                               "socket: /tmp/a b.sock\n"
                               "shutdown_grace: 1m30s\n"
                               "log: { level: debug, format: json }\n"
                               "limits:\n"
                               "  sandboxes: 5\n"
                               "  listing: 1MiB\n"
                               "sandboxes:\n"
                               "  allow_unenforced_limits: true\n"
                               "  idle_ttl: 0\n"
                               "sources:\n"
                               "  read: [/srv, \"/home/a b\"]\n"
                               "  write: []\n"
                               "admins: [uid:1000, \"cert:CN=alice,O=Example\"]\n"
                               "listen:\n"
                               "  addresses: [127.0.0.1:7443, \"[::1]:0\"]\n"
                               "  client_certificates: required\n",
                               &err),
                         0);
        assert_string_equal(config.source_read[0], "/srv");
        assert_string_equal(config.source_read[1], "/home/a b");
        assert_null(config.source_read[2]);
        assert_null(config.source_write[0]);
        assert_string_equal(config.socket, "/tmp/a b.sock");
        assert_string_equal(config.admins[1], "cert:CN=alice,O=Example");
        assert_string_equal(config.listen[1], "[::1]:0");
        assert_int_equal(config.client_certificates, CONFIG_NEED_REQUIRED);
        assert_int_equal(config.tokens, CONFIG_NEED_WANTED);
        assert_int_equal(config.shutdown_grace, 90 * NSEC_PER_SEC);
        assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
        assert_int_equal(config.log_format, LOG_FORMAT_JSON);
        assert_int_equal(config.sandboxes, 5);
        assert_int_equal(config.listing, 1 << 20);
        assert_true(config.allow_unenforced_limits);
        assert_int_equal(config.idle_ttl, 0);
}

static void nothing_at_all_is_a_configuration(void **state) {
        static const char *const texts[] = { "", "\n", "# nothing\n", "---\n", "{}\n" };

        (void) state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                _cleanup_(config_clear) Config config = {};
                _cleanup_(error_clear) HutchError err = {};

                config_init(&config);
                assert_int_equal(parse(&config, texts[i], &err), 0);
        }
}

/* Each is refused, with these words in the message. */
static void mistakes_are_told_with_their_line(void **state) {
        static const struct {
                const char *text;
                const char *message;
        } cases[] = {
                { "sockt: /tmp/a\n", "hutchd.yaml:1: sockt is no key" },
                { "log:\n  levl: info\n", "hutchd.yaml:2: log.levl is no key" },
                { "\nlog:\n  level: loud\n", "hutchd.yaml:3: log.level is none of debug, info, warning and error" },
                { "limits:\n  sandboxes: many\n", "hutchd.yaml:2: limits.sandboxes is no number" },
                { "limits:\n  sandboxes: -1\n", "limits.sandboxes is no number" },
                { "limits:\n  sandboxes: 0\n", "limits.sandboxes is too small" },
                { "limits:\n  sandboxes: 99999999\n", "limits.sandboxes is too large" },
                { "limits:\n  sandboxes: 99999999999999999999999\n", "limits.sandboxes is no number" },
                { "limits:\n  listing: 1MB\n", "limits.listing is no size" },
                { "limits:\n  listing: 99999999999999TiB\n", "limits.listing is no size" },
                { "shutdown_grace: 10\n", "shutdown_grace is no duration" },
                { "shutdown_grace: 2h\n", "shutdown_grace is too large" },
                { "sandboxes:\n  allow_unenforced_limits: yes\n", "is neither true nor false" },
                { "socket:\n", "hutchd.yaml:1: socket is empty" },
                { "log: info\n", "hutchd.yaml:1: log is a section of keys" },
                { "socket: {a: b}\n", "hutchd.yaml:1: socket is no section" },
                { "socket: [a]\n", "hutchd.yaml:1: socket is not a single value" },
                { "log:\n  level: [info]\n", "hutchd.yaml:2: log.level is not a single value" },
                { "socket: /a\nsocket: /b\n", "hutchd.yaml:2: socket is there twice" },
                { "log:\n  level: info\nlog:\n  level: info\n", "hutchd.yaml:4: log.level is there twice" },
                { "just words\n", "hutchd.yaml:1: this is no list of keys and values" },
                { "- a\n", "is not a single value" },
                { "a: 'b\n", "this is no YAML" },
                { "socket: \"a\\0b\"\n", "contains NUL" },
                { "\xff\xfe\xff", "this is no YAML" },
                { "log:\n  level:\n    x: y\n", "log.level is no section" },
                { "sources: { read: [/srv, home] }\n", "hutchd.yaml:1: sources.read is no absolute path" },
                { "sources: { read: [/srv], read: [/srv] }\n", "sources.read is there twice" },
                { "sources: { read: [[/srv]] }\n", "sources.read is not a single value" },
                { "sources: { read: [{ a: b }] }\n", "sources.read has something else than texts in it" },
                { "sources: [/srv]\n", "sources is not a single value" },
                { "tools: { lint: [srv] }\n", "hutchd.yaml:1: tools.lint is no plain path that is absolute" },
                { "tools: { lint: [/srv/../etc] }\n", "tools.lint is no plain path" },
                { "tools: { lint: [/] }\n", "tools.lint is no plain path" },
                { "tools: { lint: [~/] }\n", "tools.lint is no plain path" },
                { "tools: { lint: [/proc/self] }\n", "tools.lint is of the kernel" },
                { "tools: { lint: /srv }\n", "tools.lint is no list of paths" },
                { "tools: { lint: [] }\n", "tools.lint has no paths" },
                { "tools: { Lint: [/srv] }\n", "tools.Lint has a name that is not made of a-z" },
                { "tools: { lint: [/srv], lint: [/opt] }\n", "tools.lint is there twice" },
                { "listen: { addresses: [localhost:1] }\n", "listen.addresses is no IP address and port" },
                { "listen: { addresses: [127.0.0.1] }\n", "listen.addresses is no IP address and port" },
                { "listen: { addresses: [127.0.0.1:65536] }\n", "listen.addresses is no IP address and port" },
                { "listen: { addresses: [\"::1:80\"] }\n", "listen.addresses is no IP address and port" },
                { "listen: { addresses: [\"[127.0.0.1]:80\"] }\n", "listen.addresses is no IP address and port" },
                { "listen: { tokens: on }\n", "listen.tokens is none of off, wanted and required" },
                { "admins: [ci]\n", "admins is no caller" },
        };

        (void) state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                _cleanup_(config_clear) Config config = {};
                _cleanup_(error_clear) HutchError err = {};

                config_init(&config);
                assert_int_equal(parse(&config, cases[i].text, &err), -EINVAL);
                if (!strstr(error_message(&err), cases[i].message))
                        fail_msg("%s: %s, not %s", cases[i].text, error_message(&err), cases[i].message);
        }
}

static void all_mistakes_are_told_at_once(void **state) {
        _cleanup_(config_clear) Config config = {};
        _cleanup_(error_clear) HutchError err = {};

        (void) state;
        config_init(&config);
        assert_int_equal(parse(&config, "a: b\nlog:\n  level: x\n  c: d\nshutdown_grace: 1s\n", &err), -EINVAL);
        assert_string_equal(error_message(&err), "hutchd.yaml:1: a is no key\n"
                                                 "hutchd.yaml:3: log.level is none of debug, info, warning and error\n"
                                                 "hutchd.yaml:4: log.c is no key");
        assert_int_equal(config.shutdown_grace, NSEC_PER_SEC);
}

static void the_reference_reads_as_the_defaults(void **state) {
        _cleanup_(config_clear) Config config = {}, standard = {};
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *text = NULL;
        size_t len;
        FILE *file = open_memstream(&text, &len);

        (void) state;
        config_print_reference(file);
        assert_int_equal(fclose(file), 0);
        config_init(&config);
        config_init(&standard);
        assert_int_equal(config_parse(&config, "reference", text, len, &err), 0);
        assert_memory_equal(&config, &standard, sizeof(config));
}

static void what_needs_a_restart_is_told(void **state) {
        _cleanup_(config_clear) Config old = {}, new = {};
        _cleanup_free_ char *names = NULL;

        (void) state;
        config_init(&old);
        config_init(&new);
        assert_int_equal(parse(&new, "log: {level: debug}\nlimits: {sandboxes: 7}\n", NULL), 0);
        assert_null(config_fixed_changes(&old, &new));
        assert_int_equal(parse(&new, "socket: /a\nlimits: {watch_buffer: 99}\n", NULL), 0);
        names = config_fixed_changes(&old, &new);
        assert_string_equal(names, "socket, limits.watch_buffer");
}

static void a_flag_sets_a_key_as_the_file_does(void **state) {
        _cleanup_(config_clear) Config config = {};
        _cleanup_(error_clear) HutchError err = {};

        (void) state;
        config_init(&config);
        assert_int_equal(config.idle_exit, 0);
        assert_int_equal(config_set(&config, "idle_exit", "10m", &err), 0);
        assert_int_equal(config.idle_exit, 600 * NSEC_PER_SEC);
        assert_int_equal(config_set(&config, "idle_exit", "soon", &err), -EINVAL);
        assert_string_equal(error_message(&err), "idle_exit 'soon' is no duration: write 90s, 10m or 1h30m");
        assert_int_equal(config.idle_exit, 600 * NSEC_PER_SEC);
}

static void a_missing_file_is_told(void **state) {
        _cleanup_(config_clear) Config config = {};
        _cleanup_(error_clear) HutchError err = {};

        (void) state;
        config_init(&config);
        assert_int_equal(config_read(&config, "/nonexistent/hutchd.yaml", &err), -ENOENT);
        assert_string_equal(error_message(&err), "cannot read /nonexistent/hutchd.yaml: No such file or directory");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults_are_those_of_the_contract),
                cmocka_unit_test(values_of_every_type_are_read),
                cmocka_unit_test(nothing_at_all_is_a_configuration),
                cmocka_unit_test(mistakes_are_told_with_their_line),
                cmocka_unit_test(all_mistakes_are_told_at_once),
                cmocka_unit_test(the_reference_reads_as_the_defaults),
                cmocka_unit_test(what_needs_a_restart_is_told),
                cmocka_unit_test(a_flag_sets_a_key_as_the_file_does),
                cmocka_unit_test(a_missing_file_is_told),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
