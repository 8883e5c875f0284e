// SPDX-License-Identifier: Apache-2.0

import { Violated } from "./violation.js";

const SECONDS_MAX = 315_576_000n;
export const DURATION_MAX_MS = Number(SECONDS_MAX) * 1000;
const NANOS = 1_000_000_000n;
const UNITS: ReadonlyMap<string, bigint> = new Map([
  ["d", 86_400n * NANOS],
  ["h", 3_600n * NANOS],
  ["m", 60n * NANOS],
  ["s", NANOS],
  ["ms", 1_000_000n],
  ["us", 1_000n],
  ["ns", 1n],
]);

/** A length of time: milliseconds, or a text such as `1h30m`, `1.5s`, `250ms`. */
export type DurationLike = number | string;

/** A length of time, exactly. */
export interface ExactDuration {
  seconds: bigint;
  nanos: number;
}

/** Reads a length of time; refuses what is negative, or longer than ten years. */
export function parseDuration(duration: DurationLike): ExactDuration {
  const nanos = typeof duration === "number" ? nanosOf(duration) : parseText(duration);
  const exact = { seconds: nanos / NANOS, nanos: Number(nanos % NANOS) };

  checkDuration(exact);
  return exact;
}

export function checkDuration({ seconds, nanos }: ExactDuration): void {
  if (seconds < 0n || nanos < 0 || seconds > SECONDS_MAX || (seconds === SECONDS_MAX && nanos > 0)) {
    throw new Violated("DURATION_OUT_OF_RANGE", "a duration is 0 to 315576000 s");
  }
}

/** Writes a length of time in seconds, with 0, 3, 6 or 9 decimals: `1.500s`. */
export function formatDuration({ seconds, nanos }: ExactDuration): string {
  const digits = String(nanos).padStart(9, "0").replace(/(000)+$/, "");

  return `${seconds}${digits ? "." + digits : ""}s`;
}

/** The same in milliseconds, which lose what is finer. */
export function toMilliseconds(duration: DurationLike): number {
  const { seconds, nanos } = parseDuration(duration);

  return Number(seconds) * 1000 + nanos / 1e6;
}

function nanosOf(milliseconds: number): bigint {
  if (!Number.isFinite(milliseconds)) {
    throw new Violated("DURATION_OUT_OF_RANGE", "a duration is 0 to 315576000 s");
  }
  return BigInt(Math.trunc(milliseconds)) * 1_000_000n + BigInt(Math.round((milliseconds % 1) * 1e6));
}

function parseText(text: string): bigint {
  let total = 0n;
  let before = Infinity; // the place of the unit before, counted from the finest
  let rest = text;

  if (text === "0") {
    return 0n;
  }
  do {
    const part = /^([0-9]+)(?:\.([0-9]+))?(d|h|ms|us|ns|m|s)/.exec(rest);
    const [whole, number = "", fraction, unit = ""] = part ?? [];
    const place = UNITS.size - [...UNITS.keys()].indexOf(unit);

    if (whole === undefined || place >= before || (fraction !== undefined && whole.length < rest.length)) {
      throw new Violated("DURATION_MALFORMED", "a duration is 0, or numbers with units: 1h30m, 1.5s, 250ms");
    }
    total += toNanos(number, fraction ?? "", UNITS.get(unit) ?? 0n);
    before = place;
    rest = rest.slice(whole.length);
  } while (rest !== "");
  return total;
}

function toNanos(number: string, fraction: string, unit: bigint): bigint {
  const digits = fraction.replace(/0+$/, "");
  const scale = 10n ** BigInt(digits.length);
  const part = BigInt(digits || "0") * unit;

  if (part % scale !== 0n) {
    throw new Violated("DURATION_MALFORMED", "a duration is not finer than a nanosecond");
  }
  return BigInt(number) * unit + part / scale;
}
