/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <time.h>

#include "base/memory.h"

/* What of the host is seen in a sandbox of the image "host": its programs, and of /etc only what they need to run;
 * nothing that names the host's users, that identifies the host or that may hold a secret. */

/* How something of the host comes into a sandbox. */
typedef enum HostFileKind {
        HOST_FILE_LINKED, /* it is a link to something in /usr: there is the same one */
        HOST_FILE_COPIED, /* a small file that hardly ever changes: there is a copy in the image */
        HOST_FILE_FOLDER, /* a folder, mounted on an empty one in the image */
} HostFileKind;

typedef struct HostFile {
        char *path; /* without the leading slash; the same inside */
        HostFileKind kind;
        char *link_target;       /* NULL unless linked */
        struct timespec changed; /* when it was, if it is to be copied */
} HostFile;

/* Those that this host has; the last one has no path. */
HostFile *host_files_find(void);

/* Takes NULL. Returns NULL. */
HostFile *host_files_free(HostFile *files);
DEFINE_CLEANUP(HostFile *, host_files_free);
