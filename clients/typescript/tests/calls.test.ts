// SPDX-License-Identifier: Apache-2.0

// What becomes of calls: tries, request ids, deadlines, sizes, streams that break.

import assert from "node:assert/strict";
import test from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, type sendUnaryData, type ServerDuplexStream, type ServerUnaryCall } from "@grpc/grpc-js";
import { BadRequestSchema, ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../src/gen/google/rpc/status_pb.js";
import {
  CancelledError,
  DeadlineExceededError,
  HutchError,
  OutputStream,
  ResourceExhaustedError,
  StreamIncompleteError,
  UnavailableError,
  v1,
} from "../src/index.js";
import { message } from "../src/messages.js";
import { checks } from "./conformance.js";
import { all, isListening } from "./daemon.js";
import { failing, Fake, FakeClock, type Handler } from "./fake.js";

const { createSandbox, getSandbox, deleteSandbox, watchEvents } = v1.AgentSandboxService.method;
const { runCommand, attachExec, readExecOutput } = v1.ExecService.method;
const { ping, getInfo } = v1.SystemService.method;
const { exec: execOnce } = v1.SandboxExecService.method;
const { uploadFile, writeFile, downloadFile } = v1.FileService.method;

type Unary<I> = ServerUnaryCall<I, unknown>;

/** A method with one message each way. */
function unary<I>(handler: (call: Unary<I>, answer: sendUnaryData<unknown>) => void): Handler {
  return handler as Handler;
}

const sandboxAnswer = (id: string) => message(getSandbox.output, { sandbox: { id } as never });

checks(["RETRY-005"], "a call that is tried again keeps its request id, others have their own", async () => {
  const ids: string[] = [];
  await using fake = await Fake.start([
    createSandbox,
    unary<v1.CreateSandboxRequest>(({ request }, answer) => {
      ids.push(request.requestId);
      answer(ids.length < 3 ? (failing("UNAVAILABLE") as never) : null, sandboxAnswer("made-1"));
    }),
  ]);
  await using client = await fake.client({}, new FakeClock());
  await client.create();
  await client.create();
  await client.create({}, { requestId: "my-own" });
  assert.equal(ids.length, 5);
  assert.match(ids[0] ?? "", /^[A-Za-z0-9-]{20,}$/);
  assert.deepEqual([ids[1], ids[2], ids[4]], [ids[0], ids[0], "my-own"]);
  assert.notEqual(ids[3], ids[0]);
});

checks(["RETRY-001", "RETRY-003"], "six tries, with pauses that grow, of what may be repeated", async () => {
  const asked = { get: 0, delete: 0, notFound: 0 };
  const clock = new FakeClock();
  await using fake = await Fake.start(
    [getSandbox, unary((_, answer) => (asked.get++, answer(failing("UNAVAILABLE") as never)))],
    [deleteSandbox, unary((_, answer) => (asked.delete++, answer(failing("UNAVAILABLE") as never)))],
    [createSandbox, unary((_, answer) => (asked.notFound++, answer(failing("NOT_FOUND") as never)))],
  );
  await using client = await fake.client({}, clock);
  await assert.rejects(client.get("some-1"), UnavailableError);
  assert.equal(asked.get, 6);
  assert.deepEqual(clock.pauses, [500, 1000, 2000, 4000]);
  await assert.rejects(client.sandbox("some-1").delete(), UnavailableError);
  await assert.rejects(client.create(), { code: "NOT_FOUND" });
  assert.deepEqual([asked.delete, asked.notFound], [1, 1]);
});

checks(["RETRY-003"], "what was certainly not sent is tried again, whatever it is", async () => {
  let deleted = 0;
  const handlers: [typeof deleteSandbox, Handler][] = [
    [deleteSandbox, unary((_, answer) => (deleted++, answer(null, message(deleteSandbox.output, { sandbox: {} }))))],
  ];
  await using fake = await Fake.start(...handlers);
  fake.kill();
  assert.equal(await isListening(fake.address.slice("unix:".length)), false);
  const clock = new FakeClock();
  await using client = await fake.client({}, clock);
  const beginning = clock.sleep.bind(clock);
  clock.sleep = async (ms) => {
    await beginning(ms);
    if (clock.pauses.length === 2) {
      await fake.begin(handlers);
    }
  };
  await client.sandbox("some-1").delete();
  assert.equal(deleted, 1);
});

void test("a daemon that nobody finds is told so, and where it was looked for", async () => {
  await using fake = await Fake.start();
  fake.kill();
  await using client = await fake.client({}, new FakeClock());
  await assert.rejects(client.ping(), (error: HutchError) => {
    assert.ok(error instanceof UnavailableError);
    assert.equal(error.reason, "DAEMON_UNREACHABLE");
    assert.match(error.message, new RegExp(`${fake.address}.*(ENOENT|ECONNREFUSED)`));
    return true;
  });
});

checks(["RETRY-004", "DEADLINE-002"], "a deadline covers all tries, is sent, and ends them early", async () => {
  const clock = new FakeClock();
  const sent: number[] = [];
  await using fake = await Fake.start([
    getSandbox,
    unary((call, answer) => {
      sent.push(Number(call.getDeadline()) - Date.now());
      answer(failing("UNAVAILABLE") as never);
    }),
  ]);
  await using client = await fake.client({}, clock);
  await assert.rejects(client.get("some-1", { timeout: "7s" }), UnavailableError);
  assert.deepEqual(clock.pauses, [500, 1000, 2000]); // the next, of 4000 ms, would outlast it
  assert.equal(sent.length, 5);
  assert.ok(sent.every((left) => left > 0 && left <= 7000));
});

checks(["DEADLINE-001"], "a unary call has 60 s unless it says otherwise, a stream has none", async () => {
  const left: Record<string, number> = {};
  const note = (name: string, call: { getDeadline(): Date | number }) => {
    left[name] = Number(call.getDeadline()) - Date.now();
  };
  await using fake = await Fake.start(
    [ping, unary((call, answer) => (note("ping", call), answer(null, message(ping.output))))],
    [runCommand, unary((call, answer) => (note("run", call), answer(null, message(runCommand.output))))],
    [
      watchEvents,
      ((call: ServerDuplexStream<unknown, unknown>) => {
        note("watch", call);
        call.write(message(watchEvents.output, { item: { case: "started", value: {} as never } }));
      }) as Handler,
    ],
  );
  await using client = await fake.client();
  await client.ping();
  assert.ok(left["ping"]! > 50_000 && left["ping"]! <= 60_000);
  (await client.watch()).close();
  assert.ok(left["watch"]! > 1e9, `${left["watch"]}`);
  await client.sandbox("some-1").exec(["true"], { timeout: "10m" });
  assert.ok(left["run"]! > 600_000);
  await using quick = await fake.client({ timeout: "5s" });
  await quick.ping();
  assert.ok(left["ping"]! <= 5_000);
});

void test("a call ends when its time is over or its signal is aborted, also while nobody answers", async () => {
  await using fake = await Fake.start([ping, unary(() => undefined)]);
  await using client = await fake.client();
  await assert.rejects(client.ping({ timeout: 50 }), (error: HutchError) => {
    assert.ok(error instanceof DeadlineExceededError);
    return error.reason === "DEADLINE_EXCEEDED";
  });
  const reason = new Error("enough");
  const abort = new AbortController();
  setTimeout(() => abort.abort(reason), 20);
  await assert.rejects(client.ping({ signal: abort.signal }), (error: HutchError) => {
    assert.ok(error instanceof CancelledError);
    assert.equal(error.cause, reason);
    return error.reason === "CALL_CANCELLED";
  });
  await assert.rejects(client.ping({ signal: AbortSignal.abort() }), CancelledError);
  const waiting = assert.rejects(client.ping(), CancelledError);
  setTimeout(() => client.close(), 20);
  await waiting;
  await assert.rejects(client.ping(), CancelledError);
});

void test("errors carry what the daemon says of them; an unknown reason goes by its code", async () => {
  const metadata = new Metadata();
  const info = { reason: "REASON_OF_TOMORROW", domain: "hutch", metadata: { limit: "x" } };
  const bad = { fieldViolations: [{ field: "spec.x", reason: "FIELD_INVALID", description: "no" }] };
  const details = [
    anyPack(ErrorInfoSchema, create(ErrorInfoSchema, info)),
    anyPack(BadRequestSchema, create(BadRequestSchema, bad)),
  ];
  const encoded = toBinary(StatusSchema, create(StatusSchema, { code: 8, message: "no", details }));
  metadata.set("grpc-status-details-bin", Buffer.from(encoded));
  await using fake = await Fake.start([
    ping,
    unary((_, answer) => answer(failing("RESOURCE_EXHAUSTED", metadata) as never)),
  ]);
  await using client = await fake.client();
  await assert.rejects(client.ping(), (error: HutchError) => {
    assert.ok(error instanceof ResourceExhaustedError);
    assert.deepEqual(
      [error.code, error.reason, error.metadata, error.violations],
      ["RESOURCE_EXHAUSTED", info.reason, info.metadata, [{ field: "spec.x", reason: "FIELD_INVALID", message: "no" }]],
    );
    return true;
  });
});

checks(["SIZE-001", "SIZE-003"], "a message that the daemon would find too large is not sent", async () => {
  let limit = 0n;
  let written = 0;
  await using fake = await Fake.start(
    [getInfo, unary((_, answer) => answer(null, message(getInfo.output, { limits: { maxRequestBytes: limit } })))],
    [writeFile, unary((_, answer) => (written++, answer(null, message(writeFile.output, { file: {} }))))],
    [
      runCommand,
      unary((_, answer) => answer(null, message(runCommand.output, { stdout: Buffer.alloc(17 * 1024 * 1024 - 99) }))),
    ],
  );
  await using client = await fake.client();
  const { files } = client.sandbox("some-1");
  limit = 4n << 20n;
  await assert.rejects(files.write("f", Buffer.alloc(4 << 20)), (error: HutchError) => {
    assert.equal(error.reason, "MESSAGE_TOO_LARGE");
    assert.deepEqual(error.metadata, { limit: "max_request_bytes", value: String(4 << 20) });
    return true;
  });
  assert.equal(written, 0);
  limit = 8n << 20n;
  await using other = await fake.client();
  await other.sandbox("some-1").files.write("f", Buffer.alloc(3 << 20));
  assert.equal(written, 1);
  const { collected } = await other.sandbox("some-1").exec(["true"]);
  assert.equal(collected.stdout.bytes.length, 17 * 1024 * 1024 - 99);
});

checks(["SECRET-001"], "the name of a secret goes out as it is, and one that is none does not", async () => {
  const sent: Record<string, string>[] = [];
  await using fake = await Fake.start([
    createSandbox,
    unary<v1.CreateSandboxRequest>(({ request }, answer) => {
      sent.push(request.spec?.env ?? {});
      answer(null, sandboxAnswer("made-1"));
    }),
  ]);
  await using client = await fake.client({ environment: { name: "value" } });
  await client.create({ env: { A: "secret://name" } });
  assert.deepEqual(sent, [{ A: "secret://name" }]);
  for (const name of ["", "../x", "/etc/passwd", "Name", "a_b", "$HOME"]) {
    await assert.rejects(client.create({ env: { A: `secret://${name}` } }), { reason: "NAME_MALFORMED" });
  }
  assert.equal(sent.length, 1);
});

const chunk = (offset: number, data: string) => ({
  case: "output" as const,
  value: message(v1.OutputChunkSchema, { stream: OutputStream.STDOUT, offset, data: Buffer.from(data) }),
});

/** A stream that sends these and then ends, or is cut. */
function sending(steps: object[], end: "end" | "fail" = "end"): Handler {
  return ((call: ServerDuplexStream<unknown, unknown>) => {
    steps.forEach((item) => call.write({ item } as never));
    if (end === "end") {
      call.end();
    } else {
      call.emit("error", failing("UNAVAILABLE"));
    }
  }) as Handler;
}

checks(["EXEC-013", "REMOTE-002"], "a stream that ends without an exit is an error, never success", async () => {
  let calls = 0;
  const started = { case: "started", value: message(v1.ExecStartedSchema, { sandboxId: "made-1" }) };
  const exit = { case: "exit", value: message(v1.ExecExitSchema, { exitCode: 3 }) };
  let steps: object[] = [started, chunk(0, "a")];
  const attached = { case: "attached", value: message(v1.ExecSchema, { id: "exec-1", sandboxId: "some-1" }) };
  await using fake = await Fake.start(
    [execOnce, ((call: never) => (calls++, (sending(steps) as (call: never) => void)(call))) as Handler],
    [attachExec, sending([attached, chunk(0, "a")])],
    [readExecOutput, sending([chunk(0, "a")])],
  );
  await using client = await fake.client();
  await assert.rejects(async () => (await client.execOnce(["true"])).result(), StreamIncompleteError);
  const sandbox = client.sandbox("some-1");
  await assert.rejects(async () => (await sandbox.start(["true"])).result(), { reason: "STREAM_INCOMPLETE" });
  await assert.rejects(sandbox.execById("exec-1").wait(), { reason: "STREAM_INCOMPLETE" });

  // What comes after the exit is not read.
  steps = [started, chunk(0, "a"), exit, chunk(1, "b")];
  const result = await (await client.execOnce(["true"])).result();
  assert.deepEqual([result.stdout, result.exitCode], ["a", 3]);

  calls = 0;
  await assert.rejects(client.execOnce([]), { reason: "ARGV_EMPTY" });
  await assert.rejects(client.execOnce([""]), { reason: "ARGV_EMPTY" });
  await assert.rejects(client.run([]), { reason: "ARGV_EMPTY" });
  assert.equal(calls, 0);
});

checks(["REMOTE-003"], "closing a client while its streams are read is safe", async () => {
  const started = { case: "started", value: message(v1.ExecStartedSchema, { sandboxId: "made-1" }) };
  const endless = ((call: ServerDuplexStream<unknown, unknown>) => {
    call.write({ item: started } as never);
    const timer = setInterval(() => call.write({ item: chunk(0, "x".repeat(1000)) } as never), 1);
    call.on("cancelled", () => clearInterval(timer));
  }) as Handler;
  await using fake = await Fake.start([execOnce, endless]);
  for (let round = 0; round < 10; round++) {
    const client = await fake.client();
    const reading = Array.from({ length: 4 }, async () => (await client.execOnce(["yes"])).wait());
    setTimeout(() => client.close(), round * 2);
    for (const result of await Promise.allSettled(reading)) {
      assert.equal(result.status, "rejected");
      assert.ok(result.reason instanceof CancelledError, String(result.reason));
    }
  }
});

checks(["RETRY-006"], "output is read on from where it had come to, and a stream is not begun anew", async () => {
  const asked: bigint[] = [];
  const ended = { case: "exec", value: message(v1.ExecSchema, { id: "exec-1", sandboxId: "some-1" }) };
  let attaches = 0;
  await using fake = await Fake.start(
    [
      readExecOutput,
      ((call: ServerDuplexStream<unknown, unknown> & { request: v1.ReadExecOutputRequest }) => {
        asked.push(call.request.stdoutOffset);
        const from = Number(call.request.stdoutOffset);
        const handler = sending([chunk(from, "abc"), ...(from === 6 ? [ended] : [])], from === 6 ? "end" : "fail");
        (handler as (call: unknown) => void)(call);
      }) as Handler,
    ],
    [
      attachExec,
      ((call: never) => {
        attaches++;
        const attached = { case: "attached", value: message(v1.ExecSchema, { id: "exec-1" }) };
        (sending([attached, chunk(0, "abc")], "fail") as (call: never) => void)(call);
      }) as Handler,
    ],
  );
  await using client = await fake.client({}, new FakeClock());
  const { stdout } = await client.sandbox("some-1").execById("exec-1").output({ follow: true }).collect();
  assert.equal(stdout.text, "abcabcabc");
  assert.deepEqual(asked, [0n, 3n, 6n]);
  await assert.rejects(async () => (await client.sandbox("some-1").attach("exec-1")).wait(), UnavailableError);
  assert.equal(attaches, 1);
});

void test("a download goes on with the same version, and an upload is not sent twice", async () => {
  const asked: [bigint, string, bigint | undefined][] = [];
  let uploads = 0;
  await using fake = await Fake.start(
    [
      downloadFile,
      ((call: ServerDuplexStream<unknown, unknown> & { request: v1.DownloadFileRequest }) => {
        const { offset, expectedVersion, length } = call.request;
        asked.push([offset, expectedVersion, length]);
        const file = { case: "file", value: message(v1.FileInfoSchema, { version: "v1", sizeBytes: 6 }) };
        const data = { case: "data", value: Buffer.from("abc") };
        (sending([file, data], offset === 0n ? "fail" : "end") as (call: unknown) => void)(call);
      }) as Handler,
    ],
    [
      uploadFile,
      ((call: NodeJS.ReadableStream, answer: sendUnaryData<unknown>) => {
        call.once("data", () => (uploads++, answer(failing("UNAVAILABLE") as never)));
      }) as Handler,
    ],
  );
  await using client = await fake.client({}, new FakeClock());
  const { files } = client.sandbox("some-1");
  const download = await files.download("f", { length: 6 });
  assert.equal(await download.text(), "abcabc");
  assert.deepEqual(asked, [
    [0n, "", 6n],
    [3n, "v1", 3n],
  ]);
  await assert.rejects(files.upload("f", Buffer.alloc(10)), UnavailableError);
  assert.equal(uploads, 1);
});

void test("a client that cannot reach its daemon takes nothing of a stream that it should send", async () => {
  const got: string[] = [];
  const handlers: [typeof uploadFile, Handler][] = [
    [
      uploadFile,
      ((call: NodeJS.ReadableStream, answer: sendUnaryData<unknown>) => {
        call.on("data", ({ item }: v1.UploadFileRequest) => {
          if (item.case === "data") {
            got.push(Buffer.from(item.value).toString());
          }
        });
        call.on("end", () => answer(null, message(uploadFile.output, { file: {} })));
      }) as Handler,
    ],
  ];
  await using fake = await Fake.start();
  fake.kill();
  const clock = new FakeClock();
  const beginning = clock.sleep.bind(clock);
  clock.sleep = async (ms) => (await beginning(ms), fake.begin(handlers));
  await using client = await fake.client({}, clock);
  const parts = (async function* () {
    yield Buffer.from("1");
    yield Buffer.from("2");
  })();
  await client.sandbox("some-1").files.upload("f", parts);
  assert.equal(got.join(""), "12");
});

void test("what came of a one-shot is told, also where its sandbox cannot be deleted", async () => {
  let fails = false;
  await using fake = await Fake.start(
    [createSandbox, unary((_, answer) => answer(null, sandboxAnswer("made-1")))],
    [deleteSandbox, unary((_, answer) => answer(failing("INTERNAL") as never))],
    [
      runCommand,
      unary((_, answer) => {
        const output = message(runCommand.output, { stdout: Buffer.from("x") });
        answer(fails ? (failing("NOT_FOUND") as never) : null, output);
      }),
    ],
  );
  await using client = await fake.client();
  assert.equal((await client.run(["true"])).stdout, "x");
  fails = true;
  await assert.rejects(client.run(["true"]), { code: "NOT_FOUND" });
});

void test("lists of several pages are read to their end", async () => {
  const { listSandboxes } = v1.AgentSandboxService.method;
  await using fake = await Fake.start([
    listSandboxes,
    unary<v1.ListSandboxesRequest>(({ request: { pageToken } }, answer) => {
      const page = Number(pageToken || 0);
      const sandboxes = [{ id: `box-${page}` }] as never;
      answer(null, message(listSandboxes.output, { sandboxes, nextPageToken: page < 2 ? String(page + 1) : "" }));
    }),
  ]);
  await using client = await fake.client();
  assert.deepEqual((await all(client.list())).map(({ id }) => id), ["box-0", "box-1", "box-2"]);
});
