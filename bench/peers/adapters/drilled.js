// What recording.js is in a drill: histories instead of times, and load at a steady rate until SIGTERM (see drilled.py).
"use strict";
const fs = require("node:fs");

const order = JSON.parse(process.env.PEERS_ORDER);
const { history, payload } = order;
const proc = `${history.proc}.${process.pid}`;
const file = fs.openSync(history.path, "a");
const LOOK_MS = 50, GOLDEN = 0.6180339887498949;
let seq = 0, operations = 0;

// JSON of columns; big integers are written in full.
const columns = (row) =>
  Object.entries(row).map(([name, value]) => `"${name}":${typeof value === "bigint" ? value : JSON.stringify(value)}`).join(",");

function append(kind, row) {
  const head = { v: history.version, seq: seq++, proc, t_ns: process.hrtime.bigint(), kind };
  fs.writeSync(file, `{${columns(head)}${Object.keys(row).length ? "," : ""}${columns(row)}}\n`);
}

// A row before an operation on a job; what is returned writes the one after it. The operation stands in for a lease's nonce.
function begin(f, number) {
  const op = `${proc}-${++operations}`, item = { job: String(number), nonce: op };
  const head = { f, op, queue: order.queue, first_send_ns: process.hrtime.bigint() };
  append("operation", { ...head, type: "invoke", items: [item] });
  return (type, more = {}) => {
    const done = f === "enqueue" && type === "ok" ? { ...item, result: "created" } : item;
    append("operation", { ...head, type, done_ns: process.hrtime.bigint(), items: [done], ...more });
  };
}

async function handle(number) {
  const [least, most] = history.work_s, end = begin("handle", number);
  const workMs = (least + (most - least) * ((number * GOLDEN) % 1)) * 1000;
  await new Promise((resolve) => setTimeout(resolve, workMs));
  end("ok");
}

// `enqueue(number)` returns a promise. A job whose call fails may have been sent all the same.
async function produce(enqueue) {
  let ended = false;
  process.on("SIGTERM", () => { ended = true; });
  const start = process.hrtime.bigint();
  for (let number = 0; !ended; ) {
    const wait = (number * 1000) / order.rate - Number(process.hrtime.bigint() - start) / 1e6;
    if (wait > 0) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(wait, LOOK_MS)));
      continue;
    }
    const end = begin("enqueue", number);
    await enqueue(number).then(() => end("ok"), (error) => end("info", { error: String(error) }));
    number += 1;
  }
  append("close", {});
  process.exit(0);
}

// The mark is how the harness finds a job in the keys of the server whatever their format.
const data = (number) => ({ number, ...payload, mark: `job-mark:${number}:` });

append("open", { role: order.role === "produce" ? "producer" : "sink", pid: process.pid });
module.exports = { order, settings: order.settings, handle, produce, data };
