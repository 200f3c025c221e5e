"""What of a `reproduce --out` belongs in docs/results/raw? Its records, without weights and tables, logs thinned.

python tools/keep_records.py runs/reproduce docs/results/raw/cifar10-tuned --at-once 2
"""

import argparse
import json
import shutil
from collections import defaultdict
from pathlib import Path

from logo_ssl.files import write

LOGGED = 40  # lines of each kind that stay of a run's log, beside all of kNN
KEPT = ("recipe.json", "provenance.json", "sittings.json", "images.json", "evaluation/*.json")


def main(arguments: list[str] | None = None) -> None:
    """Copy the records of all runs that have ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="what was --out of `reproduce`")
    parser.add_argument("folder", type=Path, help="where the records are to lie")
    parser.add_argument("--at-once", type=int, default=1, help="how many runs of whatever command shared the device")
    options = parser.parse_args(arguments)
    for record in sorted(options.out.glob("*/seed*.json")):
        if "figures" in json.loads(record.read_text()):
            keep(record, options.out, options.folder, options.at_once)


def keep(record: Path, out: Path, folder: Path, at_once: int = 1) -> None:
    """Copy what one run tells of itself, and how many ran beside it, of which it may not know."""
    run = record.with_suffix("")
    shutil.rmtree(folder / run.relative_to(out), ignore_errors=True)
    asked = json.loads(record.read_text())["asked"]["data"]
    files = [record, *(file for pattern in KEPT for file in sorted(run.glob(pattern)))]
    for file in files:
        write(folder / file.relative_to(out), shortened(file.read_text(), asked, run))
    told = json.loads((kept := folder / record.relative_to(out)).read_text())
    write(kept, json.dumps(told | {"jobs": max(at_once, told.get("jobs", 1))}, indent=2) + "\n")
    lines = thinned((run / "metrics.jsonl").read_text().splitlines())
    write(folder / run.relative_to(out) / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def shortened(text: str, data: str, run: Path) -> str:
    """The same without the folders of the machine that it ran on."""
    told = json.loads(text)
    if isinstance(told, dict) and "encoder" in told:
        text = text.replace(json.dumps(told["encoder"]), json.dumps("/".join(run.parts[-2:])))
    text = text.replace(json.dumps(data), json.dumps(Path(data).name))
    if (place := text.find('"/')) >= 0:
        raise SystemExit(f"{run}: a record names a folder of this machine: {text[place:].splitlines()[0]}")
    return text


def thinned(lines: list[str]) -> list[str]:
    """All measurements of kNN, and some lines of every other kind, evenly."""
    kinds = defaultdict(list)
    for number, line in enumerate(lines):
        kinds[frozenset(json.loads(line))].append(number)
    kept = {number for kind, numbers in kinds.items() for number in (numbers if "knn" in kind else some(numbers))}
    return [lines[number] for number in sorted(kept)]


def some(numbers: list[int]) -> list[int]:
    """So many of them as are kept, the last among them."""
    return [numbers[(place + 1) * len(numbers) // LOGGED - 1] for place in range(LOGGED)]


if __name__ == "__main__":
    main()
