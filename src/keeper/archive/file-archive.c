/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: what packing and unpacking share. What does not: either. */

#include "keeper/archive/file-archive.h"

#include <string.h>

#include "base/utf8.h"

static bool leaves_out_links;
static mode_t mode_mask;

void file_archive_leave_out_links(void) {
        leaves_out_links = true;
}

bool file_archive_leaves_out_links(void) {
        return leaves_out_links;
}

void file_archive_set_mode_mask(mode_t mask) {
        mode_mask = mask;
}

mode_t file_archive_mode_mask(void) {
        return mode_mask;
}

void file_archive_add_entry(HutchError *err, const char *text) {
        size_t len = strlen(text), max = sizeof(((ErrorPair *) 0)->value) - 1;
        if (len > max)
                for (len = max; len > 0 && !utf8_valid(text, len); len--)
                        ;
        error_add_pair(err, "entry", "%.*s", (int) len, text);
}
