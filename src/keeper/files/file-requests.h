/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* Requests of file work that must not be done twice, by what their caller named them: those under way, and the answers
 * of those that succeeded, for a while. Times are given, in nanoseconds. */

#define FILE_REQUESTS_MAX 1024
#define FILE_REQUEST_TIME (600 * UINT64_C(1000000000))
#define FILE_REQUEST_FINGERPRINT_SIZE 64 /* of what was asked for, without a NUL */

typedef struct FileRequests FileRequests;

typedef struct FileRequest FileRequest;
struct FileRequest {
        FileRequest *next; /* the younger one */
        char *name;
        char fingerprint[FILE_REQUEST_FINGERPRINT_SIZE];
        void *runner; /* who does it; NULL: it is done */
        uint64_t done_at;
        uint8_t *answer; /* when it is done */
        size_t answer_len;
};

FileRequests *file_requests_new(void) __attribute__((returns_nonnull));
FileRequests *file_requests_free(FileRequests *requests);
DEFINE_CLEANUP(FileRequests *, file_requests_free);

/* NULL: it is not known, or no longer. */
FileRequest *file_requests_find(FileRequests *requests, const char *name, uint64_t now) __attribute__((nonnull));

/* Adds one that @runner does now; where there are too many, the oldest that is done is forgotten. NULL: all of them are
 * under way. */
FileRequest *file_requests_add(FileRequests *requests, const char *name, const char *fingerprint, void *runner)
        __attribute__((nonnull));

/* It was done. Takes over @answer. */
void file_request_finish(FileRequest *request, uint8_t *answer, size_t answer_len, uint64_t now)
        __attribute__((nonnull));

/* It was not done, and can be tried again. */
void file_requests_remove(FileRequests *requests, FileRequest *request) __attribute__((nonnull));
