/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the memory of request ids. What does not: waiting for one another (file-service.c). */

#include "keeper/files/file-requests.h"

#include <string.h>

#include "base/strings.h"

struct FileRequests {
        FileRequest *oldest;
        size_t n_requests;
};

FileRequests *file_requests_new(void) {
        return new0(FileRequests, 1);
}

static void drop(FileRequests *requests, FileRequest **at) {
        FileRequest *request = *at;
        *at = request->next;
        requests->n_requests--;
        free(request->name);
        free(request->answer);
        free(request);
}

FileRequests *file_requests_free(FileRequests *requests) {
        if (!requests)
                return NULL;
        while (requests->oldest)
                drop(requests, &requests->oldest);
        free(requests);
        return NULL;
}

FileRequest *file_requests_find(FileRequests *requests, const char *name, uint64_t now) {
        for (FileRequest **at = &requests->oldest; *at;) {
                const FileRequest *request = *at;
                if (!request->runner && now - request->done_at >= FILE_REQUEST_TIME)
                        drop(requests, at);
                else if (str_equal(request->name, name))
                        return *at;
                else
                        at = &(*at)->next;
        }
        return NULL;
}

/* Forgets the oldest that is done. */
static bool make_room(FileRequests *requests) {
        for (FileRequest **at = &requests->oldest; *at; at = &(*at)->next)
                if (!(*at)->runner) {
                        drop(requests, at);
                        return true;
                }
        return false;
}

FileRequest *file_requests_add(FileRequests *requests, const char *name, const char *fingerprint, void *runner) {
        if (requests->n_requests == FILE_REQUESTS_MAX && !make_room(requests))
                return NULL;
        FileRequest *request = new0(FileRequest, 1), **at = &requests->oldest;
        request->name = xstrdup(name);
        request->runner = runner;
        memcpy(request->fingerprint, fingerprint, sizeof(request->fingerprint));
        while (*at)
                at = &(*at)->next;
        *at = request;
        requests->n_requests++;
        return request;
}

void file_request_finish(FileRequest *request, uint8_t *answer, size_t answer_len, uint64_t now) {
        request->runner = NULL;
        request->answer = answer;
        request->answer_len = answer_len;
        request->done_at = now;
}

void file_requests_remove(FileRequests *requests, FileRequest *request) {
        for (FileRequest **at = &requests->oldest; *at; at = &(*at)->next)
                if (*at == request) {
                        drop(requests, at);
                        return;
                }
}
