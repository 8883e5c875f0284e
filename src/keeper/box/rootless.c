/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the ids of sandboxes without root. What does not: mapping ids as such (host/id-map.c), the one id
 * that PID 1 maps itself (init.c). */

#include "keeper/box/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"

#define LINK "ids"
#define ONE_ID "one"

void rootless_settle(KeeperConfig *config) {
        char path[PATH_LEN_MAX + sizeof("/fs/" LINK)], text[64];
        uint32_t first_uid, first_gid;
        if (!keeper_config_is_rootless(config))
                return;
        (void) snprintf(path, sizeof(path), "%s/fs/" LINK, config->state_folder);
        ssize_t len = readlink(path, text, sizeof(text) - 1);
        if (len < 0)
                return;
        text[len] = '\0';
        if (str_equal(text, ONE_ID)) {
                config->uid_count = 1;
                config->subordinate_ids.uids.n = config->subordinate_ids.gids.n = 0;
        } else if (sscanf(text, "%u:%u", &first_uid, &first_gid) == 2) /* NOLINT(cert-err34-c) */
                keeper_config_set_subordinate_ids(config, first_uid, first_gid);
}

int rootless_mark(const KeeperConfig *config, int folder) {
        char text[64] = ONE_ID;
        if (!keeper_config_is_rootless(config))
                return 0;
        if (config->uid_count > 1)
                (void) snprintf(text, sizeof(text), "%u:%u", config->subordinate_ids.uids.list[0].first,
                                config->subordinate_ids.gids.list[0].first);
        return symlinkat(text, folder, LINK) < 0 ? -errno : 0;
}

int rootless_map_ids(const KeeperConfig *config, pid_t pid, HutchError *err) {
        _cleanup_(error_clear) HutchError why = {};
        const IdMap *map = &config->subordinate_ids;
        int r = id_map_apply(map, pid, &why);
        if (r >= 0)
                return 0;
        return error_set(err, r, "RUNTIME_UNAVAILABLE",
                         "the sandbox has the subordinate ids from uid %u and gid %u on, which cannot be had: %s; "
                         "have /etc/subuid and /etc/subgid give them to this user, as 'hutch doctor' tells",
                         map->uids.list[0].first, map->gids.list[0].first, error_message(&why));
}

int rootless_give_folders(int folder) {
        static const char *const names[] = { "home", "workspace" };
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                struct stat st;
                if (fstatat(folder, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                /* They are root's when the sandbox is new. */
                if (st.st_uid == 0 && fchownat(folder, names[i], AGENT_UID, AGENT_UID, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
        }
        return 0;
}
