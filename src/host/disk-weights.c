/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading what the kernel says of a disk. What does not: setting weights, which keepers do. */

#include "host/disk-weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"

#define COSTS "/sys/fs/cgroup/io.cost.qos" /* the root's only */

/* The text of a small file; "" when it cannot be read. */
static const char *read_text(const char *path, char *ret_text, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, ret_text, size - 1);

        ret_text[n > 0 ? n : 0] = '\0';
        return ret_text;
}

bool disk_has_weights_as(const char *scheduler, const char *costs, const char *device) {
        size_t len = strlen(device);

        if (strstr(scheduler, "[bfq]"))
                return true;
        for (const char *line = costs; line && *line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, device, len) == 0 && str_has_prefix(line + len, " enable=1"))
                        return true;
        }
        return false;
}

/* What is set is set for whole disks. */
static int find_disk(int folder, char *ret_path, size_t size) {
        char path[128];
        struct stat st;

        if (folder < 0 || fstat(folder, &st) < 0)
                return -errno;

        (void) snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(st.st_dev), minor(st.st_dev));
        (void) snprintf(ret_path, size, "/sys/dev/block/%u:%u%s", major(st.st_dev), minor(st.st_dev),
                        access(path, F_OK) == 0 ? "/.." : "");
        return 0;
}

bool disk_has_weights(int folder) {
        char disk[64], path[128], device[32], scheduler[256], costs[4096];

        if (find_disk(folder, disk, sizeof(disk)) < 0)
                return false;

        (void) snprintf(path, sizeof(path), "%s/dev", disk);
        (void) read_text(path, device, sizeof(device));
        device[strcspn(device, "\n")] = '\0';
        (void) snprintf(path, sizeof(path), "%s/queue/scheduler", disk);
        return *device && disk_has_weights_as(read_text(path, scheduler, sizeof(scheduler)),
                                              read_text(COSTS, costs, sizeof(costs)), device);
}

char *disk_weights_fix(int folder) {
        char disk[64], path[128], *fix;

        if (find_disk(folder, disk, sizeof(disk)) < 0)
                return xstrdup("");

        (void) snprintf(path, sizeof(path), "%s/queue/scheduler", disk);
        if (access(path, F_OK) < 0)
                return xstrdup("");
        if (asprintf(&fix, "sudo sh -c 'modprobe bfq; echo bfq > %s'", path) < 0)
                abort();
        return fix;
}
