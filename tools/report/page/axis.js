// The horizontal axis: seconds of one period, or positions of the lanes that compute on the device. Either way the step is
// periodic, and an interval that crosses its end is drawn in pieces.
const stepSeconds = raw.period * 1e-9;
const positions = launches.length;
// Where the compute lane comes to each position: a launch of the peer lane stands with the one behind it.
const starts = (() => {
  const computed = launches.filter(i => i.lane === COMPUTE);
  if (computed.length === 0) return [];
  let next = Math.max(computed[0].begin + stepSeconds, computed[computed.length - 1].end);
  const list = [next];
  for (let p = positions; p-- > 0;) {
    if (launches[p].lane === COMPUTE) next = launches[p].begin;
    list.push(next);
  }
  return list.reverse();
})();

// Position at a time, with the part of the way to the next one.
function positionAt(time) {
  if (starts.length === 0 || !(stepSeconds > 0)) return 0;
  const turns = Math.floor((time - starts[0]) / stepSeconds);
  const rest = time - turns * stepSeconds;
  let low = 0;
  let high = positions;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= rest) low = middle; else high = middle;
  }
  const width = starts[low + 1] - starts[low];
  const part = width > 0 ? Math.min(1, Math.max(0, (rest - starts[low]) / width)) : 0;
  return turns * positions + low + part;
}

const axes = {
  time: {
    period: stepSeconds, ofTime: t => t, ofPosition: p => starts[p],
    title: "time since the gate of the step before", text: secondsText,
  },
  position: {
    period: positions, ofTime: positionAt, ofPosition: p => p,
    title: "position: instructions of the compute lane" + (hasPeers ? " and the peer lane" : ""), text: p => "position " + Math.floor(p),
  },
};

// The parts of [begin, end) that fall into one period, each clipped to it.
function pieces(begin, end, period) {
  if (!(period > 0)) return [];
  if (end - begin >= period * (1 - 1e-9)) return [[0, period]];
  const list = [];
  for (let k = Math.floor(begin / period); k * period < end; ++k) {
    list.push([Math.max(begin - k * period, 0), Math.min(end - k * period, period)]);
  }
  return list;
}

// Everything that is drawn along an axis: { item, from, to }.
function spansAlong(axis) {
  const along = (items, interval) => items.flatMap(item => {
    const [begin, end] = interval(item);
    return pieces(begin, end, axis.period).map(([from, to]) => ({ item, from, to }));
  });
  const held = l => [axis.ofPosition(l.first), axis.ofPosition(l.last)];
  const run = i => [axis.ofTime(i.begin), axis.ofTime(i.end)];
  return {
    lifetimes: along(lifetimes, held),
    lanes: names.lanes.map((_, lane) => along(instructions.filter(i => i.lane === lane), run)),
    live: along(liveRuns, held),
    phases: along(phaseRuns, held),
  };
}

// Runs of equal live bytes, { first, last, bytes }.
const liveRuns = (() => {
  const change = new Array(positions + 1).fill(0);
  for (const l of lifetimes) {
    change[l.first] += l.bucket.bytes;
    change[l.last] -= l.bucket.bytes;
  }
  const runs = [];
  let bytes = 0;
  for (let p = 0; p < positions; ++p) {
    bytes += change[p];
    const previous = runs[runs.length - 1];
    if (previous && previous.bytes === bytes) previous.last = p + 1;
    else runs.push({ first: p, last: p + 1, bytes });
  }
  return runs;
})();

// Runs of one phase by position, { first, last, phase }.
const phaseRuns = (() => {
  const runs = [];
  launches.forEach((launch, p) => {
    const phase = names.instructions[launch.kind] === "recompute" ? names.phases.indexOf("backward") : launch.op.phase;
    const previous = runs[runs.length - 1];
    if (previous && previous.phase === phase) previous.last = p + 1;
    else runs.push({ first: p, last: p + 1, phase });
  });
  return runs;
})();

for (const bucket of buckets) {
  for (const l of bucket.lifetimes) bucket.seconds += starts[l.last] - starts[l.first];
}

// Round numbers in [from, to], about `count` of them.
function ticks(from, to, count, binary) {
  const span = to - from;
  if (!(span > 0)) return { step: 1, list: [] };
  const rough = span / count;
  let step = 2 ** Math.ceil(Math.log2(rough));
  if (!binary) {
    const power = 10 ** Math.floor(Math.log10(rough));
    step = power * [1, 2, 5, 10].find(m => m * power >= rough * 0.999);
  }
  const list = [];
  for (let k = Math.ceil(from / step); k * step <= to; ++k) list.push(k * step);
  return { step, list };
}
