from collections import Counter

import numpy as np
import pytest

from policy_net.dl2.policy import DecisionSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.settings import ReplayDraw


def experience(number: int) -> Experience:
    samples = DecisionSamples(
        np.zeros((3, 1), np.float32), np.ones((3, 2), bool), np.zeros(3, int), np.ones(3), np.zeros(3, int)
    )
    return Experience(samples, float(number), 100.0)


def filled(count: int, capacity: int = 10_000) -> tuple[ExperienceReplay, list[Experience]]:
    replay = ExperienceReplay(capacity, seed=0)
    entries = [experience(number) for number in range(count)]
    for entry in entries:
        replay.add(entry)
    return replay, entries


def drawn(replay: ExperienceReplay, entries: list[Experience], times: int = 400) -> Counter[int]:
    places = {id(entry): place for place, entry in enumerate(entries)}
    counts: Counter[int] = Counter()
    for _ in range(times):
        for segment in replay.draw(ReplayDraw.PRIORITISED, 1, 2):
            counts[places[id(segment[0])]] += 1
    return counts


def test_what_surprised_more_is_drawn_more_often() -> None:
    replay, entries = filled(9)
    replay.revalue([entries], [8.0, 8.0, *[0.1] * 7])
    counts = drawn(replay, entries)
    # priorities of the eight runs: mean surprises of 8, 4.05 and 0.1, to the power of 0.6
    odds = np.array([8.0, 4.05, *[0.1] * 6]) ** 0.6
    shares = np.array([counts[place] for place in range(8)]) / 400
    np.testing.assert_allclose(shares, odds / odds.sum(), atol=0.1)


def test_what_nobody_has_learned_from_yet_comes_first() -> None:
    replay, entries = filled(8)
    replay.revalue([entries], [5.0, *[0.01] * 7])
    newest = [experience(number) for number in range(2)]
    for entry in newest:
        replay.add(entry)
    counts = drawn(replay, [*entries, *newest])
    assert counts[8] > max(counts[place] for place in range(1, 7))


def test_a_draw_is_of_the_whole_replay_of_what_surprised_or_of_the_newest() -> None:
    replay, entries = filled(6)
    assert replay.draw(ReplayDraw.NEWEST, 1, 2) == [entries[-2:]]
    for by in ReplayDraw:
        for segment in replay.draw(by, 3, 2):
            first = next(place for place, entry in enumerate(entries) if entry is segment[0])
            assert segment == entries[first : first + 2]
    assert ExperienceReplay().draw(ReplayDraw.PRIORITISED, 3, 2) == []


def test_what_was_forgotten_is_not_valued_any_more() -> None:
    size = len(experience(0).samples)
    replay, entries = filled(5, capacity=3 * size)
    replay.revalue([entries], [1000.0, 1000.0, 0.5, 0.25, 0.125])
    assert len(replay) == 3
    assert set(drawn(replay, entries, 50)) == {2, 3}
    newest = experience(0)
    replay.add(newest)
    assert replay.surprises[id(newest)] == pytest.approx(0.5)  # the largest of those that are there
