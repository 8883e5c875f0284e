// SPDX-License-Identifier: Apache-2.0

package hutch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

func Example() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	result, err := client.RunShell(ctx, "echo hello from $(uname -s)")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Output())
	// Output: hello from Linux
}

func ExampleClient_Create() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	sandbox, err := client.Create(ctx,
		hutch.WithProfile("standard"),
		hutch.WithLabels(map[string]string{"task": "tour"}),
		hutch.WithIdleTTL(10*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	result, err := sandbox.Run(ctx, []string{"python3", "-c", "print(6 * 7)"},
		hutch.WithExecTimeout(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d: %s", result.ExitCode, result.Stdout)
	// Output: 0: 42
}

func ExampleSandbox_Start() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sandbox, err := client.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	process, err := sandbox.Start(ctx, []string{"sort"}, hutch.WithStdin())
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()

	go func() {
		fmt.Fprintln(process, "pears")
		fmt.Fprintln(process, "apples")
		process.CloseStdin()
	}()
	exec, err := process.Wait(os.Stdout, os.Stderr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", exec.GetResult().GetExitCode())
	// Output:
	// apples
	// pears
	// exit code 0
}

func ExampleSandbox_CreateExec() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sandbox, err := client.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	exec, err := sandbox.CreateExec(ctx, []string{"sh", "-c", "sleep 0.1; echo built"})
	if err != nil {
		log.Fatal(err)
	}

	// Later, also from another program: all it has printed, and what it prints until it ends.
	output, err := sandbox.Exec(exec.ID()).Output(ctx, hutch.WithFollow())
	if err != nil {
		log.Fatal(err)
	}
	defer output.Close()
	if _, err := output.CopyTo(os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
	// Output: built
}

func ExampleFiles() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sandbox, err := client.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	files := sandbox.Files()
	if _, err := files.Write(ctx, "data/names.txt", []byte("ann\nbob\n"), hutch.WithParents()); err != nil {
		log.Fatal(err)
	}
	for file, err := range files.List(ctx, "data").All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(file.GetPath(), file.GetSizeBytes())
	}

	reader, err := files.Open(ctx, "data/names.txt", hutch.WithOffset(4))
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	io.Copy(os.Stdout, reader)
	// Output:
	// /workspace/data/names.txt 8
	// bob
}

func ExampleClient_Watch() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	watch, err := client.Watch(ctx, hutch.WithSelector("task=watched"))
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()

	sandbox, err := client.Create(ctx, hutch.WithLabels(map[string]string{"task": "watched"}))
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	for change, err := range watch.All() {
		if err != nil {
			log.Fatal(err)
		}
		state := change.Event.GetSandboxState().GetToState()
		fmt.Println(state)
		if state == hutchv1.SandboxState_SANDBOX_STATE_READY {
			break
		}
	}
	// Output:
	// SANDBOX_STATE_PENDING
	// SANDBOX_STATE_READY
}

func ExampleError() {
	ctx := context.Background()
	client, err := hutch.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = client.Get(ctx, "no-such-sandbox")
	fmt.Println(errors.Is(err, hutch.ErrNotFound), hutch.ReasonOf(err))

	_, err = client.Create(ctx, hutch.WithLabels(map[string]string{"not a key": "x"}))
	var refused *hutch.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Violations[0].Field, refused.Violations[0].Reason)
	}
	// Output:
	// true SANDBOX_NOT_FOUND
	// InvalidArgument spec.labels[not a key] LABEL_MALFORMED
}

func ExampleRemoteRunner() {
	ctx := context.Background()
	// Over TCP: "build-box:7443" with hutch.WithToken(…), and hutch.WithCAFile(…) for a CA of one's own.
	runner, err := hutch.NewRemoteRunner(ctx, os.Getenv("HUTCH_ADDRESS"))
	if err != nil {
		log.Fatal(err)
	}
	defer runner.Close()

	code, err := runner.Exec(ctx, []string{"echo", "remote"}, os.Stdout, os.Stderr, hutch.WithProfile("strict"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", code)
	// Output:
	// remote
	// exit code 0
}
