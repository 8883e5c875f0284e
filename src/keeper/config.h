/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/memory.h"
#include "host/id-map.h"
#include "policy/path-patterns.h"

/* What a keeper is told at its start: hutch.keeper.v1.KeeperConfig in a sealed memfd.
 *
 * hutchd has checked all of it. What the keeper's safety depends on is checked again: that nobody can change it any
 * more, its size, that paths are absolute and plain, that the range of uids is one, that filters may be some, and that
 * there are descriptors of what is mounted or copied. What this keeper cannot do yet (layers) is refused. */

#define KEEPER_CONFIG_SIZE_MAX (1024 * 1024)
#define SOURCES_FD 5 /* the first of the descriptors of what is mounted or copied */
#define SOURCES_MAX 200
#define PATH_LEN_MAX 4000 /* of those in it; leaves room for the names that are put behind it */

/* What enforces limits, in the order in which processes come under it. CPU is last: whoever has used up its share may
 * have to wait while it holds the kernel's lock for moving. */
typedef enum Controller {
        CONTROLLER_MEMORY,
        CONTROLLER_PIDS,
        CONTROLLER_IO,
        CONTROLLER_CPU,
        N_CONTROLLERS,
} Controller;

/* A program of seccomp. */
typedef struct Filter {
        struct sock_filter *instructions; /* NULL: none */
        uint16_t len;
} Filter;

/* A folder or file of the host, to be mounted, or to be copied when the sandbox is new. */
typedef struct KeptSource {
        char *source; /* the path of what the descriptor is */
        char *target;
        bool writable;
        bool sockets; /* of the host in it are not looked for */
        gid_t group;  /* on the host, of what is made there */
        int fd;       /* with O_PATH */
        bool is_copied;
        PatternList *exclude; /* what of it is not copied; NULL: nothing */
} KeptSource;

typedef struct KeeperConfig {
        char *sandbox_id;
        char *state_folder;
        char *image_folder;               /* of all sandboxes of this daemon; on the same file system */
        char *cgroup;                     /* NULL: there are no cgroups here */
        char *controllers[N_CONTROLLERS]; /* @cgroup, or a folder of a v1 hierarchy; NULL: there is none */
        char *workspace;                  /* inside */
        uint32_t uid_base;
        uint32_t uid_count;      /* 1: without root; the one uid is AGENT_UID inside */
        uint32_t keeper_id;      /* uid and gid that are the keeper's own, of the range's; 0: it stays who it is */
        IdMap subordinate_ids;   /* without root: behind uid_base, which is 0 inside then; no ranges: there are none */
        uint64_t start_timeout;  /* nanoseconds, never 0 */
        uint64_t tmp_bytes;      /* 0: /tmp is a folder of the root */
        uint32_t max_open_files; /* 0: as the keeper has it */
        uint64_t memory_bytes;   /* 0, here and below: no limit */
        uint32_t cpu_millis;
        uint32_t cpu_weight;
        uint32_t max_processes;
        uint64_t disk_bytes;
        uint64_t disk_inodes;
        uint32_t io_weight;
        uint32_t disk_project; /* that its files belong to; 0: there are no quotas */
        bool read_only_root;
        bool tmp_noexec;
        bool private_files;    /* files of the host must have inodes of the sandbox's own */
        bool root_in_memory;   /* what is changed in the root is not kept */
        uint64_t capabilities; /* of root's processes inside: a bit for each number */
        KeptSource *sources;   /* first those that are mounted, then those that are copied */
        size_t n_sources;
        Filter filter;         /* of all processes inside */
        Filter keeper_filter;  /* of the keeper */
        Filter entered_filter; /* the same as the first for who has that of the keeper */
} KeeperConfig;

#define AGENT_UID 1000u /* inside: who execs run as unless they say otherwise */

/* Whether the keeper is not root, so that its user is also one inside. */
static inline bool keeper_config_is_rootless(const KeeperConfig *config) {
        return config->uid_count == 1 || config->subordinate_ids.uids.n > 0;
}

/* Whether the keeper measures the sandbox's memory, because no controller does; and limits it by that. */
static inline bool keeper_config_measures_memory(const KeeperConfig *config) {
        return !config->controllers[CONTROLLER_MEMORY];
}

static inline bool keeper_config_limits_memory(const KeeperConfig *config) {
        return keeper_config_measures_memory(config) && config->memory_bytes > 0;
}

/* Gives the sandbox of a keeper without root the subordinate ids from these on. */
void keeper_config_set_subordinate_ids(KeeperConfig *config, uint32_t first_uid, uint32_t first_gid)
        __attribute__((nonnull));

/* Reads the configuration from @fd, which stays open. The caller frees it. */
int keeper_config_read(int fd, KeeperConfig **ret_config, HutchError *err) __attribute__((nonnull(2)));

/* Closes the descriptors of what is mounted or copied: once the sandbox stands they are of no use. */
void keeper_config_close_sources(KeeperConfig *config) __attribute__((nonnull));

/* Frees @config, which may be NULL. Returns NULL. */
KeeperConfig *keeper_config_free(KeeperConfig *config);
DEFINE_CLEANUP(KeeperConfig *, keeper_config_free);
