// SPDX-License-Identifier: Apache-2.0

// The client of Hutch. The contract's own messages, enums and services are in `v1`.
export type { CallOptions } from "./channel.js";
export {
  Client,
  connect,
  Images,
  Snapshots,
  type CreateOptions,
  type ListOptions,
  type OneShotOptions,
  type SandboxSpec,
} from "./client.js";
export type { ConnectOptions } from "./connect.js";
export {
  AlreadyExistsError,
  CancelledError,
  DeadlineExceededError,
  FailedPreconditionError,
  HutchError,
  InvalidArgumentError,
  NotFoundError,
  PermissionDeniedError,
  ResourceExhaustedError,
  StreamIncompleteError,
  UnauthenticatedError,
  UnavailableError,
  UnimplementedError,
  type Code,
  type ErrorFacts,
  type ReasonName,
  type Violation,
} from "./errors.js";
export {
  Exec,
  ExecResult,
  ExecStream,
  type CreateExecOptions,
  type ExecOptions,
  type OutputOptions,
  type RunOptions,
  type StartOptions,
} from "./exec.js";
export { Download, FileListing, Files, FileWatch, ImageChanges, LARGEST, type FileWatchItem } from "./files.js";
export type { Init } from "./messages.js";
export { OneShot } from "./once.js";
export { CommandOutput, type Collected } from "./output.js";
export { formatDuration, parseDuration, type DurationLike, type ExactDuration } from "./rules/duration.js";
export { HostPattern } from "./rules/hosts.js";
export { CollectedStream } from "./rules/output.js";
export { resolvePath, type PathContext, type PathUse, type ResolvedPath } from "./rules/paths.js";
export { Selector } from "./rules/selector.js";
export { Sandbox, type SandboxUpdate } from "./sandbox.js";
export type { Duplex, Service } from "./service.js";
export type { Source } from "./source.js";
export { EventType } from "./gen/hutch/v1/event_pb.js";
export { ExecEndReason, OutputStream } from "./gen/hutch/v1/exec_pb.js";
export { ArchiveCompression, FileChangeType, FileType, ImageChangeType } from "./gen/hutch/v1/file_pb.js";
export { IdleAction, LifetimeAction } from "./gen/hutch/v1/sandbox_pb.js";
export { ExecState, SandboxState } from "./gen/hutch/v1/state_pb.js";
export { Watch, type WatchOptions } from "./watch.js";
export * as v1 from "./v1.js";
export { VERSION } from "./version.js";
