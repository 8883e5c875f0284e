/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: commands about the daemon, snapshots and images, and calls of any method. For all of them libhutch
 * has its calls by name. */

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "driver.h"
#include "pbtext/pbtext.h"

/* Makes a call with one message each way. @request is JSON. */
static int call(Command *command, const char *method, const json_t *request, json_t **ret_reply,
                HutchError **ret_error) {
        const ProtobufCMessageDescriptor *request_type, *reply_type;
        HutchBuffer reply = { 0 };
        Bytes bytes;
        int r;

        if (!hutch_method_descriptors(method, &request_type, &reply_type))
                return -EINVAL;

        bytes = encode_value(command, request, request_type);
        r = hutch_call_unary(command->client, method, bytes.data, bytes.len, 0, &reply, ret_error);
        if (r >= 0)
                *ret_reply = decode_value(reply_type, reply.data, reply.len);
        hutch_buffer_clear(&reply);
        return r;
}

/* The same, and answers with the field @name of the reply, or, NULL, with all of it. */
static int call_for(Command *command, const char *method, const char *name, json_t *ok, HutchError **ret_error) {
        json_t *reply = NULL;
        int r = call(command, method, command->args, &reply, ret_error);

        if (r >= 0 && name)
                json_object_set(ok, name, json_object_get(reply, name));
        json_decref(reply);
        return r;
}

static int ping(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "SystemService/Ping", NULL, ok, ret_error);
}

static int info(Command *command, json_t *ok, HutchError **ret_error) {
        json_t *reply = NULL;
        int r = call(command, "SystemService/GetInfo", command->args, &reply, ret_error);

        json_object_set_new(ok, "info", reply);
        return r;
}

static int create_snapshot(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "AgentSandboxService/CreateSnapshot", "snapshot", ok, ret_error);
}

static int list_snapshots(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "AgentSandboxService/ListSnapshots", "snapshots", ok, ret_error);
}

static int delete_snapshot(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "AgentSandboxService/DeleteSnapshot", NULL, ok, ret_error);
}

static int list_images(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "ImageService/ListImages", "images", ok, ret_error);
}

static int remove_image(Command *command, json_t *ok, HutchError **ret_error) {
        return call_for(command, "ImageService/RemoveImage", NULL, ok, ret_error);
}

/* Makes a call that streams, and answers with the field "image" of its last message. */
static int stream_for_image(Command *command, const char *method, const json_t *const *requests, json_t *ok,
                            HutchError **ret_error) {
        const ProtobufCMessageDescriptor *request_type, *reply_type;
        HutchBuffer reply = { 0 };
        HutchCall *started = NULL;
        int r = hutch_method_descriptors(method, &request_type, &reply_type) ? 0 : -EINVAL;

        if (r == 0)
                r = hutch_call_new(command->client, method, 0, NULL, &started, ret_error);
        for (; r == 0 && *requests; requests++) {
                Bytes bytes = encode_value(command, *requests, request_type);

                r = hutch_call_send(started, true, bytes.data, bytes.len, ret_error);
        }
        if (r == 0 || r == -EPIPE) {
                hutch_call_end(started);
                while ((r = hutch_call_receive(started, true, &reply, ret_error)) == 1) {
                        json_t *value = decode_value(reply_type, reply.data, reply.len);

                        if (json_object_get(value, "image"))
                                json_object_set(ok, "image", json_object_get(value, "image"));
                        json_decref(value);
                        hutch_buffer_clear(&reply);
                }
        }
        hutch_call_free(started);
        return r;
}

static int import_image(Command *command, json_t *ok, HutchError **ret_error) {
        json_t *header = json_pack("{s:{s:s}}", "header", "name", arg_text(command, "name"));
        json_t *data = json_pack("{s:s}", "data", arg_text(command, "data"));
        const json_t *const requests[] = { header, data, NULL };
        int r = stream_for_image(command, "ImageService/ImportImage", requests, ok, ret_error);

        json_decref(header);
        json_decref(data);
        return r;
}

static int pull_image(Command *command, json_t *ok, HutchError **ret_error) {
        const json_t *const requests[] = { command->args, NULL };

        return stream_for_image(command, "ImageService/PullImage", requests, ok, ret_error);
}

static int raw_call(Command *command, json_t *ok, HutchError **ret_error) {
        json_t *reply = NULL;
        int r = call(command, arg_text(command, "method"), json_object_get(command->args, "request"), &reply,
                     ret_error);

        json_object_set_new(ok, "response", reply);
        return r;
}

const NamedOperation other_operations[] = {
        { "system.ping", ping },
        { "system.info", info },
        { "snapshot.create", create_snapshot },
        { "snapshot.list", list_snapshots },
        { "snapshot.delete", delete_snapshot },
        { "image.import", import_image },
        { "image.pull", pull_image },
        { "image.list", list_images },
        { "image.remove", remove_image },
        { "raw.call", raw_call },
        { NULL, NULL },
};
