/* SPDX-License-Identifier: Apache-2.0 */

/* Prints what happens to all sandboxes, beginning with those that are there, until it is interrupted.
 *
 *         cc watch.c $(pkg-config --cflags --libs hutch) -o watch
 *         ./watch
 *         ./watch team=blue */

#include <hutch/hutch.h>
#include <inttypes.h>
#include <stdio.h>

static void print(const HutchEvent *event) {
        if (event->sandbox)
                printf("%s is %s\n", event->sandbox_id, hutch_sandbox_state_name(event->sandbox->state));
        else
                printf("%" PRIu64 " %s %s %s %s %s\n", event->cursor, event->sandbox_id, event->type, event->exec_id,
                       event->to_state, event->message);
        fflush(stdout);
}

int main(int argc, char **argv) {
        const HutchWatchOptions options = { .selector = argc > 1 ? argv[1] : NULL, .snapshot = true };
        HutchClient *client = NULL;
        HutchWatch *watch = NULL;
        HutchError *error = NULL;
        HutchEvent event;

        if (hutch_client_new(NULL, &client, &error) == 0 && hutch_watch_new(client, &options, &watch, &error) == 0)
                while (hutch_watch_next(watch, true, &event, &error) > 0)
                        print(&event);

        fprintf(stderr, "%s: %s\n", hutch_error_reason(error), hutch_error_message(error));
        hutch_error_free(error);
        hutch_watch_free(watch);
        hutch_client_free(client);
        return 1;
}
