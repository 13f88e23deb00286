// bee-queue: one job at once by default. Without checkStalledJobs it gives no job of a killed worker to another.
"use strict";
const Queue = require("bee-queue");
const { order, settings, handle, produce, data } = require("./recording.js");

const isWorker = order.role === "work";
const queue = new Queue(order.queue, {
  redis: { host: order.host, port: order.port }, isWorker, getEvents: false, removeOnSuccess: true,
});
// Without a listener an error of the connection ends the process.
queue.on("error", () => {});
if (isWorker) {
  queue.process(settings.concurrency ?? 1, async (job) => handle(job.data.number));
  queue.checkStalledJobs(5000, () => {});
} else {
  produce(
    (number) => queue.createJob(data(number)).save(),
    (numbers) => queue.saveAll(numbers.map((number) => queue.createJob(data(number)))),
  );
}
