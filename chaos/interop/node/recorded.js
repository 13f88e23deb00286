/**
 * Makes a queue of the original `bull` write down what it does, without changing what it sends.
 *
 * The queue's own methods say which operation begins; its Redis client says when something of it is sent. In front of and behind
 * each command of an operation goes a TIME on the same connection, so that the three travel in one pipeline: `srv_from_us` and
 * `srv_us` are the interval of server time in which the operation happened.
 *
 * | operation | what Bull does |
 * |---|---|
 * | enqueue | `add` |
 * | claim | takes the lock of a job: one that it popped, or one that is active and has none. Its token is the lock, which is one for |
 * |       | all jobs of a queue object, with the server's time before the lock was taken for a fence |
 * | extend | sets the lock again, whoever has it |
 * | finish | `moveToCompleted`, which does not ask for the lock |
 * | retry, bury | `moveToFailed`: several commands, of which one may be the last that is sent |
 */
'use strict';

const Job = require('bull/lib/job');
const scripts = require('bull/lib/scripts');
const { crc32, monotonicNs } = require('./history');

/** For how long Bull locks a job, in ms. */
const LOCK_MS = 5000;

/** Commands of the promisified client that change something. */
const COMMANDS = ['evalAsync', 'evalshaAsync', 'hmsetAsync', 'setAsync'];

/** The payload as it stands in Redis: what Bull hands out is what it has made of it. */
const fromData = Job.fromData;
Job.fromData = function (queue, id, fields) {
  const job = fromData.call(Job, queue, id, fields);
  job.payload = fields.data;
  return job;
};

/** One operation on its way: its rows are written when its first command is sent, and when it has come to an end. */
class Operation {
  constructor(recorder, f, items, more = {}) {
    this.recorder = recorder;
    this.items = items;
    this.head = { kind: 'operation', f, op: '', queue: recorder.queue.name, ...more };
    this.sends = 0;
  }

  /** Send a command of this operation between two questions for the time. */
  send(client, command) {
    const nowNs = monotonicNs();
    if (this.sends++ === 0) {
      this.head.op = this.recorder.nextOperation();
      this.head.first_send_ns = nowNs;
      this.recorder.file.append([{ ...this.head, type: 'invoke', items: this.items }]);
    }
    this.lastSendNs = nowNs;
    const before = client.timeAsync();
    const answer = command();
    const after = client.timeAsync();
    // The time after it is what Redis answers last: once it is there, so is the rest.
    return Promise.all([before, answer, after]).then(([from, value, until]) => {
      if (this.srvFromUs === undefined) this.srvFromUs = microseconds(from);
      this.srvUs = microseconds(until);
      return value;
    });
  }

  complete(type, result, items, error) {
    if (this.sends === 0) return;
    const sent = { last_send_ns: this.lastSendNs, done_ns: monotonicNs(), sends: 1, errors: [] };
    const server = { srv_from_us: this.srvFromUs, srv_us: this.srvUs };
    this.recorder.file.append([{ ...this.head, type, result, error, ...sent, ...server, items }]);
  }

  /** Nobody knows whether a call happened that was answered by an error. */
  failed(error) {
    this.complete('info', undefined, this.items, String(error));
  }
}

class Recorder {
  constructor(queue, file, sink) {
    this.queue = queue;
    this.file = file;
    this.sink = sink;
    this.operations = 0;
    this.claims = 0;
    /** Handlers that are running: Bull's own count also keeps jobs whose lock it did not get. */
    this.running = 0;
    /** Operations that have begun, by a word that their commands carry: a key, or the payload of a new job. */
    this.begun = new Map();
    queue.recorder = this;
    this.followClient();
  }

  /** True while a handler runs or a call is on its way. */
  busy() {
    return this.running > 0 || this.begun.size > 0;
  }

  nextOperation() {
    return `${this.file.proc}-${this.operations++}.0`;
  }

  followClient() {
    const client = this.queue.client;
    client.on('ready', () => this.connected(client.server_info));
    for (const name of COMMANDS) {
      const command = client[name];
      client[name] = (...words) => {
        const operation = words.map((word) => this.begun.get(word)).find(Boolean);
        const call = () => command.apply(client, words);
        return operation ? operation.send(client, call) : call();
      };
    }
  }

  connected(info) {
    const server = { server_run_id: info.run_id, replid: info.master_replid, server_role: info.role };
    this.file.append([{ kind: 'connection', ...server }]);
  }

  /** Run `call` as an operation whose commands carry `word`; `done` makes items of its value, `undone` of its error. */
  run(word, operation, call, done, undone = (error) => operation.failed(error)) {
    this.begun.set(word, operation);
    const over = () => this.begun.get(word) === operation && this.begun.delete(word);
    return call().then(
      (value) => {
        over();
        done(value);
        return value;
      },
      (error) => {
        over();
        undone(error);
        throw error;
      }
    );
  }

  add(data, opts, intendedNs) {
    const payload = JSON.stringify(data);
    const asked = { delay_ms: opts.delay || 0, crc: crc32(payload) };
    // Until it is answered nobody knows the id.
    const operation = new Operation(this, 'enqueue', [], { intended_ns: intendedNs });
    const created = (job) => {
      const dueMs = job.delay ? job.timestamp + job.delay : undefined;
      operation.complete('ok', 'created', [{ job: String(job.jobId), result: 'created', ...asked, run_at_ms: dueMs }]);
    };
    return this.run(payload, operation, () => this.queue.add(data, opts), created);
  }

  /** Take the lock of a job by `call`, whose value is truthy when that worked. */
  claim(job, call) {
    const mine = { incarnation: this.queue.token, counter: ++this.claims, lease_ms: LOCK_MS };
    const operation = new Operation(this, 'claim', [], mine);
    const claimed = (locked) => {
      if (!locked) return operation.complete('ok', 'empty', []);
      job.lease = { job: String(job.jobId), fence: Math.floor(operation.srvFromUs / 1000), nonce: this.queue.token };
      operation.complete('ok', 'leased', [{ ...job.lease, ...about(job), result: 'leased', deadline_ms: job.lease.fence + LOCK_MS }]);
    };
    return this.run(job.lockKey(), operation, call, claimed);
  }

  extend(job, call) {
    const operation = new Operation(this, 'extend', [job.lease], { lease_ms: LOCK_MS });
    const extended = (locked) => {
      const deadlineMs = Math.floor(operation.srvFromUs / 1000) + LOCK_MS;
      operation.complete('ok', '', [{ ...job.lease, result: locked ? 'ok' : 'stale', deadline_ms: deadlineMs }]);
    };
    return this.run(job.lockKey(), operation, call, extended);
  }

  finish(job, call) {
    const operation = new Operation(this, 'finish', [job.lease]);
    const done = () => operation.complete('ok', '', [{ ...job.lease, result: 'ok', outcome: 'finished' }]);
    return this.run(this.queue.toKey(job.jobId), operation, call, done, (error) => ended(operation, job, error));
  }

  fail(job, failure, call) {
    // The attempt is counted inside the call.
    const last = job.attemptsMade + 1 >= job.attempts;
    const asked = { ...job.lease, error: String(failure), delay_ms: last ? undefined : backoffMs(job) };
    const operation = new Operation(this, last ? 'bury' : 'retry', [asked]);
    const outcome = last ? 'buried' : 'retried';
    const done = () => operation.complete('ok', '', [{ ...asked, result: 'ok', outcome }]);
    return this.run(this.queue.toKey(job.jobId), operation, call, done, (error) => ended(operation, job, error));
  }

  /** Run the handler of a job, and write down when it began and how it ended; then what it did goes to the sink. */
  handle(job, handler) {
    const startNs = monotonicNs();
    const head = { kind: 'operation', f: 'handle', op: this.nextOperation(), queue: this.queue.name, first_send_ns: startNs };
    this.file.append([{ ...head, type: 'invoke', items: [job.lease] }]);
    const effect = () => this.sink.append([{ kind: 'effect', items: [{ ...job.lease, crc: crc32(job.payload) }] }]);
    this.running++;
    const over = (type, error) => {
      this.running--;
      this.file.append([{ ...head, type, done_ns: monotonicNs(), error, items: [{ ...job.lease, error }] }]);
    };
    return handler(job, effect).then(
      (value) => {
        over('ok');
        return value;
      },
      (error) => {
        over('fail', String(error));
        throw error;
      }
    );
  }
}

/** What the claim of a job tells of it. When a retry was due is nowhere any more. */
function about(job) {
  const first = job.attemptsMade === 0 && job.opts.delay;
  return {
    due_ms: first ? job.timestamp + job.opts.delay : 0,
    enqueued_ms: job.timestamp,
    failures: job.attemptsMade,
    crc: crc32(job.payload),
  };
}

/** How long Bull will wait before it runs a job again that is failing now. */
function backoffMs(job) {
  const made = { attemptsMade: job.attemptsMade + 1, opts: job.opts };
  return Number(Job.prototype._getBackOff.call(made));
}

/** A call that ends a lease has failed: with this error it found no job, and did nothing. */
function ended(operation, job, error) {
  if (!/^Error: Missing Job /.test(String(error))) return operation.failed(error);
  return operation.complete('ok', '', [{ ...job.lease, result: 'stale', outcome: '' }]);
}

function microseconds([seconds, microseconds]) {
  return Number(seconds) * 1000000 + Number(microseconds);
}

/** Have the methods of Bull that begin an operation on a job call `begin` where its queue is recorded. */
function follow(object, name, jobOf, begin) {
  const original = object[name];
  object[name] = function (...words) {
    const call = () => original.apply(this, words);
    const job = jobOf.call(this, ...words);
    return job.queue.recorder ? begin(job.queue.recorder, job, call, words) : call();
  };
}

const itself = function () {
  return this;
};

follow(Job.prototype, 'takeLock', itself, (recorder, job, call, [, renew]) => (renew ? recorder.extend(job, call) : recorder.claim(job, call)));
follow(scripts, 'getStalledJob', (queue, job) => job, (recorder, job, call) => recorder.claim(job, call));
follow(Job.prototype, 'moveToCompleted', itself, (recorder, job, call) => recorder.finish(job, call));
follow(Job.prototype, 'moveToFailed', itself, (recorder, job, call, [error]) => recorder.fail(job, error, call));

module.exports = { Recorder };
