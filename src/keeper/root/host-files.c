/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: which files of the host are seen in a sandbox, and finding those that there are. What does not: how
 * they get there. */

#include "keeper/root/host-files.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "host/overlay-try.h"

static const char *const known[] = {
        HOST_PROGRAM_FOLDERS, "etc/alternatives",    "etc/crypto-policies", "etc/fonts",      "etc/ld.so.cache",
        "etc/ld.so.conf",     "etc/ld.so.conf.d",    "etc/localtime",       "etc/mime.types", "etc/os-release",
        "etc/pki/ca-trust",   "etc/pki/java",        "etc/pki/tls/certs",   "etc/protocols",  "etc/services",
        "etc/ssl/certs",      "etc/ssl/openssl.cnf",
};

#define N_KNOWN (sizeof(known) / sizeof(known[0]))
#define JVM_FOLDER "/usr/lib/jvm"
#define JAVA_PREFIX "java-"
#define JAVAS_MAX 16

static bool is_in_usr(const char *link_target) {
        return str_has_prefix(link_target, "usr/") || str_has_prefix(link_target, "../usr/") ||
               str_has_prefix(link_target, "/usr/");
}

/* Looks whether the host has @path, and as what. */
static bool find(const char *path, HostFile *ret_file) {
        char host_path[PATH_MAX], target[PATH_MAX];
        struct stat st;
        (void) snprintf(host_path, sizeof(host_path), "/%s", path);
        if (lstat(host_path, &st) < 0)
                return false;

        HostFile file = {};
        if (S_ISLNK(st.st_mode)) {
                ssize_t n = readlink(host_path, target, sizeof(target) - 1);
                if (n < 0)
                        return false;
                target[n] = '\0';
                if (!is_in_usr(target) && stat(host_path, &st) < 0)
                        return false;
        }
        if (S_ISLNK(st.st_mode))
                file = (HostFile){ .kind = HOST_FILE_LINKED, .link_target = xstrdup(target) };
        else if (S_ISDIR(st.st_mode))
                file.kind = HOST_FILE_FOLDER;
        else if (S_ISREG(st.st_mode))
                file = (HostFile){ .kind = HOST_FILE_COPIED, .changed = st.st_mtim };
        else
                return false;
        file.path = xstrdup(path);
        *ret_file = file;
        return true;
}

typedef DIR *DirPointer;
DEFINE_CLEANUP(DirPointer, closedir);

/* The JDK in JVM_FOLDER/java-17-openjdk-amd64 has links to /etc/java-17-openjdk. */
static size_t find_javas(HostFile *ret_files, size_t max) {
        size_t n = 0;
        _cleanup_(closedirp) DIR *jvm = opendir(JVM_FOLDER);
        for (const struct dirent *entry; jvm && n < max && (entry = readdir(jvm));) {
                const char *end = strrchr(entry->d_name, '-');
                if (!end || !str_has_prefix(entry->d_name, JAVA_PREFIX))
                        continue;
                char path[NAME_MAX + sizeof("etc/")];
                (void) snprintf(path, sizeof(path), "etc/%.*s", (int) (end - entry->d_name), entry->d_name);
                n += find(path, ret_files + n);
        }
        return n;
}

HostFile *host_files_find(void) {
        HostFile *files = new0(HostFile, N_KNOWN + JAVAS_MAX + 1);
        size_t n = 0;
        for (size_t i = 0; i < N_KNOWN; i++)
                n += find(known[i], files + n);
        (void) find_javas(files + n, JAVAS_MAX);
        return files;
}

HostFile *host_files_free(HostFile *files) {
        if (!files)
                return NULL;
        for (HostFile *file = files; file->path; file++) {
                free(file->path);
                free(file->link_target);
        }
        free(files);
        return NULL;
}
