/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: Landlock's system calls, and what its versions know of. What does not: who needs what. */

#include "keeper/box/landlock.h"

#include <errno.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "keeper/box/privileges.h"

/* What the headers of some hosts do not have yet. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (UINT64_C(1) << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (UINT64_C(1) << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (UINT64_C(1) << 15)
#endif
#ifndef LANDLOCK_ACCESS_FS_RESOLVE_UNIX
#define LANDLOCK_ACCESS_FS_RESOLVE_UNIX (UINT64_C(1) << 16)
#endif
#ifndef LANDLOCK_SCOPE_SIGNAL
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (UINT64_C(1) << 0)
#define LANDLOCK_SCOPE_SIGNAL (UINT64_C(1) << 1)
#endif

/* The first version that can allow renames from one folder to another, which it would forbid otherwise. */
#define VERSION_MIN 2
/* The first that can forbid to connect to sockets by their paths. Those from behind the wall are always allowed. */
#define VERSION_SOCKETS 9

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE (READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)

typedef struct Attributes {
        uint64_t files;
        uint64_t net;
        uint64_t scoped;
} Attributes;

static const uint64_t uses[] = {
        [LANDLOCK_USE_ALL] = ~LANDLOCK_ACCESS_FS_RESOLVE_UNIX,
        [LANDLOCK_USE_SOCKETS] = ~UINT64_C(0),
        [LANDLOCK_USE_FILES] = WRITE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE,
        [LANDLOCK_USE_FOLDERS] = WRITE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR,
        [LANDLOCK_USE_READ] = READ,
};

/* Everything that @version can forbid, but for the network, which sandboxes do not share with anybody. */
static Attributes attributes_of(int version) {
        uint64_t last = version >= VERSION_SOCKETS ? LANDLOCK_ACCESS_FS_RESOLVE_UNIX
                        : version >= 5             ? LANDLOCK_ACCESS_FS_IOCTL_DEV
                        : version >= 3             ? LANDLOCK_ACCESS_FS_TRUNCATE
                                                   : LANDLOCK_ACCESS_FS_REFER;
        return (Attributes){
                .files = last | (last - 1),
                .scoped = version >= 6 ? LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL : 0,
        };
}

static size_t attributes_size(int version) {
        return version >= 6 ? sizeof(Attributes) : offsetof(Attributes, net);
}

static int add_rule(int ruleset, const LandlockRule *rule, uint64_t known) {
        struct landlock_path_beneath_attr attr = { .allowed_access = uses[rule->use] & known,
                                                   .parent_fd = rule->folder };
        return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0 ? -errno : 0;
}

static int find_version(void) {
        int version = (int) syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        return IS_SANITIZED ? 0 : version;
}

bool landlock_knows_sockets(void) {
        return find_version() >= VERSION_SOCKETS;
}

int landlock_restrict(const LandlockRule *rules, size_t n_rules) {
        int version = find_version();
        if (version < VERSION_MIN)
                return 0;
        const Attributes attributes = attributes_of(version);
        _cleanup_close_ int ruleset =
                (int) syscall(SYS_landlock_create_ruleset, &attributes, attributes_size(version), 0);
        if (ruleset < 0)
                return -errno;
        for (size_t i = 0; i < n_rules; i++) {
                int r = rules[i].folder < 0 ? 0 : add_rule(ruleset, &rules[i], attributes.files);
                if (r < 0)
                        return r;
        }
        return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 1;
}
