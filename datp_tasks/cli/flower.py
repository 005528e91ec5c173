"""Flower beside the stack of `datp up`: Celery's own view, on loopback and behind a password."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from datp_tasks.local.ports import HOST
from datp_tasks.local.private_files import read_or_create_secret
from datp_tasks.local.stack import Stack

PORT = 5_555
USER = "datp"
PASSWORD_FILE = "flower-password"
#: Flower keeps tasks in memory; these are the last few minutes of a busy laptop.
TASKS_MAX = 20_000


@dataclass(frozen=True)
class Flower:
    url: str
    user: str
    password_file: Path


def start_flower(stack: Stack) -> Flower:
    """Start it with the stack; the password is made up once and stays with the data."""
    port = stack.take_port(PORT)
    password_file = stack.directory / PASSWORD_FILE
    password = read_or_create_secret(password_file)
    argv = (sys.executable, "-m", "celery", "-A", "datp_tasks", "flower")
    options = (f"--address={HOST}", f"--port={port}", f"--max_tasks={TASKS_MAX}")
    stack.start_program(
        "flower",
        [*argv, *options],
        # Not on the command line, which every user of the machine can read.
        {"FLOWER_BASIC_AUTH": f"{USER}:{password}", "FLOWER_UNAUTHENTICATED_API": "false"},
    )
    return Flower(f"http://{HOST}:{port}", USER, password_file)
