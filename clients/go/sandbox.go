// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

const waitTimeout = 180 * time.Second

// Sandbox is a handle on a sandbox. It costs nothing: the sandbox does not end with it, unless [Sandbox.Close] is
// called on the one that [Client.Create] gave out.
type Sandbox struct {
	client  *Client
	id      string
	created bool
	known   atomic.Pointer[hutchv1.Sandbox]
}

func (c *Client) handle(sandbox *hutchv1.Sandbox) *Sandbox {
	s := c.Sandbox(sandbox.GetId())
	s.known.Store(sandbox)
	return s
}

// Create makes a sandbox. It returns when that is accepted: commands and file work can be asked for at once, and wait
// until it is READY. Options: [With] a SandboxSpec, [WithID], [WithRequestID] and those of sandboxes.
func (c *Client) Create(ctx context.Context, options ...CallOption) (*Sandbox, error) {
	request := &hutchv1.CreateSandboxRequest{Spec: &hutchv1.SandboxSpec{}}
	if err := applyOptions(options, request, request.Spec); err != nil {
		return nil, err
	}
	return c.create(ctx, request)
}

func (c *Client) create(ctx context.Context, request *hutchv1.CreateSandboxRequest) (*Sandbox, error) {
	check := checks{}
	check.newID("sandbox_id", request.GetSandboxId())
	check.requestID(request.GetRequestId())
	check.sandboxSpec(request.GetSpec())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := c.sandboxes.CreateSandbox(ctx, request)
	if err != nil {
		return nil, err
	}
	sandbox := c.handle(response.GetSandbox())
	sandbox.created = true
	return sandbox, nil
}

// Sandbox is a handle by id, without asking the daemon.
func (c *Client) Sandbox(id string) *Sandbox { return &Sandbox{client: c, id: id} }

// Get finds a sandbox. Options: [WithUsage].
func (c *Client) Get(ctx context.Context, id string, options ...CallOption) (*Sandbox, error) {
	sandbox := c.Sandbox(id)
	if _, err := sandbox.Refresh(ctx, options...); err != nil {
		return nil, err
	}
	return sandbox, nil
}

// List goes through the caller's sandboxes, oldest first. Options: [WithSelector], [WithStates], [WithAllOwners].
func (c *Client) List(ctx context.Context, options ...CallOption) iter.Seq2[*Sandbox, error] {
	request := &hutchv1.ListSandboxesRequest{}
	err := applyOptions(options, request)
	if err == nil {
		check := checks{}
		check.selector(request.GetSelector(), true)
		err = check.result()
	}
	return pages(err, func(token string) ([]*Sandbox, string, error) {
		request.PageToken = token
		response, err := c.sandboxes.ListSandboxes(ctx, request)
		handles := make([]*Sandbox, len(response.GetSandboxes()))
		for i, sandbox := range response.GetSandboxes() {
			handles[i] = c.handle(sandbox)
		}
		return handles, response.GetNextPageToken(), err
	})
}

// pages goes through a list that comes in pages, or fails with the error that is already known.
func pages[T any](err error, page func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token, things := "", []T(nil)
		for first := true; first || token != "" && err == nil; first = false {
			if err == nil {
				things, token, err = page(token)
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, thing := range things {
				if !yield(thing, nil) {
					return
				}
			}
		}
	}
}

// DeleteAll deletes the sandboxes that a selector means, and tells their ids. An empty selector is refused. Options:
// [WithAllOwners].
func (c *Client) DeleteAll(ctx context.Context, selector string, options ...CallOption) ([]string, error) {
	request := &hutchv1.DeleteSandboxesRequest{Selector: selector}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := checks{}
	check.selector(request.GetSelector(), false)
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := c.sandboxes.DeleteSandboxes(ctx, request)
	return response.GetSandboxIds(), err
}

// ID is the sandbox's id.
func (s *Sandbox) ID() string { return s.id }

// Info is the sandbox as it was last told; nil when it never was. [Sandbox.Refresh] asks anew.
func (s *Sandbox) Info() *hutchv1.Sandbox { return s.known.Load() }

// told keeps what the daemon has told.
func (s *Sandbox) told(sandbox *hutchv1.Sandbox, err error) (*hutchv1.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	s.known.Store(sandbox)
	return sandbox, nil
}

func (s *Sandbox) check() error {
	check := checks{}
	check.id("sandbox_id", s.id)
	return check.result()
}

// prepare checks the id and applies the options.
func (s *Sandbox) prepare(options []CallOption, messages ...proto.Message) error {
	if err := applyOptions(options, messages...); err != nil {
		return err
	}
	return s.check()
}

// Refresh asks for the sandbox as it is. Options: [WithUsage].
func (s *Sandbox) Refresh(ctx context.Context, options ...CallOption) (*hutchv1.Sandbox, error) {
	request := &hutchv1.GetSandboxRequest{SandboxId: s.id}
	if err := s.prepare(options, request); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.GetSandbox(ctx, request)
	return s.told(response.GetSandbox(), err)
}

// Update changes what its options set, and nothing else: [WithLabels], [WithIdleTTL], [WithIdleAction],
// [WithMaxLifetime], [WithLifetimeAction].
func (s *Sandbox) Update(ctx context.Context, options ...CallOption) (*hutchv1.Sandbox, error) {
	request := &hutchv1.UpdateSandboxRequest{SandboxId: s.id, Spec: &hutchv1.SandboxSpec{},
		UpdateMask: &fieldmaskpb.FieldMask{}}
	if err := s.prepare(options, request.Spec); err != nil {
		return nil, err
	}
	for _, option := range options {
		fields := option.fields
		if fields == nil {
			fields = []string{option.name}
		}
		request.UpdateMask.Paths = append(request.UpdateMask.Paths, fields...)
	}
	check := checks{}
	check.labels("spec.labels", request.GetSpec().GetLabels())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.UpdateSandbox(ctx, request)
	return s.told(response.GetSandbox(), err)
}

// Stop ends all processes and keeps the files. It returns when that is accepted. Options: [WithGrace].
func (s *Sandbox) Stop(ctx context.Context, options ...CallOption) (*hutchv1.Sandbox, error) {
	request := &hutchv1.StopSandboxRequest{SandboxId: s.id}
	if err := s.prepare(options, request); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.StopSandbox(ctx, request)
	return s.told(response.GetSandbox(), err)
}

// Resume starts a stopped sandbox again on its files. It returns when that is accepted. Options: [WithRequestID].
func (s *Sandbox) Resume(ctx context.Context, options ...CallOption) (*hutchv1.Sandbox, error) {
	request := &hutchv1.ResumeSandboxRequest{SandboxId: s.id}
	if err := s.prepare(options, request); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.ResumeSandbox(ctx, request)
	return s.told(response.GetSandbox(), err)
}

// Pause freezes all processes where they are. It returns when that is accepted.
func (s *Sandbox) Pause(ctx context.Context) (*hutchv1.Sandbox, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.PauseSandbox(ctx, &hutchv1.PauseSandboxRequest{SandboxId: s.id})
	return s.told(response.GetSandbox(), err)
}

// Unpause lets frozen processes go on. It returns when that is accepted.
func (s *Sandbox) Unpause(ctx context.Context) (*hutchv1.Sandbox, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.UnpauseSandbox(ctx, &hutchv1.UnpauseSandboxRequest{SandboxId: s.id})
	return s.told(response.GetSandbox(), err)
}

// Delete ends all processes and removes everything but the sandbox's history. It returns when that is accepted.
func (s *Sandbox) Delete(ctx context.Context) (*hutchv1.Sandbox, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.DeleteSandbox(ctx, &hutchv1.DeleteSandboxRequest{SandboxId: s.id})
	return s.told(response.GetSandbox(), err)
}

// Close deletes the sandbox, if this handle has created it. It takes no context so that it can be deferred: what ends
// the work must not keep it from being cleaned up.
func (s *Sandbox) Close() error {
	if !s.created {
		return nil
	}
	_, err := s.Delete(context.Background())
	return err
}

// The states that a sandbox may come to from each by itself: when what was asked of it is done, when it fails, when its
// time has come.
var statesAhead = map[hutchv1.SandboxState][]hutchv1.SandboxState{
	pending:  {ready, paused, stopping, stopped, failed, deleting, deleted},
	ready:    {paused, stopping, stopped, failed, deleting, deleted},
	paused:   {ready, stopping, stopped, failed, deleting, deleted},
	stopping: {stopped, failed, deleting, deleted},
	stopped:  {deleting, deleted},
	failed:   {deleting, deleted},
	deleting: {deleted},
	deleted:  {},
}

const (
	pending  = hutchv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = hutchv1.SandboxState_SANDBOX_STATE_READY
	paused   = hutchv1.SandboxState_SANDBOX_STATE_PAUSED
	stopping = hutchv1.SandboxState_SANDBOX_STATE_STOPPING
	stopped  = hutchv1.SandboxState_SANDBOX_STATE_STOPPED
	failed   = hutchv1.SandboxState_SANDBOX_STATE_FAILED
	deleting = hutchv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = hutchv1.SandboxState_SANDBOX_STATE_DELETED
)

// Wait waits until the sandbox is in one of the states; without any, until it is READY. It fails with
// SANDBOX_WRONG_STATE when the sandbox has come to a state that it does not leave for one of these without being asked.
// A context without a deadline gets one of 180 s.
func (s *Sandbox) Wait(ctx context.Context, states ...hutchv1.SandboxState) (*hutchv1.Sandbox, error) {
	if len(states) == 0 {
		states = []hutchv1.SandboxState{ready}
	}
	if _, found := ctx.Deadline(); !found {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitTimeout)
		defer cancel()
	}

	sandbox, err := s.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	arrived, err := judge(sandbox, sandbox.GetState(), states)
	if err != nil || arrived {
		return sandbox, err
	}

	sequence := sandbox.GetSequence()
	watch, err := s.client.watch(ctx, &hutchv1.WatchEventsRequest{
		SandboxIds:    []string{s.id},
		Types:         []hutchv1.EventType{hutchv1.EventType_EVENT_TYPE_SANDBOX_STATE_CHANGED},
		AfterSequence: &sequence,
	})
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	for change, err := range watch.All() {
		if err != nil {
			return nil, err
		}
		arrived, err := judge(sandbox, change.Event.GetSandboxState().GetToState(), states)
		if err != nil {
			return nil, err
		}
		if arrived {
			break
		}
	}
	return s.Refresh(ctx)
}

// judge tells whether a sandbox that has come to a state has come to one of those that are waited for. An error: it
// will not.
func judge(sandbox *hutchv1.Sandbox, state hutchv1.SandboxState, states []hutchv1.SandboxState) (bool, error) {
	reachable := false
	for _, wanted := range states {
		if wanted == state {
			return true, nil
		}
		for _, ahead := range statesAhead[state] {
			reachable = reachable || ahead == wanted
		}
	}
	if _, known := statesAhead[state]; reachable || !known {
		return false, nil
	}

	name := strings.TrimPrefix(state.String(), "SANDBOX_STATE_")
	failure := newError("SANDBOX_WRONG_STATE",
		"the sandbox is %s, and does not leave that by itself for what is waited for", name)
	if message := sandbox.GetStateMessage(); message != "" && sandbox.GetState() == state {
		failure.Message += fmt.Sprintf(": %s", message)
	}
	failure.Metadata["state"] = name
	return false, failure
}
