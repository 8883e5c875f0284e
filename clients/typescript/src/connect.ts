// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, readFileSync, statSync, type Stats } from "node:fs";
import { connect as connectSocket } from "node:net";
import { resolve } from "node:path";
import { credentials, type ChannelCredentials } from "@grpc/grpc-js";
import type { ChannelSettings } from "./channel.js";
import { checkArgument } from "./checks.js";
import { findContext, type Context } from "./contexts.js";
import { failure } from "./errors.js";
import { toMilliseconds, type DurationLike } from "./rules/duration.js";
import { findTelemetry } from "./telemetry.js";
import { VERSION } from "./version.js";

const TIMEOUT_MS = 60_000;
const START_TIMEOUT_MS = 60_000;
/** Where systems keep the certificates that they trust. */
const CA_BUNDLES = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/ca-bundle.pem",
  "/etc/ssl/cert.pem",
];

/** How to reach a daemon. All of it may be left out: then it is the one that the command `hutch` would use. */
export interface ConnectOptions {
  /** `unix:/path`, `host:port`, `dns:host:port` or `[::1]:port`. */
  address?: string | undefined;
  /** The name of a context of `hutch context`, instead of an address. */
  context?: string | undefined;
  /** Whose certificates are trusted. Default: the system's. */
  caFile?: string | undefined;
  /** The client's own certificate, and its key. */
  certificateFile?: string | undefined;
  keyFile?: string | undefined;
  /** The name that the server's certificate must be for. Default: the address's host. */
  serverName?: string | undefined;
  /** A bearer token, or what is asked for one before each call. */
  token?: string | (() => string | Promise<string>) | undefined;
  /** TCP without TLS. */
  insecure?: boolean | undefined;
  /** Allows a token over TCP without TLS. */
  tokenInClearText?: boolean | undefined;
  /** Whether to start a daemon when none listens on a Unix socket. Default: unless an address was given. */
  startDaemon?: boolean | undefined;
  /** Of calls that say nothing else. Default: 60 s. */
  timeout?: DurationLike | undefined;
  userAgent?: string | undefined;
  /** @internal */
  environment?: NodeJS.ProcessEnv;
}

/** Where the daemon is, and what it is told. */
interface Found {
  address: string;
  /** It is the caller's, or the environment's `HUTCH_ADDRESS`. */
  explicit: boolean;
  context?: Context | undefined;
}

/** Finds the daemon, and starts it when it is to be. */
export async function findDaemon(options: ConnectOptions): Promise<ChannelSettings> {
  const environment = options.environment ?? process.env;
  const found = findAddress(options, environment);
  const target = checkAddress(found.address);
  const settings = {
    target,
    ...security(options, environment, found, target),
    userAgent: options.userAgent ?? `hutch-typescript/${VERSION}`,
    version: VERSION,
    timeoutMs: checkArgument("timeout", () => toMilliseconds(options.timeout ?? TIMEOUT_MS)),
    telemetry: await findTelemetry(),
  };

  if (target.startsWith("unix:") && (options.startDaemon ?? !found.explicit)) {
    await startDaemon(target.slice("unix:".length), environment);
  }
  return settings;
}

function findAddress(options: ConnectOptions, environment: NodeJS.ProcessEnv): Found {
  const { HUTCH_ADDRESS: address, HUTCH_SOCKET: socket, HUTCH_CONTEXT: named } = environment;

  if (options.address !== undefined && options.context !== undefined) {
    throw failure("FIELD_CONFLICT", "an address and a context exclude each other");
  }
  if (options.address !== undefined) {
    return { address: options.address, explicit: true };
  }
  if (options.context === undefined && address) {
    return { address, explicit: true };
  }
  if (options.context === undefined && socket) {
    return { address: `unix:${resolve(socket)}`, explicit: false };
  }
  const context = findContext(environment, options.context ?? (named || undefined));
  if (context) {
    return { address: context.address, explicit: true, context };
  }
  return { address: `unix:${defaultSocket(environment)}`, explicit: false };
}

/** Where users may have folders for sockets. */
export const PLACES = { sessions: "/run/user", shared: "/tmp" };

function defaultSocket(environment: NodeJS.ProcessEnv): string {
  const user = process.geteuid?.() ?? 0;

  if (user === 0) {
    return "/run/hutch/hutchd.sock";
  }
  const folder = runtimeFolder(environment, user);
  return folder === undefined ? `${makeSharedFolder(user)}/hutchd.sock` : `${folder}/hutch/hutchd.sock`;
}

/** The one that XDG_RUNTIME_DIR names, unless it is somebody else's, as su leaves it; else that of a session. */
function runtimeFolder(environment: NodeJS.ProcessEnv, user: number): string | undefined {
  const named = environment["XDG_RUNTIME_DIR"];
  const session = `${PLACES.sessions}/${user}`;

  if (named?.startsWith("/") && (look(statSync, named)?.uid ?? user) === user) {
    return named;
  }
  const info = look(lstatSync, session);
  return info?.isDirectory() && info.uid === user && (info.mode & 0o022) === 0 ? session : undefined;
}

function look(stat: (path: string) => Stats, path: string): Stats | undefined {
  try {
    return stat(path);
  } catch {
    return undefined;
  }
}

/**
 * Where everybody may make folders, what is there may be anybody's: who listens in it would get what is meant for the
 * daemon. It is made here, too, so that nobody else makes it before this client connects.
 */
function makeSharedFolder(user: number): string {
  const folder = `${PLACES.shared}/hutch-${user}`;
  const mend = "set XDG_RUNTIME_DIR to a folder of your own, or HUTCH_SOCKET to a path";

  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") {
      throw failure("FILE_PERMISSION", `cannot make the folder ${folder}: ${(error as Error).message}; ${mend}`);
    }
  }
  const info = lstatSync(folder);
  if (!info.isDirectory() || info.uid !== user || (info.mode & 0o077) !== 0) {
    const facts = `owner ${info.uid}, mode ${(info.mode & 0o7777).toString(8).padStart(4, "0")}`;
    const words = `${folder} is no folder of this user's alone (${facts}): have it removed, or ${mend}`;
    throw failure("FILE_PERMISSION", words);
  }
  return folder;
}

/** The address as gRPC takes it. */
function checkAddress(address: string): string {
  if (/^unix:\/[^\0]*$/.test(address)) {
    return address;
  }
  const tcp = /^(?:dns:(?:\/\/\/)?)?((?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s/:[\]@?#]+):([0-9]{1,5}))$/.exec(address);
  const port = Number(tcp?.[2]);
  if (!tcp || port < 1 || port > 65535) {
    throw failure("ADDRESS_MALFORMED", `'${address}' is not unix:/path, host:port, dns:host:port or [address]:port`);
  }
  return `dns:${tcp[1]}`;
}

/** Encryption, certificates and tokens. */
function security(
  options: ConnectOptions,
  environment: NodeJS.ProcessEnv,
  found: Found,
  target: string,
): Pick<ChannelSettings, "credentials" | "serverName" | "token"> {
  const { context } = found;
  const fallback = found.explicit && !context ? environment : {};
  const given = options.token ?? context?.token ?? (fallback["HUTCH_TOKEN"] || undefined);
  const token = typeof given === "string" ? () => given : given;
  const clearText = options.insecure === true && !context;

  if (target.startsWith("unix:")) {
    return { credentials: credentials.createInsecure() };
  }
  if (clearText && token && options.tokenInClearText !== true) {
    throw failure("TOKEN_IN_CLEAR_TEXT", "a token is not sent without TLS, unless tokenInClearText is set");
  }
  const own = ownCertificate(options, context, fallback);
  const caFile = options.caFile ?? context?.ca_file ?? (fallback["HUTCH_CA_FILE"] || undefined);
  return {
    credentials: clearText ? credentials.createInsecure() : makeTls(caFile, own),
    serverName: options.serverName ?? context?.server_name,
    token,
  };
}

interface OwnCertificate {
  certificateFile?: string | undefined;
  keyFile?: string | undefined;
}

/** Certificate and key, which belong together, of the first who gives one. */
function ownCertificate(
  options: ConnectOptions,
  context: Context | undefined,
  environment: NodeJS.ProcessEnv,
): OwnCertificate {
  const all: OwnCertificate[] = [
    { certificateFile: options.certificateFile, keyFile: options.keyFile },
    { certificateFile: context?.certificate_file, keyFile: context?.key_file },
    {
      certificateFile: environment["HUTCH_CERTIFICATE_FILE"] || undefined,
      keyFile: environment["HUTCH_KEY_FILE"] || undefined,
    },
  ];
  const own = all.find((pair) => pair.certificateFile !== undefined || pair.keyFile !== undefined) ?? {};

  if ((own.certificateFile === undefined) !== (own.keyFile === undefined)) {
    throw failure("FIELD_CONFLICT", "a certificate file and a key file belong together");
  }
  return own;
}

function makeTls(caFile: string | undefined, own: OwnCertificate): ChannelCredentials {
  const bundle = caFile ?? CA_BUNDLES.find((path) => existsSync(path));

  return credentials.createSsl(
    bundle === undefined ? null : readFor("ca_file", bundle),
    own.keyFile === undefined ? null : readFor("key_file", own.keyFile),
    own.certificateFile === undefined ? null : readFor("certificate_file", own.certificateFile),
  );
}

function readFor(field: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw failure("FIELD_INVALID", `${field}: ${(error as Error).message}`, { cause: error });
  }
}

/** Has `hutch` start a daemon, unless somebody listens. */
async function startDaemon(socket: string, environment: NodeJS.ProcessEnv): Promise<void> {
  if (await isListening(socket)) {
    return;
  }
  await new Promise<void>((started, reject) => {
    const env = { ...environment, HUTCH_SOCKET: socket };
    execFile("hutch", ["daemon", "start"], { env, timeout: START_TIMEOUT_MS }, (error, _, stderr) => {
      if (!error) {
        started();
        return;
      }
      const words = (error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no program hutch" : stderr.trim();
      reject(failure("DAEMON_UNREACHABLE", `no daemon answers on ${socket}: ${words || error.message}`));
    });
  });
}

function isListening(socket: string): Promise<boolean> {
  return new Promise((found) => {
    const probe = connectSocket(socket);
    probe.on("connect", () => {
      probe.destroy();
      found(true);
    });
    probe.on("error", ({ code }: NodeJS.ErrnoException) => found(code !== "ENOENT" && code !== "ECONNREFUSED"));
  });
}
