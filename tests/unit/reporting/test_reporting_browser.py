"""The page in a browser: its script shows and filters completions, and hostile text does nothing."""

import re
import shutil
import subprocess

import pytest

from grpo_jax.reporting.page import write_report
from tests.unit.reporting.made_runs import evaluation, make

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed, so the page's script was not run")

ACTIONS = """
const results = [];
const filters = document.getElementById("filters");
const count = () => document.getElementById("found").textContent.split(" ")[0];
const choose = (name, value) => {
  filters.reset();
  filters.elements[name].value = value;
  filters.dispatchEvent(new Event("input"));
  results.push(`${name}=${value}:${count()}`);
};
for (const value of ["right", "wrong", "error", "truncated"]) choose("outcome", value);
choose("step", "20");
choose("split", "validation");
choose("reason", "equal");
choose("text", "</SCR" + "IPT>");
results.push(`marked:${document.querySelector("mark").textContent}`);
document.querySelector("article .same").click();
results.push(`same:${count()}`);
choose("text", "");
results.push(`first:${document.querySelectorAll("article").length}`);
document.getElementById("more").click();
results.push(`more:${document.querySelectorAll("article").length}`);
const svg = document.querySelector("figure svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 3, clientY: box.top + 5 }));
results.push(`read:${document.querySelector("figure output").textContent}`);
results.push(`wide:${document.documentElement.scrollWidth > innerWidth}`);
const out = document.createElement("pre");
out.id = "results";
out.textContent = results.join("|");
document.body.append(out);
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(make(tmp_path_factory.mktemp("runs") / "run"))


def browse(page, folder):
    """Opens a page and returns its document after its script, what was said on the console, and the network's log."""
    log = folder / "net.json"
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--enable-logging=stderr",
            "--window-size=500,900",
            "--virtual-time-budget=2000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console, log.read_text()


def test_hostile_completions_do_nothing(report, tmp_path):
    document, console, network = browse(report, tmp_path)
    assert console == []
    assert "attack.invalid" not in network
    assert re.search(r"<title>run - grpo_jax</title>", document)
    shown = document[document.index('id="completions"') : document.index('id="more"')]
    assert shown.count("<article") == 12
    assert not re.search(r"<(script|img|iframe|a)\b", shown)
    assert "&lt;/script&gt;&lt;script&gt;document.title='owned'&lt;/script&gt;" in shown


def test_the_policy_refuses_a_script_that_got_in(report, tmp_path):
    text = report.read_text().replace("<main>", "<main><script>document.title='owned'</script>")
    page = tmp_path / "page.html"
    page.write_text(text)
    document, console, _ = browse(page, tmp_path)
    assert "<title>run - grpo_jax</title>" in document
    assert any("Content Security Policy" in line for line in console)


def test_completions_are_filtered(report, tmp_path):
    text = re.sub(r"script-src &#x27;[^;]*;", "script-src &#x27;unsafe-inline&#x27;;", report.read_text())
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", f"<script>{ACTIONS}</script></body>"))
    document, console, _ = browse(page, tmp_path)
    assert console == []
    results = re.search(r'<pre id="results">(.*?)</pre>', document)[1]
    assert results.split("|") == [
        "outcome=right:15",
        "outcome=wrong:12",
        "outcome=error:3",
        "outcome=truncated:3",
        "step=20:10",
        "split=validation:30",
        "reason=equal:15",
        "text=&lt;/SCRIPT&gt;:3",
        "marked:&lt;/script&gt;",
        "same:3",
        "text=:30",
        "first:12",
        "more:24",
        f"read:step 30: {evaluation('validation', 30 / 40, 30)['eval/pass_at_1']:.4g}",
        "wide:false",
    ]
