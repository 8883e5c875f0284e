// SPDX-License-Identifier: Apache-2.0

import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { BadRequestSchema, ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema, type Status } from "./gen/google/rpc/status_pb.js";
import { Reason } from "./gen/hutch/v1/error_pb.js";

const CODES = [
  "OK",
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
] as const;

/** The name of a status code of gRPC. */
export type Code = (typeof CODES)[number];

/** The name of a `hutch.v1.Reason`. */
export type ReasonName = keyof typeof Reason;

/** A field of the request that is to blame. */
export interface Violation {
  /** Its path: `spec.labels`. */
  field: string;
  reason: string;
  message: string;
}

/** What is known of an error beside its message. */
export interface ErrorFacts {
  code: Code;
  /** What it is about, for programs: `SANDBOX_NOT_FOUND`. Reasons of the daemon are those of `hutch.v1.Reason`. */
  reason: string;
  metadata?: Record<string, string>;
  violations?: Violation[];
  cause?: unknown;
}

/** Every error of this library. Its subclasses are by code. */
export class HutchError extends Error {
  readonly code: Code;
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly violations: readonly Violation[];

  constructor(message: string, facts: ErrorFacts) {
    super(message, "cause" in facts ? { cause: facts.cause } : undefined);
    this.name = new.target.name;
    this.code = facts.code;
    this.reason = facts.reason;
    this.metadata = facts.metadata ?? {};
    this.violations = facts.violations ?? [];
  }
}

/** The call was cancelled: by an `AbortSignal`, or because its client or handle was closed. */
export class CancelledError extends HutchError {}
/** The request breaks a rule; `violations` names each field. Mostly found before anything was sent. */
export class InvalidArgumentError extends HutchError {}
export class DeadlineExceededError extends HutchError {}
export class NotFoundError extends HutchError {}
export class AlreadyExistsError extends HutchError {}
export class PermissionDeniedError extends HutchError {}
/** A limit or quota; `metadata` has its name and value. */
export class ResourceExhaustedError extends HutchError {}
/** Something is in a state that does not allow this; `metadata.state` tells it. */
export class FailedPreconditionError extends HutchError {}
export class UnimplementedError extends HutchError {}
/** No daemon answers, or it cannot start sandboxes now. */
export class UnavailableError extends HutchError {}
export class UnauthenticatedError extends HutchError {}
/** A stream ended before its end was told. */
export class StreamIncompleteError extends HutchError {}

const CLASSES: Partial<Record<Code, typeof HutchError>> = {
  CANCELLED: CancelledError,
  INVALID_ARGUMENT: InvalidArgumentError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
  NOT_FOUND: NotFoundError,
  ALREADY_EXISTS: AlreadyExistsError,
  PERMISSION_DENIED: PermissionDeniedError,
  RESOURCE_EXHAUSTED: ResourceExhaustedError,
  FAILED_PRECONDITION: FailedPreconditionError,
  UNIMPLEMENTED: UnimplementedError,
  UNAVAILABLE: UnavailableError,
  UNAUTHENTICATED: UnauthenticatedError,
  DATA_LOSS: StreamIncompleteError,
};

/** An error of the class that its code has. */
export function makeError(message: string, facts: ErrorFacts): HutchError {
  return new (CLASSES[facts.code] ?? HutchError)(message, facts);
}

/** An error that this client makes, by its reason. */
export function failure(
  reason: ReasonName,
  message: string,
  facts: Partial<Omit<ErrorFacts, "code" | "reason">> = {},
): HutchError {
  return makeError(message, { code: codeOfReason(reason) ?? "UNKNOWN", reason, ...facts });
}

/** The code that a reason belongs to. The contract numbers reasons by it: a hundred for each. */
export function codeOfReason(reason: string): Code | undefined {
  const number = Reason[reason as ReasonName];
  const code = number ? CODES_OF_HUNDREDS[Math.floor(number / 100)] : undefined;

  return code;
}

const CODES_OF_HUNDREDS: readonly Code[] = [
  "INVALID_ARGUMENT",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "RESOURCE_EXHAUSTED",
  "UNAVAILABLE",
  "PERMISSION_DENIED",
  "UNAUTHENTICATED",
  "UNIMPLEMENTED",
  "DEADLINE_EXCEEDED",
  "CANCELLED",
  "INTERNAL",
  "DATA_LOSS",
];

/** How a call ended, as gRPC tells it. */
export interface CallStatus {
  code: number;
  details: string;
  /** `grpc-status-details-bin` */
  encoded?: Uint8Array | undefined;
}

/** The error of a call that ended with a status. */
export function errorOfStatus(status: CallStatus): HutchError {
  const code = CODES[status.code] ?? "UNKNOWN";
  const details = decodeStatus(status.encoded)?.details ?? [];
  const infos = details.map((detail) => anyUnpack(detail, ErrorInfoSchema)).filter((info) => info !== undefined);
  const requests = details.map((detail) => anyUnpack(detail, BadRequestSchema)).filter((bad) => bad !== undefined);

  return makeError(status.details, {
    code,
    reason: infos[0]?.reason || code,
    metadata: infos[0]?.metadata ?? {},
    violations: requests
      .flatMap((request) => request.fieldViolations)
      .map(({ field, reason, description }) => ({ field, reason, message: description })),
  });
}

/** Details that cannot be read are none: the code tells without. */
function decodeStatus(encoded: Uint8Array | undefined): Status | undefined {
  try {
    return encoded && fromBinary(StatusSchema, encoded);
  } catch {
    return undefined;
  }
}
