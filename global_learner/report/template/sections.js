// The whole page from its content.

const PARTS = [["fleet", "Fleet"], ["acting", "What acts"], ["completion", "Completion time"], ["learning", "Learning"], ["lessons", "Lessons"],
  ["use", "Utilisation"], ["waits", "Waiting"], ["rollouts", "Rollouts"], ["job", "One job"], ["versions", "Versions"], ["events", "Events"], ["guard", "Guard"], ["staleness", "Staleness"]];

const day = (which, label) => [el("label", { for: `events-${which}` }, label), " ", el("input", { id: `events-${which}`, type: "date" }), " "];

byId("parts").append(
  tableSection("fleet", "The fleet", "fleet stacked"),
  section("acting", "Which version acts, and how each fared",
    el("table", { class: "acting" }, el("thead", { id: "acting-head" }), el("tbody", { id: "acting-rows" }))),
  pair(chartSection("completion", "Job completion time"), chartSection("learning", "Learning curve")),
  chartSection("lessons", "What recorded pasts taught"),
  el("div", { id: "load" }, choice("load", "Load of"), el("p", { id: "load-times", class: "finding" }),
    pair(chartSection("use", "Utilisation over time"), chartSection("waits", "Waiting over time"))),
  chartSection("rollouts", "Rollouts"),
  chartSection("job", "One job’s allocation", choice("job", "Job")),
  tableSection("versions", "Policy versions", "versions stacked"),
  section("events", "Events and alerts", el("p", { class: "choice" }, day("from", "From"), day("to", "to")),
    findingOf("events"), el("ul", { id: "events-list", class: "history" }), noteOf("events"), moreOf("events")),
  pair(chartSection("guard", "Guard interventions"), chartSection("staleness", "Staleness of updates")),
);
byId("rollouts").append(el("p", { id: "rollouts-how", class: "note" }), noteOf("rollouts"));

function draw(data) {
  put("headline", data.headline.text);
  put("headline-note", data.headline.note);
  drawAttention(data.attention);
  drawTiles(tilesOf(data));
  const there = { lessons: data.lessons, use: data.load, waits: data.load, acting: data.acting.length, events: data.events.entries.length };
  const present = PARTS.filter(([id]) => !(id in there) || there[id]);
  put("contents", present.map(([id, name]) => el("a", { href: `#${id}` }, name)));
  show("contents", true);
  show("parts", true);
  show("words", true);
  for (const part of [drawFleet, drawActing, drawRollouts, drawCompletion, drawLoad, drawLearning, drawLessons, drawJob, drawVersions, drawEvents, drawGuard, drawStaleness]) part(data);
}

function drawAttention(sentences) {
  const shown = sentences.length > 5 ? sentences.slice(0, 4) : sentences;
  put("attention", sentences.length ? el("div", { class: "attention" },
    el("b", {}, "Needs attention"),
    el("ul", {}, shown.map((sentence) => el("li", {}, sentence)),
      shown.length < sentences.length && el("li", {}, `and ${sentences.length - shown.length} more`))) : []);
}

function tilesOf({ clusters, learner, interventions, told }) {
  const revoked = clusters.filter((row) => row.identity === "revoked").length;
  const there = clusters.filter((row) => row.registered && row.identity !== "revoked").length;
  const notYet = clusters.length - there - revoked;
  const connected = clusters.filter(({ state }) => ["connected", "refuses"].includes(state.word)).length;
  const finished = clusters.filter(({ state }) => state.word === "finished").length;
  const simulated = clusters.filter((row) => row.simulated).length;
  const present = [simulated && (simulated === clusters.length ? "all simulated" : `${whole(simulated)} simulated`), (connected || !finished) && `${whole(connected)} in touch`, finished && `${whole(finished)} finished`, notYet && `${whole(notYet)} not registered yet`, revoked && `${whole(revoked)} revoked`];
  const sum = (figure) => clusters.reduce((all, row) => all + row[figure], 0);
  const done = sum("jobs_done");
  return [
    ["Clusters", whole(there), clusters.length ? present.filter(Boolean).join(", ") : ""],
    ["Jobs completed", told ? whole(done) : "–", !told ? "not known any more" : simulated && simulated === clusters.length ? "in simulation" : ""],
    ["Jobs now", told ? `${whole(sum("jobs_running"))} running` : "–", told ? `${whole(sum("jobs_waiting"))} waiting` : "not known any more"],
    ["Updates applied", whole(learner.updates_accepted), `${whole(learner.updates_rejected)} rejected`],
    ["Newest version", learner.latest_version ? `v${learner.latest_version}` : "–", [learner.latest_taken_back, `head at step ${whole(learner.head_step)}`].filter(Boolean).join("; ")],
    ...(told && interventions.total ? [["Guard interventions", whole(interventions.total), `in ${counted(interventions.decisions, "decision")}`]] : []),
  ];
}

// On paper everything is there, nothing has to be opened.
window.addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("button.more")) if (!node.hidden) node.click();
  for (const node of document.querySelectorAll("details.past")) node.open = true;
});
