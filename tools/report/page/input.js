// Pointer, wheel, keys and buttons of the picture of the step.
let press = null;  // where a button went down, and what was visible then

const placeOf = event => {
  const area = canvas.getBoundingClientRect();
  return { x: event.clientX - area.left, y: event.clientY - area.top };
};
const isInMap = y => y >= MAP.top && y < MAP.top + MAP.height;

function pan(place) {
  const time = (place.x - press.x) / plotWidth() * (press.to - press.from);
  const bytes = press.inMap ? (place.y - press.y) / MAP.height * (press.high - press.low) : 0;
  show(press.from - time, press.to - time, press.low + bytes, press.high + bytes);
}

function zoomToBox({ x, y, toX, toY, inMap }) {
  if (Math.abs(toX - x) < 4) return;
  const [low, high] = inMap && Math.abs(toY - y) > 8
    ? [bytesAt(Math.max(y, toY)), bytesAt(Math.min(y, toY))] : [view.low, view.high];
  show(valueAt(Math.min(x, toX)), valueAt(Math.max(x, toX)), low, high);
}

canvas.addEventListener("pointerdown", event => {
  if (event.button !== 0) return;
  const place = placeOf(event);
  press = { ...place, from: view.from, to: view.to, low: view.low, high: view.high, inMap: isInMap(place.y), moved: false };
  if (event.shiftKey) view.box = { ...place, toX: place.x, toY: place.y, inMap: press.inMap };
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", event => {
  const place = placeOf(event);
  view.pointer = place;
  if (press && Math.hypot(place.x - press.x, place.y - press.y) > 3) press.moved = true;
  if (view.box) Object.assign(view.box, { toX: place.x, toY: place.y });
  else if (press && press.moved) pan(place);
  view.hover = press && press.moved ? null : hit(place.x, place.y);
  showTooltip(press && press.moved ? null : factsAt(place.x, place.y), event.clientX, event.clientY);
  redraw();
});

canvas.addEventListener("pointerup", event => {
  const pressed = press;
  const area = view.box;
  press = null;
  view.box = null;
  if (area) zoomToBox(area);
  else if (pressed && !pressed.moved) {
    const place = placeOf(event);
    const under = hit(place.x, place.y);
    const item = under && (under.item.bucket ? under.item : under.item.lifetime);
    choose(item && item.bucket !== view.chosen ? item.bucket : null);
  }
  redraw();
});

function leave() {
  Object.assign(view, { pointer: null, hover: null });
  if (!press) showTooltip(null);
  redraw();
}
canvas.addEventListener("pointerleave", leave);
canvas.addEventListener("pointercancel", () => { press = null; view.box = null; leave(); });
canvas.addEventListener("dblclick", showAll);

canvas.addEventListener("wheel", event => {
  const place = placeOf(event);
  const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.004)));
  if (event.ctrlKey || event.metaKey) {
    if (event.altKey) zoomBytes(factor, bytesAt(place.y));
    else zoomTime(factor, valueAt(place.x));
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = event.deltaX / plotWidth() * (view.to - view.from);
    show(view.from + by, view.to + by, view.low, view.high);
  } else {
    return;  // the page scrolls
  }
  event.preventDefault();
}, { passive: false });

canvas.addEventListener("keydown", event => {
  const time = 0.15 * (view.to - view.from);
  const bytes = 0.15 * (view.high - view.low);
  const move = (dt, db) => show(view.from + dt, view.to + dt, view.low + db, view.high + db);
  const actions = {
    ArrowLeft: () => move(-time, 0), ArrowRight: () => move(time, 0), ArrowUp: () => move(0, bytes),
    ArrowDown: () => move(0, -bytes), "+": () => zoomTime(0.6), "=": () => zoomTime(0.6), "-": () => zoomTime(1 / 0.6),
    0: showAll, Escape: () => choose(null),
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
});

const markPressed = (selector, chosen) => document.querySelectorAll(selector).forEach(
  button => button.setAttribute("aria-pressed", String(button === chosen)));

for (const button of document.querySelectorAll("[data-mode]")) {
  button.addEventListener("click", () => { markPressed("[data-mode]", button); setMode(button.dataset.mode); });
}
for (const button of document.querySelectorAll("[data-colour]")) {
  button.addEventListener("click", () => {
    markPressed("[data-colour]", button);
    view.colour = button.dataset.colour;
    drawLegend();
    redraw();
  });
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  const action = { in: () => zoomTime(0.6), out: () => zoomTime(1 / 0.6), all: showAll }[button.dataset.zoom];
  button.addEventListener("click", action);
}
