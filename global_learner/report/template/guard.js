// How often the guard stepped in, and why.

// The agents' own word, by which logs and metrics are searched, and what it means.
const reasonWords = ({ reason, meaning }) => (meaning ? `${reason}: ${meaning.split(";")[0]}` : reason);

function drawGuard({ interventions, told }) {
  const { reasons, total, decisions } = interventions;
  if (!reasons.length) {
    byId("guard-part").replaceChildren(empty(!told ? NOT_TOLD : decisions
      ? `None: all ${counted(decisions, "decision")} so far were the policy’s own.` : "No cluster has decided anything yet."));
    return;
  }
  chartParts("guard-part");
  put("guard-part-finding", `${counted(total, "intervention")} in ${counted(decisions, "decision")}.`);
  put("guard-part-note", "Decisions that the guard changed never train the policy.");
  put("guard-part-figures", figures(["Reason", "Times", "Meaning", "Clusters"],
    reasons.map((entry) => [entry.reason, whole(entry.total), entry.meaning || "–", shares(entry.by, 3)])));
  const label = `Interventions by reason: ${reasons.map((entry) => `${entry.reason} ${entry.total}`).join(", ")}`;
  showChart("guard-part-chart", label, interventions, (root, width) => {
    const tall = 52;
    const most = Math.max(...reasons.map((entry) => entry.total));
    const letters = Math.floor(width / 7.8);
    const marks = reasons.map((entry, index) => {
      const y = index * tall;
      const long = Math.max((entry.total / most) * (width - 20 - 8 * whole(most).length), 2);
      root.append(svg("text", { class: "row", x: 0, y: y + 14 }, shortened(reasonWords(entry), letters)),
        svg("rect", { class: "guard", x: 0, y: y + 21, width: long, height: 18, rx: 3 }),
        svg("text", { class: "value", x: long + 6, y: y + 35 }, whole(entry.total)));
      return { x: long, y: y + 30, text: [`${entry.reason}: ${whole(entry.total)}`, entry.meaning, shares(entry.by, 6)].filter(Boolean) };
    });
    return { height: reasons.length * tall, marks };
  });
}
