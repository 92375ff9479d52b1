"""`Value` behaves as a frozen dataclass does: fields in order, defaults, equality by type and
content, no change.
"""

import pytest

from headway.model.value import Value


class Point(Value):
    x: int
    y: int = 0


class Named(Point):
    name: str = "n"


class Other(Value):
    x: int
    y: int = 0


def test_fields_come_by_position_by_name_and_by_default() -> None:
    assert (Point(1).x, Point(1).y) == (1, 0)
    assert Point(y=3, x=2) == Point(2, 3)
    assert Named(1, 2, "z").name == "z" and Named(1).name == "n"


@pytest.mark.parametrize("make", [lambda: Point(), lambda: Point(1, 2, 3), lambda: Point(1, z=3)])
def test_a_missing_or_unknown_field_is_a_type_error(make: object) -> None:
    with pytest.raises(TypeError):
        make()  # type: ignore[operator]


def test_values_are_equal_by_type_and_content_and_can_be_keys() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert len({Point(1, 2), Point(1, 2), Other(1, 2)}) == 2
    assert repr(Point(1)) == "Point(x=1, y=0)"


def test_a_value_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    assert point == Point(1)
