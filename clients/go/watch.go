// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"sync"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// Watch tells what happens to sandboxes. When the connection is lost, or the watch did not keep up, it goes on from its
// cursor by itself: no event is lost, and none comes twice.
type Watch struct {
	client  *Client
	ctx     context.Context
	cancel  context.CancelFunc
	request *hutchv1.WatchEventsRequest
	stream  *incoming[hutchv1.WatchEventsResponse]
	resumes int // in a row that brought nothing
	started bool

	mutex  sync.Mutex
	cursor uint64
}

// Change is what a watch tells: an event or, of a snapshot, a sandbox as it is.
type Change struct {
	Event   *hutchv1.Event
	Sandbox *hutchv1.Sandbox
}

// Watch begins a watch; what happens after it has returned is not missed. It ends with its Close or its context.
// Options: [WithSandboxes], [WithSelector], [WithAfterCursor], [WithSnapshot], [WithEventTypes], [WithAllOwners].
func (c *Client) Watch(ctx context.Context, options ...CallOption) (*Watch, error) {
	request := &hutchv1.WatchEventsRequest{}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := checks{}
	for i, id := range request.GetSandboxIds() {
		check.note("sandbox_ids["+strconv.Itoa(i)+"]", rules.CheckID(id))
	}
	check.selector(request.GetSelector(), true)
	if err := check.result(); err != nil {
		return nil, err
	}
	return c.watch(ctx, request)
}

func (c *Client) watch(ctx context.Context, request *hutchv1.WatchEventsRequest) (*Watch, error) {
	w := &Watch{client: c, request: request, cursor: request.GetAfterCursor()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if err := w.open(); err != nil {
		w.cancel()
		return nil, err
	}
	return w, nil
}

func (w *Watch) open() (err error) {
	w.stream, err = openIncoming(w.ctx, w.client, true,
		func(ctx context.Context) (receiver[hutchv1.WatchEventsResponse], error) {
			return w.client.sandboxes.WatchEvents(ctx, w.request)
		})
	return err
}

// All gives what happens, in order, until the watch is closed, its context ends or it fails. The error, which is not
// nil, comes last.
func (w *Watch) All() iter.Seq2[*Change, error] {
	return func(yield func(*Change, error) bool) {
		for {
			change, err := w.next()
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
}

func (w *Watch) next() (*Change, error) {
	for {
		message, err := w.stream.next()
		if err == io.EOF {
			err = newError("STREAM_INCOMPLETE", "the daemon ended the watch")
		}
		if err != nil {
			if err = w.resume(err); err != nil {
				return nil, err
			}
			continue
		}
		if change := w.take(message); change != nil {
			return change, nil
		}
	}
}

// take notes how far the watch has come, and gives what is for the caller.
func (w *Watch) take(message *hutchv1.WatchEventsResponse) *Change {
	switch item := message.GetItem().(type) {
	case *hutchv1.WatchEventsResponse_Sandbox:
		return &Change{Sandbox: item.Sandbox}
	case *hutchv1.WatchEventsResponse_Started:
		if !w.started { // one that goes on has come as far, or further
			w.setCursor(item.Started.GetCursor())
		}
		w.started = true
	case *hutchv1.WatchEventsResponse_Event:
		w.setCursor(item.Event.GetCursor())
		w.resumes = 0
		return &Change{Event: item.Event}
	case *hutchv1.WatchEventsResponse_Progress:
		w.setCursor(item.Progress.GetCursor())
		w.resumes = 0
	}
	return nil
}

// resume goes on after an error, or fails with it.
func (w *Watch) resume(err error) error {
	failure := (*Error)(nil)
	lagged := ReasonOf(err) == "WATCHER_LAGGED"
	if !isLost(err) && !lagged && !errors.Is(err, ErrStreamIncomplete) || w.resumes == rules.DefaultRetry.Attempts {
		return err
	}
	if errors.As(err, &failure) && lagged {
		if cursor, err := strconv.ParseUint(failure.Metadata["cursor"], 10, 64); err == nil && cursor > w.Cursor() {
			w.setCursor(cursor)
		}
	}

	w.resumes++
	w.stream.close()
	if w.started {
		cursor := w.Cursor()
		w.request.IncludeSnapshot, w.request.AfterSequence, w.request.AfterCursor = false, nil, &cursor
	}
	return w.open()
}

func (w *Watch) setCursor(cursor uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.cursor = cursor
}

// Cursor is how far everything was told: where another watch could go on, by [WithAfterCursor].
func (w *Watch) Cursor() uint64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.cursor
}

// Close ends the watch. It may be called at any time, and more than once.
func (w *Watch) Close() error {
	w.cancel()
	return nil
}
