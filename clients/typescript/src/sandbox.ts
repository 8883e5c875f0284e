// SPDX-License-Identifier: Apache-2.0

import type { CallOptions, Channel } from "./channel.js";
import { failure } from "./errors.js";
import {
  attachExec,
  createExec,
  Exec,
  getExec,
  given,
  listExecs,
  runCommand,
  startExec,
  type CreateExecOptions,
  type ExecResult,
  type ExecStream,
  type RunOptions,
  type StartOptions,
} from "./exec.js";
import { Files } from "./files.js";
import { EventType, type Event } from "./gen/hutch/v1/event_pb.js";
import { ExecSchema } from "./gen/hutch/v1/exec_pb.js";
import {
  AgentSandboxService,
  SandboxSpecSchema,
  type Sandbox as SandboxMessage,
  type SandboxSpec,
  type Snapshot,
} from "./gen/hutch/v1/sandbox_pb.js";
import { SandboxState, type ExecState } from "./gen/hutch/v1/state_pb.js";
import { message, type Init } from "./messages.js";
import type { DurationLike } from "./rules/duration.js";
import { Watch, type WatchOptions } from "./watch.js";

const WAIT_TIMEOUT = "180s";

const { method } = AgentSandboxService;

/** What can be changed of a sandbox. */
export type SandboxUpdate = Pick<
  Init<SandboxSpec>,
  "labels" | "idleTtl" | "idleAction" | "maxLifetime" | "lifetimeAction"
>;

const { PENDING, READY, PAUSED, STOPPING, STOPPED, FAILED, DELETING, DELETED } = SandboxState;
const ENDING = [STOPPING, STOPPED, FAILED, DELETING, DELETED];

/** The states that a sandbox may come to from each by itself: when what was asked of it is done, or it fails. */
const AHEAD: ReadonlyMap<SandboxState, readonly SandboxState[]> = new Map([
  [PENDING, [READY, PAUSED, ...ENDING]],
  [READY, [PAUSED, ...ENDING]],
  [PAUSED, [READY, ...ENDING]],
  [STOPPING, [STOPPED, FAILED, DELETING, DELETED]],
  [STOPPED, [DELETING, DELETED]],
  [FAILED, [DELETING, DELETED]],
  [DELETING, [DELETED]],
  [DELETED, []],
]);

/**
 * A sandbox. Requests return when they are accepted; `wait` waits for what comes of them. Commands and files need no
 * waiting for READY: the daemon does that.
 *
 * With `await using`, one that was created here is deleted at the end of the block.
 */
export class Sandbox implements AsyncDisposable {
  readonly files: Files;

  /** @internal */
  constructor(
    private readonly channel: Channel,
    private last: SandboxMessage,
    private readonly created: boolean,
  ) {
    this.files = new Files(channel, last.id);
  }

  get id(): string {
    return this.last.id;
  }

  /** As it was when it was last told. */
  get data(): SandboxMessage {
    return this.last;
  }

  get state(): SandboxState {
    return this.last.state;
  }

  /** Asks how it is now, and with `includeUsage` what it uses. */
  async refresh(options: CallOptions & { includeUsage?: boolean } = {}): Promise<SandboxMessage> {
    const { includeUsage = false, ...call } = options;
    const request = message(method.getSandbox.input, { sandboxId: this.id, includeUsage });

    return this.keep((await this.channel.unary(method.getSandbox, request, call)).sandbox);
  }

  // ---- Commands ----

  /** Runs a command to its end. An exit code other than 0 is a result, no error. Aborting kills it. */
  exec(argv: readonly string[], options: RunOptions = {}): Promise<ExecResult> {
    return runCommand(this.channel, this.id, argv, options);
  }

  /** Runs a script by the sandbox's `sh`. */
  shell(script: string, options: RunOptions = {}): Promise<ExecResult> {
    return this.exec(["sh", "-c", script], options);
  }

  /**
   * Starts a command and connects to it: output as it comes, stdin, signals; with `terminal` in a terminal. Aborting
   * ends it.
   */
  start(argv: readonly string[], options: StartOptions = {}): Promise<ExecStream> {
    return startExec(this.channel, this.id, argv, options);
  }

  /** Starts a command that goes on by itself, whoever is connected. */
  createExec(argv: readonly string[], options: CreateExecOptions = {}): Promise<Exec> {
    return createExec(this.channel, this.id, argv, options);
  }

  getExec(execId: string, options: CallOptions = {}): Promise<Exec> {
    return getExec(this.channel, this.id, execId, options);
  }

  /** The command of an id, without asking for it: `data` has nothing but the ids. */
  execById(execId: string): Exec {
    return new Exec(this.channel, message(ExecSchema, { id: execId, sandboxId: this.id }));
  }

  /** Its commands, oldest first, also those that have ended. */
  execs(options: CallOptions & { states?: readonly ExecState[] } = {}): AsyncGenerator<Exec, void, undefined> {
    return listExecs(this.channel, this.id, options);
  }

  /** Connects to a command. */
  attach(
    execId: string,
    options: CallOptions & { stdoutOffset?: bigint | number; stderrOffset?: bigint | number } = {},
  ): Promise<ExecStream> {
    return attachExec(this.channel, this.id, execId, options);
  }

  // ---- Its life ----

  /** Ends all processes and keeps the files. */
  async stop(options: CallOptions & { grace?: DurationLike | undefined } = {}): Promise<SandboxMessage> {
    const { grace, ...call } = options;
    const request = message(method.stopSandbox.input, { sandboxId: this.id, grace });

    return this.keep((await this.channel.unary(method.stopSandbox, request, call)).sandbox);
  }

  /** Starts it again on its files. */
  async resume(options: CallOptions = {}): Promise<SandboxMessage> {
    const request = message(method.resumeSandbox.input, { sandboxId: this.id });

    return this.keep((await this.channel.unary(method.resumeSandbox, request, options)).sandbox);
  }

  /** Freezes all processes where they are. */
  async pause(options: CallOptions = {}): Promise<SandboxMessage> {
    const request = message(method.pauseSandbox.input, { sandboxId: this.id });

    return this.keep((await this.channel.unary(method.pauseSandbox, request, options)).sandbox);
  }

  async unpause(options: CallOptions = {}): Promise<SandboxMessage> {
    const request = message(method.unpauseSandbox.input, { sandboxId: this.id });

    return this.keep((await this.channel.unary(method.unpauseSandbox, request, options)).sandbox);
  }

  /** Changes the fields that are given, each as a whole. */
  async update(changes: SandboxUpdate, options: CallOptions = {}): Promise<SandboxMessage> {
    const names = Object.keys(changes) as (keyof SandboxUpdate)[];
    const paths = names.filter((name) => changes[name] !== undefined).map((name) => SandboxSpecSchema.field[name].name);
    const request = message(method.updateSandbox.input, {
      sandboxId: this.id,
      spec: changes,
      updateMask: { paths },
    });

    return this.keep((await this.channel.unary(method.updateSandbox, request, options)).sandbox);
  }

  /** Ends all processes and removes everything but its history. */
  async delete(options: CallOptions = {}): Promise<SandboxMessage> {
    const request = message(method.deleteSandbox.input, { sandboxId: this.id });

    return this.keep((await this.channel.unary(method.deleteSandbox, request, options)).sandbox);
  }

  /**
   * Waits until it is in one of these states. Default: READY, for 180 s. Fails with SANDBOX_WRONG_STATE when it has
   * come to a state that it does not leave for one of these by itself.
   */
  async wait(
    states: SandboxState | readonly SandboxState[] = READY,
    options: CallOptions = {},
  ): Promise<SandboxMessage> {
    const wanted = typeof states === "number" ? [states] : states;
    const deadline = this.channel.deadlineOf({ timeout: options.timeout ?? WAIT_TIMEOUT });
    const call = () => ({ signal: options.signal, timeout: this.channel.leftUntil(deadline) });
    const now = await this.refresh(call());

    if (!isReached(now.state, wanted)) {
      await using watch = await this.watch({
        ...call(),
        afterSequence: now.sequence,
        types: [EventType.SANDBOX_STATE_CHANGED],
      });
      for await (const { change } of watch) {
        if (change.case === "sandboxState" && isReached(change.value.toState, wanted)) {
          break;
        }
      }
      await this.refresh(call());
    }
    return this.last;
  }

  /** Its events from now on. */
  watch(options: Omit<WatchOptions, "sandboxIds" | "selector" | "allOwners"> = {}): Promise<Watch<Event>> {
    return Watch.open(this.channel, { ...options, sandboxIds: [this.id] }, false);
  }

  /** Keeps its file system as it is now, to start others from. */
  async snapshot(options: CallOptions & { name?: string; labels?: Record<string, string> } = {}): Promise<Snapshot> {
    const { name = "", labels = {}, ...call } = options;
    const request = message(method.createSnapshot.input, { sandboxId: this.id, name, labels });

    return given((await this.channel.unary(method.createSnapshot, request, call)).snapshot);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.created) {
      await this.delete();
    }
  }

  private keep(sandbox: SandboxMessage | undefined): SandboxMessage {
    return (this.last = given(sandbox));
  }
}

function isReached(state: SandboxState, wanted: readonly SandboxState[]): boolean {
  if (wanted.includes(state)) {
    return true;
  }
  const ahead = AHEAD.get(state);
  if (ahead && !ahead.some((next) => wanted.includes(next))) {
    const name = SandboxState[state];
    throw failure("SANDBOX_WRONG_STATE", `the sandbox is ${name}, and does not leave that for what is waited for`, {
      metadata: { state: name },
    });
  }
  return false;
}
