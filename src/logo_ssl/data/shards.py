"""Which images lie in tar shards? WebDataset's layout: files of one sample share their name up to the first dot."""

import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from ..text import counted
from .files import Member, Members
from .formats import ending, suffixes, told
from .images import ImageSet, Photos, Split
from .labels import HELD_OUT, classes_of, numbered, test_and_val

COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
SPLIT_IN_NAME = re.compile(f"(train|{'|'.join(HELD_OUT)})(?![a-z])")

Labelled = tuple[Member, str | None]


def find_shards(folder: str) -> list[str]:
    """The tar files directly in a folder, compressed ones too, for `load_shards` to refuse."""
    names = [entry.name for entry in os.scandir(folder) if not entry.name.startswith(".")]
    plain = {name for name in names if name.lower().endswith(".tar")}
    packed = {name for name in names if name.lower().endswith(COMPRESSED) and _unpacked(name) not in plain}
    return sorted(os.path.join(folder, name) for name in plain | packed)


@dataclass
class Shard:
    """What lies in a tar file."""

    path: Path
    images: dict[str, Member] = field(default_factory=dict)
    """One for each sample."""
    labels: dict[str, str | None] = field(default_factory=dict)
    passed_over: Counter[str] = field(default_factory=Counter)
    """How many other files there are, by the endings of their names."""
    torn: bool = False
    """Whether what follows could not be read."""

    def labelled(self) -> list[Labelled]:
        """The images and their labels."""
        return [(member, self.labels.get(sample)) for sample, member in self.images.items()]

    def note(self, tar: tarfile.TarFile, header: tarfile.TarInfo) -> None:
        """Take in a file that a header tells of."""
        folder, _, file = header.name.rpartition("/")
        stem, _, extension = file.partition(".")
        sample = f"{folder}/{stem}"
        if not stem:  # a hidden file
            return
        if extension.lower() in ("cls", "json"):
            content = tar.extractfile(header)
            found = None if content is None else _label(content.read(), extension.lower())
            self.labels[sample] = self.labels.get(sample) if found is None else found
        elif f".{extension.lower()}" in suffixes():
            self.images[sample] = Member(self.path, header.name, header.offset_data, header.size)
        elif ending(file) in suffixes():  # 0.jpg before 0.mask.png, whichever comes first
            self.images.setdefault(sample, Member(self.path, header.name, header.offset_data, header.size))
        else:
            self.passed_over[ending(file)] += 1


def load_shards(name: str, train: Sequence[str], held_out: Mapping[str, Sequence[str]] | None = None) -> ImageSet:
    """The images of these shards; without others that are held out, those named so (val-000.tar) are."""
    train, held_out = (train, held_out) if held_out else _by_name(train)
    paths = {"train": train, **held_out}
    shards = {part: [index(Path(shard)) for shard in some] for part, some in paths.items()}
    rows = {part: [row for shard in some for row in shard.labelled()] for part, some in shards.items()}
    passed_over = sum((shard.passed_over for some in shards.values() for shard in some), Counter[str]())
    if not rows["train"]:
        others = f"; there are {told(passed_over)}" if passed_over else ""
        raise UserError(f"No images in {train[0]} and its like (looked for {', '.join(sorted(suffixes()))}){others}.")
    classes = classes_of(label for _, label in rows["train"])
    called = _called([shard for some in paths.values() for shard in some])
    says = (f"Passed over in {called}: {told(passed_over)}.",) if passed_over else ()
    says += _about_torn([shard for some in shards.values() for shard in some if shard.torn])
    splits = {part: _split(some, classes) for part, some in rows.items() if some}
    test, val = test_and_val({part: split.has_labels for part, split in splits.items() if part != "train"})
    tested, chosen_by = (None if part is None else splits[part] for part in (test, val))
    return ImageSet(name, splits["train"], tested, classes, chosen_by, says=says, test_is=test)


def index(path: Path) -> Shard:
    """What lies in a shard, from its headers alone; what follows a break is left out, and the shard is `torn`."""
    if path.name.lower().endswith(COMPRESSED):
        raise UserError(f"{path} is compressed, so that no image can be read alone; decompress it: gunzip {path.name}")
    shard, broken = Shard(path), None
    try:
        end = path.stat().st_size
        with tarfile.open(path, "r:") as tar:
            while (header := tar.next()) is not None:
                tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # else all headers stay in memory
                if header.isreg() and not header.issparse() and header.offset_data + header.size <= end:
                    shard.note(tar, header)
            shard.torn = not _is_at_end(tar)
    except PermissionError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); make it readable, or give a copy that is."
        ) from error
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        shard.torn, broken = True, error
    if broken is not None and not shard.images:
        raise UserError(
            f"{path} is not a readable tar file ({broken}); decompress it if it is compressed, else make it again."
        ) from broken
    return shard


def _is_at_end(tar: tarfile.TarFile) -> bool:
    """Whether zeros or nothing follow, and no header that makes no sense, at which tarfile stops without a word."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return not any(tar.fileobj.read(tarfile.BLOCKSIZE))


def _about_torn(shards: Sequence[Shard]) -> tuple[str, ...]:
    """What to say of shards that end early."""
    if not shards:
        return ()
    n, first = sum(len(shard.images) for shard in shards), shards[0].path
    if len(shards) == 1:
        return (f"{first} ends early: the {counted(n, 'image')} before the break can be used; copy it again.",)
    used = f"the {counted(n, 'image')} before the breaks can be used"
    return (f"{len(shards)} shards end early (the first: {first}): {used}; copy them again.",)


def _called(shards: Sequence[str]) -> str:
    """What to call some shards in a message."""
    return shards[0] if len(shards) == 1 else f"the shards of {os.path.commonpath(shards) or '.'}"


def _label(content: bytes, kind: str) -> str | None:
    try:
        if kind == "cls":
            label = int(content.decode("ascii"))
        else:
            record = json.loads(content)
            label = record.get("label") if isinstance(record, dict) else None
    except (ValueError, RecursionError):  # lists in lists in lists
        return None
    if isinstance(label, bool) or not isinstance(label, int | str):
        return None
    return None if isinstance(label, int) and label < 0 else str(label)


def _by_name(shards: Sequence[str]) -> tuple[Sequence[str], dict[str, list[str]]]:
    named: dict[str, list[str]] = {}
    for shard in shards:
        split = SPLIT_IN_NAME.match(os.path.basename(shard).lower())
        named.setdefault(split[1] if split else "", []).append(shard)
    train = named.get("train") or named.get("")
    if train is None:
        return shards, {}
    return train, {split: named[split] for split in HELD_OUT if split in named}


def _unpacked(name: str) -> str:
    return re.sub(r"\.tgz$", ".tar", re.sub(r"(\.tar)\.\w+$", r"\1", name, flags=re.IGNORECASE), flags=re.IGNORECASE)


def _split(rows: Sequence[Labelled], classes: tuple[str, ...]) -> Split:
    members = Members([member for member, _ in rows])
    return Split(Photos.all(members), numbered((label for _, label in rows), classes))
