// GPUs in use and jobs that wait, over time: a line a scheduler, of the fleet or of the cluster that the reader chooses.

let chosenLoad = null;

const LOAD_PARTS = [
  ["use-part", "used", "GPUs in use [%]", "use_finding"],
  ["waits-part", "waiting", "jobs waiting", "waiting_finding"],
];

function drawLoad({ load }) {
  show("load", load !== null);
  if (!load) return;
  const { scopes } = load;
  const scope = scopes.find(({ name }) => name === chosenLoad) ?? scopes[0];
  show("load-choice", scopes.length > 1);
  offer("load", scope.name, scopes.map(({ name }) => el("option", { value: name }, name)), (name) => { chosenLoad = name; drawLoad({ load }); });
  put("load-times", scope.times_finding);
  show("load-times", Boolean(scope.times_finding));
  for (const [part, which, name, finding] of LOAD_PARTS) drawLoadPart(scope, part, which, name, scope[finding]);
}

function drawLoadPart(scope, part, which, name, finding) {
  const { seconds, gpus, real, axis } = scope;
  const shown = (amounts) => (which === "used" ? amounts.map((amount, at) => (amount === null || !gpus[at] ? null : (100 * amount) / gpus[at])) : amounts);
  const curves = scope.curves.map(({ label, of_own: ofOwn, [which]: amounts }, index) => ({ label, values: shown(amounts), kind: ofOwn ? "p-own again" : index === scope.curves.length - 1 ? "p-own" : `p-${index}` }))
    .filter(({ values }) => values.some((value) => value !== null));
  if (!curves.length) {
    byId(part).replaceChildren(empty(gpus.some((there) => there) ? "Not known." : "There are no GPUs."));
    return;
  }
  chartParts(part);
  put(`${part}-finding`, finding);
  legend(part, curves.map(({ label, kind }) => [label, `line ${kind}`]));
  put(`${part}-note`, scope.note);
  const [unit, size] = unitFor(Math.max(...seconds, 1));
  const when = (at) => (real ? moment(at) : digits(at / size));
  put(`${part}-figures`, figures([real ? axis : `${axis} [${unit}]`, ...curves.map(({ label }) => label)],
    seconds.map((at, index) => [when(at), ...curves.map(({ values }) => (values[index] === null ? "–" : digits(values[index])))])));
  showChart(`${part}-chart`, `${name} over ${axis}, ${scope.name}. ${finding}`, scope,
    (root, width) => paintLoad(root, width, { seconds, curves, name, real, axis, unit, size }));
}

function paintLoad(root, width, { seconds, curves, name, real, axis, unit, size }) {
  const height = chartHeight(width, 210, 300, 0.5);
  const most = Math.max(...curves.flatMap(({ values }) => values), 1);
  const high = most * 1.08;
  const [low, end] = [real ? seconds[0] : 0, Math.max(seconds.at(-1), seconds[0] + 1e-9)];
  const count = width < 500 ? 4 : 6;
  const { sx, sy } = frame(root, {
    width, height,
    x: real ? { low, high: end, ticks: timeTicks(low, end, count), format: timeTick, name: axis }
      : { low, high: end, ticks: ticks(0, end / size, count).map((at) => at * size), format: (at) => plain(at / size), name: `${axis} [${unit}]` },
    y: { low: 0, high, ticks: ticks(0, high, 4).filter((value) => Number.isInteger(value)), name },
  });
  for (const { values, kind } of curves) root.append(svg("path", { class: `line ${kind}`, d: pathOf(seconds.map((at, index) => [sx(at), values[index] === null ? null : sy(values[index])])) }));
  const last = curves.at(-1);
  const marks = seconds.flatMap((at, index) => (curves.every(({ values }) => values[index] === null) ? [] : [{
    x: sx(at), y: sy(last.values[index] ?? 0),
    text: [real ? `${moment(at)} UTC` : `after ${duration(at)}`,
      ...curves.map(({ label, values }) => `${label}: ${values[index] === null ? "not known" : digits(values[index])}`)],
  }]));
  return { height, marks };
}

// Round times of day in UTC, or days, at most `count` of them.
function timeTicks(low, high, count) {
  const steps = [60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400];
  const step = steps.find((each) => (high - low) / each <= count) ?? (high - low) / count;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(Math.floor(high / step) - first + 1, 0) }, (_, index) => (first + index) * step);
}

const timeTick = (at) => (at % 86400 ? moment(at).slice(11) : moment(at).slice(5, 10));
