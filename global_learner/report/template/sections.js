// The whole page from its content.

const PARTS = [["fleet", "Fleet"], ["rollouts", "Rollouts"], ["completion", "Completion time"], ["learning", "Learning"], ["job", "One job"],
  ["staleness", "Staleness"], ["guard", "Guard"], ["versions", "Versions"]];

function draw(data) {
  put("headline", data.headline.text);
  put("headline-note", data.headline.note);
  drawAttention(data.attention);
  drawTiles(data);
  put("contents", PARTS.map(([id, name]) => el("a", { href: `#${id}` }, name)));
  show("contents", true);
  show("parts", true);
  for (const part of [drawFleet, drawRollouts, drawCompletion, drawLearning, drawJob, drawStaleness, drawGuard, drawVersions]) part(data);
}

function drawAttention(sentences) {
  const shown = sentences.length > 5 ? sentences.slice(0, 4) : sentences;
  put("attention", sentences.length ? el("div", { class: "attention" },
    el("b", {}, "Needs attention"),
    el("ul", {}, shown.map((sentence) => el("li", {}, sentence)),
      shown.length < sentences.length && el("li", {}, `and ${sentences.length - shown.length} more`))) : []);
}

function drawTiles({ clusters, learner, interventions, told }) {
  const connected = clusters.filter(({ state }) => state.word === "connected").length;
  const finished = clusters.filter(({ state }) => state.word === "finished").length;
  const simulated = clusters.filter((row) => row.simulated).length;
  const present = [simulated && (simulated === clusters.length ? "all simulated" : `${whole(simulated)} simulated`), (connected || !finished) && `${whole(connected)} in touch`, finished && `${whole(finished)} finished`];
  const done = clusters.reduce((sum, row) => sum + row.jobs_done, 0);
  const tiles = [
    ["Clusters", whole(clusters.length), clusters.length ? present.filter(Boolean).join(", ") : ""],
    told ? ["Jobs completed", whole(done), `${whole(clusters.reduce((sum, row) => sum + row.jobs_running, 0))} running`]
      : ["Jobs completed", "–", "not known any more"],
    ["Updates applied", whole(learner.updates_accepted), `${whole(learner.updates_rejected)} rejected`],
    ["Newest version", learner.latest_version ? `v${learner.latest_version}` : "–", `head at step ${whole(learner.head_step)}`],
    ["Staleness", counted(learner.staleness_p50, "step"), "median, lately"],
    told ? ["Guard interventions", whole(interventions.total), `in ${counted(interventions.decisions, "decision")}`]
      : ["Guard interventions", "–", "not known any more"],
  ];
  put("tiles", tiles.map(([name, value, below]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", {}, below)))));
}

// On paper everything is there, nothing has to be opened.
window.addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("button.more")) if (!node.hidden) node.click();
  for (const node of document.querySelectorAll("details.past")) node.open = true;
});
