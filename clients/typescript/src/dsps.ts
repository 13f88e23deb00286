/**
 * The calls of DSPS's own JavaScript client, for programs that were written for it: `import { Dsps } from "@ironclaim/client/dsps"`.
 *
 * It differs where that one can lose messages or wait in vain: `subscribe` acknowledges what its callback has worked through before
 * it polls again, and how long it waits between polls is not set, because a poll waits on the server.
 */

import { isOver } from "./channel.js";
import { Client } from "./client.js";
import { ClientError, InvalidArgument } from "./errors.js";
import { newKey } from "./keys.js";
import type { Retries } from "./retrying.js";
import * as checks from "./checks.js";

export interface DspsConfig {
  readonly http: { readonly baseURL: string };
  /** JSON Web Token that is sent with each request. */
  readonly jwt?: string;
  readonly apiRetry?: Partial<Retries>;
}

export interface DspsMessage<Content = unknown> {
  readonly channelID: string;
  readonly messageID: string;
  readonly content: Content;
}

export interface DspsSubscription {
  readonly channelID: string;
  readonly subscriptionID: string;
  /** Stop it, and delete the subscriber. */
  close(): Promise<void>;
}

export interface SubscriptionCallbackErrorInfo {
  readonly error: unknown;
  readonly messages: readonly DspsMessage[];
  readonly channelID: string;
  readonly subscriberID: string;
}

export interface SubscribeArgs {
  /** Without one it gets a name of its own. */
  readonly subscriberID?: string | null;
  /** What it does with messages. When it fails, they are not given to it again. */
  readonly callback: (messages: readonly DspsMessage[]) => Promise<void> | void;
  /** Called when the subscription cannot go on: the token is refused, or the subscriber is gone. */
  readonly abnormalEndCallback: (error: SubscriptionUnrecoverableError) => void;
  /** 1 to 1,000, default 32. */
  readonly bulkSize?: number;
  /** 0 to 30, default 25. */
  readonly longPollingSec?: number;
}

/** A subscription cannot go on. `code` is DSPS's word for the reason, null without one. */
export class SubscriptionUnrecoverableError extends Error {
  readonly isSubscriptionUnrecoverableError = true;

  constructor(
    message: string,
    readonly code: string | null,
  ) {
    super(message);
    this.name = "SubscriptionUnrecoverableError";
  }

  static isInstance(error: unknown): error is SubscriptionUnrecoverableError {
    return error instanceof SubscriptionUnrecoverableError;
  }
}

interface Events {
  apiFailed: unknown;
  subscriptionCallbackError: SubscriptionCallbackErrorInfo;
}
type Listeners = { [Name in keyof Events]: Set<(event: Events[Name]) => void> };

/** A DSPS server. */
export class Dsps {
  readonly #client: Client;
  readonly #listeners: Listeners = { apiFailed: new Set(), subscriptionCallbackError: new Set() };

  constructor({ http, jwt, apiRetry }: DspsConfig) {
    this.#client = new Client({
      url: http.baseURL,
      ...(jwt === undefined ? {} : { token: jwt }),
      ...(apiRetry === undefined ? {} : { retries: apiRetry }),
    });
  }

  /** A channel by its id; nothing is asked. */
  channel(channelID: string): DspsChannel {
    return new DspsChannel(this.#client, channelID, (name, event) => this.#tell(name, event));
  }

  /** Call a listener when a call has failed, or when a callback of a subscription has. Returns the listener. */
  addEventListener<Name extends keyof Events>(type: Name, listener: (event: Events[Name]) => void): (event: Events[Name]) => void {
    this.#listeners[type].add(listener);
    return listener;
  }

  removeEventListener<Name extends keyof Events>(type: Name, listener: (event: Events[Name]) => void): void {
    this.#listeners[type].delete(listener);
  }

  #tell<Name extends keyof Events>(name: Name, event: Events[Name]): void {
    for (const listener of this.#listeners[name]) listener(event);
  }
}

export class DspsChannel {
  constructor(
    private readonly client: Client,
    private readonly channelID: string,
    private readonly tell: <Name extends keyof Events>(name: Name, event: Events[Name]) => void,
  ) {}

  /** Publish any JSON value. `messageID`: null lets the client make one. */
  async publish<Content>(messageID: string | null, content: Content): Promise<DspsMessage<Content>> {
    const options = messageID === null ? {} : { id: messageID };
    const published = await this.#told(this.client.channel(this.channelID).publish(content, options));
    return { channelID: this.channelID, messageID: published, content };
  }

  /** Give messages to a callback until it is closed, or cannot go on. */
  async subscribe(args: SubscribeArgs): Promise<DspsSubscription> {
    for (const name of ["callback", "abnormalEndCallback"] as const) {
      if (typeof args[name] !== "function") throw new InvalidArgument(name, args[name], "a function");
    }
    const subscriber = args.subscriberID ?? `s-${newKey()}`;
    const maxMessages = checks.whole("bulkSize", args.bulkSize ?? 32, 1, 1_000);
    const waitMs = checks.whole("longPollingSec", args.longPollingSec ?? 25, 0, 30) * 1_000;
    const channel = this.client.channel(this.channelID);
    await this.#told(channel.subscribe(subscriber));
    const stopped = new AbortController();
    const running = this.#run({ ...args, subscriberID: subscriber }, { subscriber, maxMessages, waitMs, signal: stopped.signal });
    return {
      channelID: this.channelID,
      subscriptionID: subscriber,
      close: async () => {
        if (stopped.signal.aborted) return;
        stopped.abort();
        await running;
        await this.#told(channel.unsubscribe(subscriber));
      },
    };
  }

  async #run(
    args: SubscribeArgs & { readonly subscriberID: string },
    options: { subscriber: string; maxMessages: number; waitMs: number; signal: AbortSignal },
  ): Promise<void> {
    try {
      for await (const batch of this.client.channel(this.channelID).batches(options)) {
        await this.#hand(args, batch.map(({ id, content }) => ({ channelID: this.channelID, messageID: id, content })));
      }
    } catch (error) {
      if (options.signal.aborted) return;
      this.tell("apiFailed", error);
      const code = error instanceof ClientError && isOver(error) ? error.code || null : null;
      args.abnormalEndCallback(new SubscriptionUnrecoverableError(String(error), code));
    }
  }

  async #hand(args: SubscribeArgs & { readonly subscriberID: string }, messages: readonly DspsMessage[]): Promise<void> {
    try {
      await args.callback(messages);
    } catch (error) {
      this.tell("subscriptionCallbackError", { error, messages, channelID: this.channelID, subscriberID: args.subscriberID });
    }
  }

  async #told<Value>(call: Promise<Value>): Promise<Value> {
    try {
      return await call;
    } catch (error) {
      if (!(error instanceof InvalidArgument)) this.tell("apiFailed", error);
      throw error;
    }
  }
}
