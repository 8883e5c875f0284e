// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// Error is what every function of this package fails with, but for those that only pass on the error of a reader or
// writer that they were given. It is also what calls on the stubs fail with that are made over [Client.Conn].
type Error struct {
	Code       codes.Code
	Reason     string            // a hutch.v1.Reason without its prefix: "SANDBOX_NOT_FOUND"
	Message    string            // a sentence for people
	Metadata   map[string]string // facts that belong to it: "state", "limit", "value"
	Violations []Violation       // of INVALID_ARGUMENT: every field that is to blame
	cause      error
}

// Violation is a field of a request that is to blame.
type Violation struct {
	Field   string // its path: "spec.labels"
	Reason  string
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("hutch: %s: %s: %s", rules.CodeName(e.Code), e.Reason, e.Message)
}

// Unwrap gives what the error came from, if it is known.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus has status.FromError know it.
func (e *Error) GRPCStatus() *status.Status {
	made := status.New(e.Code, e.Message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: e.Reason, Domain: domain, Metadata: e.Metadata}}
	if len(e.Violations) > 0 {
		request := &errdetails.BadRequest{}
		for _, violation := range e.Violations {
			request.FieldViolations = append(request.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: violation.Field, Reason: violation.Reason, Description: violation.Message,
			})
		}
		details = append(details, request)
	}
	if detailed, err := made.WithDetails(details...); err == nil {
		return detailed
	}
	return made
}

const domain = "hutch"

// kind is an error that stands for all with its code or its reason.
type kind struct {
	text   string
	code   codes.Code
	reason string
}

func (k *kind) Error() string { return "hutch: " + k.text }

// Kinds of errors, for errors.Is.
var (
	ErrCancelled          error = &kind{text: "cancelled", code: codes.Canceled}
	ErrInvalidArgument    error = &kind{text: "invalid argument", code: codes.InvalidArgument}
	ErrDeadlineExceeded   error = &kind{text: "deadline exceeded", code: codes.DeadlineExceeded}
	ErrNotFound           error = &kind{text: "not found", code: codes.NotFound}
	ErrAlreadyExists      error = &kind{text: "already exists", code: codes.AlreadyExists}
	ErrPermissionDenied   error = &kind{text: "permission denied", code: codes.PermissionDenied}
	ErrResourceExhausted  error = &kind{text: "resource exhausted", code: codes.ResourceExhausted}
	ErrFailedPrecondition error = &kind{text: "failed precondition", code: codes.FailedPrecondition}
	ErrAborted            error = &kind{text: "aborted", code: codes.Aborted}
	ErrOutOfRange         error = &kind{text: "out of range", code: codes.OutOfRange}
	ErrUnimplemented      error = &kind{text: "unimplemented", code: codes.Unimplemented}
	ErrUnavailable        error = &kind{text: "unavailable", code: codes.Unavailable}
	ErrUnauthenticated    error = &kind{text: "unauthenticated", code: codes.Unauthenticated}

	// ErrStreamIncomplete: a stream ended without telling how its command did.
	ErrStreamIncomplete error = &kind{text: "stream incomplete", reason: "STREAM_INCOMPLETE"}
	// ErrTokenInClearText: a token would go over a connection that is not encrypted.
	ErrTokenInClearText error = &kind{text: "token in clear text", reason: "TOKEN_IN_CLEAR_TEXT"}
)

// Is tells errors.Is of the kinds above, and of context.Canceled and context.DeadlineExceeded.
func (e *Error) Is(target error) bool {
	if k, ok := target.(*kind); ok {
		return k.reason != "" && k.reason == e.Reason || k.reason == "" && k.code == e.Code
	}
	return target == context.Canceled && e.Code == codes.Canceled ||
		target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded
}

// ReasonOf is the reason of an error of this package, "" of any other.
func ReasonOf(err error) string {
	if failure := (*Error)(nil); errors.As(err, &failure) {
		return failure.Reason
	}
	return ""
}

// newError makes an error with the code of its reason.
func newError(reason, format string, args ...any) *Error {
	code, _ := rules.CodeOf(reason)
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...), Metadata: map[string]string{}}
}

// reasonsOfCodes are those of errors that come from the connection and not from the daemon.
var reasonsOfCodes = map[codes.Code]string{
	codes.Canceled:          "CALL_CANCELLED",
	codes.DeadlineExceeded:  "DEADLINE_EXCEEDED",
	codes.ResourceExhausted: "MESSAGE_TOO_LARGE",
	codes.Unimplemented:     "METHOD_UNIMPLEMENTED",
	codes.Unavailable:       "DAEMON_UNREACHABLE",
	codes.Internal:          "INTERNAL",
}

// toError makes one of this package of what gRPC fails with. nil stays nil.
func toError(err error) error {
	if err == nil {
		return nil
	}
	if failure := (*Error)(nil); errors.As(err, &failure) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = status.FromContextError(err).Err()
	}
	from := status.Convert(err)
	failure := &Error{Code: from.Code(), Reason: reasonsOfCodes[from.Code()], Message: from.Message(),
		Metadata: map[string]string{}}
	for _, detail := range from.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == domain {
				failure.Reason = detail.GetReason()
				maps.Copy(failure.Metadata, detail.GetMetadata())
			}
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				failure.Violations = append(failure.Violations, Violation{v.GetField(), v.GetReason(), v.GetDescription()})
			}
		}
	}
	return failure
}
