/* SPDX-License-Identifier: Apache-2.0 */

/* Puts stdin into a file of a sandbox, whatever its size, and gets it back to stdout.
 *
 *         cc files.c $(pkg-config --cflags --libs hutch) -o files
 *         ./files </etc/services | cmp - /etc/services */

#include <hutch/hutch.h>
#include <stdio.h>

static int put(HutchClient *client, const char *id, const char *path, HutchError **error) {
        HutchUpload *upload = NULL;
        char buffer[65536];
        size_t n;
        int r = hutch_upload_new(client, id, path, NULL, NULL, &upload, error);

        while (r == 0 && (n = fread(buffer, 1, sizeof(buffer), stdin)) > 0)
                r = hutch_upload_write(upload, true, buffer, n, error);
        if (r == 0)
                r = hutch_upload_finish(upload, true, NULL, error);
        hutch_upload_free(upload);
        return r;
}

static int get(HutchClient *client, const char *id, const char *path, HutchError **error) {
        HutchDownload *download = NULL;
        const void *data;
        size_t len;
        int r = hutch_download_new(client, id, path, NULL, &download, error);

        while (r >= 0 && (r = hutch_download_next(download, true, &data, &len, error)) > 0)
                fwrite(data, 1, len, stdout);
        hutch_download_free(download);
        return r;
}

int main(void) {
        HutchClient *client = NULL;
        HutchSandbox *sandbox = NULL;
        HutchError *error = NULL;
        int r = hutch_client_new(&(HutchClientOptions){ .start_daemon = true }, &client, &error);

        if (r == 0)
                r = hutch_sandbox_create(client, NULL, &sandbox, &error);
        if (r == 0)
                r = put(client, sandbox->id, "input", &error);
        if (r == 0)
                r = get(client, sandbox->id, "input", &error);
        if (r < 0)
                fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        if (sandbox)
                hutch_sandbox_delete(client, sandbox->id, NULL, NULL);
        hutch_error_free(error);
        hutch_sandbox_free(sandbox);
        hutch_client_free(client);
        return r < 0;
}
