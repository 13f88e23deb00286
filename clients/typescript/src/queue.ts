/** The jobs of one queue. */

import * as checks from "./checks.js";
import { InvalidArgument, JobFailed, NotPermitted, Refused, ServerUnavailable, TimedOut, UnexpectedReply, refused } from "./errors.js";
import { type Reply, member, objectOf, reading } from "./replies.js";
import { type Call, pauseMs } from "./retrying.js";
import { type CallOptions, type Transport, rest } from "./transport.js";
import type { JobInfo, JobOptions } from "./types.js";
import { newKey } from "./keys.js";

/** As many as the server takes in one request. */
const JOBS_MAX = 1_000;

/** What may be said about a job, beside its name and payload. */
export type EnqueueOptions = JobOptions & {
  readonly id?: string;
  /** A key of your own, so that the same call may be made again after OutcomeUnknown: the job is there once. */
  readonly idempotencyKey?: string;
};

/** A job for `enqueueMany`. */
export type NewJob = JobOptions & { readonly name: string; readonly payload?: unknown; readonly id?: string };

/** The job is there. `created` is false when it was there before: `id` is then that of the one that is there. */
export interface Enqueued {
  readonly id: string;
  readonly created: boolean;
}

/** How a job stands: `value` is what its handler has returned once its state is `finished`, `error` what it died of. */
export interface Result {
  readonly id: string;
  readonly state: string;
  readonly ended: boolean;
  readonly value: unknown;
  readonly error: string;
  /** When it has ended, by the server's clock in ms since 1970; 0 where nobody knows. */
  readonly endedMs: number;
  /** How long its handler ran; null where that is not known. */
  readonly tookMs: number | null;
  /** The token may not see what the handler has returned. */
  readonly hidden: boolean;
}

/**
 * A queue of the server. Every method throws InvalidArgument before anything is sent, Refused with the server's reason,
 * ServerUnavailable when nothing was done, and OutcomeUnknown when that cannot be said.
 */
export class Queue {
  readonly #path: string;

  constructor(
    private readonly transport: Transport,
    readonly name: string,
  ) {
    this.#path = `/api/queues/${checks.segment("queue", name)}/jobs`;
  }

  /** Put one job into the queue; it is there once, however often the network makes the client send it. */
  async enqueue(name: string, payload: unknown = null, options: EnqueueOptions & CallOptions = {}): Promise<Enqueued> {
    const { signal, idempotencyKey, ...given } = options;
    if (given.id !== undefined && idempotencyKey !== undefined) {
      throw new InvalidArgument("idempotencyKey", idempotencyKey, "left out where an id is given, which is the key then");
    }
    const headers = given.id === undefined ? keyHeader(idempotencyKey) : {};
    const body = checks.json("payload", { ...given, name: checks.named("name", name), payload });
    const call: Call = { method: "POST", path: this.#path, body, headers, changes: true };
    const reply = await this.transport.send(call, signal);
    return reading(call, () => enqueued(reply.body));
  }

  /** Put up to 1,000 jobs into the queue, each there once; what came of each, in their order. Throws Refused where one of them is
   * malformed: then none is there. */
  async enqueueMany(
    jobs: Iterable<NewJob>,
    { signal, idempotencyKey }: CallOptions & { readonly idempotencyKey?: string } = {},
  ): Promise<readonly (Enqueued | Refused)[]> {
    const listed = [...jobs];
    checks.whole("jobs", listed.length, 1, JOBS_MAX);
    // Jobs without an id get theirs from the key, and so are found by a repetition after a lost reply.
    const sent = listed.map((job) => ({ payload: null, ...job, name: checks.named("name", job.name) }));
    const body = checks.json("jobs", { jobs: sent });
    const headers = keyHeader(idempotencyKey);
    const call: Call = { method: "POST", path: `${this.#path}/batch`, body, headers, changes: true };
    const reply = await this.transport.send(call, signal);
    return reading(call, () => {
      const items = member(reply.body, "jobs", "array");
      if (items.length !== listed.length) {
        throw new UnexpectedReply(`the reply tells of ${items.length} jobs, ${listed.length} were sent`);
      }
      return items.map(oneOfMany);
    });
  }

  /** A job as the server describes it. Throws NotFound. */
  async job(id: string, { signal }: CallOptions = {}): Promise<JobInfo> {
    const { body } = await this.transport.send({ method: "GET", path: this.#at(id) }, signal);
    member(body, "id", "string");
    return body as JobInfo;
  }

  /** How a job stands; with `waitMs` (at most 60,000) as soon as it has ended, or after that time. Throws NotFound. */
  async result(id: string, { waitMs = 0, signal }: CallOptions & { readonly waitMs?: number } = {}): Promise<Result> {
    checks.whole("waitMs", waitMs, 0, checks.POLL_MS_MAX);
    const call: Call = { method: "GET", path: `${this.#at(id)}/result`, params: { wait_ms: String(waitMs) }, waitMs };
    return resultOf(id, await this.transport.send(call, signal));
  }

  /** What the handler of a job has returned, once it has, within 60 s by default. A server that is away is waited for too. Throws
   * JobFailed, TimedOut, NotFound, NotPermitted; ServerUnavailable when the server is away at the end, then up to `deadlineMs` later. */
  async wait<Value = unknown>(
    id: string,
    { timeoutMs = 60_000, signal }: CallOptions & { readonly timeoutMs?: number } = {},
  ): Promise<Value> {
    const { retries } = this.transport;
    const endMs = performance.now() + checks.whole("timeoutMs", timeoutMs, 0, checks.WAIT_MS_MAX);
    let failures = 0;
    for (;;) {
      const beganMs = performance.now();
      const waitMs = Math.max(0, Math.min(retries.pollMs, Math.ceil(endMs - beganMs)));
      try {
        const found = await this.result(id, { waitMs, signal });
        if (found.ended) return valueOf<Value>(found);
        if (performance.now() >= endMs) throw new TimedOut(`job ${id} is ${found.state}`);
      } catch (error) {
        if (!(error instanceof ServerUnavailable) || performance.now() >= endMs) throw error;
      }
      // A server that is away, or that does not wait, is not asked again at once.
      const early = performance.now() - beganMs < waitMs / 2;
      failures = early ? failures + 1 : 0;
      if (failures) await rest(pauseMs(retries, failures, Math.random()), signal);
    }
  }

  /** Enqueue a job and wait for what its handler returns. Throws as both do. */
  async call<Value = unknown>(
    name: string,
    payload: unknown = null,
    options: EnqueueOptions & CallOptions & { readonly timeoutMs?: number } = {},
  ): Promise<Value> {
    const { timeoutMs = 60_000, ...given } = options;
    checks.whole("timeoutMs", timeoutMs, 0, checks.WAIT_MS_MAX);
    const { id } = await this.enqueue(name, payload, given);
    return this.wait<Value>(id, { timeoutMs, signal: options.signal });
  }

  /** Cancel a job; one that is cancelled already, as by a call whose reply was lost, stays so. Throws NotFound, and Refused for one
   * that has ended otherwise. */
  async cancel(id: string, { signal }: CallOptions = {}): Promise<void> {
    try {
      await this.transport.send({ method: "POST", path: `${this.#at(id)}/cancel`, changes: true }, signal);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 409 || error.problem["state"] !== "cancelled") throw error;
    }
  }

  /** Let a dead job run again. It is sent once, since a repetition could find the job dead again: after OutcomeUnknown, look at the
   * job. Throws NotFound, and Refused for one that is not dead. */
  async requeue(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send({ method: "POST", path: `${this.#at(id)}/requeue`, changes: true, once: true }, signal);
  }

  #at(id: string): string {
    return `${this.#path}/${checks.segment("id", id)}`;
  }
}

/** The header with a key, by default one that nobody else makes. */
function keyHeader(key: string | undefined): Record<string, string> {
  return { "Idempotency-Key": key === undefined ? newKey() : checks.header("idempotencyKey", key) };
}

function enqueued(body: unknown): Enqueued {
  return { id: member(body, "id", "string"), created: member(body, "created", "boolean") };
}

function oneOfMany(item: unknown): Enqueued | Refused {
  if (!("problem" in objectOf(item))) return enqueued(item);
  const problem = member(item, "problem", "object");
  return refused(typeof problem["status"] === "number" ? problem["status"] : 422, problem);
}

/** What the handler of a job that has ended has returned. */
function valueOf<Value>({ id, state, value, error, hidden }: Result): Value {
  if (state !== "finished") throw new JobFailed(id, state, error);
  if (hidden) throw new NotPermitted(403, { detail: `the job ${id} has finished, and this token may not see its result` });
  return value as Value;
}

/** The server answers 202 for a job that has not ended. */
function resultOf(id: string, reply: Reply): Result {
  const state = member(reply.body, "state", "string");
  const { result, error, ended_ms, took_ms, hidden } = objectOf(reply.body);
  return {
    id,
    state,
    ended: reply.status === 200,
    value: result,
    error: typeof error === "string" ? error : "",
    endedMs: typeof ended_ms === "number" ? ended_ms : 0,
    tookMs: typeof took_ms === "number" ? took_ms : null,
    hidden: hidden === true,
  };
}
