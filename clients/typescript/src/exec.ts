// SPDX-License-Identifier: Apache-2.0

import { randomBytes, randomUUID } from "node:crypto";
import { constants } from "node:os";
import { Writable } from "node:stream";
import type { Call, CallOptions, Channel } from "./channel.js";
import { CancelledError, failure, HutchError } from "./errors.js";
import {
  ExecService,
  OutputStream,
  StdinMode,
  TerminalSizeSchema,
  type AttachExecRequestSchema,
  type AttachExecResponseSchema,
  type AttachExecResponse,
  type CollectedOutput,
  type Exec as ExecMessage,
  type ExecResult as ExecResultMessage,
  type ExecSpec,
  type OutputChunk,
  type TerminalSize,
} from "./gen/hutch/v1/exec_pb.js";
import { ExecState } from "./gen/hutch/v1/state_pb.js";
import { message, type Init } from "./messages.js";
import { CommandOutput, type Collected } from "./output.js";
import { DURATION_MAX_MS, type DurationLike } from "./rules/duration.js";
import { CollectedStream } from "./rules/output.js";
import { bytesOf } from "./rules/violation.js";

const STDIN_BYTES = 1 << 20; // in one message
const RESUMES_MAX = 6; // in a row that brought nothing
const KILL_GRACE_MS = 5000; // of the daemon
const CANCEL_TIMEOUT = "10s";
const NEVER = new AbortController().signal;
const EXEC_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

const { method } = ExecService;

/** How a command runs: the fields of `ExecSpec`, but for its arguments. `timeout` is the command's, and kills it. */
export type ExecOptions = Omit<Init<ExecSpec>, "argv" | "stdin" | "terminal"> & {
  signal?: AbortSignal | undefined;
  /** How long the call may take. Default: the client's, and the command's own `timeout` beside it. */
  callTimeout?: DurationLike | undefined;
  /** Makes the call repeatable. Default: one is made. */
  requestId?: string | undefined;
};

/** How a command runs that is waited for. */
export type RunOptions = ExecOptions & {
  /** What its stdin holds: at most 3 MiB. */
  input?: string | Uint8Array | undefined;
};

/** How a command runs that is detached. */
export type CreateExecOptions = ExecOptions & {
  /** The id to give it. Default: one is made. */
  execId?: string | undefined;
  /** Whether attached clients feed its stdin. Default: it is empty. */
  stdin?: boolean | undefined;
  /** A terminal of this size instead of pipes. */
  terminal?: Init<TerminalSize> | undefined;
};

/** How a command runs that one is connected to. */
export type StartOptions = CreateExecOptions & {
  /** Whether it ends with its stream, also when this program or the connection is gone. Default: it goes on. */
  bound?: boolean | undefined;
};

/** Whose output to read. */
export interface OutputOptions extends CallOptions {
  streams?: readonly OutputStream[] | undefined;
  stdoutOffset?: bigint | number | undefined;
  stderrOffset?: bigint | number | undefined;
  /** Whether to wait for more until the command ends. Default: what is there. */
  follow?: boolean | undefined;
  /** Begin this many lines before the end of each stream instead. */
  tailLines?: bigint | number | undefined;
}

/** How a command ended, and what it printed. */
export class ExecResult {
  constructor(
    /** The exit code: 128 + n after signal n, 124 after a timeout. Undefined: not known. */
    readonly exitCode: number | undefined,
    /** All about the end. */
    readonly result: ExecResultMessage | undefined,
    /** The bytes of its output, and what of them is missing. */
    readonly collected: Collected,
    /** The command; undefined for one-shots of `execOnce`. */
    readonly exec?: ExecMessage,
  ) {}

  get stdout(): string {
    return this.collected.stdout.text;
  }

  get stderr(): string {
    return this.collected.stderr.text;
  }

  /** stdout, then stderr. */
  get output(): string {
    return this.stdout + this.stderr;
  }

  /** It ended with exit code 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Some of its output is missing. */
  get truncated(): boolean {
    return this.collected.stdout.truncated || this.collected.stderr.truncated;
  }

  get timedOut(): boolean {
    return this.exec?.state === ExecState.TIMED_OUT;
  }
}

/** Runs a command to its end. */
export async function runCommand(
  channel: Channel,
  sandboxId: string,
  argv: readonly string[],
  options: RunOptions = {},
): Promise<ExecResult> {
  const { signal, callTimeout, requestId = "", input = "", ...spec } = options;
  const request = message(method.runCommand.input, {
    sandboxId,
    spec: execSpec(argv, spec),
    input: typeof input === "string" ? bytesOf(input) : input,
    requestId,
  });
  const timeout = callTimeout ?? runTimeout(channel, request.spec);
  const answer = await channel.unary(method.runCommand, request, { signal, timeout });
  const collected = {
    stdout: collectedOf(answer.stdout, answer.stdoutSummary),
    stderr: collectedOf(answer.stderr, answer.stderrSummary),
  };

  return new ExecResult(answer.exec?.result?.exitCode, answer.exec?.result, collected, answer.exec);
}

/** The command's own timeout is the one to pass first, and to be told of. */
function runTimeout(channel: Channel, spec: ExecSpec | undefined): number {
  const { timeout, killGrace } = spec ?? {};
  const ms = (duration: { seconds: bigint; nanos: number }) => Number(duration.seconds) * 1000 + duration.nanos / 1e6;

  const own = timeout ? ms(timeout) + (killGrace ? ms(killGrace) : KILL_GRACE_MS) : 0;
  return Math.min(channel.timeoutMs + own, DURATION_MAX_MS);
}

function collectedOf(bytes: Uint8Array, summary: CollectedOutput | undefined): CollectedStream {
  return new CollectedStream(
    bytes,
    Number(summary?.headBytes ?? bytes.length),
    Number(summary?.totalBytes ?? bytes.length),
  );
}

function execSpec(argv: readonly string[], options: Omit<CreateExecOptions, "execId">): Init<ExecSpec> {
  const { stdin, ...spec } = options;

  return {
    ...spec,
    argv: [...argv],
    ...(stdin === undefined ? {} : { stdin: stdin ? StdinMode.STREAM : StdinMode.NONE }),
  };
}

/** Starts a command that goes on by itself. */
export async function createExec(
  channel: Channel,
  sandboxId: string,
  argv: readonly string[],
  options: CreateExecOptions = {},
): Promise<Exec> {
  const { signal, callTimeout, requestId = "", execId = "", ...spec } = options;
  const request = message(method.createExec.input, { sandboxId, execId, requestId, spec: execSpec(argv, spec) });
  const { exec } = await channel.unary(method.createExec, request, { signal, timeout: callTimeout });

  return new Exec(channel, given(exec));
}

/** Starts a command and connects to it. */
export async function startExec(
  channel: Channel,
  sandboxId: string,
  argv: readonly string[],
  options: StartOptions = {},
): Promise<ExecStream> {
  const { signal, callTimeout, requestId, execId = makeExecId(), bound = false, ...spec } = options;
  const create = {
    sandboxId,
    execId,
    requestId: requestId ?? randomUUID(),
    spec: execSpec(argv, spec),
    bound,
  };
  const request = message(method.attachExec.input, { item: { case: "create", value: create as never } });
  try {
    const { call, first } = await channel.connect(method.attachExec, request, { signal, timeout: callTimeout });
    return new ExecStream(channel, call, attached(first), signal ?? NEVER);
  } catch (error) {
    if (signal?.aborted) {
      // It may have started all the same.
      await cancelExec(channel, sandboxId, execId, { timeout: CANCEL_TIMEOUT }).catch(() => undefined);
    }
    throw error;
  }
}

/** Connects to a command. */
export async function attachExec(
  channel: Channel,
  sandboxId: string,
  execId: string,
  options: CallOptions & { stdoutOffset?: bigint | number; stderrOffset?: bigint | number } = {},
): Promise<ExecStream> {
  const { signal, timeout, stdoutOffset = 0, stderrOffset = 0 } = options;
  const value = { sandboxId, execId, stdoutOffset, stderrOffset };
  const request = message(method.attachExec.input, { item: { case: "attach", value: value as never } });
  const { call, first } = await channel.connect(method.attachExec, request, { signal, timeout });

  return new ExecStream(channel, call, attached(first), undefined);
}

export async function getExec(
  channel: Channel,
  sandboxId: string,
  execId: string,
  options: CallOptions = {},
): Promise<Exec> {
  const request = message(method.getExec.input, { sandboxId, execId });
  const { exec } = await channel.unary(method.getExec, request, options);

  return new Exec(channel, given(exec));
}

export async function* listExecs(
  channel: Channel,
  sandboxId: string,
  options: CallOptions & { states?: readonly ExecState[] } = {},
): AsyncGenerator<Exec, void, undefined> {
  const { states = [], ...call } = options;
  const request = message(method.listExecs.input, { sandboxId, states: [...states] });

  do {
    const page = await channel.unary(method.listExecs, request, call);
    for (const exec of page.execs) {
      yield new Exec(channel, exec);
    }
    request.pageToken = page.nextPageToken;
  } while (request.pageToken !== "");
}

/** A command that runs, ran, or will run, whoever is connected. */
export class Exec {
  /** @internal */
  constructor(
    private readonly channel: Channel,
    private last: ExecMessage,
  ) {}

  get id(): string {
    return this.last.id;
  }

  get sandboxId(): string {
    return this.last.sandboxId;
  }

  /** As it was when it was last told. */
  get data(): ExecMessage {
    return this.last;
  }

  get state(): ExecState {
    return this.last.state;
  }

  /** Undefined: it has not ended, or how is not known. */
  get exitCode(): number | undefined {
    return this.last.result?.exitCode;
  }

  /** Asks how it is now. */
  async refresh(options: CallOptions = {}): Promise<ExecMessage> {
    return (this.last = (await getExec(this.channel, this.sandboxId, this.id, options)).data);
  }

  /** Ends it with every process that it started: TERM, then KILL. Returns when that is accepted. */
  async cancel(options: CallOptions & { grace?: DurationLike | undefined } = {}): Promise<ExecMessage> {
    return (this.last = await cancelExec(this.channel, this.sandboxId, this.id, options));
  }

  /** Connects to it: output from the beginning, or from the offsets, and its stdin. */
  attach(
    options: CallOptions & { stdoutOffset?: bigint | number; stderrOffset?: bigint | number } = {},
  ): Promise<ExecStream> {
    return attachExec(this.channel, this.sandboxId, this.id, options);
  }

  /** Its output so far, or until its end with `follow`. Goes on by itself when the connection is lost. */
  output(options: OutputOptions = {}): CommandOutput<ExecMessage> {
    return new CommandOutput(readOutput(this.channel, this.sandboxId, this.id, options));
  }

  /** Waits for its end. */
  async wait(options: CallOptions = {}): Promise<ExecMessage> {
    return (this.last = await this.output({ ...options, follow: true }).wait());
  }
}

async function cancelExec(
  channel: Channel,
  sandboxId: string,
  execId: string,
  options: CallOptions & { grace?: DurationLike | undefined },
): Promise<ExecMessage> {
  const { grace, ...call } = options;
  const request = message(method.cancelExec.input, { sandboxId, execId, grace });

  return given((await channel.unary(method.cancelExec, request, call)).exec);
}

/** Reads output, and goes on from where it has come to when the connection is lost. */
async function* readOutput(
  channel: Channel,
  sandboxId: string,
  execId: string,
  options: OutputOptions,
): AsyncGenerator<OutputChunk, ExecMessage, undefined> {
  const { signal, timeout, streams = [], stdoutOffset = 0, stderrOffset = 0, ...rest } = options;
  const deadline = channel.deadlineOf({ timeout });
  const init = { sandboxId, execId, streams: [...streams], stdoutOffset, stderrOffset, ...rest };
  const request = message(method.readExecOutput.input, init);
  const seen = new Set<OutputStream>();

  for (let resumes = 0; ; resumes++) {
    try {
      const call = { signal, timeout: channel.leftUntil(deadline) };
      for await (const { item } of channel.stream(method.readExecOutput, request, call)) {
        if (item.case === "exec") {
          return item.value;
        }
        if (item.case === "output") {
          const { stream, offset, data } = item.value;
          request[stream === OutputStream.STDERR ? "stderrOffset" : "stdoutOffset"] = offset + BigInt(data.length);
          seen.add(stream);
          resumes = 0;
          yield item.value;
        }
      }
      throw failure("STREAM_INCOMPLETE", "the daemon never told how the command is");
    } catch (error) {
      const lost = error instanceof HutchError && error.code === "UNAVAILABLE";
      // Where no lines were to begin, it cannot be known where a stream was that has sent nothing.
      const unknown = request.tailLines === 0n && seen.size === 1;
      if (!lost || unknown || resumes >= RESUMES_MAX) {
        throw error;
      }
      if (seen.size > 0) {
        delete request.tailLines;
      }
    }
  }
}

type AttachCall = Call<typeof AttachExecRequestSchema, typeof AttachExecResponseSchema>;

/** A command that one is connected to. */
export class ExecStream extends CommandOutput<ExecMessage> implements AsyncDisposable {
  /** What it reads, when it was started with `stdin: true`. Ending it is the end of the command's stdin. */
  readonly stdin: Writable;
  private isOver = false;

  /** @internal @param signal ends a command that was started here; undefined: it was not */
  constructor(
    private readonly channel: Channel,
    private readonly call: AttachCall,
    private last: ExecMessage,
    private readonly abort: AbortSignal | undefined,
  ) {
    super(attachedOutput(call, (exec) => this.conclude(exec)));
    this.stdin = new StdinWritable(call);
    abort?.addEventListener("abort", this.end);
  }

  get id(): string {
    return this.last.id;
  }

  /** As it was when it was last told: at the start, or at its end. */
  get data(): ExecMessage {
    return this.last;
  }

  /** The same command as one that nobody is connected to. */
  get exec(): Exec {
    return new Exec(this.channel, this.last);
  }

  async resize(size: Init<TerminalSize>): Promise<void> {
    await this.sendStep({ case: "resize", value: message(TerminalSizeSchema, size) });
  }

  /** Sends a signal to the main process: `"SIGINT"`, or its number. */
  async signal(signal: NodeJS.Signals | number): Promise<void> {
    const value = typeof signal === "number" ? signal : constants.signals[signal];

    await this.sendStep({ case: "signal", value });
  }

  /** Takes all output, and tells how it ended. */
  async result(limitBytes?: number): Promise<ExecResult> {
    const { end, ...collected } = await this.collect(limitBytes);

    return new ExecResult(end.result?.exitCode, end.result, collected, end);
  }

  /** Ends the command with every process that it started. */
  async cancel(options: CallOptions & { grace?: DurationLike | undefined } = {}): Promise<ExecMessage> {
    return cancelExec(this.channel, this.last.sandboxId, this.id, options);
  }

  /** Lets go of the command, which goes on, unless it is bound. */
  detach(): void {
    this.isOver = true;
    this.abort?.removeEventListener("abort", this.end);
    this.call.cancel();
  }

  /** Ends a command that was started here, unless it has ended or was detached. */
  async [Symbol.asyncDispose](): Promise<void> {
    const cancels = this.abort !== undefined && !this.isOver;

    this.detach();
    if (cancels) {
      await this.cancel({ timeout: CANCEL_TIMEOUT }).catch((error: unknown) => {
        if (!(error instanceof CancelledError)) {
          throw error;
        }
        // The client was closed, and so cannot end anything.
      });
    }
  }

  private readonly end = (): void => {
    this[Symbol.asyncDispose]().catch(() => undefined); // whoever reads is told that it was cancelled
  };

  private conclude(exec: ExecMessage): void {
    this.last = exec;
    this.isOver = true;
    this.abort?.removeEventListener("abort", this.end);
  }

  private async sendStep(item: Parameters<typeof attachStep>[0]): Promise<void> {
    await this.call.send(attachStep(item));
  }
}

type AttachItem = NonNullable<Parameters<AttachCall["send"]>[0]["item"]>;

function attachStep(item: AttachItem) {
  const step = message(method.attachExec.input);

  step.item = item;
  return step;
}

async function* attachedOutput(
  call: AttachCall,
  ended: (exec: ExecMessage) => void,
): AsyncGenerator<OutputChunk, ExecMessage, undefined> {
  for (let step = await call.receive(); step; step = await call.receive()) {
    if (step.item.case === "output") {
      yield step.item.value;
    } else if (step.item.case === "ended") {
      call.end();
      ended(step.item.value);
      return step.item.value;
    }
  }
  throw failure("STREAM_INCOMPLETE", "the daemon never told how the command ended");
}

/** Bytes for a command's stdin. After its end they go nowhere, as into a closed pipe. */
class StdinWritable extends Writable {
  constructor(private readonly call: AttachCall) {
    super();
  }

  override _write(data: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.sendAll(data).then(() => callback(), callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    const step = attachStep({ case: "stdinClose", value: { $typeName: "hutch.v1.StdinClose" } });

    this.call.send(step).then(() => callback(), callback);
  }

  private async sendAll(data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += STDIN_BYTES) {
      await this.call.send(attachStep({ case: "stdin", value: data.subarray(at, at + STDIN_BYTES) }));
    }
  }
}

function attached(first: AttachExecResponse | undefined): ExecMessage {
  if (first?.item.case !== "attached") {
    throw failure("STREAM_INCOMPLETE", "the daemon never told which command it is");
  }
  return first.item.value;
}

/** An answer's part that every daemon sends. */
export function given<T>(part: T | undefined): T {
  if (part === undefined) {
    throw failure("INTERNAL", "the daemon's answer lacks what was asked for");
  }
  return part;
}

/** Made here, so that a command can be ended though the daemon has not answered yet. */
function makeExecId(): string {
  return "ex-" + Array.from(randomBytes(20), (byte) => EXEC_ID_LETTERS[byte % EXEC_ID_LETTERS.length]).join("");
}
