"""What the package shows to its users, and its tree of errors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import datp_tasks
from datp_tasks import errors

#: Adding a name here is a promise to every user.
PUBLIC = {
    *("Abort", "Batch", "Call", "Client", "Done", "DontKnow", "Fail", "Item", "NotDone"),
    *("Operator", "Pipeline", "Request", "Settings", "Sleep", "StepContext", "step"),
}
#: A module of steps must be quick to import; these come when something needs them.
HEAVY = ("alembic", "celery", "httpx", "kombu", "psycopg2", "redis", "sqlalchemy", "yaml")

ERRORS = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if each.__module__ == errors.__name__
]


def run_python(source: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(datp_tasks.__all__) == PUBLIC
    assert sorted(datp_tasks.__all__) == datp_tasks.__all__


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_there_and_explains_itself(name: str) -> None:
    found = getattr(datp_tasks, name)
    assert not isinstance(found, ModuleType)
    assert inspect.getdoc(found)


def test_celery_finds_its_app_in_the_package() -> None:
    # In a process of its own: the app reads the environment and stays in memory.
    source = "import datp_tasks; print(datp_tasks.celery.main)"
    assert run_python(source) == "datp_tasks"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Cilent'"):
        _ = datp_tasks.Cilent


def test_importing_the_package_imports_nothing_heavy() -> None:
    source = f"import datp_tasks, sys; print([m for m in {HEAVY} if m in sys.modules])"
    assert run_python(f"from datp_tasks import StepContext, Settings; {source}") == "[]"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error.__name__))
def test_every_error_has_a_message_by_default(error: type[Exception]) -> None:
    assert error.__doc__
    assert issubclass(error, errors.DatpError)
    if error is not errors.PipelineInvalid:
        assert str(error()) == error.__doc__
        assert str(error("this")) == "this"


def test_mistakes_of_a_pipeline_are_kept_one_by_one() -> None:
    error = errors.PipelineInvalid(["one", "two"])
    assert (error.mistakes, str(error)) == (("one", "two"), "one\ntwo")


def test_the_drawing_at_the_top_of_errors_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+)(?:\s{2,}|$)", line)
        if match and (match.group(1) or match.group(2) == "DatpError"):
            depth = len(match.group(1)) // 4
            above[depth:] = [match.group(2)]
            drawn[match.group(2)] = above[depth - 1] if depth else "Exception"
    assert drawn == {each.__name__: each.__mro__[1].__name__ for each in ERRORS}


def test_every_error_can_really_be_met() -> None:
    package = Path(datp_tasks.__file__).parent
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "errors.py"]
    names = set(re.findall(r"\w+", "\n".join(sources)))
    bases = {each.__mro__[1].__name__ for each in ERRORS}
    assert {each.__name__ for each in ERRORS} - bases - names == set()
