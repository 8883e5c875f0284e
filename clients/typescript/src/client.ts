// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import type { DescService } from "@bufbuild/protobuf";
import { Channel, type CallOptions } from "./channel.js";
import { checkArgument, checkArgv } from "./checks.js";
import { findDaemon, type ConnectOptions } from "./connect.js";
import { given, type ExecResult, type RunOptions } from "./exec.js";
import type { Event } from "./gen/hutch/v1/event_pb.js";
import {
  ImageService,
  type Image,
  type ImportImageHeader,
  type PullImageResponse,
} from "./gen/hutch/v1/image_pb.js";
import {
  AgentSandboxService,
  IdleAction,
  SandboxSchema,
  type Sandbox as SandboxMessage,
  type SandboxSpec as SandboxSpecMessage,
  type Snapshot,
} from "./gen/hutch/v1/sandbox_pb.js";
import type { ExecRequest } from "./gen/hutch/v1/sandbox_exec_pb.js";
import type { SandboxState } from "./gen/hutch/v1/state_pb.js";
import { SystemService, type GetInfoResponse } from "./gen/hutch/v1/system_pb.js";
import { message, type Init } from "./messages.js";
import { OneShot } from "./once.js";
import { Sandbox } from "./sandbox.js";
import { makeService, type Service } from "./service.js";
import { piecesOf, type Source } from "./source.js";
import { Watch, type WatchOptions } from "./watch.js";

const ONE_SHOT_IDLE_TTL = "60s"; // after which the daemon removes what a client that crashed has left
const DELETE_TIMEOUT = "10s";

const { method } = AgentSandboxService;

/** What a sandbox is made of: the fields of `hutch.v1.SandboxSpec`. Empty `egress`: nothing can be reached. */
export type SandboxSpec = Init<SandboxSpecMessage>;

export interface CreateOptions extends CallOptions {
  /** The id to give it. Default: the daemon makes one. */
  id?: string | undefined;
  /** Makes the call repeatable. Default: one is made. */
  requestId?: string | undefined;
}

export interface ListOptions extends CallOptions {
  /** Which labels they must have: `app=web, !old`. */
  selector?: string | undefined;
  /** Default: all but DELETED. */
  states?: readonly SandboxState[] | undefined;
  /** Everybody's, for admins. */
  allOwners?: boolean | undefined;
}

/** How a one-shot runs: as a command in a sandbox, and what that sandbox is made of. */
export type OneShotOptions = RunOptions & { spec?: SandboxSpec | undefined };

/** Connects to a daemon; see `ConnectOptions` for which. It may be started, but is not spoken to yet. */
export async function connect(options: ConnectOptions = {}): Promise<Client> {
  return new Client(new Channel(await findDaemon(options)));
}

/** A daemon. Any number of calls may be under way at once. */
export class Client implements AsyncDisposable {
  readonly snapshots: Snapshots;
  readonly images: Images;

  /** @internal */
  constructor(private readonly channel: Channel) {
    this.snapshots = new Snapshots(channel);
    this.images = new Images(channel);
  }

  /** Where it is, as gRPC writes it. */
  get address(): string {
    return this.channel.target;
  }

  /** Ends what is under way with a `CancelledError`. Sandboxes and detached commands go on. */
  close(): void {
    this.channel.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  // ---- Sandboxes ----

  /** Creates a sandbox. Returns when that is accepted; it can be used at once. */
  async create(spec: SandboxSpec = {}, options: CreateOptions = {}): Promise<Sandbox> {
    const { id = "", requestId = "", ...call } = options;
    const request = message(method.createSandbox.input, { sandboxId: id, spec, requestId });
    const { sandbox } = await this.channel.unary(method.createSandbox, request, call);

    return new Sandbox(this.channel, given(sandbox), true);
  }

  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const request = message(method.getSandbox.input, { sandboxId: id });
    const { sandbox } = await this.channel.unary(method.getSandbox, request, options);

    return new Sandbox(this.channel, given(sandbox), false);
  }

  /** The sandbox of an id, without asking for it: `data` has nothing but the id. */
  sandbox(id: string): Sandbox {
    return new Sandbox(this.channel, message(SandboxSchema, { id }), false);
  }

  /** Sandboxes, oldest first. */
  async *list(options: ListOptions = {}): AsyncGenerator<Sandbox, void, undefined> {
    const { selector = "", states = [], allOwners = false, ...call } = options;
    const request = message(method.listSandboxes.input, { selector, states: [...states], allOwners });

    do {
      const page = await this.channel.unary(method.listSandboxes, request, call);
      for (const sandbox of page.sandboxes) {
        yield new Sandbox(this.channel, sandbox, false);
      }
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  }

  /** Deletes every sandbox that a selector matches, which must not be empty. Tells their ids. */
  async deleteMany(selector: string, options: CallOptions & { allOwners?: boolean } = {}): Promise<string[]> {
    const { allOwners = false, ...call } = options;
    const request = message(method.deleteSandboxes.input, { selector, allOwners });

    return (await this.channel.unary(method.deleteSandboxes, request, call)).sandboxIds;
  }

  /** Events as they happen; with `snapshot`, the sandboxes as they are come first. It stands when this returns. */
  watch(options: WatchOptions & { snapshot: true }): Promise<Watch<Event | SandboxMessage>>;
  watch(options?: WatchOptions & { snapshot?: false }): Promise<Watch<Event>>;
  watch(options: WatchOptions & { snapshot?: boolean } = {}): Promise<Watch<Event> | Watch<Event | SandboxMessage>> {
    const { snapshot = false, ...rest } = options;

    return Watch.open(this.channel, rest, snapshot);
  }

  // ---- One-shots ----

  /** Creates a sandbox, runs a command in it, and deletes it, whatever happens. */
  async run(argv: readonly string[], options: OneShotOptions = {}): Promise<ExecResult> {
    const { spec = {}, ...run } = options;

    checkArgument("spec.argv", () => checkArgv(argv));
    const ends = { idleTtl: ONE_SHOT_IDLE_TTL, idleAction: IdleAction.DELETE };
    const sandbox = await this.create({ ...ends, ...spec }, { signal: run.signal });

    try {
      return await sandbox.exec(argv, run);
    } finally {
      // What cannot be deleted now, the daemon deletes when it was idle: what came of the command is what counts.
      await sandbox.delete({ timeout: DELETE_TIMEOUT }).catch(() => undefined);
    }
  }

  /** The same with a script for `sh`. */
  runShell(script: string, options: OneShotOptions = {}): Promise<ExecResult> {
    return this.run(["sh", "-c", script], options);
  }

  /** The same with a program for `python3`. */
  runPython(code: string, options: OneShotOptions = {}): Promise<ExecResult> {
    return this.run(["python3", "-c", code], options);
  }

  /** Has the daemon do all of it in one call: output comes as it is printed. */
  execOnce(argv: readonly string[], options: Omit<Init<ExecRequest>, "argv"> & OnceCall = {}): Promise<OneShot> {
    const { signal, callTimeout, ...request } = options;

    return OneShot.open(this.channel, { ...request, argv: [...argv] }, { signal, timeout: callTimeout });
  }

  // ---- The daemon ----

  async ping(options: CallOptions = {}): Promise<void> {
    const { ping } = SystemService.method;

    await this.channel.unary(ping, message(ping.input), options);
  }

  /** What the daemon is, what it can do and which limits are in force. */
  info(options: CallOptions = {}): Promise<GetInfoResponse> {
    const { getInfo } = SystemService.method;

    return this.channel.unary(getInfo, message(getInfo.input), options);
  }

  /** Any service of the contract, by its description: `client.service(v1.PolicyService).getPolicy({ sandboxId })`. */
  service<Desc extends DescService>(service: Desc): Service<Desc> {
    return makeService(this.channel, service);
  }
}

interface OnceCall {
  signal?: AbortSignal | undefined;
  /** How long the call may take. Default: as long as the command. */
  callTimeout?: CallOptions["timeout"];
}

/** Snapshots of sandboxes' files. They are taken by `Sandbox.snapshot`. */
export class Snapshots {
  /** @internal */
  constructor(private readonly channel: Channel) {}

  async *list(
    options: CallOptions & { sandboxId?: string; selector?: string } = {},
  ): AsyncGenerator<Snapshot, void, undefined> {
    const { sandboxId = "", selector = "", ...call } = options;
    const request = message(method.listSnapshots.input, { sandboxId, selector });

    do {
      const page = await this.channel.unary(method.listSnapshots, request, call);
      yield* page.snapshots;
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  }

  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.channel.unary(method.deleteSnapshot, message(method.deleteSnapshot.input, { name }), options);
  }
}

/** The images that sandboxes start from. */
export class Images {
  /** @internal */
  constructor(private readonly channel: Channel) {}

  async *list(options: CallOptions = {}): AsyncGenerator<Image, void, undefined> {
    const { listImages } = ImageService.method;
    const request = message(listImages.input);

    do {
      const page = await this.channel.unary(listImages, request, options);
      yield* page.images;
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  }

  /** Brings an image in from its bytes. */
  async import(
    name: string,
    source: Source,
    options: CallOptions & Omit<Init<ImportImageHeader>, "name"> = {},
  ): Promise<Image> {
    const { importImage } = ImageService.method;
    const { signal, timeout, ...fields } = options;
    const header = { requestId: randomUUID(), ...fields, name };
    const first = message(importImage.input, { item: { case: "header", value: header as never } });
    const data = async function* () {
      for await (const value of piecesOf(source)) {
        yield message(importImage.input, { item: { case: "data", value } });
      }
    };

    return given((await this.channel.upload(importImage, first, data(), { signal, timeout })).image);
  }

  /** Gets an image from a registry, and tells how it goes on; the image itself comes last. */
  pull(
    reference: string,
    options: CallOptions & { provider?: string } = {},
  ): AsyncGenerator<PullImageResponse, void, undefined> {
    const { pullImage } = ImageService.method;
    const { provider = "", ...call } = options;

    return this.channel.stream(pullImage, message(pullImage.input, { reference, provider }), call);
  }

  /** Removes an image, or one of its names. Tells whether the image itself is gone. */
  async remove(reference: string, options: CallOptions = {}): Promise<boolean> {
    const { removeImage } = ImageService.method;

    return (await this.channel.unary(removeImage, message(removeImage.input, { reference }), options)).removed;
  }
}
