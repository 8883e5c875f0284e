/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what people write for a sandbox's spec, and how it becomes one. What does not: whether the daemon
 * takes it. */

#include "cli/spec-options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/output.h"
#include "cli/place.h"
#include "pbtext/pbtext.h"

#define FILE_MAX ((size_t) 4 << 20) /* a message to the daemon is no larger */

/* ---- Values ---- */

/* A number with up to @decimals digits after the point, times ten to the power of @decimals. Returns what follows it,
 * or NULL. */
static const char *parse_decimal(const char *text, unsigned decimals, uint64_t *ret_number) {
        uint64_t number = 0;
        bool fraction = false;
        const char *c = text;

        for (; ascii_is_digit(*c) || (*c == '.' && !fraction && c > text); c++) {
                if (*c == '.') {
                        fraction = true;
                        continue;
                }
                if (fraction && decimals-- == 0)
                        return NULL;
                if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *c - '0', &number))
                        return NULL;
        }
        if (c == text || c[-1] == '.')
                return NULL;
        while (decimals-- > 0)
                if (__builtin_mul_overflow(number, 10, &number))
                        return NULL;

        *ret_number = number;
        return c;
}

/* "512m", "1.5g", "64KiB", "1048576". */
static int apply_size(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        enum { THOUSANDTHS = 1000 };
        static const char units[] = "bkmgtp";
        char text[sizeof("18446744073709551615")];
        const char *rest, *unit = units;
        uint64_t size, shift;

        rest = parse_decimal(value, 3, &size);
        if (rest && *rest) {
                unit = strchr(units, ascii_lower(*rest++));
                if (rest[0] && ascii_lower(rest[0]) == 'i')
                        rest++;
                if (rest[0] && ascii_lower(rest[0]) == 'b')
                        rest++;
        }
        shift = unit ? 10 * (uint64_t) (unit - units) : 0;
        if (!rest || !unit || *rest || size > UINT64_MAX >> shift)
                return error_set(err, -EINVAL, "USAGE", "'%s' is no size; write it as in 512m or 1.5g", value);

        (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) ((size << shift) / THOUSANDTHS));
        return message_set(spec, path, text, err);
}

/* "0.5": half a core. */
static int apply_cpus(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        char text[sizeof("18446744073709551615")];
        uint64_t millis;
        const char *rest = parse_decimal(value, 3, &millis);

        if (!rest || *rest)
                return error_set(err, -EINVAL, "USAGE", "'%s' is no number of cores; write it as in 2 or 0.5", value);

        (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) millis);
        return message_set(spec, path, text, err);
}

static int apply_true(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        (void) value;
        return message_set(spec, path, "true", err);
}

static int apply_network(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        if (!str_equal(value, "none"))
                return error_set(err, -EINVAL, "USAGE", "it can only be 'none'");
        return message_set(spec, path, "true", err);
}

static int apply_label(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder label = {};

        string_builder_appendf(&label, "%s%s", value, strchr(value, '=') ? "" : "=");
        return message_set(spec, path, label.text, err);
}

/* ---- Environment ---- */

/* "NAME=VALUE", or "NAME" for the caller's own value; "" for one that the caller has not. The caller frees it. */
static char *complete_variable(const char *text) {
        const char *value = strchr(text, '=') ? NULL : getenv(text);
        StringBuilder variable = {};

        if (strchr(text, '='))
                string_builder_append(&variable, text);
        else if (value)
                string_builder_appendf(&variable, "%s=%s", text, value);
        return string_builder_take(&variable);
}

static int apply_variable(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        _cleanup_free_ char *variable = complete_variable(value);

        return *variable ? message_set(spec, path, variable, err) : 0;
}

static FILE *open_file(const char *path, HutchError *err) {
        FILE *file = str_equal(path, "-") ? fdopen(dup(STDIN_FILENO), "re") : fopen(path, "re");

        if (!file)
                (void) error_set(err, -errno, "USAGE", "cannot read %s: %s", path, strerror(errno));
        return file;
}

static void close_file(FILE **file) {
        if (*file)
                (void) fclose(*file);
}

/* Calls @each with every variable of a file: lines of NAME=VALUE or NAME; those that are empty or begin with # are
 * none. */
static int read_variables(const char *path, int (*each)(void *user, const char *variable, HutchError *err), void *user,
                          HutchError *err) {
        _cleanup_(close_file) FILE *file = open_file(path, err);
        _cleanup_free_ char *line = NULL;
        size_t size = 0;

        if (!file)
                return -EINVAL;

        while (getline(&line, &size, file) >= 0) {
                _cleanup_free_ char *variable = NULL;
                int r;

                line[strcspn(line, "\r\n")] = '\0';
                if (line[0] == '\0' || line[0] == '#')
                        continue;
                variable = complete_variable(line);
                r = *variable ? each(user, variable, err) : 0;
                if (r < 0)
                        return r;
        }
        return ferror(file) ? error_set(err, -errno, "USAGE", "cannot read %s: %s", path, strerror(errno)) : 0;
}

static int set_variable(void *user, const char *variable, HutchError *err) {
        return message_set(user, "env", variable, err);
}

static int apply_env_file(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        (void) path;
        return read_variables(value, set_variable, spec, err);
}

typedef struct Variables {
        char **list;
        size_t n;
} Variables;

static int append_variable(void *user, const char *variable, HutchError *err) {
        Variables *variables = user;

        (void) err;
        variables->list = xreallocarray(variables->list, variables->n + 2, sizeof(char *));
        variables->list[variables->n++] = xstrdup(variable);
        variables->list[variables->n] = NULL;
        return 0;
}

int environment_from_arguments(const Arguments *arguments, char ***ret_env, HutchError *err) {
        Variables variables = { .list = new0(char *, 1) };
        int r = 0;

        for (size_t i = 0; i < arguments->n_options && r == 0; i++) {
                const char *name = arguments->options[i].option->name, *value = arguments->options[i].value;
                _cleanup_free_ char *variable = str_equal(name, "env") ? complete_variable(value) : NULL;

                if (variable && *variable)
                        r = append_variable(&variables, variable, err);
                else if (str_equal(name, "env-file"))
                        r = read_variables(value, append_variable, &variables, err);
        }
        if (r < 0) {
                (void) strv_free(variables.list);
                return r;
        }

        *ret_env = variables.list;
        return 0;
}

/* ---- Mounts ---- */

#define WRITABLE ", \"writable\": true"
#define SOCKETS ", \"sockets\": true"

/* The path of a folder or file of this machine; one that is not absolute begins here. The daemon says what is wrong
 * with one that does not exist. */
static const char *absolute_source(const char *source, char here[static PATH_MAX]) {
        _cleanup_free_ char *name = path_base_name(source), *folder = path_folder(source);
        size_t len;

        if (source[0] == '/' || source[0] == '~')
                return source;
        if (realpath(source, here))
                return here;
        if (!name || !realpath(folder, here))
                return source;
        len = strlen(here);
        return snprintf(here + len, PATH_MAX - len, "/%s", name) < (int) (PATH_MAX - len) ? here : source;
}

static int add_mount(ProtobufCMessage *spec, const char *path, const char *source, const char *target,
                     const char *options, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder json = {};
        char here[PATH_MAX];
        _cleanup_free_ char *quoted_source = json_quote(absolute_source(source, here)),
                            *quoted_target = json_quote(target);

        string_builder_appendf(&json, "{\"source\": %s, \"target\": %s%s}", quoted_source, quoted_target, options);
        return message_set(spec, path, json.text, err);
}

/* "SOURCE:TARGET", "SOURCE:TARGET:ro", "SOURCE:TARGET:rw". */
static int apply_volume(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        _cleanup_free_ char *copy = xstrdup(value);
        char *target = strchr(copy, ':'), *mode = target ? strchr(target + 1, ':') : NULL;

        if (target)
                *target++ = '\0';
        if (mode)
                *mode++ = '\0';
        if (!target || *copy == '\0' || *target == '\0' || (mode && !choice_has("ro|rw", mode)))
                return error_set(err, -EINVAL, "USAGE",
                                 "'%s' is no mount; write it as SOURCE:TARGET or SOURCE:TARGET:ro", value);
        return add_mount(spec, path, copy, target, str_equal(mode, "ro") ? "" : WRITABLE, err);
}

/* "type=bind,src=SOURCE,dst=TARGET,ro,sockets". */
static int apply_mount(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        _cleanup_free_ char *copy = xstrdup(value);
        const char *source = NULL, *target = NULL;
        bool writable = true, sockets = false;
        char *rest = copy, *word;

        while ((word = strsep(&rest, ","))) {
                char *text = strchr(word, '=');

                if (text)
                        *text++ = '\0';
                if (text && choice_has("source|src", word))
                        source = text;
                else if (text && choice_has("destination|dst|target", word))
                        target = text;
                else if (choice_has("readonly|ro", word) && (!text || choice_has("true|1", text)))
                        writable = false;
                else if (str_equal(word, "sockets") && !text)
                        sockets = true;
                else if (!str_equal(word, "type") || !str_equal(text, "bind"))
                        return error_set(err, -EINVAL, "USAGE",
                                         "'%s' is no part of a mount; there are type=bind, src=, dst=, ro and sockets",
                                         word);
        }
        if (!source || !target)
                return error_set(err, -EINVAL, "USAGE", "a mount needs src= and dst=");
        return add_mount(spec, path, source, target, writable ? WRITABLE : sockets ? SOCKETS : "", err);
}

/* "SOURCE:TARGET". */
static int apply_copy(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder json = {};
        _cleanup_free_ char *source = xstrdup(value), *quoted_source = NULL, *quoted_target = NULL;
        char *target = strchr(source, ':'), here[PATH_MAX];

        if (target)
                *target++ = '\0';
        if (!target || *source == '\0' || *target == '\0')
                return error_set(err, -EINVAL, "USAGE", "'%s' is no copy; write it as SOURCE:TARGET", value);
        quoted_source = json_quote(absolute_source(source, here));
        quoted_target = json_quote(target);
        string_builder_appendf(&json, "{\"source\": %s, \"target\": %s}", quoted_source, quoted_target);
        return message_set(spec, path, json.text, err);
}

/* A folder of this machine. */
static int apply_workspace(ProtobufCMessage *spec, const char *path, const char *value, HutchError *err) {
        char here[PATH_MAX];

        return message_set(spec, path, absolute_source(value, here), err);
}

/* ---- All of them ---- */

#define FIELD(path, apply) (&(const SpecField){ path, apply })

const Option spec_options[] = {
        { "file", 'f', "FILE", .help = "a spec in YAML or JSON, - for stdin; options come over it", COMPLETES_FILES },
        { "name", 0, "ID", .help = "the sandbox's id; without it the daemon makes one" },
        { "image", 0, "IMAGE", .help = "what its files are (host: this machine's own programs)", 0,
          FIELD("image", message_set) },
        { "profile", 0, "PROFILE", .help = "a named set of limits", COMPLETES_PROFILES, FIELD("profile", message_set) },
        { "memory", 'm', "SIZE", .help = "the most memory: 512m, 1.5g", 0, FIELD("limits.memory_bytes", apply_size) },
        { "cpus", 0, "NUMBER", .help = "the most CPU time, in cores: 2, 0.5", 0,
          FIELD("limits.cpu_millis", apply_cpus) },
        { "pids-limit", 0, "NUMBER", .help = "the most processes and threads", 0,
          FIELD("limits.max_processes", message_set) },
        { "disk", 0, "SIZE", .help = "the most that it may write to disk", 0, FIELD("limits.disk_bytes", apply_size) },
        { "read-only", 0, NULL, .help = "make its root file system read-only", 0,
          FIELD("limits.read_only_root", apply_true) },
        { "network", 0, "none", .help = "what it may reach: nothing at all", 0,
          FIELD("limits.no_network", apply_network) },
        { "env", 'e', "NAME[=VALUE]", .help = "an environment variable; without a value the caller's own", 0,
          FIELD("env", apply_variable) },
        { "env-file", 0, "FILE", .help = "a file with environment variables", COMPLETES_FILES,
          FIELD("env", apply_env_file) },
        { "workdir", 'w', "PATH", .help = "the working directory inside", 0, FIELD("working_directory", message_set) },
        { "user", 'u', "USER", .help = "the user inside: a name, uid or uid:gid", 0, FIELD("user", message_set) },
        { "cap-add", 0, "CAPABILITY", .help = "a capability of root inside: CHOWN, SETUID, …", 0,
          FIELD("capabilities", message_set) },
        { "volume", 'v', "SOURCE:TARGET[:ro]", .help = "mount a folder or file of this machine", COMPLETES_FILES,
          FIELD("mounts", apply_volume) },
        { "mount", 0, "type=bind,src=PATH,dst=PATH", .help = "the same, in words; ,ro makes it read-only", 0,
          FIELD("mounts", apply_mount) },
        { "copy", 0, "SOURCE:TARGET", .help = "copy a folder or file of this machine into it", COMPLETES_FILES,
          FIELD("copies", apply_copy) },
        { "tool", 0, "TOOL", .help = "what a tool has in your home, read-only: claude, git, …", 0,
          FIELD("tools", message_set) },
        { "workspace", 0, "SOURCE", .help = "a folder of this machine as its workspace", COMPLETES_FILES,
          FIELD("workspace.source", apply_workspace) },
        { "label", 'l', "NAME[=VALUE]", .help = "a label to find it by", 0, FIELD("labels", apply_label) },
        { "idle-ttl", 0, "DURATION", .help = "stop it when it was idle for that long; 0: never", 0,
          FIELD("idle_ttl", message_set) },
        { "idle-action", 0, "stop|delete", .help = "what happens to it then", 0, FIELD("idle_action", message_set) },
        { "max-lifetime", 0, "DURATION", .help = "stop it that long after its creation", 0,
          FIELD("max_lifetime", message_set) },
        { "runtime", 0, "RUNTIME", .help = "what runs it: native", 0, FIELD("runtime", message_set) },
        {},
};

static int read_spec(const char *path, ProtobufCMessage **ret_spec, HutchError *err) {
        const ProtobufCMessageDescriptor *type = hutch_message_descriptor("SandboxSpec");
        _cleanup_(close_file) FILE *file = open_file(path, err);
        _cleanup_(error_clear) HutchError why = {};
        _cleanup_free_ char *text = new0(char, FILE_MAX + 1);
        size_t len;

        if (!file)
                return -EINVAL;
        len = fread(text, 1, FILE_MAX + 1, file);
        if (ferror(file) || len > FILE_MAX)
                return error_set(err, -EINVAL, "USAGE", "cannot read %s: %s", path,
                                 ferror(file) ? strerror(errno) : "it is too large for a spec");

        /* JSON is YAML, too. */
        if (message_from_yaml(type, text, len, ret_spec, &why) < 0)
                return error_set(err, -EINVAL, "USAGE", "%s: %s", path, error_message(&why));
        return 0;
}

int fields_from_arguments(const Arguments *arguments, ProtobufCMessage *message, HutchError *err) {
        for (size_t i = 0; i < arguments->n_options; i++) {
                const Option *option = arguments->options[i].option;
                const char *value = arguments->options[i].value;
                _cleanup_(error_clear) HutchError why = {};

                if (!option->field)
                        continue;
                if (option->field->apply(message, option->field->path, value ? value : "", &why) < 0)
                        return error_set(err, -EINVAL, "USAGE", "--%s: %s", option->name, error_message(&why));
        }
        return 0;
}

int spec_from_arguments(const Arguments *arguments, ProtobufCMessage **ret_spec, HutchError *err) {
        _cleanup_(message_freep) ProtobufCMessage *spec = NULL;
        const char *file = arguments_get(arguments, "file");
        int r = 0;

        if (file)
                r = read_spec(file, &spec, err);
        else
                spec = contract_message("SandboxSpec");
        if (r == 0)
                r = fields_from_arguments(arguments, spec, err);
        if (r < 0)
                return r;

        *ret_spec = TAKE_PTR(spec);
        return 0;
}
