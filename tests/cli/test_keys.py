"""learnloop keys: the secret is shown once, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.calling import Call


def test_create_list_and_revoke(call: Call, tmp_path: Path) -> None:
    secret = call("keys", "create", "collector", "--scope", "ingest", "--scope", "read").out.strip()
    assert secret.startswith("llk_")
    made = call("keys", "create", "short", "--scope", "act", "--expires-days", "3", "--json").json()
    assert made["schema"] == "learnloop.key/v1"
    listed = call("keys", "list", "--json").json()
    assert [(key["name"], key["scopes"]) for key in listed["data"]] == [
        ("collector", ["read", "ingest"]),
        ("short", ["act"]),
    ]
    everything = json.dumps(listed) + call("keys", "list").out
    for hidden in (secret, made["secret"], "secret_hash"):
        assert hidden not in everything
    assert call("keys", "revoke", made["key"]["api_key_id"], "--json").json()["key"]["revoked_at"]
    text = call("keys", "list").out
    assert "collector" in text
    assert "valid" in text
    assert "revoked" in text
    stored = b"".join(path.read_bytes() for path in (tmp_path / ".learnloop").rglob("*") if path.is_file())
    assert secret.encode() not in stored


def test_wrong_calls(call: Call) -> None:
    assert call("keys", "list").code == 3  # there is no store
    call("keys", "create", "k", "--scope", "read")
    for arguments, code in (
        (("create", "k"), 2),
        (("create", "k", "--scope", "root"), 2),
        (("create", "../k", "--scope", "read"), 2),
        (("create", "k", "--scope", "read", "--expires-days", "0"), 2),
        (("revoke", "nothing"), 3),
    ):
        outcome = call("keys", *arguments)
        assert (outcome.code, outcome.out) == (code, ""), arguments
        assert "Traceback" not in outcome.err
    assert len(call("keys", "list", "--json").json()["data"]) == 1


def test_no_key(call: Call) -> None:
    call("init")
    outcome = call("keys", "list")
    assert (outcome.code, outcome.out) == (0, "")
    assert "learnloop keys create" in outcome.err
