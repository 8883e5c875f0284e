// SPDX-License-Identifier: Apache-2.0

// A sample of how the generated TypeScript code is used: with protobuf-es for messages and grpc-js for calls, a
// service's descriptor is all that a client needs. Type-checked by test_stubs.py.
import { create, fromBinary, toBinary, type DescMethodUnary, type MessageShape } from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";

import { ResourceLimitsSchema, type ResourceLimits } from "./gen/hutch/v1/sandbox_pb.js";
import { PingRequestSchema, SystemService, type PingResponse } from "./gen/hutch/v1/system_pb.js";

function call<M extends DescMethodUnary>(
  client: Client,
  method: M,
  request: MessageShape<M["input"]>,
): Promise<MessageShape<M["output"]>> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      `/${method.parent.typeName}/${method.name}`,
      (message: MessageShape<M["input"]>) => Buffer.from(toBinary(method.input, message)),
      (bytes: Buffer) => fromBinary(method.output, bytes) as MessageShape<M["output"]>,
      request,
      (error, answer) => (answer === undefined ? reject(error) : resolve(answer)),
    );
  });
}

export function ping(address: string): Promise<PingResponse> {
  const client = new Client(address, credentials.createInsecure());
  return call(client, SystemService.method.ping, create(PingRequestSchema)).finally(() => client.close());
}

export function hasMemoryLimit(limits: ResourceLimits = create(ResourceLimitsSchema, { memoryBytes: 0n })): boolean {
  const bytes: bigint | undefined = limits.memoryBytes;
  return bytes !== undefined;
}
