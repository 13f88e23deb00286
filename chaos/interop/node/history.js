/**
 * The history on disk, as `record/history.py` describes it: one unbuffered write per call, rows numbered from 0 without gaps, an
 * `open` row first and a `close` row last. A process that is killed leaves all that it has written.
 */
'use strict';

const fs = require('fs');
const os = require('os');

/** The schema that these rows are of; `record.history.SCHEMA_VERSION`. */
const SCHEMA_VERSION = 11;

const TABLE = Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

/** CRC-32 of a text in UTF-8, as `zlib.crc32` of Python counts it. Node has one of its own only since version 20.15. */
function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text, 'utf8')) crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** CLOCK_MONOTONIC in nanoseconds, as JSON text: it has more digits than a number of JavaScript keeps apart. */
function monotonicNs() {
  return process.hrtime.bigint();
}

function bootId() {
  try {
    return fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch (error) {
    return '';
  }
}

/** JSON of a row's columns; undefined ones are left out, big integers are written in full. */
function columns(row) {
  return Object.entries(row)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${typeof value === 'bigint' ? value : JSON.stringify(value)}`)
    .join(',');
}

class HistoryFile {
  constructor(path, proc, role) {
    this.proc = proc;
    this.seq = 0;
    this.recorderNs = 0n;
    this.descriptor = fs.openSync(path, 'ax');
    const about = { host: os.hostname(), boot_id: bootId(), pid: process.pid, version: `node ${process.version}` };
    this.append([{ kind: 'open', role, ...about }]);
  }

  /** Write rows in one system call, before whatever they announce is sent. */
  append(rows) {
    if (this.descriptor === null) return;
    const startedNs = monotonicNs();
    const lines = rows.map((row) => {
      const head = { v: SCHEMA_VERSION, seq: this.seq++, proc: this.proc, t_ns: startedNs };
      return `{${columns(head)},${columns(row)}}\n`;
    });
    fs.writeSync(this.descriptor, lines.join(''));
    this.recorderNs += monotonicNs() - startedNs;
  }

  close() {
    if (this.descriptor === null) return;
    this.append([{ kind: 'close', rows: this.seq + 1, recorder_ns: this.recorderNs }]);
    fs.closeSync(this.descriptor);
    this.descriptor = null;
  }
}

module.exports = { HistoryFile, SCHEMA_VERSION, crc32, monotonicNs };
