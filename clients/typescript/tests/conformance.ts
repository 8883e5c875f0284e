// SPDX-License-Identifier: Apache-2.0

// Results for spec/CONFORMANCE.md: tests that check rules of spec/behavior.md name them.

import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test, { type TestContext } from "node:test";

/** The tree that this client is in. */
export const ROOT = process.env["HUTCH_ROOT"] ?? fail("HUTCH_ROOT is not set: use clients/typescript/run-tests");

export interface Case {
  name: string;
  requires: string[];
  in: Record<string, unknown>;
  out?: Record<string, unknown>;
  error?: { reason: string };
}

/** The cases of a suite of vectors. */
export function vectors(suite: string): Case[] {
  return (JSON.parse(readFileSync(join(ROOT, "spec/vectors", `${suite}.json`), "utf8")) as { cases: Case[] }).cases;
}

/** The rules that bind clients. */
export function clientRules(): Set<string> {
  const page = readFileSync(join(ROOT, "spec/behavior.md"), "utf8");
  const rules = page.matchAll(/^- \*\*([A-Z]+-\d{3})\*\* \[(?:MUST|SHOULD), (?:Core|Full), (?:client|both)\]/gm);

  return new Set(Array.from(rules, (rule) => rule[1] ?? ""));
}

export function report(suite: string, rules: readonly string[], passed: boolean, name: string): void {
  const folder = process.env["HUTCH_CONFORMANCE_DIR"];

  if (folder) {
    const lines = rules.map((rule) => `${rule}\t${passed ? "pass" : "fail"}\t${name}\n`);
    appendFileSync(join(folder, `typescript-${suite}.tsv`), lines.join(""));
  }
}

/** A test that checks rules. One may be named only where the tests that name it check all that it says, together. */
export function checks(rules: readonly string[], name: string, body: (context: TestContext) => Promise<void>): void {
  void test(name, async (context) => {
    let passed = false;
    try {
      await body(context);
      passed = true;
    } finally {
      report("client", rules, passed, `client/${name}`);
    }
  });
}

function fail(message: string): never {
  throw new Error(message);
}
