"""What cannot be in `[clearance]`, alone or together."""

from __future__ import annotations

from .settings import Settings, SettingsError, is_canonical
from .settings_check_conversations import CALLABLE
from .settings_clearance import GROUPS, ClearanceRules


def check_clearance(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    if not all(is_canonical(tenant) for tenant in settings.clearance.tenants):
        raise SettingsError("clearance.tenants must name tenants without white space around them.")
    for key, rules in settings.clearance.named().items():
        _check_python(key, rules)
        if GROUPS in rules.claims:
            raise SettingsError(f"{key}.claims.{GROUPS}: groups have labels in {key}.groups; move them there.")
        granted = {f"{key}.groups.{name}": labels for name, labels in rules.groups.items()}
        for claim, by_value in rules.claims.items():
            granted |= {f"{key}.claims.{claim}.{value}": labels for value, labels in by_value.items()}
        for place, labels in granted.items():
            _check_labels(place, labels)
    for name, tool in settings.tools.items():
        _check_labels(f"tools.{name}.dataClass", () if tool.data_class is None else (tool.data_class,))


def _check_python(key: str, rules: ClearanceRules) -> None:
    if rules.python is None:
        return
    if CALLABLE.fullmatch(rules.python) is None:
        raise SettingsError(f"{key}.python must be module:function, such as my_module:cleared.")
    if rules.groups or rules.claims:
        raise SettingsError(f"{key}.python is asked instead of groups and claims: remove them, or it.")


def _check_labels(key: str, labels: tuple[str, ...]) -> None:
    if not all(is_canonical(label) for label in labels):
        raise SettingsError(f"{key}: a label must not be empty, have white space around it or control characters.")
