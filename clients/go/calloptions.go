// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"io/fs"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// CallOption sets what a request leaves open otherwise. Each function says which it takes; one that its request has no
// field for is refused with FIELD_INVALID, and never ignored.
type CallOption struct {
	name   string
	fields []string // that it sets, where these are others than the name
	// apply puts the value into the message. false: it has no place for it.
	apply func(message protoreflect.Message) (bool, error)
}

// applyOptions puts each value into the first of the messages that has a place for it.
func applyOptions(options []CallOption, messages ...proto.Message) error {
	for _, option := range options {
		done := false
		for _, message := range messages {
			var err error
			if done, err = option.apply(message.ProtoReflect()); done || err != nil {
				if err != nil {
					return err
				}
				break
			}
		}
		if !done {
			failure := newError("FIELD_INVALID", "%s: this call has no such option", option.name)
			failure.Violations = []Violation{{option.name, failure.Reason, "this call has no such option"}}
			return failure
		}
	}
	return nil
}

// setField is an option for a field by its name.
func setField(name string, value protoreflect.Value) CallOption {
	return changeField(name, func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
		message.Set(field, value)
	})
}

func changeField(name string, change func(protoreflect.Message, protoreflect.FieldDescriptor)) CallOption {
	return CallOption{name: name, apply: func(message protoreflect.Message) (bool, error) {
		field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return false, nil
		}
		change(message, field)
		return true, nil
	}}
}

func setText(name, text string) CallOption { return setField(name, protoreflect.ValueOfString(text)) }
func setFlag(name string) CallOption       { return setField(name, protoreflect.ValueOfBool(true)) }

func setUint64(name string, value uint64) CallOption {
	return setField(name, protoreflect.ValueOfUint64(value))
}

func setUint32(name string, value uint32) CallOption {
	return setField(name, protoreflect.ValueOfUint32(value))
}

func addTexts(name string, texts []string) CallOption {
	return changeField(name, func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
		list := message.Mutable(field).List()
		for _, text := range texts {
			list.Append(protoreflect.ValueOfString(text))
		}
	})
}

func addPairs(name string, pairs map[string]string) CallOption {
	return changeField(name, func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
		entries := message.Mutable(field).Map()
		for key, value := range pairs {
			entries.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
		}
	})
}

func setDuration(name string, d time.Duration) CallOption {
	return CallOption{name: name, apply: func(message protoreflect.Message) (bool, error) {
		field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return false, nil
		}
		if refusal := rules.CheckDuration(d); refusal != nil {
			return false, violated(name, refusal)
		}
		message.Set(field, protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()))
		return true, nil
	}}
}

// addEnums is an option for a list of enum values, of that enum alone.
func addEnums[E protoreflect.Enum](name string, values []E) CallOption {
	return CallOption{name: name, apply: func(message protoreflect.Message) (bool, error) {
		field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return false, nil
		}
		list := message.Mutable(field).List()
		for _, value := range values {
			if value.Descriptor() != field.Enum() {
				return false, nil
			}
			list.Append(protoreflect.ValueOfEnum(value.Number()))
		}
		return true, nil
	}}
}

// With merges a message into the request, or into the message of its type within: a [hutchv1.SandboxSpec] for
// [Client.Create], a [hutchv1.ExecSpec] for commands. Whatever the contract has can be said so.
func With(message proto.Message) CallOption {
	fields := []string{}
	message.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, string(field.Name()))
		return true
	})
	name := string(message.ProtoReflect().Descriptor().Name())
	return CallOption{name: name, fields: fields, apply: func(target protoreflect.Message) (bool, error) {
		if target.Descriptor() != message.ProtoReflect().Descriptor() {
			return false, nil
		}
		proto.Merge(target.Interface(), message)
		return true, nil
	}}
}

// WithRequestID makes the call repeatable beyond the client's own tries. Without it one is made.
func WithRequestID(id string) CallOption { return setText("request_id", id) }

// WithID is the id of a new sandbox or exec. Without it the daemon makes one.
func WithID(id string) CallOption {
	return CallOption{name: "id", apply: func(message protoreflect.Message) (bool, error) {
		switch request := message.Interface().(type) {
		case *hutchv1.CreateSandboxRequest:
			request.SandboxId = id
		case *hutchv1.CreateExecRequest:
			request.ExecId = id
		default:
			return false, nil
		}
		return true, nil
	}}
}

// ---- Of sandboxes ----

// WithImage is what a sandbox is made from.
func WithImage(image string) CallOption { return setText("image", image) }

// WithProfile is the set of limits that a sandbox begins with: "default", "strict", "standard", "permissive".
func WithProfile(profile string) CallOption { return setText("profile", profile) }

// WithLabels are labels to find a thing by. [Sandbox.Update] replaces all that there are.
func WithLabels(labels map[string]string) CallOption { return addPairs("labels", labels) }

// WithIdleTTL is how long a sandbox may be idle; 0 is for ever.
func WithIdleTTL(ttl time.Duration) CallOption { return setDuration("idle_ttl", ttl) }

// WithMaxLifetime is how long a sandbox may live in all; 0 is for ever.
func WithMaxLifetime(lifetime time.Duration) CallOption { return setDuration("max_lifetime", lifetime) }

// WithIdleAction is what happens to a sandbox that was idle for too long: it is stopped, or deleted.
func WithIdleAction(action hutchv1.IdleAction) CallOption {
	return setField("idle_action", protoreflect.ValueOfEnum(action.Number()))
}

// WithLifetimeAction is what happens to a sandbox at the end of its lifetime: it is stopped, or deleted.
func WithLifetimeAction(action hutchv1.LifetimeAction) CallOption {
	return setField("lifetime_action", protoreflect.ValueOfEnum(action.Number()))
}

// WithLimits are limits of a sandbox. Those that are left out are the profile's.
func WithLimits(limits *hutchv1.ResourceLimits) CallOption {
	return setField("limits", protoreflect.ValueOfMessage(limits.ProtoReflect()))
}

// WithEgress are the hosts that a sandbox may reach. Without it there are none.
func WithEgress(hosts ...string) CallOption { return addTexts("egress", hosts) }

// WithUsage has a sandbox measured.
func WithUsage() CallOption { return setFlag("include_usage") }

// WithGrace is the time between TERM and KILL; 0 is KILL at once.
func WithGrace(grace time.Duration) CallOption { return setDuration("grace", grace) }

// WithAllOwners means everybody's sandboxes, for admins.
func WithAllOwners() CallOption { return setFlag("all_owners") }

// WithSelector means things with these labels: "team=ml,!temporary".
func WithSelector(selector string) CallOption { return setText("selector", selector) }

// WithStates means things in these states.
func WithStates[S hutchv1.SandboxState | hutchv1.ExecState](states ...S) CallOption {
	return CallOption{name: "states", apply: func(message protoreflect.Message) (bool, error) {
		switch request := message.Interface().(type) {
		case *hutchv1.ListSandboxesRequest:
			states, ok := any(states).([]hutchv1.SandboxState)
			request.States = append(request.States, states...)
			return ok, nil
		case *hutchv1.ListExecsRequest:
			states, ok := any(states).([]hutchv1.ExecState)
			request.States = append(request.States, states...)
			return ok, nil
		}
		return false, nil
	}}
}

// ---- Of commands ----

// WithEnv is environment over what is there. Values may be "secret://NAME".
func WithEnv(env map[string]string) CallOption { return addPairs("env", env) }

// WithUnsetEnv are names that are removed from the environment.
func WithUnsetEnv(names ...string) CallOption { return addTexts("unset_env", names) }

// WithWorkingDirectory is where a command runs, or what relative paths of a sandbox stand below.
func WithWorkingDirectory(path string) CallOption { return setText("working_directory", path) }

// WithUser is whom a command runs as, inside: a name, "uid" or "uid:gid".
func WithUser(user string) CallOption { return setText("user", user) }

// WithExecTimeout is how long a command may run. It and all it has started are killed then, and its exit code is 124.
func WithExecTimeout(timeout time.Duration) CallOption { return setDuration("timeout", timeout) }

// WithKillGrace is the time between TERM and KILL when a command is cancelled or times out.
func WithKillGrace(grace time.Duration) CallOption { return setDuration("kill_grace", grace) }

// WithInput is what a command that is run to its end reads: at most 3 MiB.
func WithInput(input []byte) CallOption { return setField("input", protoreflect.ValueOfBytes(input)) }

// WithTerminal gives a command a terminal of that size.
func WithTerminal(rows, columns uint32) CallOption {
	size := &hutchv1.TerminalSize{Rows: rows, Columns: columns}
	return setField("terminal", protoreflect.ValueOfMessage(size.ProtoReflect()))
}

// WithStdin has a command read what [Process.Write] sends. Without it its stdin is empty.
func WithStdin() CallOption {
	return setField("stdin", protoreflect.ValueOfEnum(hutchv1.StdinMode_STDIN_MODE_STREAM.Number()))
}

// WithBound has a command that is started be cancelled by the daemon when its connection is lost or the client is gone.
func WithBound() CallOption { return setFlag("bound") }

// WithOutputLimit is how much output is kept: of each stream, or for [Sandbox.Run] of both together in the answer.
func WithOutputLimit(bytes uint64) CallOption { return setUint64("output_limit_bytes", bytes) }

// WithOffsets is where reading output begins.
func WithOffsets(stdout, stderr uint64) CallOption {
	return CallOption{name: "offsets", apply: func(message protoreflect.Message) (bool, error) {
		switch request := message.Interface().(type) {
		case *hutchv1.AttachTarget:
			request.StdoutOffset, request.StderrOffset = stdout, stderr
		case *hutchv1.ReadExecOutputRequest:
			request.StdoutOffset, request.StderrOffset = stdout, stderr
		default:
			return false, nil
		}
		return true, nil
	}}
}

// WithStreams has only these streams of output read.
func WithStreams(streams ...hutchv1.OutputStream) CallOption { return addEnums("streams", streams) }

// WithFollow has output read until the command ends.
func WithFollow() CallOption { return setFlag("follow") }

// WithTailLines has output read from so many lines before its end.
func WithTailLines(lines uint64) CallOption { return setUint64("tail_lines", lines) }

// ---- Of events ----

// WithSandboxes means these sandboxes only.
func WithSandboxes(ids ...string) CallOption { return addTexts("sandbox_ids", ids) }

// WithEventTypes means events of these types only.
func WithEventTypes(types ...hutchv1.EventType) CallOption { return addEnums("types", types) }

// WithAfterCursor has a watch begin after that event; 0 is the oldest that is kept. Without it it begins now.
func WithAfterCursor(cursor uint64) CallOption { return setUint64("after_cursor", cursor) }

// WithSnapshot has a watch begin with the sandboxes as they are.
func WithSnapshot() CallOption { return setFlag("include_snapshot") }

// ---- Of files ----

// WithMode are the permission bits of a new file or folder.
func WithMode(mode fs.FileMode) CallOption { return setUint32("mode", uint32(mode)) }

// WithParents has missing folders above be made.
func WithParents() CallOption { return setFlag("create_parents") }

// WithOverwrite has a file that is there be replaced.
func WithOverwrite() CallOption { return setFlag("overwrite") }

// WithExpectedVersion fails with FILE_CHANGED when the file has another version.
func WithExpectedVersion(version string) CallOption { return setText("expected_version", version) }

// WithSize is how many bytes an upload has; SIZE_MISMATCH when it is others.
func WithSize(bytes uint64) CallOption { return setUint64("size_bytes", bytes) }

// WithSHA256 is the digest of an upload; CHECKSUM_MISMATCH when it is another.
func WithSHA256(digest []byte) CallOption {
	return setField("sha256", protoreflect.ValueOfBytes(digest))
}

// WithUploadID has what came of a broken upload be kept for an hour. [Files.UploadStat] tells how much.
func WithUploadID(id string) CallOption { return setText("upload_id", id) }

// WithResumeOffset goes on with an upload that has so many bytes already.
func WithResumeOffset(offset uint64) CallOption { return setUint64("resume_offset", offset) }

// WithMaxSize allows more than 256 MiB in one transfer.
func WithMaxSize(bytes uint64) CallOption { return setUint64("max_size_bytes", bytes) }

// WithOffset is where reading a file begins.
func WithOffset(offset uint64) CallOption { return setUint64("offset", offset) }

// WithLength is how many bytes of a file are read at most.
func WithLength(bytes uint64) CallOption { return setUint64("length", bytes) }

// WithFollowSymlink tells about what a symlink points at.
func WithFollowSymlink() CallOption { return setFlag("follow_symlink") }

// WithDepth is how deep a listing goes.
func WithDepth(depth uint32) CallOption { return setUint32("depth", depth) }

// WithGlob means entries whose path below the folder matches.
func WithGlob(pattern string) CallOption { return setText("glob", pattern) }

// WithRecursive means folders with all that is in them.
func WithRecursive() CallOption { return setFlag("recursive") }

// WithIgnoreMissing has it be no error when nothing is there.
func WithIgnoreMissing() CallOption { return setFlag("ignore_missing") }

// WithCompression is that of an archive.
func WithCompression(compression hutchv1.ArchiveCompression) CallOption {
	return setField("compression", protoreflect.ValueOfEnum(compression.Number()))
}

// WithInclude means only what matches one of these patterns, in .gitignore's form.
func WithInclude(patterns ...string) CallOption { return addTexts("include", patterns) }

// WithExclude means not what matches one of these patterns.
func WithExclude(patterns ...string) CallOption { return addTexts("exclude", patterns) }

// WithIgnoreFile is the name of files with further patterns to leave out, such as ".gitignore".
func WithIgnoreFile(name string) CallOption { return setText("ignore_file", name) }
