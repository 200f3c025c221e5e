"""The documentation: every command, field and recipe is in the reference, options exist, and pages run as written."""

import re
import shlex
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import logo_ssl
from logo_ssl import cli
from logo_ssl.cli import COMMANDS, PROTOCOLS
from logo_ssl.frameworks import FRAMEWORKS
from logo_ssl.recipes import RECIPES, Recipe, flat
from logo_ssl.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NO_PAGES = ("_build", "reference", "decisions", "results")
TAKES_RECIPE = ("pretrain", "bench", "show-crops", "resume")
FEWER = {
    "tutorial.md": {"3000, 48": "200, 32", "--device cpu": "--device cpu --epochs 1"},
    "how-to/evaluate.md": {
        "logo-ssl eval knn runs/photos --data photos/ --protocols 5 0.07": "logo-ssl --version",  # no run yet
        "logo-ssl compare runs/start runs/photos untrained pixels --data photos/ --out page.html": "logo-ssl --version",
        '("train", 600), ("test", 200)': '("train", 80), ("test", 30)',
        "--epochs 20": "--epochs 1",
    },
    "how-to/detection.md": {"--iterations 100": "--iterations 1", "--norm-batches 4": "--norm-batches 0"},
    "how-to/channels.md": {"(200, 64, 64, 5)": "(40, 32, 32, 5)", "--out runs/stack": "--out runs/stack --epochs 1"},
}
"""Pages whose blocks can be run one after the other, and what makes them quick."""
QUOTED = ("embed", "search", "eval", "export")
"""Commands whose output pages quote, some lines of it."""
MACHINES = re.compile(
    rf"(?:(?<![\w.:/-])/(?:work|tmp|home|root|mnt|Users|workspace)/|{re.escape(str(ROOT))}|\b[A-Z]:\\).*"
)
MADE = {
    "tutorial.md": ("crops.png", "features.npz", "sheet.png", "encoder.safetensors", "report.html"),
    "how-to/evaluate.md": ("runs/shapes10/backbone.safetensors",),
    "how-to/detection.md": ("shapes.json", "shapes-pictures/best.png"),
    "how-to/channels.md": ("runs/stack/backbone.safetensors",),
}


def load_generator():
    spec = spec_from_file_location("generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load_generator().pages()
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")


def written() -> list[Path]:
    found = [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in NO_PAGES]
    return [*sorted(found), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def options_on_page(command: str) -> set[str]:
    own = set(OPTION.findall(PAGES[f"commands/{command}.md"]))
    return own | (set(OPTION.findall(PAGES["recipe-fields.md"])) if command in TAKES_RECIPE else set())


def without_no(option: str) -> str:
    """The option that `--no-x` switches off; pages name `--x`."""
    return re.sub(r"^--((?:[\w-]+\.)*)no-", r"--\1", option)


@pytest.mark.parametrize("command", [*(c for c in COMMANDS if c != "eval"), *(f"eval {name}" for name in PROTOCOLS)])
def test_every_command_has_a_page_with_every_option_that_its_help_shows(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    shown = set(re.findall(r"^[│| ]+(?:-h, )?(--[a-z][\w.-]*)", capsys.readouterr().out, re.MULTILINE))
    known = options_on_page(command.split()[0]) | {"--help"}
    assert shown
    assert {option for option in shown if option not in known} == set()
    assert f"commands/{command.split()[0]}" in PAGES["index.md"]


def test_every_field_of_every_kind_of_recipe_stands_there_with_a_sentence():
    page = PAGES["recipe-fields.md"]
    names = set()
    for part, kinds in (("framework", FRAMEWORKS), ("strategy", STRATEGIES)):
        for config in kinds.values():
            names |= {f"{part}.{field.name}" for field in fields(config)}
    names |= {field for field in flat(Recipe("any")) if field.split(".")[0] not in ("framework", "strategy")}
    for name in names - {"name", "paper", "chosen", "replans"}:
        assert re.search(rf"^\| `--{re.escape(name.replace('_', '-'))}` \|.*\| .*\S \|$", page, re.MULTILINE), name


def test_every_recipe_and_every_public_name_stands_there():
    assert [name for name in RECIPES if f"\n| `{name}` |" not in PAGES["recipes.md"]] == []
    public = [name for name in logo_ssl.__all__ if callable(getattr(logo_ssl, name))]
    assert [name for name in public if f"\n## {name}\n" not in PAGES["python.md"]] == []


def test_a_recipe_shows_what_differs_from_the_nearest_earlier_one():
    own = "`strategy.kind=logo`, `strategy.lam=0.0005`"
    assert f"\n| `cifar10-moco-logo` | `cifar10-moco-multicrop` | {own} |" in PAGES["recipes.md"]


@pytest.mark.parametrize("page", written(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_a_page_exist_with_their_options(page):
    text = page.read_text().replace("\\\n", " ")
    told = re.findall(r"(?:^|`|\s|/)logo-ssl ([a-z][^`\n#]*)", text, re.MULTILINE)
    for line in told:
        command, *_ = line.split()
        if command not in COMMANDS:
            continue  # prose: "logo-ssl reads ..."
        known = options_on_page(command) | {"--help", "--framework", "--strategy"}
        strange = [option for option in OPTION.findall(line) if without_no(option) not in known]
        assert strange == [], line


def test_links_lead_to_what_git_keeps_so_that_no_page_need_be_built():
    pages = [file for file in every_text() if file.suffix == ".md"]
    for page in pages:
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
        places = {link: (page.parent / link).resolve() for link in links if not link.startswith("http")}
        assert [link for link, place in places.items() if not place.exists()] == [], page
        assert [link for link, place in places.items() if DOCS / "reference" in place.parents] == [], page


def every_text() -> list[Path]:
    """What people read or run, but not what is built."""
    kinds = ("*.md", "*.py", "*.toml", "*.txt", "*.json", "*.svg")
    found = [file for kind in kinds for file in DOCS.rglob(kind)]
    found = [file for file in found if file.relative_to(DOCS).parts[0] not in ("_build", "reference")]
    return [*found, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.py")]


def test_no_page_names_a_path_of_the_machine_that_it_was_written_on():
    named = [
        f"{file.relative_to(ROOT)}: {line}" for file in every_text() for line in MACHINES.findall(file.read_text())
    ]
    assert named == []
    for path in ("/mnt/disk/photos", "see /mnt/photos/a.jpg", "`/Users/me/x`", str(ROOT / "docs"), "C:\\Users\\me"):
        assert MACHINES.search(path), path
    for path in ("tests/mnt/x", "runs/Users/x"):
        assert not MACHINES.search(path), path


def in_words(text: str) -> list[str]:
    """The lines of an output without what differs between data and machines: numbers, paths, names of classes."""
    lines = [re.sub(r"\S*[\d/]\S*|\([a-z]+-[a-z]+\)", "#", line).split() for line in text.splitlines()]
    return [" ".join(line) for line in lines if line]


@pytest.mark.parametrize("page", FEWER)
def test_a_page_runs_as_it_is_written(page, tmp_path, monkeypatch, capsys):
    text = (DOCS / page).read_text()
    for words, fewer in FEWER[page].items():
        assert words in text
        text = text.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGO_DATA", str(tmp_path / "cache"))
    printed = ""
    for language, code in blocks(text):
        if language == "text" and printed:
            shown, told = in_words(code), in_words(printed)
            places = range(len(told) - len(shown) + 1)
            assert any(told[place : place + len(shown)] == shown for place in places)
        printed = ""
        if language == "python":
            exec(code, {})
            printed = capsys.readouterr().out
        for line in code.splitlines() if language == "sh" else ():
            with pytest.raises(SystemExit) as stop:
                cli.main(shlex.split(line)[1:])
            assert stop.value.code == 0, line
            out = capsys.readouterr().out
            printed += out if line.split()[1] in QUOTED else ""
    assert [name for name in MADE[page] if not Path(name).is_file()] == []
