/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "model/environment.h"
#include "model/ids.h"
#include "model/labels.h"
#include "model/reason.h"
#include "model/sandbox-state.h"

/* A sandbox as the daemon knows it: what was asked for (SandboxSpec, which does not change once it is made), and how it
 * is (SandboxRecord, a plain value: what the store keeps of it, and what is put back when a commit fails).
 *
 * Times are nanoseconds since 1970; 0: never. */

/* What happens at the end of a sandbox's lifetime. */
typedef enum LifetimeAction {
        LIFETIME_STOP,
        LIFETIME_DELETE,
} LifetimeAction;

/* What happens when it was idle for too long. */
typedef enum IdleAction {
        IDLE_STOP,
        IDLE_DELETE,
} IdleAction;

/* A pause or an unpause that was accepted and has not been observed. */
typedef enum PauseWanted {
        PAUSE_WANTED_NONE,
        PAUSE_WANTED_PAUSE,
        PAUSE_WANTED_UNPAUSE,
} PauseWanted;

/* "PAUSE" and "UNPAUSE"; NULL for PAUSE_WANTED_NONE. The other way round an unknown name is -EINVAL. */
const char *pause_wanted_name(PauseWanted wanted);
int pause_wanted_from_name(const char *name, PauseWanted *ret_wanted);

/* The limits in force. 0: no limit. */
typedef struct SandboxLimits {
        uint64_t memory_bytes;
        uint32_t cpu_millis;
        uint32_t max_processes;
        uint32_t max_open_files;
        uint64_t disk_bytes;
        uint64_t disk_inodes;
        uint64_t tmp_bytes;
        uint64_t exec_timeout; /* nanoseconds */
        uint32_t cpu_weight;
        uint32_t io_weight;
        bool read_only_root;
        bool tmp_noexec;
        bool no_network;
        bool private_files; /* no inodes are shared with the host */
} SandboxLimits;

/* A folder or file of the host inside a sandbox. */
typedef struct SandboxMount {
        char *source; /* as the caller named it */
        char *target;
        bool writable;
        bool sockets; /* those of the host in it may be connected to although it is read-only */
} SandboxMount;

/* A folder or file of the host that is copied into a sandbox when that is new. */
typedef struct SandboxCopy {
        char *source; /* as the caller named it */
        char *target;
        char **exclude; /* ends with NULL; NULL: nothing */
} SandboxCopy;

/* What a sandbox is made of. Shared by reference; its texts are its own. */
typedef struct SandboxSpec {
        unsigned n_refs;

        /* As callers gave it and see it: encoded by the api, opaque to everybody else, kept by the store. */
        uint8_t *encoded; /* the spec */
        size_t encoded_len;
        uint8_t *effective; /* the limits in force, and what was clamped */
        size_t effective_len;

        /* What the daemon acts on. No text is NULL; paths are absolute. */
        char *image;
        char *runtime;
        char *user;
        char *working_directory;
        char *workspace;
        char **command; /* ends with NULL; NULL: none */
        EnvVariable *env;
        size_t n_env;
        Label *labels;
        size_t n_labels;
        SandboxMount *mounts;
        size_t n_mounts;
        SandboxCopy *copies;
        size_t n_copies;
        char **tools;          /* ends with NULL; NULL: none */
        uint64_t capabilities; /* of root's processes inside: a bit for each of the kernel's numbers */
        SandboxLimits limits;
        uint64_t idle_ttl;     /* nanoseconds; 0: for ever */
        uint64_t max_lifetime; /* nanoseconds; 0: for ever */
        LifetimeAction lifetime_action;
        IdleAction idle_action;
} SandboxSpec;

/* An empty spec with one reference. */
SandboxSpec *sandbox_spec_new(void) __attribute__((returns_nonnull));
SandboxSpec *sandbox_spec_ref(SandboxSpec *spec) __attribute__((nonnull, returns_nonnull));

/* Drops a reference of @spec, which may be NULL, and frees it with the last one. Returns NULL. */
SandboxSpec *sandbox_spec_unref(SandboxSpec *spec);
DEFINE_CLEANUP(SandboxSpec *, sandbox_spec_unref);

#define STATE_MESSAGE_MAX 255 /* bytes; a longer one is cut */
#define OWNER_LEN_MAX 255

/* How a sandbox is. */
typedef struct SandboxRecord {
        char id[ID_LEN_MAX + 1];
        uint64_t serial; /* its place in the order of creation; never used again */
        char owner[OWNER_LEN_MAX + 1];
        SandboxSpec *spec; /* borrowed from whoever holds the record */

        SandboxState state;
        Reason state_reason;
        char state_message[STATE_MESSAGE_MAX + 1];
        uint64_t create_time;
        uint64_t state_time;
        uint64_t sequence; /* of its latest event */

        PauseWanted pause_wanted;
        uint32_t uid_slot;      /* which range of uids it has on this host */
        uint64_t stop_grace;    /* nanoseconds; of the stop that is under way */
        bool expired;           /* its maximum lifetime has passed */
        uint64_t idle_since;    /* 0: it is in use */
        uint64_t lifetime_left; /* nanoseconds, as of @lifetime_as_of; of no meaning without a maximum lifetime */
        uint64_t lifetime_as_of;
        uint64_t next_exec_serial;
        uint64_t output_kept; /* bytes of output of its execs that have ended */
} SandboxRecord;
