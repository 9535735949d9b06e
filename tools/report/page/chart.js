// State and geometry of the picture of the step: a ribbon of phases, live bytes, the arena, lanes.
const canvas = document.getElementById("chart");
const lanesDrawn = ["h2d", "compute", ...(hasPeers ? ["peer"] : []), "d2h", "host"].map(name => names.lanes.indexOf(name));
const LEFT = 112;
const RIGHT = 14;
const RIBBON = { top: 2, height: 16 };
const LIVE = { top: 24, height: 70 };
const MAP = { top: 104, height: 266 };
const LANES = { top: 380, height: 22, gap: 4 };
const AXIS_TOP = LANES.top + lanesDrawn.length * (LANES.height + LANES.gap);
const HEIGHT = AXIS_TOP + 36;

// The budget's line is drawn where that leaves room for the rest.
const topBytes = Math.max(1, raw.peak, ...liveRuns.map(r => r.bytes));
const roomShown = raw.room !== null && raw.room <= 1.6 * topBytes;
const allBytes = 1.06 * (roomShown ? Math.max(topBytes, raw.room) : topBytes);

const view = {
  mode: "time", colour: "kind", axis: axes.time, spans: spansAlong(axes.time),
  from: 0, to: axes.time.period || 1, low: 0, high: allBytes,  // what is visible
  pointer: null, hover: null, chosen: null, box: null,
};

// On paper the picture has one width and fine pixels, whatever the window's.
let printing = false;
const drawnWidth = () => printing ? 1200 : canvas.clientWidth;
const pixelScale = () => printing ? 2 : window.devicePixelRatio || 1;
const plotWidth = () => Math.max(10, drawnWidth() - LEFT - RIGHT);
const xOf = value => LEFT + (value - view.from) / (view.to - view.from) * plotWidth();
const valueAt = x => view.from + (x - LEFT) / plotWidth() * (view.to - view.from);
const yOf = bytes => MAP.top + MAP.height * (1 - (bytes - view.low) / (view.high - view.low));
const bytesAt = y => view.low + (1 - (y - MAP.top) / MAP.height) * (view.high - view.low);
const liveY = bytes => LIVE.top + LIVE.height * (1 - bytes / allBytes);
const laneTop = row => LANES.top + row * (LANES.height + LANES.gap);

function clampView() {
  const whole = view.axis.period || 1;
  const width = Math.min(whole, Math.max(view.to - view.from, whole * 1e-6));
  view.from = Math.min(Math.max(0, view.from), whole - width);
  view.to = view.from + width;
  const height = Math.min(allBytes, Math.max(view.high - view.low, allBytes * 1e-7));
  view.low = Math.min(Math.max(0, view.low), allBytes - height);
  view.high = view.low + height;
}

function show(from, to, low, high) {
  Object.assign(view, { from, to, low, high });
  clampView();
  redraw();
}

const showAll = () => show(0, view.axis.period || 1, 0, allBytes);

function zoomTime(factor, around = (view.from + view.to) / 2) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor, view.low, view.high);
}

function zoomBytes(factor, around) {
  show(view.from, view.to, around - (around - view.low) * factor, around + (view.high - around) * factor);
}

// The same part of the step on the other axis.
function setMode(mode) {
  if (mode === view.mode) return;
  const other = axes[mode];
  const part = value => mode === "position" ? axes.position.ofTime(value) : timeAt(value);
  const ends = [part(view.from), part(view.to)];
  const whole = view.to - view.from >= view.axis.period * 0.999 || !(ends[1] > ends[0]);
  Object.assign(view, { mode, axis: other, spans: spansAlong(other), hover: null });
  if (whole) show(0, other.period || 1, view.low, view.high);
  else show(ends[0], ends[1], view.low, view.high);
}

function timeAt(position) {
  if (positions === 0) return 0;
  const whole = Math.min(positions - 1, Math.max(0, Math.floor(position)));
  return starts[whole] + (position - whole) * (starts[whole + 1] - starts[whole]);
}

// --- colours, of the scheme that is on

const kindColours = {
  "parameter": "blue", "gradient": "red", "optimizer_state": "purple", "activation": "green", "input": "yellow",
  "workspace": "grey",
};
const residencyColours = {
  "resident": "blue", "held": "sky", "streamed": "orange", "offloaded": "red", "recomputed": "purple",
  "transient": "green", "host": "grey",
};
let theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme = {};
  for (const name of ["back", "panel", "text", "muted", "line", "grid", "accent", "bad", "empty", "live", "blue", "sky", "green",
    "yellow", "orange", "red", "purple", "grey"]) {
    theme[name] = style.getPropertyValue("--" + name).trim();
  }
}

const colourOfKind = kind => theme[kindColours[names.kinds[kind].replaceAll(" ", "_")] || "grey"];
const colourOfResidency = residency => theme[residencyColours[names.residencies[residency]] || "grey"];
const colourOfBucket = b => view.colour === "kind" ? colourOfKind(b.kind) : colourOfResidency(b.residency);

function colourOfInstruction(i) {
  switch (names.lanes[i.lane]) {
    case "h2d": return theme.orange;
    case "d2h": return theme.red;
    case "host": return theme.green;
    case "peer": return theme.grey;
  }
  if (names.instructions[i.kind] === "recompute") return theme.purple;
  return [theme.blue, theme.sky, theme.yellow][i.op.phase];
}

// Black or white, whichever reads better on a colour "#rrggbb".
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map(at => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22 ? "#000" : "#fff";
}
