// SPDX-License-Identifier: Apache-2.0

import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { failure } from "./errors.js";
import { checkName } from "./rules/names.js";

/** A named way to a daemon, as `hutch context` keeps them. */
export interface Context {
  address: string;
  ca_file?: string;
  certificate_file?: string;
  key_file?: string;
  server_name?: string;
  token?: string;
}

interface ContextsFile {
  current?: string;
  contexts?: Record<string, Context>;
}

const KEYS = ["address", "ca_file", "certificate_file", "key_file", "server_name", "token"];

/** The context of a name, or, without one, the current one, if there is one. */
export function findContext(environment: NodeJS.ProcessEnv, name: string | undefined): Context | undefined {
  const path = pathOfContexts(environment);
  const { current, contexts = {} } = path === undefined ? {} : readContexts(path);
  const wanted = name ?? current;

  if (wanted === undefined) {
    return undefined;
  }
  if (!Object.hasOwn(contexts, wanted)) {
    throw failure("CONTEXT_NOT_FOUND", `${path ?? "the contexts file"} has no context '${wanted}'`);
  }
  return contexts[wanted];
}

function pathOfContexts(environment: NodeJS.ProcessEnv): string | undefined {
  const { XDG_CONFIG_HOME: folder, HOME: home } = environment;

  if (folder?.startsWith("/")) {
    return join(folder, "hutch", "contexts.json");
  }
  return home?.startsWith("/") ? join(home, ".config", "hutch", "contexts.json") : undefined;
}

function readContexts(path: string): ContextsFile {
  let text: string;

  try {
    if ((statSync(path).mode & 0o077) !== 0) {
      throw failure("CONTEXTS_FILE_EXPOSED", `others than its owner may read or write ${path}: chmod 600 it`);
    }
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") {
      return {};
    }
    throw error;
  }

  const invalid = problemOf(text);
  if (invalid !== undefined) {
    throw failure("CONTEXTS_FILE_INVALID", `${path}: ${invalid}`);
  }
  return JSON.parse(text) as ContextsFile;
}

/** What is wrong with the file; undefined: nothing. */
function problemOf(text: string): string | undefined {
  let file: unknown;

  try {
    file = JSON.parse(text);
  } catch (error) {
    return (error as Error).message;
  }
  if (!isObject(file)) {
    return "it is no object";
  }
  const { current, contexts = {}, ...others } = file;
  if (Object.keys(others).length > 0) {
    return `it has an unknown key '${Object.keys(others)[0]}'`;
  }
  if (current !== undefined && typeof current !== "string") {
    return "'current' is no text";
  }
  if (!isObject(contexts)) {
    return "'contexts' is no object";
  }
  return doubledKey(text) ?? Object.entries(contexts).map(problemOfContext).find((problem) => problem !== undefined);
}

function problemOfContext([name, context]: [string, unknown]): string | undefined {
  try {
    checkName(name);
  } catch (error) {
    return `context '${name}': ${(error as Error).message}`;
  }
  if (!isObject(context) || typeof context["address"] !== "string") {
    return `context '${name}' has no address`;
  }
  for (const [key, value] of Object.entries(context)) {
    if (!KEYS.includes(key) || typeof value !== "string") {
      return `context '${name}' has '${key}', which is unknown or no text`;
    }
  }
  if (("certificate_file" in context) !== ("key_file" in context)) {
    return `context '${name}' has one of certificate_file and key_file without the other`;
  }
  return undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** JSON's own reader takes the last of two that are alike. @param text is JSON */
function doubledKey(text: string): string | undefined {
  const open: Set<string>[] = [];

  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"\s*:?|[{}]/g)) {
    if (token === "{") {
      open.push(new Set());
    } else if (token === "}") {
      open.pop();
    } else if (token.endsWith(":")) {
      const key = JSON.parse(token.slice(0, -1)) as string;
      const keys = open[open.length - 1];
      if (keys?.has(key)) {
        return `the key '${key}' is there twice`;
      }
      keys?.add(key);
    }
  }
  return undefined;
}
