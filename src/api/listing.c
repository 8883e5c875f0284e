/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: pages: how much is on one, and where the next begins. What does not: what is listed. */

#include "api/listing.h"

#include "api/page-token.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
/* Clients take messages of 4 MiB unless they were told otherwise. */
#define PAGE_BYTES_MAX (((size_t) 4 << 20) - 4096)

void listing_begin(Listing *listing, Request *request, uint32_t page_size, const char *page_token,
                   const StringBuilder *filter) {
        Violations *violations = &request->violations;
        uint64_t bytes_max = request->api->limits.listing_bytes;

        listing->max = page_size == 0 ? PAGE_DEFAULT : page_size < PAGE_MAX ? page_size : PAGE_MAX;
        listing->bytes_max = bytes_max > 0 && bytes_max < PAGE_BYTES_MAX ? (size_t) bytes_max : PAGE_BYTES_MAX;
        listing->filter_hash = page_filter_hash(filter->text ? filter->text : "", filter->len);
        (void) violations_note(
                violations, "page_token",
                page_token_read(page_token, listing->filter_hash, &listing->after_serial, &violations->err));
}

bool listing_has_room(Listing *listing) {
        listing->more = listing->n > 0 && (listing->n == listing->max || listing->buffer.len >= listing->bytes_max);
        return !listing->more;
}

void listing_added(Listing *listing, uint64_t serial) {
        listing->after_serial = serial;
        listing->n++;
}

void listing_break(Listing *listing, uint64_t serial) {
        listing->after_serial = serial;
        listing->more = true;
}

void listing_end(Listing *listing, unsigned field) {
        char token[PAGE_TOKEN_SIZE];

        if (!listing->more)
                return;

        page_token_write(listing->after_serial, listing->filter_hash, token);
        wire_put_text(&listing->buffer, field, token);
}

void listing_clear(Listing *listing) {
        wire_buffer_clear(&listing->buffer);
}
