// Draws the picture of the step on the canvas.
const pen = canvas.getContext("2d");
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
const SMALL = FONT.replace("12px", "11px");

function write(text, x, y, colour, align = "left", font = FONT) {
  pen.font = font;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function line(x1, y1, x2, y2, colour, width = 1, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
  pen.setLineDash([]);
}

function clipped(top, height, action) {
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top, plotWidth(), height);
  pen.clip();
  action();
  pen.restore();
}

// A filled box, a little apart from the next one, with its name where there is room for it.
function box(left, top, width, height, colour, text, panel) {
  pen.fillStyle = colour;
  pen.fillRect(left, top, width - (width > 3 ? 0.7 : 0), height - (height > 2.2 ? 0.7 : 0));
  const from = Math.max(left, LEFT);
  const visible = Math.min(left + width, LEFT + plotWidth()) - from;
  const above = Math.max(top, panel.top);
  const tall = Math.min(top + height, panel.top + panel.height) - above;
  if (tall < 13 || visible < 44) return;
  pen.font = SMALL;
  const most = Math.floor((visible - 8) / 6.2);
  const label = text.length > most ? text.slice(0, most - 1) + "…" : text;
  if (most > 4) write(label, from + 4, above + tall / 2, inkOn(colour), "left", SMALL);
}

const isVisible = span => span.to >= view.from && span.from <= view.to;

function drawGrid() {
  for (const value of xTicks().list) line(xOf(value), LIVE.top, xOf(value), AXIS_TOP, theme.grid);
}

const xTicks = () => ticks(view.from, view.to, Math.max(2, plotWidth() / 120), false);

function drawAxis() {
  const { step, list } = xTicks();
  const scale = view.mode === "position" ? [1, ""] : view.to < 2e-3 ? [1e6, " µs"] : view.to < 2 ? [1e3, " ms"] : [1, " s"];
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step * scale[0] * 1.001))));
  for (const value of list) {
    const x = xOf(value);
    if (x < LEFT - 1 || x > LEFT + plotWidth() + 1) continue;
    line(x, AXIS_TOP, x, AXIS_TOP + 4, theme.muted);
    const align = x > LEFT + plotWidth() - 24 ? "right" : "center";
    write((value * scale[0]).toFixed(digits) + scale[1], align === "right" ? x + RIGHT : x, AXIS_TOP + 12, theme.text, align);
  }
  write(view.axis.title, LEFT + plotWidth() / 2, AXIS_TOP + 28, theme.muted, "center");
}

function drawPhases() {
  clipped(RIBBON.top, RIBBON.height, () => {
    for (const span of view.spans.phases.filter(isVisible)) {
      const left = xOf(span.from);
      const width = xOf(span.to) - left;
      pen.fillStyle = [theme.grid, theme.line, theme.muted][span.item.phase];
      pen.fillRect(left, RIBBON.top, width, RIBBON.height);
      const from = Math.max(left, LEFT);
      const visible = Math.min(left + width, LEFT + plotWidth()) - from;
      const ink = span.item.phase === 2 ? theme.back : theme.text;
      if (visible > 60) write(names.phases[span.item.phase], from + visible / 2, RIBBON.top + 8.5, ink, "center");
    }
  });
}

function drawBytesAxis(y, low, high, count) {
  for (const bytes of ticks(low, high, count, true).list) {
    line(LEFT, y(bytes), LEFT + plotWidth(), y(bytes), theme.grid);
    write(bytes === 0 ? "0" : bytesText(bytes, -1), LEFT - 6, y(bytes), theme.text, "right", SMALL);
  }
}

function drawLive() {
  drawBytesAxis(liveY, 0, allBytes, 3);
  clipped(LIVE.top, LIVE.height, () => {
    const spans = view.spans.live.filter(isVisible).sort((a, b) => a.from - b.from);
    pen.fillStyle = theme.live;
    pen.beginPath();
    pen.moveTo(LEFT - 1, liveY(0));
    for (const span of spans) {
      pen.lineTo(xOf(span.from), liveY(span.item.bytes));
      pen.lineTo(xOf(span.to), liveY(span.item.bytes));
    }
    pen.lineTo(LEFT + plotWidth() + 1, liveY(0));
    pen.fill();
    drawBudget(liveY, true);
  });
  writeUpwards("live bytes", LIVE);
}

// The caption of a panel, left of its bytes.
function writeUpwards(text, panel) {
  pen.save();
  pen.translate(9, panel.top + panel.height / 2);
  pen.rotate(-Math.PI / 2);
  write(text, 0, 0, theme.muted, "center", SMALL);
  pen.restore();
}

// The budget's line; its words in one of the two panels only.
function drawBudget(y, words) {
  const right = LEFT + plotWidth() - 4;
  if (raw.room === null) return;
  const name = raw.overhead > 0
    ? `budget ${bytesText(raw.limit)} less overhead: ${bytesText(raw.room)}` : `budget ${bytesText(raw.limit)}`;
  if (!roomShown) {
    if (words) label(name + ", above this picture", right, LIVE.top + 8);
    return;
  }
  line(LEFT, y(raw.room), LEFT + plotWidth(), y(raw.room), theme.bad, 1.5, [7, 4]);
  if (words) label(name, right, y(raw.room) + 9);
}

function label(text, right, y) {
  pen.font = SMALL;
  const width = pen.measureText(text).width + 8;
  pen.globalAlpha = 0.85;
  pen.fillStyle = theme.back;
  pen.fillRect(right - width, y - 7, width, 14);
  pen.globalAlpha = 1;
  write(text, right - 4, y, theme.bad, "right", SMALL);
}

function toPixel(y) {
  const scale = pixelScale();
  return Math.round(y * scale) / scale;
}

function drawLifetime(span) {
  const l = span.item;
  const left = xOf(span.from);
  const top = toPixel(yOf(l.offset + l.bucket.bytes));
  const height = toPixel(yOf(l.offset)) - top;
  if (top > MAP.top + MAP.height || top + height < MAP.top) return;
  pen.globalAlpha = view.chosen && view.chosen !== l.bucket ? 0.22 : 1;
  const width = Math.max(0.5, xOf(span.to) - left);
  box(left, top, width, Math.max(0.5, height), colourOfBucket(l.bucket), l.bucket.name, MAP);
  pen.globalAlpha = 1;
}

function outline(span, width) {
  const l = span.item;
  pen.strokeStyle = theme.text;
  pen.lineWidth = width;
  const top = yOf(l.offset + l.bucket.bytes);
  pen.strokeRect(xOf(span.from), top, Math.max(1, xOf(span.to) - xOf(span.from)), Math.max(1, yOf(l.offset) - top));
}

function drawMap() {
  pen.fillStyle = theme.empty;
  pen.fillRect(LEFT, MAP.top, plotWidth(), MAP.height);
  drawBytesAxis(yOf, view.low, view.high, 7);
  const related = view.hover && view.hover.item.uses ? new Set([view.hover.item.lifetime, ...view.hover.item.uses]) : null;
  clipped(MAP.top, MAP.height, () => {
    const visible = view.spans.lifetimes.filter(isVisible);
    visible.forEach(drawLifetime);
    for (const span of visible) {
      if (view.hover && view.hover.item === span.item) outline(span, 2.5);
      else if (related && related.has(span.item)) outline(span, 1.5);
    }
    line(LEFT, yOf(raw.peak), LEFT + plotWidth(), yOf(raw.peak), theme.text, 1, [2, 3]);
    drawBudget(yOf, false);
  });
  writeUpwards("offset in the arena", MAP);
}

function drawLane(lane, row) {
  const top = laneTop(row);
  const busy = instructions.reduce((sum, i) => sum + (i.lane === lane ? i.end - i.begin : 0), 0);
  pen.fillStyle = theme.empty;
  pen.fillRect(LEFT, top, plotWidth(), LANES.height);
  write(names.lanes[lane], LEFT - 42, top + LANES.height / 2, theme.text, "right");
  if (stepSeconds > 0) write(percentText(busy / stepSeconds), LEFT - 6, top + LANES.height / 2, theme.muted, "right", SMALL);
  const touched = view.hover && view.hover.item.touched ? new Set(view.hover.item.touched) : null;
  clipped(top, LANES.height, () => {
    for (const span of view.spans.lanes[lane].filter(isVisible)) {
      const left = xOf(span.from);
      const width = Math.max(0.35, xOf(span.to) - left);
      box(left, top, width, LANES.height, colourOfInstruction(span.item), titleOf(span.item), { top, height: LANES.height });
      if ((touched && touched.has(span.item)) || (view.hover && view.hover.item === span.item)) {
        pen.strokeStyle = theme.text;
        pen.lineWidth = 2.5;
        pen.strokeRect(left, top + 1, Math.max(1, width), LANES.height - 2);
      }
    }
  });
}

function drawPointer() {
  if (view.box) {
    const { x, y, toX, toY, inMap } = view.box;
    const [top, bottom] = inMap ? [Math.min(y, toY), Math.max(y, toY)] : [LIVE.top, AXIS_TOP];
    pen.strokeStyle = theme.accent;
    pen.lineWidth = 1.5;
    pen.strokeRect(Math.min(x, toX), top, Math.abs(toX - x), bottom - top);
  } else if (view.pointer && view.pointer.x >= LEFT && view.pointer.x <= LEFT + plotWidth()) {
    line(view.pointer.x, LIVE.top, view.pointer.x, AXIS_TOP, theme.muted, 1, [3, 3]);
  }
}

function draw() {
  const scale = pixelScale();
  canvas.style.height = HEIGHT + "px";
  canvas.width = Math.round(drawnWidth() * scale);
  canvas.height = Math.round(HEIGHT * scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = theme.back;
  pen.fillRect(0, 0, drawnWidth(), HEIGHT);
  drawGrid();
  drawPhases();
  drawLive();
  drawMap();
  lanesDrawn.forEach(drawLane);
  drawAxis();
  drawPointer();
}

let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}

function drawLegend() {
  const legend = document.getElementById("legend");
  legend.replaceChildren();
  const placed = buckets.filter(b => b.lifetimes.length > 0);
  const [list, of, colour] = view.colour === "kind"
    ? [names.kinds, b => b.kind, colourOfKind] : [names.residencies, b => b.residency, colourOfResidency];
  list.forEach((name, code) => {
    if (placed.some(b => of(b) === code)) addSwatch(legend, colour(code), name.replaceAll("_", " "));
  });
  const lanes = document.getElementById("lane-legend");
  lanes.replaceChildren();
  element("span", lanes, "Lanes, with the share of the step in which each is busy:", "muted");
  for (const [name, key] of [["in", "orange"], ["forward", "blue"], ["backward", "sky"], ["recompute", "purple"],
    ["update", "yellow"], ["out", "red"], ["gate and host steps", "green"], ["between devices", "grey"]]) {
    if (instructions.some(i => colourOfInstruction(i) === theme[key])) addSwatch(lanes, theme[key], name);
  }
}
