"""Images in tar shards, in WebDataset's layout: files of one sample share their name up to the first dot."""

import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UserError
from .decode import ending, list_endings, suffixes
from .images import HELD_OUT, ImageSet, Photos, Split, classes_of, names_array, numbers_of, test_and_val

SPLIT_IN_NAME = re.compile(f"(train|{'|'.join(HELD_OUT)})(?![a-z])")


class Member(NamedTuple):
    """An image inside a tar file, which is not compressed: a span of its bytes."""

    shard: Path
    name: str
    offset: int
    size: int


def photos_in(members: Sequence[Member]) -> Photos:
    """Images inside tar shards."""
    number = {shard: i for i, shard in enumerate(dict.fromkeys(member.shard for member in members))}
    spans = [(number[member.shard], member.offset, member.size) for member in members]
    return Photos(names_array(number), np.array(spans, np.int64), names_array(member.name for member in members))


@dataclass
class Shard:
    """What is in a tar file."""

    path: Path
    images: dict[str, Member] = field(default_factory=dict)
    """One for each sample."""
    labels: dict[str, str | None] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    """How many other files there are, by the endings of their names."""

    def note(self, tar: tarfile.TarFile, header: tarfile.TarInfo) -> None:
        """Take in a file that a header tells of."""
        folder, _, file = header.name.rpartition("/")
        stem, _, extension = file.partition(".")
        sample, member = f"{folder}/{stem}", Member(self.path, header.name, header.offset_data, header.size)
        if not stem:  # a hidden file
            return
        if extension.lower() in ("cls", "json"):
            content = tar.extractfile(header)
            found = None if content is None else _label(content.read(), extension.lower())
            self.labels[sample] = self.labels.get(sample) if found is None else found
        elif f".{extension.lower()}" in suffixes():
            self.images[sample] = member
        elif ending(file) in suffixes():  # 0.jpg before 0.mask.png, whichever comes first
            self.images.setdefault(sample, member)
        else:
            self.others[ending(file)] += 1


def find_shards(folder: str) -> list[str]:
    """The tar files directly in a folder."""
    names = [entry.name for entry in os.scandir(folder) if not entry.name.startswith(".")]
    return sorted(os.path.join(folder, name) for name in names if name.lower().endswith(".tar"))


def load_shard(path: Path) -> ImageSet:
    """The images of one shard."""
    return load_shards(path.stem, [str(path)])


def load_shards(name: str, train: Sequence[str], held_out: Mapping[str, Sequence[str]] | None = None) -> ImageSet:
    """The images of these shards; without others that are held out, those named so (val-000.tar) are."""
    train, held_out = (train, held_out) if held_out else _by_name(train)
    parts = {"train": train, **held_out}
    shards = {part: [index_shard(Path(path)) for path in paths] for part, paths in parts.items()}
    every = [shard for some in shards.values() for shard in some]
    others = sum((shard.others for shard in every), Counter[str]())
    rows = {
        part: [(member, shard.labels.get(sample)) for shard in some for sample, member in shard.images.items()]
        for part, some in shards.items()
    }
    if not rows["train"]:
        told = f"; there are {list_endings(others)}" if others else ""
        raise UserError(f"No images in {train[0]} and its like (looked for {', '.join(sorted(suffixes()))}){told}.")
    classes = classes_of(label for _, label in rows["train"])
    splits = {
        part: Split(photos_in([member for member, _ in some]), numbers_of((y for _, y in some), classes))
        for part, some in rows.items()
        if some
    }
    labelled = splits.pop("train")
    test, val = test_and_val(splits)
    says = (f"Passed over in the shards of {name}: {list_endings(others)}.",) if others else ()
    return ImageSet(name, labelled, test, classes, val, says=says)


def index_shard(path: Path) -> Shard:
    """What is in a shard, from its headers alone."""
    shard = Shard(path)
    try:
        with tarfile.open(path, "r:") as tar:
            while (header := tar.next()) is not None:
                tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # else all headers stay in memory
                if header.isreg() and not header.issparse():
                    shard.note(tar, header)
            assert tar.fileobj is not None
            tar.fileobj.seek(tar.offset)  # zeros or nothing follow; at a header that makes no sense tarfile stops, too
            if any(tar.fileobj.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError(f"broken at byte {tar.offset:,}")
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise UserError(f"{path} is not a whole tar file ({error}); copy it again.") from error
    return shard


def _label(content: bytes, kind: str) -> str | None:
    try:
        label = json.loads(content)  # a number, in .cls
        label = label["label"] if kind == "json" else label
    except (ValueError, LookupError, TypeError, RecursionError):  # the last of lists in lists in lists
        return None
    return str(label) if type(label) is str or (type(label) is int and label >= 0) else None


def _by_name(shards: Sequence[str]) -> tuple[Sequence[str], dict[str, list[str]]]:
    named: dict[str, list[str]] = {}
    for shard in shards:
        split = SPLIT_IN_NAME.match(os.path.basename(shard).lower())
        named.setdefault(split[1] if split else "", []).append(shard)
    train = named.get("train") or named.get("")
    if train is None:
        return shards, {}
    return train, {split: named[split] for split in HELD_OUT if split in named}
