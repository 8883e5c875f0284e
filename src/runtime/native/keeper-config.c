/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a sandbox's spec in the words of the keeper protocol. What does not: handing it over
 * (keeper-process.c). */

#include "runtime/native/keeper-config.h"

#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "host/subordinate-ids.h"
#include "rpc/core/protobuf.h"
#include "runtime/native/keeper-messages.h"
#include "runtime/native/uid-range.h"

/* The folder of the sandbox for a controller, which the caller frees; NULL: there is no such controller. */
static char *controller_folder(const NativeRuntime *runtime, int controller, const char *id) {
        char *path;

        if (!runtime->cgroups.controllers[controller].parent)
                return NULL;
        if (asprintf(&path, "%s/%s", runtime->cgroups.controllers[controller].parent, id) < 0)
                abort();
        return path;
}

/* The ids of a sandbox of a daemon that is not root. One that has files of the host has the one id that these belong
 * to: with more of them the agent would not be their owner. */
static void set_user_ids(const NativeRuntime *runtime, uint32_t slot, bool has_mounts,
                         Hutch__Keeper__V1__KeeperConfig *config, Hutch__Keeper__V1__KeeperSubordinateIds *ids) {
        config->uid_base = geteuid();
        config->uid_count = 1;
        config->subordinate_ids = ids;
        if (runtime->subordinate_ids.newuidmap)
                ids->newuidmap = runtime->subordinate_ids.newuidmap;
        if (runtime->subordinate_ids.newgidmap)
                ids->newgidmap = runtime->subordinate_ids.newgidmap;
        if (runtime->has_subordinate_ids && !has_mounts) {
                IdMap map = subordinate_ids_of_slot(&runtime->subordinate_ids, slot);

                config->uid_count = SUBORDINATE_IDS_SIZE + 1;
                ids->first_uid = map.uids.list[0].first;
                ids->first_gid = map.gids.list[0].first;
                ids->count = SUBORDINATE_IDS_SIZE;
        }
}

typedef Hutch__Keeper__V1__KeeperMount MountMessage;
typedef Hutch__Keeper__V1__KeeperCopy CopyMessage;

/* What of the host the keeper is to mount and copy; texts are those of the sources. */
typedef struct HostFiles {
        MountMessage *messages;
        MountMessage **mounts;
        size_t n_mounts;
        CopyMessage *copy_messages;
        CopyMessage **copies;
        size_t n_copies;
} HostFiles;

static void host_files_clear(HostFiles *files) {
        free(files->messages);
        free(files->mounts);
        free(files->copy_messages);
        free(files->copies);
}

static void add_copy(HostFiles *files, MountMessage *mount, const SandboxCopy *copy) {
        CopyMessage *message = &files->copy_messages[files->n_copies];

        hutch__keeper__v1__keeper_copy__init(message);
        message->mount = mount;
        message->exclude = copy->exclude;
        while (copy->exclude && copy->exclude[message->n_exclude])
                message->n_exclude++;
        files->copies[files->n_copies++] = message;
}

static HostFiles list_host_files(const NativeSources *sources) {
        HostFiles files = {
                .messages = new0(MountMessage, sources->n + 1),
                .mounts = new0(MountMessage *, sources->n + 1),
                .copy_messages = new0(CopyMessage, sources->n + 1),
                .copies = new0(CopyMessage *, sources->n + 1),
        };

        for (size_t i = 0; i < sources->n; i++) {
                const NativeSource *source = &sources->list[i];
                MountMessage *mount = &files.messages[i];

                hutch__keeper__v1__keeper_mount__init(mount);
                mount->source = source->source.path;
                mount->group = source->source.group;
                mount->target = source->target;
                mount->writable = source->writable;
                mount->sockets = source->sockets;
                if (source->copy)
                        add_copy(&files, mount, source->copy);
                else
                        files.mounts[files.n_mounts++] = mount;
        }
        return files;
}

void keeper_config_encode(const NativeRuntime *runtime, const char *id, const RuntimeSpec *spec,
                          const NativeSources *sources, uint8_t **ret_bytes, size_t *ret_len) {
        const SandboxLimits *limits = &spec->spec->limits;
        Hutch__Keeper__V1__KeeperConfig config = HUTCH__KEEPER__V1__KEEPER_CONFIG__INIT;
        Hutch__Keeper__V1__KeeperLimits told = HUTCH__KEEPER__V1__KEEPER_LIMITS__INIT;
        Google__Protobuf__Duration timeout = keeper_duration_of(runtime->start_timeout);
        Hutch__Keeper__V1__KeeperControllers controllers = HUTCH__KEEPER__V1__KEEPER_CONTROLLERS__INIT;
        Hutch__Keeper__V1__KeeperSubordinateIds ids = HUTCH__KEEPER__V1__KEEPER_SUBORDINATE_IDS__INIT;
        _cleanup_(host_files_clear) HostFiles files = list_host_files(sources);
        _cleanup_free_ char *folder = NULL, *cgroup = NULL, *cpu = controller_folder(runtime, HOST_CPU, id),
                            *memory = controller_folder(runtime, HOST_MEMORY, id),
                            *pids = controller_folder(runtime, HOST_PIDS, id),
                            *io = controller_folder(runtime, HOST_IO, id);

        if (asprintf(&folder, "%s/sandboxes/%s", runtime->state_folder, id) < 0 ||
            (runtime->cgroups.parent && asprintf(&cgroup, "%s/%s", runtime->cgroups.parent, id) < 0))
                abort();

        told.memory_bytes = limits->memory_bytes;
        told.cpu_millis = limits->cpu_millis;
        told.max_processes = limits->max_processes;
        told.max_open_files = limits->max_open_files;
        told.disk_bytes = limits->disk_bytes;
        told.disk_inodes = limits->disk_inodes;
        told.tmp_bytes = limits->tmp_bytes;
        told.cpu_weight = limits->cpu_weight;
        told.io_weight = limits->io_weight;
        told.read_only_root = limits->read_only_root;
        told.tmp_noexec = limits->tmp_noexec;
        told.no_network = limits->no_network;

        config.sandbox_id = (char *) id;
        config.state_folder = folder;
        if (cgroup)
                config.cgroup = cgroup;
        if (cpu)
                controllers.cpu = cpu;
        if (memory)
                controllers.memory = memory;
        if (pids)
                controllers.pids = pids;
        if (io)
                controllers.io = io;
        config.controllers = &controllers;
        config.uid_base = UID_RANGE_FIRST + spec->uid_slot * UID_RANGE_SIZE;
        config.uid_count = UID_RANGE_SIZE;
        if (!runtime->uid_ranges)
                set_user_ids(runtime, spec->uid_slot, spec->spec->n_mounts > 0 || spec->spec->tools, &config, &ids);
        config.disk_project = runtime->disk_projects > 0 ? runtime->disk_projects + spec->uid_slot : 0;
        config.n_mounts = files.n_mounts;
        config.mounts = files.mounts;
        config.n_copies = files.n_copies;
        config.copies = files.copies;
        config.limits = &told;
        config.capabilities = spec->spec->capabilities;
        config.private_files = limits->private_files;
        config.root_in_memory = runtime->root_in_memory;
        config.workspace = spec->spec->workspace;
        config.start_timeout = &timeout;
        config.seccomp_filter.data = runtime->seccomp_filter;
        config.seccomp_filter.len = runtime->seccomp_filter_size;
        config.keeper_filter.data = runtime->keeper_filter;
        config.keeper_filter.len = runtime->keeper_filter_size;
        config.entered_filter.data = runtime->entered_filter;
        config.entered_filter.len = runtime->entered_filter_size;

        if (protobuf_pack(&config.base, ret_bytes, ret_len) < 0)
                abort();
}
