// SPDX-License-Identifier: Apache-2.0

// The package as somebody has it who installs it: in a fresh project, by npm, with nothing but what npm keeps here.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import test, { after, before } from "node:test";
import { VERSION } from "../src/index.js";
import { checks, ROOT } from "./conformance.js";
import { BUILD, Daemon } from "./daemon.js";

const SOURCES = join(ROOT, "clients/typescript");
const LIMIT_MS = 360_000;

let folder: string;
let client: string;
let daemon: Daemon;
let ordinary: Daemon;

/** Runs a program to its end, and returns what it printed. */
function run(cwd: string, program: string, ...args: string[]): string {
  return runWith(daemon, cwd, program, ...args);
}

/** The same with a daemon. */
function runWith(daemon: Daemon, cwd: string, program: string, ...args: string[]): string {
  const env = { ...process.env, HUTCH_ADDRESS: daemon.address, PATH: `${BUILD}:${process.env["PATH"]}` };
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, env, encoding: "utf8", timeout: LIMIT_MS });

  assert.equal(status, 0, `${program} ${args.join(" ")}:\n${stdout}${stderr}`);
  return stdout;
}

/** A project in TypeScript. */
function project(name: string, type: "module" | "commonjs"): string {
  const path = join(folder, name);
  const options = {
    target: "es2022",
    lib: ["es2023", "esnext.disposable"],
    module: "nodenext",
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    types: [],
  };

  mkdirSync(path);
  writeFileSync(join(path, "package.json"), JSON.stringify({ name, private: true, type }));
  writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions: options }));
  return path;
}

const compile = (path: string) => run(path, join(client, "node_modules/.bin/tsc"));

const README = readFileSync(join(SOURCES, "README.md"), "utf8").matchAll(/^```ts\n([^]*?)^```$/gm);
const BLOCKS = Array.from(README, (block) => block[1] ?? "");
const EXAMPLES = readdirSync(join(SOURCES, "examples")).map((name) => basename(name, ".ts"));

let modules: string; // a project, with the package, the code of README.md and the examples

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "hutch-ts-"));
  client = join(folder, "client");
  daemon = await Daemon.start();
  ordinary = await Daemon.startOrdinary();
  const left = (path: string) => !["node_modules", "dist", "out"].includes(basename(path));
  cpSync(SOURCES, client, { recursive: true, filter: left });
  modules = project("modules", "module");
  run(modules, "npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", client);
  BLOCKS.forEach((block, i) => writeFileSync(join(modules, `readme-${i}.ts`), block));
  EXAMPLES.forEach((name) => cpSync(join(SOURCES, "examples", `${name}.ts`), join(modules, `${name}.ts`)));
  compile(modules);
});
after(async () => {
  await daemon[Symbol.asyncDispose]();
  await ordinary[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

// They are for everybody who has a daemon.
for (const [whose, find] of Object.entries({ "root's": () => daemon, "an ordinary user's": () => ordinary })) {
  void test(`the code of README.md is right, and runs with ${whose} daemon`, () => {
    const printed = BLOCKS.map((_, i) => runWith(find(), modules, "node", `readme-${i}.js`));

    assert.equal(printed.length, 4);
    assert.match(printed[0] ?? "", /^42\n\nhello\n 3 false\n$/);
    assert.match(printed[1] ?? "", /^apple\npear\n0\nstarted\ndone\n 0\n$/);
    assert.match(printed[2] ?? "", /^5000000n 10\n[^]*NOT_FOUND FILE_NOT_FOUND\n$/);
    assert.match(printed[3] ?? "", /1n SANDBOX_CREATED\n[^]*SANDBOX_STATE_CHANGED\n$/);
  });

  void test(`the examples are right, and run with ${whose} daemon`, () => {
    assert.deepEqual([...EXAMPLES].sort(), ["agent", "hello", "sync-folder", "terminal"]);
    assert.equal(runWith(find(), modules, "node", "hello.js"), "hello from a sandbox\n");
    assert.equal(runWith(find(), modules, "node", "agent.js"), "it failed: KeyError: 'total'\nit says 42\n");
    assert.match(runWith(find(), modules, "node", "sync-folder.js"), /entries went in\na.txt c.txt\n$/);
    const shell = spawnSync("node", ["terminal.js"], {
      cwd: modules,
      env: { ...process.env, HUTCH_ADDRESS: find().address },
      input: "echo in $((6 * 7))\nexit 5\n",
      encoding: "utf8",
      timeout: LIMIT_MS,
    });
    assert.equal(shell.status, 5, shell.stderr);
    assert.match(shell.stdout, /in 42/);
  });
}

void test("programs in CommonJS have it, too, with its types", () => {
  const path = project("common", "commonjs");

  symlinkSync(join(modules, "node_modules"), join(path, "node_modules"));
  writeFileSync(
    join(path, "main.ts"),
    `import { connect, NotFoundError, SandboxState, v1 } from "hutch";
    async function main(): Promise<void> {
      const client = await connect();
      const sandbox = await client.create({ idleTtl: "1m", limits: { memoryBytes: 64 << 20 } });
      await sandbox.wait(SandboxState.READY);
      const error: unknown = await client.get("nobody-1").catch((reason: unknown) => reason);
      const { stdout } = await sandbox.exec(["echo", "hi"]);
      console.log(stdout.trim(), error instanceof NotFoundError, v1.Reason.ID_TAKEN);
      await sandbox.delete();
      client.close();
    }
    void main();\n`,
  );
  writeFileSync(join(path, "plain.js"), 'console.log(typeof require("hutch").connect);\n');
  compile(path);
  assert.match(readFileSync(join(path, "main.js"), "utf8"), /require\("hutch"\)/);
  assert.equal(run(path, "node", "main.js"), "hi true 200\n");
  assert.equal(run(path, "node", "plain.js"), "function\n");

  writeFileSync(join(path, "wrong.ts"), 'import { Client } from "hutch";\nexport const x = (c: Client) => c.get(7);\n');
  assert.throws(() => compile(path), /'number' is not assignable to parameter of type 'string'/);
});

const TELEMETRY = `
export const spans = [];
export const SpanKind = { CLIENT: 2 };
export const SpanStatusCode = { ERROR: 2 };
export const context = { active: () => "active" };
export const propagation = {
  inject: ({ span: { traceparent } }, carrier) => { Object.assign(carrier, { traceparent, tracestate: "vendor=1" }); },
};
export const trace = {
  setSpan: (parent, span) => ({ parent, span }),
  getTracer: (tracer) => ({
    startSpan: (name, { kind, attributes }) => {
      const id = String(spans.length + 1).padStart(16, "0");
      const traceparent = "00-" + "a".repeat(32) + "-" + id + "-01";
      const span = { tracer, name, kind, attributes: { ...attributes }, traceparent };
      span.setAttributes = (more) => Object.assign(span.attributes, more);
      span.setStatus = ({ code }) => { span.status = code; };
      span.end = () => { span.ended = true; };
      spans.push(span);
      return span;
    },
  }),
};
`;

checks(["OTEL-001", "OTEL-002", "OTEL-003"], "calls have spans where OpenTelemetry is there", async () => {
  const api = join(client, "node_modules/@opentelemetry/api");
  mkdirSync(api, { recursive: true });
  const manifest = { name: "@opentelemetry/api", version: "1.0.0", type: "module", main: "index.js" };
  writeFileSync(join(api, "package.json"), JSON.stringify(manifest));
  writeFileSync(join(api, "index.js"), TELEMETRY);
  writeFileSync(
    join(modules, "traced.mjs"),
    `import { connect } from "hutch";
    const { spans } = await import(process.argv[2]);
    const client = await connect();
    const sandbox = await client.create({ image: "host" });
    await sandbox.exec(["/bin/sh", "-c", "exit 3", "secret"]);
    await sandbox.files.write("f", "four");
    await (await sandbox.files.download("f")).bytes();
    await sandbox.files.list(".").toArray();
    await client.get("nobody-1").catch(() => undefined);
    const [created] = await (async () => {
      for await (const event of await sandbox.watch({ afterSequence: 0n })) return [event];
    })();
    await sandbox.delete();
    client.close();
    for (let i = 0; i < 600 && !spans.every(({ ended }) => ended); i++)
      await new Promise((resolve) => setTimeout(resolve, 50));
    const { traceparent, tracestate } = created;
    console.log(JSON.stringify({ spans, created: [traceparent, tracestate] }));\n`,
  );
  const printed = run(modules, "node", "traced.mjs", join(api, "index.js"));
  interface Told {
    spans: { tracer: string; name: string; kind: number; status?: number; ended?: true; traceparent: string;
      attributes: Record<string, unknown> }[];
    created: string[];
  }
  const { spans, created } = JSON.parse(printed) as Told;
  const names = spans.map(({ name }) => name);
  assert.deepEqual(names, [
    "hutch.AgentSandboxService/CreateSandbox",
    "hutch.ExecService/RunCommand",
    "hutch.FileService/WriteFile",
    "hutch.FileService/DownloadFile",
    "hutch.FileService/ListFiles",
    "hutch.AgentSandboxService/GetSandbox",
    "hutch.AgentSandboxService/WatchEvents",
    "hutch.AgentSandboxService/DeleteSandbox",
  ]);
  assert.ok(spans.every(({ tracer, kind, ended }) => tracer === "hutch-client" && kind === 2 && ended));
  assert.deepEqual(created, [spans[0]?.traceparent, "vendor=1"]);
  const [create, execute, write, download, list, missing] = spans.map(({ attributes }) => attributes);
  assert.deepEqual([create?.["sandbox.image"], create?.["sandbox.runtime"]], ["host", "native"]);
  assert.equal(typeof create?.["sandbox.request_id"], "string");
  const id = create?.["sandbox.id"];
  assert.deepEqual(
    [execute?.["sandbox.id"], execute?.["sandbox.command.executable"], execute?.["sandbox.exit_code"]],
    [id, "sh", 3],
  );
  assert.match(String(execute?.["sandbox.exec.id"]), /^ex-/);
  assert.ok(!printed.includes("secret"));
  assert.deepEqual([write?.["sandbox.file.path"], write?.["sandbox.file.size"]], ["/workspace/f", 4]);
  assert.equal(download?.["sandbox.file.size"], 4);
  assert.equal(list?.["sandbox.file.count"], 1);
  assert.deepEqual([missing?.["sandbox.id"], spans[5]?.status], ["nobody-1", 2]);
});

void test("the reference is that of the code", () => {
  const made = execFileSync("node", ["tools/reference.mjs", "dist/esm"], { cwd: client, encoding: "utf8" });

  assert.equal(readFileSync(join(SOURCES, "docs/reference.md"), "utf8"), made, "run tools/reference.mjs after a build");
});

void test("the package has the version that it says", () => {
  const manifest = JSON.parse(readFileSync(join(SOURCES, "package.json"), "utf8")) as { version: string };

  assert.equal(VERSION, manifest.version);
});
