// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import {
  AlreadyExistsError,
  EventType,
  FailedPreconditionError,
  HutchError,
  InvalidArgumentError,
  NotFoundError,
  SandboxState,
  UnimplementedError,
  v1,
  type Client,
} from "../src/index.js";
import { checks } from "./conformance.js";
import { all, Daemon } from "./daemon.js";

let daemon: Daemon;
let client: Client;

before(async () => {
  daemon = await Daemon.start();
  client = await daemon.client();
});
after(() => daemon[Symbol.asyncDispose]());

void test("a sandbox is created, found, listed, changed and deleted", async () => {
  const sandbox = await client.create({ labels: { app: "web" }, idleTtl: "1h30m" }, { id: "life-1" });
  assert.equal(sandbox.id, "life-1");
  assert.equal(sandbox.data.spec?.idleTtl?.seconds, 5400n);
  assert.equal((await client.get("life-1")).data.owner, "uid:0");
  assert.deepEqual((await all(client.list({ selector: "app=web" }))).map(({ id }) => id), ["life-1"]);

  await sandbox.update({ labels: { app: "db" }, idleTtl: 60_000 });
  assert.deepEqual(sandbox.data.spec?.labels, { app: "db" });
  assert.equal(sandbox.data.spec?.idleTtl?.seconds, 60n);

  assert.deepEqual(await client.deleteMany("app=db"), ["life-1"]);
  await sandbox.wait(SandboxState.DELETED);
  assert.deepEqual(await all(client.list()), []);
});

void test("a sandbox is stopped, resumed, paused and unpaused", async () => {
  await using sandbox = await client.create();
  await sandbox.wait();
  assert.equal((await sandbox.pause()).id, sandbox.id);
  await sandbox.wait(SandboxState.PAUSED);
  await sandbox.unpause();
  await sandbox.wait();
  await sandbox.stop({ grace: "1s" });
  await sandbox.wait(SandboxState.STOPPED);
  await sandbox.resume();
  assert.equal((await sandbox.wait([SandboxState.READY])).state, SandboxState.READY);
});

void test("a sandbox of a block is deleted at its end, one that was only found is not", async () => {
  let id = "";
  {
    await using sandbox = await client.create();
    id = sandbox.id;
    {
      await using found = await client.get(id);
      assert.equal(found.id, id);
    }
    assert.equal((await sandbox.refresh()).state <= SandboxState.READY, true);
  }
  assert.equal((await client.sandbox(id).wait(SandboxState.DELETED)).state, SandboxState.DELETED);
});

checks(["LIFE-013"], "waiting needs no polling, and does not wait for what cannot come", async () => {
  await using sandbox = await client.create();
  const stopped = sandbox.wait(SandboxState.STOPPED);
  await sandbox.wait();
  await sandbox.stop({ grace: 0 });
  assert.equal((await stopped).state, SandboxState.STOPPED);
  await assert.rejects(sandbox.wait(SandboxState.READY), (error: HutchError) => {
    assert.ok(error instanceof FailedPreconditionError);
    assert.equal(error.reason, "SANDBOX_WRONG_STATE");
    assert.deepEqual(error.metadata, { state: "STOPPED" });
    return true;
  });
});

void test("errors of the daemon are typed, and carry reason, metadata and violations", async () => {
  await assert.rejects(client.get("nobody-1"), (error: HutchError) => {
    assert.ok(error instanceof NotFoundError);
    assert.equal(error.code, "NOT_FOUND");
    assert.equal(error.reason, "SANDBOX_NOT_FOUND");
    return true;
  });
  await using _ = await client.create({}, { id: "taken-1" });
  await assert.rejects(client.create({}, { id: "taken-1" }), AlreadyExistsError);
  await assert.rejects(client.create({ profile: "nowhere", runtime: "nothing" }), (error: HutchError) => {
    assert.ok(error instanceof InvalidArgumentError);
    assert.deepEqual(
      error.violations.map(({ field, reason }) => [field, reason]).sort(),
      [["spec.profile", "PROFILE_UNKNOWN"], ["spec.runtime", "RUNTIME_UNKNOWN"]],
    );
    return true;
  });
});

void test("what breaks a rule is refused before anything is sent, all violations at once", async () => {
  const spec = { labels: { "a b": "x" }, env: { "A=B": "x" }, workingDirectory: "relative", idleTtl: "5 minutes" };
  await assert.rejects(client.create({ ...spec, idleTtl: 0 }, { id: "x" }), (error: HutchError) => {
    assert.deepEqual(
      error.violations.map(({ field, reason }) => [field, reason]),
      [
        ["sandbox_id", "ID_MALFORMED"],
        ["spec.env[A=B]", "ENV_NAME_MALFORMED"],
        ["spec.labels[a b]", "LABEL_MALFORMED"],
        ["spec.working_directory", "PATH_NOT_ABSOLUTE"],
      ],
    );
    return error.reason === "ID_MALFORMED";
  });
  await assert.rejects(client.create(spec), { reason: "DURATION_MALFORMED" });
  await assert.rejects(client.deleteMany(" "), { reason: "SELECTOR_EMPTY" });
  await assert.rejects(client.get(""), { reason: "FIELD_REQUIRED" });
});

void test("methods that the daemon does not serve are typed errors", async () => {
  await using sandbox = await client.create();
  await assert.rejects(sandbox.snapshot(), UnimplementedError);
  await assert.rejects(all(client.snapshots.list()), UnimplementedError);
  await assert.rejects(client.snapshots.delete("none"), UnimplementedError);
  await assert.rejects(all(client.images.list()), UnimplementedError);
  await assert.rejects(client.images.import("name", "bytes"), UnimplementedError);
  await assert.rejects(all(client.images.pull("registry/name:tag")), UnimplementedError);
  await assert.rejects(client.images.remove("name"), UnimplementedError);
});

void test("the stubs of the contract can be reached", async () => {
  const info = await client.service(v1.SystemService).getInfo({});
  assert.equal(info.version, (await client.info()).version);
  const { policy } = v1.GetPolicyResponseSchema.field;
  assert.ok(policy);
  await assert.rejects(client.service(v1.PolicyService).getPolicy({ sandboxId: "any-1" }), UnimplementedError);
});

void test("events come in order, after a snapshot, and until the watch is left", async () => {
  await using sandbox = await client.create({ labels: { watched: "yes" } });
  await sandbox.wait();
  await using watch = await client.watch({ selector: "watched=yes", snapshot: true });
  await sandbox.update({ labels: { watched: "yes", more: "1" } });
  const kinds: string[] = [];
  for await (const item of watch) {
    kinds.push(item.$typeName === "hutch.v1.Event" ? EventType[item.type] : item.id);
    if (kinds.length === 2) {
      break;
    }
  }
  assert.deepEqual(kinds, [sandbox.id, "SANDBOX_UPDATED"]);
});

checks(["EVENT-003"], "a watch goes on from its cursor when the daemon is restarted", async () => {
  await using own = await Daemon.start();
  const other = await own.client();
  const sandbox = await other.create();
  await sandbox.wait();
  const watch = await other.watch({ sandboxIds: [sandbox.id], afterCursor: 0n });
  const seen: bigint[] = [];
  const reading = (async () => {
    for await (const event of watch) {
      seen.push(event.sequence);
      if (event.change.case === "sandboxState" && event.change.value.toState === SandboxState.STOPPED) {
        break;
      }
    }
  })();
  for (let round = 0; round < 3; round++) {
    await sandbox.update({ labels: { round: String(round) } });
    await own.end(round === 1 ? "SIGKILL" : "SIGTERM");
    await own.begin();
  }
  await sandbox.stop({ grace: 0 });
  await reading;
  assert.deepEqual(seen, Array.from(seen, (_, i) => BigInt(i + 1)));
  const again = await other.watch({ sandboxIds: [sandbox.id], afterCursor: watch.cursor });
  await sandbox.delete();
  for await (const event of again) {
    assert.equal(event.sequence, BigInt(seen.length + 1));
    break;
  }
});
