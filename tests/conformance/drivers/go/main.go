// SPDX-License-Identifier: Apache-2.0

// The conformance driver of the Go client: does what it is told on stdin, and says on stdout what came of it. How it is
// spoken to is in tests/conformance/PROTOCOL.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
)

const lineMost = 64 << 20

// command is a line of stdin.
type command struct {
	ID        int64           `json:"id"`
	Op        string          `json:"op"`
	Args      json.RawMessage `json:"args"`
	Client    string          `json:"client"`
	TimeoutMS int64           `json:"timeout_ms"`
}

// object is an answer, or a part of one.
type object = map[string]any

// driver has the clients, and the commands that run.
type driver struct {
	output sync.Mutex
	mutex  sync.Mutex
	// By their names, and by their ids.
	clients map[string]*hutch.Client
	cancels map[int64]context.CancelFunc
}

// call is a command that is being done.
type call struct {
	*driver
	command
	client *hutch.Client
	noted  sync.Once
}

// note tells that the command has come so far, once.
func (c *call) note() {
	c.noted.Do(func() { c.print(object{"id": c.ID, "note": "started"}) })
}

func (d *driver) print(line object) {
	data, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	d.output.Lock()
	defer d.output.Unlock()
	fmt.Printf("%s\n", data)
}

func main() {
	d := &driver{clients: map[string]*hutch.Client{}, cancels: map[int64]context.CancelFunc{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineMost)
	var running sync.WaitGroup
	for lines.Scan() {
		read := command{Client: "main"}
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.mutex.Lock()
		d.cancels[read.ID] = cancel
		begun := &call{driver: d, command: read, client: d.clients[read.Client]}
		d.mutex.Unlock()
		if isDriversOwn(read.Op) { // in the order of the lines
			d.finish(begun, ctx, cancel)
			continue
		}
		running.Add(1)
		go func() {
			defer running.Done()
			d.finish(begun, ctx, cancel)
		}()
	}
	for _, client := range d.clients {
		_ = client.Close()
	}
	running.Wait()
}

// finish does a command and answers it.
func (d *driver) finish(c *call, ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	if c.TimeoutMS > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(c.TimeoutMS)*time.Millisecond)
		defer stop()
	}
	answer, err := c.do(ctx)
	if err != nil {
		d.print(object{"id": c.ID, "error": errorObject(err)})
	} else {
		d.print(object{"id": c.ID, "ok": answer})
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.cancels, c.ID)
}

// do looks up what a command does, and does it.
func (c *call) do(ctx context.Context) (any, error) {
	operation, found := operations[c.Op]
	if !found {
		return nil, errUnknown
	}
	if c.client == nil && !isDriversOwn(c.Op) {
		return nil, errors.New("there is no client " + c.Client)
	}
	return operation(ctx, c)
}

var errUnknown = errors.New("unknown op")

// errorObject is an error as it is compared.
func errorObject(err error) object {
	if err == errUnknown {
		return object{"code": "DRIVER", "reason": "UNKNOWN_OP", "metadata": object{}, "violations": []any{}}
	}
	failure := (*hutch.Error)(nil)
	if !errors.As(err, &failure) {
		return object{"code": "DRIVER", "reason": "EXCEPTION", "metadata": object{"text": err.Error()}, "violations": []any{}}
	}
	violations := []any{}
	for _, violation := range failure.Violations {
		violations = append(violations, object{"field": violation.Field, "reason": violation.Reason})
	}
	return object{
		"code": codeName(failure.Code), "reason": failure.Reason, "metadata": failure.Metadata, "violations": violations,
	}
}
