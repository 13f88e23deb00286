/** Checks of arguments, before anything is sent. What only the server can know, it checks. */

import { InvalidArgument } from "./errors.js";

/** The longest that one request may wait on the server, and that a caller may wait in all: 60 s and 24 hours. */
export const POLL_MS_MAX = 60_000;
export const WAIT_MS_MAX = 86_400_000;

/** The address of the server without a slash at its end. In a browser it may be relative to the page. */
export function address(url: string | URL): string {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  let parsed: URL;
  try {
    parsed = new URL(url, base);
  } catch {
    throw new InvalidArgument("url", url, "an address that begins with http:// or https://");
  }
  if (parsed.protocol !== "http:" && parsed.protocol !== "https:") {
    throw new InvalidArgument("url", url, "an address that begins with http:// or https://");
  }
  if (parsed.username || parsed.password || parsed.search || parsed.hash) {
    throw new InvalidArgument("url", url, "an address without user, query and fragment");
  }
  return parsed.href.replace(/\/+$/, "");
}

/** A text that is not empty. */
export function named(field: string, value: unknown): string {
  if (typeof value !== "string" || value === "") throw new InvalidArgument(field, value, "a text that is not empty");
  return value;
}

/** A name as one segment of a path. `.` and `..` would lead to another path, however they are written. */
export function segment(field: string, value: unknown): string {
  const text = named(field, value);
  if (text === "." || text === "..") throw new InvalidArgument(field, value, "a text that is not . or ..");
  try {
    return encodeURIComponent(text);
  } catch {
    throw new InvalidArgument(field, value, "a text without lone surrogates");
  }
}

/** A text that a header can carry. */
export function header(field: string, value: unknown): string {
  if (typeof value !== "string" || !/^[!-~](?:[ -~]*[!-~])?$/.test(value)) {
    throw new InvalidArgument(field, value, "printable ASCII without spaces at its ends");
  }
  return value;
}

/** A whole number in [least, most]. */
export function whole(field: string, value: unknown, least: number, most: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
    throw new InvalidArgument(field, value, `a whole number from ${least} to ${most}`);
  }
  return value;
}

/** A value as JSON. What JSON would leave out or turn into null without a word is refused at the top. */
export function json(field: string, value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new InvalidArgument(field, value, `a JSON value (${String(error)})`);
  }
  if (text === undefined) throw new InvalidArgument(field, value, "a JSON value");
  return text;
}
