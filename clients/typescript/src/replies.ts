/** Answers of the server: which ones count, which ones are problems, and what they say. */

import { OutcomeUnknown, UnexpectedReply, refused } from "./errors.js";
import { type Call, Failure, isTemporary } from "./retrying.js";

/** What a server may ask for at most; a longer wait is for the caller to decide on. */
const RETRY_AFTER_MS_MAX = 60_000;
const PROBLEM = "application/problem+json";

/** An answer that counts: its status, and its body as JSON, undefined without one. */
export class Reply {
  constructor(
    readonly status: number,
    readonly body: unknown,
  ) {}
}

type Members = Readonly<Record<string, unknown>>;
interface Kinds {
  string: string;
  boolean: boolean;
  array: readonly unknown[];
  object: Members;
}

/** A member of an object. Throws UnexpectedReply where it is missing or something else. */
export function member<Kind extends keyof Kinds>(body: unknown, name: string, kind: Kind): Kinds[Kind] {
  const found = objectOf(body)[name];
  const seen = Array.isArray(found) ? "array" : found === null ? "null" : typeof found;
  if (seen !== kind) throw new UnexpectedReply(`the reply has no ${name}`);
  return found as Kinds[Kind];
}

/** A body that is an object; one without members where it is something else. */
export function objectOf(body: unknown): Members {
  return typeof body === "object" && body !== null && !Array.isArray(body) ? (body as Members) : {};
}

/** What `read` makes of a reply. Throws OutcomeUnknown where the reply to a call that changes something is not the one that was
 * expected. */
export function reading<Value>(call: Call, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof UnexpectedReply) || !call.changes) throw error;
    throw new OutcomeUnknown(`${call.method} ${call.path}: ${error.message}`);
  }
}

/** What an answer is: a Reply, or a Failure after which the call may be sent again. Throws Refused and UnexpectedReply. */
export function judged(call: Call, response: Response, text: string): Reply | Failure {
  const { status } = response;
  const problem = problemOf(response, text);
  if (isTemporary(status)) {
    // A gateway says 503 too, but does not know what the server has done.
    const undone = status === 429 || (status === 503 && mediaType(response) === PROBLEM);
    return new Failure(`${status} ${String(problem?.["detail"] ?? response.statusText)}`, undone, retryAfterMs(response));
  }
  if (status >= 400) throw refused(status, problem ?? {});
  if (!response.ok) throw new UnexpectedReply("the server sends elsewhere; only the address that was given is asked");
  try {
    return new Reply(status, text === "" ? undefined : JSON.parse(text));
  } catch {
    const why = `the reply is no JSON but ${response.headers.get("content-type") ?? "something"}`;
    // The server's own reply is lost, whoever wrote this one.
    if (call.changes) return new Failure(why, false);
    throw new UnexpectedReply(why);
  }
}

/** The members of a body that is a problem. DSPS's own answers are objects with `code` and `error`, as plain JSON. */
function problemOf(response: Response, text: string): Members | undefined {
  const kind = mediaType(response);
  if (response.status < 400 || (kind !== PROBLEM && kind !== "application/json")) return undefined;
  try {
    const members = objectOf(JSON.parse(text));
    return Object.keys(members).length ? members : undefined;
  } catch {
    return undefined;
  }
}

function mediaType(response: Response): string | undefined {
  return response.headers.get("content-type")?.split(";")[0]?.trim();
}

/** Seconds in the header, as ms; dates are not read, since clocks differ. */
function retryAfterMs(response: Response): number {
  const wantedS = Number(response.headers.get("retry-after") ?? 0);
  return Number.isFinite(wantedS) && wantedS > 0 ? Math.min(RETRY_AFTER_MS_MAX, Math.round(wantedS * 1_000)) : 0;
}
