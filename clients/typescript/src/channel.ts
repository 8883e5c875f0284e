// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
import {
  create,
  fromBinary,
  toBinary,
  type DescMessage,
  type DescMethod,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Client as GrpcClient, connectivityState, Metadata } from "@grpc/grpc-js";
import type { ChannelCredentials, ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { checkArgument, checkRequest } from "./checks.js";
import { errorOfStatus, failure, HutchError, makeError } from "./errors.js";
import { SystemService, type ServerLimits } from "./gen/hutch/v1/system_pb.js";
import { DEFAULT_POLICY, mayRetry, SYSTEM_CLOCK, Tries, type Clock } from "./retry.js";
import { toMilliseconds, type DurationLike } from "./rules/duration.js";
import { traceCall, type TelemetryApi, type TracedCall } from "./telemetry.js";

const REQUEST_BYTES = 4 << 20; // until GetInfo tells otherwise
const RESPONSE_BYTES = 64 << 20; // the daemon sends 17 MiB, unless its operator has it send more
const KEEPALIVE_MS = 60_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;
const ALIVE_MS = 60_000;
const READING = /^(?:Get|List|Watch|Read|Download|Stat|Ping)/;

/** What every call takes. */
export interface CallOptions {
  /** Ends the call with a `CancelledError`. */
  signal?: AbortSignal | undefined;
  /** How long it may take in all. Default: the client's, 60 s; streams have none. */
  timeout?: DurationLike | undefined;
}

/** What a channel is made of. */
export interface ChannelSettings {
  target: string;
  credentials: ChannelCredentials;
  /** The name that the server's certificate must be for, instead of the target's. */
  serverName?: string | undefined;
  /** The bearer token, asked for before each try. */
  token?: (() => string | Promise<string>) | undefined;
  userAgent: string;
  version: string;
  timeoutMs: number;
  telemetry?: TelemetryApi | undefined;
  clock?: Clock;
}

/** How a try failed. */
class TryFailed extends Error {
  constructor(
    readonly error: HutchError,
    readonly sent: boolean,
  ) {
    super();
  }
}

/** Calls to one daemon, tried again where that is right. */
export class Channel {
  private grpc: GrpcClient | undefined;
  private limits: ServerLimits | undefined;
  private readonly closing = new AbortController();
  private readonly clock: Clock;

  constructor(private readonly settings: ChannelSettings) {
    this.clock = settings.clock ?? SYSTEM_CLOCK;
    setMaxListeners(0, this.closing.signal); // one for each call under way
  }

  get target(): string {
    return this.settings.target;
  }

  get timeoutMs(): number {
    return this.settings.timeoutMs;
  }

  close(): void {
    this.closing.abort();
    this.grpc?.close();
    this.grpc = undefined;
  }

  /** When a call with these options is over, as the clock tells it. */
  deadlineOf(options: CallOptions, otherwise: number = Infinity): number {
    const { timeout } = options;
    const ms = timeout === undefined ? otherwise : checkArgument("timeout", () => toMilliseconds(timeout));

    return this.clock.now() + ms;
  }

  /** The timeout of a call that is over then. */
  leftUntil(deadline: number): number | undefined {
    return deadline === Infinity ? undefined : Math.max(1, deadline - this.clock.now());
  }

  /** A call with one message each way. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    fillRequestId(method, request);
    checkRequest(method.input, request);
    const deadline = this.deadlineOf(options, this.settings.timeoutMs);
    const bytes = await this.encode(method.input, request);
    const traced = traceCall(this.settings.telemetry, this.settings.version, method, request);
    return traceEnd(traced, async () => {
      const response = await this.retry(isSafe(method), deadline, options.signal, () =>
        this.tryUnary(method, bytes, deadline, options.signal, traced),
      );
      traced.answered(response);
      return response;
    });
  }

  /** The answers to one message. It is sent again until there is one; after that, a failure is the caller's. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    options: CallOptions = {},
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    fillRequestId(method, request);
    const { call, first } = await this.connect(method, request, options);

    try {
      call.end();
      for (let answer = first; answer; answer = await call.receive()) {
        yield answer;
      }
    } finally {
      call.cancel();
    }
  }

  /** Begins a call with its first message, and waits for the first answer. Until then it is tried again. */
  async connect<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    options: CallOptions = {},
  ): Promise<{ call: Call<I, O>; first: MessageShape<O> | undefined }> {
    checkRequest(method.input, request);
    const deadline = this.deadlineOf(options);
    const ends = method.methodKind === "server_streaming";
    await this.encode(method.input, request); // is it too large?
    return this.retry(isSafe(method), deadline, options.signal, async () => {
      const call = await this.begin(method, request, deadline, options.signal);
      try {
        await call.send(request);
        if (ends) {
          call.end();
        }
        return { call, first: await call.receive() };
      } catch (error) {
        call.cancel();
        throw error instanceof HutchError ? new TryFailed(error, call.sent) : error;
      }
    });
  }

  /** Sends a stream of messages and gets one answer. It is tried again only while nothing of it was sent. */
  async upload<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    header: MessageShape<I>,
    rest: AsyncIterable<MessageShape<I>>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    checkRequest(method.input, header);
    const deadline = this.deadlineOf(options);
    await this.encode(method.input, header); // is it too large?
    return this.retry(false, deadline, options.signal, async () => {
      const call = await this.begin(method, header, deadline, options.signal);
      try {
        return await sendAll(call, header, rest);
      } catch (error) {
        throw error instanceof HutchError ? new TryFailed(error, call.sent) : error;
      } finally {
        call.cancel();
      }
    });
  }

  /** The largest file that may be asked for. */
  async maxFileBytes(): Promise<bigint> {
    return (await this.serverLimits())?.maxFileBytes ?? 0n;
  }

  private async retry<T>(
    safe: boolean,
    deadline: number,
    signal: AbortSignal | undefined,
    attempt: () => Promise<T>,
  ): Promise<T> {
    const tries = new Tries(DEFAULT_POLICY, this.clock, deadline);

    for (;;) {
      try {
        this.throwIfOver(signal);
        return await attempt();
      } catch (failed) {
        if (!(failed instanceof TryFailed)) {
          throw failed;
        }
        const { error, sent } = failed;
        const connectionLost = error.reason === "CONNECTION_LOST" || error.reason === "DAEMON_UNREACHABLE";
        if (!mayRetry({ code: error.code, connectionLost, sent, safe, answered: false })) {
          throw error;
        }
        if (!(await this.pause(tries, signal))) {
          throw error;
        }
      }
    }
  }

  /** Waits before the next try; a call that is cancelled meanwhile is not tried again. */
  private async pause(tries: Tries, signal: AbortSignal | undefined): Promise<boolean> {
    const over = AbortSignal.any([this.closing.signal, ...(signal ? [signal] : [])]);

    try {
      return await tries.pause(over);
    } catch (error) {
      this.throwIfOver(signal);
      throw error;
    }
  }

  private throwIfOver(signal: AbortSignal | undefined): void {
    if (signal?.aborted) {
      throw failure("CALL_CANCELLED", "the call was cancelled", { cause: signal.reason });
    }
    if (this.closing.signal.aborted) {
      throw failure("CALL_CANCELLED", "the client was closed");
    }
  }

  private async tryUnary<O extends DescMessage>(
    method: DescMethod & { output: O },
    bytes: Uint8Array,
    deadline: number,
    signal: AbortSignal | undefined,
    traced: TracedCall,
  ): Promise<MessageShape<O>> {
    const metadata = await this.metadata(traced);
    const { grpc, reachable } = await this.ready(deadline, signal);

    return new Promise((resolve, reject) => {
      const call = grpc.makeUnaryRequest<Uint8Array, MessageShape<O>>(
        pathOf(method),
        asBuffer,
        (answer) => fromBinary(method.output, answer),
        bytes,
        metadata,
        { deadline },
        (error, response) => {
          release();
          if (error) {
            reject(this.failed(error, reachable, signal));
          } else {
            resolve(response as MessageShape<O>);
          }
        },
      );
      const release = onAbort([signal, this.closing.signal], () => call.cancel());
      if (!reachable) {
        this.drop(grpc);
      }
    });
  }

  /** Begins a stream, without sending anything yet. */
  private async begin<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<Call<I, O>> {
    const traced = traceCall(this.settings.telemetry, this.settings.version, method, request);
    const metadata = await this.metadata(traced);
    const { grpc, reachable } = await this.ready(deadline, signal);
    const stream = grpc.makeBidiStreamRequest<MessageShape<I>, MessageShape<O>>(
      pathOf(method),
      (message) => asBuffer(toBinary(method.input, message)),
      (answer) => fromBinary(method.output, answer),
      metadata,
      { deadline },
    );
    const call = new Call<I, O>(stream, reachable, traced, (error) => this.failed(error, reachable, signal).error);
    const release = onAbort([signal, this.closing.signal], () => stream.cancel());

    stream.on("status", release);
    if (!reachable) {
      this.drop(grpc);
    }
    return call;
  }

  private failed(error: ServiceError, sent: boolean, signal: AbortSignal | undefined): TryFailed {
    const encoded = error.metadata?.get("grpc-status-details-bin")[0];
    const told = errorOfStatus({
      code: error.code,
      details: error.details,
      encoded: encoded instanceof Uint8Array ? encoded : undefined,
    });

    if (told.code === "CANCELLED") {
      const cause = signal?.aborted ? signal.reason : undefined;
      if (signal?.aborted || this.closing.signal.aborted) {
        return new TryFailed(failure("CALL_CANCELLED", "the call was cancelled", { cause }), sent);
      }
    }
    if (told.code === "UNAVAILABLE" && !encoded) {
      const { code, message } = told;
      const reason = sent ? "CONNECTION_LOST" : "DAEMON_UNREACHABLE";
      const text = sent ? message : `no daemon answers on ${this.target}: ${message}`;
      return new TryFailed(makeError(text, { code, reason }), sent);
    }
    return new TryFailed(told, sent);
  }

  /**
   * A connection that stands. Where none can be had, one whose calls fail at once, and tell why: such a call is never
   * sent, and the connection is dropped after it, so that the next try makes another.
   */
  private async ready(
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<{ grpc: GrpcClient; reachable: boolean }> {
    for (;;) {
      this.throwIfOver(signal);
      const grpc = (this.grpc ??= this.makeGrpc());
      const state = grpc.getChannel().getConnectivityState(true);
      if (state === connectivityState.READY || state === connectivityState.TRANSIENT_FAILURE) {
        return { grpc, reachable: state === connectivityState.READY };
      }
      await this.stateChange(grpc, state, deadline, signal);
    }
  }

  private async stateChange(
    grpc: GrpcClient,
    state: connectivityState,
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    // While there is no call yet, gRPC lets the program end.
    const alive = setInterval(() => undefined, ALIVE_MS);
    const change = new Promise<void>((resolve, reject) => {
      const release = onAbort([signal, this.closing.signal], resolve);
      grpc.getChannel().watchConnectivityState(state, deadline, (late) => {
        release();
        if (late && this.grpc === grpc) {
          reject(failure("DEADLINE_EXCEEDED", "the deadline of the call has passed"));
        } else {
          resolve();
        }
      });
    });
    await change.finally(() => clearInterval(alive));
  }

  private makeGrpc(): GrpcClient {
    const { target, credentials, serverName, userAgent } = this.settings;

    return new GrpcClient(target, credentials, {
      "grpc.primary_user_agent": userAgent,
      "grpc.enable_http_proxy": 0,
      "grpc.service_config_disable_resolution": 1,
      "grpc.use_local_subchannel_pool": 1, // a try that makes a connection makes a new one
      "grpc.keepalive_time_ms": KEEPALIVE_MS,
      "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
      "grpc.max_receive_message_length": RESPONSE_BYTES,
      "grpc.max_send_message_length": -1, // the daemon's limit is looked at here
      ...(serverName === undefined
        ? {}
        : { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName }),
    });
  }

  private drop(grpc: GrpcClient): void {
    if (this.grpc === grpc) {
      this.grpc = undefined;
    }
    setImmediate(() => grpc.close()); // after its calls have failed
  }

  private async metadata(traced: TracedCall): Promise<Metadata> {
    const metadata = new Metadata();

    for (const [name, value] of Object.entries(traced.metadata)) {
      metadata.set(name, value);
    }
    if (this.settings.token) {
      metadata.set("authorization", `Bearer ${await this.settings.token()}`);
    }
    return metadata;
  }

  /** Encodes a message, unless it is larger than the daemon takes. */
  private async encode<I extends DescMessage>(schema: I, message: MessageShape<I>): Promise<Uint8Array> {
    const bytes = toBinary(schema, message);

    if (bytes.length > REQUEST_BYTES) {
      const told = Number((await this.serverLimits())?.maxRequestBytes ?? REQUEST_BYTES);
      if (told > 0 && bytes.length > told) {
        throw failure("MESSAGE_TOO_LARGE", `the message has ${bytes.length} bytes, and the daemon takes ${told}`, {
          metadata: { limit: "max_request_bytes", value: String(told) },
        });
      }
    }
    return bytes;
  }

  /** That the daemon does not tell is no failure: what is too large, it refuses. */
  private async serverLimits(): Promise<ServerLimits | undefined> {
    if (!this.limits) {
      const { getInfo } = SystemService.method;
      const info = await this.unary(getInfo, create(getInfo.input)).catch(() => undefined);
      this.limits = info?.limits;
    }
    return this.limits;
  }
}

/** A call with any number of messages each way. */
export class Call<I extends DescMessage, O extends DescMessage> {
  private readonly received: MessageShape<O>[] = [];
  private error: HutchError | undefined;
  private ended = false;
  private over = false;
  private wake: () => void = () => undefined;

  constructor(
    private readonly stream: ClientDuplexStream<MessageShape<I>, MessageShape<O>>,
    /** False: nothing was sent, certainly. */
    readonly sent: boolean,
    traced: TracedCall,
    toError: (error: ServiceError) => HutchError,
  ) {
    stream.on("data", (answer: MessageShape<O>) => {
      this.received.push(answer);
      traced.answered(answer);
      stream.pause(); // until the next one is wanted
      this.wake();
    });
    stream.on("error", (error: ServiceError) => {
      this.error = toError(error);
      this.over = true;
      this.wake();
    });
    stream.on("status", () => {
      this.over = true;
      traced.ended(this.error);
      stream.emit("drain"); // whoever waits to send need not any more
    });
    stream.on("end", () => {
      this.ended = true;
      this.wake();
    });
    stream.pause();
  }

  /** The next answer; undefined: there are no more, and all went well. For one reader at a time. */
  async receive(): Promise<MessageShape<O> | undefined> {
    for (;;) {
      const answer = this.received.shift();
      if (answer) {
        return answer;
      }
      if (this.ended && this.error) {
        throw this.error;
      }
      if (this.ended) {
        return undefined;
      }
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        this.stream.resume();
      });
    }
  }

  /** Sends a message when there is room for it. False: the call is over, and `receive` tells why. */
  async send(request: MessageShape<I>): Promise<boolean> {
    if (this.over) {
      return false;
    }
    if (!this.stream.write(request)) {
      await new Promise<void>((resolve) => this.stream.once("drain", () => resolve()));
    }
    return !this.over;
  }

  /** No more will be sent. */
  end(): void {
    if (!this.over && !this.stream.writableEnded) {
      this.stream.end();
    }
  }

  cancel(): void {
    if (!this.over) {
      this.stream.cancel();
    }
    this.stream.resume(); // so that it ends
  }
}

/** Sends a call's messages, and waits for its answer. */
async function sendAll<I extends DescMessage, O extends DescMessage>(
  call: Call<I, O>,
  header: MessageShape<I>,
  rest: AsyncIterable<MessageShape<I>>,
): Promise<MessageShape<O>> {
  // Where sending fails the call is over, and receiving tells why. Of a call that is tried again, nothing is taken.
  if (call.sent && (await call.send(header))) {
    for await (const request of rest) {
      if (!(await call.send(request))) {
        break;
      }
    }
  }
  call.end();
  const response = await call.receive();
  if (!response) {
    throw failure("STREAM_INCOMPLETE", "the daemon never told what became of it");
  }
  return response;
}

/** Runs @listener once when one of the signals is aborted. Returns what makes it listen no more. */
function onAbort(signals: readonly (AbortSignal | undefined)[], listener: () => void): () => void {
  const present = signals.filter((signal) => signal !== undefined);

  for (const signal of present) {
    if (signal.aborted) {
      queueMicrotask(listener);
    }
    signal.addEventListener("abort", listener, { once: true });
  }
  return () => present.forEach((signal) => signal.removeEventListener("abort", listener));
}

async function traceEnd<T>(traced: TracedCall, body: () => Promise<T>): Promise<T> {
  try {
    const result = await body();
    traced.ended();
    return result;
  } catch (error) {
    traced.ended(error as Error);
    throw error;
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Whether a method may be called again. Those that carry a request id in their first message are among them. */
function isSafe(method: DescMethod): boolean {
  return READING.test(method.name) || method.name === "AttachExec" || "requestId" in method.input.field;
}

function fillRequestId(method: DescMethod, request: object): void {
  const fields = request as { requestId?: string };

  if ("requestId" in method.input.field && !fields.requestId) {
    fields.requestId = randomUUID();
  }
}
