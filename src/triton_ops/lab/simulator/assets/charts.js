"use strict";
// Drawings.

const inPercent = (share) => MODEL.percent(share);

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
  const longest = Math.max(...terms.map((term) => term.alone_ms));
  const rows = terms.flatMap((term, at) => [
    shape("text", { x: left - 8, y: at * row + 15, "text-anchor": "end" }, term.name),
    shape("rect", { class: "bar", x: left, y: at * row + 3, width: Math.max(1, (width - 90) * (term.alone_ms / longest)), height: row - 7 }),
    shape("text", { x: left + 6 + Math.max(1, (width - 90) * (term.alone_ms / longest)), y: at * row + 15 }, inMs(term.alone_ms)),
  ]);
  const label = `Time of each resource alone: ${terms.map((term) => `${term.name} ${inMs(term.alone_ms)}`).join(", ")}`;
  return drawing(left + width, terms.length * row + 4, label, ...rows);
}

// A pipelined loop: a row for each buffer.
function timelineDrawing(found) {
  const [row, width, until] = [14, 320, 16];
  const scale = width / until;
  const parts = found.steps.filter((step) => step.issued < until).flatMap((step) =>
    [["load", step.issued, step.loaded], ["wait", step.loaded, step.begun], ["compute", step.begun, step.done]]
      .map(([kind, begin, end]) => [kind, begin, Math.min(end, until)])
      .filter(([, begin, end]) => end > begin)
      .map(([kind, begin, end]) =>
        shape("rect", { class: kind, x: begin * scale, y: step.buffer * row + 2, width: Math.max(0.5, (end - begin) * scale - 1), height: row - 3 })));
  const label = `With ${found.stages} ${found.stages === 1 ? "stage" : "stages"} the units compute in ${inPercent(found.busy)} of the time`;
  return drawing(width, found.stages * row + 2, label, ...parts);
}

// Expected beside measured time, both on logarithmic axes; on the dashed line they are equal.
function scatter(points, firstPoint) {
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
    dot(firstPoint, "dot winner", 5),
  );
}
