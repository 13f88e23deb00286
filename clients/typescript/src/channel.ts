/** One channel: publishing, and subscriptions that go on when the network does not. */

import * as checks from "./checks.js";
import { ClientError, InvalidArgument, NotFound, Refused } from "./errors.js";
import { newKey } from "./keys.js";
import { type Reply, member, objectOf } from "./replies.js";
import { pauseMs } from "./retrying.js";
import { type CallOptions, type Transport, rest } from "./transport.js";

const MESSAGES_MAX = 1_000;
/** As long as the server waits for messages at most. */
const WAIT_MS_MAX = 30_000;
/** The subscriber is gone, the token is refused, or there is no such channel. */
const OVER_STATUS: ReadonlySet<number> = new Set([400, 401, 403, 404, 422]);

/** A message of a channel. */
export interface Message<Content = unknown> {
  readonly id: string;
  readonly content: Content;
}

/** What a poll has brought. The messages come again until `receipt` is acknowledged; it is "" where there is nothing to
 * acknowledge. `more`: there are further ones, so that the next poll need not wait. */
export interface Delivery<Content = unknown> {
  readonly messages: readonly Message<Content>[];
  readonly receipt: string;
  readonly more: boolean;
}

export interface PollOptions extends CallOptions {
  /** 1 to 1,000, default 64. */
  readonly maxMessages?: number;
  /** How long to wait for messages where there are none: 0 to 30,000. */
  readonly waitMs?: number;
}

export interface SubscriptionOptions extends PollOptions {
  /** A name that stays: the next subscription of this name goes on where this one has ended. Without a name it is one of its own,
   * which ends with the loop. */
  readonly subscriber?: string;
}

/**
 * A channel of the server. Every method throws InvalidArgument before anything is sent, Refused with the server's reason,
 * ServerUnavailable when nothing was done, and OutcomeUnknown when that cannot be said.
 */
export class Channel {
  readonly #path: string;

  constructor(
    private readonly transport: Transport,
    readonly name: string,
  ) {
    this.#path = `/channel/${checks.segment("channel", name)}`;
  }

  /** Publish a message, which is any JSON value; its id. It is there once, however often it is sent: with an `id` of your own also
   * after OutcomeUnknown. */
  async publish(content: unknown, { id = `msg-${newKey()}`, signal }: CallOptions & { readonly id?: string } = {}): Promise<string> {
    const path = `${this.#path}/message/${checks.segment("id", id)}`;
    await this.transport.send({ method: "PUT", path, body: checks.json("content", content), changes: true }, signal);
    return id;
  }

  /** Create a subscriber, whose first message is the next one that is published. One that is there stays as it is. */
  async subscribe(subscriber: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send({ method: "PUT", path: this.#of(subscriber), changes: true }, signal);
  }

  /** Delete a subscriber. One that is not there is deleted. */
  async unsubscribe(subscriber: string, { signal }: CallOptions = {}): Promise<void> {
    try {
      await this.transport.send({ method: "DELETE", path: this.#of(subscriber), changes: true }, signal);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }

  /** The next messages of a subscriber; with `waitMs` as soon as there are any. Throws NotFound. */
  async poll<Content = unknown>(subscriber: string, options: PollOptions = {}): Promise<Delivery<Content>> {
    const { maxMessages, waitMs } = checked(options, 0);
    const params = { max: String(maxMessages), timeout: `${waitMs}ms` };
    return delivery(await this.transport.send({ method: "GET", path: this.#of(subscriber), params, waitMs }, options.signal));
  }

  /** Acknowledge the messages of a delivery by its receipt, and all before them: they do not come again. */
  async acknowledge(subscriber: string, receipt: string, { signal }: CallOptions = {}): Promise<void> {
    const params = { ackHandle: checks.named("receipt", receipt) };
    await this.transport.send({ method: "DELETE", path: `${this.#of(subscriber)}/message`, params, changes: true }, signal);
  }

  /**
   * The messages of a subscriber, for as long as there are any to come: `for await (const message of channel.messages()) ...`
   *
   * The messages of a poll are acknowledged together, when the next one after them is asked for: what was not worked through by
   * then comes again, to the next subscription of this name. A network that fails is waited out, longer each time, by a random
   * share. It ends with the loop, or at once, throwing its reason, with `signal`. Throws Refused when the subscriber is gone or the
   * token is refused.
   */
  async *messages<Content = unknown>(options: SubscriptionOptions = {}): AsyncGenerator<Message<Content>, void, undefined> {
    for await (const batch of this.batches<Content>(options)) yield* batch;
  }

  /** As `messages`, but all messages of a poll at once. */
  async *batches<Content = unknown>(options: SubscriptionOptions = {}): AsyncGenerator<readonly Message<Content>[], void, undefined> {
    const { subscriber = `s-${newKey()}`, signal } = options;
    const poll = { ...checked(options, Math.min(this.transport.retries.pollMs, WAIT_MS_MAX)), signal };
    let subscribed = false;
    try {
      await this.subscribe(subscriber, { signal });
      subscribed = true;
      yield* this.#polled<Content>(subscriber, poll);
    } finally {
      if (options.subscriber === undefined) {
        // One that cannot be deleted now expires by itself.
        const deleted = this.unsubscribe(subscriber).catch(() => undefined);
        if (subscribed && !signal?.aborted) await deleted;
      }
    }
  }

  async *#polled<Content>(
    subscriber: string,
    poll: Required<PollOptions>,
  ): AsyncGenerator<readonly Message<Content>[], void, undefined> {
    let failures = 0;
    let receipt = "";
    for (;;) {
      const beganMs = performance.now();
      let delivery: Delivery<Content> = { messages: [], receipt: "", more: false };
      try {
        // Until this has succeeded nothing is polled: the same messages would come again.
        if (receipt) await this.acknowledge(subscriber, receipt, poll);
        receipt = "";
        delivery = await this.poll<Content>(subscriber, poll);
      } catch (error) {
        if (!(error instanceof ClientError) || error instanceof InvalidArgument || isOver(error)) throw error;
      }
      // A server that does not wait, because it closes for one, is not asked again at once.
      const early = performance.now() - beganMs < poll.waitMs / 2 || poll.waitMs === 0;
      failures = early && delivery.receipt === "" ? failures + 1 : 0;
      if (failures) await rest(pauseMs(this.transport.retries, failures, Math.random()), poll.signal);
      if (delivery.messages.length) yield delivery.messages;
      receipt ||= delivery.receipt;
    }
  }

  #of(subscriber: string): string {
    return `${this.#path}/subscription/polling/${checks.segment("subscriber", subscriber)}`;
  }
}

function checked({ maxMessages = 64, waitMs }: PollOptions, standardMs: number): { maxMessages: number; waitMs: number } {
  return {
    maxMessages: checks.whole("maxMessages", maxMessages, 1, MESSAGES_MAX),
    waitMs: checks.whole("waitMs", waitMs ?? standardMs, 0, WAIT_MS_MAX),
  };
}

function delivery<Content>({ body }: Reply): Delivery<Content> {
  const messages = member(body, "messages", "array").map((item) => ({
    id: member(item, "messageID", "string"),
    content: objectOf(item)["content"] as Content,
  }));
  // Also without messages: what a subscriber has missed is acknowledged too, or it comes no further.
  const receipt = messages.length || "ackHandle" in objectOf(body) ? member(body, "ackHandle", "string") : "";
  return { messages, receipt, more: member(body, "moreMessages", "boolean") };
}

/** Whether a subscription cannot go on: the server itself says so, and not a proxy that knows the path no more for a while. */
export function isOver(error: ClientError): error is Refused {
  return error instanceof Refused && OVER_STATUS.has(error.status) && Object.keys(error.problem).length > 0;
}
