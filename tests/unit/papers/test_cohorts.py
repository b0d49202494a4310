"""SuperFed's released code draws cohorts by NumPy's legacy generator, whatever the run's seed."""

from fedrepro.papers.superfed.cohorts_numpy_legacy import sampler

EXPECTED = [[0, 2, 5, 8], [1, 2, 3, 5], [1, 2, 4, 9]]


def test_each_round_has_the_draw_after_those_of_the_rounds_before() -> None:
    """By hand: numpy.random.seed(7), then numpy.random.choice(10, 4, replace=False) a round."""
    drawn = sampler(7, 10, 4, 3)
    assert [drawn(number) for number in (0, 1, 2)] == EXPECTED
    again = sampler(7, 10, 4, 3)
    assert again(2) == EXPECTED[2]  # from any round on, as a run that resumes asks
    assert sampler(8, 10, 4, 3)(0) != EXPECTED[0]
    assert sampler(7, 10, 4, 1)(0) == EXPECTED[0]
    assert sampler(7, 5, 5, 1)(0) == [0, 1, 2, 3, 4]
