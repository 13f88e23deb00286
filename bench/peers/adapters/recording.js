// Shared by the Node adapters: the order (see order.py), the records, and the loops that enqueue.
"use strict";
const fs = require("node:fs");

const order = JSON.parse(process.env.PEERS_ORDER);
if (order.history) {
  module.exports = require("./drilled.js");
  return;
}
const { jobs, payload, settings } = order;
const ENQUEUED = 0, STARTED = 1, ENDED = 2, STARTED_AGAIN = 3;
const BULK = 1000, WARM_UP = order.warm_up;

// Node has no shared memory with a file: times are kept here and written every 5 ms, in one piece for each kind.
const file = fs.openSync(order.records, "r+");
const cells = [0, 1, 2, 3].map(() => new BigInt64Array(jobs));
const dirty = [0, 1, 2, 3].map(() => [Infinity, -1]);
let timer = null;
if (order.role === "work") {
  for (const which of [STARTED, ENDED, STARTED_AGAIN]) fs.readSync(file, cells[which], 0, jobs * 8, which * jobs * 8);
}

function flush() {
  timer = null;
  for (const which of [0, 1, 2, 3]) {
    const [low, high] = dirty[which];
    // With two workers each writes its own jobs only.
    for (let number = low; number <= high; number += 1) {
      if (cells[which][number] === 0n || written[which][number]) continue;
      let end = number;
      while (end + 1 <= high && cells[which][end + 1] !== 0n && !written[which][end + 1]) end += 1;
      fs.writeSync(file, cells[which], number * 8, (end - number + 1) * 8, (which * jobs + number) * 8);
      written[which].fill(1, number, end + 1);
      number = end;
    }
    dirty[which] = [Infinity, -1];
  }
}
const written = cells.map((times) => Uint8Array.from(times, (time) => (time === 0n ? 0 : 1)));

function record(which, number) {
  if (number < 0) return;
  cells[which][number] = process.hrtime.bigint();
  const range = dirty[which];
  if (number < range[0]) range[0] = number;
  if (number > range[1]) range[1] = number;
  if (timer === null) timer = setTimeout(flush, 5);
}

async function handle(number) {
  record(number >= 0 && cells[STARTED][number] !== 0n ? STARTED_AGAIN : STARTED, number);
  if (order.handler_s && number >= 0) await new Promise((resolve) => setTimeout(resolve, order.handler_s * 1000));
  record(ENDED, number);
}

const cpuSeconds = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e6; };

// `enqueue(number)` and `enqueueBulk(numbers)` return promises.
async function produce(enqueue, enqueueBulk) {
  if (order.way !== "bulk") for (let turn = 0; turn < WARM_UP; turn += 1) await enqueue(-1);
  const flights = order.way === "in_flight" ? order.in_flight : 1;
  if (order.way !== "bulk" && WARM_UP) await Promise.all(Array.from({ length: flights }, () => enqueue(-1)));
  const cpu = cpuSeconds(), from = process.hrtime.bigint();
  if (order.way === "bulk") {
    for (let start = 0; start < jobs; start += BULK) {
      await enqueueBulk(Array.from({ length: Math.min(BULK, jobs - start) }, (_, at) => start + at));
    }
  } else if (order.way === "paced") {
    for (let number = 0; number < jobs; number += 1) {
      const wait = 50 + (number * 1000) / order.rate - Number(process.hrtime.bigint() - from) / 1e6;
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      record(ENQUEUED, number);
      await enqueue(number);
    }
  } else {
    let next = 0;
    const lane = async () => {
      while (next < jobs) {
        const number = next;
        next += 1;
        record(ENQUEUED, number);
        await enqueue(number);
      }
    };
    await Promise.all(Array.from({ length: flights }, lane));
  }
  const seconds = Number(process.hrtime.bigint() - from) / 1e9;
  console.log(JSON.stringify({ seconds, cpu_s: cpuSeconds() - cpu }));
  flush();
  process.exit(0);
}

module.exports = { order, settings, handle, produce, data: (number) => ({ number, ...payload }) };
