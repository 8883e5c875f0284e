/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/memory.h"

/* Users, as the files of the root that the process is in tell them. The files are read as hostile: regular, and no more
 * than the first USER_FILE_MAX bytes. */

#define USER_FILE_MAX (1024 * 1024)
#define USER_GROUPS_MAX 256

typedef struct User {
        uid_t uid;
        gid_t gid;
        char *name; /* the number when it has none */
        char *home; /* "/" when it has none */
        size_t n_groups;
        gid_t groups[USER_GROUPS_MAX]; /* beside its own */
} User;

/* Finds the user that @text names: "name", "uid", "name:group", "uid:gid" and so on. A number needs no entry in
 * /etc/passwd or /etc/group; its group is then the same number. With a group given, that is the only one. -ENOENT:
 * there is no such user or group. */
int user_find(const char *text, User **ret_user) __attribute__((nonnull));

/* Frees @user, which may be NULL. Returns NULL. */
User *user_free(User *user);
DEFINE_CLEANUP(User *, user_free);
