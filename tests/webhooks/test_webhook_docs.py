"""The page for receivers: its code checks what we really send, and refuses everything else."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from datp_tasks.settings import published, variable
from datp_tasks.testing import Kit
from tests.support.receiver import Got, Receiver

PAGE = Path(__file__).resolve().parents[2] / "docs" / "webhooks.md"

NODE = """
import { readFileSync } from "node:fs";
import { verify } from "./verify.mjs";
const cases = JSON.parse(readFileSync(0, "utf8"));
const results = cases.map(({ secret, headers, body }) => {
  try {
    verify(secret, headers, Buffer.from(body, "base64"));
    return "good";
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(results));
"""


def code(name: str) -> str:
    match = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match, f"{name} is not on the page"
    return match.group(1)


def sent(kit: Kit, receiver: Receiver) -> tuple[str, Got]:
    kit.run("pay", {"amount": 5}, webhook=receiver.url(), owner="ann", metadata={"ü": "ß"})
    store = kit.connections.webhooks.store
    old = store.signing_secrets({"ann"})["ann"][0]
    store.rotate("ann", overlap_s=60)
    kit.run_job("webhook_sender")
    return old, receiver.got[0]


def cases(secret: str, got: Got) -> dict[str, tuple[str, dict[str, str], bytes]]:
    """What is good, and one of each that is not."""
    old = got.headers | {"webhook-timestamp": str(int(got.headers["webhook-timestamp"]) - 301)}
    other = got.headers | {"webhook-id": "msg_other"}
    unsigned = got.headers | {"webhook-signature": "v1,AAAA v1,ü"}
    foreign = "whsec_" + "A" * 43 + "="
    return {
        "good": (secret, got.headers, got.body),
        "changed": (secret, got.headers, got.body.replace(b"5", b"6")),
        "old": (secret, old, got.body),
        "another id": (secret, other, got.body),
        "unsigned": (secret, unsigned, got.body),
        "another secret": (foreign, got.headers, got.body),
    }


def test_the_python_code_tells_ours_from_others(kit: Kit, receiver: Receiver) -> None:
    names: dict[str, Any] = {}
    exec(code("verify.py"), names)
    found = cases(*sent(kit, receiver))
    names["verify"](*found.pop("good"))
    for given in found.values():
        with pytest.raises(ValueError, match="the webhook is"):
            names["verify"](*given)


def test_the_javascript_code_tells_ours_from_others(
    kit: Kit, receiver: Receiver, tmp_path: Path
) -> None:
    """Run where Node is; elsewhere at least held to the same steps as the Python code."""
    script = code("verify.mjs")
    for part in ("webhook-id", "webhook-timestamp", "webhook-signature", "sha256", "whsec_"):
        assert part in script and part in code("verify.py")
    assert "timingSafeEqual" in script
    node = shutil.which("node")
    if node is None:
        return
    (tmp_path / "verify.mjs").write_text(script)
    (tmp_path / "main.mjs").write_text(NODE)
    found = cases(*sent(kit, receiver))
    given = [
        {"secret": secret, "headers": headers, "body": _base64(body)}
        for secret, headers, body in found.values()
    ]
    done = subprocess.run(
        [node, "main.mjs"],
        cwd=tmp_path,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers[0] == "good"
    assert all("the webhook is" in answer for answer in answers[1:]), answers


def test_the_page_shows_what_is_sent(kit: Kit, receiver: Receiver) -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = next(each for each in map(json.loads, examples) if "type" in each)
    kit.run("pay", {"amount": 5}, webhook=receiver.url())
    kit.run_job("webhook_sender")
    assert shown.keys() == receiver.got[0].json.keys()
    assert shown["data"].keys() == receiver.got[0].data.keys()


def test_the_settings_on_the_page_exist_with_these_defaults() -> None:
    known = {variable(item.name): item.default for item in published()}
    rows = re.findall(r"^\| `(DATP_\w+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _ in rows} >= {name for name in known if "_WEBHOOKS__" in name}
    for name, shown in rows:
        default = known[name]
        plain = shown.strip().strip("`")
        if plain == "none":
            assert not default
        elif isinstance(default, tuple):
            assert plain == ",".join(default)
        else:
            assert float(plain) == default, name


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()
