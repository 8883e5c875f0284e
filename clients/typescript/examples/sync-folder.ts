// SPDX-License-Identifier: Apache-2.0

// Brings a folder into a sandbox as a tar stream, has it changed there, and brings the result back into another.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { ArchiveCompression, connect } from "hutch";

const source = mkdtempSync(join(tmpdir(), "hutch-example-"));
const target = mkdtempSync(join(tmpdir(), "hutch-example-"));
writeFileSync(join(source, "a.txt"), "a\n");
writeFileSync(join(source, "b.log"), "b\n");

await using client = await connect();
await using sandbox = await client.create();

const packing = spawn("tar", ["-C", source, "-c", "."], { stdio: ["ignore", "pipe", "inherit"] });
const { entries } = await sandbox.files.uploadArchive("work", packing.stdout, { createParents: true });
console.log(`${entries} entries went in`);

await sandbox.shell("cd work && tr a-z A-Z < a.txt > c.txt");

const unpacking = spawn("tar", ["-C", target, "-xz"], { stdio: ["pipe", "inherit", "inherit"] });
const ended = once(unpacking, "exit");
const options = { compression: ArchiveCompression.GZIP, exclude: ["*.log"] };
await pipeline(await sandbox.files.downloadArchive("work", options), unpacking.stdin);
await ended;
console.log(readdirSync(target).sort().join(" "));
execFileSync("rm", ["-r", source, target]);
