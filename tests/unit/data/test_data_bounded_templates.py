import jinja2
import jinja2.ext
import pytest

from grpo_jax.data import bounded_templates
from grpo_jax.data.bounded_templates import BoundedEnvironment, TemplateNeverEnds


def rendered(source, **variables):
    environment = BoundedEnvironment(extensions=[jinja2.ext.loopcontrols])
    return environment.render(environment.bounded(source), variables)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for a in text %}{% for b in text %}{% for c in text %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in text %}{% for b in text %}{% for c in text if false %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in text %}{% for b in text %}{% for c in text %}{% continue %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 30 + "{% endcall %}" * 30,
        "{% set ns = namespace(d=0) %}{% block b %}{% set ns.d = ns.d + 1 %}{% if ns.d < 40 %}"
        "{{ self.b() }}{{ self.b() }}{% endif %}{% set ns.d = ns.d - 1 %}{% endblock %}",
        "{% for a in [1] recursive %}{{ loop([1, 2]) if loop.depth < 40 }}{% endfor %}",
        "{% set range = text %}{% set count = text %}{% for a in text %}{% for b in text %}{% for c in text %}"
        "{% endfor %}{% endfor %}{% endfor %}",
    ],
)
def test_loops_and_macros_that_go_on_for_long_are_ended(source, monkeypatch):
    monkeypatch.setattr(bounded_templates, "MAX_TURNS", 2_000)
    with pytest.raises(TemplateNeverEnds, match=r"its loops and macros took more than 2,000 turns"):
        rendered(source, text="x" * 100)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in items %}{{ loop.index }}/{{ loop.length }}{{ m }}{{ ',' if not loop.last }}{% endfor %}",
        "{% for m in items if m != 'b' %}{{ loop.index }}{{ m }}{% else %}none{% endfor %}",
        "{% for m in [] %}{% else %}none{% endfor %}",
        "{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}",
        "{% for m in items %}{% if m == 'b' %}{% break %}{% endif %}{{ m }}{% endfor %}",
        "{% for m in [[1, [2]], 3] recursive %}{{ loop(m) if m is iterable else m }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for i in range(items | length) %}"
        "{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
        "{% macro m(x, y=2) %}{{ x }}{{ y }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}"
        "{% call m(3) %}!{% endcall %}",
        "{{ range(3) | list }}{% filter upper %}{% for m in items %}{{ m }}{% endfor %}{% endfilter %}",
    ],
)
def test_other_templates_write_what_jinja_writes(source):
    plain = jinja2.Environment(extensions=[jinja2.ext.loopcontrols]).from_string(source)
    assert rendered(source, items=["a", "b", "c"]) == plain.render(items=["a", "b", "c"]) != ""


def test_each_rendering_counts_from_nothing(monkeypatch):
    monkeypatch.setattr(bounded_templates, "MAX_TURNS", 2_000)
    environment = BoundedEnvironment()
    template = environment.bounded("{% for a in text %}x{% endfor %}")
    for _ in range(3):
        assert len(environment.render(template, {"text": "y" * 2_000})) == 2_000
