/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a hutch-keeper that has one wall less, to see what the wall costs. What does not: the walls.
 *
 *         #!/path/of/keeper-without WALL:/path/of/hutch-keeper
 *
 * is the whole of a program for hutchd's `native.keeper`. It changes the configuration that hutchd hands over, and
 * becomes the keeper. */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "rpc/core/protobuf.h"

#define CONFIG_FD 3
#define CONFIG_MAX ((size_t) 4 << 20)

typedef Hutch__Keeper__V1__KeeperConfig Config;

/* Has the kernel say that it knows no Landlock. */
static int hide_landlock(void) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

static void drop_limits(Config *config) {
        Hutch__Keeper__V1__KeeperControllers *controllers = config->controllers;

        if (controllers) {
                free(controllers->cpu);
                free(controllers->memory);
                free(controllers->pids);
                controllers->cpu = controllers->memory = controllers->pids = (char *) protobuf_c_empty_string;
        }
        if (config->limits) {
                config->limits->memory_bytes = config->limits->disk_bytes = config->limits->disk_inodes = 0;
                config->limits->cpu_millis = config->limits->cpu_weight = config->limits->max_processes = 0;
        }
}

static int take_wall(const char *wall, Config *config) {
        bool all = str_equal(wall, "all");

        if (all || str_equal(wall, "seccomp"))
                config->seccomp_filter.len = config->entered_filter.len = 0;
        if (all || str_equal(wall, "keeper-filter"))
                config->keeper_filter.len = 0;
        if (all || str_equal(wall, "limits"))
                drop_limits(config);
        return all || str_equal(wall, "landlock") ? hide_landlock() : 0;
}

/* Makes a sealed copy of @bytes the configuration. */
static int replace_config(const uint8_t *bytes, size_t len) {
        _cleanup_close_ int fd = memfd_create("hutch-keeper", MFD_ALLOW_SEALING | MFD_CLOEXEC);

        if (fd < 0 || fd_write_all(fd, bytes, len) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
                return -errno;
        return dup2(fd, CONFIG_FD) < 0 ? -errno : 0;
}

/* Puts another configuration in the place of the one that came. */
static int change_config(const char *wall) {
        static uint8_t bytes[CONFIG_MAX];
        uint8_t *changed = NULL;
        ProtobufCMessage *config = NULL;
        ssize_t n = pread(CONFIG_FD, bytes, sizeof(bytes), 0);
        size_t len = 0;
        int r;

        if (n < 0)
                return -errno;
        r = protobuf_unpack(&hutch__keeper__v1__keeper_config__descriptor, bytes, (size_t) n, 4 * CONFIG_MAX, &config);
        if (r == 0)
                r = take_wall(wall, (Config *) config);
        if (r == 0)
                r = protobuf_pack(config, &changed, &len);
        return r < 0 ? r : replace_config(changed, len); /* the keeper takes the place of what is not freed */
}

int main(int argc, char *argv[]) {
        static char name[] = "hutch-keeper";
        char *keeper = argc > 2 ? strchr(argv[1], ':') : NULL;
        int r = 0;

        if (!keeper) {
                (void) fprintf(stderr, "usage: #!keeper-without WALL:KEEPER\n");
                return 2;
        }
        *keeper++ = '\0';
        if (argc == 3)
                r = change_config(argv[1]);
        if (r < 0) {
                (void) fprintf(stderr, "keeper-without: %s\n", strerror(-r));
                return 1;
        }

        argv[2] = name;
        (void) execv(keeper, argv + 2);
        return 127;
}
