/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* Request ids: what makes a call repeatable. */

#define REQUEST_ID_SIZE 33 /* bytes of one that is made here, with its NUL */

/* Makes one that nobody has had. -EIO: there are no random numbers. */
int request_id_make(char ret_id[static REQUEST_ID_SIZE]);

/* Makes the id of an exec, as the daemon does. -EIO. */
#define EXEC_ID_SIZE 24
int exec_id_make(char ret_id[static EXEC_ID_SIZE]);

/* Gives an encoded message a request id in its field @field, if it has none: 1, and @ret_bytes is the new message,
 * which the caller frees. 0: it has one, or is no message. -ENOMEM, -EIO. */
int request_id_add(const ProtobufCFieldDescriptor *field, const uint8_t *bytes, size_t len, uint8_t **ret_bytes,
                   size_t *ret_len) __attribute__((nonnull(1, 4, 5)));
