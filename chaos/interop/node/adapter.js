/**
 * The original `bull` as a process of a run.
 *
 *     node adapter.js produce|consume|talk '{"queue": "mixed", "port": 6379, ...}'
 *
 * `produce` sends the jobs of the file `plan`, one line of JSON each: at_ms, data, opts. `consume` works on the queue. Both write
 * `history` (`sink` too) as process `proc`, and end well at SIGTERM. `talk` does what each line of its input says and answers with
 * a line: it is for tests that want to see what Bull makes of a keyspace.
 *
 * The handler of `consume` and `talk` does what the payload says: `work_ms` to wait, `fail_first` runs to fail before one returns
 * `value`.
 */
'use strict';

const fs = require('fs');
const readline = require('readline');
const Queue = require('bull');
const { HistoryFile, monotonicNs } = require('./history');
const { Recorder } = require('./recorded');

const [mode, settings] = [process.argv[2], JSON.parse(process.argv[3])];

/** How often it is looked whether the handlers that were running at SIGTERM are over, in ms. */
const LOOK_MS = 10;
const QUIET_LOOKS = 3;

function connect() {
  const queue = Queue(settings.queue, settings.port, '127.0.0.1', { keyPrefix: settings.prefix || 'bull' });
  queue.on('error', (error) => console.error(`bull: ${error}`));
  return queue;
}

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function work(job, effect) {
  const { work_ms: workMs = 0, fail_first: failFirst = 0, value } = job.data;
  await later(workMs);
  if (job.attemptsMade < failFirst) throw new Error(`planned failure ${job.attemptsMade + 1} of ${failFirst}`);
  effect();
  return value;
}

/** Close the files of the history and leave. Bull's own `close` waits for the active jobs of everybody. */
function leave(files) {
  files.forEach((file) => file.close());
  process.exit(0);
}

async function produce() {
  const jobs = fs.readFileSync(settings.plan, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const file = new HistoryFile(settings.history, settings.proc, 'producer');
  const queue = connect();
  const recorder = new Recorder(queue, file);
  let stopping = false;
  const sent = [];
  process.once('SIGTERM', () => {
    stopping = true;
    Promise.allSettled(sent).then(() => leave([file]));
  });
  await new Promise((resolve) => queue.once('ready', resolve));
  const startNs = monotonicNs();
  for (const { at_ms: atMs, data, opts } of jobs) {
    const intendedNs = startNs + BigInt(Math.round(atMs * 1e6));
    // A timer may end a little early.
    for (let leftMs; (leftMs = Number(intendedNs - monotonicNs()) / 1e6) > 0; ) await later(Math.ceil(leftMs));
    if (stopping) return;
    const answer = recorder.add(data, opts, intendedNs);
    answer.catch((error) => console.error(`add: ${error}`));
    sent.push(answer);
  }
}

function consume() {
  const file = new HistoryFile(settings.history, settings.proc, 'worker');
  const sink = new HistoryFile(settings.sink, settings.proc, 'sink');
  const queue = connect();
  const recorder = new Recorder(queue, file, sink);
  process.once('SIGTERM', () => {
    queue.pause(true, true);
    let quiet = 0;
    // A job that has ended for Bull is still being moved where it belongs, and unlocked after that.
    setInterval(() => {
      quiet = recorder.busy() ? 0 : quiet + 1;
      if (quiet === QUIET_LOOKS) leave([file, sink]);
    }, LOOK_MS);
  });
  queue.process(settings.concurrency || 1, (job) => recorder.handle(job, work));
}

/** What a test may know of a job: its fields as they are once it is in the state that is told. */
async function shown(found) {
  if (!found) return null;
  const state = await found.getState();
  const job = (await found.queue.getJob(found.jobId)) || found;
  const { jobId, data, opts, delay, timestamp, attempts, attemptsMade, stacktrace, returnvalue } = job;
  return { jobId, data, opts, delay, timestamp, attempts, attemptsMade, stacktrace, returnvalue, progress: job.progress(), state };
}

const COMMANDS = {
  add: async (queue, data, opts) => shown(await queue.add(data, opts)),
  job: async (queue, id) => shown(await queue.getJob(id)),
  jobs: async (queue, state) => Promise.all((await queue[`get${state}`]()).map(shown)),
  count: (queue, state) => queue[`get${state}Count`](),
  pause: (queue) => queue.pause(),
  resume: (queue) => queue.resume(),
  retry: async (queue, id) => shown(await (await queue.getJob(id)).retry()),
  promote: async (queue, id) => (await queue.getJob(id)).promote(),
  remove: async (queue, id) => (await queue.getJob(id)).remove(),
  clean: (queue, graceMs, state) => queue.clean(graceMs, state),
  /** Work on the queue. The answer to `ran` is what came of it: event, job id, and the value or the error. */
  process: async (queue, concurrency) => {
    queue.process(concurrency, (job) => work(job, () => undefined));
  },
  ran: async (queue) => queue.ran,
};

function talk() {
  const now = Date.now;
  Date.now = () => now() + settings.ahead_ms;
  const queue = connect();
  queue.ran = [];
  for (const event of ['active', 'stalled']) queue.on(event, (job) => queue.ran.push([event, String(job.jobId), null]));
  queue.on('completed', (job, value) => queue.ran.push(['completed', String(job.jobId), value === undefined ? null : value]));
  queue.on('failed', (job, error) => queue.ran.push(['failed', String(job.jobId), String(error)]));
  const answer = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);
  queue.once('ready', () => answer({ value: 'ready' }));
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const [command, ...words] = JSON.parse(line);
    Promise.resolve()
      .then(() => COMMANDS[command](queue, ...words))
      .then(
        (value) => answer({ value: value === undefined ? null : value }),
        (error) => answer({ error: String(error) })
      );
  });
  lines.on('close', () => process.exit(0));
}

const MODES = { produce, consume, talk };

if (!MODES[mode]) {
  console.error(`adapter: mode is ${mode}: it must be one of ${Object.keys(MODES).join(', ')}`);
  process.exit(2);
}
MODES[mode]();
