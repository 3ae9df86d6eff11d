"""What mkdocs does not know by itself: the start page, the API reference, and links to files outside docs/.

A hook of mkdocs.yml. The start page is README.md; the reference has a page for every part of the package, made from
its modules, so none can be forgotten.
"""

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "grpo_jax"
REFERENCE = "API reference"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")


def reference_pages() -> dict[str, list[str]]:
    """Every module of the package by the name of its page: its part, or ``commands`` for those on top."""
    pages: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if module != "grpo_jax" and not parts[-1].startswith("__main__"):
            page = "commands" if len(parts) == 2 else parts[1]
            pages.setdefault(page, []).append(module)
    return pages


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the reference's pages into the navigation."""
    assert config.nav is not None, "mkdocs.yml has a navigation"
    config.nav.append({REFERENCE: [{name: f"reference/{name}.md"} for name in reference_pages()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the start page and the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=readme))
    for name, modules in reference_pages().items():
        parts = [f"# {name}", *map(_described, modules)]
        files.append(File.generated(config, f"reference/{name}.md", content="\n\n".join(parts)))
    return files


def _described(module: str) -> str:
    """A command by its usage, any other module by its public names."""
    path = ROOT.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
        return f"## {module}\n\n```text\n{ast.get_docstring(tree)}\n```"
    return f"::: {module}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links that leave docs/ into links to the repository."""
    del files
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    folder = ROOT if source == "index.md" else ROOT / "docs"

    def moved(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match.group(1).partition("#")
        target = (folder / path).resolve()
        if not target.exists():
            raise PluginError(f"{source}: the link to {path} leads nowhere")
        if target.is_relative_to(ROOT / "docs"):
            return f"{target.relative_to(ROOT / 'docs').as_posix()}{hash_sign}{anchor}"
        return f"{config.repo_url}/blob/main/{target.relative_to(ROOT).as_posix()}{hash_sign}{anchor}"

    return LINK.sub(moved, markdown)
