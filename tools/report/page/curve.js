// Step time and its lower bound against the budget, as SVG.
const CURVE = { width: 980, height: 300, left: 74, right: 28, top: 14, bottom: 44 };

function svg(tag, parent, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// Points with a place: { bytes, step, bound, x, y }; without a limit they stand at the right end.
function curveScale() {
  const sizes = raw.curve.map(p => p[0]).filter(b => b !== null);
  const limit = raw.limit;
  if (limit !== null) sizes.push(limit);
  const widest = raw.curve.some(p => p[0] === null) || sizes.length === 0;
  if (sizes.length === 0) sizes.push(2 ** 30);
  const low = Math.log2(Math.min(...sizes)) - 0.08;
  const high = Math.max(Math.log2(Math.max(...sizes)), low + 0.5) + (widest ? 0.5 : 0.08);
  const most = 1.08 * Math.max(1e-12, stepOfPlan(), ...raw.curve.map(p => p[1] || 0), ...raw.curve.map(p => p[2] || 0));
  const width = CURVE.width - CURVE.left - CURVE.right;
  const height = CURVE.height - CURVE.top - CURVE.bottom;
  return {
    low, high, most,
    x: bytes => CURVE.left + width * ((bytes === null ? high : Math.log2(bytes)) - low) / (high - low),
    y: seconds => CURVE.top + height * (1 - seconds / most),
  };
}

const stepOfPlan = () => raw.predicted === null ? stepSeconds : raw.predicted;

// Powers of two, with more between them where the span is small.
function budgetTicks(low, high) {
  const span = high - low;
  const parts = span > 8 ? [1] : span > 3.5 ? [1, 1.5] : span > 1.2 ? [1, 1.25, 1.5, 1.75] : [1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875];
  const list = [];
  for (let power = Math.floor(low); power <= high; ++power) {
    for (const part of parts) {
      const bytes = part * 2 ** power;
      if (Math.log2(bytes) >= low && Math.log2(bytes) <= high) list.push(bytes);
    }
  }
  return list;
}

function drawCurveAxes(picture, scale) {
  const bottom = CURVE.height - CURVE.bottom;
  const right = CURVE.width - CURVE.right;
  for (const seconds of ticks(0, scale.most, 5, false).list) {
    const y = scale.y(seconds);
    svg("line", picture, { x1: CURVE.left, x2: right, y1: y, y2: y, stroke: "var(--grid)" });
    svg("text", picture, { x: CURVE.left - 8, y: y + 4, "text-anchor": "end" }, secondsText(Number(seconds.toPrecision(6))));
  }
  let free = 0;
  for (const bytes of budgetTicks(scale.low, scale.high)) {
    const x = scale.x(bytes);
    svg("line", picture, { x1: x, x2: x, y1: bottom, y2: bottom + 5, stroke: "var(--muted)" });
    if (x < free) continue;
    svg("text", picture, { x, y: bottom + 18, "text-anchor": "middle" }, bytesText(bytes, -1));
    free = x + 66;
  }
  svg("line", picture, { x1: CURVE.left, x2: right, y1: bottom, y2: bottom, stroke: "var(--muted)" });
  svg("text", picture, { x: (CURVE.left + right) / 2, y: CURVE.height - 6, "text-anchor": "middle", class: "muted" },
    "device budget, logarithmic; step time from 0");
}

// Grey up to half way between the last budget that is too small and the first that works.
function drawInfeasible(picture, scale) {
  const bad = raw.curve.filter(p => p[1] === null);
  if (bad.length === 0) return;
  const good = raw.curve.find(p => p[1] !== null);
  const last = scale.x(bad[bad.length - 1][0]);
  const edge = good ? (last + scale.x(good[0])) / 2 : CURVE.width - CURVE.right;
  const bottom = CURVE.height - CURVE.bottom;
  svg("rect", picture, { x: CURVE.left, y: CURVE.top, width: Math.max(0, edge - CURVE.left), height: bottom - CURVE.top, fill: "var(--empty)" });
  if (edge - CURVE.left > 70) svg("text", picture, { x: (CURVE.left + edge) / 2, y: CURVE.top + 18, "text-anchor": "middle", class: "muted" }, "does not fit");
  for (const [bytes] of bad) svg("text", picture, { x: scale.x(bytes), y: bottom - 5, "text-anchor": "middle" }, "×");
}

function drawSeries(picture, scale, index, colour, dash) {
  const points = raw.curve.filter(p => p[1] !== null).map(p => [scale.x(p[0]), scale.y(p[index])]);
  svg("polyline", picture, { points: points.map(p => p.join(",")).join(" "), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
  for (const [cx, cy] of points) svg("circle", picture, { cx, cy, r: 3.2, fill: colour });
}

function drawCurrent(picture, scale) {
  if (raw.limit === null) return;
  const x = scale.x(raw.limit);
  svg("line", picture, { x1: x, x2: x, y1: CURVE.top, y2: CURVE.height - CURVE.bottom, stroke: "var(--bad)", "stroke-width": 1.5, "stroke-dasharray": "7 4" });
  svg("circle", picture, { cx: x, cy: scale.y(stepOfPlan()), r: 6, fill: "none", stroke: "var(--bad)", "stroke-width": 2 });
  const left = x > CURVE.width - 240;
  svg("text", picture, { x: left ? x - 8 : x + 8, y: CURVE.top + 12, "text-anchor": left ? "end" : "start", style: "fill: var(--bad)" },
    `this plan: ${bytesText(raw.limit)}, ${secondsText(stepOfPlan())}`);
}

// The nearest point under the pointer.
function followCurve(picture, scale) {
  picture.addEventListener("pointermove", event => {
    const area = picture.getBoundingClientRect();
    const x = (event.clientX - area.left) / area.width * CURVE.width;
    const distance = p => Math.abs(scale.x(p[0]) - x);
    const nearest = raw.curve.reduce((best, p) => distance(p) < distance(best) ? p : best);
    const title = nearest[0] === null ? "no limit" : bytesText(nearest[0]);
    const facts = nearest[1] === null ? [["fits", "no"]]
      : [["step", secondsText(nearest[1])], ["bound", secondsText(nearest[2])],
        ["gap", nearest[2] > 0 ? (nearest[1] / nearest[2]).toFixed(2) + " × the bound" : "–"]];
    showTooltip([title, facts], event.clientX, event.clientY);
  });
  picture.addEventListener("pointerleave", () => showTooltip(null));
}

function drawCurve() {
  if (raw.curve.length === 0) return;
  document.getElementById("budgets").hidden = false;
  const place = document.getElementById("curve");
  CURVE.width = Math.max(480, printing ? drawnWidth() : place.clientWidth);
  place.replaceChildren();
  const picture = svg("svg", place, { viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, role: "img", "aria-label": "step time against budget" });
  const scale = curveScale();
  drawInfeasible(picture, scale);
  drawCurveAxes(picture, scale);
  drawSeries(picture, scale, 2, "var(--orange)", "6 4");
  drawSeries(picture, scale, 1, "var(--blue)", "none");
  drawCurrent(picture, scale);
  followCurve(picture, scale);
  const legend = document.getElementById("curve-legend");
  legend.replaceChildren();
  addSwatch(legend, "var(--blue)", "predicted step");
  addSwatch(legend, "var(--orange)", "lower bound");
}
