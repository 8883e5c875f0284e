/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: reading KeeperConfig from its memfd and checking what the keeper's safety depends on. What does not:
 * what it is used for. */

#include "keeper/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "rpc/core/protobuf.h"

typedef Hutch__Keeper__V1__KeeperConfig ConfigMessage;

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define MESSAGE_CAP (4 * KEEPER_CONFIG_SIZE_MAX) /* what it may unfold to */
#define ID_MAX 200
#define START_TIMEOUT_DEFAULT (60 * NSEC_PER_SEC)
#define START_TIMEOUT_MAX_SECONDS 3600
#define UID_RANGE_MIN 65536u
#define SUBORDINATE_IDS (UID_RANGE_MIN - 1)

static int refuse(HutchError *err, const char *what) {
        return error_set(err, -EINVAL, "INTERNAL", "the keeper's configuration is refused: %s", what);
}

/* Whether @path is absolute and names its folder plainly: no empty, "." or ".." component, and not the root itself. */
static bool path_is_plain(const char *path) {
        size_t len = strlen(path);
        if (len < 2 || len > PATH_LEN_MAX || path[0] != '/')
                return false;

        for (const char *at = path; *at == '/';) {
                const char *name = at + 1;
                size_t name_len = strcspn(name, "/");
                if (name_len == 0 || name_len > 255 || (name_len == 1 && name[0] == '.') ||
                    (name_len == 2 && name[0] == '.' && name[1] == '.'))
                        return false;
                at = name + name_len;
        }
        return true;
}

static bool uid_range_is_valid(uint32_t base, uint32_t count) {
        if (base == 0)
                return false;
        if (count == 1)
                return base == geteuid();
        return count >= UID_RANGE_MIN && count <= UINT32_MAX - base;
}

/* Without root: one uid, or it and the subordinate ones. */
static bool subordinate_ids_are_valid(const ConfigMessage *message) {
        const Hutch__Keeper__V1__KeeperSubordinateIds *ids = message->subordinate_ids;
        if (ids->newuidmap[0] != '\0' && !path_is_plain(ids->newuidmap))
                return false;
        if (ids->newgidmap[0] != '\0' && !path_is_plain(ids->newgidmap))
                return false;
        if (message->uid_base == 0 || message->uid_base != geteuid())
                return false;
        if (ids->count == 0)
                return message->uid_count == 1;
        return message->uid_count == UID_RANGE_MIN && ids->count == SUBORDINATE_IDS && ids->first_uid > 0 &&
               ids->first_gid > 0 && ids->count <= UINT32_MAX - ids->first_uid &&
               ids->count <= UINT32_MAX - ids->first_gid;
}

/* The paths of the message's controllers, in the order of Controller; "": there is none. */
static void get_controllers(const ConfigMessage *message, const char *ret_paths[static N_CONTROLLERS]) {
        static const Hutch__Keeper__V1__KeeperControllers none = HUTCH__KEEPER__V1__KEEPER_CONTROLLERS__INIT;
        const Hutch__Keeper__V1__KeeperControllers *controllers = message->controllers ? message->controllers : &none;

        ret_paths[CONTROLLER_CPU] = controllers->cpu;
        ret_paths[CONTROLLER_MEMORY] = controllers->memory;
        ret_paths[CONTROLLER_PIDS] = controllers->pids;
        ret_paths[CONTROLLER_IO] = controllers->io;
}

static bool filter_is_possible(const ProtobufCBinaryData *bytes) {
        return bytes->len % sizeof(struct sock_filter) == 0 && bytes->len / sizeof(struct sock_filter) <= BPF_MAXINSNS;
}

static int check_sources(const ConfigMessage *message, HutchError *err) {
        size_t n = message->n_mounts + message->n_copies;
        if (n > SOURCES_MAX)
                return refuse(err, "there are too many mounts and copies");
        for (size_t i = 0; i < n; i++) {
                const Hutch__Keeper__V1__KeeperMount *mount =
                        i < message->n_mounts ? message->mounts[i] : message->copies[i - message->n_mounts]->mount;
                int flags = fcntl(SOURCES_FD + (int) i, F_GETFL);
                if (flags < 0 || !(flags & O_PATH))
                        return refuse(err, "a source has no descriptor");
                if (!mount || !path_is_plain(mount->source) || !path_is_plain(mount->target))
                        return refuse(err, "a path of a mount or copy is not absolute and plain");
        }
        return 0;
}

static int check(const ConfigMessage *message, HutchError *err) {
        const char *controllers[N_CONTROLLERS];
        if (message->sandbox_id[0] == '\0' || strlen(message->sandbox_id) > ID_MAX || strchr(message->sandbox_id, '/'))
                return refuse(err, "the sandbox's id is none");
        if (!path_is_plain(message->state_folder))
                return refuse(err, "the state folder's path is not absolute and plain");
        if (message->cgroup[0] != '\0' && !path_is_plain(message->cgroup))
                return refuse(err, "the cgroup's path is not absolute and plain");
        get_controllers(message, controllers);
        for (int i = 0; i < N_CONTROLLERS; i++)
                if (controllers[i][0] != '\0' && !path_is_plain(controllers[i]))
                        return refuse(err, "a controller's path is not absolute and plain");
        if (!path_is_plain(message->workspace))
                return refuse(err, "the workspace's path is not absolute and plain");
        if (message->subordinate_ids ? !subordinate_ids_are_valid(message)
                                     : !uid_range_is_valid(message->uid_base, message->uid_count))
                return refuse(err, "the range of uids is none");
        if (message->n_layers > 0)
                return error_set(err, -EOPNOTSUPP, "FEATURE_UNSUPPORTED", "layers are not supported");
        if (message->start_timeout &&
            (message->start_timeout->seconds < 0 || message->start_timeout->seconds > START_TIMEOUT_MAX_SECONDS ||
             message->start_timeout->nanos < 0 || message->start_timeout->nanos >= (int32_t) NSEC_PER_SEC))
                return refuse(err, "the time for starting is out of range");
        if (!filter_is_possible(&message->seccomp_filter) || !filter_is_possible(&message->keeper_filter) ||
            !filter_is_possible(&message->entered_filter))
                return refuse(err, "the filter is none");
        return check_sources(message, err);
}

/* Where hutchd has its sandboxes/ID there is images/ beside sandboxes/. */
static char *image_folder_of(const char *state_folder) {
        size_t len = strlen(state_folder);
        for (int i = 0; i < 2; i++)
                while (len > 0 && state_folder[--len] != '/')
                        ;
        char *folder;
        if (asprintf(&folder, "%.*s/images", (int) len, state_folder) < 0)
                abort();
        return folder;
}

void keeper_config_set_subordinate_ids(KeeperConfig *config, uint32_t first_uid, uint32_t first_gid) {
        config->uid_count = UID_RANGE_MIN;
        config->subordinate_ids.uids = (IdRanges){ .list = { { first_uid, SUBORDINATE_IDS } }, .n = 1 };
        config->subordinate_ids.gids = (IdRanges){ .list = { { first_gid, SUBORDINATE_IDS } }, .n = 1 };
}

static void set_subordinate_ids(KeeperConfig *config, const Hutch__Keeper__V1__KeeperSubordinateIds *ids) {
        if (ids->newuidmap[0] != '\0')
                config->subordinate_ids.newuidmap = xstrdup(ids->newuidmap);
        if (ids->newgidmap[0] != '\0')
                config->subordinate_ids.newgidmap = xstrdup(ids->newgidmap);
        if (ids->count > 0)
                keeper_config_set_subordinate_ids(config, ids->first_uid, ids->first_gid);
}

static Filter filter_of(const ProtobufCBinaryData *bytes) {
        if (bytes->len == 0)
                return (Filter){};
        Filter filter = { .len = (uint16_t) (bytes->len / sizeof(struct sock_filter)) };
        filter.instructions = new0(struct sock_filter, filter.len);
        memcpy(filter.instructions, bytes->data, bytes->len);
        return filter;
}

static KeptSource *add_source(KeeperConfig *config, const Hutch__Keeper__V1__KeeperMount *mount) {
        KeptSource *source = &config->sources[config->n_sources];
        *source = (KeptSource){
                .source = xstrdup(mount->source),
                .target = xstrdup(mount->target),
                .writable = mount->writable,
                .sockets = mount->sockets,
                .group = mount->group,
                .fd = SOURCES_FD + (int) config->n_sources++,
        };
        return source;
}

static void add_copy(KeeperConfig *config, const Hutch__Keeper__V1__KeeperCopy *copy) {
        KeptSource *source = add_source(config, copy->mount);
        source->is_copied = true;
        source->exclude = copy->n_exclude > 0 ? pattern_list_new() : NULL;
        for (size_t i = 0; i < copy->n_exclude; i++)
                if (!source->exclude ||
                    pattern_list_add(source->exclude, copy->exclude[i], strlen(copy->exclude[i])) < 0)
                        abort(); /* hutchd has bounded them */
}

static KeeperConfig *config_new(const ConfigMessage *message) {
        const Hutch__Keeper__V1__KeeperLimits *limits = message->limits;
        const Google__Protobuf__Duration *timeout = message->start_timeout;

        KeeperConfig *config = new0(KeeperConfig, 1);
        config->sandbox_id = xstrdup(message->sandbox_id);
        config->state_folder = xstrdup(message->state_folder);
        config->image_folder = image_folder_of(message->state_folder);
        config->cgroup = message->cgroup[0] != '\0' ? xstrdup(message->cgroup) : NULL;
        const char *controllers[N_CONTROLLERS];
        get_controllers(message, controllers);
        for (int i = 0; i < N_CONTROLLERS; i++)
                config->controllers[i] = controllers[i][0] != '\0' ? xstrdup(controllers[i]) : NULL;
        config->workspace = xstrdup(message->workspace);
        config->uid_base = message->uid_base;
        config->uid_count = message->uid_count;
        if (message->subordinate_ids)
                set_subordinate_ids(config, message->subordinate_ids);
        /* The last of root's range is nobody inside. */
        else if (message->uid_count > 1)
                config->keeper_id = config->uid_base + --config->uid_count;
        config->disk_project = message->disk_project;
        config->capabilities = message->capabilities;
        config->private_files = message->private_files;
        config->root_in_memory = message->root_in_memory;
        if (timeout)
                config->start_timeout = (uint64_t) timeout->seconds * NSEC_PER_SEC + (uint64_t) timeout->nanos;
        if (config->start_timeout == 0)
                config->start_timeout = START_TIMEOUT_DEFAULT;
        if (limits) {
                config->tmp_bytes = limits->tmp_bytes;
                config->max_open_files = limits->max_open_files;
                config->memory_bytes = limits->memory_bytes;
                config->cpu_millis = limits->cpu_millis;
                config->cpu_weight = limits->cpu_weight;
                config->max_processes = limits->max_processes;
                config->disk_bytes = limits->disk_bytes;
                config->disk_inodes = limits->disk_inodes;
                config->io_weight = limits->io_weight;
                config->read_only_root = limits->read_only_root;
                config->tmp_noexec = limits->tmp_noexec;
        }
        config->sources = new0(KeptSource, message->n_mounts + message->n_copies + 1);
        for (size_t i = 0; i < message->n_mounts; i++)
                add_source(config, message->mounts[i]);
        for (size_t i = 0; i < message->n_copies; i++)
                add_copy(config, message->copies[i]);
        config->filter = filter_of(&message->seccomp_filter);
        config->keeper_filter = filter_of(&message->keeper_filter);
        config->entered_filter = filter_of(&message->entered_filter);
        return config;
}

/* Reads all of the memfd, without moving its offset. */
static int read_sealed(int fd, uint8_t **ret_bytes, size_t *ret_len, HutchError *err) {
        int seals = fcntl(fd, F_GET_SEALS);
        if (seals < 0)
                return error_set(err, -errno, "INTERNAL", "the keeper's configuration is not in a memfd");
        if ((seals & SEALS) != SEALS)
                return refuse(err, "it is not sealed");

        struct stat st;
        if (fstat(fd, &st) < 0)
                return error_set(err, -errno, "INTERNAL", "cannot look at the keeper's configuration");
        if (st.st_size <= 0 || st.st_size > KEEPER_CONFIG_SIZE_MAX)
                return refuse(err, "it is empty or too large");

        _cleanup_free_ uint8_t *bytes = new0(uint8_t, (size_t) st.st_size);
        if (pread(fd, bytes, (size_t) st.st_size, 0) != st.st_size)
                return error_set(err, -EIO, "INTERNAL", "cannot read the keeper's configuration");
        *ret_bytes = TAKE_PTR(bytes);
        *ret_len = (size_t) st.st_size;
        return 0;
}

int keeper_config_read(int fd, KeeperConfig **ret_config, HutchError *err) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len = 0;
        int r = read_sealed(fd, &bytes, &len, err);
        if (r < 0)
                return r;

        _cleanup_(protobuf_freep) ProtobufCMessage *message = NULL;
        r = protobuf_unpack(&hutch__keeper__v1__keeper_config__descriptor, bytes, len, MESSAGE_CAP, &message);
        if (r < 0)
                return error_set(err, r, "INTERNAL", "the keeper's configuration is no message");
        r = check((const ConfigMessage *) message, err);
        if (r < 0)
                return r;
        *ret_config = config_new((const ConfigMessage *) message);
        return 0;
}

void keeper_config_close_sources(KeeperConfig *config) {
        for (size_t i = 0; i < config->n_sources; i++)
                config->sources[i].fd = fd_close(config->sources[i].fd);
}

KeeperConfig *keeper_config_free(KeeperConfig *config) {
        if (!config)
                return NULL;
        free(config->sandbox_id);
        free(config->state_folder);
        free(config->image_folder);
        free(config->cgroup);
        for (int i = 0; i < N_CONTROLLERS; i++)
                free(config->controllers[i]);
        free(config->workspace);
        for (size_t i = 0; i < config->n_sources; i++) {
                free(config->sources[i].source);
                free(config->sources[i].target);
                pattern_list_free(config->sources[i].exclude);
        }
        free(config->sources);
        id_map_clear(&config->subordinate_ids);
        free(config->filter.instructions);
        free(config->keeper_filter.instructions);
        free(config->entered_filter.instructions);
        free(config);
        return NULL;
}
