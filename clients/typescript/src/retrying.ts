/**
 * When a request is sent again, and what its caller hears when it is not: pure decisions, carried out by the transport.
 *
 * A request is repeated only where a repetition is harmless: because it only reads, or because it carries an identity by which the
 * server knows it. What is repeated waits longer each time, by a random share, so that clients of a server that comes back do not
 * return all at once.
 */

import * as checks from "./checks.js";
import { OutcomeUnknown, ServerUnavailable } from "./errors.js";

/** The server knows the id of a job for 20 s after its end. A repetition that comes later would make a second job, so none is begun
 * after this time. */
export const REPEATED_MS_MAX = 15_000;

/** Whether a repetition may succeed after this answer. 501 is a feature that the server does not have. */
export function isTemporary(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && status !== 501);
}

/** How long a request is tried, and how long the client waits in between. */
export interface Retries {
  /** No attempt begins after this. 0 to 15,000, default 10,000; 0: there is one attempt. */
  readonly deadlineMs: number;
  /** How long one attempt may take, beside what the request itself asks the server to wait. Default 5,000. */
  readonly attemptMs: number;
  /** The most that is waited after the first failure; it doubles with each further one. Default 100. */
  readonly firstMs: number;
  /** The most that is waited after any failure. Default 2,000. */
  readonly longestMs: number;
  /** How long one request waits on the server where a longer wait takes several: below the time after which proxies commonly give an
   * idle connection up. At most what the server allows, 60,000 unless it was told otherwise. Default 25,000. */
  readonly pollMs: number;
}

const DEFAULTS: Retries = { deadlineMs: 10_000, attemptMs: 5_000, firstMs: 100, longestMs: 2_000, pollMs: 25_000 };

/** The settings with their defaults. Throws InvalidArgument. */
export function retriesOf(given: Partial<Retries> = {}): Retries {
  const retries = { ...DEFAULTS, ...given };
  checks.whole("deadlineMs", retries.deadlineMs, 0, REPEATED_MS_MAX);
  for (const name of ["attemptMs", "firstMs", "longestMs"] as const) checks.whole(name, retries[name], 1, REPEATED_MS_MAX);
  checks.whole("pollMs", retries.pollMs, 1, checks.POLL_MS_MAX);
  return retries;
}

/** How long to wait after so many failures; `share` is drawn from 0 to 1. */
export function pauseMs(retries: Retries, failures: number, share: number): number {
  return Math.round(share * Math.min(retries.longestMs, retries.firstMs * 2 ** Math.min(failures - 1, 16)));
}

/** One request, as it is sent however often. */
export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly params?: Readonly<Record<string, string>>;
  /** JSON, or nothing. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** It is no look. */
  readonly changes?: boolean;
  /** A repetition would do harm. */
  readonly once?: boolean;
  /** How long the server is asked to wait before it answers. */
  readonly waitMs?: number;
}

/** An attempt without an answer that counts. */
export class Failure {
  constructor(
    readonly why: string,
    /** The server has certainly not carried it out. */
    readonly undone: boolean,
    readonly retryAfterMs: number = 0,
  ) {}
}

/** The attempts of one call. */
export class Attempts {
  readonly #endMs: number;
  #failures = 0;
  #allUndone = true;

  constructor(
    private readonly call: Call,
    private readonly retries: Retries,
    private readonly nowMs: () => number = () => performance.now(),
    private readonly share: () => number = Math.random,
  ) {
    this.#endMs = nowMs() + retries.deadlineMs;
  }

  /** How long to wait before the next attempt. Throws ServerUnavailable or OutcomeUnknown where there is none. */
  after(failure: Failure): number {
    this.#failures += 1;
    this.#allUndone &&= failure.undone;
    const pause = Math.max(failure.retryAfterMs, pauseMs(this.retries, this.#failures, this.share()));
    if (!this.call.once && this.nowMs() + pause < this.#endMs) return pause;
    const times = this.#failures > 1 ? ` (attempt ${this.#failures})` : "";
    const Kind = this.call.changes && !this.#allUndone ? OutcomeUnknown : ServerUnavailable;
    throw new Kind(`${this.call.method} ${this.call.path}: ${failure.why}${times}`);
  }
}
