/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: file work in sandboxes: whose it is, when it can begin, what ends it, and that it keeps its sandbox
 * awake. What does not: what the messages say (the api and the keeper know that). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "control/plane.h"

struct FileCall {
        Sandbox *sandbox;    /* NULL: it is over */
        RuntimeCall *remote; /* NULL: it waits, or is over */
        const char *path;
        char *key;
        uint64_t deadline;
        uint8_t *first; /* the message it begins with, until it is sent */
        size_t first_len;
        bool is_whole;   /* no other follows */
        uint32_t demand; /* messages that were asked for before there was anybody to ask */
        const FileCallEvents *events;
        void *user;
        FileCall *next, **prev; /* of the sandbox's */
};

/* Ends it here, without a word. */
static void leave(FileCall *call) {
        Sandbox *sandbox = TAKE_PTR(call->sandbox);
        RuntimeCall *remote = TAKE_PTR(call->remote);

        if (remote)
                remote->verbs->free_call(remote);
        if (!sandbox)
                return;

        *call->prev = call->next;
        if (call->next)
                call->next->prev = call->prev;
        sandbox_count_file_call(sandbox, -1);
}

static void finish(FileCall *call, const HutchError *err) {
        leave(call);
        call->events->ended(call->user, err);
}

static void on_message(void *user, uint8_t *bytes, size_t len) {
        FileCall *call = user;

        call->events->message(call->user, bytes, len);
}

static void on_writable(void *user) {
        FileCall *call = user;

        call->events->writable(call->user);
}

static void on_ended(void *user, const HutchError *err) {
        finish(user, err);
}

static int refuse_state(const Sandbox *sandbox, HutchError *err) {
        const char *state = sandbox_state_name(sandbox->record.state);

        (void) reason_set(err, -EBUSY, REASON_SANDBOX_WRONG_STATE, "there is no file work in a sandbox that is %s",
                          state);
        error_add_pair(err, "state", "%s", state);
        return -EBUSY;
}

static bool is_waiting(const FileCall *call) {
        return !call->remote;
}

/* Whether the runtime can be asked: what it was told to start, it has, durably. */
static bool can_start(const Sandbox *sandbox) {
        return sandbox->record.state == SANDBOX_READY && !sandbox->is_changed && sandbox->remote &&
               !sandbox->needs_recovery && sandbox->operation != OPERATION_RECOVER;
}

static int start(FileCall *call, HutchError *err) {
        static const RuntimeCallEvents events = { on_message, on_writable, on_ended };
        RuntimeSandbox *remote = call->sandbox->remote;
        const RuntimeVerbs *verbs = remote->verbs;
        const RuntimeCallRequest request = {
                .path = call->path,
                .user = call->sandbox->record.spec->user,
                .key = call->key,
                .deadline = call->deadline,
        };

        call->remote = verbs->open_call(remote, &request, &events, call);
        /* That it is over already is told by `ended`. */
        if (verbs->send_call_taken(call->remote, TAKE_PTR(call->first), call->first_len) == -ENOMEM)
                return reason_set(err, -ENOMEM, REASON_HOST_EXHAUSTED, "there is no memory for file work");
        if (call->is_whole)
                verbs->end_call(call->remote);
        for (; call->demand > 0; call->demand--)
                verbs->read_call(call->remote);
        return 0;
}

/* What the sandbox's state asks of a call. Negative: it is over. */
static int converge(FileCall *call, HutchError *err) {
        int r;

        switch (call->sandbox->record.state) {
        case SANDBOX_PENDING:
                return 0;
        case SANDBOX_READY:
                if (!is_waiting(call) || !can_start(call->sandbox))
                        return 0;
                r = start(call, err);
                if (r == 0)
                        call->events->writable(call->user);
                return r;
        case SANDBOX_PAUSED:
                /* What is under way stands still with everything else. */
                return is_waiting(call) ? refuse_state(call->sandbox, err) : 0;
        default:
                return refuse_state(call->sandbox, err);
        }
}

void file_calls_converge(Sandbox *sandbox) {
        if (sandbox->is_changed)
                return;

        for (FileCall *call = sandbox->file_calls, *next; call; call = next) {
                _cleanup_(error_clear) HutchError err = {};

                next = call->next;
                if (converge(call, &err) < 0)
                        finish(call, &err);
        }
}

void file_calls_end(Sandbox *sandbox) {
        while (sandbox->file_calls) {
                _cleanup_(error_clear) HutchError err = {};

                (void) reason_set(&err, -ENOENT, REASON_SANDBOX_NOT_FOUND, "the sandbox was deleted");
                finish(sandbox->file_calls, &err);
        }
}

int control_open_file_call(Control *control, const Caller *caller, const char *sandbox_id,
                           const FileCallRequest *request, uint8_t *first, size_t first_len,
                           const FileCallEvents *events, void *user, FileCall **ret_call, HutchError *err) {
        _cleanup_free_ uint8_t *message = first;
        Sandbox *sandbox;
        FileCall *call;
        int r;

        r = sandbox_find(control, caller, sandbox_id, &sandbox, err);
        if (r < 0)
                return r;
        if (sandbox->record.state != SANDBOX_PENDING && sandbox->record.state != SANDBOX_READY)
                return refuse_state(sandbox, err);

        call = new0(FileCall, 1);
        *call = (FileCall){
                .sandbox = sandbox,
                .path = request->path,
                .key = request->key ? xstrdup(request->key) : NULL,
                .deadline = request->deadline,
                .first = TAKE_PTR(message),
                .first_len = first_len,
                .is_whole = request->is_whole,
                .events = events,
                .user = user,
                .next = sandbox->file_calls,
                .prev = &sandbox->file_calls,
        };
        if (call->next)
                call->next->prev = &call->next;
        sandbox->file_calls = call;
        sandbox_count_file_call(sandbox, 1);

        r = can_start(sandbox) ? start(call, err) : 0;
        if (r < 0) {
                (void) file_call_free(call);
                return r;
        }
        if (is_waiting(call))
                sandbox_touch(sandbox);
        *ret_call = call;
        return 0;
}

FileCall *file_call_free(FileCall *call) {
        if (!call)
                return NULL;

        leave(call);
        free(call->first);
        free(call->key);
        free(call);
        return NULL;
}

int file_call_send_taken(FileCall *call, uint8_t *bytes, size_t len) {
        if (call->remote)
                return call->remote->verbs->send_call_taken(call->remote, bytes, len);
        free(bytes);
        return -EPIPE;
}

bool file_call_is_writable(const FileCall *call) {
        return call->remote && call->remote->verbs->call_is_writable(call->remote);
}

void file_call_end(FileCall *call) {
        call->is_whole = true;
        if (call->remote)
                call->remote->verbs->end_call(call->remote);
}

void file_call_read(FileCall *call) {
        if (call->remote)
                call->remote->verbs->read_call(call->remote);
        else
                call->demand++;
}
