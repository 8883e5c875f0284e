// SPDX-License-Identifier: Apache-2.0

import type { DescMethod } from "@bufbuild/protobuf";

/** What is used of `@opentelemetry/api`, which need not be there. */
export interface TelemetryApi {
  trace: {
    getTracer(name: string, version?: string): { startSpan(name: string, options?: object, context?: unknown): Span };
    setSpan(context: unknown, span: Span): unknown;
  };
  context: { active(): unknown };
  propagation: { inject(context: unknown, carrier: object): void };
  SpanKind: { CLIENT: number };
  SpanStatusCode: { ERROR: number };
}

interface Span {
  setAttributes(attributes: Record<string, string | number>): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  end(): void;
}

/** A call that is told about, and the metadata that carries it on. */
export interface TracedCall {
  metadata: Record<string, string>;
  answered(response: object): void;
  ended(error?: Error): void;
}

const NOT_TRACED: TracedCall = { metadata: {}, answered: () => undefined, ended: () => undefined };

/** `@opentelemetry/api`, when it is installed. */
export async function findTelemetry(): Promise<TelemetryApi | undefined> {
  const name: string = "@opentelemetry/api"; // not a literal, which the compiler would look for

  try {
    return (await import(name)) as TelemetryApi;
  } catch {
    return undefined;
  }
}

/** Begins the span of a call. */
export function traceCall(
  api: TelemetryApi | undefined,
  version: string,
  method: DescMethod,
  request: object,
): TracedCall {
  if (!api) {
    return NOT_TRACED;
  }
  const context = api.context.active();
  const span = api.trace
    .getTracer("hutch-client", version)
    .startSpan(
      `hutch.${method.parent.name}/${method.name}`,
      { kind: api.SpanKind.CLIENT, attributes: attributesOf(request) },
      context,
    );
  const metadata: Record<string, string> = {};

  api.propagation.inject(api.trace.setSpan(context, span), metadata);
  return {
    metadata,
    answered: (response) => span.setAttributes(attributesOf(response)),
    ended: (error) => {
      if (error) {
        span.setStatus({ code: api.SpanStatusCode.ERROR, message: error.message });
      }
      span.end();
    },
  };
}

/** What a request or an answer tells, by the names of the contract's fields, at any depth that calls have. */
function attributesOf(message: object): Record<string, string | number> {
  const found: Record<string, string | number> = {};

  collect(message, found, "");
  return found;
}

const TEXTS: Record<string, string> = {
  sandboxId: "sandbox.id",
  execId: "sandbox.exec.id",
  requestId: "sandbox.request_id",
  path: "sandbox.file.path",
  image: "sandbox.image",
  runtime: "sandbox.runtime",
};

function collect(value: object, found: Record<string, string | number>, within: string): void {
  for (const [name, inner] of Object.entries(value)) {
    const key = name === "id" && (within === "sandbox" || within === "exec") ? `${within}Id` : name;
    const attribute = TEXTS[key];

    if (attribute && typeof inner === "string" && inner !== "") {
      found[attribute] = inner;
    } else if (name === "argv" && Array.isArray(inner) && typeof inner[0] === "string") {
      found["sandbox.command.executable"] = inner[0].split("/").pop() ?? "";
    } else if (name === "exitCode" && typeof inner === "number") {
      found["sandbox.exit_code"] = inner;
    } else if (name === "sizeBytes" && within === "file") {
      found["sandbox.file.size"] = Number(inner);
    } else if (name === "files" && Array.isArray(inner)) {
      found["sandbox.file.count"] = inner.length;
    } else if (NESTED.has(name) && inner !== null && typeof inner === "object" && !(inner instanceof Uint8Array)) {
      collect(inner as object, found, name === "value" ? String((value as { case?: string }).case) : name);
    }
  }
}

/** `item` and `value` are how a oneof is held. */
const NESTED: ReadonlySet<string> = new Set([
  "spec", "header", "create", "attach", "sandbox", "exec", "result", "file", "item", "value",
]);
