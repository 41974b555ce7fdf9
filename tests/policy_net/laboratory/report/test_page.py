import dataclasses
import io
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from PIL import Image

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.domain import Allocation
from policy_net.laboratory.report.caveats import cautions
from policy_net.laboratory.report.charts import charts_of
from policy_net.laboratory.report.page import PNG_DOTS_PER_INCH, overview_inches, overview_png, page_html
from policy_net.laboratory.report.policies import describe, label
from policy_net.laboratory.workloads.workload import Skipped
from policy_net.policy import policy_names

EVIL = "<script>alert('x')</script>"
BETTER = {"fifo": [11.0, 13.0], "drf": [9.0, 8.0], "set-taught": [2.0, 4.0]}


class Page(HTMLParser):
    """What a browser would see: tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def test_the_page_answers_in_its_first_heading(made) -> None:
    page = Page(page_html([made(BETTER)]))
    assert "75% less, on the same 8 GPUs, held for 75% fewer GPU-hours." in page.text
    assert [tag for tag, _ in page.tags].count("h1") == 1


def test_names_from_files_are_text_and_nothing_else(made) -> None:
    hours = {"fifo": [1.0, 2.0], "set-taught": [2.0, 1.0], f"{EVIL}.pt": [1.0, 1.0]}
    text = page_html([made(hours, ids=[EVIL, "$\\frac{$"], name=EVIL, notes=(f"{EVIL}.csv: 2 jobs",))])
    assert "<script" not in text
    page = Page(text)
    assert "script" not in [tag for tag, _ in page.tags]
    assert EVIL in page.text
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


@pytest.mark.heavy
def test_names_that_nothing_can_show_become_something_that_can(made) -> None:
    comparison = made(BETTER, name="night\udcff\u202egnp\x00", ids=["a\nb", "日本"])
    page_html([comparison]).encode("utf-8")
    assert overview_png([comparison])


def test_nothing_is_loaded_from_anywhere(made) -> None:
    text = page_html([made(BETTER)])
    page = Page(text)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    sources = [attributes.get("src") or "" for tag, attributes in page.tags if tag == "img"]
    assert len(sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    without_pictures = re.sub(r'src="data:[^"]*"', "", text)
    assert "//" not in without_pictures
    assert "url(" not in without_pictures


def test_every_picture_has_a_text_that_says_what_it_shows(made) -> None:
    page = Page(page_html([made(BETTER)]))
    texts = [attributes.get("alt") or "" for tag, attributes in page.tags if tag == "img"]
    assert all(len(text) > 30 for text in texts)
    assert any("FIFO 12 h; DRF 8.5 h; fedl2 (set-taught) 3 h" in text for text in texts)


@pytest.mark.heavy
def test_the_same_figures_give_the_same_bytes(made) -> None:
    assert page_html([made(BETTER)]) == page_html([made(BETTER)])
    assert overview_png([made(BETTER)]) == overview_png([made(BETTER)])


@pytest.mark.heavy
def test_every_workload_has_its_part_of_the_page_and_the_picture(made) -> None:
    two = [made(BETTER, name="monday"), made({"fifo": [1.0], "set-taught": [2.0]}, name="tuesday")]
    page = Page(page_html(two))
    assert [tag for tag, _ in page.tags].count("article") == 2
    assert "monday" in page.text
    assert "tuesday" in page.text
    image = Image.open(io.BytesIO(overview_png(two)))
    width, height = overview_inches(two)
    assert image.size == (round(width * PNG_DOTS_PER_INCH), pytest.approx(height * PNG_DOTS_PER_INCH, abs=1))


def test_backfill_is_recommended_where_fifo_stands_without_it(made) -> None:
    advice = "compare with --policy fifo-easy"
    assert advice in Page(page_html([made(BETTER)])).text
    assert advice not in Page(page_html([made({"fifo-backfill": [2.0], "fifo": [2.0], "set-taught": [1.0]})])).text


def test_what_cannot_be_drawn_is_left_out(made) -> None:
    assert [chart.key for chart in charts_of(made(BETTER))] == ["average", "distribution", "gpus", "pairs"]
    assert [chart.key for chart in charts_of(made({"drf": [1.0]}))] == ["average", "distribution", "gpus"]
    no_gpus = made({"drf": [1.0]}, gpus_per_node=0)
    assert [chart.key for chart in charts_of(no_gpus)] == ["average", "distribution"]
    assert page_html([no_gpus])
    assert overview_png([no_gpus])


@pytest.mark.heavy
@pytest.mark.parametrize("hours", [[1e-6], [3.0], [3.0, 3.0], [1e-4, 1e5]])
def test_any_times_can_be_drawn(made, hours: list[float]) -> None:
    assert overview_png([made({"fifo": hours, "set-taught": hours})])


def test_a_cluster_size_that_nobody_gave_is_cautioned_against(made) -> None:
    caution = "The machines are assumed, because neither you nor the log says what they are"
    assert caution in Page(page_html([made(BETTER, nodes_given=False)])).text
    assert caution not in Page(page_html([made(BETTER)])).text


def test_a_log_of_which_much_is_skipped_is_cautioned_about_with_most_of_the_reasons(made) -> None:
    comparison = made({"fifo": [2.0] * 100, "set-taught": [1.0] * 100})
    assert cautions(comparison) == ()
    workload = dataclasses.replace(comparison.workload, skipped=Skipped(30, 0.23, "pod", "a.json, pod 7: <bad>", 20))
    comparison = dataclasses.replace(comparison, workload=workload)
    assert cautions(comparison) == (
        "30 pods of the log, 23% of it, are skipped as malformed, most of them (20) like this one: a.json, pod 7:"
        " <bad>. The answer is about the jobs that are left.",
    )
    assert "pod 7: <bad>" in Page(page_html([comparison])).text


def test_few_jobs_are_cautioned_against(made) -> None:
    few = [1.0 + number / 7 for number in range(99)]
    assert "With 99 jobs much is chance" in Page(page_html([made({"fifo": few, "set-taught": few})])).text
    assert cautions(made({"fifo": [*few, 1.0], "set-taught": [*few, 1.0]})) == ()


def test_jobs_that_hardly_wait_today_are_cautioned_about(made) -> None:
    caution = "Under FIFO jobs hardly wait."  # every job takes an hour alone
    assert any(text.startswith(caution) for text in cautions(made({"fifo": [1.02] * 100, "marginal": [0.8] * 100})))
    assert cautions(made({"fifo": [1.2] * 100, "marginal": [0.8] * 100})) == ()
    assert cautions(made({"fifo": [1.0] * 100})) == ()
    assert cautions(made({"drf": [0.9] * 100, "marginal": [0.8] * 100})) == ()  # may wait, and train faster


def test_jobs_that_are_larger_than_the_cluster_are_cautioned_about(made) -> None:
    comparison = made({"fifo": [2.0] * 100, "marginal": [1.0] * 100}, nodes=1)
    jobs = list(comparison.workload.jobs)
    jobs[7] = dataclasses.replace(jobs[7], requested=Allocation(3, 1))
    larger = dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, jobs=tuple(jobs)))
    assert cautions(comparison) == ()
    assert cautions(larger) == (
        "1 job asked for more than the 2 GPUs that there are here, and gets fewer under every policy: these are not the"
        " machines on which it ran.",
    )


def test_a_cluster_that_cannot_keep_up_today_is_cautioned_against(made) -> None:
    hours = [1.0 + number / 7 for number in range(100)]
    comparison = made({"fifo": hours, "set-taught": hours})
    jobs = tuple(
        dataclasses.replace(job, submit_time_seconds=float(number))
        for number, job in enumerate(comparison.workload.jobs)
    )
    late = {job.job_id: [(1000.0, 1, 1), (2000.0, 0, 0)] for job in jobs}
    queue = dataclasses.replace(
        comparison,
        workload=dataclasses.replace(comparison.workload, jobs=jobs),
        results=(dataclasses.replace(comparison.results[0], timeline=late), comparison.results[1]),
    )
    assert (
        "Under FIFO 99 of the 100 jobs were waiting with nothing when the last one was submitted" in cautions(queue)[0]
    )


def test_of_a_long_name_of_a_policy_file_the_end_is_shown() -> None:
    assert label("versions/" + "x" * 40 + "-v12.pt") == "…" + "x" * 20 + "-v12.pt"


def test_every_registered_policy_has_a_name_and_a_description() -> None:
    for name in policy_names():
        assert label(name) != name, name
        assert describe(name) != describe("some-file.pt"), name


def test_the_curve_of_a_policy_rises_where_its_jobs_end(made) -> None:
    chart = next(chart for chart in charts_of(made({"drf": [3.0, 1.0]})) if chart.key == "distribution")
    axes = Figure().add_subplot()
    chart.draw(axes)
    line = axes.get_lines()[0]
    assert line.get_xydata().tolist() == [[3600.0, 0.0], [3600.0, 0.5], [3 * 3600.0, 1.0]]
