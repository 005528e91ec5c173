"""What a mapping can do to a value on its way: dates, amounts, codes. Money is never a float.

{from: when, date: {from: YYYY-MM-DD, to: DD/MM/YYYY}}
{from: amount, amount: minor, scale: 2}              "12.50" to 1250; decimal: 1250 to "12.50"
{from: amount, amount: minor, currency: currency}    as many digits as the currency has
{from: country, code: countries}                     by the table `codes.countries`; reverse: true
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from datp_tasks.model.paths import MISSING, lookup, path_mistake

CONVERSIONS: Final = ("date", "amount", "code")
#: Keys that belong to one of them.
OPTIONS: Final = {"scale": "amount", "currency": "amount", "reverse": "code"}
SCALE_MAX = 18
DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,18})?")
WHOLE = re.compile(r"-?[0-9]{1,48}")
CURRENCY = re.compile(r"[A-Z]{3}")
#: Currencies of ISO 4217 whose minor unit is not a hundredth: how many digits they have.
MINOR_DIGITS: Final = {
    currency: digits
    for digits, currencies in {
        0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
        3: "BHD IQD JOD KWD LYD OMR TND",
        4: "CLF UYW",
    }.items()
    for currency in currencies.split()
}
#: Words in a date's format. `epoch` and `epoch-ms` are whole formats.
TOKENS: Final = {
    "YYYY": "%Y",
    "MM": "%m",
    "DD": "%d",
    "hh": "%H",
    "mm": "%M",
    "ss": "%S",
}
TOKEN = re.compile("|".join(TOKENS))
EPOCHS: Final = {"epoch": 1, "epoch-ms": 1_000}
FORMAT_CHARS_MAX = 40


class ConversionError(ValueError):
    """A value is not what the mapping expects; the sentence is for the client."""


def converted(
    value: Any, source: Mapping[str, Any], data: Mapping[str, Any], codes: Mapping[str, Any]
) -> Any:
    """The value as the source says; itself if it names no conversion."""
    if "date" in source:
        return _date(value, source["date"]["from"], source["date"]["to"])
    if "amount" in source:
        return AMOUNTS[source["amount"]](value, _scale(source, data))
    if "code" in source:
        return _code(value, source, codes)
    return value


def mistakes_of(source: Mapping[str, Any], codes: Mapping[str, Any]) -> list[str]:
    """What is wrong with the conversion in a source."""
    named = [each for each in CONVERSIONS if each in source]
    if len(named) > 1:
        return [f"{named[1]} cannot be together with {named[0]}"]
    strays = [key for key, of in OPTIONS.items() if key in source and of not in named]
    if strays:
        return [f"{strays[0]} is only used together with {OPTIONS[strays[0]]}"]
    if not named:
        return []
    return {"date": _date_mistakes, "amount": _amount_mistakes}.get(
        named[0], lambda given: _named_table_mistakes(given, codes)
    )(source)


def _date(value: Any, given: str, wanted: str) -> str | int:
    moment = _moment(value, given)
    if wanted in EPOCHS:
        return int(moment.timestamp()) * EPOCHS[wanted]
    # Not `strftime`, which writes the year 99 with two digits on some systems.
    parts = {
        "YYYY": f"{moment.year:04d}",
        "MM": f"{moment.month:02d}",
        "DD": f"{moment.day:02d}",
        "hh": f"{moment.hour:02d}",
        "mm": f"{moment.minute:02d}",
        "ss": f"{moment.second:02d}",
    }
    return TOKEN.sub(lambda found: parts[found[0]], wanted)


def _moment(value: Any, given: str) -> datetime:
    if given in EPOCHS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConversionError(f"{value!r:.60} is no whole number of {given}")
        try:
            return datetime.fromtimestamp(value // EPOCHS[given], UTC)
        except (OverflowError, OSError, ValueError):
            raise ConversionError(f"{value!r:.60} is out of range for {given}") from None
    refused = ConversionError(f"{value!r:.60} is not a date of the form {given}")
    # `strptime` would also take one digit where two are written.
    if not isinstance(value, str) or not value.isascii() or len(value) != len(given):
        raise refused
    try:
        return datetime.strptime(value, _pattern(given)).replace(tzinfo=UTC)
    except ValueError:
        raise refused from None


def _pattern(text: str) -> str:
    return TOKEN.sub(lambda found: TOKENS[found[0]], text.replace("%", "%%"))


def _minor(value: Any, scale: int) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConversionError(f'{value!r:.60} is no amount such as "12.50"')
    if not DECIMAL.fullmatch(str(value)):
        raise ConversionError(f'{value!r:.60} is no amount such as "12.50"')
    whole, _, digits = str(value).partition(".")
    if digits[scale:].strip("0"):
        # Rounding would make or lose money.
        raise ConversionError(f"{value!r:.60} has more than {scale} digits after the point")
    return int(f"{whole}{digits[:scale]:0<{scale}}")


def _decimal(value: Any, scale: int) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConversionError(f"{value!r:.60} is no whole number of minor units")
    if not WHOLE.fullmatch(str(value)):
        raise ConversionError(f"{value!r:.60} is no whole number of minor units")
    sign, digits, _ = Decimal(int(value)).as_tuple()
    return f"{Decimal((sign, digits, -scale)):f}"


AMOUNTS: Final[dict[str, Callable[[Any, int], Any]]] = {"minor": _minor, "decimal": _decimal}


def _scale(source: Mapping[str, Any], data: Mapping[str, Any]) -> int:
    if "scale" in source:
        return int(source["scale"])
    currency = lookup(data, source["currency"])
    if currency is MISSING:
        raise ConversionError(f"the data has no field {source['currency']} with the currency")
    if not isinstance(currency, str) or not CURRENCY.fullmatch(currency):
        raise ConversionError(f"{currency!r:.60} is no currency such as EUR")
    return MINOR_DIGITS.get(currency, 2)


def _code(value: Any, source: Mapping[str, Any], codes: Mapping[str, Any]) -> Any:
    name = source["code"]
    table = codes[name]
    if source.get("reverse"):
        table = {str(other): code for code, other in table.items()}
    # Codes are texts; a number is looked for as it is written.
    found = table.get(str(value), MISSING) if isinstance(value, str | int) else MISSING
    if found is not MISSING and not isinstance(value, bool):
        return found
    if "default" in source:
        return source["default"]
    raise ConversionError(f"{value!r:.60} is not in the table {name}")


def _date_mistakes(source: Mapping[str, Any]) -> list[str]:
    given = source["date"]
    if not isinstance(given, Mapping) or set(given) != {"from", "to"}:
        return [f"date must be {{from: format, to: format}}, was {given!r:.100}"]
    return [
        f"date.{key} must be epoch, epoch-ms or a text with {', '.join(TOKENS)}, was {text!r:.60}"
        for key, text in given.items()
        if not _is_format(text)
    ]


def _is_format(text: Any) -> bool:
    if not isinstance(text, str) or not text.isascii() or len(text) > FORMAT_CHARS_MAX:
        return False
    words = TOKEN.findall(text)
    # The year has no second meaning, and each word stands once.
    return text in EPOCHS or ("YYYY" in words and len(words) == len(set(words)) and "%" not in text)


def _amount_mistakes(source: Mapping[str, Any]) -> list[str]:
    if source["amount"] not in AMOUNTS:
        return [f"amount must be {' or '.join(AMOUNTS)}, was {source['amount']!r:.60}"]
    if ("scale" in source) == ("currency" in source):
        return ["amount needs scale (a number of digits) or currency (a path), not both"]
    if "currency" in source:
        mistake = path_mistake(source["currency"], "currency")
        return [mistake] if mistake else []
    scale = source["scale"]
    if isinstance(scale, bool) or not isinstance(scale, int) or not 0 <= scale <= SCALE_MAX:
        return [f"scale must be a whole number from 0 to {SCALE_MAX}, was {scale!r:.60}"]
    return []


def _named_table_mistakes(source: Mapping[str, Any], codes: Mapping[str, Any]) -> list[str]:
    name = source["code"]
    table = codes.get(name) if isinstance(name, str) else None
    if not isinstance(table, Mapping):
        return [f"code must name a table of codes ({', '.join(codes) or 'none'}), was {name!r:.60}"]
    if not isinstance(source.get("reverse", False), bool):
        return [f"reverse must be true or false, was {source['reverse']!r:.60}"]
    if source.get("reverse") and len({str(each) for each in table.values()}) < len(table):
        return [f"reverse needs a table without a code twice, and {name} has one"]
    return []
