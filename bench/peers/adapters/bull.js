// Bull 4: one job at once by default.
"use strict";
const Queue = require("bull");
const { order, settings, handle, produce, data } = require("./recording.js");

const queue = new Queue(order.queue, { redis: { host: order.host, port: order.port } });
const options = { removeOnComplete: true };
if (order.role === "work") {
  queue.process(settings.concurrency ?? 1, async (job) => handle(job.data.number));
} else {
  produce(
    (number) => queue.add(data(number), options),
    (numbers) => queue.addBulk(numbers.map((number) => ({ data: data(number), opts: options }))),
  );
}
