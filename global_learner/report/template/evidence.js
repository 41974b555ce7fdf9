// What is known of a rollout's version over time: an estimate in a band, and the limits at which it passes or fails.

const signed = (share) => {
  const text = Math.abs(100 * share).toFixed(1);
  return `${Number(text) === 0 ? "±" : share < 0 ? "−" : "+"}${text}%`;
};

// The same on an axis and in a legend: +100%, 0%.
const limit = (share) => signed(share).replace(/\.0%$/, "%").replace("±", "");

function drawEvidence(partId, card) {
  const { evidence, stages, number } = card;
  if (!evidence) {
    const begun = stages.some(({ name, tone }) => !["Gate", "Shadow"].includes(name) && tone !== "ahead");
    put(partId, el("p", { class: "note" }, begun ? "No cluster has brought a pair of blocks yet." : "Evidence begins with the clusters that take turns."));
    return;
  }
  if (!evidence.points.some(({ least }) => least !== null)) {
    put(partId, el("p", { class: "note" }, evidence.finding));
    return;
  }
  chartParts(partId);
  put(`${partId}-finding`, evidence.finding);
  legend(partId, [["estimate", "line c0"], ["known to be between", "band c0"], [`passes below ${limit(evidence.margin)}`, "line passes"], ["fails above 0", "line fails"]]);
  put(`${partId}-figures`, figures(["After", "Stage", "Pairs", "Estimate", "At least", "At most", "Verdict"], evidence.points.map((point) => [
    duration(point.seconds), stages[point.stage].name, whole(point.pairs),
    ...[point.estimate, point.least, point.most].map((share) => (share === null ? "–" : signed(share))), point.outcome])));
  const label = `Evidence on v${evidence.version}. ${evidence.finding} It passes below ${signed(evidence.margin)} and fails above 0.`;
  showChart(`${partId}-chart`, label, [evidence, stages.map(({ began_unix_seconds: began }) => began)],
    (root, width) => paintEvidence(root, width, card, `clip-${number}`));
}

// The range that later bounds need; the first ones, of very few blocks, go beyond it.
function evidenceRange(points, margin) {
  const known = points.filter(({ least }) => least !== null);
  const late = known.slice(Math.floor(known.length / 3));
  const values = [0, margin, ...late.flatMap(({ least, most, estimate }) => [least, most, estimate ?? least])];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = Math.max((most - least) * 0.06, 0.005);
  return [least - room, Math.min(most, 3) + room];
}

function paintEvidence(root, width, { evidence: { points, margin }, stages, started_unix_seconds: started }, clip) {
  const height = chartHeight(width, 230, 320, 0.34);
  const begins = stages.map(({ began_unix_seconds: began, name }) => ({ name, seconds: began === null ? null : began - started }));
  const first = Math.min(begins[points[0].stage].seconds ?? points[0].seconds, points[0].seconds);
  const last = Math.max(points.at(-1).seconds, first + 1);
  const [unit, size] = unitFor(last);
  const [low, high] = evidenceRange(points, margin);
  const { sx, sy, left, right, top, bottom } = frame(root, {
    width, height, left: 54, top: 40,
    x: { low: first / size, high: last / size, ticks: ticks(first / size, last / size, width < 500 ? 4 : 8), name: `time since the rollout began [${unit}]` },
    y: { low, high, ticks: ticks(low, high, 5), name: "jobs in the system, against before", format: limit },
  });
  root.append(svg("clipPath", { id: clip }, svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom })));
  const inside = svg("g", { "clip-path": `url(#${clip})` });
  let labelled = -Infinity;
  for (const { name, seconds } of begins) {
    if (seconds === null || seconds < first || seconds > last) continue;
    const x = sx(seconds / size);
    root.append(svg("line", { class: "stage", x1: x, x2: x, y1: top - 4, y2: height - bottom }));
    if (x - labelled > 64 && x < width - 60) {
      root.append(svg("text", { class: "tick", x: x + 4, y: top - 6 }, name));
      labelled = x;
    }
  }
  for (const run of runsOfKnown(points)) {
    const at = ({ seconds }) => sx(seconds / size);
    const line = (of, over = run) => pathOf(over.map((point) => [at(point), sy(of(point))]));
    const back = line(({ least }) => least, [...run].reverse()).replace("M", "L");
    inside.append(svg("path", { class: "area c0", d: `${line(({ most }) => most)}${back}Z` }),
      svg("path", { class: "line edge c0", d: line(({ most }) => most) }), svg("path", { class: "line edge c0", d: line(({ least }) => least) }),
      svg("path", { class: "line c0", d: line(({ estimate }) => estimate, run.filter(({ estimate }) => estimate !== null)) }));
    if (run.length === 1) {
      inside.append(svg("line", { class: "span c0", x1: at(run[0]), x2: at(run[0]), y1: sy(run[0].least), y2: sy(run[0].most) }));
    }
    const end = run.at(-1);
    if (end.estimate !== null) inside.append(svg("circle", { class: "c0", cx: at(end), cy: sy(end.estimate), r: 4 }));
  }
  for (const [value, kind] of [[margin, "passes"], [0, "fails"]]) {
    root.append(svg("line", { class: `line ${kind}`, x1: left, x2: width - right, y1: sy(value), y2: sy(value) }));
  }
  root.append(inside);
  const marks = points.map((point) => ({
    x: sx(point.seconds / size), y: sy(Math.min(Math.max(point.estimate ?? 0, low), high)),
    text: [`${stages[point.stage].name}, after ${duration(point.seconds)}`, counted(point.pairs, "pair") + " of blocks",
      point.least === null ? "nothing is known yet" : `between ${signed(point.least)} and ${signed(point.most)}`,
      ...(point.estimate === null ? [] : [`estimate ${signed(point.estimate)}`]), `verdict: ${point.outcome}`],
  }));
  return { height, marks };
}

function runsOfKnown(points) {
  const runs = [[]];
  for (const point of points) {
    if (point.least === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length);
}
