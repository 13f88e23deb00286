/** Sends calls, again where `retrying` says so. */

import * as checks from "./checks.js";
import { UnexpectedReply } from "./errors.js";
import { Reply, judged, objectOf } from "./replies.js";
import { Attempts, type Call, Failure, type Retries, retriesOf } from "./retrying.js";

/** How a server is asked. */
export interface ClientOptions {
  /** Its address, with the path where the application is mounted; in a browser also relative to the page. */
  readonly url: string | URL;
  /** Sent as `Authorization: Bearer`: a token of the job API, or the JWT of a channel. */
  readonly token?: string;
  readonly retries?: Partial<Retries>;
  /** Which cookies a browser sends: none by default, since a token says who asks. */
  readonly credentials?: RequestCredentials;
  /** A `fetch` of your own. */
  readonly fetch?: typeof fetch;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, closes its connection, and makes it throw the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export class Transport {
  readonly retries: Retries;
  readonly #address: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #credentials: RequestCredentials;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.#address = checks.address(options.url);
    this.retries = retriesOf(options.retries);
    this.#headers = options.token === undefined ? {} : { Authorization: `Bearer ${checks.header("token", options.token)}` };
    this.#credentials = options.credentials ?? "omit";
    // A browser's own fetch must be called on the window.
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** The server's answer. Throws Refused, UnexpectedReply, ServerUnavailable, OutcomeUnknown. */
  async send(call: Call, signal?: AbortSignal): Promise<Reply> {
    const attempts = new Attempts(call, this.retries);
    for (;;) {
      const answer = await this.#attempt(call, this.retries.attemptMs + (call.waitMs ?? 0), signal);
      if (answer instanceof Reply) return answer;
      await rest(attempts.after(answer), signal);
    }
  }

  async #attempt(call: Call, timeoutMs: number, signal?: AbortSignal): Promise<Reply | Failure> {
    signal?.throwIfAborted();
    const end = new AbortController();
    const aborted = (): void => end.abort();
    signal?.addEventListener("abort", aborted, { once: true });
    // Node ends a program in the middle of its call when nothing but the timer of AbortSignal.timeout is left.
    const timer = setTimeout(aborted, timeoutMs);
    let answer: readonly [Response, string];
    try {
      // A fetch may never settle, not even when it is aborted: that of Node 20, where a body says gzip and is none.
      answer = await Promise.race([this.#exchange(call, end.signal), rejected(end.signal)]);
    } catch (error) {
      signal?.throwIfAborted();
      return new Failure(end.signal.aborted ? `no reply within ${timeoutMs} ms` : String(error), neverSent(error));
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
    }
    const [response, text] = answer;
    if (response.type === "opaqueredirect") {
      throw new UnexpectedReply("the server sends elsewhere; only the address that was given is asked");
    }
    return judged(call, response, text);
  }

  /** The response and its whole body. */
  async #exchange(call: Call, signal: AbortSignal): Promise<readonly [Response, string]> {
    const query = call.params === undefined ? "" : `?${new URLSearchParams(call.params)}`;
    const response = await this.#fetch(this.#address + call.path + query, {
      method: call.method,
      headers: { ...this.#headers, ...call.headers, ...(call.body === undefined ? {} : { "Content-Type": "application/json" }) },
      ...(call.body === undefined ? {} : { body: call.body }),
      signal,
      cache: "no-store",
      credentials: this.#credentials,
      redirect: "manual",
    });
    return [response, await response.text()];
  }
}

/** Rejects when the signal is aborted. */
function rejected(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
}

/** Whether no connection was made. Node says so in the cause of the error, of each address that it has tried; a browser does not. */
function neverSent(error: unknown): boolean {
  const { cause } = objectOf(error);
  const { code, errors } = objectOf(cause);
  const causes = Array.isArray(errors) ? errors.map(objectOf) : [objectOf(cause)];
  return code === "UND_ERR_CONNECT_TIMEOUT" || causes.every(({ syscall }) => syscall === "connect" || syscall === "getaddrinfo");
}

/** Wait, or throw the reason of the signal as soon as it is aborted. */
export async function rest(durationMs: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, durationMs);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}
