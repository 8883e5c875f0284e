// SPDX-License-Identifier: Apache-2.0

import type { DescMessage } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import { failure, type ReasonName, type Violation } from "./errors.js";
import { checkDuration } from "./rules/duration.js";
import {
  checkEnvName,
  checkEnvValue,
  checkId,
  checkLabel,
  checkLabelCount,
  checkName,
  checkRequestId,
} from "./rules/names.js";
import { resolvePath } from "./rules/paths.js";
import { Selector } from "./rules/selector.js";
import { Violated } from "./rules/violation.js";

const MODE_MAX = 0o777;
const FILES = "hutch/v1/file"; // the part of the contract that is about them

/** Checks a request by the rules that daemon and clients share, and throws an error that names every violation. */
export function checkRequest(schema: DescMessage, request: object): void {
  const checks = new Checks();

  checkMessage(checks, schema, request as Fields, "");
  checks.finish();
}

/** Runs a rule for one argument of a function, and throws an error that names it. */
export function checkArgument<T>(field: string, rule: () => T): T {
  const checks = new Checks();
  const result = checks.run(field, rule);

  checks.finish();
  return result as T;
}

type Fields = Record<string, unknown>;

/** Collects what is violated. */
class Checks {
  private readonly violations: Violation[] = [];

  run<T>(field: string, rule: () => T): T | undefined {
    try {
      return rule();
    } catch (error) {
      if (!(error instanceof Violated)) {
        throw error;
      }
      this.violations.push({ field, reason: error.reason, message: error.message });
      return undefined;
    }
  }

  finish(): void {
    const [first, ...more] = this.violations;

    if (first) {
      const rest = more.length > 0 ? ` (and ${more.length} more)` : "";
      throw failure(first.reason as ReasonName, `${first.field}: ${first.message}${rest}`, {
        violations: this.violations,
      });
    }
  }
}

/** Where an id may be left out. */
const OPTIONAL_IDS: ReadonlySet<string> = new Set([
  "CreateSandboxRequest.sandbox_id",
  "ListSnapshotsRequest.sandbox_id",
  "CreateExecRequest.exec_id",
]);

/** Messages whose fields are checked like those of the request that they are in. */
const NESTED: ReadonlySet<string> = new Set(["spec", "header", "create", "attach"]);

function checkMessage(checks: Checks, schema: DescMessage, message: Fields, above: string): void {
  for (const field of schema.fields) {
    const value = valueOf(message, field.localName, field.oneof?.localName);

    if (field.message && NESTED.has(field.name) && field.fieldKind === "message") {
      if (value !== undefined) {
        checkMessage(checks, field.message, value as Fields, `${above}${field.name}.`);
      }
    } else if (value !== undefined) {
      checkField(checks, schema, field.name, value, above + field.name, message);
    }
    if (field.message?.typeName === "google.protobuf.Duration" && value !== undefined) {
      checks.run(above + field.name, () => checkDuration(value as Duration));
    }
  }
}

/** A field's value; undefined where it is not set, or another one of its oneof is. */
function valueOf(message: Fields, name: string, oneof: string | undefined): unknown {
  if (oneof === undefined) {
    return message[name];
  }
  const chosen = message[oneof] as { case?: string; value?: unknown };
  return chosen.case === name ? chosen.value : undefined;
}

function checkField(
  checks: Checks,
  schema: DescMessage,
  name: string,
  value: unknown,
  path: string,
  message: Fields,
): void {
  const text = value as string;

  switch (name) {
    case "sandbox_id":
    case "exec_id":
      if (text !== "") {
        checks.run(path, () => checkId(text));
      } else if (!OPTIONAL_IDS.has(`${schema.name}.${name}`)) {
        checks.run(path, required);
      }
      break;
    case "sandbox_ids":
      (value as string[]).forEach((id, i) => checks.run(`${path}[${i}]`, () => checkId(id)));
      break;
    case "request_id":
      if (text !== "") {
        checks.run(path, () => checkRequestId(text));
      }
      break;
    case "selector":
      checks.run(path, () => checkSelector(text, schema.name === "DeleteSandboxesRequest"));
      break;
    case "path":
    case "source":
    case "target":
      // A broken upload may be asked about by its id alone.
      if (schema.file.name === FILES && (text !== "" || !message["uploadId"])) {
        checks.run(path, () => resolvePath(text, { workingDirectory: "/" }));
      }
      break;
    case "mode":
      if (schema.file.name === FILES) {
        checks.run(path, () => checkMode(value as number));
      }
      break;
    default:
      checkProcess(checks, schema, name, value, path);
  }
}

/** What sandboxes and execs are made of. */
function checkProcess(checks: Checks, schema: DescMessage, name: string, value: unknown, path: string): void {
  switch (name) {
    case "argv":
      checks.run(path, () => checkArgv(value as string[]));
      break;
    case "command":
      if (schema.name === "SandboxSpec" && (value as string[]).length > 0) {
        checks.run(path, () => checkArgv(value as string[]));
      }
      break;
    case "env":
      for (const [key, text] of Object.entries(value as Record<string, string>)) {
        checks.run(`${path}[${key}]`, () => checkEnvName(key));
        checks.run(`${path}[${key}]`, () => checkEnvValue(text));
      }
      break;
    case "unset_env":
      (value as string[]).forEach((text, i) => checks.run(`${path}[${i}]`, () => checkEnvName(text)));
      break;
    case "labels":
      checks.run(path, () => checkLabelCount(Object.keys(value as object).length));
      for (const [key, text] of Object.entries(value as Record<string, string>)) {
        checks.run(`${path}[${key}]`, () => checkLabel(key, text));
      }
      break;
    case "working_directory":
      if (value !== "") {
        const use = schema.name === "SandboxSpec" ? "absolute" : "any";
        checks.run(path, () => resolvePath(value as string, { workingDirectory: "/", use }));
      }
      break;
    case "name":
      if (schema.name === "CreateSnapshotRequest" && value !== "") {
        checks.run(path, () => checkName(value as string));
      }
      break;
    default:
      break;
  }
}

function required(): never {
  throw new Violated("FIELD_REQUIRED", "the field is required");
}

function checkSelector(text: string, mustSelect: boolean): void {
  if (Selector.parse(text).isEmpty && mustSelect) {
    throw new Violated("SELECTOR_EMPTY", "an empty selector would hit everything");
  }
}

function checkMode(mode: number): void {
  if (mode > MODE_MAX) {
    throw new Violated("FIELD_INVALID", "a mode is 0 to 0777");
  }
}

export function checkArgv(argv: readonly string[]): void {
  if (!argv[0]) {
    throw new Violated("ARGV_EMPTY", "there is no program to run");
  }
  if (argv.some((argument) => argument.includes("\0"))) {
    throw new Violated("ARGV_MALFORMED", "an argument has a NUL");
  }
}
