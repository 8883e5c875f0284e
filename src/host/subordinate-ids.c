/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading /etc/subuid and /etc/subgid. What does not: mapping what they give (id-map.c). */

#include "host/subordinate-ids.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define FILE_SIZE_MAX ((size_t) 1 << 20) /* what is behind is not read */

/* Reads a number that ends with @end, and moves *@text behind that. */
static bool parse_number(const char **text, char end, uint32_t *ret_number) {
        const char *at = *text;
        uint64_t number = 0;

        for (; ascii_is_digit(*at) && number <= UINT32_MAX; at++)
                number = number * 10 + (uint64_t) (*at - '0');
        if (at == *text || *at != end || number > UINT32_MAX)
                return false;

        *ret_number = (uint32_t) number;
        *text = at + 1;
        return true;
}

/* Moves *@text behind the owner, if it is that one. */
static bool skip_owner(const char **text, const char *name, uint32_t uid) {
        size_t len = strcspn(*text, ":\n");
        char number[16];
        int number_len = snprintf(number, sizeof(number), "%u", uid);

        if ((*text)[len] != ':')
                return false;
        if (!(name && strlen(name) == len && strncmp(*text, name, len) == 0) &&
            !((size_t) number_len == len && strncmp(*text, number, len) == 0))
                return false;

        *text += len + 1;
        return true;
}

static bool overlap(IdRange a, IdRange b) {
        return a.first < b.first ? b.first - a.first < a.count : a.first - b.first < b.count;
}

static bool is_usable(const IdRanges *ranges, IdRange range, uint32_t own) {
        if (range.first == 0 || range.count == 0 || range.count > UINT32_MAX - range.first ||
            overlap(range, (IdRange){ own, 1 }))
                return false;

        for (size_t i = 0; i < ranges->n; i++)
                if (overlap(range, ranges->list[i]))
                        return false;
        return true;
}

void subordinate_ids_parse(const char *text, const char *name, uint32_t uid, uint32_t own, IdRanges *ret_ranges) {
        IdRanges ranges = {};

        while (*text && ranges.n < ID_RANGES_MAX) {
                size_t len = strcspn(text, "\n");
                _cleanup_free_ char *line = xstrndup(text, len);
                const char *at = line;
                IdRange range;

                text += len + (text[len] == '\n');
                if (skip_owner(&at, name, uid) && parse_number(&at, ':', &range.first) &&
                    parse_number(&at, '\0', &range.count) && is_usable(&ranges, range, own))
                        ranges.list[ranges.n++] = range;
        }
        *ret_ranges = ranges;
}

/* The text of a file; "" when there is none. The caller frees it. */
static char *read_text(const char *path) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        char *text = new0(char, FILE_SIZE_MAX + 1);
        size_t len = 0;
        ssize_t n = fd < 0 ? 0 : 1;

        while (n > 0 && len < FILE_SIZE_MAX) {
                n = read(fd, text + len, FILE_SIZE_MAX - len);
                len += n > 0 ? (size_t) n : 0;
        }
        return text;
}

static void read_ranges(const char *path, const char *name, uint32_t own, IdRanges *ret_ranges) {
        _cleanup_free_ char *text = read_text(path);

        subordinate_ids_parse(text, name, geteuid(), own, ret_ranges);
}

static char *find_program(const char *name) {
        static const char *const folders[] = { "/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin" };
        char *path;

        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
                if (asprintf(&path, "%s/%s", folders[i], name) < 0)
                        abort();
                if (access(path, X_OK) == 0)
                        return path;
                free(path);
        }
        return NULL;
}

int subordinate_ids_find(IdMap *ret_map, HutchError *err) {
        const struct passwd *user = getpwuid(geteuid());
        const char *name = user ? user->pw_name : NULL;
        IdMap map = { .newuidmap = find_program("newuidmap"), .newgidmap = find_program("newgidmap") };
        const char *lacking = NULL;

        read_ranges("/etc/subuid", name, geteuid(), &map.uids);
        read_ranges("/etc/subgid", name, getegid(), &map.gids);
        *ret_map = map;

        if (!map.newuidmap || !map.newgidmap)
                return error_set(err, -ENOENT, "RUNTIME_UNAVAILABLE", "newuidmap and newgidmap are not installed");
        if (subordinate_ids_count_slots(&map.uids) == 0)
                lacking = "/etc/subuid";
        else if (subordinate_ids_count_slots(&map.gids) == 0)
                lacking = "/etc/subgid";
        if (lacking)
                return error_set(err, -ENOENT, "RUNTIME_UNAVAILABLE", "%s has no range of %u ids for %s (uid %u)",
                                 lacking, SUBORDINATE_IDS_SIZE, name ? name : "this user", geteuid());
        return 0;
}

uint32_t subordinate_ids_count_slots(const IdRanges *ranges) {
        uint32_t n = 0;

        for (size_t i = 0; i < ranges->n; i++)
                n += ranges->list[i].count / SUBORDINATE_IDS_SIZE;
        return n;
}

static IdRanges cut_slot(const IdRanges *ranges, uint32_t slot) {
        uint32_t n = subordinate_ids_count_slots(ranges);
        size_t i = 0;

        if (n == 0)
                return (IdRanges){};

        slot %= n;
        for (; slot >= ranges->list[i].count / SUBORDINATE_IDS_SIZE; i++)
                slot -= ranges->list[i].count / SUBORDINATE_IDS_SIZE;
        return (IdRanges){ .list = { { ranges->list[i].first + slot * SUBORDINATE_IDS_SIZE, SUBORDINATE_IDS_SIZE } },
                           .n = 1 };
}

IdMap subordinate_ids_of_slot(const IdMap *map, uint32_t slot) {
        return (IdMap){ .newuidmap = map->newuidmap,
                        .newgidmap = map->newgidmap,
                        .uids = cut_slot(&map->uids, slot),
                        .gids = cut_slot(&map->gids, slot) };
}
