// What versions are worth over the updates that made them, and what recorded pasts taught: a line a series, and their mean.

const MOST_SERIES = 6;
const shift = (ratio) => `${ratio < 1 ? "−" : "+"}${Math.abs((ratio - 1) * 100).toFixed(1)}%`;

function drawLearning({ learning, versions }) {
  if (!learning || learning.points.length < 2) {
    byId("learning-part").replaceChildren(empty(learning
      ? `v${learning.points[0].version} takes ${learning.points[0].mean.toFixed(3)} of the time of ${learning.reference}; a curve needs another version’s score.`
      : versions.length > 1 ? "No version has a score yet." : "No version has been published beside the first."));
    return;
  }
  const { series, reference, of } = learning;
  drawCurve("learning-part", learning, {
    steps: "Step",
    title: "Learning curve", mean: "mean: the score", reference, words: (score) => score.toFixed(3),
    columns: { Score: ({ mean }) => mean.toFixed(3) },
    tip: (point) => [`v${point.version}, step ${whole(point.head_step)}`, `score ${point.mean.toFixed(3)}`],
    note: `A version’s score: its average completion time over that of ${reference} on the same jobs; 1 is as long, lower is better.`
      + ` The thick line is the mean, a version’s score everywhere on this page; a thin line is a ${of}.`
      + (series.length > MOST_SERIES ? ` ${series.length} lines, drawn faintly.` : ""),
    across: "updates applied", up: `score, ${reference} = 1`, format: (score) => score.toFixed(2), zero: 0, room: 0.02, share: 0.55,
  });
}

function drawLessons({ lessons }) {
  show("lessons", Boolean(lessons));
  if (!lessons) return;
  const interval = ({ low, high }) => `${shift(low)} to ${shift(high)}`;
  drawCurve("lessons-part", lessons, {
    steps: "Updates",
    title: "What recorded pasts taught", mean: "mean, with its 95% interval", reference: "before any lesson", words: shift,
    columns: { Change: ({ mean }) => shift(mean), "95% interval": interval },
    tip: (point) => [`v${point.version}, ${counted(point.head_step, "update")}`, `${shift(point.mean)} (${interval(point)})`],
    note: lessons.note, across: "updates from recorded pasts", up: "average completion time of later jobs, change",
    format: (ratio) => (Math.abs(ratio - 1) < 1e-9 ? "0" : `${ratio < 1 ? "−" : "+"}${plain(Number(Math.abs((ratio - 1) * 100).toFixed(2)))}%`),
    zero: 1, room: 0.004, share: 0.42,
  });
}

function drawCurve(partId, curve, { title, mean, reference, words, steps, columns, tip, note, ...axes }) {
  chartParts(partId);
  const { points, series } = curve;
  const shown = series.length <= MOST_SERIES ? series : [];
  const of = (point) => (name) => (name in point.by ? words(point.by[name]) : "–");
  put(`${partId}-finding`, curve.finding);
  legend(partId, [...shown.map((name, index) => [name, `line c${index}`]), [mean, "line mean"], [reference, "line reference"]]);
  put(`${partId}-note`, note);
  put(`${partId}-figures`, figures(["Version", steps, ...Object.keys(columns), ...series], points.map((point) =>
    [`v${point.version}`, whole(point.head_step), ...Object.values(columns).map((column) => column(point)), ...series.map(of(point))])));
  const label = `${title}: ${points.map((point) => `v${point.version} ${words(point.mean)}`).join(", ")}`;
  const told = (point) => [...tip(point), ...shown.map((name) => `${name} ${of(point)(name)}`)];
  showChart(`${partId}-chart`, label, curve, (root, width) => paintCurve(root, width, curve, shown, told, axes));
}

// `zero`: the value from which round steps are counted; `room`: least space above and below all values.
function paintCurve(root, width, { points, series }, shown, told, { across, up, format, zero, room, share }) {
  const values = points.flatMap((point) => [point.mean, point.low ?? 1, point.high ?? 1, ...Object.values(point.by)]);
  const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
  const space = Math.max((most - least) * 0.08, room);
  const [low, high] = [least - space, most + space];
  const last = Math.max(points.at(-1).head_step, 1);
  const height = chartHeight(width, 230, 330, share);
  const { sx, sy, left, right } = frame(root, {
    width, height,
    x: { low: 0, high: last, ticks: ticks(0, last, width < 500 ? 4 : 6).filter((value) => Number.isInteger(value)), name: across },
    y: { low, high, ticks: ticks(low - zero, high - zero, 5).map((value) => value + zero), name: up, format },
  });
  const path = (of, given = points) =>
    pathOf(given.filter((point) => of(point) !== undefined).map((point) => [sx(point.head_step), sy(of(point))]));
  root.append(svg("line", { class: "line reference", x1: left, x2: width - right, y1: sy(1), y2: sy(1) }));
  if (points.some((point) => "low" in point)) {
    const below = path((point) => point.low, [...points].reverse()).replace("M", "L");
    root.append(svg("path", { class: "band mean", d: `${path((point) => point.high)}${below}Z` }));
  }
  series.forEach((name, index) => root.append(
    svg("path", { class: shown.length ? `line thin c${index}` : "line thin faint", d: path((point) => point.by[name]) })));
  root.append(svg("path", { class: "line mean", d: path((point) => point.mean) }));
  for (const point of points) root.append(svg("circle", { class: "mean", cx: sx(point.head_step), cy: sy(point.mean), r: 3.5 }));
  return { height, marks: points.map((point) => ({ x: sx(point.head_step), y: sy(point.mean), text: told(point) })) };
}
