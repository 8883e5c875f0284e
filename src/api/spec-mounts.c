/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the rules of targets, and mounts, copies and tools on their way into the model. What does not: which
 * sources may be had (host/sources.c). */

#include "api/spec-mounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/process-rules.h"
#include "base/strings.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "host/sources.h"
#include "host/tools.h"
#include "policy/path-rules.h"

#define MOUNTS_MAX 64
#define COPIES_MAX 64
#define TOOLS_MAX 32
#define TARGETS_MAX (MOUNTS_MAX + 1 + COPIES_MAX)
#define PATTERNS_MAX 256               /* of one copy */
#define PATTERN_BYTES_MAX (256 * 1024) /* of all copies */

typedef Hutch__V1__SandboxSpec Message;

/* The targets that were there before. */
typedef struct Targets {
        char *list[TARGETS_MAX];
        size_t n;
        size_t n_mounts; /* the first ones: of these */
} Targets;

static void targets_clear(Targets *targets) {
        for (size_t i = 0; i < targets->n; i++)
                free(targets->list[i]);
}

static bool is_in(const char *path, const char *folder) {
        size_t len = strlen(folder);

        return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* What the keeper makes anew and reads itself. */
static bool is_of_kernel(const char *path) {
        return is_in(path, "/dev") || is_in(path, "/proc") || is_in(path, "/sys");
}

static void check_target(const char *target, Targets *targets, Violations *violations) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        _cleanup_free_ char *path = NULL;

        if (!*target) {
                violations_add(violations, "target", REASON_FIELD_REQUIRED, "say where it is to be inside");
                return;
        }
        if (violations_note(violations, "target",
                            path_resolve(target, strlen(target), &context, &path, NULL, &violations->err)) < 0)
                return;
        if (str_equal(path, "/") || is_of_kernel(path)) {
                violations_add(violations, "target", REASON_FIELD_INVALID,
                               "neither the root nor anything in /dev, /proc and /sys can be a target");
                return;
        }
        for (size_t i = 0; i < targets->n; i++)
                if (str_equal(targets->list[i], path)) {
                        violations_add(violations, "target", REASON_TARGET_DUPLICATE, "another one has this target");
                        return;
                }
        /* It would be copied to the host. */
        for (size_t i = 0; i < targets->n_mounts; i++)
                if (is_in(path, targets->list[i])) {
                        violations_add(violations, "target", REASON_FIELD_CONFLICT, "it is in what is mounted at '%s'",
                                       targets->list[i]);
                        return;
                }
        targets->list[targets->n++] = TAKE_PTR(path);
}

static void check_source(const char *source, SourceUse use, const SandboxRules *rules, Violations *violations) {
        static const SourceRules nothing = {};
        const SourceRules sources = source_rules_for(rules->sources ? rules->sources : &nothing, rules->owner);
        _cleanup_free_ char *home = *source == '~' && rules->owner ? source_home(rules->owner) : NULL;
        Source opened;

        if (!*source)
                violations_add(violations, "source", REASON_FIELD_REQUIRED, "say which folder or file of the host");
        else if (violations_note(violations, "source",
                                 source_open(&sources, source, home, use, &opened, &violations->err)) == 0)
                source_close(&opened);
}

static void check_workspace(const Hutch__V1__Workspace *workspace, const SandboxRules *rules, Targets *targets,
                            Violations *violations) {
        size_t above = violations_enter(violations, "workspace");

        check_source(workspace->source, workspace->read_only ? SOURCE_READ : SOURCE_WRITE, rules, violations);
        /* What is wrong with it is told with all paths of the spec's. */
        if (targets->n == 0) {
                const PathContext context = { .use = PATH_USE_ABSOLUTE };
                const char *target = *workspace->target ? workspace->target : PATH_WORKSPACE;

                if (path_resolve(target, strlen(target), &context, &targets->list[0], NULL, NULL) == 0)
                        targets->n = 1;
        }
        violations_leave(violations, above);
}

static void check_patterns(const Hutch__V1__Copy *copy, size_t *bytes, Violations *violations) {
        if (copy->n_exclude > PATTERNS_MAX)
                violations_add_limit(violations, "exclude", REASON_FIELD_OUT_OF_RANGE, "exclude", PATTERNS_MAX,
                                     "at most %d patterns", PATTERNS_MAX);
        for (size_t i = 0; i < copy->n_exclude; i++)
                *bytes += strlen(copy->exclude[i]) + 1;
        if (*bytes > PATTERN_BYTES_MAX)
                violations_add_limit(violations, "exclude", REASON_FIELD_TOO_LONG, "exclude_bytes", PATTERN_BYTES_MAX,
                                     "the patterns of all copies have at most %d bytes", PATTERN_BYTES_MAX);
}

static void check_copies(const Message *message, const SandboxRules *rules, Targets *targets, Violations *violations) {
        size_t bytes = 0;

        if (message->n_copies > COPIES_MAX) {
                violations_add_limit(violations, "copies", REASON_FIELD_OUT_OF_RANGE, "copies", COPIES_MAX,
                                     "at most %d copies", COPIES_MAX);
                return;
        }
        for (size_t i = 0; i < message->n_copies; i++) {
                const Hutch__V1__Copy *copy = message->copies[i];
                size_t above = violations_enter_element(violations, "copies", i);

                check_target(copy->target, targets, violations);
                check_source(copy->source, SOURCE_READ, rules, violations);
                check_patterns(copy, &bytes, violations);
                violations_leave(violations, above);
        }
}

/* Whether something of it can be had; the error says why not. */
static int try_tool(const char *name, const SandboxRules *rules, HutchError *err) {
        static const SourceRules nothing = {};
        const SourceRules sources = source_rules_for(rules->sources ? rules->sources : &nothing, rules->owner);
        _cleanup_free_ char *home = rules->owner ? source_home(rules->owner) : NULL;
        const char *part = NULL;
        bool forbidden = false;

        for (size_t i = 0; (part = tool_part(&sources, name, i)); i++) {
                Source opened;
                int r = tool_open_part(&sources, part, home, &opened, NULL);

                if (r == 0) {
                        source_close(&opened);
                        return 0;
                }
                forbidden = forbidden || r == -EACCES;
        }
        if (forbidden)
                return reason_set(err, -EACCES, REASON_SOURCE_NOT_ALLOWED,
                                  "the tool '%s' is in no folder that callers may read; the operator adds one to "
                                  "sources.read in %s, and restarts hutchd",
                                  name, sources.file ? sources.file : "the daemon's configuration");
        if (!tool_part(&sources, name, 0))
                return reason_set(err, -EINVAL, REASON_TOOL_UNKNOWN, "there is no such tool; GetInfo lists them");
        return reason_set(err, -EINVAL, REASON_TOOL_UNKNOWN, "nothing of the tool '%s' is there", name);
}

static void check_tool(char *const names[], size_t i, const SandboxRules *rules, Violations *violations) {
        for (size_t j = 0; j < i; j++)
                if (str_equal(names[i], names[j])) {
                        violations_add(violations, NULL, REASON_FIELD_INVALID, "it is there twice");
                        return;
                }
        (void) violations_note(violations, NULL, try_tool(names[i], rules, &violations->err));
}

static void check_tools(const Message *message, const SandboxRules *rules, Violations *violations) {
        if (message->n_tools > TOOLS_MAX) {
                violations_add_limit(violations, "tools", REASON_FIELD_OUT_OF_RANGE, "tools", TOOLS_MAX,
                                     "at most %d tools", TOOLS_MAX);
                return;
        }
        for (size_t i = 0; i < message->n_tools; i++) {
                size_t above = violations_enter_element(violations, "tools", i);

                check_tool(message->tools, i, rules, violations);
                violations_leave(violations, above);
        }
}

void spec_mounts_check(const Message *message, const SandboxRules *rules, Violations *violations) {
        _cleanup_(targets_clear) Targets targets = {};

        if (message->workspace && *message->workspace->source)
                check_workspace(message->workspace, rules, &targets, violations);
        if (message->n_mounts > MOUNTS_MAX) {
                violations_add_limit(violations, "mounts", REASON_FIELD_OUT_OF_RANGE, "mounts", MOUNTS_MAX,
                                     "at most %d mounts", MOUNTS_MAX);
                return;
        }
        for (size_t i = 0; i < message->n_mounts; i++) {
                const Hutch__V1__Mount *mount = message->mounts[i];
                size_t above = violations_enter_element(violations, "mounts", i);

                check_target(mount->target, &targets, violations);
                check_source(mount->source, mount->writable ? SOURCE_WRITE : SOURCE_READ, rules, violations);
                violations_leave(violations, above);
        }
        targets.n_mounts = targets.n;
        check_copies(message, rules, &targets, violations);
        check_tools(message, rules, violations);
}

static int add_mount(SandboxSpec *spec, const char *source, const char *target, bool writable, bool sockets) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        SandboxMount *mount = &spec->mounts[spec->n_mounts];
        int r = path_resolve(target, strlen(target), &context, &mount->target, NULL, NULL);

        if (r < 0)
                return r == -ENOMEM ? r : -EBADMSG;
        mount->source = xstrdup(source);
        mount->writable = writable;
        mount->sockets = sockets;
        spec->n_mounts++;
        return 0;
}

static int add_copy(SandboxSpec *spec, const Hutch__V1__Copy *message) {
        const PathContext context = { .use = PATH_USE_ABSOLUTE };
        SandboxCopy *copy = &spec->copies[spec->n_copies];
        int r = path_resolve(message->target, strlen(message->target), &context, &copy->target, NULL, NULL);

        if (r < 0)
                return r == -ENOMEM ? r : -EBADMSG;
        copy->source = xstrdup(message->source);
        copy->exclude = copy_texts(message->exclude, message->n_exclude);
        spec->n_copies++;
        return 0;
}

int spec_mounts_build(const Message *message, SandboxSpec *spec) {
        int r = 0;

        if (message->n_mounts > MOUNTS_MAX || message->n_copies > COPIES_MAX)
                return -EBADMSG;
        if (message->n_tools > 0)
                spec->tools = copy_texts(message->tools, message->n_tools);
        spec->copies = new0(SandboxCopy, message->n_copies + 1);
        for (size_t i = 0; i < message->n_copies && r == 0; i++)
                r = add_copy(spec, message->copies[i]);
        spec->mounts = new0(SandboxMount, message->n_mounts + 1);
        if (r == 0 && message->workspace && *message->workspace->source)
                r = add_mount(spec, message->workspace->source, spec->workspace, !message->workspace->read_only,
                              message->workspace->sockets);
        for (size_t i = 0; i < message->n_mounts && r == 0; i++)
                r = add_mount(spec, message->mounts[i]->source, message->mounts[i]->target,
                              message->mounts[i]->writable, message->mounts[i]->sockets);
        return r;
}
