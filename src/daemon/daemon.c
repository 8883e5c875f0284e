/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: putting the rooms together, signals, and the order in which things begin and end. What does not: any
 * of the work. */

#include "daemon/daemon.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "contract/hutch/files.h"
#include "control/control.h"
#include "daemon/instance-lock.h"
#include "daemon/remote.h"
#include "daemon/systemd.h"
#include "host/sources.h"
#include "local/paths.h"
#include "local/program.h"
#include "rpc/channel-hub.h"
#include "rpc/core/method-table.h"
#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/server.h"
#include "runtime/native/native.h"
#include "runtime/runtime.h"
#include "store/store.h"

#define REQUEST_RETENTION (24 * 3600 * NSEC_PER_SEC)

typedef struct Daemon {
        uv_loop_t loop;
        DaemonOptions *options;
        Config *config;
        bool has_group;
        gid_t group;
        char *socket;
        char *state;
        SourceRules sources;
        int lock;
        Remote remote;

        Store *store;
        char *instance_id;
        ChannelHub *hub;
        Runtime *runtimes[2]; /* ends with NULL */
        Control *control;
        Api *api;
        MethodTable *methods;
        Health *health;
        Reflection *reflection;
        Server *server;

        uv_signal_t terminate, interrupt, reload;
        uv_timer_t watchdog;
        bool stopping;
        unsigned n_ends; /* that are waited for, then */

        uv_timer_t idle;
        unsigned idle_looks;       /* that found nothing to stay for, one after another */
        uint64_t seen_connections; /* since the start, as of the last look */
} Daemon;

int daemon_read_config(Config *config, DaemonOptions *options, HutchError *err) {
        int r = 0;

        config_init(config);
        options->config_required |= access(options->config_path, F_OK) == 0;
        if (options->config_required)
                r = config_read(config, options->config_path, err);
        if (r == 0 && options->idle_exit_flag)
                r = config_set(config, "idle_exit", options->idle_exit_flag, err);
        return r;
}

int daemon_check_files(const Config *config, const DaemonOptions *options, HutchError *err) {
        _cleanup_free_ char *state = path_of_state(options->state_flag, config->state, err);
        _cleanup_(remote_close) Remote remote = {};

        return state ? remote_open(&remote, config, state, err) : -EINVAL;
}

static ControlLimits control_limits(const Config *config) {
        return (ControlLimits){
                .sandboxes = (uint32_t) config->sandboxes,
                .sandboxes_per_caller = (uint32_t) config->sandboxes_per_caller,
                .execs = (uint32_t) config->execs,
                .execs_per_caller = (uint32_t) config->execs_per_caller,
                .execs_per_sandbox = (uint32_t) config->execs_per_sandbox,
                .watches_per_caller = (uint32_t) config->streams_per_caller,
                .history_retention = config->history_retention,
                .request_retention = REQUEST_RETENTION,
                .watch_buffer = config->watch_buffer,
                .output_per_sandbox = config->output_per_sandbox,
                .warm_sandboxes = (uint32_t) config->warm,
        };
}

static Limit cap(uint64_t value) {
        return (Limit){ .set = value > 0, .value = value };
}

static ApiLimits api_limits(const Config *config) {
        ApiLimits limits = api_limits_default;

        limits.run_output_bytes = config->run_output;
        limits.exec_output_bytes = config->exec_output;
        limits.max_exec_output_bytes = config->max_exec_output;
        limits.listing_bytes = config->listing;
        limits.sandboxes_per_caller = (uint32_t) config->sandboxes_per_caller;
        limits.sandboxes = (uint32_t) config->sandboxes;
        limits.execs_per_sandbox = (uint32_t) config->execs_per_sandbox;
        limits.streams_per_caller = (uint32_t) config->streams_per_caller;
        limits.default_idle_ttl = config->idle_ttl;
        limits.max_lifetime = config->max_lifetime;
        limits.history_retention = config->history_retention;
        limits.allow_unenforced = config->allow_unenforced_limits;
        limits.allow_capabilities = config->allow_capabilities;
        limits.caps.limits[LIMIT_MEMORY_BYTES] = cap(config->cap_memory);
        limits.caps.limits[LIMIT_CPU_MILLIS] = cap(config->cap_cpu_millis);
        limits.caps.limits[LIMIT_MAX_PROCESSES] = cap(config->cap_processes);
        limits.caps.limits[LIMIT_MAX_OPEN_FILES] = cap(config->cap_open_files);
        limits.caps.limits[LIMIT_DISK_BYTES] = cap(config->cap_disk);
        limits.caps.limits[LIMIT_TMP_BYTES] = cap(config->cap_tmp);
        limits.caps.limits[LIMIT_EXEC_TIMEOUT_MS] = cap(config->cap_exec_timeout / NSEC_PER_MSEC);
        return limits;
}

static void apply_log(const Config *config) {
        log_default.level = config->log_level;
        log_default.format = config->log_format;
}

/* ---- The end ---- */

/* The store is closed when the loop has run out. */
static void on_runtime_gone(void *user) {
        Daemon *daemon = user;

        channel_hub_free(daemon->hub);
        uv_close((uv_handle_t *) &daemon->terminate, NULL);
        uv_close((uv_handle_t *) &daemon->interrupt, NULL);
        uv_close((uv_handle_t *) &daemon->reload, NULL);
        uv_close((uv_handle_t *) &daemon->watchdog, NULL);
        uv_close((uv_handle_t *) &daemon->idle, NULL);
}

static void on_control_gone(void *user) {
        Daemon *daemon = user;

        native_runtime_free(daemon->runtimes[0], on_runtime_gone, daemon);
}

static void on_server_gone(void *user) {
        Daemon *daemon = user;

        api_free(daemon->api);
        control_commit(daemon->control);
        control_free(daemon->control, on_control_gone, daemon);
}

/* Calls are over, or nothing is left of the sandboxes that were nobody's. */
static void on_end(void *user) {
        Daemon *daemon = user;

        if (--daemon->n_ends == 0)
                server_free(daemon->server, on_server_gone, daemon);
}

static void shut_down(Daemon *daemon) {
        daemon->stopping = true;
        (void) uv_timer_stop(&daemon->idle);
        (void) systemd_notify("STOPPING=1");
        health_shut_down(daemon->health);
        api_shut_down(daemon->api);
        daemon->n_ends = 2;
        control_end_warm(daemon->control, on_end, daemon);
        server_drain(daemon->server, daemon->config->shutdown_grace, on_end, daemon);
}

static void on_terminate(uv_signal_t *handle, int signal) {
        Daemon *daemon = handle->data;

        log_info("asked to end", LOG_INT("signal", signal), LOG_BOOL("again", daemon->stopping));
        if (daemon->stopping)
                _exit(EXIT_FAILURE); /* what was answered is durable */

        shut_down(daemon);
}

/* ---- The end for want of use ---- */

/* So often it looks, within idle_exit, whether it is of use. It ends at most one look late. */
#define IDLE_LOOKS 8

static bool on_sandbox(const SandboxView *view, void *user) {
        bool *has_any = user;

        (void) view;
        *has_any = true;
        return false;
}

static bool has_sandboxes(const Daemon *daemon) {
        static const Caller self = { .name = "hutchd", .admin = true };
        bool has_any = false;
        uint64_t after = 0;

        (void) control_list_sandboxes(daemon->control, &self, &(SandboxFilter){ .all_owners = true }, &after,
                                      on_sandbox, &has_any, NULL);
        return has_any;
}

/* Who connects after the last look is not accepted any more: nothing was answered, and the next daemon serves him. */
static void on_idle_look(uv_timer_t *timer) {
        Daemon *daemon = timer->data;
        ServerStats stats = server_stats(daemon->server);

        if (stats.connections > 0 || stats.accepted_connections != daemon->seen_connections || has_sandboxes(daemon)) {
                daemon->seen_connections = stats.accepted_connections;
                daemon->idle_looks = 0;
                return;
        }
        /* One more, for it may have been of use until just before the first. */
        if (++daemon->idle_looks <= IDLE_LOOKS)
                return;

        log_info("nobody needs it");
        shut_down(daemon);
}

/* Begins to look anew, as it is configured now. */
static void watch_use(Daemon *daemon) {
        uint64_t pause = daemon->config->idle_exit / IDLE_LOOKS / NSEC_PER_MSEC + 1;

        daemon->idle_looks = 0;
        if (daemon->config->idle_exit > 0)
                (void) uv_timer_start(&daemon->idle, on_idle_look, pause, pause);
        else
                (void) uv_timer_stop(&daemon->idle);
}

/* ---- While it runs ---- */

/* Takes what @new says of callers, but for what is read at the start only, which it then has as it is. */
static void reload_callers(Daemon *daemon, Config *new) {
        Config *old = daemon->config;
        char **listen = new->listen;
        ApiRemote rules;

        new->listen = old->listen;
        old->listen = listen;
        new->tokens = old->tokens;
        new->insecure = old->insecure;
        if (new->listen && !remote_reload(&daemon->remote, new, daemon->server))
                new->client_certificates = old->client_certificates;
        rules = remote_rules(&daemon->remote, new);
        api_set_remote(daemon->api, &rules);
}

static void on_reload(uv_signal_t *handle, int signal) {
        Daemon *daemon = handle->data;
        _cleanup_(config_clear) Config new = {};
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_free_ char *fixed = NULL;
        ControlLimits limits;
        ApiLimits api;
        Config old;

        (void) signal;
        if (daemon->stopping)
                return;
        if (daemon_read_config(&new, daemon->options, &err) < 0) {
                log_error("configuration not read again", LOG_STR("error", error_message(&err)));
                return;
        }

        fixed = config_fixed_changes(daemon->config, &new);
        if (fixed)
                log_warning("some keys are read at the start only", LOG_STR("keys", fixed));

        limits = control_limits(&new);
        limits.watch_buffer = daemon->config->watch_buffer;
        api = api_limits(&new);
        control_set_limits(daemon->control, &limits);
        api_set_limits(daemon->api, &api);
        apply_log(&new);
        reload_callers(daemon, &new);
        old = *daemon->config;
        *daemon->config = new;
        new = old;
        watch_use(daemon);
        log_info("configuration read again", LOG_STR("file", daemon->options->config_path));
}

static void on_watchdog(uv_timer_t *timer) {
        (void) timer;
        (void) systemd_notify("WATCHDOG=1");
}

static void before_commit(void *user) {
        const Daemon *daemon = user;

        channel_hub_run(daemon->hub);
}

static void before_flush(void *user) {
        const Daemon *daemon = user;

        control_commit(daemon->control);
        /* What follows from it is done while the disk is waited for. */
        if (!control_is_synced(daemon->control))
                channel_hub_run(daemon->hub);
}

static void before_send(void *user) {
        const Daemon *daemon = user;

        control_sync(daemon->control);
}

static void on_connection_failed(const Peer *peer, const HutchError *err, void *user) {
        (void) user;
        log_debug("connection failed", LOG_STR("address", peer->address),
                  LOG_INT("pid", peer->has_credentials ? peer->pid : 0), LOG_STR("error", error_message(err)));
}

/* ---- The beginning ---- */

/* As many descriptors as are allowed: each sandbox takes some. */
static void raise_descriptor_limit(void) {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
        }
}

static int find_group(Daemon *daemon, HutchError *err) {
        const struct group *group;

        if (!daemon->config->socket_group)
                return 0;

        errno = 0;
        group = getgrnam(daemon->config->socket_group);
        if (!group)
                return error_set(err, -ENOENT, "FIELD_INVALID", "socket_group: there is no group '%s'",
                                 daemon->config->socket_group);

        daemon->has_group = true;
        daemon->group = group->gr_gid;
        return 0;
}

/* The name of this installation, for ever: what tells the daemons of one machine apart. */
static int load_instance_id(Daemon *daemon, HutchError *err) {
        static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
        char id[13] = "";
        int r = store_get_fact(daemon->store, "instance_id", &daemon->instance_id, err);

        if (r != -ENOENT)
                return r;

        error_clear(err);
        if (getrandom(id, sizeof(id) - 1, 0) != sizeof(id) - 1)
                return error_set(err, -EIO, "INTERNAL", "no random numbers");
        for (size_t i = 0; i < sizeof(id) - 1; i++)
                id[i] = digits[(unsigned char) id[i] % 32];

        daemon->instance_id = xstrdup(id);
        r = store_set_fact(daemon->store, "instance_id", id, err);
        return r < 0 ? r : store_commit(daemon->store, err);
}

static int open_state(Daemon *daemon, HutchError *err) {
        _cleanup_free_ char *path = NULL;
        int r;

        daemon->state = path_of_state(daemon->options->state_flag, daemon->config->state, err);
        if (!daemon->state)
                return -EINVAL;
        r = make_private_folder(daemon->state, err);
        if (r < 0)
                return r;

        daemon->lock = instance_lock(daemon->state, err);
        if (daemon->lock < 0)
                return daemon->lock;
        if (asprintf(&path, "%s/hutch.db", daemon->state) < 0)
                return error_set(err, -ENOMEM, "HOST_EXHAUSTED", "no memory");
        r = store_open(path, &daemon->store, err);
        return r < 0 ? r : load_instance_id(daemon, err);
}

static char **copy_list(char **list) {
        size_t n = 0;
        char **copy;

        while (list[n])
                n++;
        copy = new0(char *, n + 1);
        while (n-- > 0)
                copy[n] = xstrdup(list[n]);
        return copy;
}

/* @path without links on the way to its last name. */
static char *real_path(const char *path) {
        const char *name = strrchr(path, '/');
        _cleanup_free_ char *folder = xstrndup(path, (size_t) (name - path)), *real = realpath(folder, NULL);
        char *whole;

        if (asprintf(&whole, "%s%s", real ? real : folder, name) < 0)
                abort();
        return whole;
}

static void make_source_rules(Daemon *daemon) {
        _cleanup_free_ char *tokens = remote_tokens_file(daemon->config, daemon->state);
        const Config *config = daemon->config;

        daemon->sources = (SourceRules){
                .read = config->source_read ? copy_list(config->source_read) : NULL,
                .write = config->source_write ? copy_list(config->source_write) : NULL,
                .own = new0(char *, 5),
                .tools = config->tools ? copy_list(config->tools) : NULL,
                .file = xstrdup(daemon->options->config_path),
        };
        daemon->sources.own[0] = real_path(daemon->state);
        daemon->sources.own[1] = real_path(daemon->socket);
        daemon->sources.own[2] = real_path(tokens);
        if (config->key)
                daemon->sources.own[3] = real_path(config->key);
}

static int make_runtime(Daemon *daemon, HutchError *err) {
        _cleanup_free_ char *keeper = daemon->config->keeper ? xstrdup(daemon->config->keeper)
                                                             : program_find("hutch-keeper", HUTCH_LIBEXECDIR);
        int r;

        if (!keeper)
                return error_set(err, -ENOENT, "FILE_NOT_FOUND",
                                 "hutch-keeper is neither beside hutchd nor in " HUTCH_LIBEXECDIR
                                 "; name it by native.keeper");

        r = channel_hub_new(&daemon->loop, &daemon->hub);
        if (r < 0)
                return r;

        return native_runtime_new(&daemon->loop, daemon->hub,
                                  &(NativeOptions){
                                          .state_folder = daemon->state,
                                          .keeper_program = keeper,
                                          .instance_id = daemon->instance_id,
                                          .uid_ranges = geteuid() == 0,
                                          .sources = &daemon->sources,
                                  },
                                  &daemon->runtimes[0], err);
}

static int make_control(Daemon *daemon, HutchError *err) {
        int r = control_new(&daemon->loop,
                            &(ControlOptions){
                                    .store = daemon->store,
                                    .codec = &api_codec,
                                    .runtimes = daemon->runtimes,
                                    .limits = control_limits(daemon->config),
                                    .instance_id = daemon->instance_id,
                                    .before_commit = before_commit,
                                    .user = daemon,
                            },
                            &daemon->control, err);

        if (r < 0)
                return r;

        daemon->api = api_new(&(ApiOptions){
                .loop = &daemon->loop,
                .control = daemon->control,
                .version = HUTCH_VERSION,
                .uid = geteuid(),
                .has_group = daemon->has_group,
                .group = daemon->group,
                .sources = &daemon->sources,
                .remote = remote_rules(&daemon->remote, daemon->config),
                .limits = api_limits(daemon->config),
        });
        return 0;
}

static int add_methods(Daemon *daemon) {
        static const char *const services[] = { "",
                                                "hutch.v1.AgentSandboxService",
                                                "hutch.v1.ExecService",
                                                "hutch.v1.SandboxExecService",
                                                "hutch.v1.FileService",
                                                "hutch.v1.SystemService" };
        int r;

        daemon->methods = method_table_new();
        daemon->health = health_new();
        daemon->reflection =
                daemon->methods ? reflection_new(daemon->methods, contract_files, contract_files_len) : NULL;
        if (!daemon->health || !daemon->reflection)
                return -ENOMEM;

        r = api_add_methods(daemon->api, daemon->methods);
        if (r == 0)
                r = health_add_methods(daemon->health, daemon->methods);
        if (r == 0)
                r = reflection_add_methods(daemon->reflection, daemon->methods);
        for (size_t i = 0; r == 0 && i < sizeof(services) / sizeof(services[0]); i++)
                r = health_set(daemon->health, services[i], true);
        return r;
}

static int make_server(Daemon *daemon, HutchError *err) {
        ServerOptions options = server_options_default;
        int r = add_methods(daemon);

        options.interceptors = api_interceptor(daemon->api);
        options.n_interceptors = 1;
        options.before_flush = before_flush;
        options.before_send = before_send;
        options.connection_failed = on_connection_failed;
        options.user = daemon;
        if (r == 0)
                r = server_new(&daemon->loop, daemon->methods, &options, &daemon->server);
        return r < 0 ? error_set(err, r, "HOST_EXHAUSTED", "cannot make a server: %s", strerror(-r)) : 0;
}

/* The folder of the socket: one that is not there is made, for those who may call. */
static int make_socket_folder(const Daemon *daemon, HutchError *err) {
        _cleanup_free_ char *folder = xstrdup(daemon->socket);
        char *slash = strrchr(folder, '/');
        int r;

        *slash = '\0';
        if (slash == folder || access(folder, F_OK) == 0)
                return 0;

        r = make_private_folder(folder, err);
        if (r == 0 && daemon->has_group && (chown(folder, (uid_t) -1, daemon->group) < 0 || chmod(folder, 0750) < 0))
                r = error_set(err, -errno, "FILE_PERMISSION", "cannot give %s to the group: %s", folder,
                              strerror(errno));
        return r;
}

static bool is_unix(int fd) {
        struct sockaddr_storage address = {};
        socklen_t len = sizeof(address);

        return getsockname(fd, (struct sockaddr *) &address, &len) == 0 && address.ss_family == AF_UNIX;
}

/* Takes a socket of the service manager's. */
static int adopt_socket(Daemon *daemon, int fd, HutchError *err) {
        if (!is_unix(fd) && !daemon->config->listen)
                return error_set(err, -EINVAL, "FIELD_INVALID",
                                 "the service manager gives a socket for TCP: configure listen.addresses instead");
        return server_listen_fd(daemon->server, fd, is_unix(fd) ? NULL : daemon->remote.tls, err);
}

static int listen_on_sockets(Daemon *daemon, HutchError *err) {
        size_t n = systemd_listen_fds();
        int r = remote_listen(&daemon->remote, daemon->config, daemon->server, err);

        for (size_t i = 0; r == 0 && i < n; i++)
                r = adopt_socket(daemon, SYSTEMD_FIRST_FD + (int) i, err);
        if (n > 0 || r < 0)
                return r;

        r = make_socket_folder(daemon, err);
        if (r == 0)
                r = server_listen_unix(daemon->server, daemon->socket, daemon->has_group ? 0660 : 0600, err);
        if (r == 0 && daemon->has_group && chown(daemon->socket, (uid_t) -1, daemon->group) < 0)
                r = error_set(err, -errno, "FILE_PERMISSION", "cannot give %s to the group: %s", daemon->socket,
                              strerror(errno));
        return r;
}

static void watch_signal(Daemon *daemon, uv_signal_t *handle, uv_signal_cb callback, int signal) {
        (void) uv_signal_init(&daemon->loop, handle);
        handle->data = daemon;
        (void) uv_signal_start(handle, callback, signal);
}

static void watch_signals(Daemon *daemon) {
        uint64_t interval = systemd_watchdog_interval() / NSEC_PER_MSEC;

        watch_signal(daemon, &daemon->terminate, on_terminate, SIGTERM);
        watch_signal(daemon, &daemon->interrupt, on_terminate, SIGINT);
        watch_signal(daemon, &daemon->reload, on_reload, SIGHUP);
        (void) uv_timer_init(&daemon->loop, &daemon->watchdog);
        if (interval > 0)
                (void) uv_timer_start(&daemon->watchdog, on_watchdog, interval, interval);
}

/* Everything, in the order in which one thing needs another. What a failed start leaves, the end of the process takes,
 * but for the runtime's cgroups: nothing runs yet but what ran before. */
static int begin(Daemon *daemon, HutchError *err) {
        int r;

        daemon->socket = path_of_socket(daemon->options->socket_flag, daemon->config->socket, err);
        if (!daemon->socket)
                return -EINVAL;

        r = find_group(daemon, err);
        if (r == 0)
                r = open_state(daemon, err);
        if (r == 0)
                r = remote_open(&daemon->remote, daemon->config, daemon->state, err);
        if (r == 0)
                make_source_rules(daemon);
        if (r == 0)
                r = make_runtime(daemon, err);
        if (r == 0)
                r = make_control(daemon, err);
        if (r == 0)
                r = make_server(daemon, err);
        if (r == 0)
                r = listen_on_sockets(daemon, err);
        return r;
}

int daemon_run(Config *config, DaemonOptions *options, HutchError *err) {
        Daemon *daemon = new0(Daemon, 1);
        int r;

        daemon->options = options;
        daemon->config = config;
        daemon->lock = -1;
        apply_log(config);
        (void) umask(077);
        (void) signal(SIGPIPE, SIG_IGN);
        (void) signal(SIGXFSZ, SIG_IGN); /* a write fails instead */
        raise_descriptor_limit();
        (void) uv_loop_init(&daemon->loop);
        r = begin(daemon, err);
        if (r < 0 && daemon->runtimes[0])
                native_runtime_free(daemon->runtimes[0], NULL, NULL);
        if (r < 0)
                return r;

        watch_signals(daemon);
        (void) uv_timer_init(&daemon->loop, &daemon->idle);
        daemon->idle.data = daemon;
        watch_use(daemon);
        log_info("serving", LOG_STR("version", HUTCH_VERSION), LOG_STR("socket", daemon->socket),
                 LOG_STR("state", daemon->state));
        (void) systemd_notify("READY=1");
        (void) uv_run(&daemon->loop, UV_RUN_DEFAULT);

        (void) uv_loop_close(&daemon->loop);
        (void) store_close(daemon->store);
        (void) reflection_free(daemon->reflection);
        (void) health_free(daemon->health);
        (void) method_table_free(daemon->methods);
        (void) fd_close(daemon->lock);
        free(daemon->socket);
        free(daemon->state);
        source_rules_clear(&daemon->sources);
        remote_close(&daemon->remote);
        free(daemon->instance_id);
        free(daemon);
        log_info("ended");
        return 0;
}
