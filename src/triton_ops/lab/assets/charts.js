"use strict";
// Drawings.

// A bar from the left of a track, as long as a share from 0 to 1.
function bar(share, winner, label) {
  const width = 72;
  return drawing(
    width, 14, label,
    shape("rect", { class: "track", x: 0.5, y: 0.5, width: width - 1, height: 13, rx: 2 }),
    shape("rect", { class: winner ? "bar winner" : "bar", x: 0, y: 0, width: Math.max(1, width * share), height: 14, rx: 2 }),
  );
}

// Times of resources, one bar each; all could go on at the same time.
function termBars(terms) {
  const [row, left, width] = [22, 126, 234];
  const longest = Math.max(...terms.map(([, ms]) => ms));
  const rows = terms.flatMap(([name, ms], at) => [
    shape("text", { x: left - 8, y: at * row + 15, "text-anchor": "end" }, name),
    shape("rect", { class: "bar", x: left, y: at * row + 3, width: Math.max(1, (width - 90) * (ms / longest)), height: row - 7 }),
    shape("text", { x: left + 6 + Math.max(1, (width - 90) * (ms / longest)), y: at * row + 15 }, inMs(ms)),
  ]);
  const label = `Time of each resource alone: ${terms.map(([name, ms]) => `${name} ${inMs(ms)}`).join(", ")}`;
  return drawing(left + width, terms.length * row + 4, label, ...rows);
}

const MARKS = { "=": "load", "-": "wait", "#": "compute" };

// A pipelined loop from lines of marks, one for each buffer: a bar for each run of equal marks.
function timelineDrawing({ stages, busy, lines }) {
  const [row, column] = [14, 5];
  const parts = lines.flatMap((line, buffer) => [...line.matchAll(/=+|-+|#+/g)].map(({ 0: run, index }) =>
    shape("rect", { class: MARKS[run[0]], x: index * column, y: buffer * row + 2, width: run.length * column - 1, height: row - 3 })));
  const label = `With ${stages} ${stages === 1 ? "stage" : "stages"} the units compute in ${busy} of the time`;
  return drawing(lines[0].length * column, lines.length * row + 2, label, ...parts);
}

// Expected beside measured time, both on logarithmic axes; on the dashed line they are equal. The config that is
// expected to be fastest is marked.
function scatter(points) {
  const first = points.reduce((best, point) => (point[0] < best[0] ? point : best));
  const [size, edge] = [360, 48];
  const times = points.flat();
  const [low, high] = [Math.min(...times) / 1.1, Math.max(...times) * 1.1];
  const along = (ms) => (Math.log(ms / low) / Math.log(high / low)) * (size - edge - 8);
  const [x, y] = [(ms) => edge + along(ms), (ms) => size - edge - along(ms)];
  const marks = [low * 1.1, Math.sqrt(low * high), high / 1.1];
  const dot = ([expected, measured], kind, radius) => shape("circle", { class: kind, cx: x(expected), cy: y(measured), r: radius });
  return drawing(
    size, size, `Expected and measured times of ${points.length} configs`,
    shape("path", { class: "axis", fill: "none", d: `M${edge} 8V${size - edge}H${size - 8}` }),
    shape("line", { class: "same", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }),
    ...marks.flatMap((ms) => [
      shape("text", { class: "quiet", x: x(ms), y: size - edge + 16, "text-anchor": "middle" }, short(Number(ms.toPrecision(2)))),
      shape("text", { class: "quiet", x: edge - 4, y: y(ms) + 4, "text-anchor": "end" }, short(Number(ms.toPrecision(2)))),
    ]),
    shape("text", { x: size / 2 + 20, y: size - 8, "text-anchor": "middle" }, "expected, ms"),
    shape("text", { x: edge + 6, y: 14 }, "measured, ms"),
    ...points.map((point) => dot(point, "dot", 3)),
    dot(first, "dot winner", 5),
  );
}
