/**
 * The calls of Bananas' own TypeScript SDK, for programs that were written for it: `import { Client } from "@ironclaim/client/bananas"`.
 *
 * They go over HTTP to the API of Bananas below `/api/v1`, whose jobs are in Bananas' keyspace, beside its own programs. What is
 * different: the address is that of the server and not of Redis; how long results are kept is set where jobs run; a job is there
 * once even where a reply is lost; a payload comes back only from a server that shows payloads.
 */

import * as checks from "./checks.js";
import { ClientError, InvalidArgument, NotFound, OutcomeUnknown, Refused, ServerUnavailable } from "./errors.js";
import { newKey } from "./keys.js";
import { member, objectOf, reading } from "./replies.js";
import { type Call, pauseMs } from "./retrying.js";
import { type ClientOptions, Transport, rest } from "./transport.js";

const PATH = "/api/v1/jobs";

/** The root of all errors here. */
export class BananasError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The server is away, or does not say whether it has the job. */
export class ConnectionError extends BananasError {}

/** The job is not accepted; the message names what is wrong. */
export class InvalidJobError extends BananasError {}

export const JobStatus = {
  PENDING: "pending",
  PROCESSING: "processing",
  COMPLETED: "completed",
  FAILED: "failed",
  SCHEDULED: "scheduled",
} as const;
export type JobStatus = (typeof JobStatus)[keyof typeof JobStatus];

export const JobPriority = { HIGH: "high", NORMAL: "normal", LOW: "low" } as const;
export type JobPriority = (typeof JobPriority)[keyof typeof JobPriority];

/** A job as the server describes it. `updatedAt` is not told, so it is `createdAt`. */
export interface Job {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
  readonly payload: unknown;
  readonly status: JobStatus;
  readonly priority: JobPriority;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly scheduledFor?: Date;
  readonly attempts: number;
  readonly maxRetries: number;
  readonly error: string;
  readonly routingKey?: string;
}

/** How a job has ended. How long it ran is not told: `durationMs` is 0. */
export interface JobResult {
  readonly jobId: string;
  readonly status: JobStatus;
  readonly result?: unknown;
  readonly error?: string;
  readonly completedAt: Date;
  readonly durationMs: number;
}

export interface SubmitJobOptions {
  readonly name: string;
  readonly payload: unknown;
  readonly priority: JobPriority;
  readonly description?: string;
  readonly routingKey?: string;
}

export interface SubmitScheduledJobOptions extends SubmitJobOptions {
  readonly scheduledFor: Date;
}

export interface SubmitAndWaitOptions extends SubmitJobOptions {
  /** ms; 5 minutes by default. */
  readonly timeout?: number;
}

/** A server of the API. Every method throws ConnectionError, InvalidJobError, and BananasError for what else is refused. */
export class Client {
  readonly #transport: Transport;

  constructor(options: ClientOptions) {
    this.#transport = new Transport(options);
  }

  /** Submit a job; its id. */
  async submitJob(options: SubmitJobOptions): Promise<string> {
    return this.#submit(options);
  }

  /** Submit a job for the workers of a routing key; its id. */
  async submitJobWithRoute(
    name: string,
    payload: unknown,
    priority: JobPriority,
    routingKey: string,
    description = "",
  ): Promise<string> {
    return this.#submit({ name, payload, priority, routingKey, description });
  }

  /** Submit a job that runs at that time; its id. */
  async submitJobScheduled({ scheduledFor, ...options }: SubmitScheduledJobOptions): Promise<string> {
    return this.#submit(options, { scheduled_for: scheduledFor.toISOString() });
  }

  /** A job; null for one that is not known. */
  async getJob(jobId: string): Promise<Job | null> {
    const body = await this.#look(jobId);
    return body === null ? null : jobOf(body);
  }

  /** How a job has ended; null for one that has not, or is not known. */
  async getResult(jobId: string): Promise<JobResult | null> {
    const body = await this.#look(jobId);
    return body === null ? null : resultOf(body);
  }

  /** Submit a job and wait for how it ends; null when it has not in time. */
  async submitAndWait({ timeout = 300_000, ...options }: SubmitAndWaitOptions): Promise<JobResult | null> {
    const endMs = performance.now() + timeout;
    const id = await this.#submit(options);
    // The API has no call that waits, so it is looked at, less often the longer it takes.
    for (let looks = 1; ; looks += 1) {
      const found = await this.getResult(id);
      const leftMs = endMs - performance.now();
      if (found !== null || leftMs <= 0) return found;
      await rest(Math.min(leftMs, pauseMs(this.#transport.retries, looks, 0.5 + Math.random() / 2)));
    }
  }

  /** There is nothing to close; programs that were written for the SDK call it. */
  async close(): Promise<void> {}

  async #submit(options: SubmitJobOptions, more: Readonly<Record<string, string>> = {}): Promise<string> {
    const { name, payload, priority, description, routingKey } = options;
    // The id is made here, so that a repetition after a lost reply finds the job.
    const job = { id: newKey(), name, payload, priority, ...more, ...(description && { description }) };
    return translated(async () => {
      const body = checks.json("payload", { ...job, ...(routingKey && { routing_key: routingKey }) });
      const call: Call = { method: "POST", path: PATH, body, changes: true };
      const reply = await this.#transport.send(call);
      return reading(call, () => member(reply.body, "id", "string"));
    });
  }

  async #look(jobId: string): Promise<unknown> {
    return translated(async () => {
      try {
        return (await this.#transport.send({ method: "GET", path: `${PATH}/${checks.segment("jobId", jobId)}` })).body;
      } catch (error) {
        if (error instanceof NotFound) return null;
        throw error;
      }
    });
  }
}

/** Throw the errors of the SDK for those of the client. */
async function translated<Value>(call: () => Promise<Value>): Promise<Value> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    const away = error instanceof ServerUnavailable || error instanceof OutcomeUnknown;
    const invalid = error instanceof InvalidArgument || (error instanceof Refused && [400, 422].includes(error.status));
    const Kind = away ? ConnectionError : invalid ? InvalidJobError : BananasError;
    throw new Kind(error.message, { cause: error });
  }
}

function jobOf(body: unknown): Job {
  const { payload, description, created_at, scheduled_for, attempts, max_retries, error, routing_key } = objectOf(body);
  const createdAt = new Date(typeof created_at === "string" ? created_at : 0);
  return {
    id: member(body, "id", "string"),
    name: member(body, "name", "string"),
    payload,
    status: member(body, "status", "string") as JobStatus,
    priority: member(body, "priority", "string") as JobPriority,
    createdAt,
    updatedAt: createdAt,
    attempts: Number(attempts ?? 0),
    maxRetries: Number(max_retries ?? 0),
    error: typeof error === "string" ? error : "",
    ...(typeof description === "string" && { description }),
    ...(typeof scheduled_for === "string" && { scheduledFor: new Date(scheduled_for) }),
    ...(typeof routing_key === "string" && { routingKey: routing_key }),
  };
}

function resultOf(body: unknown): JobResult | null {
  const status = member(body, "status", "string");
  if (status !== JobStatus.COMPLETED && status !== JobStatus.FAILED) return null;
  const { result, error, completed_at } = objectOf(body);
  return {
    jobId: member(body, "id", "string"),
    status,
    completedAt: new Date(typeof completed_at === "string" ? completed_at : 0),
    durationMs: 0,
    ...(result !== undefined && { result }),
    ...(typeof error === "string" && { error }),
  };
}
