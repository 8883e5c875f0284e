/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which cgroups a daemon that is started from here would have. What does not: finding out, which is
 * what the daemon does itself (host/cgroups.c). */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/doctor.h"
#include "host/cgroups.h"

#define ANSWER_MAX 65536

/* What a try says: texts, each with its NUL, one after the other. */
enum { TEXT_PLACE, TEXT_KIND, TEXT_WHY, TEXT_FIX, TEXT_CONTROLLERS };
enum { TEXT_HOW, TEXT_CONTROLLER_WHY, TEXT_CONTROLLER_FIX, TEXTS_OF_CONTROLLER };
enum { N_TEXTS = TEXT_CONTROLLERS + N_HOST_CONTROLLERS * TEXTS_OF_CONTROLLER };

static void append(StringBuilder *builder, const char *text) {
        string_builder_append_bytes(builder, text ? text : "", strlen(text ? text : "") + 1);
}

/* Does what a daemon does at its start, tells what came of it, and undoes it. */
static int try_cgroups(int answer, const char *state) {
        _cleanup_close_ int folder = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(string_builder_clear) StringBuilder builder = {};
        HostCgroups cgroups;
        char instance[32];

        (void) snprintf(instance, sizeof(instance), "doctor-%d", (int) getpid());
        host_cgroups_find(&(HostCgroupOptions){ .instance_id = instance, .state_folder = folder, .probes = true },
                          &cgroups);
        append(&builder, cgroups.place);
        append(&builder, cgroups.scope.process > 0 ? "scope" : "");
        append(&builder, cgroups.why);
        append(&builder, cgroups.fix);
        for (int i = 0; i < N_HOST_CONTROLLERS; i++) {
                const HostController *controller = &cgroups.controllers[i];

                append(&builder, !controller->parent ? "" : controller->parent_fd >= 0 ? "v1" : "v2");
                append(&builder, controller->why);
                append(&builder, controller->fix);
        }
        host_cgroups_release(&cgroups);
        return fd_write_all(answer, builder.text, builder.len);
}

/* In a process of its own, because it may be moved to another cgroup. */
static int ask(const char *state, char ret_answer[static ANSWER_MAX], const char *ret_texts[static N_TEXTS]) {
        size_t len = 0, at = 0;
        int pair[2], status;
        pid_t pid;

        for (int i = 0; i < N_TEXTS; i++)
                ret_texts[i] = "";
        if (pipe2(pair, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0)
                _exit(try_cgroups(pair[1], state) < 0);
        fd_close(pair[1]);
        while (pid > 0 && len < ANSWER_MAX - 1) {
                ssize_t n = read(pair[0], ret_answer + len, ANSWER_MAX - 1 - len);

                if (n <= 0)
                        break;
                len += (size_t) n;
        }
        fd_close(pair[0]);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
                return -EIO;

        ret_answer[len] = '\0';
        for (int i = 0; i < N_TEXTS; i++) {
                ret_texts[i] = ret_answer + at;
                at += strlen(ret_answer + at) + 1;
                if (at > len)
                        return -EBADMSG;
        }
        return 0;
}

static const char *text_of(const char *const *texts, int controller, int which) {
        return texts[TEXT_CONTROLLERS + controller * TEXTS_OF_CONTROLLER + which];
}

/* The names of the controllers that are had as @how says, and, unless it is NULL, are not for the reason @why. */
static char *list_controllers(const char *const *texts, const char *how, const char *why) {
        static const int wanted[] = { HOST_MEMORY, HOST_CPU, HOST_PIDS };
        StringBuilder builder = {};

        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
                if (str_equal(text_of(texts, wanted[i], TEXT_HOW), how) &&
                    (!why || str_equal(text_of(texts, wanted[i], TEXT_CONTROLLER_WHY), why)))
                        string_builder_appendf(&builder, "%s%s", builder.len > 0 ? ", " : "",
                                               host_controller_name(wanted[i]));
        return string_builder_take(&builder);
}

/* One line for each reason why something is not limited. Returns whether there is any. */
static bool tell_missing(Findings *findings, const char *const *texts) {
        static const int wanted[] = { HOST_MEMORY, HOST_CPU, HOST_PIDS };
        const char *told = NULL;

        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
                const char *why = text_of(texts, wanted[i], TEXT_CONTROLLER_WHY);
                _cleanup_free_ char *names = NULL;

                if (*text_of(texts, wanted[i], TEXT_HOW) || str_equal(told, why))
                        continue;
                told = why;
                names = list_controllers(texts, "", why);
                findings_add(findings, "cgroups", VERDICT_WARNING, text_of(texts, wanted[i], TEXT_CONTROLLER_FIX),
                             "no control of %s: %s", names, why);
        }
        return told;
}

/* The user's systemd ends with the last login, and what is in its scopes with it, unless the user lingers. */
static char *fix_lingering(bool in_scope) {
        const struct passwd *user = getpwuid(geteuid());
        StringBuilder path = {}, fix = {};

        if (in_scope && geteuid() != 0 && user) {
                string_builder_appendf(&path, "/var/lib/systemd/linger/%s", user->pw_name);
                if (access(path.text, F_OK) < 0)
                        string_builder_appendf(&fix, "to keep sandboxes after logging out: loginctl enable-linger %s",
                                               user->pw_name);
        }
        string_builder_clear(&path);
        return string_builder_take(&fix);
}

static void tell_place(Findings *findings, const char *const *texts) {
        _cleanup_free_ char *v2 = list_controllers(texts, "v2", NULL), *v1 = list_controllers(texts, "v1", NULL),
                            *place = xstrdup(texts[TEXT_PLACE]), *fix = NULL;
        bool in_scope = *texts[TEXT_KIND];

        if (in_scope) /* that of the daemon has another name */
                *strrchr(place, '/') = '\0';
        fix = fix_lingering(in_scope);
        findings_add(findings, "cgroups", VERDICT_OK, fix, "v2 %s %s%s%s%s%s", in_scope ? "in a scope of" : "at", place,
                     *v2 ? ": " : "", v2, *v1 ? ", v1: " : "", v1);
}

void examine_cgroups(Findings *findings, const char *state) {
        _cleanup_free_ char *answer = xcalloc(ANSWER_MAX, 1);
        const char *texts[N_TEXTS];
        int r = ask(state, answer, texts);

        if (r < 0) {
                findings_add(findings, "cgroups", VERDICT_WARNING, "hutch doctor", "they could not be tried: %s",
                             strerror(-r));
                return;
        }

        if (!*texts[TEXT_PLACE])
                findings_add(findings, "cgroups", VERDICT_WARNING, texts[TEXT_FIX],
                             "sandboxes cannot be paused, and their CPU is not limited: %s", texts[TEXT_WHY]);
        else if (!tell_missing(findings, texts))
                tell_place(findings, texts);
        if (!*text_of(texts, HOST_IO, TEXT_HOW))
                findings_add(findings, "io_weight", VERDICT_OK, text_of(texts, HOST_IO, TEXT_CONTROLLER_FIX),
                             "not enforced: %s", text_of(texts, HOST_IO, TEXT_CONTROLLER_WHY));
}
