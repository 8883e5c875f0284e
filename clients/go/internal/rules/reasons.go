// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"google.golang.org/grpc/codes"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

// codesOfReasons has the code of each hundred of the numbers of hutch.v1.Reason (ERR-002).
var codesOfReasons = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted,
	codes.OutOfRange, codes.ResourceExhausted, codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated,
	codes.Unimplemented, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.DataLoss,
}

// CodeOf is the code that a reason belongs to.
func CodeOf(reason string) (codes.Code, bool) {
	value, found := hutchv1.Reason_value["REASON_"+reason]
	if !found || value <= 0 || int(value/100) >= len(codesOfReasons) {
		return codes.Unknown, false
	}
	return codesOfReasons[value/100], true
}

// CodeName is the name of a code as the specification of gRPC writes it.
func CodeName(code codes.Code) string {
	names := []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	if int(code) < len(names) {
		return names[code]
	}
	return "UNKNOWN"
}
