"""What of a `reproduce --out` belongs in docs/results/raw? Its records, without weights and tables, logs thinned.

python tools/keep_records.py runs/reproduce docs/results/raw/cifar10-tuned --at-once 2
"""

import argparse
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from logo_ssl.files import write

LOGGED = 40  # lines of each kind that stay of a run's log, beside all of kNN
KEPT = ("recipe.json", "provenance.json", "sittings.json", "images.json", "evaluation/*.json")


def main(arguments: list[str] | None = None) -> None:
    """Copy the records of all runs that have ended and are not there yet, and say which; or none, if one cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="what was --out of `reproduce`")
    parser.add_argument("folder", type=Path, help="where the records are to lie; what lies there is left as it is")
    parser.add_argument("--at-once", type=int, default=1, help="how many runs of whatever command shared the device")
    options = parser.parse_args(arguments)
    records = [file for file in sorted(options.out.glob("*/seed*.json")) if "figures" in json.loads(file.read_text())]
    there = [record for record in records if (options.folder / record.relative_to(options.out)).exists()]
    new = [record for record in records if record not in there]
    texts = [kept(record, options.at_once) for record in new]  # all of them, before anything is written
    for record, files in zip(new, texts, strict=True):
        shutil.rmtree(options.folder / record.with_suffix("").relative_to(options.out), ignore_errors=True)
        for file, text in files.items():
            write(options.folder / file.relative_to(options.out), text)
    for said, which in (("kept", new), ("there already, to be removed first if it is to be kept anew", there)):
        sys.stdout.write("".join(f"{record.relative_to(options.out).with_suffix('')}: {said}\n" for record in which))


def kept(record: Path, at_once: int = 1) -> dict[Path, str]:
    """What one run tells of itself, file by file, and how many ran beside it, of which it may not know."""
    run = record.with_suffix("")
    asked = json.loads(record.read_text())["asked"]["data"]
    files = [file for pattern in KEPT for file in sorted(run.glob(pattern))]
    texts = {file: shortened(file.read_text(), asked, run) for file in files}
    lines = thinned((run / "metrics.jsonl").read_text().splitlines())
    texts[run / "metrics.jsonl"] = "".join(f"{line}\n" for line in lines)
    told = json.loads(shortened(record.read_text(), asked, run))
    told["jobs"] = max(at_once, told.get("jobs", 1))
    return texts | {record: json.dumps(told, indent=2) + "\n"}  # last: where it lies, all of it does


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
