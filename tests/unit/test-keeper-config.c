/* SPDX-License-Identifier: Apache-2.0 */

#include "keeper/config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "rpc/core/protobuf.h"
#include "test.h"

typedef Hutch__Keeper__V1__KeeperConfig Message;

#define ALL_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static Message good_message(void) {
        Message message = HUTCH__KEEPER__V1__KEEPER_CONFIG__INIT;
        message.sandbox_id = (char *) "sbx-1";
        message.state_folder = (char *) "/var/lib/hutch/sandboxes/sbx-1";
        message.cgroup = (char *) "/sys/fs/cgroup/hutch-1/sbx-1";
        message.workspace = (char *) "/workspace";
        message.uid_base = 0x70000000;
        message.uid_count = 65536;
        return message;
}

static int memfd_of(const void *bytes, size_t len, int seals) {
        int fd = memfd_create("config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, bytes, len), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

static int read_message(const Message *message, int seals, KeeperConfig **ret_config) {
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t len;
        assert_int_equal(protobuf_pack(&message->base, &bytes, &len), 0);
        _cleanup_close_ int fd = memfd_of(bytes, len, seals);
        _cleanup_(error_clear) HutchError err = {};
        int r = keeper_config_read(fd, ret_config, &err);
        assert_int_equal(err.error, -r);
        return r;
}

static void assert_refused(const Message *message) {
        KeeperConfig *config;
        assert_int_equal(read_message(message, ALL_SEALS, &config), -EINVAL);
}

static void all_fields_are_read(void **state) {
        Message message = good_message();
        Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
        timeout.seconds = 2;
        timeout.nanos = 5;
        Hutch__Keeper__V1__KeeperLimits limits = HUTCH__KEEPER__V1__KEEPER_LIMITS__INIT;
        limits.tmp_bytes = 4096;
        limits.max_open_files = 77;
        limits.memory_bytes = UINT64_C(5) << 30;
        limits.cpu_millis = 250;
        limits.cpu_weight = 300;
        limits.max_processes = 20;
        limits.read_only_root = limits.tmp_noexec = true;
        Hutch__Keeper__V1__KeeperControllers controllers = HUTCH__KEEPER__V1__KEEPER_CONTROLLERS__INIT;
        controllers.cpu = message.cgroup;
        controllers.pids = (char *) "/sys/fs/cgroup/pids/hutch-1/sbx-1";
        message.controllers = &controllers;
        message.start_timeout = &timeout;
        message.limits = &limits;
        struct sock_filter filter[] = { { .code = 1, .k = 2 }, { .code = 6, .k = 3 } };
        message.seccomp_filter.data = (uint8_t *) filter;
        message.seccomp_filter.len = sizeof(filter);
        message.keeper_filter.data = (uint8_t *) filter;
        message.keeper_filter.len = sizeof(filter[0]);

        _cleanup_(keeper_config_freep) KeeperConfig *config = NULL;
        assert_int_equal(read_message(&message, ALL_SEALS, &config), 0);
        assert_string_equal(config->sandbox_id, "sbx-1");
        assert_string_equal(config->state_folder, "/var/lib/hutch/sandboxes/sbx-1");
        assert_string_equal(config->image_folder, "/var/lib/hutch/images");
        assert_string_equal(config->cgroup, "/sys/fs/cgroup/hutch-1/sbx-1");
        assert_string_equal(config->workspace, "/workspace");
        assert_int_equal(config->uid_base, 0x70000000);
        assert_int_equal(config->uid_count, 65535);
        assert_int_equal(config->keeper_id, config->uid_base + 65535);
        assert_int_equal(config->start_timeout, 2 * NSEC_PER_SEC + 5);
        assert_int_equal(config->tmp_bytes, 4096);
        assert_int_equal(config->max_open_files, 77);
        assert_int_equal(config->memory_bytes, UINT64_C(5) << 30);
        assert_int_equal(config->cpu_millis, 250);
        assert_int_equal(config->cpu_weight, 300);
        assert_int_equal(config->max_processes, 20);
        assert_string_equal(config->controllers[CONTROLLER_CPU], config->cgroup);
        assert_null(config->controllers[CONTROLLER_MEMORY]);
        assert_string_equal(config->controllers[CONTROLLER_PIDS], "/sys/fs/cgroup/pids/hutch-1/sbx-1");
        assert_true(config->read_only_root);
        assert_true(config->tmp_noexec);
        assert_int_equal(config->filter.len, 2);
        assert_memory_equal(config->filter.instructions, filter, sizeof(filter));
        assert_int_equal(config->keeper_filter.len, 1);
        assert_memory_equal(config->keeper_filter.instructions, filter, sizeof(filter[0]));
}

static void what_is_left_out_has_defaults(void **state) {
        Message message = good_message();
        message.cgroup = (char *) "";
        _cleanup_(keeper_config_freep) KeeperConfig *config = NULL;
        assert_int_equal(read_message(&message, ALL_SEALS, &config), 0);
        assert_null(config->cgroup);
        assert_true(config->start_timeout > 0);
        assert_int_equal(config->max_open_files, 0);
        assert_null(config->filter.instructions);
        assert_null(config->keeper_filter.instructions);
}

static void what_cannot_be_a_filter_is_refused(void **state) {
        Message message = good_message();
        _cleanup_free_ uint8_t *bytes = new0(uint8_t, (BPF_MAXINSNS + 1) * sizeof(struct sock_filter));
        message.seccomp_filter.data = bytes;
        message.seccomp_filter.len = sizeof(struct sock_filter) + 1;
        assert_refused(&message);
        message.seccomp_filter.len = (BPF_MAXINSNS + 1) * sizeof(struct sock_filter);
        assert_refused(&message);
}

static void what_is_not_sealed_is_refused(void **state) {
        static const int seals[] = { F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE };
        Message message = good_message();
        KeeperConfig *config;
        for (size_t i = 0; i < sizeof(seals) / sizeof(seals[0]); i++)
                assert_int_equal(read_message(&message, ALL_SEALS & ~seals[i], &config), -EINVAL);

        _cleanup_close_ int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(keeper_config_read(file, &config, NULL) < 0);
        assert_int_equal(keeper_config_read(-1, &config, NULL), -EBADF);
}

static void what_is_no_message_is_refused(void **state) {
        KeeperConfig *config;
        _cleanup_close_ int empty = memfd_of("", 0, ALL_SEALS), junk = memfd_of("\xff\xff\xff", 3, ALL_SEALS);
        assert_int_equal(keeper_config_read(empty, &config, NULL), -EINVAL);
        assert_int_equal(keeper_config_read(junk, &config, NULL), -EBADMSG);

        _cleanup_free_ char *bytes = new0(char, KEEPER_CONFIG_SIZE_MAX + 1);
        _cleanup_close_ int large = memfd_of(bytes, KEEPER_CONFIG_SIZE_MAX + 1, ALL_SEALS);
        assert_int_equal(keeper_config_read(large, &config, NULL), -EINVAL);
}

static void paths_are_absolute_and_plain(void **state) {
        static const char *const paths[] = {
                "x", "x/y", "/", "//x", "/x/", "/x//y", "/./x", "/x/.", "/x/../y", "/..",
        };
        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
                Message state_folder = good_message(), cgroup = good_message(), workspace = good_message();
                state_folder.state_folder = cgroup.cgroup = workspace.workspace = (char *) paths[i];
                assert_refused(&state_folder);
                assert_refused(&cgroup);
                assert_refused(&workspace);
        }
        Message message = good_message();
        message.state_folder = message.workspace = (char *) "";
        assert_refused(&message);
        message = good_message();
        message.workspace = (char *) "/home/agent/..x/.y";
        _cleanup_(keeper_config_freep) KeeperConfig *config = NULL;
        assert_int_equal(read_message(&message, ALL_SEALS, &config), 0);
}

static void ids_are_names(void **state) {
        Message message = good_message();
        message.sandbox_id = (char *) "";
        assert_refused(&message);
        message.sandbox_id = (char *) "a/b";
        assert_refused(&message);
        char id[202];
        memset(id, 'x', sizeof(id));
        id[201] = '\0';
        message.sandbox_id = id;
        assert_refused(&message);
}

static void uid_ranges_never_hold_the_hosts_users(void **state) {
        static const uint32_t ranges[][2] = {
                { 0, 65536 },
                { 0, 1 },
                { 0x70000000, 0 },
                { 0x70000000, 2 },
                { 0x70000000, 1 },
                { UINT32_MAX, 65536 },
                { UINT32_MAX - 65535, 65536 },
        };
        for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
                Message message = good_message();
                message.uid_base = ranges[i][0];
                message.uid_count = ranges[i][1];
                assert_refused(&message);
        }
}

/* For keepers of an ordinary user only: root's have a range, and are nobody inside. */
static void subordinate_ids_come_behind_the_users_own(void **state) {
        Message message = good_message();
        Hutch__Keeper__V1__KeeperSubordinateIds ids = HUTCH__KEEPER__V1__KEEPER_SUBORDINATE_IDS__INIT;
        uid_t before = geteuid();
        message.subordinate_ids = &ids;
        message.uid_base = 54321;
        ids.first_uid = 100000;
        ids.first_gid = 200000;
        ids.count = 65535;
        ids.newuidmap = (char *) "/usr/bin/newuidmap";
        assert_refused(&message);
        if (before != 0)
                skip();

        assert_int_equal(seteuid(54321), 0);
        _cleanup_(keeper_config_freep) KeeperConfig *config = NULL;
        assert_int_equal(read_message(&message, ALL_SEALS, &config), 0);
        assert_true(keeper_config_is_rootless(config));
        assert_int_equal(config->uid_count, 65536);
        assert_int_equal(config->subordinate_ids.uids.list[0].first, 100000);
        assert_int_equal(config->subordinate_ids.gids.list[0].first, 200000);
        assert_string_equal(config->subordinate_ids.newuidmap, "/usr/bin/newuidmap");
        assert_null(config->subordinate_ids.newgidmap);

        static const uint32_t wrong[][4] = {
                { 0, 1, 65535, 65536 },
                { 1, 0, 65535, 65536 },
                { 1, 1, 65534, 65536 },
                { 1, 1, 65535, 65535 },
                { 1, 1, 65536, 65536 },
                { 1, 1, 0, 65536 },
                { UINT32_MAX - 5, 1, 65535, 65536 },
                { 1, UINT32_MAX, 65535, 65536 },
        };
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                ids.first_uid = wrong[i][0];
                ids.first_gid = wrong[i][1];
                ids.count = wrong[i][2];
                message.uid_count = wrong[i][3];
                assert_refused(&message);
        }
        ids.count = 0;
        message.uid_count = 1;
        ids.newuidmap = (char *) "newuidmap";
        assert_refused(&message);
        assert_int_equal(seteuid(before), 0);
}

static void what_cannot_be_done_is_refused(void **state) {
        Message message = good_message();
        char *layers[] = { (char *) "/x" };
        message.n_layers = 1;
        message.layers = layers;
        KeeperConfig *config;
        assert_int_equal(read_message(&message, ALL_SEALS, &config), -EOPNOTSUPP);

        message = good_message();
        Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
        timeout.seconds = -1;
        message.start_timeout = &timeout;
        assert_refused(&message);
        timeout.seconds = INT64_MAX;
        assert_refused(&message);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_fields_are_read),
                cmocka_unit_test(what_is_left_out_has_defaults),
                cmocka_unit_test(what_is_not_sealed_is_refused),
                cmocka_unit_test(what_cannot_be_a_filter_is_refused),
                cmocka_unit_test(what_is_no_message_is_refused),
                cmocka_unit_test(paths_are_absolute_and_plain),
                cmocka_unit_test(ids_are_names),
                cmocka_unit_test(uid_ranges_never_hold_the_hosts_users),
                cmocka_unit_test(subordinate_ids_come_behind_the_users_own),
                cmocka_unit_test(what_cannot_be_done_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
