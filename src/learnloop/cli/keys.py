"""Commands about the keys of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from learnloop.cli.output import json_option, open_workspace, print_table, printed_json, say

if TYPE_CHECKING:
    from learnloop.core.records import ApiKey

_SCOPES = ("read", "ingest", "act", "train", "admin")


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of the HTTP API."""


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(_SCOPES), help="What it allows.")
@click.option("--expires-days", type=click.IntRange(1, 36500), help="After how many days it ends; never if not given.")
@json_option
def create(name: str, scopes: tuple[str, ...], expires_days: int | None) -> None:
    """Make a key called NAME and print its secret, this once; only its SHA-256 is stored.

    From the first key on, every route but /health and /livez needs one; running servers know it within a second.

    \b
    Examples:
      learnloop keys create collector --scope ingest
      learnloop keys create dashboard --scope read --scope act --expires-days 90 --json
    """
    from learnloop.loop.workspace.api_keys import create_key

    made = create_key(open_workspace(create=True), name, scopes, expires_days=expires_days)
    if not printed_json("learnloop.key/v1", key=_without_hash(made.key), secret=made.secret):
        say(made.secret)
        say(f"key {made.key.api_key_id}; send it as Authorization: Bearer ..., it is not shown again", error=True)


@keys.command("list")
@json_option
def list_() -> None:
    """List all keys, those that ended too.

    \b
    Examples:
      learnloop keys list --json
    """
    from learnloop.loop.workspace.api_keys import list_keys

    found = list_keys(open_workspace())
    if not printed_json("learnloop.keys/v1", data=[_without_hash(key) for key in found]):
        rows = [
            (key.api_key_id, key.name, f"{key.prefix}...", " ".join(key.scopes), key.created_at, _state(key))
            for key in found
        ]
        columns = ("key id", "name", "secret", "scopes", "created (UTC)", "state")
        print_table(columns, rows, empty="no keys; make one with: learnloop keys create NAME --scope read")


@keys.command()
@click.argument("key_id")
@json_option
def revoke(key_id: str) -> None:
    """End the key with the id KEY_ID for good; running servers know it within a second.

    \b
    Examples:
      learnloop keys revoke 019b2f3c-...
    """
    from learnloop.loop.workspace.api_keys import revoke_key

    key = revoke_key(open_workspace(), key_id)
    if not printed_json("learnloop.key/v1", key=_without_hash(key)):
        say(f"key {key.api_key_id} ({key.name}) is revoked")


def _without_hash(key: ApiKey) -> dict[str, object]:
    """Returns a key without the hash of its secret, which is nobody's business."""
    return {name: getattr(key, name) for name in key.__struct_fields__ if name != "secret_hash"}


def _state(key: ApiKey) -> str:
    from learnloop.core.clock import now
    from learnloop.loop.workspace.api_keys import is_valid

    if key.revoked_at is not None:
        return "revoked"
    if not is_valid(key, now()):
        return "expired"
    return "valid" if key.expires_at is None else f"valid until {key.expires_at:%Y-%m-%d}"
