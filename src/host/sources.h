/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/* Sources: which files and folders of the host callers may have in their sandboxes, as mounts or as copies.
 *
 *         home = source_home(owner);
 *         r = source_open(&rules, "~/project", home, SOURCE_WRITE, &source, &err);
 *         … source.fd
 *         source_close(&source);
 *
 * A source is absolute, or "~/" and a path below the caller's home. What it is, is found out by opening it, from one of
 * the operator's folders on and without following any link: whoever swaps things on the way changes nothing but what is
 * found. The descriptor is O_PATH; it is what is mounted or copied, never the name. */

typedef struct SourceRules {
        char **read;  /* folders from which callers may mount and copy: absolute paths; ends with NULL; NULL: none */
        char **write; /* the same for writable mounts */
        char **own;   /* the daemon's: nothing in them, and nothing that has them in it, is for a sandbox */
        char **tools; /* the operator's (tools.h): "NAME=PATH" for each part; ends with NULL; NULL: none */
        char *file;   /* in which the operator names folders, for those who are told that one is missing; or NULL */
} SourceRules;

void source_rules_clear(SourceRules *rules) __attribute__((nonnull));

/* The rules that hold for @owner, who may be NULL. Where the operator has not named any folder to read (NULL), the
 * daemon's own user and root may have everything: what the daemon can do for them, they can do without it. For others
 * it stays nothing. Who does not call on the Unix socket is not told of the operator's file. What is returned lasts as
 * long as @rules, and is not to be cleared. */
SourceRules source_rules_for(const SourceRules *rules, const char *owner) __attribute__((nonnull(1)));

typedef enum SourceUse {
        SOURCE_READ,
        SOURCE_WRITE,
} SourceUse;

typedef struct Source {
        int fd;
        char *path;  /* absolute and plain */
        gid_t group; /* of what a sandbox makes there: the owner's own */
} Source;

/* The home of the owner of a sandbox ("uid:1000"), which the caller frees; NULL: it has none. */
char *source_home(const char *owner) __attribute__((nonnull));

/* Checks and opens @source. @home may be NULL. SOURCE_NOT_ALLOWED: it is in no folder of the operator's, whether it
 * exists or not; or it is the daemon's; or it belongs to root and would be written. SOURCE_INVALID: all else that is
 * wrong with it; also when a file system in which the kernel shows itself is mounted somewhere below it. */
int source_open(const SourceRules *rules, const char *source, const char *home, SourceUse use, Source *ret_source,
                HutchError *err) __attribute__((nonnull(1, 2, 5)));
void source_close(Source *source) __attribute__((nonnull));
