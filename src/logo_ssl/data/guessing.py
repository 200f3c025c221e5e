"""What was taken for labels, and what does guessing by them give? Folders may be years or places, and no classes."""

from ..text import counted
from .images import ImageSet

NAMED = 3  # folders that the sentence names


def about_labels(data: ImageSet) -> str | None:
    """Which folders were taken for classes, where any were, and how often the commonest of them is right by itself."""
    rows = data.for_knn() if data.labelled_by_folders else None
    if rows is None:
        return None
    bank, queries = (part.split.labels[part.rows] for part in rows if part.split.labels is not None)
    share = 100 * (queries == bank.bincount().argmax()).double().mean().item()
    more = len(data.classes) - NAMED
    names = ", ".join(data.classes[:NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
    return (
        f"Labels from {counted(len(data.classes), 'folder')}: {names} (always guessing the commonest: {share:.0f} %); "
        "if these are no classes, kNN tells nothing: --knn-every 0."
    )
