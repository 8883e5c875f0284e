// SPDX-License-Identifier: Apache-2.0

import type { Call, CallOptions, Channel } from "./channel.js";
import { failure, HutchError } from "./errors.js";
import type { Event, EventType } from "./gen/hutch/v1/event_pb.js";
import {
  AgentSandboxService,
  type Sandbox as SandboxMessage,
  type WatchEventsRequest,
  type WatchEventsRequestSchema,
  type WatchEventsResponse,
  type WatchEventsResponseSchema,
} from "./gen/hutch/v1/sandbox_pb.js";
import { message } from "./messages.js";

const RESUMES_MAX = 6; // in a row that brought nothing

/** What to watch. Without ids and selector: all of the caller's sandboxes. */
export interface WatchOptions extends CallOptions {
  sandboxIds?: readonly string[] | undefined;
  selector?: string | undefined;
  types?: readonly EventType[] | undefined;
  /** Only what came after this: the cursor of the last event that was seen. Default: from now on. */
  afterCursor?: bigint | undefined;
  /** With one sandbox: only what came after this of its events. */
  afterSequence?: bigint | undefined;
  /** Everybody's, for admins. */
  allOwners?: boolean | undefined;
}

const { watchEvents } = AgentSandboxService.method;

/**
 * Events as they happen. When the connection is lost, or the watch did not keep up, it goes on from its cursor by
 * itself: no event is lost and none comes twice. It ends when it is closed or left, or its signal is aborted.
 */
export class Watch<Item = Event> implements AsyncIterable<Item>, AsyncDisposable {
  private reached: bigint;
  private hasStarted = false;
  private isClosed = false;

  private constructor(
    private readonly channel: Channel,
    private readonly request: WatchEventsRequest,
    private readonly options: CallOptions,
    private readonly deadline: number,
  ) {
    this.reached = request.afterCursor ?? 0n;
  }

  private call!: Call<typeof WatchEventsRequestSchema, typeof WatchEventsResponseSchema>;
  private first: WatchEventsResponse | undefined;

  /** @internal */
  static async open<Item>(channel: Channel, options: WatchOptions, includeSnapshot: boolean): Promise<Watch<Item>> {
    const { signal, timeout, sandboxIds = [], types = [], ...rest } = options;
    const request = message(watchEvents.input, {
      ...rest,
      sandboxIds: [...sandboxIds],
      types: [...types],
      includeSnapshot,
    });
    const watch = new Watch<Item>(channel, request, { signal }, channel.deadlineOf({ timeout }));

    await watch.begin();
    return watch;
  }

  /** The cursor up to which everything was told: where another watch could go on. */
  get cursor(): bigint {
    return this.reached;
  }

  /** Whether the snapshot, if any, is complete. */
  get started(): boolean {
    return this.hasStarted;
  }

  close(): void {
    this.isClosed = true;
    this.call.cancel();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    let resumes = 0;

    try {
      for (;;) {
        try {
          const step = this.first ?? (await this.call.receive());
          this.first = undefined;
          const item = this.take(step);
          if (item) {
            resumes = 0;
            yield item as Item;
          }
        } catch (error) {
          if (this.isClosed) {
            return;
          }
          if (resumes++ >= RESUMES_MAX || !this.mayResume(error)) {
            throw error;
          }
          await this.begin();
        }
      }
    } finally {
      this.close();
    }
  }

  /** Begins a call that tells what is not told yet. */
  private async begin(): Promise<void> {
    if (this.hasStarted) {
      this.request.includeSnapshot = false;
      delete this.request.afterSequence;
      this.request.afterCursor = this.reached;
    }
    const options = { ...this.options, timeout: this.channel.leftUntil(this.deadline) };
    const { call, first } = await this.channel.connect(watchEvents, this.request, options);
    this.call = call;
    this.first = first;
    if (first?.item.case === "started") {
      this.take(first);
      this.first = undefined;
    }
  }

  /** Takes what a step tells of the watch itself. Returns what it has for the caller. */
  private take(step: WatchEventsResponse | undefined): Event | SandboxMessage | undefined {
    const { item } = step ?? { item: { case: "ended" as const } };

    switch (item.case) {
      case "sandbox":
        return item.value;
      case "event":
        this.reached = item.value.cursor;
        return item.value;
      case "started":
        // One that goes on has come further than that, or just as far.
        this.reached = this.hasStarted ? this.reached : item.value.cursor;
        this.hasStarted = true;
        return undefined;
      case "progress":
        this.reached = item.value.cursor;
        return undefined;
      case "ended":
        throw failure("DAEMON_UNREACHABLE", "the daemon ended the watch");
      default:
        return undefined;
    }
  }

  private mayResume(error: unknown): boolean {
    if (!(error instanceof HutchError)) {
      return false;
    }
    if (error.reason === "WATCHER_LAGGED") {
      const told = BigInt(error.metadata["cursor"] ?? 0);
      this.reached = told > this.reached ? told : this.reached;
      return true;
    }
    return error.code === "UNAVAILABLE";
  }
}
