// The whole page from its content.

const PARTS = [["fleet", "Fleet"], ["acting", "What acts"], ["completion", "Completion time"], ["learning", "Learning"], ["lessons", "Lessons"],
  ["use", "Utilisation"], ["waits", "Waiting"], ["rollouts", "Rollouts"], ["job", "One job"], ["versions", "Versions"], ["events", "Events"], ["guard", "Guard"], ["staleness", "Staleness"]];

function draw(data) {
  put("headline", data.headline.text);
  put("headline-note", data.headline.note);
  drawAttention(data.attention);
  drawTiles(data);
  const there = { lessons: data.lessons, use: data.load, waits: data.load, acting: data.acting.length, events: data.events.entries.length };
  const present = PARTS.filter(([id]) => !(id in there) || there[id]);
  put("contents", present.map(([id, name]) => el("a", { href: `#${id}` }, name)));
  show("contents", true);
  show("parts", true);
  for (const part of [drawFleet, drawActing, drawRollouts, drawCompletion, drawLoad, drawLearning, drawLessons, drawJob, drawVersions, drawEvents, drawGuard, drawStaleness]) part(data);
}

function drawAttention(sentences) {
  const shown = sentences.length > 5 ? sentences.slice(0, 4) : sentences;
  put("attention", sentences.length ? el("div", { class: "attention" },
    el("b", {}, "Needs attention"),
    el("ul", {}, shown.map((sentence) => el("li", {}, sentence)),
      shown.length < sentences.length && el("li", {}, `and ${sentences.length - shown.length} more`))) : []);
}

function drawTiles({ clusters, learner, interventions, told }) {
  const revoked = clusters.filter((row) => row.identity === "revoked").length;
  const there = clusters.filter((row) => row.registered && row.identity !== "revoked").length;
  const notYet = clusters.length - there - revoked;
  const connected = clusters.filter(({ state }) => ["connected", "refuses"].includes(state.word)).length;
  const finished = clusters.filter(({ state }) => state.word === "finished").length;
  const simulated = clusters.filter((row) => row.simulated).length;
  const present = [simulated && (simulated === clusters.length ? "all simulated" : `${whole(simulated)} simulated`), (connected || !finished) && `${whole(connected)} in touch`, finished && `${whole(finished)} finished`, notYet && `${whole(notYet)} not registered yet`, revoked && `${whole(revoked)} revoked`];
  const sum = (figure) => clusters.reduce((all, row) => all + row[figure], 0);
  const done = sum("jobs_done");
  const tiles = [
    ["Clusters", whole(there), clusters.length ? present.filter(Boolean).join(", ") : ""],
    ["Jobs completed", told ? whole(done) : "–", !told ? "not known any more" : simulated && simulated === clusters.length ? "in simulation" : ""],
    ["Jobs now", told ? `${whole(sum("jobs_running"))} running` : "–", told ? `${whole(sum("jobs_waiting"))} waiting` : "not known any more"],
    ["Updates applied", whole(learner.updates_accepted), `${whole(learner.updates_rejected)} rejected`],
    ["Newest version", learner.latest_version ? `v${learner.latest_version}` : "–", [learner.latest_taken_back, `head at step ${whole(learner.head_step)}`].filter(Boolean).join("; ")],
    ...(told && interventions.total ? [["Guard interventions", whole(interventions.total), `in ${counted(interventions.decisions, "decision")}`]] : []),
  ];
  put("tiles", tiles.map(([name, value, below]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", {}, below)))));
}

// On paper everything is there, nothing has to be opened.
window.addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("button.more")) if (!node.hidden) node.click();
  for (const node of document.querySelectorAll("details.past")) node.open = true;
});
