// BullMQ: one job at once by default.
"use strict";
const { Queue, Worker } = require("bullmq");
const { order, settings, handle, produce, data } = require("./recording.js");

const connection = { host: order.host, port: order.port };
const options = { removeOnComplete: true };
if (order.role === "work") {
  new Worker(order.queue, async (job) => handle(job.data.number), { connection, ...settings });
} else {
  const queue = new Queue(order.queue, { connection });
  produce(
    (number) => queue.add("job", data(number), options),
    (numbers) => queue.addBulk(numbers.map((number) => ({ name: "job", data: data(number), opts: options }))),
  );
}
