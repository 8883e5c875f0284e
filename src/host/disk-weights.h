/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Whether the kernel shares a disk by weights: controllers take them on any machine, but only two schedulers of disks
 * heed them, bfq, and the cost model of cgroup v2 (io.cost), when that is enabled for the disk. */

/* For the disk that has @folder. File systems of several disks, or of none, have none. */
bool disk_has_weights(int folder);

/* The command that has the kernel do so, which the caller frees; "": there is none. */
char *disk_weights_fix(int folder);

/* For tests: the disk as @scheduler, the text of the file of that name, and @costs, of io.cost.qos, tell it. */
bool disk_has_weights_as(const char *scheduler, const char *costs, const char *device) __attribute__((nonnull));
