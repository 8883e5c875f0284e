// SPDX-License-Identifier: Apache-2.0

// Measures the TypeScript client, and gRPC without it.
//
//     node typescript.js SOCKET SANDBOX hutch|raw exec|up|down BYTES COUNT
//
// Prints the microseconds that each took: a command; sending a file of BYTES from memory; taking it to nowhere.

import { EventEmitter, once } from "node:events";
import { create, fromBinary, toBinary, type DescMethod, type MessageShape } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { connect, v1 } from "hutch";

const { ExecService, FileService } = v1;

const name = "measured";
const argv = ["true"];
const piece = Buffer.alloc(1 << 20, "x");

/** What is measured: one command, or one file. */
type Measure = (what: string, size: number) => Promise<void>;

function* pieces(size: number): Generator<Uint8Array> {
  for (let at = 0; at < size; at += piece.length) {
    yield piece.subarray(0, size - at);
  }
}

function check(came: number, size: number): void {
  if (came !== size) {
    throw new Error(`${came} bytes came, not ${size}`);
  }
}

async function ofClient(address: string, id: string): Promise<Measure> {
  const client = await connect({ address });
  const sandbox = client.sandbox(id);

  return async (what, size) => {
    const bytes = BigInt(size);
    if (what === "exec") {
      await sandbox.exec(argv);
    } else if (what === "up") {
      await sandbox.files.upload(name, pieces(size), { sizeBytes: bytes, overwrite: true, maxSizeBytes: bytes });
    } else {
      let came = 0;
      for await (const data of await sandbox.files.download(name, { maxSizeBytes: bytes })) {
        came += data.length;
      }
      check(came, size);
    }
  };
}

/** How gRPC is told of a method. */
function codecOf<Method extends DescMethod>(method: Method) {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    encode: (message: MessageShape<Method["input"]>) => Buffer.from(toBinary(method.input, message)),
    decode: (bytes: Buffer) => fromBinary(method.output, bytes) as MessageShape<Method["output"]>,
  };
}

function ofStubs(address: string, sandboxId: string): Measure {
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), {});
  const run = codecOf(ExecService.method.runCommand);
  const upload = codecOf(FileService.method.uploadFile);
  const download = codecOf(FileService.method.downloadFile);

  return async (what, size) => {
    const maxSizeBytes = BigInt(size);
    if (what === "exec") {
      const request = create(ExecService.method.runCommand.input, { sandboxId, spec: { argv } });
      await new Promise<void>((resolve, reject) => {
        client.makeUnaryRequest(run.path, run.encode, run.decode, request, (error) =>
          error ? reject(error) : resolve(),
        );
      });
    } else if (what === "up") {
      const input = FileService.method.uploadFile.input;
      const ended = new EventEmitter();
      const call = client.makeClientStreamRequest(upload.path, upload.encode, upload.decode, (error) =>
        ended.emit(error ? "error" : "end", error),
      );
      const answer = once(ended, "end");
      const header = { sandboxId, path: name, sizeBytes: maxSizeBytes, overwrite: true, maxSizeBytes };
      call.write(create(input, { item: { case: "header", value: header } }));
      for (const value of pieces(size)) {
        if (!call.write(create(input, { item: { case: "data", value } }))) {
          await once(call, "drain");
        }
      }
      call.end();
      await answer;
    } else {
      const request = create(FileService.method.downloadFile.input, { sandboxId, path: name, maxSizeBytes });
      let came = 0;
      const call = client.makeServerStreamRequest(download.path, download.encode, download.decode, request);
      for await (const answer of call) {
        came += answer.item.case === "data" ? answer.item.value.length : 0;
      }
      check(came, size);
    }
  };
}

const [socket = "", sandbox = "", client = "", what = "", size = "", count = ""] = process.argv.slice(2);
const measure = client === "raw" ? ofStubs(`unix:${socket}`, sandbox) : await ofClient(`unix:${socket}`, sandbox);
for (let left = Number(count); left > 0; left--) {
  const started = process.hrtime.bigint();
  await measure(what, Number(size));
  console.log(Number(process.hrtime.bigint() - started) / 1000);
}
process.exit(0);
