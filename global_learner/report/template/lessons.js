// What recorded pasts taught: the mean change on later jobs with its 95% interval, and a line per cluster.

function drawLessons({ lessons }) {
  show("lessons", Boolean(lessons));
  if (!lessons) return;
  chartParts("lessons-part");
  const { points, series } = lessons;
  const shown = series.length <= MOST_SERIES ? series : [];
  put("lessons-part-finding", lessons.finding);
  legend("lessons-part", [...shown.map((name, index) => [name, `line c${index}`]), ["mean, with its 95% interval", "line mean"], ["before any lesson", "line reference"]]);
  put("lessons-part-note", lessons.note);
  put("lessons-part-figures", figures(["Version", "Updates", "Change", "95% interval", ...series],
    points.map((point) => [`v${point.version}`, whole(point.head_step), shift(point.mean), `${shift(point.low)} to ${shift(point.high)}`,
      ...series.map((name) => (name in point.by ? shift(point.by[name]) : "–"))])));
  const label = `What recorded pasts taught: ${points.map((point) => `v${point.version} ${shift(point.mean)}`).join(", ")}`;
  showChart("lessons-part-chart", label, lessons, (root, width) => paintLessons(root, width, lessons, shown));
}

const shift = (ratio) => `${ratio < 1 ? "−" : "+"}${Math.abs((ratio - 1) * 100).toFixed(1)}%`;

function paintLessons(root, width, { points, series }, shown) {
  const height = Math.max(230, Math.min(330, width * 0.42));
  const values = points.flatMap((point) => [point.low, point.high, ...Object.values(point.by)]);
  const [least, most] = [Math.min(...values, 1), Math.max(...values, 1)];
  const room = Math.max((most - least) * 0.08, 0.004);
  const [low, high] = [least - room, most + room];
  const last = Math.max(points.at(-1).head_step, 1);
  const { sx, sy, left, right } = frame(root, {
    width, height,
    x: { low: 0, high: last, ticks: ticks(0, last, width < 500 ? 4 : 6).filter((value) => Number.isInteger(value)), name: "updates from recorded pasts" },
    y: { low, high, ticks: ticks(low - 1, high - 1, 5).map((value) => value + 1), name: "average completion time of later jobs, change", format: (value) => (Math.abs(value - 1) < 1e-9 ? "0" : `${value < 1 ? "−" : "+"}${plain(Number(Math.abs((value - 1) * 100).toFixed(2)))}%`) },
  });
  root.append(svg("line", { class: "line reference", x1: left, x2: width - right, y1: sy(1), y2: sy(1) }));
  const edge = (of, given) => given.map((point) => `L${sx(point.head_step)} ${sy(of(point))}`).join("");
  const around = `${edge((point) => point.high, points)}${edge((point) => point.low, [...points].reverse())}`;
  root.append(svg("path", { class: "band mean", d: `M${around.slice(1)}Z` }));
  seriesLines(root, { points, series }, shown, { sx, sy });
  const marks = points.map((point) => ({
    x: sx(point.head_step), y: sy(point.mean),
    text: [`v${point.version}, ${counted(point.head_step, "update")}`, `${shift(point.mean)} (${shift(point.low)} to ${shift(point.high)})`,
      ...shown.map((name) => `${name} ${name in point.by ? shift(point.by[name]) : "–"}`)],
  }));
  return { height, marks };
}
