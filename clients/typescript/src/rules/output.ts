// SPDX-License-Identifier: Apache-2.0

import { Violated } from "./violation.js";

/** What is kept of a stream with a limit: its head, and its tail from an offset on. */
export interface Kept {
  /** Bytes at the beginning. */
  head: number;
  /** Offset of the tail; the total when nothing was dropped. */
  tailStart: number;
  dropped: number;
  truncated: boolean;
}

export function keptOf(limit: number, total: number): Kept {
  if (total <= limit) {
    return { head: total, tailStart: total, dropped: 0, truncated: false };
  }
  const head = Math.ceil(limit / 2);
  const tailStart = total - Math.floor(limit / 2);
  return { head, tailStart, dropped: tailStart - head, truncated: true };
}

/** How much of a limit over both streams each of them has: half, and what the other does not need. */
export function shareLimit(limit: number, stdout: number, stderr: number): { stdout: number; stderr: number } {
  return {
    stdout: Math.max(Math.ceil(limit / 2), limit - stderr),
    stderr: Math.max(Math.floor(limit / 2), limit - stdout),
  };
}

/** Where reading at an offset goes on, and how many bytes are there in one piece. */
export function readAt(
  kept: Kept,
  total: number,
  offset: number,
  finished: boolean,
): { offset: number; available: number } {
  if (offset > total) {
    if (finished) {
      throw new Violated("OFFSET_OUT_OF_RANGE", `the stream ends at ${total}`);
    }
    return { offset, available: 0 };
  }
  if (offset < kept.head) {
    return { offset, available: kept.head - offset };
  }
  const start = Math.max(offset, kept.tailStart);
  return { offset: start, available: total - start };
}

/** What became of one stream of output: all of it, or its head and tail. */
export class CollectedStream {
  constructor(
    /** The bytes; when truncated, head and tail next to each other. */
    readonly bytes: Uint8Array,
    /** How many of them stand before the gap. */
    readonly headBytes: number,
    /** Bytes that were written. */
    readonly totalBytes: number,
  ) {}

  /** Bytes that are missing between head and tail. */
  get droppedBytes(): number {
    return this.totalBytes - this.bytes.length;
  }

  get truncated(): boolean {
    return this.droppedBytes > 0;
  }

  /** The bytes as UTF-8. */
  get text(): string {
    return new TextDecoder().decode(this.bytes);
  }

  /** The piece at an offset, counted in bytes that were written. Where it was dropped, what comes after the gap. */
  read(offset: number): { offset: number; data: Uint8Array } {
    const tailStart = this.headBytes + this.droppedBytes;
    const kept = { head: this.headBytes, tailStart, dropped: this.droppedBytes, truncated: this.truncated };
    const found = readAt(kept, this.totalBytes, offset, true);
    const at = found.offset < this.headBytes ? found.offset : found.offset - this.droppedBytes;

    return { offset: found.offset, data: this.bytes.subarray(at, at + found.available) };
  }
}

/** Takes what comes of one stream, and keeps no more than its head and tail. */
export class StreamKeeper {
  private readonly head: Uint8Array[] = [];
  private readonly tail: Uint8Array[] = [];
  private headLength = 0;
  private tailLength = 0;
  private total = 0;

  /** @param limit bytes that are kept at most; up to as many again while they come */
  constructor(private readonly limit: number) {}

  get totalBytes(): number {
    return this.total;
  }

  /** Takes a piece at its offset; what lies before it and did not come was dropped by the daemon. */
  add(data: Uint8Array, offset: number = this.total): void {
    const room = this.total === this.headLength && offset === this.total ? this.limit - this.headLength : 0;
    const first = data.subarray(0, Math.max(0, room));
    const rest = data.subarray(first.length);

    this.total = offset + data.length;
    if (first.length > 0) {
      this.head.push(first);
      this.headLength += first.length;
    }
    if (rest.length > 0) {
      this.tail.push(rest);
      this.tailLength += rest.length;
      this.trimTail();
    }
  }

  /** What was kept, with a limit that is not above the keeper's own. */
  finish(limit: number = this.limit): CollectedStream {
    const head = Buffer.concat(this.head);
    const tail = Buffer.concat(this.tail);
    const gap = this.total - head.length - tail.length;

    if (gap === 0 && this.total <= limit) {
      return new CollectedStream(Buffer.concat([head, tail]), this.total, this.total);
    }
    // A gap that came from the daemon stays where it is, when all that came fits.
    if (head.length + tail.length <= limit) {
      return new CollectedStream(Buffer.concat([head, tail]), head.length, this.total);
    }
    const want = Math.floor(limit / 2);
    const whole = gap === 0 ? Buffer.concat([head, tail]) : tail;
    const ending = whole.subarray(Math.max(0, whole.length - want));
    const kept = head.subarray(0, Math.ceil(limit / 2));
    return new CollectedStream(Buffer.concat([kept, ending]), kept.length, this.total);
  }

  /** No more than the limit is needed of the end. */
  private trimTail(): void {
    for (let first = this.tail[0]; first && this.tailLength - first.length >= this.limit; first = this.tail[0]) {
      this.tail.shift();
      this.tailLength -= first.length;
    }
  }
}
