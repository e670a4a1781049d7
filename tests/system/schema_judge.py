"""Judges texts by JSON Schemas: Python's jsonschema, with patterns as ECMA-262's (package regress) and numbers as decimals.

    judge = Judge(schema_text)         # of the draft that "$schema" names, 2020-12 by default
    judge.fault(text)                  # None, or why the text is wrong
"""
import decimal
import json
import pathlib

PACKAGES = ["jsonschema==4.26.0", "regress==2026.9.1", "hypothesis-jsonschema==0.23.1",
            "hypothesis==6.100.0"]  # newer ones do not have what hypothesis-jsonschema uses
_prepared = False


class Undecided(Exception):
    """The validator cannot tell: its own limits, or a schema that is none."""


class _Patterns:
    """In place of the module `re` in jsonschema."""
    _known = {}

    @classmethod
    def search(cls, pattern, text):
        import regress
        if pattern not in cls._known:
            try:
                cls._known[pattern] = regress.Regex(pattern, "u")
            except regress.RegressError:
                cls._known[pattern] = regress.Regex(pattern)  # \- and the like: an error with "u", common in schemas
        return cls._known[pattern].find(text) is not None


def _prepare():
    global _prepared
    if _prepared:
        return
    import jsonschema._keywords
    import jsonschema._legacy_keywords
    import jsonschema._utils
    for module in (jsonschema._keywords, jsonschema._legacy_keywords, jsonschema._utils):
        module.re = _Patterns
    # Numbers of any size are exact: a remainder needs as many digits as its quotient.
    decimal.setcontext(decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN))
    _prepared = True


def _refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def _integer(text):
    """Integers beyond 64 bits are doubles, as most readers of JSON have it (RFC 8259, section 6)."""
    value = int(text)
    return value if -2**63 <= value < 2**64 else decimal.Decimal(repr(float(text)))


def read(text, pairs=dict):
    return json.loads(text, parse_float=decimal.Decimal, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=pairs)


def _first_wins(pairs):
    out = {}
    for name, value in pairs:
        out.setdefault(name, value)
    return out


def _is_integer(checker, value):
    if isinstance(value, decimal.Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker, value):
    return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool)


def remotes(folder):
    """The suite's documents that schemas refer to by their URL."""
    import referencing
    import referencing.jsonschema
    root = pathlib.Path(folder)
    pairs = []
    for path in sorted(root.rglob("*.json")):
        where = str(path.relative_to(root))
        if where.split("/")[0] in ("draft3", "draft4", "draft6", "draft7", "v1"):
            continue
        found = referencing.Resource.from_contents(read(path.read_text()),
                                                   default_specification=referencing.jsonschema.DRAFT202012)
        pairs.append((f"http://localhost:1234/{where}", found))
    return pairs


class Judge:
    def __init__(self, schema_text, resources=()):
        _prepare()
        import jsonschema
        import referencing
        import referencing.jsonschema
        schema = read(schema_text)
        kind = jsonschema.Draft202012Validator
        if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
            kind = jsonschema.validators.validator_for(schema, default=kind)
        self.draft = kind
        checker = kind.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
        registry = referencing.Registry().with_resources(resources)
        self.validator = jsonschema.validators.extend(kind, type_checker=checker)(
            schema, registry=registry if resources else referencing.jsonschema.EMPTY_REGISTRY)

    def fault(self, text):
        """Why the text is wrong, or None. Throws Undecided."""
        try:
            values = [read(text)]
            first = read(text, _first_wins)
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError):
                raise Undecided("nested too deep") from None
            return f"not JSON: {error}"
        except decimal.InvalidOperation:
            raise Undecided("an exponent beyond 10^18") from None
        if first != values[0]:
            values.append(first)
        for value in values:
            try:
                error = next(self.validator.iter_errors(value), None)
            except Exception as trouble:  # a schema that is none, or a limit of Python
                raise Undecided(f"{type(trouble).__name__}: {str(trouble)[:200]}") from None
            if error is not None:
                same_name = "two values of one name: " if len(values) > 1 else ""
                return f"{same_name}{error.message[:300]} ({'/'.join(map(str, error.absolute_schema_path))})"
        return None

    @staticmethod
    def repeats_names(text):
        """Whether an object of the text has a name twice."""
        found = []

        def pairs(members):
            found.append(len({name for name, _ in members}) < len(members))
            return dict(members)
        read(text, pairs)
        return any(found)
