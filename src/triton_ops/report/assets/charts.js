"use strict";
// Charts as drawings. Each has a text that says what it shows.

// An interval around its centre, on an axis that all intervals of a table share; the bar at zero is the winner.
function interval(gap, range, winner) {
  const [width, height] = [160, 16];
  const x = axis(range[0], range[1], 6, width - 6);
  return drawing(
    width, height, `${(100 * gap[0]).toFixed(2)} %, from ${(100 * gap[1]).toFixed(2)} % to ${(100 * gap[2]).toFixed(2)} %`,
    shape("line", { class: "axis", x1: x.place(0), x2: x.place(0), y1: 0, y2: height }),
    shape("line", { class: winner ? "span winner" : "span", x1: x.place(gap[1]), x2: x.place(gap[2]), y1: height / 2, y2: height / 2 }),
    shape("circle", { class: winner ? "dot winner" : "dot", cx: x.place(gap[0]), cy: height / 2, r: 4 }),
  );
}

// One vertical axis for each tunable and one for the time; a line for each config.
function parallel(room, names, values, lines, times) {
  const [step, height] = [Math.max(90, room / (names.length + 1)), 300];
  const width = step * (names.length + 1);
  const [top, bottom] = [34, height - 16];
  const y = axis(...extent(times), bottom, top);
  const at = (column, value) => {
    const count = values[column].length;
    return value < 0 ? bottom + 10 : count < 2 ? (top + bottom) / 2 : bottom - (value / (count - 1)) * (bottom - top);
  };
  const x = (column) => step / 2 + column * step;
  const paths = lines.map((line, number) => shape("path", {
    class: number ? "line" : "line winner",
    d: "M" + [...line.map((value, column) => `${x(column)} ${at(column, value)}`), `${x(names.length)} ${y.place(times[number])}`].join("L"),
  })).reverse();
  const axes = [...names, "ms"].flatMap((name, column) => [
    shape("line", { class: "axis", x1: x(column), x2: x(column), y1: top, y2: bottom }),
    shape("text", { x: x(column), y: 14, "text-anchor": "middle" }, name.length > 14 ? `${name.slice(0, 13)}…` : name, shape("title", {}, name)),
    ...(column < names.length
      ? values[column].slice(0, 12).map((value, place) => shape("text", { class: "quiet", x: x(column) + 5, y: at(column, place) + 4 }, value.slice(0, 12)))
      : y.marks.map((mark) => shape("text", { class: "quiet", x: x(column) + 5, y: y.place(mark) + 4 }, short(mark)))),
  ]);
  return drawing(width, height, `The values of ${lines.length} configs, the fastest one last and green`, ...paths, ...axes);
}

// The roof of a device over operations per byte, and the times of one kernel below it, all at its operations per byte.
function roofline(width, roof, points) {
  const height = 320;
  const rate = (ms) => roof.flops / (ms * 1e9);
  const rates = points.map((point) => rate(point.ms));
  const lines = [["by datasheet", 0, "roof"], ["as measured", 1, "roof measured"]]
    .map(([name, at, kind]) => ({ name, kind, gbps: roof.gbps[at], tflops: roof.tflops ? roof.tflops[at] : null }))
    .filter((line) => line.gbps !== null && (roof.tflops === null || line.tflops !== null));
  const ridges = lines.map((line) => (line.tflops === null ? roof.intensity : (1e3 * line.tflops) / line.gbps));
  const x = axis(Math.min(roof.intensity, ...ridges) / 8, Math.max(roof.intensity, ...ridges) * 8, ROOM.left + 8, width - ROOM.right);
  const [least, most] = [Math.min(roof.intensity, ...ridges) / 8, Math.max(roof.intensity, ...ridges) * 8];
  const at = (line, intensity) => Math.min((line.gbps * intensity) / 1e3, line.tflops ?? Infinity);
  const y = axis(...extent([...rates, ...lines.flatMap((line) => [at(line, least), at(line, most)])]), height - ROOM.bottom - 8, ROOM.top + 18);
  const roofs = lines.map((line, number) => shape("path", { class: line.kind, d:
    "M" + [least, Math.min(ridges[number], most), most].map((value) => `${x.place(value)} ${y.place(at(line, value))}`).join("L") },
    shape("title", {}, line.name)));
  const dots = points.map((point, number) => shape("circle", {
    class: point.winner ? "dot winner" : "dot", cx: x.place(roof.intensity), cy: y.place(rates[number]), r: point.winner ? 5 : 3 },
    shape("title", {}, `${short(rates[number])} TFLOP/s, ${inMs(point.ms)}: ${point.text}`)));
  const best = rates.length ? `; the fastest of ${rates.length} configs reaches ${short(Math.max(...rates))} TFLOP/s` : "";
  return drawing(width, height, `The device's roof, at ${short(roof.intensity)} operations per byte${best}`,
    ...frame(width, height, x, y, "operations per byte", "TFLOP/s"), ...roofs, ...dots.reverse());
}
