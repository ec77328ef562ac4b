"""URLs of databases: what they name, and how they are shown without their passwords."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from learnloop.core.errors import UsageError


def shown_url(database: str) -> str:
    """Returns a database's URL without its passwords; its scheme alone where one could hide in another part."""
    url = _parsed(database)
    is_file = url is not None and url.get_backend_name() == "sqlite"
    if url is None or (not is_file and "@" in f"{url.host}{url.database}"):  # a password with an @ that is not escaped
        scheme, separator, _ = database.partition("://")
        return f"{scheme}://..." if separator else "..."
    return without_passwords(url) if has_secret(database) else database


def without_passwords(url: URL) -> str:
    """Returns a URL with ``***`` or ``hidden`` in the places of its passwords: before the host, and in parameters."""
    return url.update_query_dict(dict.fromkeys(_secrets(url), "hidden")).render_as_string(hide_password=True)


def has_secret(database: str) -> bool:
    """Returns whether a database's URL holds a password, or may hold one."""
    url = _parsed(database)
    return url is None or url.password is not None or bool(_secrets(url))


def is_in_memory(database: str) -> bool:
    """Returns whether the database that a URL names is gone when it is closed."""
    url = _parsed(database)
    return url is not None and url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def file_of(database: str) -> Path | None:
    """Returns the file that a URL names; None where the database lies on a server or in memory."""
    url = _parsed(database)
    if url is None or url.get_backend_name() != "sqlite" or is_in_memory(database):
        return None
    return Path(url.database or "")


def url_of(file: Path | str) -> str:
    """Returns the URL of an SQLite file.

    Raises:
        UsageError: none can name it.
    """
    try:
        str(file).encode()
        url = URL.create("sqlite", database=str(file)).render_as_string(hide_password=False)
        named = make_url(url).database
    except (ArgumentError, UnicodeEncodeError) as error:
        raise UsageError(f"the store's folder {str(Path(file).parent)!r} has a name that no URL can hold") from error
    if named != str(file):
        raise UsageError(
            f"the store's folder {str(Path(file).parent)!r} has a name that no URL can hold; avoid ? # and %"
        )
    return url


def anchored(database: str, base: Path, origin: str) -> str:
    """Returns a database's URL with the path of an SQLite file made absolute, from ``base``.

    Raises:
        UsageError: it is not a URL; the message says that it comes from ``origin``.
    """
    url = _parsed(database)
    if url is None:
        raise UsageError(
            f"the database {shown_url(database)} (from: {origin}) is not a URL; allowed are sqlite:///path/to/file.db "
            "and postgresql://user@host/database, with %40 for an @ in the password"
        )
    file = file_of(database)
    if file is None or file.is_absolute():
        return database
    return url.set(database=str(base / file)).render_as_string(hide_password=False)


def _parsed(database: str) -> URL | None:
    """Returns a database's URL in its parts; None where it is not a URL."""
    try:
        return make_url(database)
    except (ArgumentError, ValueError):
        return None


def _secrets(url: URL) -> list[str]:
    """Returns the names of the parameters that are as secret as the password before the host."""
    return [name for name in url.query if "password" in name]
