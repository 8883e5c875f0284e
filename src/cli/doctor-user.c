/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what an ordinary user needs beyond what root does: subordinate ids. What does not: what both need
 * (doctor-host.c), and cgroups (doctor-cgroups.c). */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "cli/doctor.h"
#include "host/subordinate-ids.h"

#define FIRST_SUBORDINATE 100000u

/* ---- The programs ---- */

/* Why the program would run without the right to map ids; NULL: it has it. */
static const char *lacks_right(const char *program) {
        struct statvfs file_system;
        struct stat status;

        if (stat(program, &status) < 0)
                return strerror(errno);
        if (statvfs(program, &file_system) == 0 && (file_system.f_flag & ST_NOSUID))
                return "is on a file system that is mounted nosuid";
        if (((status.st_mode & S_ISUID) && status.st_uid == 0) || getxattr(program, "security.capability", NULL, 0) > 0)
                return NULL;
        return "is not root's with its set-user-id bit, and has no capabilities";
}

/* The command of this host's kind that installs newuidmap and newgidmap; NULL: it is not known. */
static const char *mend_missing_programs(void) {
        static const struct {
                const char *program, *command;
        } installers[] = {
                { "/usr/bin/apt-get", "apt-get install -y uidmap" },
                { "/usr/bin/dnf", "dnf install -y shadow-utils" },
                { "/usr/bin/zypper", "zypper install -y shadow" },
                { "/usr/bin/pacman", "pacman -S --noconfirm shadow" },
                { "/sbin/apk", "apk add shadow-uidmap" },
        };

        for (size_t i = 0; i < sizeof(installers) / sizeof(installers[0]); i++)
                if (access(installers[i].program, X_OK) == 0)
                        return installers[i].command;
        return NULL;
}

static void examine_programs(Findings *findings, const IdMap *map) {
        const char *const programs[] = { map->newuidmap, map->newgidmap };

        if (!map->newuidmap || !map->newgidmap) {
                findings_add(findings, "newuidmap", VERDICT_WARNING, mend_missing_programs(),
                             "newuidmap and newgidmap are not here: sandboxes have one user, agent");
                return;
        }
        for (size_t i = 0; i < 2; i++) {
                const char *lacking = lacks_right(programs[i]);
                _cleanup_(string_builder_clear) StringBuilder mend = {};

                if (!lacking)
                        continue;
                string_builder_appendf(&mend, "chown root %s && chmod u+s %s", programs[i], programs[i]);
                findings_add(findings, "newuidmap", VERDICT_WARNING, mend.text, "%s %s", programs[i], lacking);
                return;
        }
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
                findings_add(findings, "newuidmap", VERDICT_WARNING,
                             access("/run/systemd/system", F_OK) == 0
                                     ? "systemd-run --user --unit=hutchd -p KillMode=process hutchd"
                                     : NULL,
                             "it has no effect, because no_new_privs is set for what runs here");
        else
                findings_add(findings, "newuidmap", VERDICT_OK, NULL, "%s, %s", map->newuidmap, map->newgidmap);
}

/* ---- The ids ---- */

/* The first id behind all that a file gives to anybody, or @least. */
static uint64_t find_free(const char *path, uint64_t least) {
        FILE *file = fopen(path, "re");
        char line[256];

        while (file && fgets(line, sizeof(line), file)) {
                const char *numbers = strchr(line, ':');
                unsigned long first = 0, count = 0;

                if (numbers && sscanf(numbers, ":%lu:%lu", &first, &count) == 2 && /* NOLINT(cert-err34-c) */
                    first < UINT32_MAX && count < UINT32_MAX && first + count > least)
                        least = first + count;
        }
        if (file)
                (void) fclose(file);
        return least;
}

/* The command that gives the user a range. */
static char *mend_ranges(const char *name) {
        uint64_t first = find_free("/etc/subgid", find_free("/etc/subuid", FIRST_SUBORDINATE));
        uint64_t last = first + SUBORDINATE_IDS_SIZE;
        StringBuilder builder = {};

        string_builder_appendf(&builder, "usermod --add-subuids %llu-%llu --add-subgids %llu-%llu %s",
                               (unsigned long long) first, (unsigned long long) last, (unsigned long long) first,
                               (unsigned long long) last, name);
        return string_builder_take(&builder);
}

void examine_user(Findings *findings) {
        _cleanup_(id_map_clear) IdMap map = {};
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(string_builder_clear) StringBuilder named = {};
        const struct passwd *user = getpwuid(geteuid());
        _cleanup_free_ char *mend = mend_ranges(user ? user->pw_name : "USER");
        uint32_t n_uids, n_gids;

        string_builder_appendf(&named, "useradd --no-create-home --uid %u user%u", geteuid(), geteuid());
        (void) subordinate_ids_find(&map, NULL);
        examine_programs(findings, &map);
        n_uids = subordinate_ids_count_slots(&map.uids);
        n_gids = subordinate_ids_count_slots(&map.gids);
        if (!user)
                findings_add(findings, "subordinate ids", VERDICT_WARNING, named.text,
                             "uid %u has no name, and so newuidmap does nothing for it", geteuid());
        else if (n_uids == 0 || n_gids == 0)
                findings_add(findings, "subordinate ids", VERDICT_WARNING, mend,
                             "%s has no range of %u ids for %s: sandboxes have one user, agent",
                             n_uids == 0 ? "/etc/subuid" : "/etc/subgid", SUBORDINATE_IDS_SIZE, user->pw_name);
        else if (id_map_try(&map, &err) < 0)
                findings_add(findings, "subordinate ids", VERDICT_WARNING, NULL, "they cannot be mapped: %s",
                             error_message(&err));
        else if (n_uids == 1 || n_gids == 1)
                findings_add(findings, "subordinate ids", VERDICT_OK, NULL, "one range, which all sandboxes share");
        else
                findings_add(findings, "subordinate ids", VERDICT_OK, NULL, "%u ranges, which sandboxes take in turn",
                             n_uids < n_gids ? n_uids : n_gids);
}
