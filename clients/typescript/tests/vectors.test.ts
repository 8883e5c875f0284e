// SPDX-License-Identifier: Apache-2.0

// The vectors of spec/vectors that are about what clients do.

import assert from "node:assert/strict";
import test from "node:test";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { codeOfReason, type Code, type ReasonName } from "../src/errors.js";
import { ExecSpecSchema } from "../src/gen/hutch/v1/exec_pb.js";
import { message } from "../src/messages.js";
import { DEFAULT_POLICY, mayRetry, Tries } from "../src/retry.js";
import { formatDuration, parseDuration } from "../src/rules/duration.js";
import { HostPattern } from "../src/rules/hosts.js";
import { checkEnvName, checkEnvValue, checkId, checkLabel, checkName, checkRequestId } from "../src/rules/names.js";
import { keptOf, readAt, shareLimit, StreamKeeper } from "../src/rules/output.js";
import { resolvePath, type PathContext, type PathUse } from "../src/rules/paths.js";
import { Selector } from "../src/rules/selector.js";
import { Violated } from "../src/rules/violation.js";
import { clientRules, report, vectors, type Case } from "./conformance.js";

/** What stands in inputs, over all suites. Each has its own of these. */
interface Input {
  use?: PathUse;
  working_directory?: string;
  workspace?: string;
  kind: string;
  labels: Record<string, string>;
  layers: Record<string, string>[];
  unset: string[];
  code: Code;
  connection_lost: boolean;
  sent: boolean;
  safe: boolean;
  answered: boolean;
  reason: string;
  name: string;
  limit: number;
  total: number;
  offset: number;
  finished: boolean;
  chunks: string[];
  stdout: number;
  stderr: number;
  attempts?: number;
  initial_ms?: number;
  max_ms?: number;
  attempt_ms?: number;
  deadline_ms?: number;
  random: number[];
}

/** A text of the input. Bytes that no text can hold are refused where they become one. */
function textOf(input: object, key: string, reason: ReasonName): string {
  const fields = input as Record<string, string>;
  const encoded = fields[`${key}_base64`];

  if (encoded === undefined) {
    return fields[key] ?? "";
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(encoded, "base64"));
  } catch {
    throw new Violated(reason, "it is not valid UTF-8");
  }
}

const KINDS: Record<string, [(text: string) => void, ReasonName]> = {
  id: [checkId, "ID_MALFORMED"],
  name: [checkName, "NAME_MALFORMED"],
  "request-id": [checkRequestId, "REQUEST_ID_MALFORMED"],
};

const SUITES: Record<string, (input: Input) => unknown> = {
  paths: (input) => {
    const { working_directory, workspace, use } = input;
    const context: PathContext = {
      ...(working_directory === undefined ? {} : { workingDirectory: working_directory }),
      ...(workspace === undefined ? {} : { workspace }),
      ...(use === undefined ? {} : { use }),
    };
    const { path, path_base64: encoded } = input as unknown as Record<string, string>;
    return resolvePath(encoded === undefined ? (path ?? "") : Buffer.from(encoded, "base64"), context);
  },
  ids: (input) => {
    const [check, reason] = KINDS[input.kind] ?? assert.fail();
    check(textOf(input, "text", reason));
    return {};
  },
  labels: (input) => {
    const key = textOf(input, "key", "LABEL_MALFORMED");
    checkLabel(key, textOf(input, "value", "LABEL_MALFORMED"));
    return {};
  },
  selectors: (input) => {
    const selector = Selector.parse(textOf(input, "selector", "SELECTOR_MALFORMED"));
    return { matches: selector.matches(input.labels), empty: selector.isEmpty };
  },
  env: (input) => {
    const { layers, unset } = input;
    for (const [name, value] of layers.flatMap((layer) => Object.entries(layer))) {
      checkEnvName(name);
      checkEnvValue(value);
    }
    unset.forEach(checkEnvName);
    // What goes out is what was given.
    const sent = toBinary(ExecSpecSchema, message(ExecSpecSchema, { env: layers[0] ?? {} }));
    return { env: Object.entries(fromBinary(ExecSpecSchema, sent).env).map(([name, value]) => `${name}=${value}`) };
  },
  durations: (input) => {
    const exact = parseDuration(textOf(input, "text", "DURATION_MALFORMED"));
    return { seconds: Number(exact.seconds), nanos: exact.nanos, canonical: formatDuration(exact) };
  },
  retry: (input) => pausesOf(input),
  "retry-decisions": (input) => {
    const { code, connection_lost: connectionLost, sent, safe, answered } = input;
    return { retry: mayRetry({ code, connectionLost, sent, safe, answered }) };
  },
  errors: (input) => ({ code: codeOfReason(input.reason) }),
  output: (input) => OUTPUT[input.kind]?.(input),
  "host-patterns": (input) => ({
    covers: HostPattern.parse(textOf(input, "pattern", "HOST_PATTERN_MALFORMED")).covers(input.name),
  }),
};

const OUTPUT: Record<string, (input: Input) => unknown> = {
  stream: ({ limit, total }) => {
    const { head, tailStart, dropped, truncated } = keptOf(limit, total);
    return { head, tail_start: tailStart, dropped, truncated };
  },
  bytes: ({ limit, chunks }) => {
    const keeper = new StreamKeeper(limit);
    chunks.forEach((chunk) => keeper.add(Buffer.from(chunk)));
    const kept = keeper.finish();
    const tail = kept.truncated ? kept.bytes.subarray(kept.headBytes) : new Uint8Array();
    const head = kept.truncated ? kept.bytes.subarray(0, kept.headBytes) : kept.bytes;
    return { head: Buffer.from(head).toString(), tail: Buffer.from(tail).toString(), dropped: kept.droppedBytes };
  },
  shared: ({ limit, stdout, stderr }) => {
    const share = shareLimit(limit, stdout, stderr);
    return { stdout_limit: share.stdout, stderr_limit: share.stderr };
  },
  read: ({ limit, total, offset, finished }) => readAt(keptOf(limit, total), total, offset, finished),
};

/** The pauses of a call whose every try fails. */
async function pausesOf(input: Input): Promise<unknown> {
  const { attempts = 6, initial_ms: initialMs = 500, max_ms: maxMs = 8000, attempt_ms: attemptMs = 0 } = input;
  const random = [...input.random];
  const pauses: number[] = [];
  let now = 0;
  let sleptFor = 0;
  const clock = {
    now: () => now,
    random: () => random.shift() ?? 0,
    sleep: async (ms: number) => {
      sleptFor = ms;
      now += ms;
    },
  };
  const deadline = input.deadline_ms ?? Infinity;
  const tries = new Tries({ ...DEFAULT_POLICY, attempts, initialMs, maxMs }, clock, deadline);

  for (now += attemptMs; await tries.pause(); now += attemptMs) {
    pauses.push(sleptFor);
    sleptFor = 0;
  }
  return { pauses_ms: pauses };
}

async function outcomeOf(suite: string, { in: input }: Case): Promise<unknown> {
  try {
    return { out: await SUITES[suite]?.(input as unknown as Input) };
  } catch (error) {
    if (error instanceof Violated) {
      return { error: { reason: error.reason } };
    }
    throw error;
  }
}

const bound = clientRules();

for (const suite of Object.keys(SUITES)) {
  const cases = vectors(suite).filter(({ requires }) => requires.some((rule) => bound.has(rule)));

  void test(`vectors: ${suite}`, async () => {
    const failed: string[] = [];

    assert.ok(cases.length > 0);
    for (const one of cases) {
      const { name, requires, out, error } = one;
      const rules = requires.filter((rule) => bound.has(rule));
      try {
        assert.deepEqual(await outcomeOf(suite, one), error ? { error } : { out });
        report(suite, rules, true, `${suite}/${name}`);
      } catch (problem) {
        report(suite, rules, false, `${suite}/${name}`);
        failed.push(`${name}: ${(problem as Error).message}`);
      }
    }
    assert.equal(failed.length, 0, failed.join("\n"));
  });
}
