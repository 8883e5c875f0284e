/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/service.h"
#include "base/strings.h"

/* A page of a listing being put together:
 *
 *         if (!listing_begin(&listing, &request, page_size, page_token, &filter))   the filter as a text
 *                 …
 *         callback: if (!listing_has_room(listing)) return false;
 *                   put_exec(&listing->buffer, 1, view);
 *                   listing_added(listing, view->record->serial);
 *         listing_end(&listing, 2);                                                 puts the next page's token */

typedef struct Listing {
        WireBuffer buffer;
        uint64_t filter_hash;
        uint64_t after_serial; /* where to begin, and then where it has come to */
        uint32_t max;
        uint32_t n;
        size_t bytes_max;
        bool more;
} Listing;

/* Reads the token. What is wrong is added to the request's violations. */
void listing_begin(Listing *listing, Request *request, uint32_t page_size, const char *page_token,
                   const StringBuilder *filter) __attribute__((nonnull));

/* Tells whether one more may be put; when not, there is another page. One there always may be. */
bool listing_has_room(Listing *listing) __attribute__((nonnull));
void listing_added(Listing *listing, uint64_t serial) __attribute__((nonnull));

/* There is another page, after @serial, though this one may be empty. */
void listing_break(Listing *listing, uint64_t serial) __attribute__((nonnull));

/* Puts the token of the next page, if there is one, into @field. */
void listing_end(Listing *listing, unsigned field) __attribute__((nonnull));

void listing_clear(Listing *listing) __attribute__((nonnull));
