// SPDX-License-Identifier: Apache-2.0

import { Readable } from "node:stream";
import { OutputStream, type OutputChunk } from "./gen/hutch/v1/exec_pb.js";
import { CollectedStream, shareLimit, StreamKeeper } from "./rules/output.js";

const COLLECT_BYTES = 16 << 20;

/** What a command printed. */
export interface Collected {
  stdout: CollectedStream;
  stderr: CollectedStream;
}

/**
 * The output of a command, taken in one of these ways:
 *
 *     for await (const chunk of output) …     // pieces of both streams as they come
 *     output.stdout.pipe(process.stdout)      // Node's streams
 *     await output.collect()                  // all of it, bounded
 *     await output.wait()                     // none of it
 *
 * Of Node's streams, one that was asked for has to be read, and stalls the other while it is not; one that nobody
 * asked for is thrown away.
 */
export class CommandOutput<End> implements AsyncIterable<OutputChunk> {
  private readonly readables = new Map<OutputStream, PushedReadable>();
  private taken = false;
  private readonly ended: Promise<End>;
  private resolveEnd!: (end: End) => void;
  private rejectEnd!: (error: unknown) => void;

  /** @internal */
  constructor(private readonly source: AsyncGenerator<OutputChunk, End, undefined>) {
    this.ended = new Promise<End>((resolve, reject) => {
      this.resolveEnd = resolve;
      this.rejectEnd = reject;
    });
    this.ended.catch(() => undefined); // it is told where output is taken, too
  }

  /** Standard output, and all that a terminal shows. */
  get stdout(): Readable {
    return this.readable(OutputStream.STDOUT);
  }

  get stderr(): Readable {
    return this.readable(OutputStream.STDERR);
  }

  [Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, undefined> {
    this.take();
    return this.chunks();
  }

  /** Waits for the end. Output that nobody takes is thrown away. */
  async wait(): Promise<End> {
    if (!this.taken) {
      for await (const _ of this) {
        // thrown away
      }
    }
    return this.ended;
  }

  /** Takes all output, of which head and tail are kept up to a limit over both streams. Default: 16 MiB. */
  async collect(limitBytes: number = COLLECT_BYTES): Promise<Collected & { end: End }> {
    const stdout = new StreamKeeper(limitBytes);
    const stderr = new StreamKeeper(limitBytes);

    for await (const { stream, data, offset } of this) {
      (stream === OutputStream.STDERR ? stderr : stdout).add(data, Number(offset));
    }
    const share = shareLimit(limitBytes, stdout.totalBytes, stderr.totalBytes);
    return { stdout: stdout.finish(share.stdout), stderr: stderr.finish(share.stderr), end: await this.ended };
  }

  private take(): void {
    if (this.taken) {
      throw new Error("the output is taken already");
    }
    this.taken = true;
  }

  private async *chunks(): AsyncGenerator<OutputChunk, void, undefined> {
    try {
      for (let step = await this.source.next(); ; step = await this.source.next()) {
        if (step.done) {
          this.resolveEnd(step.value);
          return;
        }
        yield step.value;
      }
    } catch (error) {
      this.rejectEnd(error);
      throw error;
    }
  }

  private readable(stream: OutputStream): Readable {
    let readable = this.readables.get(stream);

    if (!readable) {
      if (this.readables.size === 0) {
        this.take();
        setImmediate(() => void this.pump()); // after the other one was asked for, too
      }
      readable = new PushedReadable();
      this.readables.set(stream, readable);
    }
    return readable;
  }

  private async pump(): Promise<void> {
    try {
      for await (const { stream, data } of this.chunks()) {
        await this.readables.get(stream)?.give(data);
      }
      this.readables.forEach((readable) => readable.push(null));
    } catch (error) {
      this.readables.forEach((readable) => readable.destroy(error as Error));
    }
  }
}

/** A stream of Node's that is given bytes, and has its giver wait while nobody reads. */
class PushedReadable extends Readable {
  private wake: () => void = () => undefined;

  async give(data: Uint8Array): Promise<void> {
    if (!this.destroyed && !this.push(data)) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  override _read(): void {
    this.wake();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.wake();
    callback(error);
  }
}
