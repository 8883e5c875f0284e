// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

type operation = func(ctx context.Context, c *call) (any, error)

var operations = map[string]operation{
	"client.connect": connect,
	"client.close":   closeClient,
	"cancel":         cancelCommand,

	"system.ping": func(ctx context.Context, c *call) (any, error) { return object{}, c.client.Ping(ctx) },
	"system.info": func(ctx context.Context, c *call) (any, error) { return answer("info")(c.client.Info(ctx)) },

	"sandbox.create":      createSandbox,
	"sandbox.get":         getSandbox,
	"sandbox.list":        listSandboxes,
	"sandbox.update":      updateSandbox,
	"sandbox.stop":        stopSandbox,
	"sandbox.resume":      onSandbox((*hutch.Sandbox).Resume),
	"sandbox.pause":       onSandbox(without((*hutch.Sandbox).Pause)),
	"sandbox.unpause":     onSandbox(without((*hutch.Sandbox).Unpause)),
	"sandbox.delete":      onSandbox(without((*hutch.Sandbox).Delete)),
	"sandbox.delete_many": deleteSandboxes,
	"sandbox.wait":        waitForSandbox,

	"exec.run":    runCommand,
	"exec.create": createExec,
	"exec.get":    getExec,
	"exec.list":   listExecs,
	"exec.cancel": cancelExec,
	"exec.start":  startExec,
	"exec.attach": attachExec,
	"exec.output": readOutput,

	"events.watch": watchEvents,

	"file.read":             readFile,
	"file.write":            writeFile,
	"file.upload":           uploadFile,
	"file.upload_stat":      statUpload,
	"file.download":         downloadFile,
	"file.archive_upload":   uploadArchive,
	"file.archive_download": downloadArchive,
	"file.stat":             statFile,
	"file.list":             listFiles,
	"file.mkdir":            makeDirectory,
	"file.move":             moveFile,
	"file.remove":           removeFile,
	"file.watch":            watchFiles,
	"file.changes":          listChanges,

	"once.exec":       execOnce,
	"once.run":        runOnce,
	"once.run_shell":  runOnce,
	"once.run_python": runOnce,

	"snapshot.create": createSnapshot,
	"snapshot.list":   listSnapshots,
	"snapshot.delete": deleteSnapshot,
	"image.import":    importImage,
	"image.pull":      pullImage,
	"image.list":      listImages,
	"image.remove":    removeImage,

	"raw.call": rawCall,
}

// isDriversOwn tells of commands that are about the driver itself, and done at once.
func isDriversOwn(op string) bool {
	return op == "client.connect" || op == "client.close" || op == "cancel"
}

// answer makes one of a message.
func answer(name string) func(message proto.Message, err error) (any, error) {
	return func(message proto.Message, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return object{name: asJSON(message)}, nil
	}
}

// collect takes all of a list.
func collect[M proto.Message](name string, list iter.Seq2[M, error]) (any, error) {
	messages := []M{}
	for message, err := range list {
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return object{name: allAsJSON(messages)}, nil
}

// option gives an option for an argument that is there.
func option[T any](value *T, make func(T) hutch.CallOption) []hutch.CallOption {
	if value == nil {
		return nil
	}
	return []hutch.CallOption{make(*value)}
}

// flag gives an option for an argument that is true.
func flag(value bool, make func() hutch.CallOption) []hutch.CallOption {
	if !value {
		return nil
	}
	return []hutch.CallOption{make()}
}

// duration is one within arguments.
type duration = message[durationpb.Duration, *durationpb.Duration]

// ---- Clients ----

func connect(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Address          string `json:"address"`
		CAFile           string `json:"ca_file"`
		CertificateFile  string `json:"certificate_file"`
		KeyFile          string `json:"key_file"`
		ServerName       string `json:"server_name"`
		Token            string `json:"token"`
		TokenInClearText bool   `json:"token_in_clear_text"`
		Insecure         bool   `json:"insecure"`
	}](c)
	options := []hutch.Option{
		hutch.WithAddress(args.Address), hutch.WithCAFile(args.CAFile), hutch.WithServerName(args.ServerName),
		hutch.WithCertificate(args.CertificateFile, args.KeyFile), hutch.WithToken(args.Token),
	}
	if args.TokenInClearText {
		options = append(options, hutch.WithTokenInClearText())
	}
	if args.Insecure {
		options = append(options, hutch.WithInsecure())
	}
	client, err := hutch.Connect(ctx, options...)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if before := c.clients[c.Client]; before != nil {
		_ = before.Close()
	}
	c.clients[c.Client] = client
	return object{}, nil
}

func closeClient(_ context.Context, c *call) (any, error) {
	return object{}, c.client.Close()
}

func cancelCommand(_ context.Context, c *call) (any, error) {
	args := parse[struct{ ID int64 }](c)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if cancel := c.cancels[args.ID]; cancel != nil {
		cancel()
	}
	return object{}, nil
}

// ---- Sandboxes ----

type sandboxSpec = message[hutchv1.SandboxSpec, *hutchv1.SandboxSpec]

func withSpec(spec sandboxSpec) hutch.CallOption { return hutch.With(spec.value) }

func createSandbox(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Spec      *sandboxSpec
		SandboxID *string `json:"sandbox_id"`
		RequestID *string `json:"request_id"`
	}](c)
	sandbox, err := c.client.Create(ctx, slices.Concat(option(args.Spec, withSpec), option(args.SandboxID, hutch.WithID),
		option(args.RequestID, hutch.WithRequestID))...)
	if err != nil {
		return nil, err
	}
	return object{"sandbox": asJSON(sandbox.Info())}, nil
}

// named is the argument of most commands.
type named struct {
	SandboxID string `json:"sandbox_id"`
	ExecID    string `json:"exec_id"`
}

func (c *call) sandbox() *hutch.Sandbox { return c.client.Sandbox(parse[named](c).SandboxID) }
func (c *call) exec() *hutch.Exec       { return c.sandbox().Exec(parse[named](c).ExecID) }

func getSandbox(ctx context.Context, c *call) (any, error) {
	sandbox, err := c.client.Get(ctx, parse[named](c).SandboxID)
	if err != nil {
		return nil, err
	}
	return object{"sandbox": asJSON(sandbox.Info())}, nil
}

func listSandboxes(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Selector *string
		States   []string
	}](c)
	states := enums[hutchv1.SandboxState](args.States, hutchv1.SandboxState_value)
	found := []*hutchv1.Sandbox{}
	for sandbox, err := range c.client.List(ctx, append(option(args.Selector, hutch.WithSelector),
		hutch.WithStates(states...))...) {
		if err != nil {
			return nil, err
		}
		found = append(found, sandbox.Info())
	}
	return object{"sandboxes": allAsJSON(found)}, nil
}

func updateSandbox(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Labels  *map[string]string
		IdleTTL *duration `json:"idle_ttl"`
	}](c)
	return answer("sandbox")(c.sandbox().Update(ctx, slices.Concat(option(args.Labels, hutch.WithLabels),
		option(args.IdleTTL, func(ttl duration) hutch.CallOption { return hutch.WithIdleTTL(ttl.value.AsDuration()) }))...))
}

// grace is an option of several commands.
func grace(c *call) []hutch.CallOption {
	args := parse[struct{ Grace *duration }](c)
	return option(args.Grace, func(grace duration) hutch.CallOption { return hutch.WithGrace(grace.value.AsDuration()) })
}

func stopSandbox(ctx context.Context, c *call) (any, error) {
	return answer("sandbox")(c.sandbox().Stop(ctx, grace(c)...))
}

type sandboxMethod = func(*hutch.Sandbox, context.Context, ...hutch.CallOption) (*hutchv1.Sandbox, error)

func onSandbox(method sandboxMethod) operation {
	return func(ctx context.Context, c *call) (any, error) { return answer("sandbox")(method(c.sandbox(), ctx)) }
}

// without is a method that has no options.
func without(method func(*hutch.Sandbox, context.Context) (*hutchv1.Sandbox, error)) sandboxMethod {
	return func(sandbox *hutch.Sandbox, ctx context.Context, _ ...hutch.CallOption) (*hutchv1.Sandbox, error) {
		return method(sandbox, ctx)
	}
}

func deleteSandboxes(ctx context.Context, c *call) (any, error) {
	ids, err := c.client.DeleteAll(ctx, parse[struct{ Selector string }](c).Selector)
	return object{"count": len(ids)}, err
}

func waitForSandbox(ctx context.Context, c *call) (any, error) {
	states := parse[struct{ States []string }](c).States
	return answer("sandbox")(c.sandbox().Wait(ctx, enums[hutchv1.SandboxState](states, hutchv1.SandboxState_value)...))
}

// ---- Events ----

func watchEvents(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		SandboxIDs  []string `json:"sandbox_ids"`
		Selector    *string
		AfterCursor *uint64 `json:"after_cursor"`
		Snapshot    bool
		Count       int
		Until       string
	}](c)
	watch, err := c.client.Watch(ctx, slices.Concat(
		[]hutch.CallOption{hutch.WithSandboxes(args.SandboxIDs...)}, option(args.Selector, hutch.WithSelector),
		option(args.AfterCursor, hutch.WithAfterCursor), flag(args.Snapshot, hutch.WithSnapshot))...)
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	events, sandboxes := []*hutchv1.Event{}, []*hutchv1.Sandbox{}
	for change, err := range watch.All() {
		if err != nil {
			return nil, err
		}
		if change.Sandbox != nil {
			sandboxes = append(sandboxes, change.Sandbox)
			continue
		}
		c.note()
		events = append(events, change.Event)
		if len(events) == args.Count || args.Until != "" &&
			change.Event.GetSandboxState().GetToState().String() == args.Until {
			break
		}
	}
	return object{"events": allAsJSON(events), "sandboxes": allAsJSON(sandboxes), "cursor": watch.Cursor()}, nil
}

// ---- What is left ----

func createSnapshot(ctx context.Context, c *call) (any, error) {
	return answer("snapshot")(c.sandbox().CreateSnapshot(ctx, parse[struct{ Name string }](c).Name))
}

func listSnapshots(ctx context.Context, c *call) (any, error) {
	return collect("snapshots", c.client.Snapshots(ctx, parse[named](c).SandboxID))
}

func deleteSnapshot(ctx context.Context, c *call) (any, error) {
	return object{}, c.client.DeleteSnapshot(ctx, parse[struct{ Name string }](c).Name)
}

func importImage(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Name string
		Data content
	}](c)
	return answer("image")(c.client.ImportImage(ctx, args.Name, stream(args.Data)))
}

func pullImage(ctx context.Context, c *call) (any, error) {
	return answer("image")(c.client.PullImage(ctx, parse[struct{ Reference string }](c).Reference, nil))
}

func listImages(ctx context.Context, c *call) (any, error) {
	return collect("images", c.client.Images(ctx))
}

func removeImage(ctx context.Context, c *call) (any, error) {
	_, err := c.client.RemoveImage(ctx, parse[struct{ Reference string }](c).Reference)
	return object{}, err
}

// rawCall calls a method over the connection that the client gives out.
func rawCall(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Method  string
		Request jsonText
	}](c)
	service, method, _ := strings.Cut(args.Method, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("hutch.v1." + service))
	if err != nil {
		return nil, err
	}
	description := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	if description == nil {
		return nil, fmt.Errorf("there is no method %s", args.Method)
	}
	request, reply := newMessage(description.Input()), newMessage(description.Output())
	if len(args.Request) > 0 {
		if err := protojson.Unmarshal(args.Request, request); err != nil {
			return nil, err
		}
	}
	err = c.client.Conn().Invoke(ctx, "/hutch.v1."+args.Method, request, reply)
	return answer("response")(reply, err)
}

func newMessage(description protoreflect.MessageDescriptor) proto.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(description.FullName())
	if err != nil {
		panic(err)
	}
	return found.New().Interface()
}
