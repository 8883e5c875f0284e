/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Packing and unpacking folders of this machine, with the caller's rights, for `hutch cp`: by the same code, with the
 * same care, as in a sandbox. Each returns the exit code, and says on stderr what went wrong. */

/* Writes a tar stream of @folder, an absolute path, to stdout. */
int local_pack(const char *folder) __attribute__((nonnull));

/* Unpacks a tar stream from stdin into @folder, an absolute path, which is made when it is missing. Files that are
 * there are replaced, or are an error. */
int local_unpack(const char *folder, int overwrite) __attribute__((nonnull));
