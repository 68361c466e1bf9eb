"""An operator's own rules and the settings' secrets: taken at the start, or refused by name."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from minutebook.infra.dev_issuer import DevelopmentIssuer
from minutebook.infra.redaction.setup import redactor_of, secrets_of
from minutebook.infra.server_key import server_key
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_load import load

RULE = """
id = "corp-token"
description = "ours"
keywords = ["corp_"]
pattern = "corp_[0-9]{10}"
positive = ["a corp_0000000000"]
negative = ["corp_1"]
"""
INLINE = f"[[redaction.rules]]{RULE}"
FILE = '[redaction]\nrules = "more.toml"\n'
SECRET = "s3cr3t/+va-l9"


def loaded(folder: Path, toml: str, env: dict[str, str] | None = None) -> Settings:
    """The settings of that file."""
    (folder / "minutebook.toml").write_text(toml, "utf-8")
    return load(folder, env or {})


def test_rules_stand_in_the_settings_or_in_a_file_beside_them(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(f"[[rules]]{RULE}", "utf-8")
    for toml in (INLINE, FILE):
        settings = loaded(tmp_path, toml)
        assert redactor_of(settings).text("a corp_0123456789 b") == ("a [REDACTED:corp-token] b", ["corp-token"])
    named = load(tmp_path, {"MINUTEBOOK_REDACTION_RULES": "more.toml"})
    assert [rule.id for rule in named.redaction.all_rules] == ["corp-token"]
    assert redactor_of(loaded(tmp_path, "")).text("a corp_0123456789 b")[1] == []


def test_an_operators_rule_comes_before_the_shipped_ones(tmp_path: Path) -> None:
    redactor = redactor_of(loaded(tmp_path, INLINE))
    assert redactor.text("api_key=corp_0123456789") == ("api_key=[REDACTED:corp-token]", ["corp-token"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"corp_[0-9]{10}"', '"corp_("', ["redaction.rules", "corp-token", "pattern"]),
        ('"corp-token"', '"jwt"', ["redaction.rules", "jwt", "taken"]),
        ("corp_0000000000", "corp_x", ["redaction.rules", "corp-token", "positive example 1"]),
        ('["corp_1"]', '["corp_1111111111"]', ["redaction.rules", "corp-token", "negative example 1"]),
        ("description", "descriptoin", ["redaction.rules", "descriptoin"]),
        ("keywords", "#", ["redaction.rules", "keywords"]),
    ],
)
def test_a_wrong_rule_stops_the_start_by_name(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in RULE
    wrong = RULE.replace(old, new, 1)
    (tmp_path / "more.toml").write_text(f"[[rules]]{wrong}", "utf-8")
    for toml in (f"[[redaction.rules]]{wrong}", FILE):
        with pytest.raises(SettingsError) as caught:
            loaded(tmp_path, toml)
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_same_id_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="corp-token: the id is taken"):
        loaded(tmp_path, INLINE + INLINE)


def test_a_file_of_rules_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"redaction\.rules: .*more\.toml cannot be read"):
        loaded(tmp_path, FILE)
    (tmp_path / "more.toml").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="not UTF-8"):
        loaded(tmp_path, FILE)
    with pytest.raises(SettingsError, match=r"redaction\.rules"):
        loaded(tmp_path, "[redaction]\nrules = 7\n")


def test_the_passwords_of_the_settings_are_known_secrets(tmp_path: Path) -> None:
    url = f"postgresql://app:{SECRET.replace('/', '%2F')}@db.example/m?sslpassword=An0ther-one&password=short"
    settings = loaded(
        tmp_path, '[database]\nurl = "env:APP_URL"\nprojectorUrl = "postgresql://p@db/m"', {"APP_URL": url}
    )
    assert list(secrets_of(settings)) == [
        ("database.url", SECRET.replace("/", "%2F")),
        ("database.url", SECRET),
        ("database.url", "short"),
        ("database.url", "An0ther-one"),
    ]
    redactor = redactor_of(settings)
    for secret in (SECRET, SECRET.replace("/", "%2F"), "An0ther-one", base64.b64encode(SECRET.encode()).decode()[:-2]):
        shown, redactions = redactor.text(f"it is {secret}, or so")
        assert redactions == ["configured-secret"]
        assert secret not in shown
    assert redactor.text("a short note from db.example of app") == ("a short note from db.example of app", [])


def test_the_servers_own_keys_are_known_secrets(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "")
    redactor = redactor_of(settings)
    for key in (server_key(settings), DevelopmentIssuer.open(tmp_path).key):
        for form in (key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")):
            assert redactor.text(f"<{form}>")[1] == ["configured-secret"]


def test_a_weak_secret_masks_nothing_and_is_told_by_its_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = loaded(tmp_path, '[database]\nurl = "postgresql://app:the@db/m"')
    assert redactor_of(settings).text("the end") == ("the end", [])
    said = capsys.readouterr()
    assert "database.url" in said.out + said.err
