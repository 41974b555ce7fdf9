// How many steps the shared policy moved while updates were under way: a histogram, stacked by cluster where few.

function drawStaleness({ staleness }) {
  if (!staleness) {
    byId("staleness-part").replaceChildren(empty("No update has been applied yet."));
    return;
  }
  chartParts("staleness-part");
  const { bins, clusters, total, median, oldest, of } = staleness;
  const stacked = clusters.length <= MOST_SERIES;
  const sum = (bin) => Object.values(bin.by).reduce((all, count) => all + count, 0);
  const range = (bin) => (bin.rest ? `${bin.from}+` : bin.from === bin.to ? `${bin.from}` : `${bin.from}–${bin.to}`);
  put("staleness-part-finding", `Half of ${counted(total, "update")} were at most ${counted(median, "step")} old; the oldest ${whole(oldest)}.`);
  legend("staleness-part", stacked ? clusters.map((name, index) => [name, `c${index}`]) : [["all clusters", "c0"]]);
  put("staleness-part-note", `Of ${of}. A stale update moves the policy by a smaller step.`);
  put("staleness-part-figures", figures(["Steps", "Updates", ...(stacked ? clusters : [])],
    bins.map((bin) => [range(bin), whole(sum(bin)), ...(stacked ? clusters.map((name) => whole(bin.by[name] ?? 0)) : [])])));
  const label = `Staleness of ${total} updates: median ${median}, oldest ${oldest} steps`;
  showChart("staleness-part-chart", label, staleness, (root, width) => {
    const height = chartHeight(width, 220, 300, 0.5);
    const high = Math.max(...bins.map(sum)) * 1.05;
    const every = Math.ceil((bins.length * (bins.length > 12 ? 30 : 24)) / (width - 60)); // labels that find room
    const { sx, sy } = frame(root, {
      width, height,
      x: { low: -0.5, high: bins.length - 0.5, ticks: bins.map((_, index) => index).filter((index) => index % every === 0 || bins[index].rest),
        format: (index) => range(bins[index]), name: "staleness in steps" },
      y: { low: 0, high, ticks: ticks(0, high, 4).filter((value) => Number.isInteger(value)), name: "updates" },
    });
    const marks = bins.map((bin, at) => {
      const [x, broad] = [sx(at - 0.5) + 1, Math.max(sx(at + 0.5) - sx(at - 0.5) - 2, 1)];
      let below = 0;
      (stacked ? clusters : [null]).forEach((name, index) => {
        const count = name === null ? sum(bin) : bin.by[name] ?? 0;
        if (!count) return;
        root.append(svg("rect", { class: `c${index}`, x, y: sy(below + count), width: broad, height: sy(below) - sy(below + count) }));
        below += count;
      });
      return {
        x: x + broad / 2, y: sy(below),
        text: [`${range(bin)} ${bin.to === 1 && bin.from === 1 ? "step" : "steps"}: ${counted(below, "update")}`,
          ...(stacked ? clusters.filter((name) => bin.by[name]).map((name) => `${name} ${whole(bin.by[name])}`) : [])],
      };
    });
    return { height, marks };
  });
}
