"""Random schemas: keywords in the combinations that clients write, and some that nobody writes. The same for a seed."""
import json
import os
import random
import tempfile

NAMES = ["a", "b", "c", "id", "name", "aa", "", "é", "x\"y", "a\\b", "tab\t", "\U0001F600"]
STRINGS = ["", "a", "b", "red", "green", "A\n", "\"", "\\", "é", "\U0001F600", "0", "null"]
PATTERNS = [r"^a", r"b$", r"^\d{3}$", r"^[a-f]+$", r"x|y", r"^(a|b)*$", r"\.", r"^\S+$", r"^[^\"]*$", r"\\", r"^.{2,4}$",
            r"^\p{L}+$", r"^(?:\+?\d{1,3} )?\d{3}-\d{4}$", r"^a$|^b$", r"^é+$", r"\w\W", r"^[A-Z][a-z]*$", r"^$",
            r"^\u0041\x42$", r"^[\s\S]{3}$", r"^\/[a-z\/]*$"]
FORMATS = ["date", "date-time", "time", "uuid", "ipv4", "email", "uri", "unheard-of"]
NUMBERS = [0, 1, -1, 2, 3, 5, 10, 100, -7, 0.5, -0.5, 1.25, 1e3, 1e-3, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63)]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = []  # of $defs

    def chance(self, p):
        return self.random.random() < p

    def value(self, depth=0):
        r = self.random
        kind = r.randrange(7 if depth < 2 else 5)
        if kind < 2:
            return r.choice(STRINGS)
        if kind < 4:
            return r.choice(NUMBERS)
        if kind == 4:
            return r.choice([True, False, None])
        if kind == 5:
            return [self.value(depth + 1) for _ in range(r.randrange(3))]
        return {r.choice(NAMES): self.value(depth + 1) for _ in range(r.randrange(3))}

    def bounds(self, low, high, most):
        out = {}
        first, second = sorted([self.random.randrange(most), self.random.randrange(most)])
        if self.chance(0.4):
            out[low] = first
        if self.chance(0.4):
            out[high] = second
        return out

    def string(self):
        out = self.bounds("minLength", "maxLength", 8)
        if self.chance(0.35):
            out["pattern"] = self.random.choice(PATTERNS)
        if self.chance(0.15):
            out["format"] = self.random.choice(FORMATS)
        return out

    def number(self):
        out, (a, b) = {}, sorted(self.random.sample(NUMBERS, 2))
        if self.chance(0.4):
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = a
        if self.chance(0.4):
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = b
        if self.chance(0.15):
            out["multipleOf"] = self.random.choice([1, 2, 3, 5, 10, 7, 0.5, 0.01])
        return out

    def array(self, depth):
        out = self.bounds("minItems", "maxItems", 5)
        if self.chance(0.3):
            out["prefixItems"] = [self.schema(depth + 1) for _ in range(self.random.randrange(1, 4))]
        if self.chance(0.6):
            out["items"] = self.schema(depth + 1) if self.chance(0.9) else self.chance(0.5)
        if self.chance(0.1):
            out["uniqueItems"] = True
        if self.chance(0.1):
            out["contains"] = self.schema(depth + 1)
            out.update(self.bounds("minContains", "maxContains", 3))
        if self.chance(0.05):
            out["unevaluatedItems"] = False
        return out

    def object(self, depth):
        r = self.random
        names = r.sample(NAMES, r.randrange(5))
        out = {"properties": {name: self.schema(depth + 1) for name in names}} if names else {}
        if self.chance(0.6):
            out["required"] = r.sample(names, r.randrange(len(names) + 1))
            if self.chance(0.15):
                out["required"].append(r.choice(["other", "zz"]))
        if self.chance(0.5):
            out["additionalProperties"] = self.schema(depth + 1) if self.chance(0.3) else self.chance(0.2)
        if self.chance(0.1):
            out["patternProperties"] = {r.choice(PATTERNS): self.schema(depth + 1)}
        if self.chance(0.1):
            out["propertyNames"] = self.string()
        if self.chance(0.1):
            out.update(self.bounds("minProperties", "maxProperties", 4))
        if names and self.chance(0.1):
            out["dependentRequired"] = {r.choice(names): [r.choice(NAMES)]}
        if names and self.chance(0.05):
            out["dependentSchemas"] = {r.choice(names): self.schema(depth + 1)}
        if self.chance(0.05):
            out["unevaluatedProperties"] = False
        return out

    def of_type(self, kind, depth):
        if kind == "string":
            return self.string()
        if kind in ("number", "integer"):
            return self.number()
        if kind == "array":
            return self.array(depth)
        return self.object(depth) if kind == "object" else {}

    def schema(self, depth=0):
        r = self.random
        if self.chance(0.04):
            return self.chance(0.8)
        if self.names and self.chance(0.12 if depth < 3 else 0.3):
            out = {"$ref": "#/$defs/" + r.choice(self.names)}
            return out if self.chance(0.7) else {**out, **self.of_type(r.choice(TYPES), depth)}
        if self.chance(0.1):
            out = {"enum": [self.value() for _ in range(r.randrange(1, 5))]} if self.chance(0.6) else {"const": self.value()}
            return out if self.chance(0.6) else {**out, **self.of_type(r.choice(TYPES), depth)}
        kinds = TYPES if depth < 3 else TYPES[2:]
        out = {}
        chosen = r.sample(kinds, r.choice([1, 1, 1, 1, 2, 3]))
        if self.chance(0.85):
            out["type"] = chosen[0] if len(chosen) == 1 else chosen
        for kind in chosen:
            out.update(self.of_type(kind, depth))
        if depth < 3:
            for keyword in ("anyOf", "allOf", "oneOf"):
                if self.chance(0.08):
                    out[keyword] = [self.branch(out, depth) for _ in range(r.randrange(1, 4))]
            if self.chance(0.04):
                out["not"] = self.schema(depth + 2)
            if self.chance(0.04):
                out["if"] = self.schema(depth + 2)
                for keyword in ("then", "else"):
                    if self.chance(0.7):
                        out[keyword] = self.schema(depth + 2)
        return out

    def branch(self, beside, depth):
        """A part that refers to the keywords beside it, as people write it, or any."""
        names = list(beside.get("properties", {}))
        kind = self.random.randrange(4)
        if kind == 0 and names:
            return {"required": self.random.sample(names, self.random.randrange(1, len(names) + 1))}
        if kind == 1 and names:
            return {"properties": {self.random.choice(names): {"const": self.value()}}}
        if kind == 2 and isinstance(beside.get("type"), str):
            return self.of_type(beside["type"], depth + 1)
        return self.schema(depth + 1)

    def document(self):
        self.names = [name for name in ("one", "two", "a/b") if self.chance(0.25)]
        names, self.names = self.names, [name.replace("/", "~1") for name in self.names]
        out = self.schema()
        while not isinstance(out, dict):
            out = self.schema()
        if names:
            out["$defs"] = {name: self.schema(1) for name in names}
        return out


def schemas(count, seed):
    return [json.dumps(Maker(seed * 1_000_003 + i).document(), ensure_ascii=i % 2 == 0) for i in range(count)]


def metaschema(levels):
    """A schema whose instances are schemas, for hypothesis-jsonschema, which knows no recursion."""
    count, number = {"type": "integer", "minimum": 0, "maximum": 6}, {"type": "number", "minimum": -1000, "maximum": 1000}
    name, types = {"enum": ["a", "b", "c", "\u00e9", "x\"y"]}, {"enum": TYPES}
    names = {"type": "array", "items": name, "maxItems": 3, "uniqueItems": True}
    members = {
        "type": {"anyOf": [types, {"type": "array", "items": types, "minItems": 1, "uniqueItems": True}]},
        **{key: count for key in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")},
        **{key: number for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")},
        "multipleOf": {"enum": [1, 2, 3, 0.1, 0.25, 10]}, "uniqueItems": {"type": "boolean"}, "pattern": {"enum": PATTERNS},
        "enum": {"type": "array", "minItems": 1, "maxItems": 4}, "const": {}, "required": names, "format": {"enum": FORMATS}}
    if levels > 0:
        part = metaschema(levels - 1)
        closed = {"type": "object", "additionalProperties": False}
        for key in ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"):
            members[key] = {"anyOf": [part, {"type": "boolean"}]}
        for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            members[key] = {"type": "array", "items": part, "minItems": 1, "maxItems": 3}
        members["properties"] = {**closed, "properties": {each: part for each in name["enum"]}}
        members["dependentRequired"] = {**closed, "properties": {each: names for each in name["enum"]}}
        members["patternProperties"] = {**closed, "properties": {"^a": part, "b$": part}}
    return {"type": "object", "properties": members, "additionalProperties": False, "maxProperties": 5 + 2 * levels}


def hypothesis_schemas(count, seed):
    """Schemas of the package hypothesis-jsonschema: odder values, one level of parts."""
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", tempfile.gettempdir())  # not the working directory
    import hypothesis
    import hypothesis_jsonschema
    out = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, database=None, deadline=None, phases=[hypothesis.Phase.generate],
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(hypothesis_jsonschema.from_schema(metaschema(1)))
    def collect(schema):
        out.append(json.dumps(schema))

    collect()
    return sorted(set(out))[:count]
