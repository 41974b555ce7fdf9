"""What `policyctl version diff` prints for people."""

from __future__ import annotations

from rich.table import Table

from global_learner.policyctl.version_diff import shown
from global_learner.policyctl.views import Facts, moment


def diff_table(facts: Facts) -> Table:
    """A row a difference."""
    table = Table("", facts["from"], facts["to"])
    for section in ("card", "spec"):
        for name, (one, other) in facts[section].items():
            if name == "created_unix_seconds":
                table.add_row(name, *(f"{moment(value)} UTC" for value in (one, other)))
                continue
            table.add_row(name if section == "card" else f"spec.{name}", shown(one), shown(other))
    weights, scores, decisions = facts["weights"], facts["scores"], facts["decisions"]
    if "reason" in weights:
        table.add_row("weights", "–", weights["reason"])
    else:
        for name, layer in {"all weights": weights["all"], **weights["layers"]}.items():
            cosine = "–" if layer["cosine"] is None else f"{layer['cosine']:.6f}"
            table.add_row(name, "", f"L2 {layer['l2']:.4g}, max {layer['max']:.3g}, cosine {cosine}")
    if "reason" in scores:
        table.add_row("scores", "–", scores["reason"])
        return table
    for name, (one, other) in scores["over"].items():
        table.add_row(f"average JCT over {name}", f"{one - 1.0:+.1%}", f"{other - 1.0:+.1%}")
    for name, (one, other) in scores["avg_jct_seconds"].items():
        table.add_row(f"avg JCT, {name}", f"{one:.0f} s", f"{other:.0f} s")
    table.add_row(
        "decisions that differ",
        "",
        f"{decisions['differing']} of {decisions['states']} states of {decisions['replay_set']} "
        f"({decisions['share']:.0%})",
    )
    return table
