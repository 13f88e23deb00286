"use strict";
// What-if: the arithmetic of reports/capacity/plan.py on the numbers in the page. Nothing is asked of the network.
const known = JSON.parse(document.getElementById("basis").textContent);
const basis = known.basis, prices = known.prices, GIB = 2 ** 30;

const alone = (count) => 1 + basis.contention * (count - 1) + basis.coherence * count * (count - 1);
const efficiency = (workers) => Math.min(1, alone(basis.workers_met) / alone(workers));
const drained = (jobs, capacity, rate) => (capacity > rate ? jobs / (capacity - rate) : null);

function perWorker(handlerMs) {
  const places = (1000 * basis.handlers_at_once) / (handlerMs + basis.overhead_ms);
  return basis.worker_us_per_job ? Math.min(places, 1e6 / basis.worker_us_per_job) : places;
}

function meeting(asked) {
  const slackMs = asked.p99_ms - asked.handler_ms + basis.handler_ms;
  return Math.max(0, ...basis.steps.filter(([p99]) => p99 <= slackMs).map(([, busy]) => busy));
}

function workersFor(rate, each) {
  let workers = Math.max(1, Math.ceil(rate / each - 1e-9)), before = 0, reached;
  while ((reached = workers * each * efficiency(workers)) < rate * (1 - 1e-9)) {
    if (reached <= before) return null;
    workers += 1;
    before = reached;
  }
  return workers;
}

function sized(asked, utilisation) {
  const each = perWorker(asked.handler_ms) * utilisation;
  const first = Math.ceil(asked.rate / basis.shard_rate_max / asked.server_utilisation - 1e-9);
  for (let shards = first; shards <= known.shards_max; shards += 1) {
    const workers = workersFor(asked.rate / shards, each);
    if (workers) return [shards, workers];
  }
  return null;
}

function plan(asked) {
  const met = meeting(asked), utilisation = Math.min(asked.worker_utilisation, met);
  const size = met && asked.p99_ms > asked.handler_ms ? sized(asked, utilisation) : null;
  if (!size) return null;
  const [shards, each] = size, workers = shards * each + 1;
  const busy = perWorker(asked.handler_ms) * efficiency(Math.ceil(workers / shards));
  const ceiling = shards * basis.shard_rate_max;
  const capacity = Math.min(workers * busy, ceiling), left = Math.min((workers - 1) * busy, ceiling);
  const backlog = asked.rate * asked.backlog_s, more = asked.payload_bytes - basis.payload_bytes;
  const memory = backlog * Math.max(1, basis.bytes_per_waiting + more) + asked.rate * asked.retained_s * basis.bytes_per_retained;
  const memoryGib = (memory * basis.fragmentation) / GIB, bytesPerJob = Math.max(1, basis.bytes_per_job + 2 * more);
  const stopped = basis.primary_lost_ms === null ? null : ((asked.rate / shards) * basis.primary_lost_ms) / 1000;
  const copies = 1 + prices.replicas;
  const hourly = workers * prices.worker_per_hour + shards * copies * prices.server_per_hour
    + memoryGib * copies * prices.memory_gib_per_hour;
  return {
    utilisation, shards, workers, capacity,
    server_share: (asked.rate * basis.server_us_per_job) / 1e6 / shards,
    memory_gib: memoryGib,
    network_mbit_per_s: (asked.rate * bytesPerJob * 8) / 1e6,
    drain_s: drained(backlog, capacity, asked.rate),
    worker_lost_headroom: left / asked.rate - 1,
    primary_lost_s: stopped === null ? null : drained(stopped, capacity / shards, asked.rate / shards),
    cost_per_million: (hourly / (asked.rate * 3600)) * 1e6 + ((bytesPerJob * 1e6) / GIB) * prices.network_per_gib,
  };
}

const digits = (places) => (value) => value.toLocaleString("en-US", { maximumFractionDigits: places });
const percent = (value) => `${Math.round(value * 100)} %`;
const shown = {
  workers: digits(0), shards: digits(0), capacity: digits(0), utilisation: percent, server_share: percent,
  memory_gib: digits(2), network_mbit_per_s: digits(0), drain_s: digits(0), worker_lost_headroom: percent,
  primary_lost_s: digits(1), cost_per_million: digits(3),
};

// Rates, times and sizes span orders of magnitude: such a slider moves the logarithm.
const value = (input) => (input.dataset.log ? 10 ** Number(input.value) : Number(input.value));

function show() {
  const asked = {};
  for (const input of document.querySelectorAll("#sliders input")) {
    const number = value(input);
    asked[input.name] = number;
    const text = digits(number < 10 ? 2 : 0)(number);
    document.getElementById(`at-${input.name}`).textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  const found = plan(asked);
  for (const [name, words] of Object.entries(shown)) {
    const number = found ? found[name] : null;
    document.getElementById(`if-${name}`).textContent = number === null ? "\u2013" : words(number);
  }
  const far = [["rate", basis.rate_met], ["payload_bytes", basis.payload_bytes], ["handler_ms", basis.handler_ms]]
    .filter(([name, measured]) => measured > 0 && asked[name] > known.extrapolation_max * measured)
    .map(([name, measured]) => `${name} is ${(asked[name] / measured).toFixed(1)} times what was measured`);
  document.getElementById("doubt").textContent = !found
    ? "No plan: no step that was measured met such a p99 with such a handler."
    : far.length ? `Beyond the measurement, so only --simulate would answer: ${far.join("; ")}.` : "Within what was measured.";
}

document.getElementById("sliders").addEventListener("input", show);
show();
