// The corners of each line of the first chart, by series, as [ms before the last sample, value].
const svg = document.querySelector('[data-chart=' + chart + '] svg[role=img]');
const grid = Array.from(svg.querySelectorAll('.grid'), line => Number(line.getAttribute('y1')));
const [left, right] = ['x1', 'x2'].map(end => Number(svg.querySelector('.grid').getAttribute(end)));
const labels = Array.from(svg.querySelectorAll('text[text-anchor=end]'), text => text.textContent);
const top = Number(labels[2]), span = 60_000;
const found = {};
for (const path of svg.querySelectorAll('path.line')) {
  const hue = path.getAttribute('class').match(/hue-(\d)/)[1];
  const corners = path.getAttribute('d').slice(1).split('L').map(pair => pair.split(' ').map(Number));
  (found[hue] ||= []).push(corners.map(([x, y]) => [
    Math.round((right - x) / (right - left) * span / 100) / 10,
    Math.round((grid[0] - y) / (grid[0] - grid[2]) * top * 10) / 10,
  ]));
}
return [found, svg.querySelectorAll('rect.gap').length];
