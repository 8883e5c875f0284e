/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

typedef struct HutchError HutchError;

/* Ids: how sandboxes, execs, named objects and requests may be called. All are compared byte by byte.
 *
 *   id          4 to 200 of  A-Z a-z 0-9 _ -    begins and ends with a letter or digit
 *   name        1 to 63 of   a-z 0-9 -          begins and ends with a letter or digit
 *   request id  1 to 128 of  A-Z a-z 0-9 - _ . : */

#define ID_LEN_MIN 4
#define ID_LEN_MAX 200
#define NAME_LEN_MAX 63
#define REQUEST_ID_LEN_MAX 128

/* Each checks the @len bytes at @text, and fails with -EINVAL. */

/* The id of a sandbox or exec; else ID_MALFORMED. */
int id_check(const char *text, size_t len, HutchError *err);

/* The name of a snapshot, provider, service, secret, companion or profile; else NAME_MALFORMED. */
int name_check(const char *text, size_t len, HutchError *err);

/* A request id; else REQUEST_ID_MALFORMED. */
int request_id_check(const char *text, size_t len, HutchError *err);
