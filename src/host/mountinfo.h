/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* A mount, as a line of /proc/PID/mountinfo describes it. All texts are in the line. */
typedef struct MountInfo {
        const char *root;    /* what of its file system is mounted */
        const char *path;    /* where, from the root of the process that reads it */
        const char *type;    /* of the file system: "ext4" */
        const char *options; /* of the file system, with commas; "": none */
} MountInfo;

/* Reads @line in place, with or without the newline at its end. Returns false when it is no such line. */
bool mountinfo_parse(char *line, MountInfo *ret_mount) __attribute__((nonnull));
