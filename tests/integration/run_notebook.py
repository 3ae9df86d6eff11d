"""Runs a notebook's cells one after another in this process: python run_notebook.py NOTEBOOK.ipynb

Without a kernel, so that nothing more has to be installed. Of IPython's own language only what our notebooks hold is
known: a first cell that installs, which is left out, and %%writefile.
"""

import json
import sys
import types
from pathlib import Path

WRITE = "%%writefile "


def run(path: Path) -> None:
    """Runs every cell as the module ``__main__``, so that a traceback names notebook and cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for number, cell in enumerate(cells):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or "install" in cell["metadata"].get("tags", ()):
            continue
        if text.startswith(WRITE):
            name, _, content = text.removeprefix(WRITE).partition("\n")
            Path(name.strip()).write_text(content + "\n", encoding="utf-8")
        else:
            exec(compile(text, f"{path.name}[{number}]", "exec"), module.__dict__)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
