// How even the load was over time, as a picture: lines over a grid, with times and values.

import { duration, shape } from "./core.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 712, 12, 128]; // texts are twice as large on a phone
export const BOX = "0 0 720 150";

// lines: [{points: [[ms, imbalance], ...], kind: class of the line}]; gaps: [{from_ms, until_ms}]
export function imbalanceLines(fromMs, untilMs, lines, gaps = []) {
  const high = Math.max(1.5, ...lines.flatMap(({ points }) => points.map(([, value]) => value)));
  const x = (ms) => RIGHT - (RIGHT - LEFT) * (untilMs - ms) / (untilMs - fromMs);
  const y = (value) => BOTTOM - (BOTTOM - TOP) * (value - 1) / (high - 1);
  const parts = gaps.map((gap) => {
    const from = Math.max(LEFT, x(gap.from_ms));
    const width = Math.max(1, x(gap.until_ms || untilMs) - from);
    return shape("rect", { class: "gap", x: from, y: TOP, width, height: BOTTOM - TOP });
  });
  for (const value of [1, (1 + high) / 2, high]) {
    parts.push(shape("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" },
      value.toFixed(1)));
  }
  for (const quarters of [4, 3, 2, 1, 0]) {
    const ms = quarters * (untilMs - fromMs) / 4;
    const anchor = quarters === 4 ? "start" : quarters === 0 ? "end" : "middle";
    parts.push(shape("text", { x: x(untilMs - ms), y: BOTTOM + 17, "text-anchor": anchor },
      quarters ? `−${duration(ms)}` : "now"));
  }
  for (const { points, kind } of lines) {
    const drawn = points.map(([ms, value]) => `${x(ms).toFixed(1)},${y(value).toFixed(1)}`);
    parts.push(shape("polyline", { class: kind, points: drawn.join(" ") }));
  }
  return parts;
}
