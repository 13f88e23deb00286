// What a user writes: it compiles with the strictest settings.
import { Client, type Enqueued, JobFailed, type Message, type Result } from "@ironclaim/client";

const client = new Client({ url: "http://127.0.0.1:8080", token: "secret" });
const queue = client.queue("emails");
const signal = AbortSignal.timeout(1000);
export const enqueued: Enqueued = await queue.enqueue("welcome", { to: "ada" }, { priority: 8, signal });
export const result: Result = await queue.result(enqueued.id, { waitMs: 100 });
export const answer: { sum: number } = await queue.call<{ sum: number }>("add", [1, 2]);
for await (const message of client.channel("news").messages<{ text: string }>({ subscriber: "ada" })) {
  const read: Message<{ text: string }> = message;
  console.log(read.content.text);
}
// @ts-expect-error a priority is a number
await queue.enqueue("welcome", null, { priority: "high" });
// @ts-expect-error there is no such option
await queue.enqueue("welcome", null, { priorty: 8 });
export const failed = (error: unknown): string => (error instanceof JobFailed ? error.state : "");
