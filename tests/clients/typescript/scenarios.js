// What the tests have the TypeScript client do, the same in Node and in Chromium. Each scenario gets the settings of its test, and
// returns plain JSON for the test to look at.

import { Client, ClientError } from "@ironclaim/client";

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
};

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
