// SPDX-License-Identifier: Apache-2.0

// Builds dist/: as ECMAScript modules, and as CommonJS for those who have no other. npm calls it when this folder is
// installed (`npm install ./clients/typescript`), and then there may be no compiler yet: npm does not install what a
// folder needs to be built. So that is done here.

import { spawnSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");

function run(program, ...args) {
  const { status, error } = spawnSync(program, args, { cwd: root, stdio: "inherit" });

  if (status !== 0) {
    throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? `exit status ${status}`}`);
  }
}

if (!existsSync(compiler)) {
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ["npm"];
  run(...npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund");
}
rmSync(join(root, "dist"), { recursive: true, force: true });
run(process.execPath, compiler, "--project", "tsconfig.json");
run(process.execPath, compiler, "--project", "tsconfig.cjs.json");
writeFileSync(join(root, "dist", "cjs", "package.json"), '{ "type": "commonjs" }\n');
