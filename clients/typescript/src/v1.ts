// SPDX-License-Identifier: Apache-2.0

// The contract: its messages, enums and services.
export * from "./gen/hutch/v1/error_pb.js";
export * from "./gen/hutch/v1/event_pb.js";
export * from "./gen/hutch/v1/exec_pb.js";
export * from "./gen/hutch/v1/file_pb.js";
export * from "./gen/hutch/v1/image_pb.js";
export * from "./gen/hutch/v1/policy_pb.js";
export * from "./gen/hutch/v1/port_pb.js";
export * from "./gen/hutch/v1/provider_pb.js";
export * from "./gen/hutch/v1/sandbox_exec_pb.js";
export * from "./gen/hutch/v1/sandbox_pb.js";
export * from "./gen/hutch/v1/state_pb.js";
export * from "./gen/hutch/v1/system_pb.js";
