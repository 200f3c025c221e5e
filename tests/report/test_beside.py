"""Does a process end quietly and at once, with its own code, while a thread of it is inside torch?"""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
import torch
from dataclasses import dataclass
from logo_ssl.cli import COMMANDS, Command, main
from logo_ssl.report.beside import beside

inside = threading.Event()

def compute(stop):
    x = torch.rand(300, 300, requires_grad=True)
    while True:
        inside.set()
        (x @ x).sum().backward()

@dataclass
class Compute:
    ending: str = ""

    def run(self):
        with beside(compute):
            inside.wait()
            if self.ending:
                os.kill(os.getpid(), signal.Signals[self.ending])
                threading.Event().wait(60)

COMMANDS["compute"] = Command("compute", Compute)
print("begun")
main(["compute", *(f"--ending={word}" for word in sys.argv[1:])])
"""


@pytest.mark.parametrize(("ending", "code"), [([], 0), (["SIGTERM"], 143)])
def test_a_process_ends_while_torch_computes(ending, code):
    done = subprocess.run([sys.executable, "-c", PROGRAM, *ending], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert done.stdout == "begun\n"
    assert ("Stopped by SIGTERM" in done.stderr) == bool(ending)
    assert "terminate" not in done.stderr
