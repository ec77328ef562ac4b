"""Commands about the keys of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from learnloop.cli.output import json_option, open_workspace, print_json, print_table, say

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
@click.pass_context
def create(ctx: click.Context, name: str, scopes: tuple[str, ...], expires_days: int | None, as_json: bool) -> None:
    """Make a key called NAME and print its secret, this once; only its SHA-256 is stored.

    From the first key on, every route but /health and /livez needs one; a running server heeds it within a second.

    \b
    Examples:
      learnloop keys create collector --scope ingest
      learnloop keys create dashboard --scope read --scope act --expires-days 90 --json
    """
    from learnloop.loop.workspace.api_keys import create_key

    made = create_key(open_workspace(ctx, create=True), name, scopes, expires_days=expires_days)
    if as_json:
        print_json("learnloop.key/v1", key=_shown(made.key), secret=made.secret)
        return
    say(made.secret)
    say(f"key {made.key.api_key_id}; send it as Authorization: Bearer ..., it is not shown again", error=True)


@keys.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List all keys, those that ended too.

    \b
    Examples:
      learnloop keys list --json
    """
    from learnloop.loop.workspace.api_keys import list_keys

    found = list_keys(open_workspace(ctx))
    if as_json:
        print_json("learnloop.keys/v1", data=[_shown(key) for key in found])
        return
    rows = [
        (key.api_key_id, key.name, f"{key.prefix}...", " ".join(key.scopes), key.created_at, _state(key))
        for key in found
    ]
    columns = ("key id", "name", "secret", "scopes", "created (UTC)", "state")
    print_table(columns, rows, empty="no keys; make one with: learnloop keys create NAME --scope read")


@keys.command()
@click.argument("key_id")
@json_option
@click.pass_context
def revoke(ctx: click.Context, key_id: str, as_json: bool) -> None:
    """End the key with the id KEY_ID for good; running servers heed it within a second.

    \b
    Examples:
      learnloop keys revoke 019b2f3c-...
    """
    from learnloop.loop.workspace.api_keys import revoke_key

    key = revoke_key(open_workspace(ctx), key_id)
    if as_json:
        print_json("learnloop.key/v1", key=_shown(key))
    else:
        say(f"key {key.api_key_id} ({key.name}) is revoked")


def _shown(key: ApiKey) -> dict[str, object]:
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
