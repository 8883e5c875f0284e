// SPDX-License-Identifier: Apache-2.0

import { create, ScalarType } from "@bufbuild/protobuf";
import type { DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { DurationSchema, type Duration } from "@bufbuild/protobuf/wkt";
import { checkArgument } from "./checks.js";
import { parseDuration, type DurationLike } from "./rules/duration.js";

/**
 * What a message of the contract is made from: any of its fields, with durations as milliseconds or texts (`"1h30m"`),
 * and 64-bit numbers as numbers or bigints.
 */
export type Init<T> = T extends Duration
  ? DurationLike | T
  : T extends bigint
    ? bigint | number
    : T extends Uint8Array
      ? Uint8Array
      : T extends readonly (infer Element)[]
        ? readonly Init<Element>[]
        : T extends Message
          ? { [Field in Exclude<keyof T, "$typeName" | "$unknown">]?: Init<T[Field]> | undefined }
          : T extends object
            ? { [Key in keyof T]: Init<T[Key]> }
            : T;

/** Makes a message. @param above where it is in the request, for errors */
export function message<Desc extends DescMessage>(
  schema: Desc,
  init: Init<MessageShape<Desc>> = {} as never,
  above: string = "",
): MessageShape<Desc> {
  return create(schema, convertFields(schema, init as Record<string, unknown>, above) as never) as MessageShape<Desc>;
}

function convertFields(schema: DescMessage, init: Record<string, unknown>, above: string): Record<string, unknown> {
  const made: Record<string, unknown> = {};

  for (const [name, value] of Object.entries(init)) {
    const field = schema.field[name];
    const oneof = schema.oneofs.find((candidate) => candidate.localName === name);

    if (value === undefined) {
      continue;
    }
    if (oneof) {
      const { case: chosen, value: inner } = value as { case?: string; value?: unknown };
      const member = chosen === undefined ? undefined : schema.field[chosen];
      made[name] = { case: chosen, value: member ? convert(member, inner, above) : inner };
    } else if (field) {
      made[name] = convert(field, value, above);
    } else if (!name.startsWith("$")) {
      throw new TypeError(`${schema.name} has no field ${name}`);
    }
  }
  return made;
}

function convert(field: DescField, value: unknown, above: string): unknown {
  const path = above + field.name;

  switch (field.fieldKind) {
    case "message":
      return convertMessage(field.message, value, path);
    case "list":
      return field.listKind === "message"
        ? (value as unknown[]).map((element, i) => convertMessage(field.message, element, `${path}[${i}]`))
        : value;
    case "scalar":
      return typeof value === "number" && LONG_TYPES.has(field.scalar) ? BigInt(value) : value;
    default:
      return value;
  }
}

function convertMessage(schema: DescMessage, value: unknown, path: string): unknown {
  if (schema.typeName === DurationSchema.typeName && (typeof value === "number" || typeof value === "string")) {
    return create(DurationSchema, checkArgument(path, () => parseDuration(value)));
  }
  return create(schema, convertFields(schema, value as Record<string, unknown>, `${path}.`) as never);
}

const LONG_TYPES: ReadonlySet<ScalarType> = new Set([
  ScalarType.INT64,
  ScalarType.UINT64,
  ScalarType.FIXED64,
  ScalarType.SFIXED64,
  ScalarType.SINT64,
]);
