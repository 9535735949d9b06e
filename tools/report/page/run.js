// What a training run was, by step: a chart for each kind of value, as SVG. A column stands for the steps that it
// was made of: their mean as a line, from the least to the greatest as a band.
const RUN = { width: 980, height: 210, left: 74, right: 28, top: 12, bottom: 40 };
const runColours = ["var(--blue)", "var(--orange)", "var(--green)", "var(--purple)"];

const runCharts = raw.run.map(chart => ({ ...chart, lines: chart.lines.map(line => ({ ...line,
  columns: rows(line.columns, 5).map(([first, last, least, mean, most]) => ({ first, last, least, mean, most })) })) }));

function numberText(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(5)));
}

const valueText = (chart, value) => chart.title === "step time" ? secondsText(value) : numberText(value);

function runScale(chart) {
  const columns = chart.lines.flatMap(line => line.columns);
  const firsts = runCharts.flatMap(c => c.lines.flatMap(line => line.columns.map(column => column.first)));
  const lasts = runCharts.flatMap(c => c.lines.flatMap(line => line.columns.map(column => column.last)));
  const of = chart.logarithmic ? Math.log10 : value => value;
  const least = of(columns.reduce((low, c) => Math.min(low, c.least), Infinity));
  const most = of(columns.reduce((high, c) => Math.max(high, c.most), -Infinity));
  const room = 0.06 * (most - least) || Math.abs(most) * 0.1 || 1;
  const low = least - (!chart.logarithmic && least >= 0 ? Math.min(room, least) : room);
  const high = most + room;
  const from = firsts.reduce((a, b) => Math.min(a, b), Infinity);
  const to = Math.max(from + 1, lasts.reduce((a, b) => Math.max(a, b), from));
  const width = RUN.width - RUN.left - RUN.right;
  const height = RUN.height - RUN.top - RUN.bottom;
  return {
    low, high, from, to,
    x: step => RUN.left + width * (step - from) / (to - from),
    y: value => RUN.top + height * (1 - (of(value) - low) / (high - low)),
  };
}

// Round numbers; of a logarithmic axis as many as its decades need, so that there are some four to nine.
function runTicks(chart, scale) {
  if (!chart.logarithmic) return ticks(scale.low, scale.high, 6, false).list.map(v => Number(v.toPrecision(6)));
  const decades = scale.high - scale.low;
  if (decades < 0.9) return ticks(10 ** scale.low, 10 ** scale.high, 5, false).list.map(v => Number(v.toPrecision(6)));
  const list = [];
  const every = Math.max(1, Math.ceil(decades / 8));
  const parts = decades < 1.5 ? [1, 2, 3, 5, 7] : decades < 2.5 ? [1, 2, 5] : decades < 4.5 ? [1, 3] : [1];
  for (let power = Math.floor(scale.low); power <= scale.high; ++power) {
    if (power % every !== 0) continue;
    for (const part of parts) {
      const value = part * 10 ** power;
      if (Math.log10(value) >= scale.low && Math.log10(value) <= scale.high) list.push(value);
    }
  }
  return list;
}

function drawRunAxes(picture, chart, scale) {
  const bottom = RUN.height - RUN.bottom;
  const right = RUN.width - RUN.right;
  for (const value of runTicks(chart, scale)) {
    const y = scale.y(value);
    svg("line", picture, { x1: RUN.left, x2: right, y1: y, y2: y, stroke: "var(--grid)" });
    svg("text", picture, { x: RUN.left - 8, y: y + 4, "text-anchor": "end" }, valueText(chart, value));
  }
  for (const step of ticks(scale.from, scale.to, 8, false).list.filter(Number.isInteger)) {
    const x = scale.x(step);
    svg("line", picture, { x1: x, x2: x, y1: bottom, y2: bottom + 5, stroke: "var(--muted)" });
    svg("text", picture, { x, y: bottom + 18, "text-anchor": "middle" }, String(step));
  }
  svg("line", picture, { x1: RUN.left, x2: right, y1: bottom, y2: bottom, stroke: "var(--muted)" });
  svg("text", picture, { x: (RUN.left + right) / 2, y: RUN.height - 4, "text-anchor": "middle", class: "muted" },
    chart.logarithmic ? "step; values logarithmic" : "step");
}

const middleOf = column => (column.first + column.last) / 2;

function drawRunLine(picture, scale, line, colour) {
  const { columns } = line;
  if (line.points) {
    for (const column of columns)
      svg("circle", picture, { cx: scale.x(middleOf(column)), cy: scale.y(column.mean), r: 3.6, fill: colour });
  }
  const points = columns.flatMap(c => line.points ? [[scale.x(middleOf(c)), scale.y(c.mean)]]
    : c.least === c.most ? [[scale.x(c.first), scale.y(c.mean)], [scale.x(c.last), scale.y(c.mean)]]
      : [[scale.x(middleOf(c)), scale.y(c.mean)]]);
  const band = [...columns.map(c => [scale.x(middleOf(c)), scale.y(c.most)]),
    ...columns.map(c => [scale.x(middleOf(c)), scale.y(c.least)]).reverse()];
  const text = list => list.map(p => p.map(v => v.toFixed(1)).join(",")).join(" ");
  if (!line.points) svg("polygon", picture, { points: text(band), fill: colour, "fill-opacity": 0.25 });
  svg("polyline", picture, { points: text(points), fill: "none", stroke: colour, "stroke-width": line.points ? 1 : 1.6,
    "stroke-dasharray": line.points ? "4 3" : "none" });
}

// The columns under the pointer, of every line.
function followRun(picture, chart, scale) {
  picture.addEventListener("pointermove", event => {
    const area = picture.getBoundingClientRect();
    const x = (event.clientX - area.left) / area.width * RUN.width;
    const step = Math.round(scale.from + (x - RUN.left) / (RUN.width - RUN.left - RUN.right) * (scale.to - scale.from));
    const away = c => Math.max(c.first - step, step - c.last, 0);
    const facts = chart.lines.filter(line => line.columns.length > 0).map(line => {
      const c = line.columns.reduce((best, column) => away(column) < away(best) ? column : best);
      const steps = c.first === c.last ? `step ${c.first}` : `steps ${c.first} to ${c.last}`;
      const value = c.least === c.most ? valueText(chart, c.mean)
        : `${valueText(chart, c.mean)} (${valueText(chart, c.least)} to ${valueText(chart, c.most)})`;
      return [line.name, `${value}, ${steps}`];
    });
    showTooltip([chart.title, facts], event.clientX, event.clientY);
  });
  picture.addEventListener("pointerleave", () => showTooltip(null));
}

function drawRunChart(place, chart) {
  const bar = element("div", place, undefined, "bar");
  element("h3", bar, chart.title);
  const legend = element("span", bar, undefined, "legend");
  const picture = svg("svg", place, { viewBox: `0 0 ${RUN.width} ${RUN.height}`, role: "img", "aria-label": chart.title + " by step" });
  const scale = runScale(chart);
  drawRunAxes(picture, chart, scale);
  chart.lines.forEach((line, index) => {
    const colour = runColours[index % runColours.length];
    drawRunLine(picture, scale, line, colour);
    addSwatch(legend, colour, line.name);
  });
  followRun(picture, chart, scale);
}

function drawRun() {
  const charts = runCharts.filter(chart => chart.lines.some(line => line.columns.length > 0));
  if (charts.length === 0) return;
  document.getElementById("run").hidden = false;
  const place = document.getElementById("run-charts");
  RUN.width = Math.max(480, printing ? drawnWidth() : place.clientWidth);
  place.replaceChildren();
  for (const chart of charts) drawRunChart(place, chart);
}
