// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

type jsonText = json.RawMessage

// execArgs are those of commands that start something.
type execArgs struct {
	Spec      message[hutchv1.ExecSpec, *hutchv1.ExecSpec]
	ExecID    *string `json:"exec_id"`
	RequestID *string `json:"request_id"`
}

func (a execArgs) options() []hutch.CallOption {
	return slices.Concat([]hutch.CallOption{hutch.With(a.Spec.value)}, option(a.ExecID, hutch.WithID),
		option(a.RequestID, hutch.WithRequestID))
}

func withInput(input content) hutch.CallOption { return hutch.WithInput(input) }

func runCommand(ctx context.Context, c *call) (any, error) {
	input := parse[struct{ Input *content }](c).Input
	result, err := c.sandbox().Run(ctx, nil, append(parse[execArgs](c).options(), option(input, withInput)...)...)
	if err != nil {
		return nil, err
	}
	return object{
		"exec": asJSON(result.Exec), "stdout": told(result.Stdout), "stderr": told(result.Stderr),
		"truncated": result.Truncated,
	}, nil
}

func createExec(ctx context.Context, c *call) (any, error) {
	exec, err := c.sandbox().CreateExec(ctx, nil, parse[execArgs](c).options()...)
	if err != nil {
		return nil, err
	}
	return object{"exec": asJSON(exec.Info())}, nil
}

func getExec(ctx context.Context, c *call) (any, error) { return answer("exec")(c.exec().Get(ctx)) }

func listExecs(ctx context.Context, c *call) (any, error) {
	states := parse[struct{ States []string }](c).States
	return collect("execs", c.sandbox().Execs(ctx, hutch.WithStates(enums[hutchv1.ExecState](states,
		hutchv1.ExecState_value)...)))
}

func cancelExec(ctx context.Context, c *call) (any, error) {
	return answer("exec")(c.exec().Cancel(ctx, grace(c)...))
}

func startExec(ctx context.Context, c *call) (any, error) {
	bound := flag(parse[struct{ Bound bool }](c).Bound, hutch.WithBound)
	process, err := c.sandbox().Start(ctx, nil, append(parse[execArgs](c).options(), bound...)...)
	return followProcess(c, process, err)
}

// offsets are where output begins.
func offsets(c *call) hutch.CallOption {
	args := parse[struct {
		Stdout uint64 `json:"stdout_offset"`
		Stderr uint64 `json:"stderr_offset"`
	}](c)
	return hutch.WithOffsets(args.Stdout, args.Stderr)
}

func attachExec(ctx context.Context, c *call) (any, error) {
	process, err := c.exec().Attach(ctx, offsets(c))
	return followProcess(c, process, err)
}

func readOutput(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Streams   []string
		Follow    bool
		TailLines *uint64 `json:"tail_lines"`
	}](c)
	streams := enums[hutchv1.OutputStream](args.Streams, hutchv1.OutputStream_value)
	reader, err := c.exec().Output(ctx, slices.Concat([]hutch.CallOption{offsets(c), hutch.WithStreams(streams...)},
		flag(args.Follow, hutch.WithFollow), option(args.TailLines, hutch.WithTailLines))...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	output := newOutputs(c)
	if err := output.take(reader.Chunks()); err != nil {
		return nil, err
	}
	return output.answer("exec", asJSON(reader.Exec())), nil
}

// outputs are both streams of a command.
type outputs struct {
	call    *call
	mutex   sync.Mutex
	changed *sync.Cond // more came on stdout, or it was the end
	over    bool
	stdout  collected
	stderr  collected
}

func newOutputs(c *call) *outputs {
	o := &outputs{call: c}
	o.changed = sync.NewCond(&o.mutex)
	return o
}

func (o *outputs) take(chunks iter.Seq2[*hutchv1.OutputChunk, error]) error {
	defer o.end()
	for chunk, err := range chunks {
		if err != nil {
			return err
		}
		o.add(chunk)
		o.call.note()
	}
	return nil
}

func (o *outputs) add(chunk *hutchv1.OutputChunk) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if chunk.GetStream() == hutchv1.OutputStream_OUTPUT_STREAM_STDERR {
		o.stderr.add(chunk)
	} else {
		o.stdout.add(chunk)
		o.changed.Broadcast()
	}
}

func (o *outputs) end() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.over = true
	o.changed.Broadcast()
}

// waitFor waits until stdout has the text. false: it has ended before.
func (o *outputs) waitFor(text string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for !bytes.Contains(o.stdout.data, []byte(text)) {
		if o.over {
			return false
		}
		o.changed.Wait()
	}
	return true
}

func (o *outputs) answer(name string, end jsonText) object {
	return object{name: end, "stdout": o.stdout.told(), "stderr": o.stderr.told()}
}

// step is one of a command's input.
type step struct {
	Stdin  *content
	Close  bool
	Resize *struct{ Rows, Columns uint32 }
	Signal *uint32
	After  *string
}

func (s step) take(process *hutch.Process) error {
	switch {
	case s.Stdin != nil:
		_, err := process.Write(*s.Stdin)
		return err
	case s.Close:
		return process.CloseStdin()
	case s.Resize != nil:
		return process.Resize(s.Resize.Rows, s.Resize.Columns)
	default:
		return process.Signal(*s.Signal)
	}
}

func followProcess(c *call, process *hutch.Process, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	output := newOutputs(c)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for _, step := range parse[struct{ Input []step }](c).Input {
			if step.After != nil {
				if !output.waitFor(*step.After) {
					return
				}
			} else if step.take(process) != nil {
				return // reading tells
			}
		}
	}()
	err = output.take(process.Chunks())
	_ = process.Close()
	<-fed
	if err != nil {
		return nil, err
	}
	return output.answer("exec", asJSON(process.Ended())), nil
}

// ---- One-shots ----

func execOnce(ctx context.Context, c *call) (any, error) {
	request := parse[struct {
		Request message[hutchv1.ExecRequest, *hutchv1.ExecRequest]
	}](c).Request
	once, err := c.client.StartOnce(ctx, nil, hutch.With(request.value))
	if err != nil {
		return nil, err
	}
	defer once.Close()
	output := newOutputs(c)
	if err := output.take(once.Chunks()); err != nil {
		return nil, err
	}
	answer := output.answer("exit", asJSON(once.Exit()))
	answer["started"] = asJSON(once.Started())
	return answer, nil
}

func runOnce(ctx context.Context, c *call) (any, error) {
	args := parse[struct {
		Argv         []string
		Script, Code string
		Spec         *sandboxSpec
		Env          *map[string]string
		Input        *content
		Timeout      *duration
	}](c)
	options := slices.Concat(option(args.Spec, withSpec), option(args.Env, hutch.WithEnv), option(args.Input, withInput),
		option(args.Timeout,
			func(timeout duration) hutch.CallOption { return hutch.WithExecTimeout(timeout.value.AsDuration()) }))

	var result *hutch.Result
	var err error
	switch c.Op {
	case "once.run_shell":
		result, err = c.client.RunShell(ctx, args.Script, options...)
	case "once.run_python":
		result, err = c.client.RunPython(ctx, args.Code, options...)
	default:
		result, err = c.client.Run(ctx, args.Argv, options...)
	}
	if err != nil {
		return nil, err
	}
	return object{
		"exit_code": result.ExitCode, "stdout": told(result.Stdout), "stderr": told(result.Stderr),
		"truncated": result.Truncated,
	}, nil
}
