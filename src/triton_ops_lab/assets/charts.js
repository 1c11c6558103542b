"use strict";
// Drawings.

// A bar that fills a share, from 0 to 1, of its track; without a label its figure stands beside it.
function meter(share, label = null, winner = false) {
  const filled = element("span", { class: winner ? "winner" : null });
  filled.style.width = `${100 * share}%`;
  return element("span", { class: "meter", role: label && "img", "aria-label": label, "aria-hidden": label ? null : "true" }, filled);
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

// Expected beside measured time; on the dashed line they are equal. The config that is expected to be fastest is marked.
function scatter(points) {
  const first = points.reduce((best, point) => (point[0] < best[0] ? point : best));
  const ranges = [0, 1].map((at) => extent(points.map((point) => point[at])));
  const [low, high] = [Math.max(...ranges.map(([least]) => least)), Math.min(...ranges.map(([, most]) => most))];
  const equal = (x, y) => (low < high ? [shape("line", { class: "same", x1: x.place(low), y1: y.place(low), x2: x.place(high), y2: y.place(high) })] : []);
  return plot(roomOf("scatter"), `Expected and measured times of ${points.length} configs`, "expected, ms", "measured, ms",
    points.filter((point) => point !== first), [[...first, "expected to be fastest"]], null, equal);
}
