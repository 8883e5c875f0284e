// SPDX-License-Identifier: Apache-2.0

// Which daemon is found, and how it is reached.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before } from "node:test";
import type { Metadata, ServerUnaryCall } from "@grpc/grpc-js";
import { Channel } from "../src/channel.js";
import { findDaemon, PLACES } from "../src/connect.js";
import { Client, connect, HutchError, v1, VERSION, type ConnectOptions } from "../src/index.js";
import { message } from "../src/messages.js";
import { checks } from "./conformance.js";
import { BUILD, Daemon } from "./daemon.js";
import { Fake, FakeClock, type Handler } from "./fake.js";

let folder: string;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "hutch-ts-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

async function addressOf(environment: NodeJS.ProcessEnv, options: ConnectOptions = {}): Promise<string> {
  const client = await connect({ startDaemon: false, ...options, environment });

  client.close();
  return client.address;
}

function contextsFile(content: unknown, mode = 0o600): NodeJS.ProcessEnv {
  const home = mkdtempSync(join(folder, "home-"));
  const path = join(home, ".config/hutch/contexts.json");

  mkdirSync(join(home, ".config/hutch"), { recursive: true });
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  chmodSync(path, mode);
  return { HOME: home };
}

const CONTEXTS = { current: "prod", contexts: { prod: { address: "h:7443" }, local: { address: "unix:/l.sock" } } };

checks(["CONN-001"], "the daemon is the first that is named", async () => {
  const home = contextsFile(CONTEXTS);
  const everything = {
    ...home,
    HUTCH_ADDRESS: "env:1",
    HUTCH_SOCKET: "/env.sock",
    HUTCH_CONTEXT: "local",
    XDG_RUNTIME_DIR: "/run/user/7",
  };
  assert.equal(await addressOf(everything, { address: "unix:/a.sock" }), "unix:/a.sock");
  assert.equal(await addressOf(everything, { context: "prod" }), "dns:h:7443");
  assert.equal(await addressOf(everything), "dns:env:1");
  assert.equal(await addressOf({ ...everything, HUTCH_ADDRESS: "" }), "unix:/env.sock");
  assert.equal(await addressOf({ ...home, HUTCH_CONTEXT: "local" }), "unix:/l.sock");
  assert.equal(await addressOf(home), "dns:h:7443");
  assert.equal(await addressOf({ HUTCH_SOCKET: "relative.sock" }), `unix:${process.cwd()}/relative.sock`);
  assert.equal(await addressOf({ HOME: folder, XDG_RUNTIME_DIR: "/run/user/7" }), "unix:/run/hutch/hutchd.sock");
  await assert.rejects(addressOf(home, { address: "h:1", context: "prod" }), { reason: "FIELD_CONFLICT" });

  // As somebody else than root.
  process.seteuid!(65534);
  try {
    assert.equal(await addressOf({ XDG_RUNTIME_DIR: "/nonexistent" }), "unix:/nonexistent/hutch/hutchd.sock");
  } finally {
    process.seteuid!(0);
  }
});

const USER = 12345;

/** Calls @body as a user who is not root, with folders in the place of /run/user and /tmp. */
async function asUser(body: (places: string) => Promise<void>): Promise<void> {
  const places = mkdtempSync(join(tmpdir(), "hutch-ts-"));
  const before = { ...PLACES };

  Object.assign(PLACES, { sessions: join(places, "sessions"), shared: join(places, "shared") });
  ["sessions", "shared", "named"].forEach((name) => mkdirSync(join(places, name)));
  chmodSync(places, 0o755);
  chmodSync(PLACES.sessions, 0o1777);
  chmodSync(PLACES.shared, 0o1777);
  process.seteuid!(USER);
  try {
    await body(places);
  } finally {
    process.seteuid!(0);
    Object.assign(PLACES, before);
    rmSync(places, { recursive: true, force: true });
  }
}

checks(["CONN-001"], "a user without a runtime folder has a socket", () =>
  asUser(async (places) => {
    const own = `${PLACES.shared}/hutch-${USER}`;
    const session = `${PLACES.sessions}/${USER}`;
    const named = join(places, "named"); // root's, as after su
    for (const environment of [{}, ...["", "relative", named].map((value) => ({ XDG_RUNTIME_DIR: value }))]) {
      assert.equal(await addressOf(environment), `unix:${own}/hutchd.sock`);
    }
    assert.equal(statSync(own).mode & 0o7777, 0o700);
    assert.equal(await addressOf({ XDG_RUNTIME_DIR: own }), `unix:${own}/hutch/hutchd.sock`);
    mkdirSync(session, { mode: 0o700 });
    assert.equal(await addressOf({}), `unix:${session}/hutch/hutchd.sock`);
    chmodSync(session, 0o722);
    assert.equal(await addressOf({}), `unix:${own}/hutchd.sock`);
  }),
);

checks(["CONN-010"], "a daemon in a folder of somebody else's is not connected to", () =>
  asUser(async () => {
    const own = `${PLACES.shared}/hutch-${USER}`;
    const refused = { reason: "FILE_PERMISSION", code: "PERMISSION_DENIED" };
    mkdirSync(own, { mode: 0o700 });
    for (const mode of [0o710, 0o701, 0o720, 0o702]) {
      chmodSync(own, mode);
      await assert.rejects(addressOf({}), refused);
    }
    rmSync(own, { recursive: true });
    symlinkSync(PLACES.sessions, own);
    await assert.rejects(addressOf({}), refused);
    rmSync(own);
    writeFileSync(own, "", { mode: 0o600 });
    await assert.rejects(addressOf({}), refused);
    rmSync(own);
    process.seteuid!(0);
    mkdirSync(own, { mode: 0o700 });
    process.seteuid!(USER);
    await assert.rejects(addressOf({}), /owner 0, mode 0700.*set XDG_RUNTIME_DIR/);
    PLACES.shared = "/nonexistent";
    await assert.rejects(addressOf({}), refused);
  }),
);

checks(["CONN-002"], "addresses have the forms that all clients know", async () => {
  const forms = {
    "unix:/path/to it": "unix:/path/to it",
    "host:1": "dns:host:1",
    "dns:host:65535": "dns:host:65535",
    "dns:///host:80": "dns:host:80",
    "[::1]:7443": "dns:[::1]:7443",
    "127.0.0.1:7443": "dns:127.0.0.1:7443",
  };
  for (const [address, target] of Object.entries(forms)) {
    assert.equal(await addressOf({}, { address }), target);
  }
  const wrong = ["", "host", "host:", ":80", "host:0", "host:65536", "unix:relative", "unix:", "::1:80", "http://h:1"];
  for (const address of [...wrong, "h:80/x", "a b:80", "[::1]", "host:8x"]) {
    await assert.rejects(addressOf({}, { address }), { reason: "ADDRESS_MALFORMED", code: "INVALID_ARGUMENT" });
  }
});

checks(["CONN-005", "CONN-006"], "contexts are read as all clients read them", async () => {
  const missing = { reason: "CONTEXT_NOT_FOUND" };
  const invalid = { reason: "CONTEXTS_FILE_INVALID" };
  await assert.rejects(addressOf({ HOME: folder }, { context: "prod" }), missing);
  await assert.rejects(addressOf({ ...contextsFile(CONTEXTS), HUTCH_CONTEXT: "other" }), missing);
  await assert.rejects(addressOf(contextsFile({ current: "gone" })), missing);
  await assert.rejects(addressOf(contextsFile(CONTEXTS, 0o640)), { reason: "CONTEXTS_FILE_EXPOSED" });
  await assert.rejects(addressOf(contextsFile(CONTEXTS, 0o602)), { reason: "CONTEXTS_FILE_EXPOSED" });
  const { HOME } = contextsFile(CONTEXTS);
  assert.equal(await addressOf({ XDG_CONFIG_HOME: `${HOME}/.config`, HOME: "/nowhere" }), "dns:h:7443");
  for (const content of [
    "no JSON",
    "[]",
    { others: 1 },
    { current: 1 },
    { contexts: [] },
    { contexts: { BAD: { address: "h:1" } } },
    { contexts: { prod: {} } },
    { contexts: { prod: { address: 1 } } },
    { contexts: { prod: { address: "h:1", colour: "blue" } } },
    { contexts: { prod: { address: "h:1", key_file: "k" } } },
    { contexts: { prod: { address: "h:1", certificate_file: "c" } } },
    '{"contexts": {"prod": {"address": "h:1", "address": "h:2"}}}',
    '{"contexts": {}, "contexts": {"prod": {"address": "h:2"}}}',
  ]) {
    await assert.rejects(addressOf(contextsFile(content)), invalid, JSON.stringify(content));
  }
  // It is not looked at when something else says where the daemon is.
  assert.equal(await addressOf({ ...contextsFile("no JSON"), HUTCH_SOCKET: "/s" }), "unix:/s");
});

checks(["AUTH-004"], "a token is not sent in clear text, unless that is asked for", async () => {
  const refused = { reason: "TOKEN_IN_CLEAR_TEXT", code: "FAILED_PRECONDITION" };
  const address = "127.0.0.1:1";
  await assert.rejects(connect({ address, insecure: true, token: "t" }), refused);
  await assert.rejects(connect({ address, insecure: true, token: async () => "t" }), refused);
  await assert.rejects(connect({ address, insecure: true, environment: { HUTCH_TOKEN: "t" } }), refused);
  (await connect({ address, insecure: true, token: "t", tokenInClearText: true })).close();
});

void test("a certificate and its key belong together, and have to be there", async () => {
  await assert.rejects(connect({ address: "h:1", certificateFile: "c" }), { reason: "FIELD_CONFLICT" });
  await assert.rejects(connect({ address: "h:1", caFile: join(folder, "gone") }), { reason: "FIELD_INVALID" });
});

/** A server that tells what metadata came. */
async function metadataServer(): Promise<{ fake: Fake; seen: Metadata[] }> {
  const { ping } = v1.SystemService.method;
  const seen: Metadata[] = [];
  const handler = (call: ServerUnaryCall<unknown, unknown>, answer: (error: null, value: unknown) => void) => {
    seen.push(call.metadata);
    answer(null, message(ping.output));
  };

  return { fake: await Fake.start([ping, handler as Handler]), seen };
}

checks(["CONN-009"], "the user agent tells which client it is", async () => {
  const { fake, seen } = await metadataServer();
  await using _ = fake;
  await using client = await fake.client({ token: "not for Unix sockets" });
  await client.ping();
  await using other = await fake.client({ userAgent: "mine/1" });
  await other.ping();
  const agents = seen.map((metadata) => metadata.get("user-agent").join());
  assert.ok(agents[0]?.startsWith(`hutch-typescript/${VERSION}`), String(agents));
  assert.ok(agents[1]?.startsWith("mine/1"), String(agents));
  assert.deepEqual(seen[0]?.get("authorization"), []);
});

checks(["CONN-008"], "a daemon is started where that is allowed, and why it cannot be is told", async () => {
  await using daemon = await Daemon.start(); // gives a state folder of its own, and takes away what is in it
  await daemon.end();
  const state = join(daemon.folder, "state");
  const PATH = `${BUILD}:${process.env["PATH"]}`;
  const environment = { PATH, HUTCH_SOCKET: daemon.socket, HUTCH_STATE: state, HUTCH_IDLE_EXIT: "0", HOME: folder };
  const pidFile = join(state, "lock");

  await using idle = await connect({ environment, startDaemon: false });
  await assert.rejects(idle.ping({ timeout: 20_000 }), { reason: "DAEMON_UNREACHABLE" });
  await using client = await connect({ environment });
  await client.ping();
  process.kill(Number(readFileSync(pidFile, "utf8")), "SIGTERM");

  const nowhere = { ...environment, HUTCH_SOCKET: join(folder, "none.sock") };
  await assert.rejects(connect({ environment: { ...nowhere, PATH: folder } }), (error: HutchError) => {
    assert.equal(error.reason, "DAEMON_UNREACHABLE");
    return /there is no program hutch/.test(error.message);
  });
  const bin = mkdtempSync(join(folder, "bin-"));
  writeFileSync(join(bin, "hutch"), "#!/bin/sh\necho the words of stderr >&2\nexit 1\n", { mode: 0o755 });
  await assert.rejects(connect({ environment: { ...nowhere, PATH: bin } }), /the words of stderr/);
  // Not where an address was given.
  (await connect({ address: `unix:${folder}/none.sock`, environment: { PATH: bin } })).close();
});

/** Certificates, made by the program openssl. */
class Certificates {
  constructor(private readonly folder: string) {
    const self = ["-x509", "-days", "2", "-subj", "/CN=ca", "-keyout", this.key("ca"), "-out", this.cert("ca")];
    this.openssl("req", ...NEW_KEY, ...self);
    this.sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost");
    this.sign("alice", "extendedKeyUsage=clientAuth");
  }

  cert(name: string): string {
    return join(this.folder, `${name}.pem`);
  }

  key(name: string): string {
    return join(this.folder, `${name}.key`);
  }

  private sign(name: string, extension: string): void {
    const [request, extensions] = [join(this.folder, `${name}.csr`), join(this.folder, `${name}.ext`)];
    writeFileSync(extensions, `${extension}\n`);
    this.openssl("req", ...NEW_KEY, "-keyout", this.key(name), "-subj", `/CN=${name}`, "-out", request);
    const signer = ["-CA", this.cert("ca"), "-CAkey", this.key("ca"), "-days", "2", "-extfile", extensions];
    this.openssl("x509", "-req", "-in", request, ...signer, "-out", this.cert(name));
  }

  private openssl(...args: string[]): void {
    execFileSync("openssl", args, { cwd: this.folder, stdio: "pipe" });
  }
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

checks(["CONN-003", "CONN-004", "CONN-007"], "TLS, client certificates and tokens", async () => {
  const made = new Certificates(folder);
  const token = `hutch_carol_${randomBytes(32).toString("hex")}`;
  const digest = createHash("sha256").update(token).digest("hex");
  const tokens = join(folder, "tokens");
  writeFileSync(tokens, `carol ${digest} 2020-01-01T00:00:00Z -\n`, { mode: 0o600 });
  await using daemon = await Daemon.start({
    listen: {
      addresses: ["127.0.0.1:0"],
      certificate: made.cert("server"),
      key: made.key("server"),
      client_ca: made.cert("ca"),
      client_certificates: "wanted",
      tokens_file: tokens,
    },
  });
  const address = `127.0.0.1:${daemon.tcpPort()}`;
  const caFile = made.cert("ca");
  const environment = {};
  const who = async (options: ConnectOptions) => {
    const settings = await findDaemon({ address, environment, ...options });
    await using client = new Client(new Channel({ ...settings, clock: new FakeClock() }));
    return (await client.info()).caller;
  };
  const own = { certificateFile: made.cert("alice"), keyFile: made.key("alice") };

  assert.equal(await who({ caFile, token }), "token:carol");
  let asked = 0;
  assert.equal(await who({ caFile, token: async () => (asked++, token) }), "token:carol");
  assert.equal(asked, 1);
  assert.match(await who({ caFile, ...own }), /^cert:.*alice/);
  await assert.rejects(who({ caFile }), { reason: "CREDENTIALS_MISSING" });
  await assert.rejects(who({ caFile, token: "hutch_wrong" }), { reason: "CREDENTIALS_INVALID" });
  // By the environment, and by a context, which gets nothing of it.
  const variables = { HUTCH_TOKEN: token, HUTCH_CA_FILE: caFile };
  assert.equal(await who({ environment: variables }), "token:carol");
  const certificate = { HUTCH_CERTIFICATE_FILE: own.certificateFile, HUTCH_KEY_FILE: own.keyFile };
  assert.match(await who({ environment: { HUTCH_CA_FILE: caFile, ...certificate } }), /^cert:.*alice/);
  const context = { address: `localhost:${daemon.tcpPort()}`, ca_file: caFile };
  const home = contextsFile({ current: "prod", contexts: { prod: context, full: { ...context, token } } });
  await assert.rejects(who({ address: undefined, environment: { ...home, ...variables } }), {
    reason: "CREDENTIALS_MISSING",
  });
  assert.equal(await who({ address: undefined, context: "full", environment: home }), "token:carol");
  assert.equal(await who({ address: undefined, environment: home, token }), "token:carol");
  // A certificate that nobody trusts, or for somebody else.
  await assert.rejects(who({ token }), { reason: "DAEMON_UNREACHABLE" });
  await assert.rejects(who({ caFile, token, serverName: "other.example" }), { reason: "DAEMON_UNREACHABLE" });
  assert.equal(await who({ caFile, token, serverName: "localhost" }), "token:carol");
  await assert.rejects(who({ insecure: true, token, tokenInClearText: true }), { code: "UNAVAILABLE" });
});
