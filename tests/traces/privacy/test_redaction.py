"""learnloop.traces.privacy.redaction: no secret reaches the disk, whatever holds it; what is none stays as it is."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, Record, Reward, Span, Task
from learnloop.loop import Workspace, find_settings
from learnloop.store import Store
from learnloop.testing.contracts.store_examples import episode, span
from learnloop.traces.privacy.patterns import MAX_MATCH, check_pattern
from learnloop.traces.privacy.redaction import RedactionSettings, Redactor
from learnloop.traces.privacy.secrets import names_secret
from tests.waiting import costs_at_most

LONG = "abcDEF0123456789" * 3
PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAA/x==\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
TOKENS = [
    f"sk-{LONG}",
    f"sk-proj-{LONG}",
    f"sk-ant-api03-{LONG}-_AA",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "ghp_" + LONG[:36],
    "gho_" + LONG[:36],
    "github_pat_11ABCDEFG0_" + LONG,
    "xoxb-123456789012-abcdefABCDEF",
    "AIzaSyA" + LONG[:32],
    "sk_live_" + LONG[:24],
    "rk_test_" + LONG[:24],
    "whsec_" + LONG[:32],
    "hf_" + "abcdefGHIJ" * 3,
    JWT,
    f"llk_{LONG}",
    PRIVATE,
]
ASSIGNED = [
    "password=hunter2",
    'password: "correct horse"',
    "DB_PASSWORD=s3cr3t!",
    '{"api_key": "zzzz"}',
    '{\\"apiKey\\": \\"zz zz\\"}',
    "api-key: 'a b c'",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "client_secret=zzzz&grant_type=x",
    "Authorization: Bearer abc.def-123456",
    "authorization: Basic dXNlcjpwYXNz",
    "curl -H 'Authorization: token zzzzzz'",
    "Bearer 0123456789abcdef",
    "postgresql://me:hunter2@db.example.com:5432/x",
    "refresh_token=zzzz",
    "Password: hunter2.",
]
VALUES = ["hunter2", "correct horse", "s3cr3t!", '"zzzz"', "zz zz", "a b c", "wJalrXUtnFEMI", "=zzzz", "abc.def-123456",
          "dXNlcjpwYXNz", "zzzzzz", "0123456789abcdef", ":hunter2@", "=zzzz", "hunter2"]  # fmt: skip
ORDINARY = [
    "The password must have 8 characters; the api key is in the vault.",
    "secret santa, a bearer of good news, and a basic authorization of the board",
    "password=password api_key=os.environ['KEY'] token = tokens[3] password: str",
    "def login(password: str, secret: Optional[str] = None) -> None: return get(password)",
    "risk-based task-oriented disk-usage desk-research-and-more-words-behind",
    "icon@2x.png, git@github.com:a/b.git, @decorator, a@b, x @ y.z",
    "https://example.com/a?b=c#d and http://localhost:8000/path:1@2",
    "prompt_tokens=12 completion_tokens: 3456789 max_tokens=4096 next_page_token",
    "PASSWORD=$DB_PASSWORD password=${SECRET} api_key: {{ api_key }} secret=***",
    "Kaffee für Jürgen, İstanbul, 東京 123456, 0xdeadbeef, 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "akia asia sk_live eyJ xox ghp_ AIza",
]


def redactor(**options: Any) -> Redactor:
    return Redactor(RedactionSettings(**options), lambda: b"k" * 32)


@pytest.mark.parametrize("secret", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "see {} there", '{{"a": "{}"}}', "x={};", "line\\n{}\\nline", "({})", "%22{}%22"]
)
def test_tokens_are_found_wherever_they_stand(secret: str, around: str) -> None:
    found = redactor().text(around.format(secret))
    assert found == around.format("[key]")


@pytest.mark.parametrize(("text", "value"), list(zip(ASSIGNED, VALUES, strict=True)))
def test_values_are_found_by_what_they_are_assigned_to(text: str, value: str) -> None:
    found = redactor(kinds=("keys",)).text(text)
    assert value.strip('":=@') not in found
    assert "[key]" in found


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redactor().text(text) == text
    record = span("s", attributes={"input": text})
    assert redactor()(record) is record


def test_fields_named_like_secrets_are_hidden_and_their_descriptions_stay() -> None:
    schema = {"properties": {"password": {"type": "string", "description": "a word"}}, "required": ["password"]}
    given = {"headers": {"Authorization": "x", "X-Api-Key": "y"}, "DB_PASSWORD": 1234, "secrets": ["a", "b"],
             "has_password": True, "password": None, "usage": {"input_tokens": 5}, "schema": schema}  # fmt: skip
    assert redactor().value(given) == {
        **given,
        "headers": {"Authorization": "[key]", "X-Api-Key": "[key]"},
        "DB_PASSWORD": "[key]",
        "secrets": ["[key]", "[key]"],
    }
    assert names_secret("clientSecret")
    assert names_secret("aws_secret_access_key")
    assert not names_secret("max_tokens")


def test_an_address_has_one_pseudonym_however_it_is_written() -> None:
    found = redactor().text("from Bob.O'Hara+x@Mail.Example.co.uk to <eve@example.org>, 'eve@example.org'")
    digest = hmac.new(b"k" * 32, b"eve@example.org", hashlib.sha256).hexdigest()[:8]
    assert found.count(f"[email:{digest}]") == 2
    assert "@" not in found
    assert found.startswith("from [email:")
    other = Redactor(RedactionSettings(), lambda: b"j" * 32).text("eve@example.org")
    assert other != f"[email:{digest}]"


def test_keys_of_objects_that_become_one_token_stay_apart() -> None:
    found = redactor().value({TOKENS[0]: 1, TOKENS[1]: 2, "a": 3})
    assert found == {"[key]": 1, "[key]'": 2, "a": 3}


def test_what_is_looked_at_and_what_is_not() -> None:
    secret = TOKENS[0]
    clean = redactor()
    assert clean(span("s", name=secret)).name == "[key]"
    assert clean(span("s", error=f"no {secret}")).error == "no [key]"
    assert clean(episode(error=secret, metadata={"a": [secret]})).metadata == {"a": ["[key]"]}
    now = datetime.now(UTC)
    assert (
        clean(Reward(reward_id="r", episode_id="e", name="n", value=1.0, reason=secret, created_at=now)).reason
        == "[key]"
    )
    assert clean(Task(task_id=secret, created_at=now, metadata={"k": secret})) == Task(
        task_id=secret, created_at=now, metadata={"k": "[key]"}
    )
    decision = Decision(
        decision_id="d", episode_id=None, agent_id="a", policy="p", algorithm=None, context={"t": secret},
        actions=["x"], action="x", propensity=None, created_at=now,
    )  # fmt: skip
    assert clean(decision) is decision
    assert clean(span(secret)).span_id == secret


def test_each_kind_can_be_switched_off() -> None:
    text = f"{TOKENS[0]} eve@example.org"
    assert redactor(kinds=("keys",)).text(text) == "[key] eve@example.org"
    assert redactor(kinds=("emails",)).text(text).startswith(f"{TOKENS[0]} [email:")
    off = redactor(kinds=())
    assert off.is_off
    assert off.text(text) == text
    with pytest.raises(UsageError, match=r"'names'.*allowed are 'keys', 'emails'"):
        redactor(kinds=("names",))


def test_what_is_nested_too_deep_is_refused() -> None:
    deep: Any = TOKENS[0]
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deep"):
        redactor()(span("s", attributes={"input": deep}))


SECRETS = st.sampled_from([*TOKENS, "eve@example.org", *ASSIGNED])
NOISE = st.text(alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="@"), max_size=40)
SENTENCES = st.builds(lambda before, secret, after: f"{before} {secret} {after}", NOISE, SECRETS, NOISE)
VALUE = st.recursive(
    st.one_of(NOISE, SENTENCES, st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NOISE, inner, max_size=3)),
    max_leaves=8,
)
MARKS = [
    *[secret[:24] for secret in TOKENS],
    "eve@example",
    *[value.strip('":=@') for value in VALUES if len(value) > 6],
]


@given(st.dictionaries(st.one_of(NOISE, SENTENCES), VALUE, max_size=4))
def test_twice_is_once(attributes: dict[str, Any]) -> None:
    clean = redactor(patterns={"order": "ORD-[0-9]{4}", "digits": "[0-9]{5,9}"})
    once = clean(span("s", attributes=attributes))
    assert clean(once) == once


@given(st.text(max_size=200))
def test_any_text_can_be_looked_at(text: str) -> None:
    clean = redactor()
    assert clean.text(clean.text(text)) == clean.text(text)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        yield workspace


def test_planted_secrets_never_reach_a_file(tmp_path: Path) -> None:
    """The bytes of the database and of its log are searched, for every way in: offer, write and run."""
    planted = [f"see {secret} there" for secret in [*TOKENS, "eve@example.org", *ASSIGNED]]
    records: list[Record] = [episode("e1", metadata={"deep": [{"er": text} for text in planted]})]
    for number, text in enumerate(planted):
        records.append(span(f"s{number}", name=text, error=text, attributes={"input": {"a": [text, {text: text}]}}))
        records.append(
            Reward(
                reward_id=f"r{number}", episode_id="e1", name="n", value=1.0, reason=text, created_at=datetime.now(UTC)
            )
        )
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        store = workspace.store
        for record in records[::3]:
            store.offer(record)
        store.flush()
        store.write(records[1::3])
        from learnloop.store import insert_records

        store.run(lambda connection: insert_records(connection, records[2::3]))
        files = [path.read_bytes() for path in (tmp_path / "home").glob("learnloop.db*")]
        assert store.count(Span) == len(planted)
    files += [path.read_bytes() for path in (tmp_path / "home").glob("learnloop.db*")]
    assert any(b"[key]" in content for content in files)
    for mark in MARKS:
        assert not any(mark.encode() in content for content in files), mark


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(VALUE, st.sampled_from(TOKENS), st.sampled_from(["", " ", '"', "\n", "=", "(", "é"]))
def test_a_secret_anywhere_in_a_value_never_reaches_the_store(
    kept: Workspace, value: Any, secret: str, edge: str
) -> None:
    from learnloop.core.ids import new_id

    record = span(new_id(), attributes={"input": [value, {"k": [f"x {edge}{secret}{edge} y"]}], f"{secret}": value})
    kept.store.write([record])
    stored = kept.store.get(Span, record.span_id)
    assert secret not in repr(stored)
    assert repr(secret)[1:-1] not in repr(stored)


def test_the_store_knows_nothing_of_a_record_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """Fail closed: it is refused and counted, and the others are written."""

    def transform(record: Record) -> Record:
        if isinstance(record, Span) and record.span_id == "bad":
            raise UsageError("no")
        return record

    with Store.open(f"sqlite:///{tmp_path}/x.db", transform=transform) as store:
        for key in ("a", "bad", "b"):
            store.offer(span(key))
        with pytest.raises(Exception, match="1 of the offered records were refused"):
            store.flush()
        assert [each.span_id for each in store.select(Span)] == ["a", "b"]
        assert store.counters().num_failed == 1


def test_the_secret_of_pseudonyms_is_made_once_and_nobody_elses(tmp_path: Path) -> None:
    for _ in range(2):
        with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
            workspace.store.write([span("s", attributes={"input": "eve@example.org"})])
            found = workspace.store.get(Span, "s").attributes["input"]
            assert workspace.redactor().text("eve@example.org") == found
    file = tmp_path / "home" / "redaction.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir() if ".new" in path.name or path.name[0] == "."] == []


# ---------------------------------------------------------------------- patterns of a user's own


def test_a_pattern_has_its_own_token_and_leaves_others_alone() -> None:
    clean = redactor(patterns={"order": r"ORD-\d{4}", "hex": "[0-9a-f]{8}"})
    found = clean.text("ORD-1234 of eve@example.org is deadbeef")
    assert found.startswith("[order] of [email:")
    assert found.endswith("] is [hex]")
    assert clean.found["[order]"] == clean.found["[hex]"] == 1


def test_a_pattern_finds_what_lies_anywhere_in_a_long_text() -> None:
    pattern = check_pattern("order", r"ORD-\d{4}")
    text = "x" * (2 * MAX_MATCH - 4) + "ORD-1234" + "y" * MAX_MATCH + " ORD-9999"
    redacted = redactor(patterns={"order": r"ORD-\d{4}"}).text(text)
    assert redacted == text.replace("ORD-1234", "[order]").replace("ORD-9999", "[order]")
    assert pattern.find("", 0, 0) == []


@pytest.mark.parametrize(
    "source",
    ["(a+)+$", "(a|a)*b", "(a|ab|b)+c", "([a-z]+)*x", "(?:x*)*y", r"(a)\1+", "(.*a){20}", "a*", "", "(", "x{0,9}"],
)
def test_patterns_that_could_take_for_ever_or_match_nothing_are_refused(source: str) -> None:
    with pytest.raises(UsageError, match="redaction pattern 'p'"):
        check_pattern("p", source)


@pytest.mark.parametrize("source", [r"\w*\w*\w*\w*\w*!", r"\s*\s*\s*\s*x", ".*.*.*.*=", r"(?:a*)(?:a*)(?:a*)(?:a*)b"])
def test_patterns_that_are_slow_are_refused_quickly_or_are_quick(source: str) -> None:
    with costs_at_most(10):
        try:
            pattern = check_pattern("p", source)
        except UsageError:
            return
        pattern.find("a" * 20_000, 0, 20_000)


@pytest.mark.parametrize(
    "source", [r"ORD-\d{4,12}", r"(?:\d{4}[ -]?){3}\d{4}", r"\b[A-Z]{2}\d{2}\w{10,30}\b", "cat|dog", "(?>a|b)+c"]
)
def test_patterns_that_people_write_are_allowed(source: str) -> None:
    assert check_pattern("p", source).token == "[p]"


@pytest.mark.parametrize("name", ["", "key", "email", "A", "a b", "[x]", "x" * 33])
def test_a_name_that_cannot_be_a_token_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="needs another name"):
        check_pattern(name, "abc")


def test_a_pattern_that_turns_out_slow_gets_no_more_text() -> None:
    pattern = check_pattern("p", "abc")
    pattern._is_slow = True  # as if a piece had taken too long
    assert pattern.find("some text", 2, 9) == [(2, 9)]


@pytest.mark.parametrize(
    "text",
    ["eyJ" * 20_000, "sk-" * 20_000, "password=" * 8_000, "a@" * 30_000, "-----BEGIN " * 6_000, "secret='" * 8_000,
     "bearer " * 9_000, "://x:" * 12_000, "." * 60_000 + "@", "a.a" * 20_000 + "@b", '\\"api_key\\": \\"' * 4_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_no_text_makes_it_slow(text: str) -> None:
    began = time.thread_time()
    redactor().text(text)
    assert time.thread_time() - began < 2.0
