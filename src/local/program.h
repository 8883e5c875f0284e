/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the programs of one installation find each other. */

/* The path of the program @name: beside the one that runs, as in the folder that everything is built in, or else in
 * @installed, the folder that it is installed in. NULL, with errno, when it is in neither. The caller frees it. */
char *program_find(const char *name, const char *installed) __attribute__((nonnull));
