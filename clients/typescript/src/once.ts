// SPDX-License-Identifier: Apache-2.0

import type { CallOptions, Channel } from "./channel.js";
import { failure } from "./errors.js";
import { ExecResult } from "./exec.js";
import type { OutputChunk } from "./gen/hutch/v1/exec_pb.js";
import {
  SandboxExecService,
  type ExecExit,
  type ExecRequest,
  type ExecResponse,
  type ExecStarted,
} from "./gen/hutch/v1/sandbox_exec_pb.js";
import { message, type Init } from "./messages.js";
import { CommandOutput } from "./output.js";

const { exec } = SandboxExecService.method;

/** A command in a sandbox that the daemon made for it, and removes whatever happens. */
export class OneShot extends CommandOutput<ExecExit> implements AsyncDisposable {
  private constructor(
    /** What took effect. */
    readonly started: ExecStarted,
    source: AsyncGenerator<OutputChunk, ExecExit, undefined>,
    private readonly abort: AbortController,
  ) {
    super(source);
  }

  /** @internal */
  static async open(channel: Channel, request: Init<ExecRequest>, options: CallOptions): Promise<OneShot> {
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, ...(options.signal ? [options.signal] : [])]);
    const steps = channel.stream(exec, message(exec.input, request), { ...options, signal });
    const first = await steps.next();

    if (first.done || first.value.item.case !== "started") {
      await steps.return();
      throw failure("STREAM_INCOMPLETE", "the daemon never told what it started");
    }
    return new OneShot(first.value.item.value, outputOf(steps), abort);
  }

  /** Takes all output, and tells how it ended. */
  async result(limitBytes?: number): Promise<ExecResult> {
    const { end, ...collected } = await this.collect(limitBytes);

    return new ExecResult(end.exitCode, end.result, collected);
  }

  /** Kills the command, unless it has ended. */
  cancel(): void {
    this.abort.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
  }
}

/** Output until the exit, which is the last that is read. */
async function* outputOf(
  steps: AsyncGenerator<ExecResponse, void, undefined>,
): AsyncGenerator<OutputChunk, ExecExit, undefined> {
  for await (const { item } of steps) {
    if (item.case === "output") {
      yield item.value;
    } else if (item.case === "exit") {
      return item.value;
    }
  }
  throw failure("STREAM_INCOMPLETE", "the daemon never told how the command ended");
}
