/* SPDX-License-Identifier: Apache-2.0 */

#include "api/sandbox-spec.h"

#include <errno.h>
#include <string.h>

#include "api/exec-spec.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/strings.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "rpc/core/protobuf.h"
#include "runtime/runtime.h"
#include "test.h"

#define MIB(n) (UINT64_C(1048576) * (n))

typedef Hutch__V1__SandboxSpec Message;

#define LONG                                                                                                           \
        "mkdir -p /sys/fs/cgroup/hutch-1000/hutchd && chown -R 1000 /sys/fs/cgroup/hutch-1000 && echo $$ > "           \
        "cgroup.procs; "
static const UnenforcedLimit not_enforced[] = {
        { "memory_bytes", "it has no cgroup",
          "give it one by a command that is as long as some are: " LONG LONG "end" },
        { "disk_bytes", "the disk is full", "" },
        { "disk_inodes", "the disk is full", "" },
        {},
};
static const char *const features[] = { "private-files", NULL };
static const RuntimeVerbs verbs = { .name = "native", .not_enforced = not_enforced, .features = features };
static Runtime runtime = { .verbs = &verbs };
static Runtime *const runtimes[] = { &runtime, NULL };
static const SandboxRules rules = { .runtimes = runtimes, .default_idle_ttl = 600 * NSEC_PER_SEC };
static const ExecRules exec_rules = { .output = MIB(64), .max_output = MIB(1024) };

static bool has_violation(const Violations *violations, const char *field, Reason reason) {
        for (size_t i = 0; i < violations_kept(violations); i++)
                if (str_equal(violations->list[i].field, field) && violations->list[i].reason == reason)
                        return true;

        return false;
}

/* What a sandbox with @message is refused with. */
static void assert_refused_saying(const Message *message, const SandboxRules *with, const char *reason,
                                  const char *text) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        _cleanup_(error_clear) HutchError err = {};

        assert_true(sandbox_spec_create(message, with, &violations, &spec) < 0);
        assert_null(spec);
        assert_true(violations_result(&violations, &err) < 0);
        assert_string_equal(err.reason, reason);
        assert_non_null(strstr(error_message(&err), text));
}

static void assert_refused(const Message *message, const SandboxRules *with, const char *reason) {
        assert_refused_saying(message, with, reason, "");
}

static SandboxSpec *create(const Message *message, const SandboxRules *with) {
        _cleanup_(violations_clear) Violations violations = {};
        SandboxSpec *spec = NULL;

        assert_int_equal(sandbox_spec_create(message, with, &violations, &spec), 0);
        assert_int_equal(violations_result(&violations, NULL), 0);
        return spec;
}

static Hutch__V1__EffectiveLimits *effective_of(const SandboxSpec *spec) {
        ProtobufCMessage *message = NULL;

        assert_int_equal(protobuf_unpack(&hutch__v1__effective_limits__descriptor, spec->effective, spec->effective_len,
                                         1 << 16, &message),
                         0);
        return (Hutch__V1__EffectiveLimits *) message;
}

static void nothing_asked_for_is_all_defaults(void **state) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = create(NULL, &rules);
        Hutch__V1__EffectiveLimits *effective = effective_of(spec);

        assert_string_equal(spec->image, "host");
        assert_string_equal(spec->runtime, "native");
        assert_string_equal(spec->user, "1000");
        assert_string_equal(spec->working_directory, "/workspace");
        assert_string_equal(spec->workspace, "/workspace");
        assert_null(spec->command);
        assert_int_equal(spec->idle_ttl, 600 * NSEC_PER_SEC);
        assert_int_equal(spec->max_lifetime, 0);
        assert_int_equal(spec->limits.memory_bytes, MIB(512));
        assert_int_equal(spec->limits.max_open_files, 1024);
        assert_false(spec->limits.read_only_root);

        /* What nobody asked for is not refused, but told. */
        assert_string_equal(effective->profile, "default");
        assert_int_equal(effective->n_clamped, 0);
        assert_int_equal(effective->n_not_enforced, 3);
        assert_string_equal(effective->not_enforced[0], "memory_bytes");
        (void) protobuf_free(&effective->base);
}

static void the_working_directory_is_the_workspace_wherever_that_is(void **state) {
        Hutch__V1__SandboxSpec message = HUTCH__V1__SANDBOX_SPEC__INIT;
        Hutch__V1__Workspace workspace = HUTCH__V1__WORKSPACE__INIT;
        SandboxSpec *spec;

        workspace.target = (char *) "/srv//code/";
        message.workspace = &workspace;
        spec = create(&message, &rules);
        assert_string_equal(spec->workspace, "/srv/code");
        assert_string_equal(spec->working_directory, "/srv/code");
        (void) sandbox_spec_unref(spec);

        message.working_directory = (char *) "/tmp";
        spec = create(&message, &rules);
        assert_string_equal(spec->workspace, "/srv/code");
        assert_string_equal(spec->working_directory, "/tmp");
        (void) sandbox_spec_unref(spec);
}

static void every_violation_is_told_at_once(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Hutch__V1__SandboxSpec__EnvEntry env = HUTCH__V1__SANDBOX_SPEC__ENV_ENTRY__INIT, *envs[] = { &env };
        Hutch__V1__SandboxSpec__LabelsEntry bad = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry reserved = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT;
        Hutch__V1__SandboxSpec__LabelsEntry *labels[] = { &bad, &reserved };
        Hutch__V1__Workspace workspace = HUTCH__V1__WORKSPACE__INIT;
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        Google__Protobuf__Duration negative = GOOGLE__PROTOBUF__DURATION__INIT;
        char *command[] = { (char *) "" };
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        size_t above = violations_enter(&violations, "spec");

        env.key = (char *) "A=B";
        bad.key = (char *) "-";
        reserved.key = (char *) "hutch/x";
        workspace.target = (char *) "/";
        workspace.read_only = true;
        limits.opt_cpu_millis_case = HUTCH__V1__RESOURCE_LIMITS__OPT_CPU_MILLIS_CPU_MILLIS;
        limits.cpu_millis = 9;
        limits.opt_io_weight_case = HUTCH__V1__RESOURCE_LIMITS__OPT_IO_WEIGHT_IO_WEIGHT;
        limits.io_weight = 10001;
        limits.opt_disk_inodes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_DISK_INODES_DISK_INODES;
        limits.disk_inodes = 63;
        limits.exec_timeout = &negative;
        negative.seconds = -1;
        message.command = command;
        message.n_command = 1;
        message.env = envs;
        message.n_env = 1;
        message.labels = labels;
        message.n_labels = 2;
        message.working_directory = (char *) "relative";
        message.user = (char *) "a b";
        message.workspace = &workspace;
        message.limits = &limits;
        message.idle_ttl = &negative;
        message.max_lifetime = &negative;
        message.lifetime_action = (Hutch__V1__LifetimeAction) 77;
        message.profile = (char *) "lax";
        message.runtime = (char *) "docker";
        message.image = (char *) "debian";
        message.snapshot = (char *) "s";

        assert_true(sandbox_spec_create(&message, &rules, &violations, &spec) < 0);
        violations_leave(&violations, above);
        assert_true(has_violation(&violations, "spec.command[0]", REASON_ARGV_EMPTY));
        assert_true(has_violation(&violations, "spec.env[A=B]", REASON_ENV_NAME_MALFORMED));
        assert_true(has_violation(&violations, "spec.labels[-]", REASON_LABEL_MALFORMED));
        assert_true(has_violation(&violations, "spec.labels[hutch/x]", REASON_LABEL_RESERVED));
        assert_true(has_violation(&violations, "spec.working_directory", REASON_PATH_NOT_ABSOLUTE));
        assert_true(has_violation(&violations, "spec.user", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "spec.workspace.target", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "spec.workspace.read_only", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "spec.limits.cpu_millis", REASON_LIMIT_TOO_SMALL));
        assert_true(has_violation(&violations, "spec.limits.io_weight", REASON_FIELD_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "spec.limits.disk_inodes", REASON_LIMIT_TOO_SMALL));
        assert_true(has_violation(&violations, "spec.limits.exec_timeout", REASON_DURATION_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "spec.idle_ttl", REASON_DURATION_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "spec.max_lifetime", REASON_DURATION_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "spec.lifetime_action", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "spec.profile", REASON_PROFILE_UNKNOWN));
        assert_true(has_violation(&violations, "spec.runtime", REASON_RUNTIME_UNKNOWN));
        assert_true(has_violation(&violations, "spec.snapshot", REASON_FIELD_CONFLICT));
        assert_int_equal(violations.n, 18);
}

static void features_that_are_missing_are_refused(void **state) {
        Hutch__V1__SandboxSpec__EnvEntry env = HUTCH__V1__SANDBOX_SPEC__ENV_ENTRY__INIT, *envs[] = { &env };
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;

        message.image = (char *) "debian";
        assert_refused(&message, &rules, "FEATURE_UNSUPPORTED");
        message.image = (char *) "host";
        env.key = (char *) "TOKEN";
        env.value = (char *) "secret://token";
        message.n_env = 1;
        message.env = envs;
        assert_refused(&message, &rules, "FEATURE_UNSUPPORTED");
        env.value = (char *) "secret://../token";
        assert_refused(&message, &rules, "NAME_MALFORMED");
}

static void limits_that_cannot_be_enforced_are_refused_or_told(void **state) {
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Hutch__V1__EffectiveLimits *effective;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        SandboxRules lenient = rules;

        message.limits = &limits;
        limits.opt_memory_bytes_case = HUTCH__V1__RESOURCE_LIMITS__OPT_MEMORY_BYTES_MEMORY_BYTES;
        limits.memory_bytes = MIB(64);
        assert_refused_saying(&message, &rules, "LIMIT_NOT_ENFORCEABLE",
                              "this host does not enforce it: it has no cgroup; to fix: give it one by");
        assert_refused_saying(&message, &rules, "LIMIT_NOT_ENFORCEABLE", LONG LONG "end");

        lenient.allow_unenforced = true;
        spec = create(&message, &lenient);
        assert_int_equal(spec->limits.memory_bytes, MIB(64));
        effective = effective_of(spec);
        assert_int_equal(effective->n_not_enforced, 3);
        (void) protobuf_free(&effective->base);
}

static void clamping_is_told(void **state) {
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        Google__Protobuf__Duration hour = duration_message(3600 * NSEC_PER_SEC + NSEC_PER_MSEC / 2);
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Hutch__V1__EffectiveLimits *effective;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        SandboxRules capped = rules;

        capped.caps.limits[LIMIT_MAX_OPEN_FILES] = (Limit){ true, 512 };
        message.profile = (char *) "strict";
        message.limits = &limits;
        limits.opt_max_open_files_case = HUTCH__V1__RESOURCE_LIMITS__OPT_MAX_OPEN_FILES_MAX_OPEN_FILES;
        limits.max_open_files = 4096;
        limits.opt_read_only_root_case = HUTCH__V1__RESOURCE_LIMITS__OPT_READ_ONLY_ROOT_READ_ONLY_ROOT;
        limits.read_only_root = false;
        limits.exec_timeout = &hour;

        spec = create(&message, &capped);
        assert_int_equal(spec->limits.max_open_files, 512);
        assert_int_equal(spec->limits.exec_timeout, 300 * NSEC_PER_SEC);
        assert_true(spec->limits.read_only_root);
        assert_true(spec->limits.tmp_noexec);

        effective = effective_of(spec);
        assert_string_equal(effective->profile, "strict");
        assert_int_equal(effective->n_clamped, 3);
        assert_string_equal(effective->clamped[0]->field, "max_open_files");
        assert_string_equal(effective->clamped[0]->requested, "4096");
        assert_string_equal(effective->clamped[0]->effective, "512");
        assert_int_equal(effective->clamped[0]->by, HUTCH__V1__CLAMPED_BY__CLAMPED_BY_OPERATOR);
        assert_string_equal(effective->clamped[1]->field, "exec_timeout");
        assert_string_equal(effective->clamped[1]->requested, "3600.000500s");
        assert_string_equal(effective->clamped[1]->effective, "300s");
        assert_int_equal(effective->clamped[1]->by, HUTCH__V1__CLAMPED_BY__CLAMPED_BY_PROFILE);
        assert_string_equal(effective->clamped[2]->field, "read_only_root");
        assert_string_equal(effective->clamped[2]->requested, "false");
        assert_string_equal(effective->clamped[2]->effective, "true");
        (void) protobuf_free(&effective->base);
}

static void timeouts_keep_their_nanoseconds(void **state) {
        Hutch__V1__ResourceLimits limits = HUTCH__V1__RESOURCE_LIMITS__INIT;
        Google__Protobuf__Duration timeout = duration_message(NSEC_PER_MSEC + 1);
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;

        message.limits = &limits;
        limits.exec_timeout = &timeout;
        spec = create(&message, &rules);
        assert_int_equal(spec->limits.exec_timeout, NSEC_PER_MSEC + 1);

        timeout = duration_message(NSEC_PER_MSEC - 1);
        assert_refused(&message, &rules, "LIMIT_TOO_SMALL");
}

static void lifetimes_are_capped(void **state) {
        Google__Protobuf__Duration day = duration_message(86400 * NSEC_PER_SEC);
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        SandboxRules capped = rules;

        capped.max_lifetime = 3600 * NSEC_PER_SEC;
        spec = create(&message, &capped);
        assert_int_equal(spec->max_lifetime, 3600 * NSEC_PER_SEC);
        message.max_lifetime = &day;
        assert_refused(&message, &capped, "FIELD_OUT_OF_RANGE");
}

static void too_large_arguments_are_refused_with_the_limit(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *large = new0(char, 131073);
        char *command[] = { (char *) "echo", large };
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;

        memset(large, 'x', 131071);
        message.command = command;
        message.n_command = 2;
        assert_int_equal(sandbox_spec_create(&message, &rules, &violations, &spec), 0);

        large[131071] = 'x';
        spec = sandbox_spec_unref(spec);
        assert_true(sandbox_spec_create(&message, &rules, &violations, &spec) < 0);
        assert_true(violations_result(&violations, &err) < 0);
        assert_string_equal(err.reason, "ARGUMENTS_TOO_LARGE");
        assert_int_equal(err.code, STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(err.n_pairs, 2);
        assert_string_equal(err.pairs[0].key, "limit");
        assert_string_equal(err.pairs[1].value, "131071");
}

static void a_spec_comes_back_from_the_store_as_it_was(void **state) {
        Hutch__V1__SandboxSpec__EnvEntry env = HUTCH__V1__SANDBOX_SPEC__ENV_ENTRY__INIT, *envs[] = { &env };
        Hutch__V1__SandboxSpec__LabelsEntry label = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT, *labels[] = { &label };
        Google__Protobuf__Duration ttl = duration_message(0), lifetime = duration_message(NSEC_PER_SEC);
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL, *again = NULL;
        char *command[] = { (char *) "sleep", (char *) "1" };
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        StoredSpec stored;

        env.key = (char *) "A";
        env.value = (char *) "1";
        label.key = (char *) "team";
        label.value = (char *) "red";
        message.command = command;
        message.n_command = 2;
        message.env = envs;
        message.n_env = 1;
        message.labels = labels;
        message.n_labels = 1;
        message.working_directory = (char *) "/srv//x/";
        message.user = (char *) "agent";
        message.idle_ttl = &ttl;
        message.max_lifetime = &lifetime;
        message.lifetime_action = HUTCH__V1__LIFETIME_ACTION__LIFETIME_ACTION_DELETE;
        message.profile = (char *) "permissive";
        spec = create(&message, &rules);

        stored = (StoredSpec){
                .encoded = spec->encoded,
                .encoded_len = spec->encoded_len,
                .effective = spec->effective,
                .effective_len = spec->effective_len,
        };
        assert_int_equal(sandbox_spec_decode(&stored, &again, NULL), 0);
        for (size_t i = 0; i < 2; i++) {
                const SandboxSpec *each = i == 0 ? spec : again;

                assert_string_equal(each->runtime, "native");
                assert_string_equal(each->user, "agent");
                assert_string_equal(each->working_directory, "/srv/x");
                assert_string_equal(each->command[1], "1");
                assert_null(each->command[2]);
                assert_string_equal(each->env[0].value, "1");
                assert_string_equal(each->labels[0].key, "team");
                assert_int_equal(each->idle_ttl, 0);
                assert_int_equal(each->max_lifetime, NSEC_PER_SEC);
                assert_int_equal(each->lifetime_action, LIFETIME_DELETE);
                assert_int_equal(each->limits.max_open_files, 4096);
                assert_int_equal(each->limits.exec_timeout, 600 * NSEC_PER_SEC);
        }
        assert_int_equal(again->encoded_len, spec->encoded_len);
        assert_memory_equal(again->encoded, spec->encoded, spec->encoded_len);
        assert_memory_equal(again->effective, spec->effective, spec->effective_len);
}

static void what_the_store_garbled_is_refused(void **state) {
        static const uint8_t garbage[] = { 0x0a, 0x7f };
        const StoredSpec stored = { .encoded = garbage, .encoded_len = 2, .effective = garbage, .effective_len = 2 };
        const StoredSpec empty = {};
        SandboxSpec *spec = NULL;
        ExecSpec *exec = NULL;

        assert_int_equal(sandbox_spec_decode(&stored, &spec, NULL), -EBADMSG);
        assert_int_equal(exec_spec_decode(&stored, &exec, NULL), -EBADMSG);
        assert_int_equal(exec_spec_decode(&empty, &exec, NULL), -EBADMSG);
}

static void an_update_changes_what_its_mask_names(void **state) {
        Hutch__V1__SandboxSpec__LabelsEntry label = HUTCH__V1__SANDBOX_SPEC__LABELS_ENTRY__INIT, *labels[] = { &label };
        Google__Protobuf__Duration ttl = duration_message(5 * NSEC_PER_SEC);
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *spec = NULL, *updated = NULL, *unset = NULL;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT, changes = HUTCH__V1__SANDBOX_SPEC__INIT;

        label.key = (char *) "team";
        label.value = (char *) "red";
        message.labels = labels;
        message.n_labels = 1;
        message.user = (char *) "agent";
        spec = create(&message, &rules);

        changes.idle_ttl = &ttl;
        changes.user = (char *) "root";
        assert_int_equal(sandbox_spec_update(spec, &changes, 1U << SPEC_IDLE_TTL, &rules, &updated), 0);
        assert_int_equal(updated->idle_ttl, 5 * NSEC_PER_SEC);
        assert_int_equal(updated->n_labels, 1);
        assert_string_equal(updated->user, "agent");
        assert_int_equal(spec->idle_ttl, 600 * NSEC_PER_SEC);

        changes.idle_ttl = NULL;
        assert_int_equal(
                sandbox_spec_update(updated, &changes, 1U << SPEC_IDLE_TTL | 1U << SPEC_LABELS, &rules, &unset), 0);
        assert_int_equal(unset->idle_ttl, 600 * NSEC_PER_SEC);
        assert_int_equal(unset->n_labels, 0);

        assert_int_equal(spec_field_from_name("max_lifetime"), SPEC_MAX_LIFETIME);
        assert_int_equal(spec_field_from_name("image"), N_SPEC_FIELDS);
}

static void every_violation_of_an_exec_is_told_at_once(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        Google__Protobuf__Duration long_grace = duration_message(601 * NSEC_PER_SEC);
        Google__Protobuf__Duration malformed = GOOGLE__PROTOBUF__DURATION__INIT;
        Hutch__V1__TerminalSize terminal = HUTCH__V1__TERMINAL_SIZE__INIT;
        Hutch__V1__ExecSpec message = HUTCH__V1__EXEC_SPEC__INIT;
        char *unset[] = { (char *) "FINE", (char *) "NOT=FINE" };

        malformed.nanos = 1000000000;
        terminal.rows = 65536;
        message.working_directory = (char *) "a/../b";
        message.user = (char *) ":";
        message.unset_env = unset;
        message.n_unset_env = 2;
        message.timeout = &malformed;
        message.kill_grace = &long_grace;
        message.stdin = (Hutch__V1__StdinMode) 9;
        message.terminal = &terminal;
        message.output_limit_bytes = UINT64_MAX;
        exec_spec_check(&message, &exec_rules, &violations);

        assert_true(has_violation(&violations, "argv", REASON_ARGV_EMPTY));
        assert_true(has_violation(&violations, "working_directory", REASON_PATH_DOTDOT));
        assert_true(has_violation(&violations, "user", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "unset_env[1]", REASON_ENV_NAME_MALFORMED));
        assert_true(has_violation(&violations, "timeout", REASON_DURATION_MALFORMED));
        assert_true(has_violation(&violations, "kill_grace", REASON_FIELD_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "stdin", REASON_FIELD_INVALID));
        assert_true(has_violation(&violations, "terminal", REASON_FIELD_OUT_OF_RANGE));
        assert_true(has_violation(&violations, "output_limit_bytes", REASON_FIELD_OUT_OF_RANGE));
        assert_int_equal(violations.n, 9);

        violations_clear(&violations);
        exec_spec_check(NULL, &exec_rules, &violations);
        assert_true(has_violation(&violations, "", REASON_FIELD_REQUIRED));
}

static void an_exec_stands_below_its_sandbox_and_comes_back_as_it_was(void **state) {
        _cleanup_(violations_clear) Violations violations = {};
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *sandbox = NULL;
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = NULL, *again = NULL;
        Google__Protobuf__Duration grace = duration_message(0);
        Hutch__V1__TerminalSize terminal = HUTCH__V1__TERMINAL_SIZE__INIT;
        Hutch__V1__ExecSpec message = HUTCH__V1__EXEC_SPEC__INIT;
        Message sandbox_message = HUTCH__V1__SANDBOX_SPEC__INIT;
        char *argv[] = { (char *) "cat", (char *) "" };
        StoredSpec stored;

        sandbox_message.working_directory = (char *) "/srv";
        sandbox = create(&sandbox_message, &rules);
        message.argv = argv;
        message.n_argv = 2;
        message.working_directory = (char *) "./sub/";
        message.kill_grace = &grace;
        message.stdin = HUTCH__V1__STDIN_MODE__STDIN_MODE_STREAM;
        message.terminal = &terminal;
        terminal.columns = 100;
        assert_int_equal(exec_spec_create(&message, &exec_rules, sandbox, "in\0put", 6, &violations, &spec), 0);

        stored = (StoredSpec){
                .encoded = spec->encoded,
                .encoded_len = spec->encoded_len,
                .input = spec->input,
                .input_len = spec->input_len,
        };
        assert_int_equal(exec_spec_decode(&stored, &again, NULL), 0);
        for (size_t i = 0; i < 2; i++) {
                const ExecSpec *each = i == 0 ? spec : again;

                assert_string_equal(each->argv[0], "cat");
                assert_string_equal(each->argv[1], "");
                assert_null(each->argv[2]);
                assert_string_equal(each->working_directory, "/srv/sub");
                assert_null(each->user);
                assert_int_equal(each->kill_grace, 0);
                assert_true(each->stdin_stream);
                assert_true(each->terminal);
                assert_int_equal(each->rows, 24);
                assert_int_equal(each->columns, 100);
                assert_int_equal(each->output_limit, MIB(64));
                assert_int_equal(each->input_len, 6);
                assert_memory_equal(each->input, "in\0put", 6);
        }
}

static void the_command_of_a_sandbox_is_an_exec_like_others(void **state) {
        _cleanup_(sandbox_spec_unrefp) SandboxSpec *sandbox = NULL;
        _cleanup_(exec_spec_unrefp) ExecSpec *spec = NULL, *again = NULL;
        Message message = HUTCH__V1__SANDBOX_SPEC__INIT;
        char *command[] = { (char *) "sleep", (char *) "1" };
        StoredSpec stored;

        message.command = command;
        message.n_command = 2;
        sandbox = create(&message, &rules);
        spec = exec_spec_make_main(sandbox, MIB(1));
        assert_string_equal(spec->argv[0], "sleep");
        assert_string_equal(spec->argv[1], "1");
        assert_null(spec->working_directory);
        assert_int_equal(spec->kill_grace, 5 * NSEC_PER_SEC);
        assert_int_equal(spec->output_limit, MIB(1));

        stored = (StoredSpec){ .encoded = spec->encoded, .encoded_len = spec->encoded_len };
        assert_int_equal(exec_spec_decode(&stored, &again, NULL), 0);
        assert_string_equal(again->argv[1], "1");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_asked_for_is_all_defaults),
                cmocka_unit_test(the_working_directory_is_the_workspace_wherever_that_is),
                cmocka_unit_test(every_violation_is_told_at_once),
                cmocka_unit_test(features_that_are_missing_are_refused),
                cmocka_unit_test(limits_that_cannot_be_enforced_are_refused_or_told),
                cmocka_unit_test(clamping_is_told),
                cmocka_unit_test(timeouts_keep_their_nanoseconds),
                cmocka_unit_test(lifetimes_are_capped),
                cmocka_unit_test(too_large_arguments_are_refused_with_the_limit),
                cmocka_unit_test(a_spec_comes_back_from_the_store_as_it_was),
                cmocka_unit_test(what_the_store_garbled_is_refused),
                cmocka_unit_test(an_update_changes_what_its_mask_names),
                cmocka_unit_test(every_violation_of_an_exec_is_told_at_once),
                cmocka_unit_test(an_exec_stands_below_its_sandbox_and_comes_back_as_it_was),
                cmocka_unit_test(the_command_of_a_sandbox_is_an_exec_like_others),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
