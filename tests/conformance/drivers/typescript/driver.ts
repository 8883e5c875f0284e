// SPDX-License-Identifier: Apache-2.0

// Does through the TypeScript client what it is told on stdin (../../PROTOCOL.md).

import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { fromJson, toJson, type DescMessage, type DescService, type MessageShape } from "@bufbuild/protobuf";
import {
  ArchiveCompression,
  connect,
  ExecState,
  HutchError,
  OutputStream,
  SandboxState,
  v1,
  type CallOptions,
  type Client,
  type CommandOutput,
  type ExecStream,
} from "hutch";

const SHOWN_BYTES = 65_536;

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- what JSON holds
type Json = any;

interface Command {
  id: number;
  op: string;
  args: Json;
  client?: string;
  timeout_ms?: number;
}

/** A command that runs. */
interface Running {
  client: Client;
  args: Json;
  /** The call's signal and deadline. */
  call: CallOptions;
  /** The same for commands that have a timeout of their own. */
  exec: { signal: AbortSignal | undefined; callTimeout?: number };
  note: () => void;
}

const clients = new Map<string, Client>();
const running = new Map<number, AbortController>();

// ---- Values ----

function read<Desc extends DescMessage>(schema: Desc, json: Json): MessageShape<Desc> {
  return fromJson(schema, json);
}

function write<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc> | undefined): Json {
  return message && toJson(schema, message, { useProtoFieldName: true });
}

function readBytes(value: Json): Uint8Array {
  if (typeof value === "string") {
    return Buffer.from(value, "base64");
  }
  const part = Buffer.from(value.repeat, "base64");
  return Buffer.alloc(part.length * value.times, part);
}

function writeBytes(bytes: Uint8Array): Json {
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const shown = bytes.length <= SHOWN_BYTES ? { base64: Buffer.from(bytes).toString("base64") } : {};

  return { len: bytes.length, sha256, ...shown };
}

/** A duration as the library takes it. */
function optional(name: string, value: Json): Json {
  return value === undefined ? {} : { [name]: value };
}

function enums(names: string[] | undefined, type: Json, prefix: string): Json {
  return names?.map((name) => type[name.replace(prefix, "")]);
}

/** An ExecSpec as arguments and options. */
function execOf(json: Json): { argv: string[]; options: Json } {
  const { $typeName: _, argv, stdin, terminal, ...rest } = read(v1.ExecSpecSchema, json);
  const input = stdin === v1.StdinMode.UNSPECIFIED ? {} : { stdin: stdin === v1.StdinMode.STREAM };

  return { argv, options: { ...rest, ...input, ...optional("terminal", terminal) } };
}

/** Collects the pieces of a stream. */
class Pieces {
  private readonly data: Uint8Array[] = [];
  private readonly gaps: Json[] = [];
  private start = 0;
  private end = 0;

  add(offset: number, data: Uint8Array): void {
    if (this.data.length === 0) {
      this.start = offset;
    } else if (offset !== this.end) {
      this.gaps.push({ offset: this.end, length: offset - this.end });
    }
    this.data.push(data);
    this.end = offset + data.length;
  }

  get text(): string {
    return Buffer.concat(this.data).toString("latin1");
  }

  write(): Json {
    return { ...writeBytes(Buffer.concat(this.data)), start: this.start, gaps: this.gaps };
  }
}

/** What steps of input wait for. */
interface Progress {
  stdout: Pieces;
  changed: () => void;
}

async function takeOutput<End>(
  output: CommandOutput<End>,
  note: () => void,
  progress: Progress = { stdout: new Pieces(), changed: () => undefined },
): Promise<{ end: End; stdout: Json; stderr: Json }> {
  const stderr = new Pieces();

  for await (const { stream, offset, data } of output) {
    (stream === OutputStream.STDERR ? stderr : progress.stdout).add(Number(offset), data);
    note();
    progress.changed();
  }
  return { end: await output.wait(), stdout: progress.stdout.write(), stderr: stderr.write() };
}

async function feed(stream: ExecStream, steps: Json[], progress: Progress): Promise<void> {
  for (const step of steps) {
    if (step.stdin !== undefined) {
      await new Promise<void>((resolve) => stream.stdin.write(readBytes(step.stdin), () => resolve()));
    } else if (step.close) {
      stream.stdin.end();
    } else if (step.resize) {
      await stream.resize(step.resize);
    } else if (step.signal !== undefined) {
      await stream.signal(step.signal);
    } else {
      while (!progress.stdout.text.includes(step.after)) {
        await new Promise<void>((resolve) => {
          progress.changed = resolve;
        });
      }
    }
  }
}

async function follow(stream: ExecStream, { args, note }: Running): Promise<Json> {
  const progress: Progress = { stdout: new Pieces(), changed: () => undefined };
  const feeding = feed(stream, args.input ?? [], progress);

  feeding.catch(() => undefined); // what is left when the exec ends is left
  const { end, ...output } = await takeOutput(stream, note, progress);
  return { exec: write(v1.ExecSchema, end), ...output };
}

// ---- Commands ----

async function connectClient(name: string, args: Json): Promise<Json> {
  clients.get(name)?.close();
  clients.set(
    name,
    await connect({
      address: args.address,
      caFile: args.ca_file,
      certificateFile: args.certificate_file,
      keyFile: args.key_file,
      serverName: args.server_name,
      token: args.token,
      tokenInClearText: args.token_in_clear_text,
      insecure: args.insecure,
      startDaemon: false,
    }),
  );
  return {};
}

const sandboxAnswer = (sandbox: v1.Sandbox): Json => ({ sandbox: write(v1.SandboxSchema, sandbox) });
const execAnswer = (exec: v1.Exec | undefined): Json => ({ exec: write(v1.ExecSchema, exec) });
const fileAnswer = (file: v1.FileInfo | undefined): Json => ({ file: write(v1.FileInfoSchema, file) });
const box = ({ client, args }: Running) => client.sandbox(args.sandbox_id);

async function collect<T>(items: AsyncIterable<T>, map: (item: T) => Json): Promise<Json[]> {
  const found: Json[] = [];

  for await (const item of items) {
    found.push(map(item));
  }
  return found;
}

/** The options of a request that have other names here. */
function fields(args: Json, ...names: string[]): Json {
  const camel = (name: string) => name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  const given = names.filter((name) => args[name] !== undefined);

  return Object.fromEntries(given.map((name) => [camel(name), args[name]]));
}

async function watchEvents({ client, args, call, note }: Running): Promise<Json> {
  const options = {
    ...call,
    ...fields(args, "sandbox_ids", "selector"),
    ...(args.after_cursor === undefined ? {} : { afterCursor: BigInt(args.after_cursor) }),
  };
  const watch = args.snapshot ? await client.watch({ ...options, snapshot: true }) : await client.watch(options);
  const until = args.until && enums([args.until], SandboxState, "SANDBOX_STATE_")[0];
  const events: Json[] = [];
  const sandboxes: Json[] = [];

  for await (const item of watch) {
    if (item.$typeName === "hutch.v1.Sandbox") {
      sandboxes.push(write(v1.SandboxSchema, item));
      continue;
    }
    events.push(write(v1.EventSchema, item));
    note();
    if (events.length === args.count || (item.change.case === "sandboxState" && item.change.value.toState === until)) {
      break;
    }
  }
  return { events, sandboxes, cursor: Number(watch.cursor) };
}

async function watchFiles(one: Running): Promise<Json> {
  const watch = await box(one).files.watch(one.args.path, { ...one.call, ...fields(one.args, "recursive") });
  const changes: Json[] = [];

  one.note();
  for await (const item of watch) {
    if (item.kind === "change") {
      changes.push(write(v1.FileChangeSchema, item.change));
    }
    if (changes.length === one.args.count) {
      break;
    }
  }
  return { changes };
}

async function listFiles(one: Running): Promise<Json> {
  const listing = box(one).files.list(one.args.path, { ...one.call, ...fields(one.args, "depth", "glob") });
  const files = await collect(listing, (file) => write(v1.FileInfoSchema, file));

  return { files, changed: listing.changed };
}

async function listChanges(one: Running): Promise<Json> {
  const changes = box(one).files.changes(one.args.path, one.call);
  const differences = await collect(changes, (change) => write(v1.ImageChangeSchema, change));

  return { differences, incomplete: changes.incomplete };
}

/** What a one-shot runs in, and with. */
function onceOptions({ args, exec }: Running): Json {
  const { $typeName: _, ...spec } = read(v1.SandboxSpecSchema, args.spec ?? {});

  return {
    ...exec,
    ...fields(args, "env", "timeout"),
    ...(args.spec ? { spec } : {}),
    ...(args.input === undefined ? {} : { input: readBytes(args.input) }),
  };
}

async function once(result: ReturnType<Client["run"]>): Promise<Json> {
  const { exitCode, collected, truncated } = await result;
  const { stdout, stderr } = collected;

  return { exit_code: exitCode, stdout: writeBytes(stdout.bytes), stderr: writeBytes(stderr.bytes), truncated };
}

async function execOnce({ client, args, exec, note }: Running): Promise<Json> {
  const { $typeName: _, argv, ...request } = read(v1.ExecRequestSchema, args.request);
  await using shot = await client.execOnce(argv, { ...request, ...exec });
  const { end, ...output } = await takeOutput(shot, note);

  return { started: write(v1.ExecStartedSchema, shot.started), ...output, exit: write(v1.ExecExitSchema, end) };
}

async function pullImage({ client, args, call }: Running): Promise<Json> {
  let image: v1.Image | undefined;

  for await (const { item } of client.images.pull(args.reference, call)) {
    image = item.case === "image" ? item.value : image;
  }
  return { image: write(v1.ImageSchema, image) };
}

async function rawCall({ client, args, call }: Running): Promise<Json> {
  const [serviceName, methodName] = args.method.split("/");
  const service = (v1 as unknown as Record<string, DescService>)[serviceName]!;
  const method = service.methods.find(({ name }) => name === methodName)!;
  const stub = (client.service(service) as Json)[method.localName];

  return { response: write(method.output, await stub(read(method.input, args.request ?? {}), call)) };
}

const archiveFields = (args: Json): Json => ({
  ...fields(args, "include", "exclude", "ignore_file", "create_parents", "overwrite"),
  ...(args.compression
    ? { compression: enums([args.compression], ArchiveCompression, "ARCHIVE_COMPRESSION_")[0] }
    : {}),
});

const COMMANDS: Record<string, (one: Running) => Promise<Json>> = {
  "system.ping": async ({ client, call }) => (await client.ping(call), {}),
  "system.info": async ({ client, call }) => ({ info: write(v1.GetInfoResponseSchema, await client.info(call)) }),

  "sandbox.create": async ({ client, args, call }) => {
    const spec = args.spec && read(v1.SandboxSpecSchema, args.spec);
    const options = { ...call, ...optional("id", args.sandbox_id), ...fields(args, "request_id") };
    return sandboxAnswer((await client.create(spec, options)).data);
  },
  "sandbox.get": async ({ client, args, call }) => sandboxAnswer((await client.get(args.sandbox_id, call)).data),
  "sandbox.list": async ({ client, args, call }) => {
    const states = enums(args.states, SandboxState, "SANDBOX_STATE_");
    const options = { ...call, ...fields(args, "selector"), ...optional("states", states) };
    return { sandboxes: await collect(client.list(options), ({ data }) => write(v1.SandboxSchema, data)) };
  },
  "sandbox.update": async (one) =>
    sandboxAnswer(await box(one).update(fields(one.args, "labels", "idle_ttl"), one.call)),
  "sandbox.stop": async (one) => sandboxAnswer(await box(one).stop({ ...one.call, ...fields(one.args, "grace") })),
  "sandbox.resume": async (one) => sandboxAnswer(await box(one).resume(one.call)),
  "sandbox.pause": async (one) => sandboxAnswer(await box(one).pause(one.call)),
  "sandbox.unpause": async (one) => sandboxAnswer(await box(one).unpause(one.call)),
  "sandbox.delete": async (one) => sandboxAnswer(await box(one).delete(one.call)),
  "sandbox.delete_many": async ({ client, args, call }) => ({
    count: (await client.deleteMany(args.selector, call)).length,
  }),
  "sandbox.wait": async (one) =>
    sandboxAnswer(await box(one).wait(enums(one.args.states, SandboxState, "SANDBOX_STATE_"), one.call)),

  "exec.run": async (one) => {
    const { argv, options } = execOf(one.args.spec);
    const input = one.args.input === undefined ? {} : { input: readBytes(one.args.input) };
    const result = await box(one).exec(argv, { ...options, ...one.exec, ...input, ...fields(one.args, "request_id") });
    const { stdout, stderr } = result.collected;
    const bytes = { stdout: writeBytes(stdout.bytes), stderr: writeBytes(stderr.bytes) };
    return { ...execAnswer(result.exec), ...bytes, truncated: result.truncated };
  },
  "exec.create": async (one) => {
    const { argv, options } = execOf(one.args.spec);
    const ids = fields(one.args, "exec_id", "request_id");
    return execAnswer((await box(one).createExec(argv, { ...options, ...one.exec, ...ids })).data);
  },
  "exec.get": async (one) => execAnswer((await box(one).getExec(one.args.exec_id, one.call)).data),
  "exec.list": async (one) => {
    const states = enums(one.args.states, ExecState, "EXEC_STATE_");
    const execs = box(one).execs({ ...one.call, ...optional("states", states) });
    return { execs: await collect(execs, ({ data }) => write(v1.ExecSchema, data)) };
  },
  "exec.cancel": async (one) =>
    execAnswer(await box(one).execById(one.args.exec_id).cancel({ ...one.call, ...fields(one.args, "grace") })),
  "exec.start": async (one) => {
    const { argv, options } = execOf(one.args.spec);
    const ids = fields(one.args, "exec_id", "request_id", "bound");
    return follow(await box(one).start(argv, { ...options, ...one.exec, ...ids }), one);
  },
  "exec.attach": async (one) => {
    const offsets = fields(one.args, "stdout_offset", "stderr_offset");
    return follow(await box(one).attach(one.args.exec_id, { ...one.call, ...offsets }), one);
  },
  "exec.output": async (one) => {
    const streams = enums(one.args.streams, OutputStream, "OUTPUT_STREAM_");
    const rest = fields(one.args, "stdout_offset", "stderr_offset", "follow", "tail_lines");
    const options = { ...one.call, ...rest, ...optional("streams", streams) };
    const { end, ...output } = await takeOutput(box(one).execById(one.args.exec_id).output(options), one.note);
    return { ...execAnswer(end), ...output };
  },

  "events.watch": watchEvents,

  "file.read": async (one) => {
    const { data, file } = await box(one).files.readWithInfo(one.args.path, one.call);
    return { ...fileAnswer(file), data: writeBytes(data) };
  },
  "file.write": async (one) => {
    const options = fields(one.args, "mode", "create_parents", "overwrite", "expected_version");
    return fileAnswer(await box(one).files.write(one.args.path, readBytes(one.args.data), { ...one.call, ...options }));
  },
  "file.upload": async (one) => {
    const { args } = one;
    const options = {
      ...one.call,
      ...fields(args, "mode", "create_parents", "overwrite", "size_bytes", "upload_id", "resume_offset"),
      ...fields(args, "max_size_bytes"),
      ...(args.sha256 === undefined ? {} : { sha256: Buffer.from(args.sha256, "base64") }),
    };
    return fileAnswer((await box(one).files.upload(args.path, readBytes(args.data), options)).file);
  },
  "file.upload_stat": async (one) => fileAnswer(await box(one).files.uploadStat(one.args.upload_id, one.call)),
  "file.download": async (one) => {
    const options = fields(one.args, "offset", "length", "expected_version", "max_size_bytes");
    const download = await box(one).files.download(one.args.path, { ...one.call, ...options });
    return { data: writeBytes(await download.bytes()), ...fileAnswer(download.file) };
  },
  "file.archive_upload": async (one) => {
    const options = { ...one.call, ...archiveFields(one.args) };
    const { entries } = await box(one).files.uploadArchive(one.args.path, readBytes(one.args.data), options);
    return { entries: Number(entries) };
  },
  "file.archive_download": async (one) => {
    const options = { ...one.call, ...archiveFields(one.args) };
    const archive = await box(one).files.downloadArchive(one.args.path, options);
    return { data: writeBytes(Buffer.concat(await archive.toArray())) };
  },
  "file.stat": async (one) =>
    fileAnswer(await box(one).files.stat(one.args.path, { ...one.call, ...fields(one.args, "follow_symlink") })),
  "file.list": listFiles,
  "file.changes": listChanges,
  "file.mkdir": async (one) => {
    const options = { ...one.call, ...fields(one.args, "mode", "create_parents") };
    return fileAnswer(await box(one).files.makeDirectory(one.args.path, options));
  },
  "file.move": async (one) => {
    const options = { ...one.call, ...fields(one.args, "overwrite", "create_parents") };
    return fileAnswer(await box(one).files.move(one.args.source, one.args.target, options));
  },
  "file.remove": async (one) => {
    const options = { ...one.call, ...fields(one.args, "recursive", "ignore_missing") };
    return { removed: await box(one).files.remove(one.args.path, options) };
  },
  "file.watch": watchFiles,

  "once.exec": execOnce,
  "once.run": async (one) => once(one.client.run(one.args.argv, onceOptions(one))),
  "once.run_shell": async (one) => once(one.client.runShell(one.args.script, onceOptions(one))),
  "once.run_python": async (one) => once(one.client.runPython(one.args.code, onceOptions(one))),

  "snapshot.create": async (one) => {
    const options = { ...one.call, ...fields(one.args, "name") };
    return { snapshot: write(v1.SnapshotSchema, await box(one).snapshot(options)) };
  },
  "snapshot.list": async ({ client, args, call }) => {
    const list = client.snapshots.list({ ...call, ...fields(args, "sandbox_id") });
    return { snapshots: await collect(list, (snapshot) => write(v1.SnapshotSchema, snapshot)) };
  },
  "snapshot.delete": async ({ client, args, call }) => (await client.snapshots.delete(args.name, call), {}),
  "image.import": async ({ client, args, call }) => ({
    image: write(v1.ImageSchema, await client.images.import(args.name, readBytes(args.data), call)),
  }),
  "image.pull": pullImage,
  "image.list": async ({ client, call }) => ({
    images: await collect(client.images.list(call), (image) => write(v1.ImageSchema, image)),
  }),
  "image.remove": async ({ client, args, call }) => (await client.images.remove(args.reference, call), {}),
  "raw.call": rawCall,
};

// ---- The loop ----

function say(line: Json): void {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function errorOf(error: unknown): Json {
  if (!(error instanceof HutchError)) {
    const text = error instanceof Error ? error.stack : String(error);
    return { code: "DRIVER", reason: "EXCEPTION", metadata: { text }, violations: [] };
  }
  const violations = error.violations.map(({ field, reason }) => ({ field, reason }));
  return { code: error.code, reason: error.reason, metadata: error.metadata, violations };
}

async function answer(command: Command): Promise<Json> {
  const { id, op, args, client = "main", timeout_ms: timeout } = command;
  const abort = new AbortController();
  const act = COMMANDS[op];
  let noted = false;

  switch (op) {
    case "client.connect":
      return connectClient(client, args);
    case "client.close":
      clients.get(client)?.close();
      return {};
    case "cancel":
      running.get(args.id)?.abort();
      return {};
  }
  if (!act) {
    throw new HutchError(op, { code: "DRIVER" as never, reason: "UNKNOWN_OP" });
  }
  running.set(id, abort);
  return act({
    client: clients.get(client)!,
    args,
    call: { signal: abort.signal, ...optional("timeout", timeout) },
    exec: { signal: abort.signal, ...optional("callTimeout", timeout) },
    note: () => {
      if (!noted) {
        noted = true;
        say({ id, note: "started" });
      }
    },
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as Command;

  void answer({ ...command, args: command.args ?? {} })
    .then(
      (ok) => say({ id: command.id, ok }),
      (error: unknown) => say({ id: command.id, error: errorOf(error) }),
    )
    .finally(() => running.delete(command.id));
}
clients.forEach((client) => client.close());
