// SPDX-License-Identifier: Apache-2.0

// A daemon of the test's own, and what tests find there. Needs root, as sandboxes do.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect as connectSocket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, SandboxState, type Client, type ConnectOptions } from "../src/index.js";
import { ROOT } from "./conformance.js";

const LIMIT_MS = 90_000;
const ORDINARY_USER = 55_400 + (process.pid % 1000); // nobody's, and not that of a test that runs at the same time

/** Where what was built is. */
export const BUILD = process.env["HUTCH_BUILD"] ?? join(ROOT, "build/gcc");

export class Daemon implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "hutch-ts-"));
  readonly socket = join(this.folder, "hutchd.sock");
  readonly address = `unix:${this.socket}`;
  private process: ChildProcess | undefined;
  private user: { uid: number; gid: number } | undefined; // undefined: root
  private readonly clients: Client[] = [];

  static async start(config: object = {}): Promise<Daemon> {
    const daemon = new Daemon();

    writeFileSync(join(daemon.folder, "config.yaml"), JSON.stringify(config)); // JSON is YAML
    await daemon.begin();
    return daemon;
  }

  /** The daemon of an ordinary user, who has no cgroup: it enforces no limit of memory and CPU. */
  static async startOrdinary(): Promise<Daemon> {
    const daemon = new Daemon();

    daemon.user = { uid: ORDINARY_USER, gid: ORDINARY_USER };
    writeFileSync(join(daemon.folder, "config.yaml"), "{}");
    chmodSync(daemon.folder, 0o755);
    chownSync(daemon.folder, ORDINARY_USER, ORDINARY_USER);
    await daemon.begin();
    return daemon;
  }

  async begin(): Promise<void> {
    const log = openSync(this.logFile, "a");
    const paths = ["--socket", this.socket, "--state", join(this.folder, "state"), "--config"];
    this.process = spawn(join(BUILD, "hutchd"), [...paths, join(this.folder, "config.yaml")], {
      stdio: ["ignore", log, log],
      ...this.user,
    });
    closeSync(log);
    const end = Date.now() + LIMIT_MS;
    while (!(await isListening(this.socket))) {
      if (this.process.exitCode !== null || Date.now() > end) {
        throw new Error(`hutchd does not listen: ${readFileSync(this.logFile, "utf8")}`);
      }
      await sleep(20);
    }
  }

  /** Ends it; sandboxes go on. */
  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const { process } = this;

    this.process = undefined;
    if (process && process.exitCode === null) {
      const exited = once(process, "exit");
      process.kill(signal);
      await exited;
    }
  }

  async client(options: ConnectOptions = {}): Promise<Client> {
    const client = await connect({ address: this.address, ...options });

    this.clients.push(client);
    return client;
  }

  /** Deletes all sandboxes, and ends it. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (!this.process) {
        await this.begin();
      }
      await using client = await connect({ address: this.address });
      for await (const sandbox of client.list({ allOwners: true })) {
        await sandbox.delete();
        await sandbox.wait(SandboxState.DELETED);
      }
      this.clients.forEach((one) => one.close());
    } finally {
      await this.end();
      rmSync(this.folder, { recursive: true, force: true });
    }
  }

  /** Where it serves over TCP, when it was told to choose. */
  tcpPort(): number {
    const ports = readFileSync(this.logFile, "utf8").matchAll(/msg="serving over TCP".* port=(\d+)/g);

    return Number(Array.from(ports, (port) => port[1]).pop());
  }

  private get logFile(): string {
    return join(this.folder, "log");
  }
}

export async function isListening(socket: string): Promise<boolean> {
  const probe = connectSocket(socket);

  return new Promise((resolve) => {
    probe.once("connect", () => resolve(true)).once("error", () => resolve(false));
  }).then((found) => {
    probe.destroy();
    return found as boolean;
  });
}

/** All of an iterable. */
export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];

  for await (const item of items) {
    found.push(item);
  }
  return found;
}
