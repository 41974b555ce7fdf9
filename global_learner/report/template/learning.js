// What versions are worth over the updates that made them: a line per series, and their mean.

const MOST_SERIES = 6;

function drawLearning({ learning, versions }) {
  if (!learning || learning.points.length < 2) {
    byId("learning-part").replaceChildren(empty(learning
      ? `v${learning.points[0].version} takes ${learning.points[0].mean.toFixed(3)} of the time of ${learning.reference}; a curve needs another version’s score.`
      : versions.length > 1 ? "No version has a score yet." : "No version has been published beside the first."));
    return;
  }
  chartParts("learning-part");
  const { points, series, reference } = learning;
  const shown = series.length <= MOST_SERIES ? series : [];
  put("learning-part-finding", learning.finding);
  legend("learning-part", [...shown.map((name, index) => [name, `line c${index}`]), ["mean: the score", "line mean"], [reference, "line reference"]]);
  put("learning-part-note", `A version’s score: its average completion time over that of ${reference} on the same jobs; 1 is as long, lower is better.`
    + ` The mean is what the page says of a version everywhere; one thin line a ${learning.of}.`
    + (shown.length < series.length ? ` ${series.length} lines, drawn faintly.` : ""));
  put("learning-part-figures", figures(["Version", "Step", "Score", ...series],
    points.map((point) => [`v${point.version}`, whole(point.head_step), point.mean.toFixed(3),
      ...series.map((name) => point.by[name]?.toFixed(3) ?? "–")])));
  const label = `Learning curve: ${points.map((point) => `v${point.version} ${point.mean.toFixed(2)}`).join(", ")}`;
  showChart("learning-part-chart", label, learning, (root, width) => paintLearning(root, width, learning, shown));
}

function paintLearning(root, width, { points, series, reference }, shown) {
  const height = Math.max(230, Math.min(330, width * 0.55));
  const values = points.flatMap((point) => [point.mean, ...Object.values(point.by)]);
  const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
  const room = Math.max((most - least) * 0.08, 0.02);
  const [low, high] = [least - room, most + room];
  const last = Math.max(points.at(-1).head_step, 1);
  const { sx, sy, left, right } = frame(root, {
    width, height,
    x: { low: 0, high: last, ticks: ticks(0, last, width < 500 ? 4 : 6).filter((value) => Number.isInteger(value)), name: "updates applied" },
    y: { low, high, ticks: ticks(low, high, 5), name: `score, ${reference} = 1`, format: (value) => value.toFixed(2) },
  });
  root.append(svg("line", { class: "line reference", x1: left, x2: width - right, y1: sy(1), y2: sy(1) }));
  seriesLines(root, { points, series }, shown, { sx, sy });
  const marks = points.map((point) => ({
    x: sx(point.head_step), y: sy(point.mean),
    text: [`v${point.version}, step ${whole(point.head_step)}`, `score ${point.mean.toFixed(3)}`,
      ...shown.map((name) => `${name} ${point.by[name]?.toFixed(3) ?? "–"}`)],
  }));
  return { height, marks };
}

// A thin line a series and a thick one for their mean, over the updates.
function seriesLines(root, { points, series }, shown, { sx, sy }) {
  const path = (of) => points.filter((point) => of(point) !== undefined)
    .map((point, index) => `${index ? "L" : "M"}${sx(point.head_step)} ${sy(of(point))}`).join("");
  series.forEach((name, index) => root.append(
    svg("path", { class: shown.length ? `line thin c${index}` : "line thin faint", d: path((point) => point.by[name]) })));
  root.append(svg("path", { class: "line mean", d: path((point) => point.mean) }));
  for (const point of points) root.append(svg("circle", { class: "mean", cx: sx(point.head_step), cy: sy(point.mean), r: 3.5 }));
}
