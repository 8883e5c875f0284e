// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import {
  CancelledError,
  DeadlineExceededError,
  ExecState,
  OutputStream,
  SandboxState,
  type Client,
  type Sandbox,
} from "../src/index.js";
import { checks } from "./conformance.js";
import { all, Daemon } from "./daemon.js";

let daemon: Daemon;
let client: Client;
let sandbox: Sandbox;

before(async () => {
  daemon = await Daemon.start();
  client = await daemon.client();
  sandbox = await client.create();
});
after(() => daemon[Symbol.asyncDispose]());

checks(["EXEC-003"], "an exit code is a result, whatever it is", async () => {
  const result = await sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 3"]);
  assert.deepEqual([result.exitCode, result.ok, result.stdout, result.stderr], [3, false, "out\n", "err\n"]);
  assert.equal(result.output, "out\nerr\n");
  assert.equal((await sandbox.exec(["true"])).ok, true);
  const killed = await sandbox.shell("kill -KILL $$");
  assert.deepEqual([killed.exitCode, killed.result?.signal], [137, 9]);
  assert.equal((await sandbox.exec(["no-such-program"])).exitCode, 127);
  assert.equal((await sandbox.exec(["/etc/passwd"])).exitCode, 126);
});

checks(["EXEC-014", "DEADLINE-004"], "a timeout kills the command, and is told as exit code 124", async () => {
  const result = await sandbox.exec(["sleep", "100"], { timeout: 100, killGrace: 0 });
  assert.deepEqual([result.exitCode, result.timedOut, result.exec?.state], [124, true, ExecState.TIMED_OUT]);
  assert.equal(result.exec?.spec?.timeout?.nanos, 100_000_000);
  const detached = await sandbox.createExec(["sleep", "100"], { timeout: "100ms", killGrace: 0 });
  assert.equal((await detached.wait()).state, ExecState.TIMED_OUT);
});

void test("environment, working directory, user and input are the command's", async () => {
  const options = { env: { A: "ü" }, unsetEnv: ["LANG"], workingDirectory: "/tmp", user: "0", input: "line\n" };
  const { stdout } = await sandbox.shell('read x; echo "$A,$LANG,$(pwd),$(id -u),$x"', options);
  assert.equal(stdout, "ü,,/tmp,0,line\n");
});

checks(["SIZE-001"], "output beyond a limit is its head and tail, and what is missing is told", async () => {
  const result = await sandbox.exec(["seq", "3000000"], { outputLimitBytes: 1 << 20 });
  const { stdout } = result.collected;
  assert.equal(result.truncated, true);
  assert.equal(stdout.bytes.length + stdout.droppedBytes, stdout.totalBytes);
  assert.match(stdout.text, /^1\n2\n/);
  assert.match(stdout.text, /\n3000000\n$/);
  const tail = stdout.read(stdout.headBytes);
  assert.equal(tail.offset, stdout.headBytes + stdout.droppedBytes);
});

void test("aborting a command that is waited for kills it", async () => {
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 200);
  await assert.rejects(sandbox.exec(["sleep", "77"], { signal: abort.signal }), CancelledError);
  await assert.rejects(sandbox.exec(["sleep", "77"], { callTimeout: "200ms" }), DeadlineExceededError);
  for await (const exec of sandbox.execs()) {
    if (exec.data.spec?.argv[1] === "77") {
      assert.equal((await exec.wait()).state, ExecState.CANCELLED);
    }
  }
});

void test("a command is fed and read as it runs", async () => {
  await using stream = await sandbox.start(["sh", "-c", "while read line; do echo got $line; done; exit 5"], {
    stdin: true,
  });
  const lines = stream[Symbol.asyncIterator]();
  const next = async () => Buffer.from((await lines.next()).value?.data ?? []).toString();
  stream.stdin.write("one\n");
  assert.equal(await next(), "got one\n");
  stream.stdin.write("two\n");
  assert.equal(await next(), "got two\n");
  stream.stdin.end();
  assert.equal((await lines.next()).done, true);
  assert.equal((await stream.wait()).result?.exitCode, 5);
  assert.equal(stream.data.state, ExecState.EXITED);
});

void test("output comes as Node's streams, and input of 4 MiB goes through", async () => {
  const stream = await sandbox.start(["sh", "-c", "cat; echo done >&2"], { stdin: true });
  const bytes = Buffer.alloc(4 << 20, "abcdefgh");
  const { stdout, stderr } = stream;
  stream.stdin.end(bytes);
  const [out, err] = await Promise.all([stdout.toArray(), stderr.toArray()]);
  assert.ok(Buffer.concat(out).equals(bytes));
  assert.equal(Buffer.concat(err).toString(), "done\n");
  assert.equal((await stream.wait()).result?.exitCode, 0);
  assert.throws(() => stream[Symbol.asyncIterator](), /taken already/);
});

void test("a terminal has a size, and a signal arrives", async () => {
  const script = "stty size; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done";
  const stream = await sandbox.start(["sh", "-c", script], { terminal: { rows: 10, columns: 20 } });
  let text = "";
  for await (const { data } of stream) {
    text += Buffer.from(data).toString();
    if (text.endsWith("ready\r\n")) {
      await stream.resize({ rows: 30, columns: 40 });
    }
  }
  assert.equal(text, "10 20\r\nready\r\n30 40\r\n");
  assert.equal(stream.data.result?.exitCode, 4);

  const signalled = await sandbox.start(["sh", "-c", "trap 'exit 7' USR1; echo up; while :; do sleep 0.05; done"]);
  for await (const _ of signalled) {
    await signalled.signal("SIGUSR1");
  }
  assert.equal((await signalled.wait()).result?.exitCode, 7);
});

void test("a command outlives its stream when it is detached, and can be attached again", async () => {
  const stream = await sandbox.start(["sh", "-c", "echo before; read x; echo after $x"], { stdin: true });
  const chunks = stream[Symbol.asyncIterator]();
  const first = (await chunks.next()).value;
  assert.equal(Buffer.from(first?.data ?? []).toString(), "before\n");
  stream.detach();
  const again = await sandbox.attach(stream.id, { stdoutOffset: 7 });
  again.stdin.end("x\n");
  assert.equal((await again.result()).stdout, "after x\n");
  const { stdout } = await (await sandbox.getExec(stream.id)).output().collect();
  assert.equal(stdout.text, "before\nafter x\n");
  const tail = await sandbox.execById(stream.id).output({ tailLines: 1, streams: [OutputStream.STDOUT] }).collect();
  assert.equal(tail.end.state, ExecState.EXITED);
});

void test("a command that was started ends with its block, its signal, or its stream when it is bound", async () => {
  const ids: string[] = [];
  {
    await using stream = await sandbox.start(["sleep", "100"], { killGrace: 0 });
    ids.push(stream.id);
  }
  const abort = new AbortController();
  const aborted = await sandbox.start(["sleep", "100"], { signal: abort.signal, killGrace: 0 });
  ids.push(aborted.id);
  abort.abort();
  await assert.rejects(aborted.wait(), CancelledError);
  const bound = await sandbox.start(["sleep", "100"], { bound: true, killGrace: 0 });
  ids.push(bound.id);
  bound.detach();
  for (const id of ids) {
    assert.equal((await sandbox.execById(id).wait()).state, ExecState.CANCELLED);
  }
});

void test("commands are listed, and cancelled", async () => {
  await using own = await client.create();
  const exec = await own.createExec(["sleep", "100"], { execId: "long-1", killGrace: 0 });
  assert.equal(exec.id, "long-1");
  assert.deepEqual((await all(own.execs())).map(({ id }) => id), ["long-1"]);
  await exec.cancel({ grace: 0 });
  assert.equal((await exec.wait()).state, ExecState.CANCELLED);
  assert.deepEqual(await all(own.execs({ states: [ExecState.RUNNING] })), []);
});

void test("one-shots leave nothing behind, whatever happens", async () => {
  const labels = { purpose: "once" };
  const spec = { labels };
  assert.equal((await client.runPython("print(6 * 7)", { spec })).stdout, "42\n");
  assert.equal((await client.runShell("exit 9", { spec })).exitCode, 9);
  assert.equal((await client.run(["cat"], { spec, input: "in" })).stdout, "in");
  await assert.rejects(client.run(["sleep", "100"], { spec, callTimeout: 100 }), DeadlineExceededError);
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 100);
  await assert.rejects(client.run(["sleep", "100"], { spec, signal: abort.signal }), CancelledError);
  for await (const left of client.list({ selector: "purpose=once" })) {
    assert.equal((await left.wait(SandboxState.DELETED)).state, SandboxState.DELETED);
  }
});

void test("a one-shot of the daemon's streams its output, and is gone when it is left", async () => {
  const shot = await client.execOnce(["sh", "-c", "echo out; echo err >&2; exit 6"], { env: { A: "b" } });
  assert.equal(shot.started.effective?.profile, "standard");
  const result = await shot.result();
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [6, "out\n", "err\n"]);
  let id = "";
  {
    await using left = await client.execOnce(["sleep", "100"]);
    id = left.started.sandboxId;
  }
  assert.equal((await client.sandbox(id).wait(SandboxState.DELETED)).state, SandboxState.DELETED);
});
