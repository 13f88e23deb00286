// What the tests have the TypeScript client do, the same in Node and in Chromium. Each scenario gets the settings of its test, and
// returns plain JSON for the test to look at.

import { Client, ClientError } from "@ironclaim/client";
import * as bananas from "@ironclaim/client/bananas";
import { Dsps, SubscriptionUnrecoverableError } from "@ironclaim/client/dsps";

/** Does not wait long between attempts, so that tests do not. */
const IMPATIENT = { deadlineMs: 15_000, attemptMs: 15_000, firstMs: 1, longestMs: 20 };

const connect = ({ url, token, retries }) => new Client({ url, token, retries: { ...IMPATIENT, ...retries } });

const scenarios = {
  async refusals({ url }) {
    const at = (options = {}) => new Client({ url, ...options });
    const queue = at().queue("q");
    const channel = at().channel("c");
    return each({
      url: () => at({ url: "ftp://host" }),
      user: () => at({ url: "http://user@host" }),
      token: () => at({ token: "a\nb" }),
      deadlineMs: () => at({ retries: { deadlineMs: 15_001 } }),
      longestMs: () => at({ retries: { longestMs: 0 } }),
      queue: () => at().queue(""),
      name: () => queue.enqueue(""),
      id: () => queue.job(".."),
      surrogate: () => queue.job("\ud800"),
      idempotencyKey: () => queue.enqueue("n", 1, { id: "a", idempotencyKey: "b" }),
      payload: () => queue.enqueue("n", 1n),
      jobs: () => queue.enqueueMany([]),
      waitMs: () => queue.result("a", { waitMs: 60_001 }),
      timeoutMs: () => queue.call("n", 1, { timeoutMs: -1 }),
      channel: () => at().channel("."),
      content: () => channel.publish(undefined),
      maxMessages: () => channel.poll("s", { maxMessages: 0 }),
      receipt: () => channel.acknowledge("s", ""),
    });
  },

  async lifeOfAJob(settings) {
    const emails = connect(settings).queue("emails");
    const enqueued = await emails.enqueue("add", [1, 2], { priority: 8, attempts: 1, headers: { trace: "t1" } });
    const value = await emails.wait(enqueued.id);
    return {
      enqueued,
      value,
      called: await emails.call("add", [3, 4]),
      result: await emails.result(enqueued.id),
      job: await emails.job(enqueued.id),
      unknown: await thrown(() => emails.wait("nobody")),
      late: await thrown(() => emails.call("later", null, { delay_ms: 600_000, timeoutMs: 0 })),
    };
  },

  async enqueue(settings) {
    return connect(settings).queue("emails").enqueue("welcome", { to: "ada" }, settings.options);
  },

  async enqueueMany(settings) {
    const jobs = [1, 2, 3].map((n) => ({ name: "welcome", payload: n, priority: n }));
    return connect(settings).queue("emails").enqueueMany([...jobs, { name: "welcome", id: "own" }]);
  },

  async refusedJobs(settings) {
    const emails = connect(settings).queue("emails");
    return each({
      priority: () => emails.enqueue("welcome", null, { priority: 11 }),
      many: () => emails.enqueueMany([{ name: "welcome" }, { name: "wel come" }]),
      token: () => connect({ ...settings, token: "wrong-0123456789abcdef" }).queue("emails").enqueue("welcome"),
    });
  },

  async cancel(settings) {
    const emails = connect(settings).queue("emails");
    await emails.cancel("a1");
    return each({ wait: () => emails.wait("a1"), unknown: () => emails.cancel("nobody") });
  },

  async requeue(settings) {
    return thrown(() => connect(settings).queue("emails").requeue("a1"));
  },

  async changesWithoutKeys(settings) {
    const requeue = (given, id) => connect({ ...settings, ...given }).queue("emails").requeue(id);
    return names({ ...patiently(settings, requeue), nowhere: () => requeue({ url: settings.nowhere }, "away") });
  },

  async looks(settings) {
    const look = ({ retries, url = settings.url }, id) =>
      connect({ ...settings, url, retries: { ...retries, deadlineMs: 0 } }).queue("emails").job(id);
    return names({ ...patiently(settings, look), nowhere: () => look({ url: settings.nowhere }, "away") });
  },

  async changesWithKeys({ queues, attemptMs, ...settings }) {
    const client = connect({ ...settings, retries: { attemptMs } });
    return names(Object.fromEntries(queues.map((queue) => [queue, () => client.queue(queue).enqueue("send")])));
  },

  // As a connection whose socket keeps no program alive. One fetch ends when it is aborted, the others never do, as that of Node
  // may not where a body says gzip and is none.
  async silence({ url }) {
    const fetches = {
      ends: (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      hangs: () => new Promise(() => {}),
      body: async () => Object.assign(new Response("{}"), { text: () => new Promise(() => {}) }),
    };
    const job = (name, signal) => {
      const client = new Client({ url, fetch: fetches[name], retries: { deadlineMs: 300, attemptMs: 100 } });
      return client.queue("emails").job("a1", { signal });
    };
    const calls = {};
    for (const name of Object.keys(fetches)) {
      calls[name] = () => job(name);
      calls[`${name}, aborted`] = () => {
        const stopped = new AbortController();
        setTimeout(() => stopped.abort(), 20);
        return job(name, stopped.signal);
      };
    }
    return names(calls);
  },

  async wait(settings) {
    return connect({ ...settings, retries: { deadlineMs: 0, pollMs: 50 } }).queue("emails").wait("a1");
  },

  // A poll would end after a minute: that all of it is over at once is because it was aborted.
  async abort(settings) {
    await connect(settings).channel("news").subscribe("ada");
    return each({
      before: () => connect(settings).queue("emails").enqueue("welcome", null, { signal: AbortSignal.abort() }),
      poll: () => aborted(settings, (client, signal) => client.queue("emails").result("a1", { waitMs: 60_000, signal })),
      wait: () => aborted(settings, (client, signal) => client.queue("emails").wait("a1", { signal })),
      messages: () => aborted(settings, (client, signal) => drain(client, { subscriber: "ada", signal })),
      ownMessages: () => aborted(settings, (client, signal) => drain(client, { signal })),
    });
  },

  async lifeOfMessages(settings) {
    const channel = connect(settings).channel("news");
    await channel.subscribe("ada");
    const ids = [];
    for (const content of [{ n: 1 }, null, "é"]) ids.push(await channel.publish(content));
    const first = await channel.poll("ada", { maxMessages: 2 });
    const again = await channel.poll("ada", { maxMessages: 2 });
    await channel.acknowledge("ada", first.receipt);
    await channel.acknowledge("ada", first.receipt);
    const rest = await channel.poll("ada", { waitMs: 30_000 });
    await channel.unsubscribe("ada");
    await channel.unsubscribe("ada");
    return { ids, first, again, rest, gone: await thrown(() => channel.poll("ada")) };
  },

  async publish(settings) {
    return connect(settings).channel("news").publish({ n: 1 });
  },

  // The loop ends with the last message, so those of its poll are not acknowledged.
  async take(settings) {
    const taken = [];
    for await (const { content } of connect(settings).channel("news").messages(settings.options)) {
      if (taken.push(content) === settings.count) break;
    }
    return taken;
  },

  async takeFromOneThatGoes(settings) {
    const channel = connect(settings).channel("news");
    await channel.subscribe("ada");
    await channel.publish(1);
    return thrown(async () => {
      for await (const { content } of channel.messages({ subscriber: "ada" })) if (content === 1) await channel.unsubscribe("ada");
    });
  },

  async dsps({ url, token }) {
    const failures = [];
    const dsps = new Dsps({ http: { baseURL: url }, jwt: token, apiRetry: IMPATIENT });
    dsps.addEventListener("subscriptionCallbackError", ({ error, messages }) => failures.push([error.message, messages.length]));
    const channel = dsps.channel("news");
    const got = [];
    let wake;
    const subscription = await channel.subscribe({
      subscriberID: "ada",
      callback: async (messages) => {
        got.push(...messages);
        wake?.();
        if (messages.some(({ content }) => content === "bad")) throw new Error("cannot read this");
      },
      abnormalEndCallback: (error) => failures.push(String(error)),
    });
    const until = (count) => new Promise((resolve) => ((wake = () => got.length >= count && resolve()), wake()));
    const first = await channel.publish(null, "bad");
    await until(1);
    await channel.publish("own", { n: 2 });
    await until(2);
    await subscription.close();
    await subscription.close();
    return { got, first, failures, subscription: { ...subscription } };
  },

  async dspsEndsAbnormally({ url, token }) {
    const dsps = new Dsps({ http: { baseURL: url }, jwt: token, apiRetry: IMPATIENT });
    const channel = dsps.channel("news");
    const failed = [];
    dsps.addEventListener("apiFailed", (error) => failed.push(error.name));
    const removed = dsps.addEventListener("apiFailed", () => failed.push("removed"));
    dsps.removeEventListener("apiFailed", removed);
    const error = await new Promise((resolve, reject) => {
      const callback = () => new Client({ url, token }).channel("news").unsubscribe("ada");
      const subscribed = channel.subscribe({ subscriberID: "ada", callback, abnormalEndCallback: resolve });
      subscribed.then(() => channel.publish(null, 1)).catch(reject);
    });
    return { code: error.code, ours: SubscriptionUnrecoverableError.isInstance(error), failed };
  },

  async bananas(settings) {
    const { Client: BananasClient, JobPriority } = bananas;
    const client = new BananasClient({ ...settings, retries: IMPATIENT });
    const job = { name: "add", payload: { n: [1, 2] }, priority: JobPriority.HIGH };
    const done = await client.submitAndWait({ ...job, timeout: 60_000 });
    const later = { ...job, scheduledFor: new Date(Date.now() + 3_600_000) };
    const ids = {
      plain: await client.submitJob({ ...job, name: "later", description: "a greeting" }),
      routed: await client.submitJobWithRoute("resize", { width: 9 }, JobPriority.LOW, "gpu"),
      scheduled: await client.submitJobScheduled(later),
    };
    const jobs = {};
    for (const [name, id] of Object.entries(ids)) jobs[name] = await client.getJob(id);
    const none = { job: await client.getJob("nobody"), result: await client.getResult(ids.scheduled) };
    const errors = await each({
      priority: () => client.submitJob({ ...job, priority: "urgent" }),
      payload: () => client.submitJob({ ...job, payload: 1n }),
      token: () => new BananasClient({ ...settings, token: "wrong-0123456789abcdef" }).submitJob(job),
    });
    await client.close();
    return { done, ids, jobs, none, errors, kinds: Object.values(errors).map((error) => typeof bananas[error.name]) };
  },
};

/** What a call comes to whose signal is aborted as soon as it has sent something to wait for. */
async function aborted({ url, token }, call) {
  const stopped = new AbortController();
  const observed = (address, options) => {
    if (options.method === "GET") setTimeout(() => stopped.abort(), 50);
    return fetch(address, options);
  };
  return call(new Client({ url, token, fetch: observed }), stopped.signal);
}

/** Take messages, of which there are none. */
async function drain(client, options) {
  for await (const message of client.channel("news").messages(options)) throw new Error(message.id);
}

/** One call for each of some jobs, with as much patience as the job has. */
function patiently({ patience }, call) {
  const entries = Object.entries(patience);
  return Object.fromEntries(entries.map(([id, attemptMs]) => [id, () => call({ retries: { attemptMs } }, id)]));
}

/** The name of what each of these throws, "" for nothing. */
async function names(attempts) {
  const found = Object.entries(await each(attempts));
  return Object.fromEntries(found.map(([name, error]) => [name, error === null ? "" : error.name]));
}

/** What each of these throws, by their names. */
async function each(attempts) {
  const found = {};
  for (const [name, attempt] of Object.entries(attempts)) found[name] = await thrown(attempt);
  return found;
}

/** What a call throws, as plain JSON; null where it throws nothing. */
async function thrown(attempt) {
  try {
    await attempt();
    return null;
  } catch (error) {
    const { name, message, status, field, value, bound, state } = error;
    return { name, message, status, field, value: String(value), bound, state, ours: error instanceof ClientError };
  }
}

export async function run(name, settings) {
  return scenarios[name](settings);
}
