/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the command line, what the keeper was given by hutchd, and the loop. What does not: everything that
 * is done in it. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "keeper/box/privileges.h"
#include "keeper/box/rootless.h"
#include "keeper/config.h"
#include "keeper/keeper/keeper.h"
#include "keeper/keeper/nest.h"
#include "keeper/keeper/service.h"
#include "keeper/loop.h"
#include "keeper/root/remove.h"
#include "keeper/root/shared-sys.h"
#include "keeper/worker/file-local.h"
#include "model/reason.h"
#include "rpc/server.h"

#define CONFIG_FD 3 /* a sealed memfd */
#define SOCKET_FD 4 /* listens */

#define FAILED_FOR_SECONDS 30    /* that a keeper without a sandbox waits for somebody who asks why */
#define DRAIN_GRACE NSEC_PER_SEC /* for the last answers */

typedef struct Program {
        uv_loop_t loop;
        Keeper keeper;
        Service *service;
        Server *server;
        Alarm *failed_alarm;
        unsigned lonely_seconds;
        uid_t daemon_uid; /* who started it */
        Interceptor interceptor;
} Program;

static void on_failed_alarm(void *user);

static void on_changed(void *user) {
        Program *program = user;

        service_keeper_changed(program->service);
        if (program->keeper.state == KEEPER_FAILED && !program->keeper.sandbox && !program->failed_alarm) {
                program->failed_alarm = alarm_new(&program->loop, on_failed_alarm, program);
                alarm_set(program->failed_alarm, NSEC_PER_SEC);
        }
}

static void on_limit_hit(const char *limit, uint64_t count, const char *exec_id, void *user) {
        service_limit_hit(((Program *) user)->service, limit, count, exec_id);
}

static void on_disk_full(const char *limit, void *user) {
        service_disk_full(((Program *) user)->service, limit);
}

static void on_drained(void *user) {
        uv_stop(&((Program *) user)->loop);
}

static void on_gone(void *user) {
        Program *program = user;

        service_keeper_gone(program->service);
        server_drain(program->server, DRAIN_GRACE, on_drained, program);
}

/* Nobody but who started the keeper may ask it for anything. */
static int check_peer(Call *call, void *context, HutchError *err) {
        const Peer *peer = call_peer(call);
        const Program *program = context;

        if (peer->has_credentials && peer->uid == program->daemon_uid)
                return 0;

        return reason_set(err, -EACCES, REASON_CALLER_NOT_ALLOWED, "the keeper answers to its daemon only");
}

static void on_failed_alarm(void *user) {
        Program *program = user;

        program->lonely_seconds = server_stats(program->server).connections > 0 ? 0 : program->lonely_seconds + 1;
        if (program->lonely_seconds >= FAILED_FOR_SECONDS)
                keeper_stop(&program->keeper, 0);
        else
                alarm_set(program->failed_alarm, NSEC_PER_SEC);
}

static int start_server(Program *program, HutchError *err) {
        ServerOptions options = server_options_default;
        MethodTable *methods = method_table_new();
        int r = methods ? service_add_methods(program->service, methods) : -ENOMEM;

        program->interceptor = (Interceptor){ .begin = check_peer, .context = program };
        options.interceptors = &program->interceptor;
        options.n_interceptors = 1;
        options.max_connections = 16;
        if (r >= 0)
                r = server_new(&program->loop, methods, &options, &program->server);
        if (r < 0)
                return reason_set(err, r, reason_from_errno(r), "cannot make a server: %s", strerror(-r));

        /* The daemon listens already; who listens last is whom the kernel names to those that connect. */
        if (listen(SOCKET_FD, SOMAXCONN) < 0)
                return reason_set(err, -errno, reason_from_errno(-errno), "cannot listen: %s", strerror(errno));

        return server_listen_fd(program->server, SOCKET_FD, NULL, err);
}

static int program_run(Program *program, HutchError *err) {
        _cleanup_(keeper_config_freep) KeeperConfig *config = NULL;
        const KeeperEvents events = {
                .changed = on_changed,
                .limit_hit = on_limit_hit,
                .disk_full = on_disk_full,
                .gone = on_gone,
                .user = program,
        };
        int r;

        program->daemon_uid = geteuid();
        r = keeper_config_read(CONFIG_FD, &config, err);
        if (r < 0)
                return r;

        (void) close(CONFIG_FD);
        (void) close_range(SOURCES_FD + (unsigned) config->n_sources, ~0U, 0);
        rootless_settle(config);
        r = keyring_leave();
        if (r < 0)
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "cannot make a keyring: %s", strerror(-r));
        r = uv_loop_init(&program->loop);
        if (r < 0)
                return reason_set(err, r, REASON_HOST_EXHAUSTED, "cannot make a loop: %s", uv_strerror(r));
        r = keeper_init(&program->keeper, &program->loop, config, &events, err);
        if (r < 0)
                return r;

        program->service = service_new(&program->keeper);
        r = start_server(program, err);
        if (r < 0)
                return r;

        keeper_build(&program->keeper);
        keeper_config_close_sources(config);
        shared_sys_close();
        (void) uv_run(&program->loop, UV_RUN_DEFAULT);
        return 0;
}

/* The keeper ends when it is told to by Shutdown, or is killed. */
static void prepare_process(void) {
        static const int ignored[] = { SIGPIPE, SIGXFSZ, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
        const struct rlimit no_core = {};

        for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
                (void) signal(ignored[i], SIG_IGN);
        (void) setrlimit(RLIMIT_CORE, &no_core);
        (void) umask(022);
        (void) !chdir("/");
        (void) fcntl(CONFIG_FD, F_SETFD, FD_CLOEXEC);
        (void) fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
        (void) close_range(SOURCES_FD, ~0U, CLOSE_RANGE_CLOEXEC);
}

static int keep(void) {
        static Program program;
        _cleanup_(error_clear) HutchError err = {};
        int r;

        prepare_process();
        r = program_run(&program, &err);
        if (r < 0)
                log_error("the keeper cannot start", LOG_STR("reason", err.reason),
                          LOG_STR("error", error_message(&err)));
        return r < 0;
}

/* What belongs to subordinate ids can only be removed where they are mapped. */
static void map_subordinate_ids(char *argv[]) {
        _cleanup_(error_clear) HutchError err = {};
        IdMap map = { .newuidmap = argv[0], .newgidmap = argv[1] };

        if (id_ranges_parse(argv[2], &map.uids) < 0 || id_ranges_parse(argv[3], &map.gids) < 0)
                log_warning("subordinate ids cannot be read", LOG_STR("uids", argv[2]), LOG_STR("gids", argv[3]));
        else if (id_map_enter(&map, &err) < 0)
                log_warning("subordinate ids cannot be mapped", LOG_STR("error", error_message(&err)));
}

static int remove_folder(const char *path) {
        _cleanup_(error_clear) HutchError err = {};
        int r = folder_remove(path, &err);

        if (r < 0)
                log_error("cannot remove a folder", LOG_STR("folder", path), LOG_STR("error", error_message(&err)));
        return r < 0;
}

static const char usage[] = "hutch-keeper keeps one sandbox. hutchd starts it.\n"
                            "\n"
                            "  hutch-keeper                 keep the sandbox that descriptor 3 describes, listen on 4\n"
                            "  hutch-keeper nest            fork what is asked for over the socket 3: any of these\n"
                            "  hutch-keeper remove FOLDER [NEWUIDMAP NEWGIDMAP UIDS GIDS]\n"
                            "                               remove a folder that a sandbox has filled, and what in it\n"
                            "                               belongs to subordinate ids, given as FIRST:COUNT,…\n"
                            "  hutch-keeper pack FOLDER     write a tar stream of a folder of this machine\n"
                            "  hutch-keeper unpack FOLDER [overwrite]\n"
                            "                               unpack a tar stream into one\n"
                            "  hutch-keeper --version       print the version\n"
                            "  hutch-keeper --help          print this\n";

int main(int argc, char *argv[]) {
        /* It was executed by the number of a descriptor. */
        (void) prctl(PR_SET_NAME, "hutch-keeper", 0, 0, 0);
        if (argc == 2 && str_equal(argv[1], "nest") && !nest_wait(&argc, &argv))
                return 0;
        if (argc == 1)
                return keep();
        if ((argc == 3 || argc == 7) && str_equal(argv[1], "remove")) {
                if (argc == 7)
                        map_subordinate_ids(argv + 3);
                return remove_folder(argv[2]);
        }
        if (argc == 3 && str_equal(argv[1], "pack"))
                return local_pack(argv[2]);
        if ((argc == 3 || (argc == 4 && str_equal(argv[3], "overwrite"))) && str_equal(argv[1], "unpack"))
                return local_unpack(argv[2], argc == 4);
        if (argc == 2 && str_equal(argv[1], "--version"))
                return printf("hutch-keeper %s\n", HUTCH_VERSION) < 0;
        if (argc == 2 && str_equal(argv[1], "--help"))
                return fputs(usage, stdout) < 0;

        (void) fputs(usage, stderr);
        return 2;
}
