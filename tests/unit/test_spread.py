"""GPU count → nodes × processes: the table of capability 2."""

import pytest

from headway.model.errors import UsageError
from headway.model.spread import Spread, spread

pytestmark = pytest.mark.cap(2)


@pytest.mark.parametrize(
    ("count", "asked", "found"),
    [
        (8, {"per_node": 4}, Spread(2, 4, 4)),
        (4, {"per_node": 4}, Spread(1, 4, 4)),
        (2, {"per_node": 4}, Spread(1, 2, 2)),
        (1, {"per_node": 4}, Spread(1, 1, 1)),
        (16, {"per_node": 8}, Spread(2, 8, 8)),
        (8, {"per_node": 4, "multi_process": False}, Spread(2, 1, 4)),
        (2, {"per_node": 4, "multi_process": False}, Spread(1, 1, 2)),
        (7, {}, Spread(1, 7, 7)),
        (8, {"nodes": 2}, Spread(2, 4, 4)),
        (4, {"nodes": 4, "per_node": 4}, Spread(4, 1, 1)),
        (8, {"nodes": 2, "per_node": 4}, Spread(2, 4, 4)),
    ],
)
def test_a_count_becomes_nodes_and_processes(
    count: int, asked: dict[str, int], found: Spread
) -> None:
    assert spread(count, **asked) == found  # type: ignore[arg-type]
    assert found.nodes * found.share == count


@pytest.mark.parametrize(
    ("count", "asked", "words", "hint"),
    [
        (6, {"per_node": 4, "cluster": "lab"}, "6 GPUs do not divide into nodes of 4 (cluster lab)",
         "use -n 4 or -n 8, or set gpu_per_node: 3"),
        (9, {"per_node": 4}, "9 GPUs do not divide into nodes of 4", "use -n 8 or -n 12, or set gpu_per_node: 3"),
        (8, {"per_node": 4, "one_node": True}, "8 GPUs on one node, and a node has 4", "use --nodes 2, or -n 4"),
        (7, {"per_node": 4}, "7 GPUs do not divide into nodes of 4", "use -n 4 or -n 8"),
        (5, {"nodes": 2}, "-n 5 does not spread evenly over 2 nodes", "use -n 4 or -n 6"),
        (1, {"nodes": 2}, "-n 1 does not spread evenly over 2 nodes", "use -n 2"),
        (16, {"nodes": 2, "per_node": 4}, "16 GPUs on 2 nodes are 8 each, and a node has 4",
         "use 4 nodes or more, or -n 8"),
    ],
)  # fmt: skip
def test_an_uneven_count_is_refused_with_the_nearest_valid_ones(
    count: int, asked: dict[str, int], words: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        spread(count, **asked)  # type: ignore[arg-type]
    assert (refused.value.message, refused.value.hint) == (words, hint)


@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
def test_every_hint_of_an_uneven_count_is_valid(per_node: int) -> None:
    for count in range(1, 65):
        try:
            found = spread(count, per_node=per_node)
            assert found.nodes * found.share == count and found.share <= per_node
        except UsageError as error:
            numbers = [
                int(word.strip(",")) for word in error.hint.split() if word.strip(",").isdigit()
            ]
            assert len(numbers) >= 2
            assert all(spread(number, per_node=per_node) for number in numbers[:2])
