// SPDX-License-Identifier: Apache-2.0

import { byteLength, hasControlCharacter, hasUtf8, Violated } from "./violation.js";

const PATH_BYTES_MAX = 4096;
const COMPONENT_BYTES_MAX = 255;
const WORKSPACE = "/workspace";

/** What a path is for: `absolute` refuses relative ones, `remove` also the root, the workspace and what contains it. */
export type PathUse = "any" | "absolute" | "remove";

export interface PathContext {
  /** What relative paths stand below. Default: `/workspace`. */
  workingDirectory?: string;
  /** Default: `/workspace`. */
  workspace?: string;
  use?: PathUse;
}

export interface ResolvedPath {
  path: string;
  /** It was written as a directory's: `src/`, `src/.`, `.`. */
  directory: boolean;
}

/** Turns a path inside a sandbox into the absolute one that it stands for, as the daemon does. Looks at no files. */
export function resolvePath(given: string | Uint8Array, context: PathContext = {}): ResolvedPath {
  const use = context.use ?? "any";
  const text = typeof given === "string" ? given : decode(given);

  checkText(text);
  if (use === "absolute" && !text.startsWith("/")) {
    throw new Violated("PATH_NOT_ABSOLUTE", "the path must be absolute");
  }
  const names = text.split("/");
  if (names[0] === "~") {
    throw new Violated("PATH_TILDE", "nothing here expands ~");
  }
  const components = componentsOf(names);
  const above = text.startsWith("/") ? [] : componentsOf(workingDirectory(context).split("/"));
  const path = "/" + [...above, ...components].join("/");
  if (byteLength(path) > PATH_BYTES_MAX) {
    throw new Violated("PATH_TOO_LONG", `the path has more than ${PATH_BYTES_MAX} bytes`);
  }
  if (use === "remove" && contains(path, context.workspace || WORKSPACE)) {
    throw new Violated("PATH_PROTECTED", "the root, the workspace and what contains it stay where they are");
  }
  const last = names[names.length - 1];
  return { path, directory: last === "" || last === "." };
}

/** Bytes that are no text are refused here, and those that are too many before. */
function decode(bytes: Uint8Array): string {
  if (bytes.length > PATH_BYTES_MAX) {
    throw new Violated("PATH_TOO_LONG", `the path has more than ${PATH_BYTES_MAX} bytes`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Violated("PATH_NOT_UTF8", "the path is not valid UTF-8");
  }
}

function checkText(text: string): void {
  if (text === "") {
    throw new Violated("PATH_EMPTY", "the path is empty");
  }
  if (byteLength(text) > PATH_BYTES_MAX) {
    throw new Violated("PATH_TOO_LONG", `the path has more than ${PATH_BYTES_MAX} bytes`);
  }
  if (!hasUtf8(text)) {
    throw new Violated("PATH_NOT_UTF8", "the path is not valid UTF-8");
  }
  if (hasControlCharacter(text)) {
    throw new Violated("PATH_CONTROL_CHARACTER", "the path has a control character");
  }
}

/** The components that count. */
function componentsOf(names: string[]): string[] {
  if (names.includes("..")) {
    throw new Violated("PATH_DOTDOT", "the path has .. as a component");
  }
  if (names.some((component) => byteLength(component) > COMPONENT_BYTES_MAX)) {
    throw new Violated("PATH_COMPONENT_TOO_LONG", `a component has more than ${COMPONENT_BYTES_MAX} bytes`);
  }
  return names.filter((component) => component !== "" && component !== ".");
}

function workingDirectory(context: PathContext): string {
  const folder = context.workingDirectory || context.workspace || WORKSPACE;

  checkText(folder);
  if (!folder.startsWith("/")) {
    throw new Violated("PATH_NOT_ABSOLUTE", "the working directory must be absolute");
  }
  return folder;
}

/** Whether a resolved path is the workspace, or above it. */
function contains(path: string, workspace: string): boolean {
  const protectedPath = "/" + componentsOf(workspace.split("/")).join("/");

  return path === "/" || path === protectedPath || protectedPath.startsWith(path + "/");
}
