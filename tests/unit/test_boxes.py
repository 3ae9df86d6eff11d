import pytest

from grpo_jax.boxes import boxed


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("", []),
        ("8 } {", []),
        (r"\boxed{8}", ["8"]),
        (r"{ \boxed{ 8 }", ["8"]),
        (r"} \boxed{8} }", ["8"]),
        (r"\boxed{\frac{1}{2}} then \fbox{x_{1}}", [r"\frac{1}{2}", "x_{1}"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"\boxed{\boxed{8}}", [r"\boxed{8}"]),
        (r"\boxed{}", [""]),
        (r"$\boxed 8$, as I said", ["8"]),
        (r"\boxed{8", None),
        (r"\boxed{7} \boxed{8", None),
        (r"\boxed{ {8}", None),
    ],
)
def test_boxes_are_balanced(text, contents):
    boxes = boxed(text)
    assert (boxes if boxes is None else [box.content for box in boxes]) == contents


def test_a_box_knows_its_place():
    text = r"\frac{\boxed{8}}{2}"
    (box,) = boxed(text) or []
    assert (text[box.start : box.end], box.depth) == (r"\boxed{8}", 1)
