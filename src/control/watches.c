/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: those who watch events, each at its own pace: out of the store until it reaches the ring, then out
 * of the ring. What does not: how events are made (event-log.c).
 *
 * A watch that has read everything waits, at no cost, until an event comes that it wants; so it does not fall behind by
 * events that it does not want. Watches are found by what they want: certain sandboxes, those of an owner, or all. */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "control/plane.h"

#define SCAN_MAX 500        /* events of the store that are looked at in one go */
#define TURN_LOOKS_MAX 4096 /* events that all watches together look at in one turn, while everybody else waits */

/* A watch's interest in one sandbox. */
typedef struct WatchLink {
        Watch *watch;
        struct WatchLink *next, **prev; /* of all for this sandbox */
        char *id;
} WatchLink;

/* All that want one sandbox. */
typedef struct WatchedId {
        char *id;
        WatchLink *links;
} WatchedId;

struct Watch {
        Control *control;
        Owner *owner; /* who watches */
        bool any_owner;
        WatchLink *links; /* by the order of their ids */
        size_t n_links;
        Selector *selector; /* NULL: any */
        unsigned types;
        bool is_sequence; /* of one sandbox, whose events are all kept as long as it is */
        void (*readable)(Watch *watch, void *user);
        void *user;

        uint64_t cursor;
        bool is_live;    /* it has come to the ring */
        bool is_waiting; /* it has read everything */
        uint8_t *buffer; /* an event of the store */
        size_t buffer_len;

        Watch *next, **prev;           /* of those without links: the owner's or the control's */
        Watch *next_wake, **prev_wake; /* @prev_wake NULL: not in the list */
};

/* The labels that an event was made with, read back. */
typedef struct EventLabels {
        char *text;
        Label labels[LABELS_MAX];
        size_t n;
} EventLabels;

static void event_labels_clear(EventLabels *labels) {
        free(labels->text);
}

static void event_labels_read(EventLabels *labels, const char *text) {
        char *rest, *pair;

        if (labels->text)
                return;
        labels->text = rest = xstrdup(text);
        while (labels->n < LABELS_MAX && (pair = strsep(&rest, ",")) && *pair) {
                char *value = strchr(pair, '=');

                if (!value)
                        continue;
                *value = '\0';
                labels->labels[labels->n++] = (Label){ .key = pair, .value = value + 1 };
        }
}

static int compare_links(const void *a, const void *b) {
        return strcmp(((const WatchLink *) a)->id, ((const WatchLink *) b)->id);
}

static bool wants_id(const Watch *watch, const char *id) {
        WatchLink key = { .id = (char *) id };

        return watch->n_links == 0 || bsearch(&key, watch->links, watch->n_links, sizeof key, compare_links);
}

static bool wants(const Watch *watch, const EventRow *row, EventLabels *labels) {
        if (watch->types != 0 && !(watch->types >> row->type & 1))
                return false;
        if (!watch->any_owner && !str_equal(watch->owner->name, row->owner))
                return false;
        if (!wants_id(watch, row->sandbox_id))
                return false;
        if (!watch->selector)
                return true;

        event_labels_read(labels, row->labels);
        return selector_matches(watch->selector, labels->labels, labels->n);
}

/* Whom to call. */

static void wake(Watch *watch) {
        Control *control = watch->control;

        if (watch->prev_wake)
                return;
        watch->next_wake = NULL;
        watch->prev_wake = control->watches.wake_end;
        *control->watches.wake_end = watch;
        control->watches.wake_end = &watch->next_wake;
        control->watches.n_wake++;
        control_arm(control);
}

static void unwake(Watch *watch) {
        if (!watch->prev_wake)
                return;
        *watch->prev_wake = watch->next_wake;
        if (watch->next_wake)
                watch->next_wake->prev_wake = watch->prev_wake;
        if (watch->control->watches.wake_end == &watch->next_wake)
                watch->control->watches.wake_end = watch->prev_wake;
        watch->prev_wake = NULL;
        watch->control->watches.n_wake--;
}

static void tell(Watch *watch, const EventRow *row, EventLabels *labels) {
        if (!watch->is_waiting || !wants(watch, row, labels))
                return;
        watch->is_waiting = false;
        watch->cursor = row->cursor - 1;
        wake(watch);
}

void watches_tell(Control *control, const EventRow *row) {
        _cleanup_(event_labels_clear) EventLabels labels = {};
        const WatchedId *watched = table_get(&control->watches.by_id, row->sandbox_id);
        const Owner *owner = table_get(&control->owners, row->owner);

        for (const WatchLink *link = watched ? watched->links : NULL; link; link = link->next)
                tell(link->watch, row, &labels);
        for (Watch *watch = owner ? owner->watches : NULL; watch; watch = watch->next)
                tell(watch, row, &labels);
        for (Watch *watch = control->watches.for_all; watch; watch = watch->next)
                tell(watch, row, &labels);
}

void watches_wake(Control *control) {
        control->watches.looks_left = TURN_LOOKS_MAX;
        /* Who is to be called again meanwhile is called in the next turn. */
        for (size_t n = control->watches.n_wake; n > 0 && control->watches.wake; n--) {
                Watch *watch = control->watches.wake;

                unwake(watch);
                watch->readable(watch, watch->user);
        }
}

/* Coming and going. */

static int check_cursor(Control *control, uint64_t cursor, bool is_sequence, HutchError *err) {
        uint64_t purged = 0;
        int r = is_sequence ? 0 : store_purged_cursor(control->options.store, &purged, err);

        if (r < 0)
                return r;
        if (cursor > control->events.durable_cursor)
                return reason_set(err, -EINVAL, REASON_CURSOR_INVALID, "the cursor %" PRIu64 " was never given out",
                                  cursor);
        if (cursor < purged) {
                (void) reason_set(err, -ERANGE, REASON_CURSOR_GONE,
                                  "events after %" PRIu64 " are not all kept any more; read the state anew", cursor);
                error_add_pair(err, "oldest_cursor", "%" PRIu64, purged);
                return -ERANGE;
        }
        return 0;
}

static void link_add(Control *control, WatchLink *link) {
        WatchedId *watched = table_get(&control->watches.by_id, link->id);

        if (!watched) {
                watched = new0(WatchedId, 1);
                watched->id = xstrdup(link->id);
                table_add(&control->watches.by_id, watched->id, watched);
        }
        link->next = watched->links;
        link->prev = &watched->links;
        if (link->next)
                link->next->prev = &link->next;
        watched->links = link;
}

static void link_remove(Control *control, WatchLink *link) {
        WatchedId *watched = table_get(&control->watches.by_id, link->id);

        assert(watched);
        *link->prev = link->next;
        if (link->next)
                link->next->prev = link->prev;
        if (!watched->links) {
                table_remove(&control->watches.by_id, watched->id);
                free(watched->id);
                free(watched);
        }
}

static void insert(Watch *watch) {
        Watch **list = watch->any_owner ? &watch->control->watches.for_all : &watch->owner->watches;

        for (size_t i = 0; i < watch->n_links; i++) {
                watch->links[i].watch = watch;
                link_add(watch->control, &watch->links[i]);
        }
        if (watch->n_links > 0)
                return;
        watch->next = *list;
        watch->prev = list;
        if (watch->next)
                watch->next->prev = &watch->next;
        *list = watch;
}

/* Copies the ids, each once. */
static void take_ids(Watch *watch, const WatchFilter *filter) {
        size_t n = filter->sandbox_ids ? filter->n_sandbox_ids : 0;

        watch->n_links = 0;
        watch->links = n > 0 ? new0(WatchLink, n) : NULL;
        for (size_t i = 0; i < n; i++)
                watch->links[i].id = xstrdup(filter->sandbox_ids[i]);
        if (n > 0)
                qsort(watch->links, n, sizeof(WatchLink), compare_links);
        for (size_t i = 0; i < n; i++) {
                if (watch->n_links > 0 && str_equal(watch->links[watch->n_links - 1].id, watch->links[i].id))
                        free(watch->links[i].id);
                else
                        watch->links[watch->n_links++] = watch->links[i];
        }
}

int control_watch(Control *control, const Caller *caller, const WatchFilter *filter, uint64_t after_cursor,
                  void (*readable)(Watch *watch, void *user), void *user, Watch **ret_watch, HutchError *err) {
        _cleanup_(selector_freep) Selector *selector = NULL;
        const Owner *known = table_get(&control->owners, caller->name);
        uint32_t limit = control->options.limits.watches_per_caller;
        Watch *watch;
        int r;

        if (filter->all_owners && !caller->admin)
                return reason_set(err, -EPERM, REASON_CALLER_NOT_ALLOWED, "only admins see what belongs to others");
        if (filter->selector && *filter->selector) {
                r = selector_parse(filter->selector, strlen(filter->selector), &selector, err);
                if (r < 0)
                        return r;
        }
        if (after_cursor == 0 && !filter->is_sequence)
                r = store_purged_cursor(control->options.store, &after_cursor, err);
        else
                r = check_cursor(control, after_cursor, filter->is_sequence, err);
        if (r < 0)
                return r;
        if (limit > 0 && known && known->n_watches >= limit) {
                (void) reason_set(err, -EMFILE, REASON_TOO_MANY_STREAMS, "this caller has %" PRIu32 " watches already",
                                  known->n_watches);
                error_add_pair(err, "limit", "watches_per_caller");
                error_add_pair(err, "value", "%" PRIu32, limit);
                return -EMFILE;
        }

        watch = new0(Watch, 1);
        watch->control = control;
        watch->owner = owner_get(control, caller->name);
        watch->owner->n_watches++;
        control->watches.n++;
        take_ids(watch, filter);
        watch->any_owner = filter->all_owners || (caller->admin && watch->n_links > 0);
        watch->selector = TAKE_PTR(selector);
        watch->types = filter->types;
        watch->is_sequence = filter->is_sequence;
        watch->readable = readable;
        watch->user = user;
        watch->cursor = after_cursor;
        insert(watch);
        *ret_watch = watch;
        return 0;
}

Watch *watch_free(Watch *watch) {
        if (!watch)
                return NULL;

        unwake(watch);
        for (size_t i = 0; i < watch->n_links; i++) {
                link_remove(watch->control, &watch->links[i]);
                free(watch->links[i].id);
        }
        if (watch->prev) {
                *watch->prev = watch->next;
                if (watch->next)
                        watch->next->prev = watch->prev;
        }
        watch->owner->n_watches--;
        watch->control->watches.n--;
        owner_release(watch->control, watch->owner);
        (void) selector_free(watch->selector);
        free(watch->links);
        free(watch->buffer);
        free(watch);
        return NULL;
}

/* Reading. */

typedef struct Scan {
        Watch *watch;
        size_t n;
        bool found;
} Scan;

static int scan_event(const EventRow *row, void *user) {
        _cleanup_(event_labels_clear) EventLabels labels = {};
        Scan *scan = user;
        Watch *watch = scan->watch;

        if (row->cursor > watch->control->events.durable_cursor)
                return -ECANCELED;

        scan->n++;
        watch->cursor = row->cursor;
        if (!wants(watch, row, &labels))
                return 0;

        watch->buffer = xreallocarray(watch->buffer, row->encoded_len + 1, 1);
        memcpy(watch->buffer, row->encoded, row->encoded_len);
        watch->buffer_len = row->encoded_len;
        scan->found = true;
        return -ECANCELED;
}

/* The next event of the store: 1; 0: none among the next ones. */
static int next_stored(Watch *watch, WatchedEvent *ret_event, HutchError *err) {
        _cleanup_(error_clear) HutchError problem = {};
        Control *control = watch->control;
        size_t max = control->watches.looks_left < SCAN_MAX ? control->watches.looks_left : SCAN_MAX;
        Scan scan = { .watch = watch };
        int r;

        r = check_cursor(control, watch->cursor, watch->is_sequence, err);
        if (r < 0)
                return r;
        r = store_each_event(control->options.store, watch->cursor, max, scan_event, &scan, &problem);
        control->watches.looks_left -= scan.n;
        if (r < 0 && r != -ECANCELED)
                return reason_set(err, r, REASON_STORE_UNAVAILABLE, "events cannot be read: %s",
                                  error_message(&problem));
        if (scan.found) {
                *ret_event = (WatchedEvent){
                        .cursor = watch->cursor,
                        .encoded = watch->buffer,
                        .encoded_len = watch->buffer_len,
                };
                return 1;
        }

        if (scan.n < max)
                watch->cursor = control->events.ring_first - 1;
        return 0;
}

int watch_next(Watch *watch, WatchedEvent *ret_event, HutchError *err) {
        Control *control = watch->control;

        if (watch->is_waiting)
                return 0;

        if (!watch->is_live && watch->cursor + 1 < control->events.ring_first) {
                int r = next_stored(watch, ret_event, err);

                if (r != 0)
                        return r;
                if (watch->cursor + 1 < control->events.ring_first) {
                        wake(watch);
                        return 0;
                }
        }
        watch->is_live = true;

        if (watch->cursor + 1 < control->events.ring_first) {
                (void) reason_set(err, -EOVERFLOW, REASON_WATCHER_LAGGED,
                                  "this watch did not keep up; watch again from the cursor");
                error_add_pair(err, "cursor", "%" PRIu64, watch->cursor);
                return -EOVERFLOW;
        }
        while (watch->cursor < control->events.durable_cursor) {
                _cleanup_(event_labels_clear) EventLabels labels = {};
                const EventRow *row;

                if (control->watches.looks_left == 0) {
                        wake(watch);
                        return 0;
                }
                control->watches.looks_left--;
                row = &control->events.ring[++watch->cursor % control->events.ring_size]->row;
                if (!wants(watch, row, &labels))
                        continue;
                *ret_event = (WatchedEvent){
                        .cursor = row->cursor,
                        .encoded = row->encoded,
                        .encoded_len = row->encoded_len,
                };
                return 1;
        }
        watch->is_waiting = true;
        return 0;
}

uint64_t watch_cursor(const Watch *watch) {
        return watch->is_waiting ? watch->control->events.durable_cursor : watch->cursor;
}

int control_sequence_cursor(Control *control, const Caller *caller, const char *sandbox_id, uint64_t sequence,
                            uint64_t *ret_cursor, HutchError *err) {
        _cleanup_(error_clear) HutchError problem = {};
        Sandbox *sandbox;
        uint64_t cursor;
        int r = sandbox_find(control, caller, sandbox_id, &sandbox, err);

        if (r < 0)
                return r;
        if (sequence > sandbox->record.sequence)
                return reason_set(err, -EINVAL, REASON_CURSOR_INVALID,
                                  "sandbox '%s' has had %" PRIu64 " events, not %" PRIu64, sandbox_id,
                                  sandbox->record.sequence, sequence);
        r = control_flush(control, err);
        if (r < 0)
                return r;

        /* Before the first of its events is the same as after the one before. */
        r = store_event_cursor(control->options.store, sandbox->record.serial, sequence > 0 ? sequence : 1, &cursor,
                               &problem);
        if (r == -ENOENT)
                return reason_set(err, -ERANGE, REASON_CURSOR_GONE, "that event of sandbox '%s' is not kept any more",
                                  sandbox_id);
        if (r < 0)
                return reason_set(err, r, REASON_STORE_UNAVAILABLE, "%s", error_message(&problem));
        *ret_cursor = sequence > 0 ? cursor : cursor - 1;
        return 0;
}
