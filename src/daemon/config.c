/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the table of the daemon's configuration, and the reader and writer that go by it. What does not:
 * what becomes of the values (daemon.c). */

#include "daemon/config.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/strings.h"
#include "host/tools.h"
#include "model/ids.h"

#define CONFIG_SIZE_MAX (1 << 20)
#define TOOLS_PREFIX "tools."
#define TOOL_PARTS_MAX 256 /* of all tools: a keeper inherits a descriptor for each that is asked for */

typedef enum ConfigType {
        CONFIG_TEXT,
        CONFIG_FOLDERS,   /* a list of absolute paths: [/srv, /home] */
        CONFIG_ADDRESSES, /* a list: [127.0.0.1:7443, "[::1]:7443"] */
        CONFIG_CALLERS,   /* a list: [token:ci, uid:1000] */
        CONFIG_TOOLS,     /* a list of paths under each name of the section: "tools.NAME" stands for all of them */
        CONFIG_BOOL,
        CONFIG_COUNT,
        CONFIG_SIZE,     /* bytes: "64MiB" */
        CONFIG_DURATION, /* "10m" */
        CONFIG_LOG_LEVEL,
        CONFIG_LOG_FORMAT,
        CONFIG_NEED,
} ConfigType;

typedef struct ConfigKey {
        const char *name; /* with its section: "log.level" */
        ConfigType type;
        size_t offset;
        const char *standard; /* the default, as it is written; NULL: none */
        uint64_t min, max;    /* of numbers */
        bool fixed;           /* read at the start only */
        const char *about;
} ConfigKey;

#define KEY(field) offsetof(Config, field)

static const ConfigKey keys[] = {
        { "socket", CONFIG_TEXT, KEY(socket), NULL, .fixed = true,
          .about = "Where to listen. The flag --socket and the variable HUTCH_SOCKET come before it.\n"
                   "Default: /run/hutch/hutchd.sock for root, $XDG_RUNTIME_DIR/hutch/hutchd.sock for others,\n"
                   "without that variable in /run/user/UID/hutch or, where the user has none, /tmp/hutch-UID." },
        { "socket_group", CONFIG_TEXT, KEY(socket_group), NULL, .fixed = true,
          .about = "A group whose members may call, beside the daemon's own user and root.\n"
                   "Default: none, and the socket is for its owner only." },
        { "state", CONFIG_TEXT, KEY(state), NULL, .fixed = true,
          .about = "The folder for all that must last. The flag --state and the variable HUTCH_STATE come before it.\n"
                   "Default: /var/lib/hutch for root, $XDG_STATE_HOME/hutch for others." },
        { "admins", CONFIG_CALLERS, KEY(admins), NULL,
          .about =
                  "Callers who see and change everybody's sandboxes, as a list: uid:1000, token:NAME or cert:SUBJECT.\n"
                  "Root and the daemon's user always do, on the Unix socket." },
        { "shutdown_grace", CONFIG_DURATION, KEY(shutdown_grace), "10s", .max = 3600 * NSEC_PER_SEC,
          .about = "How long calls may take to finish when the daemon is asked to end. Sandboxes run on." },
        { "idle_exit", CONFIG_DURATION, KEY(idle_exit), "0", .max = 3650 * 86400 * NSEC_PER_SEC,
          .about = "The daemon ends by itself after it was of no use for that long: it had no sandbox but deleted "
                   "ones,\n"
                   "and nobody was connected. The flag --idle-exit comes before it. 0: never." },

        { "listen.addresses", CONFIG_ADDRESSES, KEY(listen), NULL, .fixed = true,
          .about = "Where to serve over TCP beside the socket, as a list: 0.0.0.0:7443, \"[::1]:7443\". Default: "
                   "nowhere." },
        { "listen.certificate", CONFIG_TEXT, KEY(certificate), NULL,
          .about =
                  "The server's certificate with those above it, a PEM file. It is read again, too, as are the next." },
        { "listen.key", CONFIG_TEXT, KEY(key), NULL, .about = "Its key, a PEM file." },
        { "listen.tls12", CONFIG_BOOL, KEY(tls12), "false", .about = "Whether TLS 1.2 will do, beside 1.3." },
        { "listen.tokens", CONFIG_NEED, KEY(tokens), "wanted", .fixed = true,
          .about = "Bearer tokens: off, wanted (those who give none need a certificate) or required, beside a "
                   "certificate." },
        { "listen.tokens_file", CONFIG_TEXT, KEY(tokens_file), NULL, .fixed = true,
          .about =
                  "The file of the tokens, which `hutch token` changes. It is looked at for each call. Default: tokens "
                  "in the\n"
                  "state folder." },
        { "listen.client_certificates", CONFIG_NEED, KEY(client_certificates), "off",
          .about = "Certificates of clients: off, wanted (those who give none need a token) or required." },
        { "listen.client_ca", CONFIG_TEXT, KEY(client_ca), NULL, .about = "Who signs them, a PEM file." },
        { "listen.insecure", CONFIG_BOOL, KEY(insecure), "false", .fixed = true,
          .about = "Whether there may be no certificate, and all that is said can be read and changed on its way; and "
                   "whether\n"
                   "tokens and client_certificates may both be off, and everybody who can connect is the caller "
                   "\"anonymous\"." },

        { "log.level", CONFIG_LOG_LEVEL, KEY(log_level), "info", .about = "debug, info, warning or error." },
        { "log.format", CONFIG_LOG_FORMAT, KEY(log_format), "logfmt", .about = "logfmt (key=value) or json." },

        { "limits.sandboxes", CONFIG_COUNT, KEY(sandboxes), "10000", 1, 30000, .about = "Sandboxes of all callers." },
        { "limits.sandboxes_per_caller", CONFIG_COUNT, KEY(sandboxes_per_caller), "1000", 1, 30000,
          .about = "Sandboxes of one caller." },
        { "limits.execs", CONFIG_COUNT, KEY(execs), "20000", 1, 1000000,
          .about = "Commands that run or wait to run, of all callers." },
        { "limits.execs_per_caller", CONFIG_COUNT, KEY(execs_per_caller), "5000", 1, 1000000,
          .about = "The same in the sandboxes of one caller." },
        { "limits.execs_per_sandbox", CONFIG_COUNT, KEY(execs_per_sandbox), "256", 1, 4096,
          .about = "Commands that run or wait to run in one sandbox." },
        { "limits.streams_per_caller", CONFIG_COUNT, KEY(streams_per_caller), "1000", 1, 100000,
          .about = "Open watches and streams of one caller." },
        { "limits.watch_buffer", CONFIG_COUNT, KEY(watch_buffer), "8192", 16, 1000000, .fixed = true,
          .about = "How many events a watcher may be behind before its stream ends with WATCHER_LAGGED." },
        { "limits.run_output", CONFIG_SIZE, KEY(run_output), "16MiB", 1, 16 << 20,
          .about = "Output in one answer of RunCommand, both streams together." },
        { "limits.exec_output", CONFIG_SIZE, KEY(exec_output), "64MiB", 1, UINT64_C(1) << 40,
          .about = "Output kept of one command, per stream, when the request does not say." },
        { "limits.max_exec_output", CONFIG_SIZE, KEY(max_exec_output), "16GiB", 1, UINT64_C(1) << 40,
          .about = "The most output that a request may ask to keep, per stream." },
        { "limits.output_per_sandbox", CONFIG_SIZE, KEY(output_per_sandbox), "1GiB", 1, UINT64_C(1) << 50,
          .about = "Output kept of a sandbox's commands that have ended. Beyond that the oldest one's goes, but never "
                   "the newest's." },
        { "limits.listing", CONFIG_SIZE, KEY(listing), "8MiB", 64 << 10, 16 << 20, .about = "One page of a list." },
        { "limits.history_retention", CONFIG_DURATION, KEY(history_retention), "15d",
          .max = 3650 * 86400 * NSEC_PER_SEC,
          .about = "How long a deleted sandbox can still be looked at, and its events watched. Its id stays taken." },

        { "sandboxes.idle_ttl", CONFIG_DURATION, KEY(idle_ttl), "10m", .max = 3650 * 86400 * NSEC_PER_SEC,
          .about = "How long a sandbox may be idle before it is stopped, when the request does not say. 0: for ever." },
        { "sandboxes.max_lifetime", CONFIG_DURATION, KEY(max_lifetime), "0", .max = 3650 * 86400 * NSEC_PER_SEC,
          .about = "The longest lifetime that a sandbox may have. 0: no limit." },
        { "sandboxes.warm", CONFIG_COUNT, KEY(warm), "0", .max = 64,
          .about = "How many sandboxes are kept running before anybody asks for them, so that a request is served in\n"
                   "less time. They are like the latest one asked for without an id, mounts, copies and tools, are "
                   "there for an\n"
                   "hour after it, and count for no limit." },
        { "sandboxes.allow_unenforced_limits", CONFIG_BOOL, KEY(allow_unenforced_limits), "false",
          .about = "Whether requests may ask for limits that this host cannot enforce. They are then reported as not\n"
                   "enforced; otherwise such requests are refused." },
        { "sandboxes.allow_capabilities", CONFIG_BOOL, KEY(allow_capabilities), "true",
          .about =
                  "Whether requests may ask for capabilities of root inside: CHOWN, SETUID and their like, within the\n"
                  "sandbox. Otherwise such requests are refused." },

        { "caps.memory", CONFIG_SIZE, KEY(cap_memory), "0", .max = UINT64_C(1) << 50,
          .about = "The most that any sandbox gets, whatever its request and profile say. 0: no cap." },
        { "caps.cpu_millis", CONFIG_COUNT, KEY(cap_cpu_millis), "0", .max = 1000000,
          .about = "Thousandths of a core." },
        { "caps.processes", CONFIG_COUNT, KEY(cap_processes), "0", .max = 4194304 },
        { "caps.open_files", CONFIG_COUNT, KEY(cap_open_files), "0", .max = 1048576 },
        { "caps.disk", CONFIG_SIZE, KEY(cap_disk), "0", .max = UINT64_C(1) << 50 },
        { "caps.tmp", CONFIG_SIZE, KEY(cap_tmp), "0", .max = UINT64_C(1) << 50 },
        { "caps.exec_timeout", CONFIG_DURATION, KEY(cap_exec_timeout), "0", .max = 3650 * 86400 * NSEC_PER_SEC,
          .about = "The longest that any command may run." },

        { "sources.read", CONFIG_FOLDERS, KEY(source_read), NULL, .fixed = true,
          .about =
                  "Folders of this host from which callers may mount and copy into their sandboxes, as a list. "
                  "Whoever may\n"
                  "call gets at everything in them, whatever its modes say. The daemon's own folders are never among "
                  "it.\n"
                  "Default: [/], which is what the daemon's user may read, for root and for the daemon's own user when "
                  "they\n"
                  "call on the Unix socket; [] for other callers." },
        { "sources.write", CONFIG_FOLDERS, KEY(source_write), NULL, .fixed = true,
          .about = "The same for mounts that sandboxes may write to. They write as the owner of what is mounted; what "
                   "is\n"
                   "root's is never written to by sandboxes of root's daemon. Default: as that of sources.read when "
                   "that is not\n"
                   "set either, else []." },

        { "tools.NAME", CONFIG_TOOLS, KEY(tools), NULL, .fixed = true,
          .about = "Further tools that callers may name, each a list of files and folders: \"linter: [/srv/lint, "
                   "~/.lint]\".\n"
                   "An absolute one is there at the same place inside, and need not be in sources.read; one in the "
                   "caller's home\n"
                   "is in the agent's. A name that a tool has already is that tool from then on." },

        { "native.keeper", CONFIG_TEXT, KEY(keeper), NULL, .fixed = true,
          .about = "The program hutch-keeper, which hutchd reads once, at its start. Default: beside hutchd, or where "
                   "it was "
                   "installed." },
};

#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static const char *const log_levels[] = { "debug", "info", "warning", "error" };
static const char *const log_formats[] = { "logfmt", "json" };
static const char *const needs[] = { "off", "wanted", "required" };

static void *config_field(const Config *config, const ConfigKey *key) {
        return (char *) config + key->offset;
}

static const ConfigKey *find_key(const char *name) {
        for (size_t i = 0; i < N_KEYS; i++)
                if (str_equal(keys[i].name, name) ||
                    (keys[i].type == CONFIG_TOOLS && str_has_prefix(name, TOOLS_PREFIX)))
                        return &keys[i];
        return NULL;
}

/* Tells whether @name is a section: "log". */
static bool is_section(const char *name) {
        size_t len = strlen(name);

        for (size_t i = 0; i < N_KEYS; i++)
                if (strncmp(keys[i].name, name, len) == 0 && keys[i].name[len] == '.')
                        return true;
        return false;
}

static bool find_word(const char *const words[], size_t n_words, const char *text, unsigned *ret_index) {
        for (size_t i = 0; i < n_words; i++)
                if (str_equal(words[i], text)) {
                        *ret_index = (unsigned) i;
                        return true;
                }
        return false;
}

static bool parse_number(const char *text, uint64_t *ret_number, const char **ret_end) {
        char *end;

        if (!ascii_is_digit(text[0]))
                return false;

        errno = 0;
        *ret_number = strtoull(text, &end, 10);
        *ret_end = end;
        return errno == 0;
}

static bool parse_size(const char *text, uint64_t *ret_size) {
        static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
        const char *end;
        uint64_t number;
        unsigned unit;

        if (!parse_number(text, &number, &end) || !find_word(units, sizeof(units) / sizeof(units[0]), end, &unit) ||
            number > UINT64_MAX >> (10 * unit))
                return false;

        *ret_size = number << (10 * unit);
        return true;
}

static bool is_list(const ConfigKey *key) {
        return key->type == CONFIG_FOLDERS || key->type == CONFIG_ADDRESSES || key->type == CONFIG_CALLERS ||
               key->type == CONFIG_TOOLS;
}

bool config_parse_address(const char *text, char ret_host[static CONFIG_HOST_SIZE], uint16_t *ret_port) {
        const char *colon = strrchr(text, ':'), *end;
        bool brackets = text[0] == '[' && colon && colon[-1] == ']';
        size_t len = colon ? (size_t) (colon - text) - (brackets ? 2 : 0) : 0;
        struct in6_addr address;
        uint64_t port;

        if (len == 0 || len >= CONFIG_HOST_SIZE || !parse_number(colon + 1, &port, &end) || *end != '\0' ||
            port > UINT16_MAX)
                return false;

        memcpy(ret_host, text + brackets, len);
        ret_host[len] = '\0';
        *ret_port = (uint16_t) port;
        return inet_pton(brackets ? AF_INET6 : AF_INET, ret_host, &address) == 1;
}

/* What is wrong with an item of a list; NULL: nothing. */
static const char *check_item(const ConfigKey *key, const char *text) {
        char host[CONFIG_HOST_SIZE];
        uint16_t port;

        if (key->type == CONFIG_FOLDERS && text[0] != '/')
                return "is no absolute path";
        if (key->type == CONFIG_ADDRESSES && !config_parse_address(text, host, &port))
                return "is no IP address and port, as in 127.0.0.1:7443 or \"[::1]:7443\"";
        if (key->type == CONFIG_CALLERS && !str_has_prefix(text, "uid:") && !str_has_prefix(text, "token:") &&
            !str_has_prefix(text, "cert:"))
                return "is no caller, as in uid:1000, token:NAME or cert:CN=alice";
        return NULL;
}

static size_t list_len(char **list) {
        size_t n = 0;

        while (list && list[n])
                n++;
        return n;
}

/* Adds to a list that ends with NULL. Takes over @text. */
static void add_text(char ***list, char *text) {
        size_t n = list_len(*list);

        *list = xreallocarray(*list, n + 2, sizeof(char *));
        (*list)[n] = text;
        (*list)[n + 1] = NULL;
}

static const char *add_item(char ***list, const ConfigKey *key, const char *text) {
        const char *wrong = check_item(key, text);

        if (wrong)
                return wrong;
        add_text(list, xstrdup(text));
        return NULL;
}

static const char *add_tool_part(char ***list, const char *name, const char *text) {
        const char *wrong = tool_part_problem(text);
        char *entry;

        if (wrong)
                return wrong;
        if (list_len(*list) == TOOL_PARTS_MAX)
                return "is one path too many for all tools";
        if (asprintf(&entry, "%s=%s", name, text) < 0)
                abort();
        add_text(list, entry);
        return NULL;
}

/* Sets what @key, which is written as @name, is for from @text, or adds that to a list. Returns what is wrong with it,
 * NULL for nothing. */
static const char *set_value(Config *config, const ConfigKey *key, const char *name, const char *text) {
        void *field = config_field(config, key);
        const char *end;
        uint64_t number = 0;
        unsigned index;

        switch (key->type) {
        case CONFIG_TEXT:
                if (text[0] == '\0')
                        return "is empty";
                free(*(char **) field);
                *(char **) field = xstrdup(text);
                return NULL;
        case CONFIG_FOLDERS:
        case CONFIG_ADDRESSES:
        case CONFIG_CALLERS:
                return add_item(field, key, text);
        case CONFIG_TOOLS:
                return add_tool_part(field, name + strlen(TOOLS_PREFIX), text);
        case CONFIG_BOOL:
                if (!str_equal(text, "true") && !str_equal(text, "false"))
                        return "is neither true nor false";
                *(bool *) field = text[0] == 't';
                return NULL;
        case CONFIG_LOG_LEVEL:
                if (!find_word(log_levels, sizeof(log_levels) / sizeof(log_levels[0]), text, &index))
                        return "is none of debug, info, warning and error";
                *(LogLevel *) field = (LogLevel) index;
                return NULL;
        case CONFIG_LOG_FORMAT:
                if (!find_word(log_formats, sizeof(log_formats) / sizeof(log_formats[0]), text, &index))
                        return "is neither logfmt nor json";
                *(LogFormat *) field = (LogFormat) index;
                return NULL;
        case CONFIG_NEED:
                if (!find_word(needs, sizeof(needs) / sizeof(needs[0]), text, &index))
                        return "is none of off, wanted and required";
                *(ConfigNeed *) field = (ConfigNeed) index;
                return NULL;
        case CONFIG_COUNT:
                if (!parse_number(text, &number, &end) || *end != '\0')
                        return "is no number";
                break;
        case CONFIG_SIZE:
                if (!parse_size(text, &number))
                        return "is no size: write bytes, or a number with KiB, MiB, GiB or TiB";
                break;
        case CONFIG_DURATION: {
                Duration duration;

                if (duration_parse(text, strlen(text), &duration, NULL) < 0)
                        return "is no duration: write 90s, 10m or 1h30m";
                number = (uint64_t) duration.seconds * NSEC_PER_SEC + (uint64_t) duration.nanos;
                break;
        }
        }

        if (number < key->min)
                return "is too small";
        if (number > key->max)
                return "is too large";

        *(uint64_t *) field = number;
        return NULL;
}

void config_init(Config *config) {
        *config = (Config){};
        for (size_t i = 0; i < N_KEYS; i++) {
                const char *problem =
                        keys[i].standard ? set_value(config, &keys[i], keys[i].name, keys[i].standard) : NULL;

                assert(!problem);
        }
}

void config_clear(Config *config) {
        for (size_t i = 0; i < N_KEYS; i++)
                if (keys[i].type == CONFIG_TEXT)
                        free(*(char **) config_field(config, &keys[i]));
                else if (is_list(&keys[i]))
                        (void) strv_free(*(char ***) config_field(config, &keys[i]));
        *config = (Config){};
}

int config_set(Config *config, const char *name, const char *text, HutchError *err) {
        const ConfigKey *key = find_key(name);
        const char *wrong;

        assert(key);
        wrong = set_value(config, key, name, text);
        return wrong ? error_set(err, -EINVAL, "FIELD_INVALID", "%s '%s' %s", name, text, wrong) : 0;
}

/* The state of a reader: a file is a mapping of keys, and of sections that are mappings of keys. */
typedef struct Reader {
        Config *config;
        const char *name;
        char section[128]; /* empty: none */
        char key[128];     /* whose value comes next; empty: a key comes next */
        unsigned depth;
        bool in_list;
        bool seen[N_KEYS];
        StringBuilder problems;
} Reader;

static void problem(Reader *reader, const yaml_mark_t *mark, const char *what, const char *why) {
        string_builder_appendf(&reader->problems, "%s%s:%zu: %s %s", reader->problems.len > 0 ? "\n" : "", reader->name,
                               mark->line + 1, what, why);
}

static void read_value(Reader *reader, const yaml_mark_t *mark, const char *text) {
        const ConfigKey *key = find_key(reader->key);
        const char *wrong;

        if (!key && is_section(reader->key) && text[0] == '\0')
                return; /* all its keys are left out */
        if (!key) {
                problem(reader, mark, reader->key, is_section(reader->key) ? "is a section of keys" : "is no key");
                return;
        }
        if (key->type == CONFIG_TOOLS && !reader->in_list) {
                problem(reader, mark, reader->key, "is no list of paths");
                return;
        }
        if (reader->seen[key - keys] && !reader->in_list) {
                problem(reader, mark, key->name, "is there twice");
                return;
        }

        reader->seen[key - keys] = true;
        wrong = set_value(reader->config, key, reader->key, text);
        if (wrong)
                problem(reader, mark, reader->key, wrong);
}

static void read_scalar(Reader *reader, const yaml_event_t *event) {
        const char *text = (const char *) event->data.scalar.value;
        int len;

        if (strlen(text) != event->data.scalar.length) {
                problem(reader, &event->start_mark, "a text", "contains NUL");
                return;
        }
        if (reader->depth == 0) {
                /* A file without a single key. */
                if (text[0] != '\0')
                        problem(reader, &event->start_mark, "this", "is no list of keys and values");
                return;
        }
        if (reader->key[0] != '\0') {
                read_value(reader, &event->start_mark, text);
                if (!reader->in_list)
                        reader->key[0] = '\0';
                return;
        }

        len = snprintf(reader->key, sizeof(reader->key), "%s%s%s", reader->section, reader->section[0] ? "." : "",
                       text);
        if (len >= (int) sizeof(reader->key) || text[0] == '\0')
                snprintf(reader->key, sizeof(reader->key), "?");
}

static void read_mapping(Reader *reader, const yaml_event_t *event) {
        if (reader->in_list) {
                problem(reader, &event->start_mark, reader->key, "has something else than texts in it");
                reader->in_list = false;
        }
        if (++reader->depth == 1)
                return;

        if (reader->depth > 2 || !is_section(reader->key)) {
                problem(reader, &event->start_mark, reader->key, "is no section");
                snprintf(reader->section, sizeof(reader->section), "?");
        } else
                snprintf(reader->section, sizeof(reader->section), "%s", reader->key);
        reader->key[0] = '\0';
}

static bool has_tool(const Config *config, const char *name) {
        size_t len = strlen(name);

        for (char **entry = config->tools; entry && *entry; entry++)
                if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=')
                        return true;
        return false;
}

/* What is wrong with a tool's name; NULL: nothing. */
static const char *tool_name_problem(const Reader *reader) {
        const char *name = reader->key + strlen(TOOLS_PREFIX);

        if (name_check(name, strlen(name), NULL) < 0)
                return "has a name that is not made of a-z, 0-9 and -";
        return has_tool(reader->config, name) ? "is there twice" : NULL;
}

/* Begins the list that is the value of a key; others have a single one. */
static bool read_list(Reader *reader, const yaml_event_t *event) {
        const ConfigKey *key = find_key(reader->key);
        const char *wrong;

        if (key && key->type == CONFIG_TOOLS && !reader->in_list) {
                wrong = tool_name_problem(reader);
                if (wrong)
                        problem(reader, &event->start_mark, reader->key, wrong);
                reader->in_list = true;
                return !wrong;
        }
        if (!key || !is_list(key) || reader->in_list) {
                problem(reader, &event->start_mark, reader->key[0] ? reader->key : "this", "is not a single value");
                return false;
        }
        if (reader->seen[key - keys]) {
                problem(reader, &event->start_mark, key->name, "is there twice");
                return false;
        }

        reader->seen[key - keys] = reader->in_list = true;
        *(char ***) config_field(reader->config, key) = new0(char *, 1);
        return true;
}

/* Takes one event of the parser. Returns false at the end. */
static bool read_event(Reader *reader, const yaml_event_t *event) {
        switch (event->type) {
        case YAML_SCALAR_EVENT:
                read_scalar(reader, event);
                return true;
        case YAML_MAPPING_START_EVENT:
                read_mapping(reader, event);
                return true;
        case YAML_MAPPING_END_EVENT:
                reader->depth--;
                reader->section[0] = reader->key[0] = '\0';
                return true;
        case YAML_SEQUENCE_START_EVENT:
                return read_list(reader, event);
        case YAML_SEQUENCE_END_EVENT:
                if (str_has_prefix(reader->key, TOOLS_PREFIX) &&
                    !has_tool(reader->config, reader->key + strlen(TOOLS_PREFIX)))
                        problem(reader, &event->start_mark, reader->key, "has no paths");
                reader->in_list = false;
                reader->key[0] = '\0';
                return true;
        case YAML_ALIAS_EVENT:
                problem(reader, &event->start_mark, reader->key[0] ? reader->key : "this", "is not a single value");
                return false;
        case YAML_STREAM_END_EVENT:
                return false;
        default:
                return true;
        }
}

int config_parse(Config *config, const char *name, const char *text, size_t len, HutchError *err) {
        _cleanup_(string_builder_clear) StringBuilder problems = {};
        Reader reader = { .config = config, .name = name };
        yaml_parser_t parser;
        bool more = true;

        if (!yaml_parser_initialize(&parser))
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory to read %s", name);

        yaml_parser_set_input_string(&parser, (const unsigned char *) text, len);
        while (more) {
                yaml_event_t event;

                if (!yaml_parser_parse(&parser, &event)) {
                        problem(&reader, &parser.problem_mark,
                                "this is no YAML:", parser.problem ? parser.problem : "it cannot be read");
                        break;
                }
                more = read_event(&reader, &event);
                yaml_event_delete(&event);
        }
        yaml_parser_delete(&parser);

        problems = reader.problems;
        return problems.len > 0 ? error_set(err, -EINVAL, "FIELD_INVALID", "%s", problems.text) : 0;
}

int config_read(Config *config, const char *path, HutchError *err) {
        _cleanup_free_ char *text = new0(char, CONFIG_SIZE_MAX + 1);
        FILE *file = fopen(path, "re");
        const char *name = strrchr(path, '/');
        size_t len;
        int r;

        if (!file)
                return error_set(err, -errno, "FILE_NOT_FOUND", "cannot read %s: %s", path, strerror(errno));

        len = fread(text, 1, CONFIG_SIZE_MAX + 1, file);
        r = ferror(file) ? -errno : 0;
        (void) fclose(file);
        if (r < 0 || len > CONFIG_SIZE_MAX)
                return error_set(err, r < 0 ? r : -EFBIG, "FIELD_INVALID", "cannot read %s: %s", path,
                                 r < 0 ? strerror(-r) : "it is larger than 1 MiB");

        return config_parse(config, name ? name + 1 : path, text, len, err);
}

static void print_about(FILE *file, const char *indent, const char *about) {
        for (const char *line = about; line && *line;) {
                size_t len = strcspn(line, "\n");

                (void) fprintf(file, "%s# %.*s\n", indent, (int) len, line);
                line += len + (line[len] == '\n');
        }
}

void config_print_reference(FILE *file) {
        char section[64] = "";

        (void) fprintf(
                file,
                "# The configuration of hutchd, with every default. Lines that begin with \"#\" are comments; a key\n"
                "# that is left out has the value shown. \"r\" behind a key: read again on SIGHUP.\n");
        for (size_t i = 0; i < N_KEYS; i++) {
                const ConfigKey *key = &keys[i];
                const char *dot = strchr(key->name, '.'), *name = dot ? dot + 1 : key->name;
                int len = dot ? (int) (dot - key->name) : 0;

                if (len > 0 && (strncmp(section, key->name, (size_t) len) != 0 || section[len] != '\0')) {
                        snprintf(section, sizeof(section), "%.*s", len, key->name);
                        (void) fprintf(file, "\n%s:\n", section);
                } else if (len == 0 || key->about)
                        (void) fprintf(file, "\n");
                print_about(file, dot ? "  " : "", key->about);
                (void) fprintf(file, "%s%s%s: %s%s\n", dot ? "  " : "", key->standard ? "" : "# ", name,
                               key->standard ? key->standard : "…", key->fixed ? "" : " # r");
        }
}

static bool same_list(char **a, char **b) {
        if (!a || !b)
                return a == b;
        while (*a && str_equal(*a, *b))
                a++, b++;
        return str_equal(*a, *b);
}

/* Tells whether @a and @b have the same value for @key. */
static bool same_value(const Config *a, const Config *b, const ConfigKey *key) {
        const void *one = config_field(a, key), *other = config_field(b, key);

        switch (key->type) {
        case CONFIG_TEXT:
                return str_equal(*(char *const *) one, *(char *const *) other);
        case CONFIG_FOLDERS:
        case CONFIG_ADDRESSES:
        case CONFIG_CALLERS:
        case CONFIG_TOOLS:
                return same_list(*(char **const *) one, *(char **const *) other);
        case CONFIG_BOOL:
                return *(const bool *) one == *(const bool *) other;
        case CONFIG_LOG_LEVEL:
        case CONFIG_LOG_FORMAT:
        case CONFIG_NEED:
                return *(const unsigned *) one == *(const unsigned *) other;
        case CONFIG_COUNT:
        case CONFIG_SIZE:
        case CONFIG_DURATION:
                return *(const uint64_t *) one == *(const uint64_t *) other;
        }
        abort();
}

char *config_fixed_changes(const Config *old, const Config *new) {
        StringBuilder names = {};

        for (size_t i = 0; i < N_KEYS; i++)
                if (keys[i].fixed && !same_value(old, new, &keys[i]))
                        string_builder_appendf(&names, "%s%s", names.len > 0 ? ", " : "", keys[i].name);
        return names.len > 0 ? string_builder_take(&names) : NULL;
}
