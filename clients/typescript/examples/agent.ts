// SPDX-License-Identifier: Apache-2.0

// What an agent does over and over: write code, run it, look at what it says, and try again, all in one sandbox that
// keeps its files between the steps and can reach nothing.

import { connect } from "hutch";

// These would come from a model.
const attempts = [
  "import json\nprint(json.load(open('input.json'))['total'])",
  "import json\nprint(sum(json.load(open('input.json'))['items']))",
];

await using client = await connect();
await using sandbox = await client.create({ labels: { example: "agent" } });

await sandbox.files.write("input.json", JSON.stringify({ items: [1, 2, 39] }));
for (const code of attempts) {
  await sandbox.files.write("attempt.py", code, { overwrite: true });
  const result = await sandbox.exec(["python3", "attempt.py"], { timeout: "10s" });
  if (result.ok) {
    console.log(`it says ${result.stdout.trim()}`);
    break;
  }
  console.log(`it failed: ${result.stderr.trim().split("\n").pop()}`);
}
