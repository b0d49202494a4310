from fedrepro.support.grouping import grouped


def test_groups_and_their_items_are_in_the_order_in_which_they_come_first() -> None:
    groups = grouped(["bee", "ant", "bug", "asp", "cow", "boa"], lambda word: word[0])
    assert [*groups.items()] == [
        ("b", ["bee", "bug", "boa"]), ("a", ["ant", "asp"]), ("c", ["cow"])
    ]  # fmt: skip
    assert grouped([], len) == {}
