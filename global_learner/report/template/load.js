// GPUs in use and jobs that wait, over time: a line a policy.

function drawLoad({ load }) {
  show("load", load !== null);
  if (!load) return;
  const parts = [
    ["use-part", (point, gpus) => (gpus ? (100 * point[1]) / gpus : undefined), "GPUs in use [%]", "use_finding"],
    ["waits-part", (point) => point[2], "jobs waiting", "waiting_finding"],
  ];
  for (const [part, of, name, finding] of parts) {
    const curves = load.curves.filter(({ gpus, points }) => of(points[0], gpus) !== undefined);
    if (!curves.length) {
      byId(part).replaceChildren(empty("There are no GPUs."));
      continue;
    }
    chartParts(part);
    put(`${part}-finding`, load[finding]);
    const kind = (index) => (index === curves.length - 1 ? "p-own" : `p-${index}`);
    legend(part, curves.map(({ label }, index) => [label, `line ${kind(index)}`]));
    put(`${part}-note`, load.note);
    const [unit, size] = unitFor(Math.max(...curves.flatMap(({ points }) => points.map(([at]) => at)), 1));
    put(`${part}-figures`, figures([`${load.axis} [${unit}]`, ...curves.map(({ label }) => label)],
      curves[0].points.map(([at], index) => [digits(at / size), ...curves.map(({ points, gpus }) => digits(of(points[index], gpus)))])));
    const label = `${name} over ${load.axis}. ${load[finding]}`;
    showChart(`${part}-chart`, label, load, (root, width) => paintLoad(root, width, { curves, of, name, kind, unit, size, axis: load.axis }));
  }
}

function paintLoad(root, width, { curves, of, name, kind, unit, size, axis }) {
  const height = Math.max(210, Math.min(300, width * 0.5));
  const end = Math.max(...curves.flatMap(({ points }) => points.map(([at]) => at / size)), 1e-9);
  const most = Math.max(...curves.flatMap(({ points, gpus }) => points.map((point) => of(point, gpus))), 1);
  const high = most * 1.08;
  const { sx, sy } = frame(root, {
    width, height,
    x: { low: 0, high: end, ticks: ticks(0, end, width < 500 ? 4 : 6), name: `${axis} [${unit}]` },
    y: { low: 0, high, ticks: ticks(0, high, 4).filter((value) => Number.isInteger(value)), name },
  });
  curves.forEach(({ points, gpus }, index) => root.append(svg("path", {
    class: `line ${kind(index)}`,
    d: points.map((point, at) => `${at ? "L" : "M"}${sx(point[0] / size)} ${sy(of(point, gpus))}`).join(""),
  })));
  const marks = curves[0].points.map(([at], index) => ({
    x: sx(at / size), y: sy(of(curves.at(-1).points[index], curves.at(-1).gpus)),
    text: [`after ${duration(at)}`, ...curves.map(({ label, points, gpus }) => `${label}: ${digits(of(points[index], gpus))}`)],
  }));
  return { height, marks };
}
