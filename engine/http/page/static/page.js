// The live part of the page: samples of a queue come as server-sent events, and are drawn as SVG. There is no inline script or
// style: what is drawn gets its looks from classes.
"use strict";

(() => {
  const KEPT = 600;
  // The charts show so long at most; and with no sample for so long, nobody has watched meanwhile.
  const SHOWN_MS = 600_000, GAP_MS = 5_000;
  const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 22;
  const SVG = "http://www.w3.org/2000/svg";
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

  const number = (value) => value === null || value === undefined ? "–" : (Math.abs(value) >= 100 ? whole : fine).format(value);

  const length = (ms) => {
    if (ms === null || ms === undefined) return "–";
    if (ms < 1000) return `${fine.format(ms)} ms`;
    if (ms < 60_000) return `${fine.format(ms / 1000)} s`;
    if (ms < 3_600_000) return `${fine.format(ms / 60_000)} min`;
    return ms < 86_400_000 ? `${fine.format(ms / 3_600_000)} h` : `${fine.format(ms / 86_400_000)} d`;
  };

  // What each chart draws: from a sample the values of its series, by title. Those of `rates` count what happened since the
  // sample before, so they are drawn as steps: a slope would show rates that never were.
  const CHARTS = {
    rates: (sample) => [["arriving", sample.arrived_per_s], ["finished", sample.finished_per_s], ["dead", sample.dead_per_s]],
    names: (sample) => sample.names.length > 1 || sample.names.length === 0
      ? [["all", sample.waiting], ...sample.names.slice(0, 7)]
      : sample.names,
    times: (sample) => [["p50", sample.p50_ms], ["p99", sample.p99_ms]],
    oldest: (sample) => [["oldest", sample.oldest_ms]],
  };

  const STEPS = new Set(["rates"]);

  const known = (value) => value !== null && value !== undefined;

  // Whether a line may be drawn from one sample to the next: not across a time in which nobody watched, or the server was away.
  const follows = (before, sample) => !sample.after_error && sample.at_ms - before.at_ms <= GAP_MS;

  const element = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // The least round number that is not below `value`: 1, 2 or 5 times a power of ten.
  const ceiling = (value) => {
    if (value <= 0) return 1;
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
  };

  // The samples of the last ten minutes, without those of a server that was away; the next one of each knows of it.
  const shown = (samples) => {
    const found = [];
    let away = false;
    for (const sample of samples) {
      if (!sample.error) found.push(away ? { ...sample, after_error: true } : sample);
      away = Boolean(sample.error);
    }
    return found.filter((sample) => sample.at_ms >= found[found.length - 1].at_ms - SHOWN_MS);
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.svg = figure.querySelector("svg");
      this.legend = figure.querySelector(".legend");
      this.title = figure.querySelector("h2").textContent;
      this.read = CHARTS[figure.dataset.chart];
      this.steps = STEPS.has(figure.dataset.chart);
      this.show = figure.dataset.unit === "ms" ? length : number;
      this.samples = [];
      this.at = null;
      const place = (event) => {
        const box = this.svg.getBoundingClientRect();
        this.at = event.clientX - box.left;
        this.draw();
      };
      this.svg.addEventListener("pointermove", place);
      this.svg.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    }

    draw(samples) {
      if (samples) this.samples = shown(samples);
      const found = this.samples;
      if (!found.length) return;
      // One unit of the figure is one pixel, so that its words keep their shape.
      const width = this.svg.clientWidth || 640, height = this.svg.clientHeight || 176;
      const titles = [...new Set(found.slice(-60).flatMap((sample) => this.read(sample).map(([title]) => title)))].slice(0, 8);
      const lines = titles.map((title) => found.map((sample) => (this.read(sample).find(([name]) => name === title) || [])[1]));
      const last = found[found.length - 1].at_ms, first = Math.min(found[0].at_ms, last - 60_000);
      const top = ceiling(Math.max(0, ...lines.flat().filter(known)));
      const x = (ms) => LEFT + (ms - first) / (last - first) * (width - LEFT - RIGHT);
      const y = (value) => height - BOTTOM - value / top * (height - TOP - BOTTOM);
      const drawn = [0, 0.5, 1].flatMap((share) => [
        element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(share * top), y2: y(share * top) }),
        element("text", { x: LEFT - 6, y: y(share * top) + 4, "text-anchor": "end" }, this.show(share * top)),
      ]);
      drawn.push(element("text", { x: LEFT, y: height - 4 }, `${length(last - first)} ago`));
      drawn.push(element("text", { x: width - RIGHT, y: height - 4, "text-anchor": "end" }, "now"));
      found.forEach((sample, at) => {
        if (at && !follows(found[at - 1], sample)) drawn.push(...this.gap(x(found[at - 1].at_ms), x(sample.at_ms), height));
      });
      lines.forEach((values, place) => {
        const hue = `hue-${place} dash-${Math.floor(place / 2) % 4}`;
        for (const piece of this.pieces(found, values)) {
          const points = piece.map(([ms, value]) => [x(ms), y(value)]);
          const path = points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L");
          if (!place) {
            const ends = [points[0][0].toFixed(1), points[points.length - 1][0].toFixed(1)];
            drawn.push(element("path", { class: `area hue-${place}`, d: `M${path}L${ends[1]} ${y(0)}L${ends[0]} ${y(0)}Z` }));
          }
          drawn.push(element("path", { class: `line ${hue}`, d: `M${path}` }));
        }
      });
      const looked = this.nearest(found, x);
      if (this.at !== null) drawn.push(element("line", { class: "cross", x1: x(found[looked].at_ms), x2: x(found[looked].at_ms), y1: TOP, y2: height - BOTTOM }));
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.replaceChildren(...drawn);
      this.legend.replaceChildren(...titles.map((title, place) => this.entry(title, place, lines[place][looked])));
      if (this.at !== null) this.legend.append(` ${length(last - found[looked].at_ms)} ago`);
      const words = titles.map((title, place) => `${title} ${this.show(lines[place][lines[place].length - 1])}`);
      this.svg.setAttribute("aria-label", `${this.title}: ${words.join(", ")}`);
    }

    // The stretches of a series without a gap, as times and values. A step lasts from the value before to its own.
    pieces(found, values) {
      const all = [];
      let piece = [], before = null;
      found.forEach((sample, at) => {
        if (at && !follows(found[at - 1], sample)) {
          all.push(piece);
          [piece, before] = [[], null];
        }
        const value = values[at];
        if (!this.steps) {
          if (known(value)) piece.push([sample.at_ms, value]);
          return;
        }
        const since = before === null && at && follows(found[at - 1], sample) ? found[at - 1].at_ms : before;
        if (known(value)) {
          if (since !== null) piece.push([since, value]);
          piece.push([sample.at_ms, value]);
          before = sample.at_ms;
        }
      });
      all.push(piece);
      return all.filter((one) => one.length);
    }

    // Where nobody watched, or the server was away.
    gap(from, to, height) {
      const made = [element("rect", { class: "gap", x: from, y: TOP, width: Math.max(1, to - from), height: height - TOP - BOTTOM })];
      if (to - from > 90) made.push(element("text", { class: "gap-words", x: (from + to) / 2, y: (height + TOP - BOTTOM) / 2, "text-anchor": "middle" }, "not watched"));
      return made;
    }

    nearest(found, x) {
      if (this.at === null) return found.length - 1;
      let best = 0;
      found.forEach((sample, at) => { if (Math.abs(x(sample.at_ms) - this.at) < Math.abs(x(found[best].at_ms) - this.at)) best = at; });
      return best;
    }

    entry(title, place, value) {
      const made = document.createElement("span");
      const mark = element("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" });
      mark.append(element("line", { class: `line hue-${place} dash-${Math.floor(place / 2) % 4}`, x1: 1, x2: 21, y1: 5, y2: 5 }));
      const strong = document.createElement("b");
      strong.textContent = this.show(value);
      made.append(mark, `${title} `, strong);
      return made;
    }
  }

  const follow = (live) => {
    const charts = Array.from(live.querySelectorAll("[data-chart]"), (figure) => new Chart(figure));
    window.addEventListener("resize", () => { for (const chart of charts) chart.draw(); });
    const pulse = live.querySelector("[data-pulse]"), held = live.querySelector("[data-held]");
    let samples = [];
    const say = (state, words) => {
      live.classList.toggle("on", state === "on");
      live.classList.toggle("off", state === "off");
      if (pulse.textContent !== words) pulse.textContent = words;
    };
    const source = new EventSource(live.dataset.live);
    source.addEventListener("samples", (event) => {
      const came = JSON.parse(event.data);
      if (!came.length) return;
      const after = samples.length ? samples[samples.length - 1].at_ms : 0;
      samples = samples.concat(came.filter((sample) => sample.at_ms > after)).slice(-KEPT);
      const now = came[came.length - 1];
      if (now.error) return say("off", `The server does not answer: ${now.error}`);
      for (const place of live.querySelectorAll("[data-number]")) {
        const state = place.dataset.number;
        place.textContent = (state === "waiting" && now.least ? "≥ " : "") + whole.format(now[state]);
        if (state === "dead") place.closest(".tile").classList.toggle("alarm", now.dead > 0);
      }
      const workers = now.workers === null ? "" : `, ${whole.format(now.workers)} worker${now.workers === 1 ? "" : "s"} with ${whole.format(now.in_hand)} of ${whole.format(now.places)} handler${now.places === 1 ? "" : "s"} busy`;
      say("on", `Live${workers}`);
      for (const chart of charts) chart.draw(samples);
      return undefined;
    });
    // A part of the page as the server has rendered and escaped it. It is left alone while somebody is in it.
    source.addEventListener("held", (event) => {
      if (!held.contains(document.activeElement)) held.innerHTML = JSON.parse(event.data);
    });
    source.addEventListener("error", () => say("off", "Not connected; trying again"));
    window.addEventListener("pagehide", () => source.close());
  };

  for (const live of document.querySelectorAll("[data-live]")) follow(live);
})();
