/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: looking users up in /etc/passwd and /etc/group, without libc's own way, which loads and asks what
 * the host is set up for. What does not: becoming one (spawn.c). */

#include "keeper/box/user.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strings.h"

#define FIELDS_MAX 7

/* Reads the beginning of a file, as text. One that is not there is empty. */
static int read_text(const char *path, char **ret_text) {
        struct open_how how = {
                .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                .resolve = RESOLVE_NO_MAGICLINKS,
        };
        _cleanup_close_ int fd = (int) syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
        if (fd < 0 && errno != ENOENT)
                return -errno;
        struct stat st = {};
        if (fd >= 0 && fstat(fd, &st) < 0)
                return -errno;
        if (fd >= 0 && !S_ISREG(st.st_mode))
                return -EBADMSG;

        size_t size = st.st_size < USER_FILE_MAX ? (size_t) st.st_size : USER_FILE_MAX, len = 0;
        _cleanup_free_ char *text = try_new0(char, size + 1);
        if (!text)
                return -ENOMEM;
        while (len < size) {
                ssize_t n = read(fd, text + len, size - len);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                len += (size_t) n;
        }
        *ret_text = TAKE_PTR(text);
        return 0;
}

/* Cuts the next line of *@text into its fields; those that are missing are "". */
static bool next_line(char **text, const char *fields[static FIELDS_MAX]) {
        char *line = strsep(text, "\n");
        if (!line)
                return false;
        for (size_t i = 0; i < FIELDS_MAX; i++) {
                const char *field = strsep(&line, ":");
                fields[i] = field ? field : "";
        }
        return true;
}

/* -1 is no id: to the kernel it says "leave it". */
static bool parse_id(const char *text, uint32_t *ret_id) {
        uint64_t id = 0;
        if (!*text || strlen(text) > 10)
                return false;
        for (; *text; text++) {
                if (!ascii_is_digit(*text))
                        return false;
                id = id * 10 + (uint64_t) (*text - '0');
        }
        if (id >= UINT32_MAX)
                return false;
        *ret_id = (uint32_t) id;
        return true;
}

/* Finds @wanted in the text of a passwd or group file, by name, or else by number: fields 0 and 2 of both. */
static bool find_entry(char *text, const char *wanted, const char *fields[static FIELDS_MAX]) {
        uint32_t wanted_id = 0, id;
        bool is_number = parse_id(wanted, &wanted_id);
        while (next_line(&text, fields))
                if (parse_id(fields[2], &id) && (is_number ? id == wanted_id : str_equal(fields[0], wanted)))
                        return true;
        return false;
}

static int find_group(const char *wanted, gid_t *ret_gid) {
        if (parse_id(wanted, ret_gid))
                return 0;
        _cleanup_free_ char *text = NULL;
        int r = read_text("/etc/group", &text);
        if (r < 0)
                return r;
        const char *fields[FIELDS_MAX];
        return find_entry(text, wanted, fields) && parse_id(fields[2], ret_gid) ? 0 : -ENOENT;
}

static bool list_contains(const char *list, const char *name) {
        size_t len = strlen(name);
        for (;;) {
                size_t item_len = strcspn(list, ",");
                if (item_len == len && memcmp(list, name, len) == 0)
                        return true;
                if (list[item_len] == '\0')
                        return false;
                list += item_len + 1;
        }
}

static int find_groups_of(User *user) {
        _cleanup_free_ char *text = NULL;
        int r = read_text("/etc/group", &text);
        if (r < 0)
                return r;
        const char *fields[FIELDS_MAX];
        gid_t gid;
        for (char *at = text; user->n_groups < USER_GROUPS_MAX && next_line(&at, fields);)
                if (parse_id(fields[2], &gid) && gid != user->gid && list_contains(fields[3], user->name))
                        user->groups[user->n_groups++] = gid;
        return 0;
}

static char *number_text(uint32_t number) {
        char text[16];
        (void) snprintf(text, sizeof(text), "%u", number);
        return xstrdup(text);
}

/* Fills @user from /etc/passwd. */
static int find_user(const char *wanted, User *user) {
        _cleanup_free_ char *text = NULL;
        int r = read_text("/etc/passwd", &text);
        if (r < 0)
                return r;
        const char *fields[FIELDS_MAX];
        if (find_entry(text, wanted, fields) && parse_id(fields[2], &user->uid) && parse_id(fields[3], &user->gid)) {
                user->name = xstrdup(fields[0]);
                user->home = xstrdup(*fields[5] ? fields[5] : "/");
                return 1;
        }
        if (!parse_id(wanted, &user->uid))
                return -ENOENT;
        user->gid = user->uid;
        user->name = number_text(user->uid);
        user->home = xstrdup("/");
        return 0;
}

int user_find(const char *text, User **ret_user) {
        _cleanup_(user_freep) User *user = new0(User, 1);
        const char *colon = strchr(text, ':');
        _cleanup_free_ char *wanted = colon ? xstrndup(text, (size_t) (colon - text)) : xstrdup(text);
        if (!*wanted || (colon && !colon[1]))
                return -ENOENT;

        int r = find_user(wanted, user);
        if (r < 0)
                return r;
        if (colon)
                r = find_group(colon + 1, &user->gid);
        else if (r > 0)
                r = find_groups_of(user);
        if (r < 0)
                return r;
        *ret_user = TAKE_PTR(user);
        return 0;
}

User *user_free(User *user) {
        if (!user)
                return NULL;
        free(user->name);
        free(user->home);
        free(user);
        return NULL;
}
