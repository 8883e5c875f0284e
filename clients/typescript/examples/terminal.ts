// SPDX-License-Identifier: Apache-2.0

// A shell in a sandbox, in this terminal: what is typed goes in, what it prints comes out.

import { connect } from "hutch";

const { stdin, stdout } = process;
const size = () => ({ rows: stdout.rows ?? 24, columns: stdout.columns ?? 80 });

await using client = await connect();
await using sandbox = await client.create();
await using shell = await sandbox.start(["bash"], { stdin: true, terminal: size() });

stdin.setRawMode?.(true);
stdin.pipe(shell.stdin);
stdout.on("resize", () => void shell.resize(size()));
shell.stdout.pipe(stdout, { end: false });
process.exitCode = (await shell.wait()).result?.exitCode ?? 1;
stdin.setRawMode?.(false);
stdin.unpipe(shell.stdin);
stdin.destroy();
