"""Which images lie in tar shards? WebDataset's layout: files of one sample share their name up to the first dot."""

import json
import os
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .files import Member, Members
from .formats import suffixes
from .images import ImageSet, Photos, Split
from .labels import HELD_OUT, classes_of, numbered

COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
SPLIT_IN_NAME = re.compile(f"(train|{'|'.join(HELD_OUT)})(?![a-z])")

Labelled = tuple[Member, str | None]


def find_shards(folder: str) -> list[str]:
    """The tar files directly in a folder, compressed ones too, for `load_shards` to refuse."""
    names = [entry.name for entry in os.scandir(folder) if not entry.name.startswith(".")]
    plain = {name for name in names if name.lower().endswith(".tar")}
    packed = {name for name in names if name.lower().endswith(COMPRESSED) and _unpacked(name) not in plain}
    return sorted(os.path.join(folder, name) for name in plain | packed)


def load_shards(name: str, train: Sequence[str], test: Sequence[str] = ()) -> ImageSet:
    """The images of these shards; without shards to test on, those named so (val-000.tar) are."""
    train, test = (train, test) if test else _by_name(train)
    seen, held_out = ([row for shard in shards for row in index(Path(shard))] for shards in (train, test))
    if not seen:
        raise UserError(f"No images in {train[0]} and its like (looked for {', '.join(sorted(suffixes()))}).")
    classes = classes_of(label for _, label in seen)
    return ImageSet(name, _split(seen, classes), _split(held_out, classes) if held_out else None, classes)


def index(shard: Path) -> list[Labelled]:
    """The images in a shard and their labels, from its headers alone; what follows a break is left out."""
    if shard.name.lower().endswith(COMPRESSED):
        raise UserError(
            f"{shard} is compressed, so that no image can be read alone; decompress it: gunzip {shard.name}"
        )
    images: dict[str, Member] = {}
    labels: dict[str, str | None] = {}
    broken = None
    try:
        end = shard.stat().st_size
        with tarfile.open(shard, "r:") as tar:
            while (header := tar.next()) is not None:
                tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # else all headers stay in memory
                if header.isreg() and not header.issparse() and header.offset_data + header.size <= end:
                    _note(tar, header, shard, images, labels)
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        broken = error
    if broken is not None and not images:
        raise UserError(
            f"{shard} is not a readable tar file ({broken}); decompress it if it is compressed, else make it again."
        ) from broken
    return [(member, labels.get(sample)) for sample, member in images.items()]


def _note(tar: tarfile.TarFile, header: tarfile.TarInfo, shard: Path, images: dict, labels: dict) -> None:
    folder, _, file = header.name.rpartition("/")
    stem, _, extension = file.partition(".")
    sample = f"{folder}/{stem}"
    if not stem:  # a hidden file
        return
    if extension.lower() in ("cls", "json"):
        content = tar.extractfile(header)
        found = None if content is None else _label(content.read(), extension.lower())
        labels[sample] = labels.get(sample) if found is None else found
    elif f".{extension.lower()}" in suffixes():
        images[sample] = Member(shard, header.name, header.offset_data, header.size)
    elif os.path.splitext(file)[1].lower() in suffixes():  # 0.jpg before 0.mask.png, whichever comes first
        images.setdefault(sample, Member(shard, header.name, header.offset_data, header.size))


def _label(content: bytes, kind: str) -> str | None:
    try:
        if kind == "cls":
            label = int(content.decode("ascii"))
        else:
            record = json.loads(content)
            label = record.get("label") if isinstance(record, dict) else None
    except ValueError:
        return None
    if isinstance(label, bool) or not isinstance(label, int | str):
        return None
    return None if isinstance(label, int) and label < 0 else str(label)


def _by_name(shards: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    named: dict[str, list[str]] = {}
    for shard in shards:
        split = SPLIT_IN_NAME.match(os.path.basename(shard).lower())
        named.setdefault(split[1] if split else "", []).append(shard)
    train = named.get("train") or named.get("")
    if train is None:
        return shards, ()
    return train, next((named[split] for split in HELD_OUT if split in named), ())


def _unpacked(name: str) -> str:
    return re.sub(r"\.tgz$", ".tar", re.sub(r"(\.tar)\.\w+$", r"\1", name, flags=re.IGNORECASE), flags=re.IGNORECASE)


def _split(rows: Sequence[Labelled], classes: tuple[str, ...]) -> Split:
    members = Members([member for member, _ in rows])
    return Split(Photos.all(members), numbered((label for _, label in rows), classes))
