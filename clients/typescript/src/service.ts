// SPDX-License-Identifier: Apache-2.0

import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageShape,
} from "@bufbuild/protobuf";
import type { CallOptions, Channel } from "./channel.js";
import { message, type Init } from "./messages.js";

/** A stream of messages both ways. */
export interface Duplex<Request, Response> extends AsyncIterable<Response>, AsyncDisposable {
  /** Sends a message when there is room for it. False: the call is over, and reading tells why. */
  send(request: Request): Promise<boolean>;
  /** No more will be sent. */
  end(): void;
  cancel(): void;
}

type Stub<Method> =
  Method extends DescMethodUnary<infer I, infer O>
    ? (request: Init<MessageShape<I>>, options?: CallOptions) => Promise<MessageShape<O>>
    : Method extends DescMethodServerStreaming<infer I, infer O>
      ? (request: Init<MessageShape<I>>, options?: CallOptions) => AsyncGenerator<MessageShape<O>, void, undefined>
      : Method extends DescMethodClientStreaming<infer I, infer O>
        ? (requests: AsyncIterable<Init<MessageShape<I>>>, options?: CallOptions) => Promise<MessageShape<O>>
        : Method extends DescMethodBiDiStreaming<infer I, infer O>
          ? OpenDuplex<Init<MessageShape<I>>, MessageShape<O>>
          : never;

type OpenDuplex<Request, Response> = (first: Request, options?: CallOptions) => Promise<Duplex<Request, Response>>;

/** The methods of a service of the contract, as functions. */
export type Service<Desc extends DescService> = { readonly [Name in keyof Desc["method"]]: Stub<Desc["method"][Name]> };

/** The methods of a service on a channel. */
export function makeService<Desc extends DescService>(channel: Channel, service: Desc): Service<Desc> {
  const stubs = service.methods.map((method) => [method.localName, makeStub(channel, method)]);

  return Object.fromEntries(stubs) as Service<Desc>;
}

type Request = Init<MessageShape<DescMessage>>;

function makeStub(channel: Channel, method: DescMethod): unknown {
  switch (method.methodKind) {
    case "unary":
      return (request: Request, options?: CallOptions) =>
        channel.unary(method, message(method.input, request), options);
    case "server_streaming":
      return (request: Request, options?: CallOptions) =>
        channel.stream(method, message(method.input, request), options);
    case "client_streaming":
      return (requests: AsyncIterable<Request>, options?: CallOptions) =>
        uploadAll(channel, method, requests, options);
    case "bidi_streaming":
      return (first: Request, options?: CallOptions) => openDuplex(channel, method, first, options);
  }
}

async function uploadAll(
  channel: Channel,
  method: DescMethod,
  requests: AsyncIterable<Request>,
  options: CallOptions | undefined,
): Promise<unknown> {
  const all = requests[Symbol.asyncIterator]();
  const first = await all.next();
  const rest = async function* () {
    for (let step = await all.next(); !step.done; step = await all.next()) {
      yield message(method.input, step.value);
    }
  };

  return channel.upload(method, message(method.input, first.done ? {} : first.value), rest(), options);
}

async function openDuplex(
  channel: Channel,
  method: DescMethod,
  request: Request,
  options: CallOptions | undefined,
): Promise<Duplex<Request, unknown>> {
  const { call, first } = await channel.connect(method, message(method.input, request), options);
  const cancel = () => call.cancel();

  return {
    send: (next) => call.send(message(method.input, next)),
    end: () => call.end(),
    cancel,
    [Symbol.asyncDispose]: async () => cancel(),
    async *[Symbol.asyncIterator]() {
      try {
        for (let answer = first; answer; answer = await call.receive()) {
          yield answer;
        }
      } finally {
        cancel();
      }
    },
  };
}
