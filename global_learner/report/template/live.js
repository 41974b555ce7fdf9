// Where the content comes from: inside the file, or from the learner every few seconds.

const ASK_MILLISECONDS = 3000;
const ANSWER_MILLISECONDS = 8000;
let shownSeconds = null;
let asking = false;

function say(word, kind, updated) {
  put("status", word && [el("span", { class: `light ${kind}`, "aria-hidden": "true" }), word]);
  put("updated", updated);
}

async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch("report.json", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MILLISECONDS) });
    if (!answer.ok) throw new Error(`the learner answered with ${answer.status}`);
    const data = await answer.json();
    draw(data);
    shownSeconds = data.made_unix_seconds;
    show("lost", false);
    say("live", "good", `last updated ${clock(shownSeconds)} UTC`);
  } catch (error) {
    const since = shownSeconds === null ? "Nothing has been heard of it yet." : `What stands here is as of ${clock(shownSeconds)} UTC.`;
    put("lost", `The learner does not answer. ${since} This page keeps asking.`);
    show("lost", true);
    say("connection lost", "bad", shownSeconds === null ? "" : `last updated ${clock(shownSeconds)} UTC`);
    console.warn(error);
  } finally {
    asking = false;
  }
}

const inlined = JSON.parse(byId("data").textContent);
if (inlined) {
  draw(inlined);
  say("", "none", `as of ${moment(inlined.made_unix_seconds)} UTC`);
} else {
  say("connecting", "none", "");
  ask();
  setInterval(ask, ASK_MILLISECONDS);
  document.addEventListener("visibilitychange", ask);
}
