// SPDX-License-Identifier: Apache-2.0

// Runs a command in a sandbox of its own, and prints what came of it: node hello.js uname -a

import { connect } from "hutch";

const argv = process.argv.length > 2 ? process.argv.slice(2) : ["echo", "hello from a sandbox"];

await using client = await connect();
const { stdout, stderr, exitCode } = await client.run(argv, { timeout: "1m" });

process.stdout.write(stdout);
process.stderr.write(stderr);
process.exitCode = exitCode ?? 1;
