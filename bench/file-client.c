/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a client that sends files from memory, and takes files to nowhere: what is left is the way between.
 * What does not: what it is compared with, and what becomes of the numbers (files.py).
 *
 *         file-client SOCKET SANDBOX up BYTES COUNT      uploads a file: microseconds from the request to its answer,
 *                                                        each
 *         file-client SOCKET SANDBOX down BYTES COUNT    downloads the file that was uploaded: the same */

#include <hutch/hutch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

#define FILE_NAME "streamed"
#define PIECE ((size_t) 1 << 20)

static int upload(HutchClient *client, const char *sandbox, uint64_t size, HutchError **ret_error) {
        static uint8_t piece[PIECE];
        const HutchWriteOptions options = { .overwrite = true, .has_size = true, .size = size, .max_size = UINT64_MAX };
        HutchUpload *upload = NULL;
        int r = hutch_upload_new(client, sandbox, FILE_NAME, &options, NULL, &upload, ret_error);

        memset(piece, 'x', sizeof(piece));
        for (uint64_t left = size; r == 0 && left > 0;) {
                size_t n = left < PIECE ? (size_t) left : PIECE;

                r = hutch_upload_write(upload, true, piece, n, ret_error);
                left -= n;
        }
        if (r == 0)
                r = hutch_upload_finish(upload, true, NULL, ret_error);
        hutch_upload_free(upload);
        return r;
}

static int download(HutchClient *client, const char *sandbox, uint64_t size, HutchError **ret_error) {
        const HutchDownloadOptions options = { .max_size = UINT64_MAX };
        HutchDownload *download = NULL;
        const void *data;
        size_t len;
        uint64_t came = 0;
        int r = hutch_download_new(client, sandbox, FILE_NAME, &options, &download, ret_error);

        while (r >= 0 && (r = hutch_download_next(download, true, &data, &len, ret_error)) > 0)
                came += len;
        hutch_download_free(download);
        if (r == 0 && came != size) {
                fprintf(stderr, "file-client: %" PRIu64 " bytes came, not %" PRIu64 "\n", came, size);
                return -1;
        }
        return r;
}

int main(int argc, char *argv[]) {
        _cleanup_free_ char *address = NULL;
        HutchClient *client = NULL;
        HutchError *error = NULL;
        int r;

        if (argc != 6) {
                fprintf(stderr, "usage: file-client SOCKET SANDBOX up|down BYTES COUNT\n");
                return EXIT_FAILURE;
        }
        if (asprintf(&address, "unix:%s", argv[1]) < 0)
                abort();

        r = hutch_client_new(&(HutchClientOptions){ .address = address }, &client, &error);
        for (unsigned long left = strtoul(argv[5], NULL, 10); r >= 0 && left > 0; left--) {
                uint64_t size = strtoull(argv[4], NULL, 10), started = clock_monotonic_ns();

                r = (strcmp(argv[3], "up") == 0 ? upload : download)(client, argv[2], size, &error);
                if (r >= 0)
                        printf("%.1f\n", (double) (clock_monotonic_ns() - started) / NSEC_PER_USEC);
        }
        if (error)
                fprintf(stderr, "file-client: %s\n", hutch_error_message(error));
        hutch_error_free(error);
        hutch_client_free(client);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
