/** Jobs and channels of Ironclaim over HTTP, for browsers and Node. */

export { Channel } from "./channel.js";
export type { Delivery, Message, PollOptions, SubscriptionOptions } from "./channel.js";
export { Client } from "./client.js";
export {
  ClientError,
  InvalidArgument,
  JobFailed,
  NotFound,
  NotPermitted,
  OutcomeUnknown,
  Refused,
  ServerUnavailable,
  TimedOut,
  UnexpectedReply,
} from "./errors.js";
export { Queue } from "./queue.js";
export type { EnqueueOptions, Enqueued, NewJob, Result } from "./queue.js";
export type { Retries } from "./retrying.js";
export type { CallOptions, ClientOptions } from "./transport.js";
export type { JobInfo, JobOptions } from "./types.js";
