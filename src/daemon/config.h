/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

/* Whether callers have something. */
typedef enum ConfigNeed {
        CONFIG_NEED_OFF,
        CONFIG_NEED_WANTED,
        CONFIG_NEED_REQUIRED,
} ConfigNeed;

/* The daemon's configuration: a YAML file, each key of which has a default. One table (config.c) says which keys there
 * are, what they may be and what they are for; the reader, `hutchd --print-config` and docs/configuration.md all come
 * from it.
 *
 * Durations are nanoseconds, sizes bytes. */
typedef struct Config {
        char *socket;       /* NULL: by the user, path_of_socket() */
        char *socket_group; /* NULL: nobody's but the daemon's own */
        char *state;        /* NULL: by the user */
        char **admins;      /* callers, ends with NULL, as all lists; NULL: none */
        uint64_t shutdown_grace;
        uint64_t idle_exit; /* 0: never */

        char **listen; /* addresses; NULL: no TCP */
        char *certificate;
        char *key;
        bool tls12;
        ConfigNeed tokens;
        char *tokens_file; /* NULL: in the state folder */
        ConfigNeed client_certificates;
        char *client_ca;
        bool insecure;

        LogLevel log_level;
        LogFormat log_format;

        uint64_t sandboxes;
        uint64_t sandboxes_per_caller;
        uint64_t execs;
        uint64_t execs_per_caller;
        uint64_t output_per_sandbox;
        uint64_t execs_per_sandbox;
        uint64_t streams_per_caller;
        uint64_t watch_buffer;
        uint64_t run_output;
        uint64_t exec_output;
        uint64_t max_exec_output;
        uint64_t listing;
        uint64_t history_retention;

        uint64_t idle_ttl;
        uint64_t max_lifetime; /* 0: for ever */
        uint64_t warm;

        uint64_t cap_memory; /* caps: 0: none */
        uint64_t cap_cpu_millis;
        uint64_t cap_processes;
        uint64_t cap_open_files;
        uint64_t cap_disk;
        uint64_t cap_tmp;
        uint64_t cap_exec_timeout;
        bool allow_unenforced_limits;
        bool allow_capabilities;

        char **source_read;  /* folders; NULL: by the user */
        char **source_write; /* the same */
        char **tools;        /* "NAME=PATH" for each part of one (host/tools.h), ends with NULL; NULL: none */

        char *keeper; /* NULL: beside hutchd, or where it is installed */
} Config;

/* Sets every key to its default. */
void config_init(Config *config) __attribute__((nonnull));
void config_clear(Config *config) __attribute__((nonnull));

/* Reads the file at @path over @config. Unknown keys, doubled ones and bad values are -EINVAL; the message has a line
 * for each, with its place: "hutchd.yaml:12: limits.sandboxs: there is no such key". */
int config_read(Config *config, const char *path, HutchError *err) __attribute__((nonnull(1, 2)));

/* The same from @len bytes that are called @name in messages. */
int config_parse(Config *config, const char *name, const char *text, size_t len, HutchError *err)
        __attribute__((nonnull(1, 2)));

/* Reads an address of listen.addresses: "127.0.0.1:7443", "[::1]:7443". */
#define CONFIG_HOST_SIZE 64
bool config_parse_address(const char *text, char ret_host[static CONFIG_HOST_SIZE], uint16_t *ret_port)
        __attribute__((nonnull));

/* Sets one key, which there is, as a line of the file does. -EINVAL. */
int config_set(Config *config, const char *name, const char *text, HutchError *err) __attribute__((nonnull(1, 2, 3)));

/* Writes the reference: every key with its default and what it is for, in YAML that config_read() takes. */
void config_print_reference(FILE *file) __attribute__((nonnull));

/* Names of keys that differ between @old and @new and are only read at the start, separated by ", "; NULL: none. The
 * caller frees it. */
char *config_fixed_changes(const Config *old, const Config *new) __attribute__((nonnull));
