import io
import sys

import pytest

from grpo_jax.io.display import Display

METRICS = {"reward": 0.4567, "pass_at_1": 0.25, "completions/mean_length": 31.25, "step_time": 1.234, "entropy": 2.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def _terminal(monkeypatch):
    """Makes the standard output a terminal; called in the test, since pytest sets it anew after fixtures."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    return sys.stdout


def test_plain_lines(capsys):
    with Display(every=10) as display:
        display.phase("cold start", 2)
        for step in (1, 2):
            display.step(step, {"loss": 3.5 / step, "step_time": 0.5})
        display.phase("grpo", 25)
        for step in range(1, 26):
            display.step(step, {**METRICS, "pass_at_1": None} if step == 20 else METRICS)
        display.note("held-out pass@1 [0.250]")
        display.finish([("test pass@1", "0.812"), ("steps", "25")])
    assert capsys.readouterr().out.splitlines() == [
        "cold start  step 1/2  loss   3.5000  s/step   0.50",
        "cold start  step 2/2  loss   1.7500  s/step   0.50",
        "grpo  step  1/25  pass@1 0.250  reward  0.457  length    31.2  s/step   1.23",
        "grpo  step 10/25  pass@1 0.250  reward  0.457  length    31.2  s/step   1.23",
        "grpo  step 20/25  reward  0.457  length    31.2  s/step   1.23",
        "grpo  step 25/25  pass@1 0.250  reward  0.457  length    31.2  s/step   1.23",
        "held-out pass@1 [0.250]",
        "test pass@1  0.812",
        "steps        25",
    ]


def test_plain_output_has_no_control_codes_even_if_colour_is_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Display() as display:
        display.phase("grpo", 1)
        display.step(1, METRICS)
        display.finish([("a", "b")])
    assert "\x1b" not in capsys.readouterr().out


def test_resumed_phase_shows_its_first_step(capsys):
    display = Display(every=100)
    display.phase("grpo", 200)
    display.step(53, {})
    display.step(54, {})
    assert capsys.readouterr().out == "grpo  step  53/200\n"


def test_terminal_gets_a_bar(monkeypatch):
    terminal = _terminal(monkeypatch)
    with Display() as display:
        display.phase("grpo", 2)
        display.step(1, METRICS)
        display.note("note with [brackets]")
        display.step(2, METRICS)
        display.finish([("test pass@1", "0.812")])
    shown = terminal.getvalue()
    assert "\x1b[" in shown
    assert "2/2" in shown
    assert "reward  0.457" in shown
    assert "note with [brackets]" in shown
    assert "0.812" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is shown again"


def test_exceptions_pass_through_and_the_bar_is_stopped(monkeypatch):
    terminal = _terminal(monkeypatch)
    display = Display()
    display.phase("grpo", 2)
    with pytest.raises(RuntimeError, match="boom"), display:
        raise RuntimeError("boom")
    assert terminal.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_a_silent_display_shows_nothing(capsys):
    with Display(silent=True) as display:
        display.phase("grpo", 2)
        display.step(1, {"loss": 1.0})
        display.note("a note")
        display.finish([("steps", "2")])
    assert capsys.readouterr().out == ""


def test_a_warning_is_marked_on_both_kinds_of_output(capsys, monkeypatch):
    with Display() as display:
        display.warn("step 3: [bold]\x1b")
    assert capsys.readouterr().out == "warning: step 3: [bold]\\x1b\n"
    screen = _terminal(monkeypatch)
    with Display() as display:
        display.warn("step 3")
    assert "warning: step 3" in screen.getvalue()
    assert "\x1b[1;33m" in screen.getvalue()
