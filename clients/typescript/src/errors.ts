/** What can go wrong, one class for each thing that a caller would do differently about. */

/** The root of all of them. */
export class ClientError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** An argument is wrong, and nothing was sent. */
export class InvalidArgument extends ClientError {
  constructor(
    readonly field: string,
    readonly value: unknown,
    readonly bound: string,
  ) {
    super(`${field}: ${shown(value)} must be ${bound}`);
  }
}

/**
 * The server has understood the request and does not carry it out: its answer, by the members of RFC 9457.
 *
 * `field`, `value` and `bound` name what is wrong in the request, where something is; `code` is the word by which a channel's server
 * names the reason, "" without one.
 */
export class Refused extends ClientError {
  readonly title: string;
  readonly detail: string;
  readonly code: string;
  readonly field: string;
  readonly value: unknown;
  readonly bound: string;

  constructor(
    readonly status: number,
    readonly problem: Readonly<Record<string, unknown>>,
  ) {
    const text = (name: string): string => (typeof problem[name] === "string" ? problem[name] : "");
    super(`${status}: ${text("detail") || text("title") || text("error") || "refused"}`);
    this.title = text("title");
    this.detail = text("detail");
    this.code = text("code");
    this.field = text("field");
    this.value = problem["value"];
    this.bound = text("bound");
  }
}

/** The token is missing, is not known, or may not do this (401, 403). */
export class NotPermitted extends Refused {}

/** There is no such queue, job, channel or subscriber, or the token may not know of it (404). */
export class NotFound extends Refused {}

/** What answered does not speak the protocol: to a call that only looks a proxy's page, or a body that is no JSON; to any call a
 * redirection, which is not followed, so that nothing was done. */
export class UnexpectedReply extends ClientError {}

/** The server could not be reached in time, or said that it cannot serve now. Nothing was done. */
export class ServerUnavailable extends ClientError {}

/** The request may have been carried out: its reply was lost, and so were those of its repetitions; or what came in its place tells
 * nothing, such as a gateway's page, a failure of the server, or a body that is no JSON. A browser does not tell whether a connection
 * was made, so there it is also what a call that changes something ends with when there is no server. */
export class OutcomeUnknown extends ClientError {}

/** The job that was waited for has ended without a result. */
export class JobFailed extends ClientError {
  constructor(
    readonly id: string,
    readonly state: string,
    readonly error: string,
  ) {
    super(`job ${id} is ${state}` + (error && `: ${error}`));
  }
}

/** The job that was waited for has not ended in time; it goes on. */
export class TimedOut extends ClientError {}

/** The error of an answer that refuses. */
export function refused(status: number, problem: Readonly<Record<string, unknown>>): Refused {
  const Kind = status === 404 ? NotFound : status === 401 || status === 403 ? NotPermitted : Refused;
  return new Kind(status, problem);
}

function shown(value: unknown): string {
  // Urls, tokens and payloads may be secret, and errors are logged.
  if (typeof value === "string") return `a string of length ${value.length}`;
  return value !== null && typeof value === "object" ? "an object" : String(value).slice(0, 80);
}
