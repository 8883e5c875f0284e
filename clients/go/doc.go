// SPDX-License-Identifier: Apache-2.0

// Package hutch gives programs sandboxes: isolated Linux boxes in which commands run and files are kept, made by the
// daemon hutchd on this machine or on another.
//
//	client, err := hutch.Connect(ctx, hutch.WithStartDaemon())
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	result, err := client.RunShell(ctx, "echo hello from $(uname -s)")
//	if err != nil {
//		return err
//	}
//	fmt.Print(result.Output())
//
// # Contexts and deadlines
//
// Every function that talks to the daemon takes a context first. A call whose context has no deadline gets one of 60 s
// ([WithTimeout]); waiting for a state one of 180 s; streams none. The deadline is sent to the daemon and covers all
// tries.
//
// # Errors
//
// Functions fail with an [*Error], which has the gRPC code, the reason, the facts that belong to it and every field
// that is to blame. errors.Is knows the kinds: errors.Is(err, hutch.ErrNotFound). What breaks the rules for ids,
// paths, labels and the like is refused before a call is made. A command that fails is a result and no error.
//
// # Again, and without doubles
//
// Calls that only read, and those that carry a request id (one is made where the caller gives none), are tried again,
// up to six times, when the daemon cannot be reached; others only while it has certainly not seen them. Watches,
// output and downloads go on where they were.
//
// # Goroutines
//
// A [Client] and its handles may be used by any number of goroutines at once; a stream ([Process], [OutputReader],
// [FileReader], [Watch], [FileWatch]) is read by one at a time, while another may write to it or close it. Streams that
// are not read to their end are closed by their Close, or by the end of their context.
//
// # Messages
//
// Package hutchv1 has the messages of the contract, which handles give out as they are, and the stubs: those work over
// [Client.Conn], with the same deadlines, retries and errors.
package hutch

// Version is that of this module.
const Version = "0.1.0"
