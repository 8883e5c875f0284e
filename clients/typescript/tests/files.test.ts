// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import test, { after, before } from "node:test";
import {
  AlreadyExistsError,
  ArchiveCompression,
  FileChangeType,
  FileType,
  HutchError,
  LARGEST,
  NotFoundError,
  type Client,
  type Files,
  type Sandbox,
} from "../src/index.js";
import { Daemon } from "./daemon.js";

let daemon: Daemon;
let client: Client;
let sandbox: Sandbox;
let files: Files;

before(async () => {
  daemon = await Daemon.start();
  client = await daemon.client();
  sandbox = await client.create();
  files = sandbox.files;
});
after(() => daemon[Symbol.asyncDispose]());

void test("small files are written and read, whole and in part", async () => {
  const file = await files.write("notes/a.txt", "grüß", { createParents: true, mode: 0o600 });
  assert.deepEqual([file.path, file.mode, file.sizeBytes], ["/workspace/notes/a.txt", 0o600, 6n]);
  assert.equal(await files.readText("notes/a.txt"), "grüß");
  assert.equal(Buffer.from(await files.read("notes/a.txt", { offset: 1, length: 1 })).toString(), "r");
  await assert.rejects(files.write("notes/a.txt", "x"), AlreadyExistsError);
  await assert.rejects(files.write("notes/a.txt", "x", { overwrite: true, expectedVersion: "other" }), {
    reason: "FILE_CHANGED",
  });
  await files.write("notes/a.txt", Buffer.alloc(0), { overwrite: true, expectedVersion: file.version });
  assert.equal((await files.read("notes/a.txt")).length, 0);
  await assert.rejects(files.read("nothing"), NotFoundError);
});

void test("large files go up from streams and come down as streams", async () => {
  const bytes = Buffer.alloc(9_000_001, "0123456789abcdef");
  const parts = [bytes.subarray(0, 3), bytes.subarray(3, 5_000_000), bytes.subarray(5_000_000)];
  const { file, sha256 } = await files.upload("big", Readable.from(parts), { sizeBytes: bytes.length });
  assert.equal(file?.sizeBytes, BigInt(bytes.length));
  assert.deepEqual(Buffer.from(sha256), createHash("sha256").update(bytes).digest());

  const download = await files.download("big", { maxSizeBytes: LARGEST });
  assert.equal(download.file.sizeBytes, BigInt(bytes.length));
  const hash = createHash("sha256");
  await pipeline(download, hash);
  assert.deepEqual(hash.digest(), Buffer.from(sha256));

  const part = await files.download("big", { offset: 16, length: 4 });
  assert.equal(await part.text(), "0123");
  const left = await files.download("big");
  left.destroy();
  await assert.rejects(files.upload("big", bytes), AlreadyExistsError);
  await assert.rejects(files.upload("big2", "abc", { sizeBytes: 4 }), { reason: "SIZE_MISMATCH" });
  await assert.rejects(files.download("big", { offset: bytes.length + 1 }), { reason: "OFFSET_OUT_OF_RANGE" });
});

void test("folders go as archives", async () => {
  await sandbox.shell("mkdir -p tree/sub; echo a > tree/a; echo b > tree/sub/b.log; ln -s a tree/link");
  const archive = await files.downloadArchive("tree", { compression: ArchiveCompression.GZIP, exclude: ["*.log"] });
  const { entries } = await files.uploadArchive("copy", archive, { createParents: true });
  assert.equal(entries > 0n, true);
  const names = (await files.list("copy", { depth: 9 }).toArray()).map(({ path }) => path);
  assert.deepEqual(names, ["/workspace/copy/a", "/workspace/copy/link", "/workspace/copy/sub"]);
  await assert.rejects(files.downloadArchive("nowhere"), NotFoundError);
});

void test("files are looked at, listed, moved and removed", async () => {
  await files.makeDirectory("dir/deep", { createParents: true });
  await files.write("dir/one", "1");
  await sandbox.exec(["ln", "-s", "one", "dir/link"]);
  assert.equal((await files.stat("dir/link")).type, FileType.SYMLINK);
  assert.equal((await files.stat("dir/link", { followSymlink: true })).type, FileType.REGULAR);
  const listing = files.list("dir", { glob: "*e*" });
  assert.deepEqual((await listing.toArray()).map(({ name }) => name), ["deep", "one"]);
  assert.equal(listing.changed, false);
  assert.equal((await files.move("dir/one", "dir/two")).path, "/workspace/dir/two");
  await assert.rejects(files.remove("dir"), { reason: "DIRECTORY_NOT_EMPTY" });
  assert.equal(await files.remove("dir", { recursive: true }), 4);
  assert.equal(await files.remove("dir", { ignoreMissing: true }), 0);
  const changed = await files.changes("/workspace").toArray();
  assert.ok(changed.length > 0);
});

void test("changes are told as they happen", async () => {
  await files.makeDirectory("watched");
  await using watch = await files.watch("watched", { recursive: true });
  await files.write("watched/new", "x");
  const seen: string[] = [];
  for await (const item of watch) {
    if (item.kind === "change") {
      seen.push(`${FileChangeType[item.change.type]} ${item.change.path}`);
    }
    if (seen.some((line) => line.endsWith("/watched/new"))) {
      break;
    }
  }
  assert.ok(seen.length > 0);
});

void test("paths that break the rules are refused before a call", async () => {
  const refused: [string, string][] = [
    ["", "PATH_EMPTY"],
    ["../x", "PATH_DOTDOT"],
    ["~/x", "PATH_TILDE"],
    ["a\nb", "PATH_CONTROL_CHARACTER"],
    ["x".repeat(256), "PATH_COMPONENT_TOO_LONG"],
    ["\ud800", "PATH_NOT_UTF8"],
  ];
  const closed = await daemon.client();
  closed.close(); // what is sent would fail otherwise
  for (const [path, reason] of refused) {
    for (const call of [
      () => closed.sandbox("some-1").files.read(path),
      () => closed.sandbox("some-1").files.download(path),
      () => closed.sandbox("some-1").files.upload(path, "x"),
      () => closed.sandbox("some-1").files.remove(path, { recursive: true }),
      () => closed.sandbox("some-1").files.move("x", path),
      () => closed.sandbox("some-1").files.watch(path),
    ]) {
      await assert.rejects(call, (error: HutchError) => error.reason === reason && error.violations.length === 1);
    }
  }
});
