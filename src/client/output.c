/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: output that is handed out in one piece, and how a stream is collected into it. What does not: the
 * calls that it comes from (exec.c, once.c). */

#include "client/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/views.h"

/* Puts a NUL behind @bytes, which belong to a message. */
static int terminate(ProtobufCBinaryData *bytes) {
        uint8_t *data = realloc(bytes->data, bytes->len + 1);

        if (!data)
                return -ENOMEM;

        data[bytes->len] = '\0';
        bytes->data = data;
        return 0;
}

int output_new(Hutch__V1__RunCommandResponse *reply, HutchOutput **ret_output) {
        HutchOutput *output = try_new0(HutchOutput, 1);
        int r = output ? 0 : -ENOMEM;

        if (r == 0)
                r = terminate(&reply->stdout);
        if (r == 0)
                r = terminate(&reply->stderr);
        if (r < 0) {
                (void) protobuf_free(&reply->base);
                free(output);
                return r;
        }

        output->stdout_data = (const char *) reply->stdout.data;
        output->stdout_len = reply->stdout.len;
        output->stderr_data = (const char *) reply->stderr.data;
        output->stderr_len = reply->stderr.len;
        output->truncated = (reply->stdout_summary && reply->stdout_summary->truncated) ||
                            (reply->stderr_summary && reply->stderr_summary->truncated);
        r = exec_view_new(&reply->base, reply->exec, &output->exec);
        if (r < 0) {
                free(output);
                return r;
        }

        *ret_output = output;
        return 0;
}

void hutch_output_free(HutchOutput *output) {
        if (!output)
                return;

        hutch_exec_free(output->exec);
        free(output);
}

/* Keeps the first half of the limit, and of the rest the last. */
static void drop_middle(Collector *collector) {
        size_t head = collector->limit - collector->limit / 2, tail = collector->limit / 2;

        memmove(collector->data + head, collector->data + collector->len - tail, tail);
        collector->len = head + tail;
}

int collector_add(Collector *collector, const void *data, size_t len) {
        if (len == 0)
                return 0;

        /* Twice the limit, so that what is kept is not moved for each piece that comes. */
        if (collector->len > collector->limit && collector->len + len > 2 * collector->limit)
                drop_middle(collector);
        if (collector->len + len > collector->size) {
                size_t size = 2 * (collector->len + len);
                uint8_t *larger = realloc(collector->data, size);

                if (!larger)
                        return -ENOMEM;
                collector->data = larger;
                collector->size = size;
        }
        memcpy(collector->data + collector->len, data, len);
        collector->len += len;
        return 0;
}

void collector_end(Collector *collector) {
        if (collector->len > collector->limit)
                drop_middle(collector);
}

void collector_clear(Collector *collector) {
        free(collector->data);
        collector->data = NULL;
}
