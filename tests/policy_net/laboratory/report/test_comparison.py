from policy_net.laboratory.report.tables import policy_table, size_table


def test_jobs_are_classed_by_what_they_asked_for(made) -> None:
    comparison = made({"fifo": [1.0] * 5, "set-taught": [1.0] * 5}, workers=[1, 2, 4, 5, 16])
    assert [(group.name, len(group.pairs)) for group in comparison.size_classes] == [
        ("1 GPU", 1),
        ("2 to 4 GPUs", 2),
        ("5 GPUs and more", 2),
    ]


def test_classes_without_jobs_are_left_out_and_a_single_class_is_not_repeated(made) -> None:
    comparison = made({"fifo": [2.0, 4.0], "set-taught": [1.0, 5.0]})
    table = size_table(comparison)
    assert table is not None
    assert [row.name for row in table.rows] == ["all jobs"]
    assert table.rows[0].cells == ("2", "3.0", "3.0", "the same", "50%", "50%", "60 min (job-1)")
    assert size_table(made({"drf": [1.0]})) is None


def test_the_policies_table_marks_the_proposed_one_and_compares_all_with_today(made) -> None:
    table = policy_table(made({"fifo": [8.0], "drf": [10.0], "set-taught": [4.0]}))
    assert [row.name for row in table.rows] == ["FIFO", "DRF", "fedl2 (set-taught)"]
    assert [row.cells[:2] for row in table.rows] == [("8.0", "–"), ("10.0", "25% more"), ("4.0", "50% less")]
    assert [row.proposed for row in table.rows] == [False, False, True]
    assert all(len(row.cells) + 1 == len(table.headings) for row in table.rows)
