/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Which overlays sandboxes can have on this host, found by trying: in a process of its own, which has a user namespace
 * as theirs are. hutchd looks at its start, `hutch doctor` when it is asked. */

/* The folders below / with programs of the host, where they are there: sandboxes have an overlay of each. */
#define HOST_PROGRAM_FOLDERS "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"

typedef struct OverlaySupport {
        int error;             /* 0, or why nothing could be tried: then the others are false */
        bool is_there;         /* the kernel has overlayfs */
        bool has_host_folders; /* those with the host's programs can be lower layers, all of them */
        bool has_changes;      /* the state folder's file system can hold an upper layer */
} OverlaySupport;

/* Tries it, with folders that it makes in @state_folder for a moment. Takes about a millisecond. */
OverlaySupport overlay_try(const char *state_folder) __attribute__((nonnull));
