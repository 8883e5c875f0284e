// SPDX-License-Identifier: Apache-2.0

// A server that does what a test tells it, where a real daemon would have to be made to fail.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary, toBinary, type DescMethod } from "@bufbuild/protobuf";
import { Server, ServerCredentials, status, type Metadata, type UntypedHandleCall } from "@grpc/grpc-js";
import { Channel } from "../src/channel.js";
import { Client } from "../src/client.js";
import { findDaemon, type ConnectOptions } from "../src/connect.js";
import { message } from "../src/messages.js";
import type { Clock } from "../src/retry.js";

/** What a method does: as grpc-js has it, typed by the test. */
export type Handler = UntypedHandleCall;

export class Fake implements AsyncDisposable {
  private readonly folder = mkdtempSync(join(tmpdir(), "hutch-ts-"));
  readonly address = `unix:${join(this.folder, "fake.sock")}`;
  private server = new Server();

  static async start(...handlers: [DescMethod, Handler][]): Promise<Fake> {
    const fake = new Fake();

    await fake.begin(handlers);
    return fake;
  }

  async begin(handlers: [DescMethod, Handler][]): Promise<void> {
    const encode = (schema: DescMethod["input"]) => (init: unknown) =>
      Buffer.from(toBinary(schema, message(schema, init as never)));
    const decode = (schema: DescMethod["input"]) => (bytes: Buffer) => fromBinary(schema, bytes);

    this.server = new Server();
    for (const [method, handler] of handlers) {
      const definition = {
        path: `/${method.parent.typeName}/${method.name}`,
        requestStream: method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
        responseStream: method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
        requestSerialize: encode(method.input),
        requestDeserialize: decode(method.input),
        responseSerialize: encode(method.output),
        responseDeserialize: decode(method.output),
      };
      this.server.addService({ [method.name]: definition }, { [method.name]: handler });
    }
    await new Promise<void>((resolve, reject) => {
      this.server.bindAsync(this.address, ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      );
    });
  }

  /** Ends it, and every connection with it. */
  kill(): void {
    this.server.forceShutdown();
  }

  async client(options: ConnectOptions = {}, clock?: Clock): Promise<Client> {
    const settings = await findDaemon({ address: this.address, environment: {}, ...options });

    return new Client(new Channel({ ...settings, ...(clock ? { clock } : {}) }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A failure as a server tells it. */
export function failing(code: keyof typeof status, metadata?: Metadata): object {
  return { code: status[code], details: code, ...(metadata ? { metadata } : {}) };
}

/** A clock that does not wait, and counts. */
export class FakeClock implements Clock {
  readonly pauses: number[] = [];
  private time = Date.now();

  now(): number {
    return this.time;
  }

  async sleep(ms: number): Promise<void> {
    this.pauses.push(ms);
    this.time += ms;
  }

  random(): number {
    return 2 ** 31;
  }
}
