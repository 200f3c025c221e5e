"""Of which commit is this wheel? hatchling asks for it; `logo_ssl.system.hardware.commit` reads the answer."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitOfBuild(BuildHookInterface):
    """Puts the commit into the wheel, where it is built from a checkout; an editable install asks git itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are gathered."""
        if version == "editable" or not (Path(self.root) / ".git").exists():
            return
        try:
            changed = "+changes" if self._git("status", "--porcelain", "--untracked-files=no") else ""
            commit = self._git("rev-parse", "--short=12", "HEAD") + changed
        except (OSError, subprocess.CalledProcessError):
            return
        file = Path(self.directory) / "COMMIT"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{commit}\n")
        build_data["force_include"][str(file)] = "logo_ssl/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        (Path(self.directory) / "COMMIT").unlink(missing_ok=True)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", self.root, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()
