// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Code } from "./errors.js";

/** How often a call is tried, and the pauses in between. */
export interface RetryPolicy {
  attempts: number;
  initialMs: number;
  maxMs: number;
}

export const DEFAULT_POLICY: RetryPolicy = { attempts: 6, initialMs: 500, maxMs: 8000 };

/** How a try of a call ended. */
export interface Outcome {
  code: Code;
  connectionLost: boolean;
  /** False: the request was certainly not sent. */
  sent: boolean;
  /** The call may be repeated: it only reads, or carries a request id. */
  safe: boolean;
  /** It is a stream that had its first answer. */
  answered: boolean;
}

export function mayRetry(outcome: Outcome): boolean {
  if (outcome.answered || (outcome.code !== "UNAVAILABLE" && !outcome.connectionLost)) {
    return false;
  }
  return outcome.safe || !outcome.sent;
}

/** The pause after a number of tries, with a random number of 32 bits. */
export function pauseAfter(policy: RetryPolicy, tries: number, random: number): number {
  if (tries === 1) {
    return 0;
  }
  const base = Math.min(policy.initialMs * 2 ** (tries - 2), policy.maxMs);
  return base - Math.floor(base / 4) + Number((BigInt(Math.floor(base / 2)) * BigInt(random)) >> 32n);
}

/** Time and chance, which tests have their own of. */
export interface Clock {
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  random(): number;
}

export const SYSTEM_CLOCK: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) => sleep(ms, undefined, signal ? { signal } : {}),
  random: () => randomBytes(4).readUInt32LE(),
};

/** The tries of one call. */
export class Tries {
  private tries = 0;

  constructor(
    private readonly policy: RetryPolicy,
    private readonly clock: Clock,
    /** As the clock tells it; `Infinity`: none. */
    private readonly deadline: number,
  ) {}

  /** Waits before another try. False: there is none, because that was the last or the pause would be too long. */
  async pause(signal?: AbortSignal): Promise<boolean> {
    this.tries += 1;
    if (this.tries >= this.policy.attempts) {
      return false;
    }
    const pause = pauseAfter(this.policy, this.tries, this.clock.random());
    if (this.clock.now() + pause >= this.deadline) {
      return false;
    }
    if (pause > 0) {
      await this.clock.sleep(pause, signal);
    }
    return true;
  }
}
