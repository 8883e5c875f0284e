// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import type { DescMessage, DescMethod, MessageShape } from "@bufbuild/protobuf";
import type { Call, CallOptions, Channel } from "./channel.js";
import { failure, HutchError } from "./errors.js";
import { given } from "./exec.js";
import {
  FileService,
  type DownloadArchiveRequest,
  type DownloadFileRequest,
  type FileChange,
  type FileInfo,
  type ImageChange,
  type ListChangesRequest,
  type ListChangesResponse,
  type ListFilesRequest,
  type ListFilesResponse,
  type MakeDirectoryRequest,
  type MoveFileRequest,
  type ReadFileRequest,
  type RemoveFileRequest,
  type StatFileRequest,
  type UploadArchiveHeader,
  type UploadArchiveResponse,
  type UploadFileHeader,
  type UploadFileResponse,
  type WatchFilesRequestSchema,
  type WatchFilesResponseSchema,
  type WriteFileRequest,
} from "./gen/hutch/v1/file_pb.js";
import { message, type Init } from "./messages.js";
import { bytesOf } from "./rules/violation.js";
import { piecesOf, type Source } from "./source.js";

const RESUMES_MAX = 6; // in a row that brought nothing

const { method } = FileService;

/** The fields of a request that are options, and those of every call. */
type Options<Request, Given extends string> = Omit<Init<Request>, "sandboxId" | Given> & CallOptions;

/** Every limit on a file's size but the server's own. */
export const LARGEST = Symbol("largest");

type MaxSize = { maxSizeBytes?: bigint | number | typeof LARGEST | undefined };
type WithMaxSize<T> = Omit<T, "maxSizeBytes"> & MaxSize;

/**
 * The files of a sandbox. Paths are absolute, or relative to its working directory; what the rules do not allow in one
 * is refused before a call is made.
 */
export class Files {
  /** @internal */
  constructor(
    private readonly channel: Channel,
    private readonly sandboxId: string,
  ) {}

  /** Reads a small file, or a part of one, in one call: up to 3 MiB. */
  async read(path: string, options: Options<ReadFileRequest, "path"> = {}): Promise<Uint8Array> {
    return (await this.readWithInfo(path, options)).data;
  }

  async readText(path: string, options: Options<ReadFileRequest, "path"> = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** The same with what is known of the file, its version among it. */
  async readWithInfo(
    path: string,
    options: Options<ReadFileRequest, "path"> = {},
  ): Promise<{ data: Uint8Array; file: FileInfo }> {
    const { signal, timeout, ...fields } = options;
    const request = message(method.readFile.input, { ...fields, sandboxId: this.sandboxId, path });
    const { data, file } = await this.channel.unary(method.readFile, request, { signal, timeout });

    return { data, file: given(file) };
  }

  /** Writes a small file in one call, all of it or nothing: up to 3 MiB. */
  async write(
    path: string,
    data: string | Uint8Array,
    options: Options<WriteFileRequest, "path" | "data"> = {},
  ): Promise<FileInfo> {
    const { signal, timeout, ...fields } = options;
    const bytes = typeof data === "string" ? bytesOf(data) : data;
    const request = message(method.writeFile.input, { ...fields, sandboxId: this.sandboxId, path, data: bytes });

    return given((await this.channel.unary(method.writeFile, request, { signal, timeout })).file);
  }

  /**
   * Writes a file of any size: all of it or nothing. When the connection is lost it fails; with an `uploadId` it can
   * then go on from what `uploadStat` tells.
   */
  async upload(
    path: string,
    source: Source,
    options: WithMaxSize<Options<UploadFileHeader, "path">> = {},
  ): Promise<UploadFileResponse> {
    return this.send(method.uploadFile, path, source, options);
  }

  /** How far a broken upload has come: its size tells. */
  async uploadStat(uploadId: string, options: CallOptions = {}): Promise<FileInfo> {
    const request = message(method.statFile.input, { sandboxId: this.sandboxId, uploadId });

    return given((await this.channel.unary(method.statFile, request, options)).file);
  }

  /** Reads a file of any size, or a part of it. Goes on by itself when the connection is lost. */
  async download(path: string, options: WithMaxSize<Options<DownloadFileRequest, "path">> = {}): Promise<Download> {
    const { signal, timeout, maxSizeBytes, ...fields } = options;
    const request = message(method.downloadFile.input, {
      ...fields,
      sandboxId: this.sandboxId,
      path,
      maxSizeBytes: await this.maxSize(maxSizeBytes),
    });

    return Download.open(downloadFile(this.channel, request, { signal, timeout }));
  }

  /** Unpacks a tar stream into a folder. */
  async uploadArchive(
    path: string,
    source: Source,
    options: WithMaxSize<Options<UploadArchiveHeader, "path">> = {},
  ): Promise<UploadArchiveResponse> {
    return this.send(method.uploadArchive, path, source, options);
  }

  /** A folder, or a file, as a tar stream. */
  async downloadArchive(
    path: string,
    options: WithMaxSize<Options<DownloadArchiveRequest, "path">> = {},
  ): Promise<Readable> {
    const { signal, timeout, maxSizeBytes, ...fields } = options;
    const request = message(method.downloadArchive.input, {
      ...(fields as Init<DownloadArchiveRequest>),
      sandboxId: this.sandboxId,
      path,
      maxSizeBytes: await this.maxSize(maxSizeBytes),
    });
    const answers = this.channel.stream(method.downloadArchive, request, { signal, timeout });
    const first = await answers.next();

    return Readable.from(bytesOfAnswers(first, answers), { objectMode: false });
  }

  /** What is at a path. A symlink is told about itself, unless it is to be followed. */
  async stat(path: string, options: Options<StatFileRequest, "path" | "uploadId"> = {}): Promise<FileInfo> {
    const { signal, timeout, ...fields } = options;
    const request = message(method.statFile.input, { ...fields, sandboxId: this.sandboxId, path });

    return given((await this.channel.unary(method.statFile, request, { signal, timeout })).file);
  }

  /** The entries of a folder, in byte order of their paths. */
  list(path: string, options: Options<ListFilesRequest, "path" | "pageToken"> = {}): FileListing {
    const { signal, timeout, ...fields } = options;
    const request = message(method.listFiles.input, { ...fields, sandboxId: this.sandboxId, path });

    return new FileListing(this.channel, request, { signal, timeout });
  }

  /** What the sandbox has otherwise than its image, below a path. */
  changes(path: string, options: Options<ListChangesRequest, "path" | "pageToken"> = {}): ImageChanges {
    const { signal, timeout, ...fields } = options;
    const request = message(method.listChanges.input, { ...fields, sandboxId: this.sandboxId, path });

    return new ImageChanges(this.channel, request, { signal, timeout });
  }

  async makeDirectory(path: string, options: Options<MakeDirectoryRequest, "path"> = {}): Promise<FileInfo> {
    const { signal, timeout, ...fields } = options;
    const request = message(method.makeDirectory.input, { ...fields, sandboxId: this.sandboxId, path });

    return given((await this.channel.unary(method.makeDirectory, request, { signal, timeout })).file);
  }

  /** Renames. The target is the new path itself, not a folder to move into. */
  async move(
    source: string,
    target: string,
    options: Options<MoveFileRequest, "source" | "target"> = {},
  ): Promise<FileInfo> {
    const { signal, timeout, ...fields } = options;
    const request = message(method.moveFile.input, { ...fields, sandboxId: this.sandboxId, source, target });

    return given((await this.channel.unary(method.moveFile, request, { signal, timeout })).file);
  }

  /** Removes a file, or with `recursive` a folder. Tells how many files, folders and links are gone. */
  async remove(path: string, options: Options<RemoveFileRequest, "path"> = {}): Promise<number> {
    const { signal, timeout, ...fields } = options;
    const request = message(method.removeFile.input, { ...fields, sandboxId: this.sandboxId, path });

    return Number((await this.channel.unary(method.removeFile, request, { signal, timeout })).removed);
  }

  /** What changes below a folder from now on. A lost connection ends it: what happened meanwhile is not known. */
  async watch(path: string, options: CallOptions & { recursive?: boolean } = {}): Promise<FileWatch> {
    const { signal, timeout, recursive = false } = options;
    const request = message(method.watchFiles.input, { sandboxId: this.sandboxId, path, recursive });
    const { call, first } = await this.channel.connect(method.watchFiles, request, { signal, timeout });

    if (first?.item.case !== "started") {
      throw failure("STREAM_INCOMPLETE", "the daemon never told that the watch stands");
    }
    return new FileWatch(call);
  }

  /** Sends a header, then bytes. */
  private async send<Upload extends typeof method.uploadFile | typeof method.uploadArchive>(
    upload: Upload,
    path: string,
    source: Source,
    options: WithMaxSize<CallOptions>,
  ): Promise<MessageShape<Upload["output"]>> {
    const { signal, timeout, maxSizeBytes, ...fields } = options;
    const header = {
      requestId: randomUUID(),
      ...fields,
      sandboxId: this.sandboxId,
      path,
      maxSizeBytes: await this.maxSize(maxSizeBytes),
    };
    const step = (item: object) => message(upload.input as DescMessage, { item } as never);
    const data = async function* () {
      for await (const value of piecesOf(source)) {
        yield step({ case: "data", value });
      }
    };
    const first = step({ case: "header", value: header });

    return this.channel.upload(upload as DescMethod, first, data(), { signal, timeout }) as never;
  }

  private async maxSize(asked: MaxSize["maxSizeBytes"]): Promise<bigint | number> {
    return asked === LARGEST ? this.channel.maxFileBytes() : (asked ?? 0);
  }
}

/** Pages of answers, one element after the other. */
abstract class Listing<Page extends { nextPageToken: string }, Element> implements AsyncIterable<Element> {
  /** Asks for the page of a token. */
  protected abstract page(pageToken: string): Promise<Page>;
  protected abstract elements(page: Page): readonly Element[];

  async *[Symbol.asyncIterator](): AsyncGenerator<Element, void, undefined> {
    let pageToken = "";

    do {
      const page = await this.page(pageToken);
      yield* this.elements(page);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** All of them. */
  async toArray(): Promise<Element[]> {
    const found: Element[] = [];

    for await (const element of this) {
      found.push(element);
    }
    return found;
  }
}

/** The entries of a folder. */
export class FileListing extends Listing<ListFilesResponse, FileInfo> {
  private hasChanged = false;

  /** @internal */
  constructor(
    private readonly channel: Channel,
    private readonly request: ListFilesRequest,
    private readonly options: CallOptions,
  ) {
    super();
  }

  /** The folder changed meanwhile: entries may be missing, or have come twice. */
  get changed(): boolean {
    return this.hasChanged;
  }

  protected override page(pageToken: string): Promise<ListFilesResponse> {
    return this.channel.unary(method.listFiles, { ...this.request, pageToken }, this.options);
  }

  protected override elements(page: ListFilesResponse): readonly FileInfo[] {
    this.hasChanged ||= page.changed;
    return page.files;
  }
}

/** What a sandbox has otherwise than its image. */
export class ImageChanges extends Listing<ListChangesResponse, ImageChange> {
  private isIncomplete = false;

  /** @internal */
  constructor(
    private readonly channel: Channel,
    private readonly request: ListChangesRequest,
    private readonly options: CallOptions,
  ) {
    super();
  }

  /** Something was left out: what the sandbox's user may not read, or lies too deep. */
  get incomplete(): boolean {
    return this.isIncomplete;
  }

  protected override page(pageToken: string): Promise<ListChangesResponse> {
    return this.channel.unary(method.listChanges, { ...this.request, pageToken }, this.options);
  }

  protected override elements(page: ListChangesResponse): readonly ImageChange[] {
    this.isIncomplete ||= page.incomplete;
    return page.changes;
  }
}

/** A change below a folder, or that some were lost and the folder has to be looked at anew. */
export type FileWatchItem = { kind: "change"; change: FileChange } | { kind: "overflow" };

/** Changes below a folder as they happen. */
export class FileWatch implements AsyncIterable<FileWatchItem>, AsyncDisposable {
  private isClosed = false;

  /** @internal */
  constructor(private readonly call: Call<typeof WatchFilesRequestSchema, typeof WatchFilesResponseSchema>) {}

  close(): void {
    this.isClosed = true;
    this.call.cancel();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FileWatchItem, void, undefined> {
    try {
      for (let step = await this.call.receive(); step; step = await this.call.receive()) {
        if (step.item.case === "change") {
          yield { kind: "change", change: step.item.value };
        } else if (step.item.case === "overflow") {
          yield { kind: "overflow" };
        }
      }
      throw failure("STREAM_INCOMPLETE", "the daemon ended the watch");
    } catch (error) {
      if (!this.isClosed) {
        throw error;
      }
    } finally {
      this.close();
    }
  }
}

/** A file's bytes, as a stream of Node's. */
export class Download extends Readable {
  private constructor(
    /** About the file. */
    readonly file: FileInfo,
    private readonly pieces: AsyncGenerator<Uint8Array, void, undefined>,
  ) {
    super();
  }

  /** @internal */
  static async open(steps: AsyncGenerator<FileInfo | Uint8Array, void, undefined>): Promise<Download> {
    const first = await steps.next();

    if (first.done || first.value instanceof Uint8Array) {
      throw failure("STREAM_INCOMPLETE", "the daemon never told about the file");
    }
    return new Download(first.value, steps as AsyncGenerator<Uint8Array, void, undefined>);
  }

  /** All bytes that are still to come. */
  async bytes(): Promise<Uint8Array> {
    return Buffer.concat((await this.toArray()) as Uint8Array[]);
  }

  async text(): Promise<string> {
    return new TextDecoder().decode(await this.bytes());
  }

  override _read(): void {
    this.pieces.next().then(
      (step) => this.push(step.done ? null : step.value),
      (error: unknown) => this.destroy(error as Error),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.pieces.return().then(
      () => callback(error),
      () => callback(error),
    );
  }
}

/** About the file, then its bytes; from where they had come to when the connection is lost. */
async function* downloadFile(
  channel: Channel,
  request: DownloadFileRequest,
  options: CallOptions,
): AsyncGenerator<FileInfo | Uint8Array, void, undefined> {
  const deadline = channel.deadlineOf(options);
  let told = false;

  for (let resumes = 0; ; resumes++) {
    try {
      const call = { signal: options.signal, timeout: channel.leftUntil(deadline) };
      for await (const { item } of channel.stream(method.downloadFile, request, call)) {
        if (item.case === "file" && !told) {
          told = true;
          request.expectedVersion ||= item.value.version;
          yield item.value;
        } else if (item.case === "data") {
          const length = BigInt(item.value.length);
          request.offset += length;
          if (request.length !== undefined) {
            request.length -= length < request.length ? length : request.length;
          }
          resumes = 0;
          yield item.value;
        }
      }
      return;
    } catch (error) {
      if (!(error instanceof HutchError) || error.code !== "UNAVAILABLE" || resumes >= RESUMES_MAX) {
        throw error;
      }
    }
  }
}

async function* bytesOfAnswers(
  first: IteratorResult<{ data: Uint8Array }, void>,
  answers: AsyncGenerator<{ data: Uint8Array }, void, undefined>,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for (let step = first; !step.done; step = await answers.next()) {
      yield step.value.data;
    }
  } finally {
    await answers.return();
  }
}
