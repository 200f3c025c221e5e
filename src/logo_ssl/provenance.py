"""Who made a number? The commit, the versions of what it was computed with, and the machine."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import __version__

PACKAGES = ("torch", "torchvision", "lightning", "timm", "numpy")


def provenance(hardware: str) -> dict[str, Any]:
    """Who made a number: commit, versions, machine."""
    versions = {"logo-ssl": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {"commit": commit(), "versions": versions, "hardware": hardware, "platform": platform.platform()}


def commit() -> str:
    """The commit of this checkout, marked when files were changed since; where there is none, $LOGO_COMMIT's or, of an
    installed package, that which it was built from."""
    package = Path(__file__).resolve().parent
    try:
        if Path(_git(package, "rev-parse", "--show-toplevel")) / "src" / package.name != package:
            raise OSError("installed inside somebody else's checkout")
        changed = "+changes" if _git(package, "status", "--porcelain", "--untracked-files=no") else ""
        return _git(package, "rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        built = package / "COMMIT"
        known = built.read_text().strip() if built.is_file() else f"release {__version__}"
        return os.environ.get("LOGO_COMMIT", known)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
